// SPDX-License-Identifier: MIT

#include "classify/thresholds.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/assert.hpp"

namespace tt::classify {

Thresholds fit_thresholds(const Histogram& histogram, double fast_pages, double alpha) {
  const std::span<const std::uint64_t> bins = histogram.bins();
  Thresholds result;
  double s = 0;
  int b = static_cast<int>(bins.size()) - 1;
  // Line 2. The paper prints "b >= 0 or ...", which would never stop at a full tier; its text says
  // "before overflowing the fast tier", hence "and".
  while (b >= 0 && s + static_cast<double>(bins[static_cast<std::size_t>(b)]) <= fast_pages) {
    s += static_cast<double>(bins[static_cast<std::size_t>(b)]);
    --b;
  }
  result.hot = b + 1;                                                  // line 6
  result.warm = s > fast_pages * alpha ? result.hot : result.hot - 1;  // lines 7-11
  result.cold = result.warm - 1;                                       // line 12
  TT_ASSERT(result.cold < result.warm && result.warm <= result.hot);
  TT_ASSERT(result.hot >= 0 && result.hot <= static_cast<int>(bins.size()));
  return result;
}

}  // namespace tt::classify
