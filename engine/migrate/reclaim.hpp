// SPDX-License-Identifier: MIT

// Reclaim: a kernel's kswapd for the fast tier, which demotes where it would swap (Linux 6.3,
// mm/vmscan.c; demotion since 5.15).
//
// It sleeps until it is woken: by an allocation or promotion that found too little room, by
// on_pressure(), by a policy's timer. Awake, each pass demotes what has not been accessed since the
// page was last looked at, until `target` of the fast tier is free or on its way out. Then it
// sleeps again. What could not be promoted in the meantime changes nothing.
//
// By lists (track/lru_lists.hpp) it demotes from the tail of the inactive one, in rounds of a
// priority that falls from 12 to 1 (balance_pgdat). A round looks at a part of the list, one page
// of 2^priority, and of that at what is left for pages that are no file's (get_scan_count: a
// sixth, as long as files cost nothing). Only where the inactive list is the smaller one does a
// round refill it: by two batches, and by as large a part of the active one (kswapd_age_node,
// shrink_lruvec). Where much is referenced, pages are activated faster than that, the inactive
// list runs empty, and what was just promoted is demoted again. From Linux 6.12 on kswapd judges
// by sizes that are up to two seconds old (prepare_scan_control,
// mem_cgroup_flush_stats_ratelimited), and then it lasts. When it finds nothing 16 times in a row
// it stops for good (MAX_RECLAIM_RETRIES); left out is that another program may free memory and so
// wake it again.
//
// By generations (track/generations.hpp), where Linux has them on (6.1 or newer), it demotes from
// the oldest.
//
//     Reclaim reclaim(memory, lists, knobs, marks.promo);
//     reclaim.wake(); reclaim.run(now);          // in on_pressure()
//     reclaim.run(now);                          // in tick(), each Reclaim::period while awake()
//
// Pace: a pass looks at as many pages as one thread can, reclaim_scan_rate times the time since the
// last one, and at none twice. It charges what it looks at, so that a busy thread comes late.
// Copying takes the movers' time: Movers::threads = 0 makes it kswapd's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/seam.hpp"
#include "migrate/allowance.hpp"
#include "track/generations.hpp"
#include "track/lru_lists.hpp"

namespace tt::migrate {

/// Watermarks of a zone, as shares of the fast tier that are free (mm/page_alloc.c): below `low`
/// first touches go to the next node; `high` must be free beyond a page that is promoted; up to
/// `promo` kswapd makes room where promotions want it (memory tiering).
struct KernelMarks {
  double min = 0, low = 0, high = 0, promo = 0;

  /// With the knobs watermark_min and watermark_scale.
  explicit KernelMarks(const Knobs& knobs);
};
[[nodiscard]] std::vector<KnobDecl> kernel_marks_knobs();

/// Whether the share of the fast tier, and so many pages beyond it, are free.
[[nodiscard]] bool is_free(const Memory& memory, double share, double pages = 0);

class Reclaim {
 public:
  /// Time between two passes while it is awake: a kernel's go on without a pause.
  static constexpr Nanos period = from_millis(10);

  /// With the knobs of reclaim_knobs() and of kernel_marks_knobs(). It judges by sizes of the lists
  /// that are at most `sizes_age` old: 0 before Linux 6.12.
  Reclaim(Memory& memory, track::LruLists& lists, const Knobs& knobs, double target,
          Nanos sizes_age = {});
  /// By generations, with reclaim_or_generation_knobs().
  Reclaim(Memory& memory, track::Generations& generations, const Knobs& knobs, double target);

  void wake() { awake_ = failures_ < most_failures; }
  [[nodiscard]] bool awake() const { return awake_; }
  /// A pass, if it is awake. Returns how many pages it asked to be demoted.
  std::uint64_t run(Nanos now);
  /// It has found nothing so often that it is not woken any more.
  [[nodiscard]] bool gave_up() const { return failures_ >= most_failures; }

 private:
  Reclaim(Memory& memory, const Knobs& knobs, double target);
  static constexpr int most_failures = 16;  // MAX_RECLAIM_RETRIES

  /// Finds victims_; returns how many pages were looked at, no more than `budget` but for a batch.
  std::uint64_t by_lists(std::uint64_t missing, std::uint64_t budget, Nanos now);
  /// Whether the inactive list is to be refilled.
  [[nodiscard]] bool inactive_is_low(Nanos now);
  std::uint64_t by_generations(std::uint64_t missing, std::uint64_t budget);

  Memory& memory_;
  track::LruLists* lists_ = nullptr;  // one of both
  track::Generations* generations_ = nullptr;
  const double target_, high_;  // shares of the fast tier
  RateLimiter scan_;
  bool awake_ = false;
  int failures_ = 0;                 // in a row
  double batch_ = 0;                 // SWAP_CLUSTER_MAX, fractional in a miniature
  double refill_ = 0, look_ = 0;     // parts of a page that are owed to the lists
  Nanos sizes_age_{}, sizes_end_{};  // the sizes below are good until then
  std::uint64_t inactive_size_ = 0, active_size_ = 0;
  std::vector<PageId> victims_;  // scratch
};

/// reclaim_scan_rate, and lru_gib for lists: what who reclaims in another way needs, too.
[[nodiscard]] std::vector<KnobDecl> scan_knobs();
/// Those, and lru_batch for the constructor of the lists.
[[nodiscard]] std::vector<KnobDecl> reclaim_knobs();
/// Those, and lru_gen, with lru_gen_batch for the constructor of the generations: which of both;
/// and lru_sizes_age for that of the lists.
[[nodiscard]] std::vector<KnobDecl> reclaim_or_generation_knobs();

}  // namespace tt::migrate
