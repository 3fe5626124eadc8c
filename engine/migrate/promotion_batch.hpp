// SPDX-License-Identifier: MIT

// PromotionBatch: the hot pages of a batch of samples, promoted with a single request.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <vector>

#include "core/seam.hpp"

namespace tt::migrate {

/// "Promotes all hot pages in a batch with a single system call" (HybridTier, ASPLOS'25, §4.3).
class PromotionBatch {
 public:
  /// A page is taken once per batch however often it is found hot.
  void add(PageId page) {
    if (members_.insert(page).second) pages_.push_back(page);
  }
  /// Requests the batch in order of discovery and forgets it. Pages that do not fit the substrate's
  /// queue are dropped: a hot page is soon sampled again. Returns how many were taken.
  std::size_t flush(Memory& memory) {
    const std::size_t taken = pages_.empty() ? 0 : memory.request(Tier::fast, pages_);
    pages_.clear();
    members_.clear();
    return taken;
  }

 private:
  std::vector<PageId> pages_;
  std::unordered_set<PageId> members_;
};

/// Pages that reached the fast tier.
[[nodiscard]] inline std::uint64_t promoted(std::span<const MigrationResult> results) {
  return static_cast<std::uint64_t>(std::ranges::count_if(results, [](const auto& result) {
    return result.to == Tier::fast && result.outcome == Outcome::done;
  }));
}

}  // namespace tt::migrate
