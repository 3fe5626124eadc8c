// SPDX-License-Identifier: MIT

// Coalescer: merges the samples of a batch that name the same page, so that a skewed batch costs a
// tracker far fewer updates (FreqTier, 2024, §V-C(c)).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "track/tracker.hpp"

namespace tt::track {

class Coalescer {
 public:
  /// One PageCount per distinct page of the batch, in order of first occurrence. The result is
  /// valid until the next call. Buffers are kept: a batch no larger than an earlier one allocates
  /// nothing.
  [[nodiscard]] std::span<const PageCount> coalesce(std::span<const PageId> batch);

 private:
  /// A slot is in use if its stamp is this batch's; so the table is never cleared.
  struct Slot {
    std::uint32_t stamp = 0;
    std::uint32_t index = 0;
  };
  std::vector<Slot> slots_;
  std::vector<PageCount> counts_;
  std::uint32_t stamp_ = 0;
  unsigned shift_ = 0;
};

}  // namespace tt::track
