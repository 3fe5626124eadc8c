// SPDX-License-Identifier: MIT

#include "classify/split_plan.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace tt::classify {

double SplitPlan::end_interval(double gap) {
  const auto all = static_cast<double>(std::exchange(samples_, 0));
  const double before = real_;
  real_ = all > 0 ? static_cast<double>(std::exchange(real_hits_, 0)) / all : 0;
  estimated_ =
      all > 0 ? options_.estimate * static_cast<double>(std::exchange(estimated_hits_, 0)) / all
              : 0;
  if (std::exchange(has_split_, false) && real_ - before < options_.end_below) ended_ = true;
  const double benefit = estimated_ - real_;
  if (ended_ || sampled_ == 0 || gap <= 0 || benefit < options_.benefit) return 0;
  // The printed equation divides the first factor by L_fast, too, which leaves a unit over: taken
  // for a misprint, as in the published code.
  const double accessed = all / (huge_samples_ / sampled_);  // about so many huge pages
  has_split_ = true;
  return std::min(benefit * gap * options_.beta * accessed, accessed);
}

double SplitPlan::skewness(double squares, std::uint64_t hot) {
  return hot == 0 ? 0 : squares / static_cast<double>(hot * hot);
}

void SplitPlan::clear() {
  huge_samples_ = sampled_ = 0;
  for (auto& units : by_skewness_) units.clear();
}

void SplitPlan::add(PageId huge, double samples, double squares, std::uint64_t hot) {
  if (samples == 0) return;
  huge_samples_ += samples;
  ++sampled_;
  const double factor = skewness(squares, hot);
  if (factor < 1) return;
  const auto whole = static_cast<std::uint64_t>(std::min(factor, 0x1p63));
  by_skewness_[static_cast<std::size_t>(std::bit_width(whole)) - 1].push_back(huge);
}

std::vector<PageId> SplitPlan::take(double wanted) {
  fraction_ += wanted;
  const auto most = static_cast<std::uint64_t>(fraction_);
  fraction_ -= static_cast<double>(most);
  std::vector<PageId> taken;
  for (auto pages = by_skewness_.rbegin(); pages != by_skewness_.rend(); ++pages)
    for (; !pages->empty() && taken.size() < most; pages->pop_back())
      taken.push_back(pages->back());
  return taken;
}

}  // namespace tt::classify
