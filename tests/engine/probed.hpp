// SPDX-License-Identifier: MIT

// A policy that asks probes, on a fake memory whose pages are accessed as a test says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "aol_effects.hpp"
#include "knob_effects.hpp"

namespace tt::test {

using Accessed = std::function<bool(PageId)>;

[[nodiscard]] inline Accessed pages(std::uint64_t first, std::uint64_t count) {
  return [=](PageId page) { return page.value - first < count; };
}
[[nodiscard]] inline Accessed nothing() {
  return [](PageId) { return false; };
}
/// Of the pages, each second question finds an access.
[[nodiscard]] inline Accessed half(std::uint64_t first, std::uint64_t count) {
  auto n = std::make_shared<int>(0);
  return [=](PageId page) { return page.value - first < count && ++*n % 2 == 0; };
}

/// Lets time pass. Probes are answered in time, accessed bits are set; moves are not carried out.
inline void probed(Rig& rig, double for_seconds, const Accessed& accessed,
                   std::uint64_t all_pages = 200) {
  const Nanos until = rig.now + from_seconds(for_seconds);
  while (rig.now + rig.policy->tick_period() <= until) {
    rig.run(seconds(rig.policy->tick_period()));
    for (std::uint64_t page = 0; page < all_pages; ++page)
      if (rig.memory.where({page}) != Residency::absent && accessed({page}))
        rig.memory.access({page}, AccessKind::load, rig.now);
    while (!rig.memory.rounds.empty()) rig.policy->on_probed(rig.memory.answer(accessed), rig.now);
  }
  rig.run(seconds(until - rig.now));
}

// Situations: what has been asked for after some time, and a gauge.
[[nodiscard]] inline auto promoted_after(double time, const Accessed& accessed) {
  return [=](Rig& r) {
    probed(r, time, accessed);
    return promotions(r);
  };
}
[[nodiscard]] inline auto demoted_after(double time, const Accessed& accessed) {
  return [=](Rig& r) {
    probed(r, time, accessed);
    return demotions(r);
  };
}
[[nodiscard]] inline auto gauge_after(const char* name, double time, const Accessed& accessed) {
  return [=](Rig& r) {
    probed(r, time, accessed);
    return r.gauge(name);
  };
}
[[nodiscard]] inline double found_in_new_mapping(Rig& r) {
  probed(r, 0.3, nothing());
  r.map(100, 100);
  probed(r, 1, pages(100, 100));
  return promotions(r);
}

/// What the knobs of AOL regulation do to a policy that finds hot pages by probes. `others`: at
/// most ten pages are promoted at all, else a second try would get the rest.
[[nodiscard]] inline std::vector<Entry> probed_aol_entries(const KnobMap& others) {
  return aol_entries(asked_at([](Rig& r) { probed(r, 1, pages(20, 30)); }), others);
}

}  // namespace tt::test
