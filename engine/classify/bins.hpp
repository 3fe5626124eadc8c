// SPDX-License-Identifier: MIT

// AdaptiveBins: bins of equal width over values whose range is not known, wide enough that few of
// them reach the last one (PACT, ASPLOS'26).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/assert.hpp"
#include "core/math.hpp"
#include "core/rng.hpp"

namespace tt::classify {

/// The width follows the rule of Freedman and Diaconis (1981), twice the interquartile range over
/// the cube root of the population, from a random sample of the values of a round; it is doubled
/// after a round of which too many reached the last bin, and halved after any other. A round with
/// fewer values than the sample is to have goes on: a small system, or a miniature, takes longer.
class AdaptiveBins {
 public:
  struct Options {
    double bins = 20;
    double width = 1;          // until there is a sample of values
    std::size_t sample = 100;  // values of a round that are drawn
    double crowd = 0.7;        // share of a round's values in the last bin that is too many
    std::uint64_t seed = 0;
  };
  explicit AdaptiveBins(const Options& options)
      : options_(options), rng_(options.seed), width_(options.width) {}

  /// A value of this round. Returns whether it is in the last bin, the upper end of which is open.
  bool add(double value) {
    ++seen_;
    if (sample_.size() < options_.sample) {
      sample_.push_back(value);
    } else if (const std::uint64_t at = rng_.below(seen_); at < sample_.size()) {
      sample_[at] = value;
    }
    const bool last = value >= (options_.bins - 1) * width_;
    if (last) ++last_;
    TT_ASSERT(last_ <= seen_ && sample_.size() <= std::min<std::uint64_t>(seen_, options_.sample));
    return last;
  }
  /// `population`: all values that there are, of whatever round.
  void end_round(double population) {
    if (seen_ < options_.sample) return;
    const double share = static_cast<double>(last_) / static_cast<double>(seen_);
    const double range = quantile(3) - quantile(1);
    const double fitted = 2 * range / math::pow(std::max(population, 1.0), 1.0 / 3);
    if (fitted > 0) width_ = fitted * (share > options_.crowd ? 2 : 0.5);
    sample_.clear();
    seen_ = last_ = 0;
  }
  [[nodiscard]] double width() const { return width_; }

 private:
  double quantile(std::size_t quarter) {
    TT_ASSERT(!sample_.empty());
    const auto at = sample_.begin() + static_cast<std::ptrdiff_t>(quarter * sample_.size() / 4);
    std::ranges::nth_element(sample_, at);
    return *at;
  }

  Options options_;
  Rng rng_;
  double width_;
  std::uint64_t seen_ = 0, last_ = 0;  // in this round: values, and those in the last bin
  std::vector<double> sample_;
};

}  // namespace tt::classify
