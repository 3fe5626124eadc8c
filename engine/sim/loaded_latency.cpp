// SPDX-License-Identifier: MIT

#include "sim/loaded_latency.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <utility>

namespace tt::sim {
namespace {

constexpr double most_factor = 1e6;  // on the idle latency

double factor_on(const LoadedCurve& curve, double utilisation) {
  const auto& points = curve.points;
  if (utilisation <= points.front().first) return points.front().second;
  for (std::size_t i = 1; i < points.size(); ++i) {
    const auto& [x1, y1] = points[i];
    if (utilisation > x1) continue;
    const auto& [x0, y0] = points[i - 1];
    return y0 + (y1 - y0) * (utilisation - x0) / (x1 - x0);
  }
  return points.back().second;
}

}  // namespace

LoadedLatency::LoadedLatency(std::vector<LoadedCurve> curves) : curves_(std::move(curves)) {
  for (std::size_t c = 0; c < curves_.size(); ++c) {
    const auto& [reads, peak, points] = curves_[c];
    if (!(reads >= 0 && reads <= 1 && (c == 0 || reads > curves_[c - 1].reads)))
      throw std::invalid_argument("loaded-latency curves must ascend by their share of reads");
    if (!(peak > 0 && peak <= 1))
      throw std::invalid_argument("the peak of a loaded-latency curve must be a share");
    bool good = !points.empty();
    for (std::size_t i = 0; good && i < points.size(); ++i)
      good = points[i].second >= 1 && points[i].second <= most_factor &&
             (i == 0 ||
              (points[i].first > points[i - 1].first && points[i].second >= points[i - 1].second));
    if (!good)
      throw std::invalid_argument(
          "a loaded-latency curve must rise from a factor of at least 1 to one of at most 1e6, and "
          "its utilisations strictly");
  }
}

LoadedLatency::Mix LoadedLatency::at(double reads) const {
  Mix mix;
  if (curves_.empty()) return mix;
  const auto above = std::ranges::lower_bound(curves_, reads, {}, &LoadedCurve::reads);
  mix.more_reads_ = above == curves_.end() ? &curves_.back() : &*above;
  mix.fewer_reads_ =
      above == curves_.begin() || above == curves_.end() ? mix.more_reads_ : &*above - 1;
  if (mix.fewer_reads_ != mix.more_reads_)
    mix.weight_ =
        (reads - mix.fewer_reads_->reads) / (mix.more_reads_->reads - mix.fewer_reads_->reads);
  return mix;
}

double LoadedLatency::Mix::factor(double utilisation) const {
  if (fewer_reads_ == nullptr) return 1;
  const double fewer = factor_on(*fewer_reads_, utilisation);
  if (weight_ == 0) return fewer;
  return fewer + weight_ * (factor_on(*more_reads_, utilisation) - fewer);
}

double LoadedLatency::Mix::peak() const {
  if (fewer_reads_ == nullptr) return 1;
  return fewer_reads_->peak + weight_ * (more_reads_->peak - fewer_reads_->peak);
}

}  // namespace tt::sim
