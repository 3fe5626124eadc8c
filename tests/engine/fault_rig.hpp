// SPDX-License-Identifier: MIT

// What the tests of the hint-fault systems have in common: pages that fault, and the knobs of the
// rooms that all of them use.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "aol_effects.hpp"
#include "fake_memory.hpp"
#include "knob_effects.hpp"

namespace tt::test {

using Numbers = std::vector<std::uint64_t>;

/// The application accesses the pages now; those that are protected fault.
inline void access(Rig& r, const Numbers& pages, AccessKind kind = AccessKind::load) {
  std::vector<Fault> faults;
  for (const auto page : pages)
    if (const auto fault = r.memory.access({page}, kind, r.now)) faults.push_back(*fault);
  r.policy->on_faults(faults, r.now);
}
[[nodiscard]] inline std::uint64_t protected_among(const Rig& r, std::uint64_t pages) {
  std::uint64_t count = 0;
  for (std::uint64_t p = 0; p < pages; ++p) count += r.memory.is_protected({p});
  return count;
}
/// The first scan is due in a second, also where ticks are more frequent.
inline void start_before_scans(Rig& r) {
  r.now = r.ticked = 2 * migrate::ScanClock::delay - from_seconds(1);
}
/// So many pages of the fast tier go away, without a word.
inline void make_room(Rig& r, std::uint64_t pages) { r.memory.free({{0}, pages}); }
/// Pages 20 to 29 fault a little after the scan that protected them; promotions.
[[nodiscard]] inline double promoted_of_ten(Rig& r, std::uint64_t room = 8) {
  make_room(r, room);
  r.run(2);
  for (std::uint64_t p = 20; p < 30; ++p) (void)r.memory.access({p}, AccessKind::load, r.now);
  r.memory.protect({{20}, 10}, Tiers::slow, {});
  r.now += from_millis(100);
  access(r, span_of(20, 10));
  return promotions(r);
}

/// Windows of so many pages, a pass a second, no limit to the rate.
[[nodiscard]] inline KnobMap scanning(double pages = 200) {
  return {{"scan_size", pages * page_mib}, {"max_scan_rate", 1e6}};
}
/// Pages that are protected by a first scan and within a time after it.
[[nodiscard]] inline auto protected_in(double time) {
  return [=](Rig& r) {
    r.policy->tick(r.now);
    r.run(time);
    return static_cast<double>(protected_among(r, 100));
  };
}
/// The knobs of the scan clock but for scan_period_max.
[[nodiscard]] inline std::vector<Entry> scan_entries() {
  return {{"scan_size", 10 * page_mib, 80 * page_mib, Then::more, protected_in(0.51)},
          {"scan_period_min", 1000.0, 4000.0, Then::less, protected_in(0.9), scanning(10)},
          {"max_scan_rate",
           20 * page_gib,
           60 * page_gib,
           Then::more,
           protected_in(1.01),
           {{"scan_size", 10 * page_mib}}}};
}

/// Pages that are protected in the second after an interval with this AOL.
[[nodiscard]] inline auto protected_at(double aol) {
  return [=](Rig& r) {
    set_aol(r, aol);
    r.run(1.5);
    for (std::uint64_t p = 0; p < 100; ++p) (void)r.memory.access({p}, AccessKind::load, r.now);
    r.run(1);
    return static_cast<double>(protected_among(r, 100));
  };
}

/// Kswapd is woken each second while all of the fast tier is accessed in between.
inline void press(Rig& r) {
  for (int n = 0; n < 20; ++n) {
    r.now += from_seconds(1);
    for (std::uint64_t p = 0; p < 20; ++p) (void)r.memory.access({p}, AccessKind::load, r.now);
    r.policy->on_pressure(Tier::fast, r.now);
  }
}
/// The knobs of kswapd and its lists.
[[nodiscard]] inline std::vector<Entry> reclaim_entries(KnobMap others = {}) {
  others.emplace("lru_batch", 1.0);  // a page stands for 32 of a kernel
  // Of the 20 pages that are accessed in each second kswapd looks at 15: it finds none twice.
  others.emplace("reclaim_scan_rate", 150 * page_gib);
  return {{"lru_batch", 1.0, 4.0, Then::more,
           [](Rig& r) {
             press(r);
             return r.gauge("inactive_pages");
           },
           others},
          {"reclaim_scan_rate", 20 * page_gib, 150 * page_gib, Then::more,
           [](Rig& r) {
             press(r);
             return static_cast<double>(r.memory.work(Work::lru_step));
           },
           others},
          {"lru_gib", 1024.0, 12 * page_mib, Then::more,
           [](Rig& r) {
             press(r);
             return r.gauge("active_pages");
           },
           others}};
}
/// The knobs of a kswapd that goes by generations or lists.
[[nodiscard]] inline std::vector<Entry> generation_entries() {
  const auto pressed = [](const char* gauge) {
    return [=](Rig& r) {
      press(r);
      return r.gauge(gauge);
    };
  };
  std::vector<Entry> all = reclaim_entries({{"lru_gen", false}, {"lru_sizes_age", 0.0}});
  // In the eleventh second all have just become active: by sizes of before nothing is refilled.
  all.push_back({"lru_sizes_age",
                 0.0,
                 60.0,
                 Then::less,
                 pressed("inactive_pages"),
                 {{"lru_gen", false}, {"lru_batch", 1.0}, {"reclaim_scan_rate", 150 * page_gib}}});
  // All is accessed each second: a pass that comes to evictions finds what it has just aged.
  all.push_back({"reclaim_scan_rate",
                 50 * page_gib,
                 500 * page_gib,
                 Then::more,
                 [](Rig& r) {
                   press(r);
                   return demotions(r);
                 },
                 {{"lru_gen_batch", 1.0}, {"watermark_scale", 0.1}}});
  all.push_back({"lru_gen",
                 false,
                 true,
                 Then::differs,
                 pressed("active_pages"),
                 {{"watermark_scale", 0.05},
                  {"lru_gen_batch", 1.0},
                  {"lru_batch", 1.0},
                  {"reclaim_scan_rate", 150 * page_gib}}});
  // Nothing is accessed: a batch goes as a whole.
  all.push_back({"lru_gen_batch",
                 1.0,
                 8.0,
                 Then::more,
                 [](Rig& r) {
                   r.run(1);
                   r.memory.accessed({{0}, 100}, {}, true);
                   r.policy->on_pressure(Tier::fast, r.now);
                   return demotions(r);
                 },
                 {{"watermark_scale", 0.05}}});
  return all;
}
/// Those, and the marks, of a policy in which nothing but a pressed kswapd demotes.
[[nodiscard]] inline std::vector<Entry> kswapd_entries(bool has_generations = false) {
  const auto demoted = [](Rig& r) {  // of an idle tier
    r.run(1);
    for (int n = 0; n < 3; ++n) {
      r.policy->on_pressure(Tier::fast, r.now);
      r.run(1);
    }
    return demotions(r);
  };
  std::vector<Entry> all =
      has_generations ? generation_entries()
                      : reclaim_entries({{"watermark_min", 0.3}, {"watermark_scale", 0.1}});
  KnobMap lists{{"lru_batch", 1.0}};
  if (has_generations) lists["lru_gen"] = false;
  all.push_back({"watermark_min", 0.0, 0.3, Then::more, demoted, lists});
  all.push_back({"watermark_scale", 0.05, 0.2, Then::more, demoted, lists});
  return all;
}

}  // namespace tt::test
