// VictimScan: fast pages to make room with, one at a time, in address order from where the last
// search ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/seam.hpp"
#include "migrate/mapped_ranges.hpp"

namespace tt::migrate {

/// Looks at every page at most once per pass, and at none while nothing has changed since a pass
/// that found no victim.
class VictimScan {
 public:
  void begin_pass() {
    scanned_ = 0;
    found_ = false;
  }
  /// A page may have become a victim.
  void changed() { exhausted_ = false; }
  /// The next fast page that need not be kept.
  template <typename Keep>
  std::optional<PageId> next(const Memory& memory, const MappedRanges& space, Keep keep) {
    const std::uint64_t free = memory.free_pages(Tier::fast);
    if (exhausted_ && free == free_when_exhausted_) return std::nullopt;
    constexpr std::uint64_t chunk = 64;
    while (scanned_ < space.pages()) {
      const PageRange run = space.next(cursor_, std::min(chunk, space.pages() - scanned_));
      where_.resize(run.count);
      memory.residency(run.first, where_);
      for (std::uint64_t i = 0; i < run.count; ++i) {
        ++scanned_;
        cursor_ = {run.first.value + i + 1};
        const PageId page{run.first.value + i};
        if (where_[i] != Residency::fast || keep(page)) continue;
        found_ = true;
        return page;
      }
    }
    if (!found_) {
      exhausted_ = true;
      free_when_exhausted_ = free;
    }
    return std::nullopt;
  }
  /// Pages looked at in this pass.
  [[nodiscard]] std::uint64_t scanned() const { return scanned_; }

 private:
  PageId cursor_;
  std::uint64_t scanned_ = 0;
  bool found_ = false;      // a victim, in this pass
  bool exhausted_ = false;  // a whole pass found none, and nothing has changed since
  std::uint64_t free_when_exhausted_ = 0;
  std::vector<Residency> where_;  // scratch
};

}  // namespace tt::migrate
