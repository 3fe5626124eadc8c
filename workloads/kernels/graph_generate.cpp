// Edge generators; see graph_generate.hpp.
#include "kernels/graph_generate.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/math.hpp"

namespace tt::kernels::graph {
namespace {

// Graph500 and GAP. Sixteen bits per level: probabilities are off by less than 1e-5.
constexpr std::uint64_t after_a = 37356;            // .57
constexpr std::uint64_t after_b = after_a + 12452;  // .19
constexpr std::uint64_t after_c = after_b + 12452;  // .19

// The follower graph's vertices are ranked by degree; rank r has a degree proportional to
// (r + head)^-exponent. Kwak et al. (WWW'10, Fig. 1): the share of users with more than x followers
// falls as x^-1.276, so degree falls with rank to the power 1 / 1.276. `head` bounds the first
// ones: the most followed user has 3.0 of 1468 million, the user who follows most 0.77 million.
constexpr double followed_exponent = 1 / 1.276;
constexpr double followed_head = 3;
constexpr double following_exponent = 0.7;  // estimate from that maximum
constexpr double following_head = 4;
// Numbers of users rise with the age of their account, and the popular ones joined early: the most
// followed tenth has the first tenth of numbers, in no order (estimate; "popular nodes are present
// on a small set of pages", From Good to Great, 2025, §4.3).
constexpr Vertex popular_part = 10;

/// Rank at 65536 quantiles of the edges, and the number of ranks at the end.
std::vector<double> power_law(double ranks, double exponent, double head) {
  constexpr std::size_t steps = 65536;
  const double keep = 1 - exponent;
  const double from = math::pow(head, keep);
  const double to = math::pow(ranks + head, keep);
  std::vector<double> quantiles(steps + 1);
  for (std::size_t i = 0; i <= steps; ++i)
    quantiles[i] = math::pow(from + (to - from) * static_cast<double>(i) / steps, 1 / keep) - head;
  return quantiles;
}

void shuffle(std::span<Vertex> values, Rng& rng) {
  for (std::size_t left = values.size(); left > 1; --left)
    std::swap(values[left - 1], values[rng.below(left)]);
}

}  // namespace

EdgeGenerator::EdgeGenerator(Kind kind, std::uint64_t vertices, std::uint64_t seed)
    : kind_(kind), seed_(seed), rng_(mix64(seed) ^ 0x6772617068ULL) {
  if (vertices < 2 || vertices > 1ull << 31)
    throw std::invalid_argument("graph: 2 to 2^31 simulated vertices, found " +
                                std::to_string(vertices));
  if (kind == Kind::kronecker) {
    // Of both powers of two around, the one at less than a factor of sqrt(2).
    levels_ = static_cast<unsigned>(std::bit_width(vertices)) - 1;
    if (static_cast<double>(vertices) > std::ldexp(std::sqrt(2.0), static_cast<int>(levels_)))
      ++levels_;
    vertices = 1ull << levels_;
  }
  vertices_ = static_cast<Vertex>(vertices);
  if (kind == Kind::twitter) {
    const auto ranks = static_cast<double>(vertices);
    followed_ = power_law(ranks, followed_exponent, followed_head);
    following_ = power_law(ranks, following_exponent, following_head);
  }
}

Vertex EdgeGenerator::rank(const std::vector<double>& quantiles) {
  const std::uint64_t draw = rng_.next();
  const std::size_t i = draw >> 48;
  const double within = static_cast<double>(draw & 0xffffffffffffULL) * 0x1.0p-48;
  const double rank = quantiles[i] + (quantiles[i + 1] - quantiles[i]) * within;
  return std::min(static_cast<Vertex>(std::max(rank, 0.0)), vertices_ - 1);
}

Edge EdgeGenerator::next() {
  switch (kind_) {
    case Kind::uniform: {
      const auto from = static_cast<Vertex>(rng_.below(vertices_));
      return {from, static_cast<Vertex>(rng_.below(vertices_))};
    }
    case Kind::twitter: {
      const Vertex from = rank(followed_);
      // Who follows many is spread over all users.
      const std::uint64_t spread = rank(following_) * 2654435761ULL + 1;
      return {from, static_cast<Vertex>(spread % vertices_)};
    }
    case Kind::kronecker:
      break;
  }
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t draw = 0;
  for (unsigned level = 0; level < levels_; ++level, draw >>= 16) {
    if (level % 4 == 0) draw = rng_.next();
    const std::uint64_t at = draw & 0xffff;
    const std::uint64_t beyond_b = at >= after_b ? 1 : 0;
    from = from << 1 | beyond_b;
    to = to << 1 | ((at >= after_a ? 1 : 0) ^ beyond_b ^ (at >= after_c ? 1 : 0));
  }
  return {static_cast<Vertex>(from), static_cast<Vertex>(to)};
}

std::vector<Vertex> EdgeGenerator::permutation() const {
  if (kind_ == Kind::uniform) return {};
  std::vector<Vertex> names(vertices_);
  std::iota(names.begin(), names.end(), 0u);
  Rng rng{mix64(seed_) ^ 0x6e616d6573ULL};
  if (kind_ == Kind::kronecker) {
    shuffle(names, rng);
  } else {
    const std::size_t popular = vertices_ / popular_part;
    shuffle(std::span(names).first(popular), rng);
    shuffle(std::span(names).subspan(popular), rng);
  }
  return names;
}

}  // namespace tt::kernels::graph
