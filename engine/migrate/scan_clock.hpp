// SPDX-License-Identifier: MIT

// ScanClock: when and where NUMA balancing takes access rights away (Linux 6.3,
// kernel/sched/fair.c: task_numa_work, task_scan_min and task_scan_max).
//
// One window of scan_size at a time, on through the address space and over again. The period is the
// least one after which a pass takes scan_period_min, but never so short that scanning would exceed
// max_scan_rate:
//
//     windows = resident memory / scan_size, rounded down, and one more
//     shortest = max(scan_size / max_scan_rate, scan_period_min / windows)
//     longest  = max(shortest, scan_period_max / windows)
//
// Linux rounds the windows up, and a program has code and a stack beside its data, which are not
// played here. The first period is by what is resident after a second (task_tick_numa), while a
// program may still be setting up its data; it is then told by faults, and does not get shorter by
// itself.
//
// A window whose pages are all protected already, or not of the tier, does not count, up to eight
// times its size: then the next follows at once. The end of the address space ends a window, and
// the pass: one that ends where its pages are used up leaves the rest of a program's memory, its
// stack, to a window of its own. All sizes are knobs, so a miniature keeps the time that a pass
// takes.
//
// A thread asks for a scan once a period of its run time (node_stamp), and gets it if a period has
// passed since the last scan of any (numa_next_scan): who asks too early asks again a period later.
// One that has scanned asks later by 32 times as long as it has scanned. Several threads are taken
// to ask evenly spread. The first scan is due a second after the first period is set
// (numa_balancing/scan_delay_ms). Left out: timer ticks, and two of them that Linux adds so that
// they make no thread ask too early.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/seam.hpp"
#include "migrate/allowance.hpp"
#include "migrate/mapped_ranges.hpp"

namespace tt::migrate {

class ScanClock {
 public:
  /// From the application's start until its first period is set, and from then to the first scan.
  static constexpr Nanos delay = from_seconds(1);

  /// With the knobs of scan_clock_knobs().
  ScanClock(Memory& memory, const Knobs& knobs);

  void map(PageRange range) { space_.map(range); }
  void unmap(PageRange range) { space_.unmap(range); }
  [[nodiscard]] const MappedRanges& space() const { return space_; }

  /// Pages that had been protected before and not been accessed since: a mask of the range.
  using Untouched = std::function<void(PageRange, std::span<const std::uint64_t>)>;
  /// Protects the pages of the next window that are in `which`, if it is due, part by part;
  /// `untouched` is called after each. Returns how many pages it protected.
  std::uint64_t run(Nanos now, Tiers which, const Untouched& untouched = {});

  /// Whether run() scans now.
  [[nodiscard]] bool due(Nanos now) const {
    return stamp_ > Nanos{} && now >= stamp_ + step() && now >= next_;
  }
  /// Time between two scans, if nothing delays them.
  [[nodiscard]] Nanos period() const;
  /// From the last call of run() to the one that may scan next: what a policy's tick_period() is.
  [[nodiscard]] Nanos pause() const;
  /// Passes over the address space that have ended.
  [[nodiscard]] std::uint64_t passes() const { return passes_; }
  /// After a pass: slower if nearly all of its faults were in the fast tier, faster if not, and
  /// half as fast after none at all or if promotions `failed` (update_task_scan_period). It starts
  /// at the shortest period. Faults count as shared by threads: whose they are is not known.
  void adapt(double fast_faults, double slow_faults, bool failed, Nanos now);
  /// Half as fast, from now on.
  void slow_down(Nanos now) { adapt(0, 0, false, now); }

 private:
  [[nodiscard]] double windows() const;
  [[nodiscard]] Nanos shortest() const;
  [[nodiscard]] Nanos longest() const;
  /// Between two times at which some thread asks.
  [[nodiscard]] Nanos step() const;

  Memory& memory_;
  const double window_pages_;  // in a miniature perhaps less than one
  const Nanos least_;          // by max_scan_rate
  const Nanos pass_min_, pass_max_;
  PerPass budget_;
  MappedRanges space_;
  PageId cursor_;
  Nanos called_{};      // run(), the last time
  Nanos stamp_{};       // when a thread last asked; 0: never
  Nanos next_{};        // no scan before
  double threads_ = 1;  // of the application
  Nanos adapted_{};     // 0: never
  std::uint64_t passes_ = 0;
  bool ended_ = true;                     // with the last window
  std::vector<std::uint64_t> untouched_;  // scratch
};

/// scan_size, scan_period_min, scan_period_max, max_scan_rate. What else the last period does in a
/// system may be told.
[[nodiscard]] std::vector<KnobDecl> scan_clock_knobs(
    std::string scan_period_max_meaning = "longest time that a pass over the memory takes");

}  // namespace tt::migrate
