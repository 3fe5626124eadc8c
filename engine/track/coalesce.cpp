// SPDX-License-Identifier: MIT

#include "track/coalesce.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>

#include "track/lines.hpp"

namespace tt::track {

std::span<const PageCount> Coalescer::coalesce(std::span<const PageId> batch) {
  if (batch.size() > std::numeric_limits<std::uint32_t>::max() / 4)
    throw std::invalid_argument("coalesce: batch too large");
  if (slots_.size() < 2 * batch.size() || slots_.empty()) {
    const std::size_t capacity = std::bit_ceil(std::max<std::size_t>(2 * batch.size(), 64));
    slots_.assign(capacity, Slot{});
    counts_.resize(capacity / 2);
    shift_ = 64U - static_cast<unsigned>(std::countr_zero(capacity));
    stamp_ = 0;
  }
  if (++stamp_ == 0) {  // wrapped: stamps of long ago would look fresh
    std::fill(slots_.begin(), slots_.end(), Slot{});
    stamp_ = 1;
  }
  const std::size_t mask = slots_.size() - 1;
  std::uint32_t distinct = 0;
  for_each_chunk<std::uint64_t>(
      batch,
      [&](PageId page) {
        const std::uint64_t home = mix64(page.value) >> shift_;
        __builtin_prefetch(&slots_[home], 1);
        return home;
      },
      [&](std::span<const std::uint64_t> homes, std::size_t begin) {
        for (std::size_t i = 0; i < homes.size(); ++i) {
          const PageId page = batch[begin + i];
          std::uint64_t at = homes[i];
          while (slots_[at].stamp == stamp_ && counts_[slots_[at].index].page != page)
            at = (at + 1) & mask;
          Slot& slot = slots_[at];
          if (slot.stamp != stamp_) {
            slot = {stamp_, distinct};
            counts_[distinct++] = {page, 0};
          }
          ++counts_[slot.index].count;
        }
      });
  return std::span<const PageCount>(counts_).first(distinct);
}

}  // namespace tt::track
