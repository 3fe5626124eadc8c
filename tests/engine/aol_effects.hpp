// SPDX-License-Identifier: MIT

// What the knobs of AOL regulation do to a policy.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "knob_effects.hpp"

namespace tt::test {

/// What the next interval's counters say.
inline void set_aol(Rig& r, double aol) {
  r.memory.now.a3_reads = 1000;
  r.memory.now.a1_cycles = 1000 * aol;
}

/// `at(aol)` observes what regulation thins out, promotions or protected pages, at that AOL.
[[nodiscard]] inline std::vector<Entry> aol_entries(
    const std::function<std::function<double(Rig&)>(double)>& at, const KnobMap& others = {},
    std::uint64_t page_bytes = 4096) {
  const KnobMap on = with(others, {{"aol.enabled", true}});
  return {{"aol.enabled", false, true, Then::less, at(10), others, page_bytes},
          {"aol.low", 40.0, 5.0, Then::more, at(30), on, page_bytes},
          {"aol.high", 100.0, 50.0, Then::more, at(60), on, page_bytes},
          {"aol.interval", 1000.0, 100000.0, Then::more, at(10), on, page_bytes}};
}
/// `ask` makes the policy ask for promotions, of ten pages at least.
[[nodiscard]] inline auto asked_at(const std::function<void(Rig&)>& ask) {
  return [=](double aol) {
    return [=](Rig& r) {
      set_aol(r, aol);
      r.run(2);
      ask(r);
      return promotions(r);
    };
  };
}

}  // namespace tt::test
