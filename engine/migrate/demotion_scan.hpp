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

/// Share of the address space that the published systems' scan covers per run here: about a whole
/// pass a minute at a run a second. Their papers do not bound it; unbounded, a pass over 64 M pages
/// stops sampling for seconds whenever victims are rare.
inline constexpr double scan_slice = 1.0 / 60;

/// Watermark-driven linear scan (FreqTier, 2024, §V-B1; HybridTier, ASPLOS'25, §4.3): when less
/// than the promote watermark of the fast tier is free, demote until the demote watermark is.
class DemotionScan {
 public:
  struct Options {
    double promote_watermark = 0;  // share of the fast tier that is free
    double demote_watermark = 0;   // >= promote_watermark
    double chunk = 1;              // pages per residency query, at least 1
    double slice = 1;              // share of the address space that one run may scan
  };
  /// Moves from `fast` (pages of one chunk that are in the fast tier) to `victims` those to demote.
  using Judge = std::function<void(std::span<const PageId> fast, std::vector<PageId>& victims)>;

  struct Result {
    bool triggered = false;       // free space was below the promote watermark, now or before
    std::uint64_t scanned = 0;    // pages whose residency was asked
    std::uint64_t requested = 0;  // demotions queued
    bool empty = false;           // the last whole pass, over one or more runs, found nothing
  };

  /// Throws std::invalid_argument if the demote watermark is below the promote watermark.
  explicit DemotionScan(const Options& options);

  /// Demotions under way count as free. Ends at the demote watermark, after its slice (the next run
  /// goes on, up to one whole pass), or when the queue is full; never scans a page twice in one
  /// run. A slice keeps the tiering thread from reading residency for seconds, deaf to samples,
  /// when victims are rare.
  Result run(Memory& memory, const AddressSpace& space, const Judge& judge);

  [[nodiscard]] PageId cursor() const { return cursor_; }

 private:
  Options options_;
  PageId cursor_;
  std::uint64_t left_ = 0;        // pages that the demotion under way may still scan; 0: none is
  std::uint64_t barren_ = 0;      // pages scanned since the last victim
  std::vector<Residency> where_;  // scratch
  std::vector<PageId> fast_, victims_;
};

}  // namespace tt::migrate
