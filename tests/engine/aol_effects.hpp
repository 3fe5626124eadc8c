// What the knobs of AOL regulation do to a policy that asks for promotions.
#pragma once

#include <functional>
#include <vector>

#include "knob_effects.hpp"

namespace tt::test {

/// `ask` makes the policy ask for promotions, of ten pages at least.
[[nodiscard]] inline std::vector<Entry> aol_entries(const std::function<void(Rig&)>& ask,
                                                    const KnobMap& others = {},
                                                    std::uint64_t page_bytes = 4096) {
  const auto promoted_at = [=](double aol) {
    return [=](Rig& r) {
      r.memory.now.a3_reads = 1000;
      r.memory.now.a1_cycles = 1000 * aol;
      r.run(2);
      ask(r);
      return promotions(r);
    };
  };
  const KnobMap on = with(others, {{"aol.enabled", true}});
  return {{"aol.enabled", false, true, Then::less, promoted_at(10), others, page_bytes},
          {"aol.low", 40.0, 5.0, Then::more, promoted_at(30), on, page_bytes},
          {"aol.high", 100.0, 50.0, Then::more, promoted_at(60), on, page_bytes},
          {"aol.interval", 1000.0, 100000.0, Then::more, promoted_at(10), on, page_bytes}};
}

/// One list of entries and more.
[[nodiscard]] inline std::vector<Entry> joined(std::vector<Entry> some, std::vector<Entry> more) {
  for (Entry& entry : more) some.push_back(std::move(entry));
  return some;
}

/// What each choice of sampling_events splits a frequency into, as a number.
[[nodiscard]] inline double load_events(const Rig& r) {
  const auto& loads = r.memory.sampling.back().loads;
  return 1.0 + loads.by_tier + 2 * loads.by_core;
}
[[nodiscard]] inline double load_rate(const Rig& r) { return r.memory.sampling.back().loads.value; }
[[nodiscard]] inline std::vector<Entry> frequency_entries() {
  const auto choice = [](const char* value) { return KnobValue{std::string{value}}; };
  return {{"sampling_frequency", 1e4, 1e5, Then::more, load_rate},
          {"sampling_events", choice("system"), choice("tier"), Then::more, load_events},
          {"sampling_events", choice("tier"), choice("tier_and_core"), Then::more, load_events}};
}

}  // namespace tt::test
