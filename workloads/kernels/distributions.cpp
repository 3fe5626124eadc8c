// SPDX-License-Identifier: MIT

#include "kernels/distributions.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "core/math.hpp"

namespace tt::kernels {
namespace {

/// Largest value in [low, high] for which `holds`; it must hold for low and be monotone.
template <typename Predicate>
double largest(double low, double high, Predicate holds) {
  if (holds(high)) return high;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (holds(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

Popularity::Popularity(std::span<const double> top, std::span<const double> share) {
  std::vector<double> x{0};
  std::vector<double> s{0};
  if (top.size() != share.size() || top.empty())
    throw std::invalid_argument("popularity: as many shares as positions are needed");
  x.insert(x.end(), top.begin(), top.end());
  s.insert(s.end(), share.begin(), share.end());
  if (x.back() < 1) {
    x.push_back(1);
    s.push_back(1);
  }
  std::vector<double> density;  // mean popularity of each piece
  for (std::size_t i = 1; i < x.size(); ++i) {
    density.push_back((s[i] - s[i - 1]) / (x[i] - x[i - 1]));
    if (!(x[i] > x[i - 1] && x[i] <= 1 && s[i] > s[i - 1] && s[i] <= 1 + 1e-12) ||
        (i > 1 && density[i - 1] > density[i - 2]))
      throw std::invalid_argument(
          "popularity: positions and shares must rise to 1, shares per object must not");
  }
  for (std::size_t i = 0; i < density.size(); ++i) {
    const double from = x[i];
    const double to = x[i + 1];
    const auto at = [&](double position, double exponent) {
      const double keep = 1 - exponent;
      return density[i] * (to - from) * keep * math::pow(position, -exponent) /
             (math::pow(to, keep) - math::pow(from, keep));
    };
    const double exponent = largest(0, 0.999, [&](double e) {
      const bool start = i == 0 || at(from, e) <= std::sqrt(density[i - 1] * density[i]);
      const bool end =
          i + 1 == density.size() || at(to, e) >= std::sqrt(density[i] * density[i + 1]);
      return start && end;
    });
    pieces_.push_back({from, to, s[i], s[i + 1], exponent, math::pow(from, 1 - exponent),
                       math::pow(to, 1 - exponent)});
  }
}

double Popularity::position(double uniform) const {
  std::size_t i = 0;
  while (i + 1 < pieces_.size() && uniform >= pieces_[i].share_to) ++i;
  const Piece& piece = pieces_[i];
  const double within = (uniform - piece.share_from) / (piece.share_to - piece.share_from);
  const double x =
      math::pow(piece.low + within * (piece.high - piece.low), 1 / (1 - piece.exponent));
  return std::clamp(x, piece.from, std::nextafter(piece.to, 0.0));
}

double Popularity::share(double x) const {
  for (const Piece& piece : pieces_)
    if (x <= piece.to)
      return piece.share_from + (piece.share_to - piece.share_from) *
                                    (math::pow(x, 1 - piece.exponent) - piece.low) /
                                    (piece.high - piece.low);
  return 1;
}

NormalPopularity::NormalPopularity(double sigma) {
  if (!(sigma > 0 && std::isfinite(sigma)))
    throw std::invalid_argument("normal popularity: needs a standard deviation above 0");
  // Beyond 9 sigma is less than 1e-18 of all accesses. A position of x is x/2 away from the middle.
  constexpr int steps = 4096;
  step_ = std::min(1.0, 2 * 9 * sigma) / steps;
  const auto density = [&](double position) {
    const double away = position / 2 / sigma;
    return math::exp(-0.5 * away * away);
  };
  share_.push_back(0);
  for (int i = 0; i < steps; ++i)  // Simpson's rule
    share_.push_back(share_.back() + density(i * step_) + 4 * density((i + 0.5) * step_) +
                     density((i + 1) * step_));
  const double all = share_.back();
  for (double& share : share_) share /= all;
}

double NormalPopularity::position(double uniform) const {
  const auto above = std::upper_bound(share_.begin() + 1, share_.end() - 1, uniform);
  const double low = *(above - 1);
  const double within = *above > low ? (uniform - low) / (*above - low) : 0;
  const double steps = static_cast<double>(above - 1 - share_.begin()) + std::min(within, 1.0);
  return std::min(steps * step_, std::nextafter(1.0, 0.0));
}

double NormalPopularity::share(double x) const {
  const double steps = x / step_;
  const auto i = static_cast<std::size_t>(steps);
  if (i + 1 >= share_.size()) return 1;
  return share_[i] + (share_[i + 1] - share_[i]) * (steps - std::floor(steps));
}

Sizes::Sizes(std::span<const double> quantile, std::span<const double> bytes, double mean_bytes)
    : quantile_(quantile.begin(), quantile.end()) {
  if (quantile.size() != bytes.size() || quantile.size() < 2 || quantile.front() != 0 ||
      quantile.back() != 1)
    throw std::invalid_argument("sizes: as many sizes as quantiles, from 0 to 1, are needed");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (!(bytes[i] >= 1) || (i > 0 && !(quantile[i] > quantile[i - 1] && bytes[i] >= bytes[i - 1])))
      throw std::invalid_argument("sizes: quantiles must rise, sizes rise from 1 on");
    log_bytes_.push_back(math::log(bytes[i]));
  }
  constexpr double least = 0.05;
  constexpr double most = 50;
  constexpr double rounding = 1 + 1e-9;
  if (!(mean(least) * rounding >= mean_bytes && mean(most) <= mean_bytes * rounding))
    throw std::invalid_argument("sizes: no curve through the percentiles has this mean");
  exponent_ = largest(least, most, [&](double e) { return mean(e) >= mean_bytes; });
}

double Sizes::log_size(std::size_t i, double within, double exponent) const {
  if (quantile_[i] >= 0.9) within = math::pow(within, exponent);
  return log_bytes_[i] + (log_bytes_[i + 1] - log_bytes_[i]) * within;
}

double Sizes::mean(double exponent) const {
  double sum = 0;
  constexpr int steps = 2000;
  for (std::size_t i = 0; i + 1 < quantile_.size(); ++i) {
    double piece = 0;
    for (int step = 0; step < steps; ++step)
      piece += math::exp(log_size(i, (step + 0.5) / steps, exponent));
    sum += piece / steps * (quantile_[i + 1] - quantile_[i]);
  }
  return sum;
}

double Sizes::at(double quantile) const {
  std::size_t i = 0;
  while (i + 2 < quantile_.size() && quantile >= quantile_[i + 1]) ++i;
  return math::exp(
      log_size(i, (quantile - quantile_[i]) / (quantile_[i + 1] - quantile_[i]), exponent_));
}

Zipf::Zipf(double n, double exponent) : n_(std::floor(n)), exponent_(exponent) {
  if (!(n_ >= 1 && n_ < 0x1p53 && exponent >= 0 && std::isfinite(exponent)))
    throw std::invalid_argument("zipf: a population of at least 1 and an exponent of at least 0");
  low_ = integral(1.5) - 1;
  high_ = integral(n_ + 0.5);
  sure_ = 2 - inverse(integral(2.5) - density(2));
}

double Zipf::density(double x) const { return math::exp(-exponent_ * math::log(x)); }

// (x^(1 - exponent) - 1) / (1 - exponent), and its limit log x where the exponent is 1.
double Zipf::integral(double x) const {
  const double log_x = math::log(x);
  const double power = (1 - exponent_) * log_x;
  return power == 0 ? log_x : math::expm1(power) / power * log_x;
}

double Zipf::inverse(double y) const {
  const double power = std::max((1 - exponent_) * y, -1.0);
  return math::exp(power == 0 ? y : math::log1p(power) / power * y);
}

std::uint64_t Zipf::rank(Rng& rng) const {
  for (;;) {
    const double y = low_ + rng.uniform() * (high_ - low_);
    const double x = inverse(y);
    const double k = std::clamp(std::floor(x + 0.5), 1.0, n_);
    if (k - x <= sure_ || y >= integral(k + 0.5) - density(k))
      return static_cast<std::uint64_t>(k) - 1;
  }
}

Ranks::Ranks(std::size_t objects, double half_life_s, std::uint64_t seed)
    : at_(objects), rng_(seed) {
  std::iota(at_.begin(), at_.end(), 0u);
  if (half_life_s <= 0) {
    next_s_ = std::numeric_limits<double>::infinity();
    return;
  }
  // An object that has been moved is popular with probability `popular`. So of the popular ones a
  // share r has never been moved, with r + (1 - r) * popular = 1/2. An exchange moves two objects.
  const double moves_per_object = math::log((1 - popular) / (0.5 - popular));
  mean_gap_s_ = half_life_s / (moves_per_object * static_cast<double>(objects) / 2);
  next_s_ = rng_.exponential(mean_gap_s_);
}

void Ranks::advance(double now_s) {
  for (; next_s_ <= now_s; next_s_ += rng_.exponential(mean_gap_s_)) {
    const auto rank = rng_.below(at_.size());
    std::swap(at_[rank], at_[rng_.below(at_.size())]);
  }
}

void Ranks::shift(double top, double share) {
  const auto hot = static_cast<std::size_t>(top * static_cast<double>(at_.size()));
  std::vector<std::uint32_t> cold(at_.size() - hot);  // ranks, each taken once
  std::iota(cold.begin(), cold.end(), static_cast<std::uint32_t>(hot));
  for (std::size_t rank = 0; rank < hot; ++rank) {
    if (rng_.uniform() >= share) continue;
    std::swap(cold[rank], cold[rank + rng_.below(cold.size() - rank)]);
    std::swap(at_[rank], at_[cold[rank]]);
  }
}

}  // namespace tt::kernels
