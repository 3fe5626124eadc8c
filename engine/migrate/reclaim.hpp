// SPDX-License-Identifier: MIT

// Reclaim: a kernel's kswapd for the fast tier, which demotes where it would swap (Linux 6.3,
// mm/vmscan.c; demotion since 5.15).
//
// It sleeps until it is woken: by an allocation or promotion that found too little room, by
// on_pressure(), by a policy's timer. Awake, each pass demotes what has not been accessed since the
// page was last looked at, until `target` of the fast tier is free or on its way out. Then it
// sleeps again. What could not be promoted in the meantime changes nothing.
//
// By lists (track/lru_lists.hpp) it demotes from the tail of the inactive one. A pass looks at a
// 4096th of that, then at twice as much, and so on, until what is missing has been found
// (balance_pgdat's priorities). By then it has found more, but no more than the high watermark
// (kswapd_shrink_node): so more is free than the target when it sleeps. By generations
// (track/generations.hpp), where Linux has them on (6.1 or newer), it demotes from the oldest.
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

  /// With the knobs of reclaim_knobs() and of kernel_marks_knobs().
  Reclaim(Memory& memory, track::LruLists& lists, const Knobs& knobs, double target);
  /// By generations, with generation_knobs() in place of lru_gib.
  Reclaim(Memory& memory, track::Generations& generations, const Knobs& knobs, double target);

  void wake() { awake_ = true; }
  [[nodiscard]] bool awake() const { return awake_; }
  /// A pass, if it is awake. Returns how many pages it asked to be demoted.
  std::uint64_t run(Nanos now);

 private:
  Reclaim(Memory& memory, const Knobs& knobs, double target);
  /// Finds victims_; returns how many pages were looked at, no more than `budget` but for a batch.
  std::uint64_t by_lists(std::uint64_t missing, std::uint64_t budget);
  std::uint64_t by_generations(std::uint64_t missing, std::uint64_t budget);

  Memory& memory_;
  track::LruLists* lists_ = nullptr;  // one of both
  track::Generations* generations_ = nullptr;
  const double target_, high_;  // shares of the fast tier
  RateLimiter scan_;
  bool awake_ = false;
  std::vector<PageId> victims_;  // scratch
};

/// reclaim_scan_rate, and lru_gib for the constructor of the lists.
[[nodiscard]] std::vector<KnobDecl> reclaim_knobs();
/// Those, and lru_gen, with lru_gen_batch for the constructor of the generations: which of both.
[[nodiscard]] std::vector<KnobDecl> reclaim_or_generation_knobs();

}  // namespace tt::migrate
