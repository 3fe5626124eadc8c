// SPDX-License-Identifier: MIT

// Drawn streams of huge pages against streams of base pages, of which every operation was made.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "check.hpp"

namespace check {

/// Counts of base pages, by huge page.
inline std::vector<double> by_huge_page(const std::vector<double>& base) {
  std::vector<double> huge((base.size() + 511) / 512);
  for (std::size_t page = 0; page < base.size(); ++page) huge[page / 512] += base[page];
  return huge;
}

/// Whether two counts per page come from one law, where one in `times` operations of the drawn ones
/// was made, and an operation's misses come in runs of about `lines` on one page.
inline void same_law(const std::vector<double>& made, const std::vector<double>& drawn,
                     double times, double lines) {
  CHECK_EQ(made.size(), drawn.size());
  double squares = 0;
  double all_made = 0;
  double all_drawn = 0;
  for (std::size_t page = 0; page < made.size(); ++page) {
    // Of the count that was made, of the law that the first operations show, and of the draws.
    const double variance = made[page] * (lines * (1 + times) + 1) + 1;
    const double error = drawn[page] - made[page];
    CHECK(error * error < 25 * variance);
    squares += error * error / variance;
    all_made += made[page];
    all_drawn += drawn[page];
  }
  CHECK(squares < 2 * static_cast<double>(made.size()));
  CHECK_NEAR(all_drawn, all_made, 0.005 * all_made);
}

}  // namespace check
