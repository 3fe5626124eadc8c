// SPDX-License-Identifier: MIT

#include "core/histogram.hpp"

#include <algorithm>
#include <bit>

#include "core/assert.hpp"

namespace tt {

Histogram Histogram::exponential(unsigned bins) { return {false, bins}; }
Histogram Histogram::linear(unsigned max_count) { return {true, max_count}; }
Histogram Histogram::for_counter(std::uint32_t max_count) {
  return max_count <= 255 ? linear(max_count) : exponential();
}

unsigned Histogram::bin(std::uint32_t count) const {
  TT_ASSERT(count > 0);
  const unsigned exact = linear_ ? count - 1 : static_cast<unsigned>(std::bit_width(count)) - 1;
  return std::min(exact, static_cast<unsigned>(bins_.size()) - 1);
}

std::uint32_t Histogram::least(int bin) const {
  if (bin < 0) return 0;
  return linear_ ? static_cast<std::uint32_t>(bin) + 1 : std::uint32_t{1} << bin;
}

void Histogram::move(std::uint32_t from, std::uint32_t to, std::uint64_t pages) {
  if (from > 0) {
    auto& left = bins_[bin(from)];
    left -= std::min(left, pages);
  }
  if (to > 0) bins_[bin(to)] += pages;
}

void Histogram::cool() {
  if (!linear_) {
    std::shift_left(bins_.begin(), bins_.end(), 1);
    bins_.back() = 0;
    return;
  }
  // Count c becomes c / 2: bin n collects the counts 2n+2 and 2n+3, i.e. the bins 2n+1 and 2n+2.
  for (std::size_t n = 0; n < bins_.size(); ++n) {
    std::uint64_t pages = 0;
    for (const std::size_t source : {2 * n + 1, 2 * n + 2}) {
      if (source < bins_.size()) pages += bins_[source];
    }
    bins_[n] = pages;
  }
}

std::uint64_t Histogram::at_least(std::uint32_t count) const {
  std::uint64_t pages = 0;
  for (std::size_t b = count == 0 ? 0 : bin(count); b < bins_.size(); ++b) pages += bins_[b];
  return pages;
}

}  // namespace tt
