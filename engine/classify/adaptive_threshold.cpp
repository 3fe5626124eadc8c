// SPDX-License-Identifier: MIT

#include "classify/adaptive_threshold.hpp"

#include <algorithm>
#include <cmath>

#include "classify/thresholds.hpp"

namespace tt::classify {

AdaptiveThreshold::AdaptiveThreshold(const Options& options)
    : options_(options),
      histogram_(Histogram::for_counter(options.ceiling)),
      value_(options.initial) {}

void AdaptiveThreshold::move(std::span<const std::uint32_t> before,
                             std::span<const std::uint32_t> after) {
  for (std::size_t i = 0; i < before.size(); ++i) histogram_.move(before[i], after[i]);
}

void AdaptiveThreshold::set(std::uint32_t value) {
  value_ = std::clamp(value, options_.floor, options_.ceiling);
}

void AdaptiveThreshold::lower(std::uint32_t step) {
  if (value_ > options_.floor) set(value_ - std::min(step, value_ - options_.floor));
}

bool AdaptiveThreshold::advance(std::uint64_t samples) {
  since_ += static_cast<double>(samples);
  if (since_ < options_.period || options_.rule == Rule::fixed) return false;
  // Late is not twice: periods missed inside one long batch are one adaptation.
  since_ = options_.period > 0 ? std::fmod(since_, options_.period) : 0;
  if (options_.rule == Rule::fill) {
    // "It is adequate to initiate the adaptation process when the total capacity of sampled pages
    // is similar to the fast tier capacity."
    filled_ = filled_ || static_cast<double>(histogram_.at_least(1)) >= options_.fast_pages;
    if (!filled_) return false;
    set(histogram_.least(fit_thresholds(histogram_, options_.fast_pages, 1.0).hot));
  } else if (static_cast<double>(histogram_.at_least(value_)) > options_.fast_pages) {
    set(value_ + 1);
  } else if (value_ > options_.floor &&
             static_cast<double>(histogram_.at_least(value_ - 1)) <= options_.fast_pages) {
    // Lowered only as far as the larger hot set still fits, or it would swing between two values.
    set(value_ - 1);
  }
  return true;
}

}  // namespace tt::classify
