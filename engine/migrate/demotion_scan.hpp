// DemotionScan: frees room in the fast tier by walking the address space in chunks, from where it
// stopped last time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/seam.hpp"
#include "migrate/address_space.hpp"

namespace tt::migrate {

/// Watermark-driven linear scan (FreqTier, 2024, §V-B1; HybridTier, ASPLOS'25, §4.3): when less
/// than the promote watermark of the fast tier is free, demote until the demote watermark is.
class DemotionScan {
 public:
  struct Options {
    double promote_watermark = 0;  // share of the fast tier that is free
    double demote_watermark = 0;   // >= promote_watermark
    double chunk = 1;              // pages per residency query, at least 1
  };
  /// Moves from `fast` (pages of one chunk that are in the fast tier) to `victims` those to demote.
  using Judge = std::function<void(std::span<const PageId> fast, std::vector<PageId>& victims)>;

  struct Result {
    bool triggered = false;       // free space was below the promote watermark
    std::uint64_t scanned = 0;    // pages whose residency was asked
    std::uint64_t requested = 0;  // demotions queued
    bool empty = false;           // a whole pass found nothing to demote
  };

  /// Throws std::invalid_argument if the demote watermark is below the promote watermark.
  explicit DemotionScan(const Options& options);

  /// Demotions under way count as free. Ends at the demote watermark, after one whole pass, or when
  /// the queue is full; never scans a page twice in one run.
  Result run(Memory& memory, const AddressSpace& space, const Judge& judge);

  [[nodiscard]] PageId cursor() const { return cursor_; }

 private:
  Options options_;
  PageId cursor_;
  std::vector<Residency> where_;  // scratch
  std::vector<PageId> fast_, victims_;
};

}  // namespace tt::migrate
