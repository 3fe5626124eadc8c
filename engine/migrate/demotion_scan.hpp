// SPDX-License-Identifier: MIT

// DemotionScan: frees room in the fast tier by walking the address space in chunks, from where it
// stopped last time. Its knobs: promote_watermark, demote_watermark, scan_chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/seam.hpp"
#include "migrate/mapped_ranges.hpp"

namespace tt::migrate {

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
    bool ended = false;           // the demotion is over; the next run would begin another one
    bool short_of_mark = false;   // ... after a whole pass, below the demote watermark
  };

  /// Throws std::invalid_argument if the demote watermark is below the promote watermark.
  explicit DemotionScan(const Options& options);
  /// As the knobs say, a slice at a time: about a whole pass a minute at a run a second. The papers
  /// do not bound a run; without a bound, a pass over 64 M pages with few victims keeps the tiering
  /// thread from its samples for seconds.
  explicit DemotionScan(const Knobs& knobs);

  /// Demotions under way count as free. Ends at the demote watermark, after its slice (the next run
  /// goes on, up to one whole pass), or when the queue is full. Never scans a page twice in one
  /// run.
  Result run(Memory& memory, const MappedRanges& space, const Judge& judge);

  [[nodiscard]] PageId cursor() const { return cursor_; }

 private:
  Options options_;
  PageId cursor_;
  std::uint64_t left_ = 0;        // pages that the demotion under way may still scan; 0: none is
  std::uint64_t barren_ = 0;      // pages scanned since the last victim
  std::vector<Residency> where_;  // scratch
  std::vector<PageId> fast_, victims_;
};

/// promote_watermark and demote_watermark, with the place where a system's paper has them.
[[nodiscard]] std::vector<KnobDecl> watermark_knobs(const std::string& source);
[[nodiscard]] KnobDecl scan_chunk_knob(std::string source);

}  // namespace tt::migrate
