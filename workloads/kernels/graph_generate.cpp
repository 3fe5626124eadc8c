// SPDX-License-Identifier: MIT

// Edge generators; see graph_generate.hpp.
#include "kernels/graph_generate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/math.hpp"
#include "trace/stream.hpp"

namespace tt::kernels::graph {
namespace {

// Graph500 and GAP: of each bit of a vertex' number, the share of edge ends at 0, A + B.
constexpr double at_zero = .57 + .19;

constexpr std::size_t steps = 65536;  // quantiles

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

/// Rank at the quantiles of the edges, and the number of ranks at the end.
std::vector<double> power_law(double ranks, double exponent, double head) {
  const double keep = 1 - exponent;
  const double from = math::pow(head, keep);
  const double to = math::pow(ranks + head, keep);
  std::vector<double> quantiles(steps + 1);
  for (std::size_t i = 0; i <= steps; ++i)
    quantiles[i] = math::pow(from + (to - from) * static_cast<double>(i) / steps, 1 / keep) - head;
  return quantiles;
}

/// The same of a Kronecker graph. A vertex whose number has k ones among `levels` bits has the
/// degree at_zero^(levels - k) (1 - at_zero)^k, in units of all: those with as many are alike, and
/// of both vertices and edge ends their shares are binomial.
std::vector<double> kronecker_ranks(double ranks, unsigned levels) {
  std::vector<double> quantiles;
  double vertices = std::ldexp(1.0, -static_cast<int>(levels));  // share with k ones
  double ends = math::pow(at_zero, levels);
  double vertices_before = 0;  // with fewer
  double ends_before = 0;
  for (unsigned k = 0; k <= levels; ++k) {
    while (quantiles.size() < steps) {
      const double wanted = static_cast<double>(quantiles.size()) / steps;
      if (wanted > ends_before + ends) break;
      quantiles.push_back(ranks * (vertices_before + vertices * (wanted - ends_before) / ends));
    }
    vertices_before += vertices;
    ends_before += ends;
    const double more = static_cast<double>(levels - k) / (k + 1);
    vertices *= more;
    ends *= more * (1 - at_zero) / at_zero;
  }
  quantiles.resize(steps + 1, ranks);
  return quantiles;
}

void shuffle(std::span<Vertex> values, Rng& rng) {
  for (std::size_t left = values.size(); left > 1; --left)
    std::swap(values[left - 1], values[rng.below(left)]);
}

}  // namespace

std::uint32_t thinning(std::uint64_t page_bytes, double vertices, double most) {
  const std::uint64_t limit = page_bytes / trace::base_page_bytes / 8;
  std::uint32_t thinned = 1;
  while (thinned < limit && vertices / thinned > most) thinned *= 2;
  return thinned;
}

EdgeGenerator::EdgeGenerator(Kind kind, std::uint64_t vertices, double scale, std::uint64_t seed)
    : kind_(kind), seed_(seed), rng_(mix64(seed) ^ 0x6772617068ULL) {
  if (vertices < 2 || vertices > 1ull << 31)
    throw std::invalid_argument("graph: 2 to 2^31 simulated vertices, found " +
                                std::to_string(vertices));
  vertices_ = static_cast<Vertex>(vertices);
  const auto ranks = static_cast<double>(vertices);
  if (kind == Kind::kronecker) {
    const double levels = std::round(math::log(ranks * scale) / math::log(2));
    from_ = to_ = kronecker_ranks(ranks, static_cast<unsigned>(levels));
  }
  if (kind == Kind::twitter) {
    from_ = power_law(ranks * scale, followed_exponent, followed_head);
    to_ = power_law(ranks * scale, following_exponent, following_head);
    for (std::vector<double>* quantiles : {&from_, &to_})
      for (double& rank : *quantiles) rank /= scale;
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
  if (kind_ == Kind::uniform) {
    const auto from = static_cast<Vertex>(rng_.below(vertices_));
    return {from, static_cast<Vertex>(rng_.below(vertices_))};
  }
  const Vertex from = rank(from_);
  const Vertex to = rank(to_);
  if (kind_ == Kind::kronecker) return {from, to};
  // Who follows many is spread over all users.
  const std::uint64_t spread = to * 2654435761ULL + 1;
  return {from, static_cast<Vertex>(spread % vertices_)};
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
