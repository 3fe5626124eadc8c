// SPDX-License-Identifier: MIT

// What the knobs of a profiling run do, for the policies that have them.
#pragma once

#include <string>
#include <vector>

#include "knob_effects.hpp"

namespace tt::test {

/// Score of the object at pages 0..9 after two seconds in which it gets `share` of the samples.
[[nodiscard]] inline auto score_at(double share, double aol) {
  return [=](Rig& r) {
    r.policy->on_map({{0}, 10}, 1, r.now);
    r.policy->on_map({{10}, 40}, 2, r.now);
    for (std::uint64_t page = 0; page < 50; ++page) r.memory.touch({page}, Tier::fast);
    for (int second = 0; second < 2; ++second) {
      r.policy->on_samples(std::vector<Sample>(static_cast<std::size_t>(share * 1000), Sample{{3}}),
                           r.now);
      r.policy->on_samples(
          std::vector<Sample>(static_cast<std::size_t>((1 - share) * 1000), Sample{{20}}), r.now);
      r.memory.now.a3_reads += 1000;
      r.memory.now.a1_cycles += 1000 * aol;
      r.memory.now.cycles += 1e6;
      r.memory.now.stall_cycles += 5e5;
      r.run(1);
    }
    for (const auto& object : r.policy->profile().objects)
      if (object.site == "arena") return object.score * object.pages;
    return -1.0;
  };
}
[[nodiscard]] inline double sampling_value(Rig& r) { return r.memory.sampling.back().loads.value; }
[[nodiscard]] inline double tick_period(Rig& r) { return seconds(r.policy->tick_period()); }

/// `sampling_period`: the name of that knob; `base`: what makes the policy profile.
[[nodiscard]] inline std::vector<Entry> profiling_entries(const char* sampling_period,
                                                          const KnobMap& base = {}) {
  return {{sampling_period, whole(1000), whole(3000), Then::more, sampling_value, base},
          {"profile_period", 500.0, 1000.0, Then::more, tick_period, base},
          {"r_min", 0.03, 0.2, Then::more, score_at(0.1, 50), base, 4096, false},
          {"r_max", 0.7, 0.9, Then::more, score_at(0.8, 50), base, 4096, false},
          {"overlap_aol", 40.0, 100.0, Then::less, score_at(0.8, 50), base, 4096, false},
          {"factor", std::string{"paper"}, std::string{"artifact"}, Then::more, score_at(0.8, 50),
           base, 4096, false},
          {"predictor_a", 0.87, 2.0, Then::less, score_at(0.5, 50), base, 4096, false},
          {"predictor_b", 24.67, 100.0, Then::less, score_at(0.5, 50), base, 4096, false}};
}

}  // namespace tt::test
