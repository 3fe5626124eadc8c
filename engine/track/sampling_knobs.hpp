// SPDX-License-Identifier: MIT

// The knobs of systems that sample loads at a frequency: how often, and what gets an event of its
// own with this frequency.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/seam.hpp"

namespace tt::track {

/// sampling_frequency, 100 kHz unless said otherwise, and sampling_events; with their sources.
[[nodiscard]] inline std::vector<KnobDecl> frequency_knobs(std::string frequency,
                                                           std::string events) {
  using namespace knob;
  return list(
      real("sampling_frequency", 1e5, {100, 1e7, log}, hertz, std::move(frequency),
           "access samples per second"),
      choice(
          "sampling_events", {"system", "tier", "tier_and_core"}, std::move(events),
          "what gets an event with this frequency: with one for each tier, slow pages are sampled "
          "as often in all as fast ones, however seldom they are accessed"));
}

/// What they ask for.
[[nodiscard]] inline SamplingRequest::Event load_events(const Knobs& knobs) {
  const std::string& each = knobs.choice("sampling_events");
  return {SamplingRequest::Mode::frequency, knobs.real("sampling_frequency"), each != "system",
          each == "tier_and_core"};
}

}  // namespace tt::track
