// SPDX-License-Identifier: MIT

// SamplingRequest: which accesses a policy wants to be told of.
#pragma once

#include <cstdint>

namespace tt {

/// What the policy wants to be sampled. A period counts events between two samples; a frequency
/// asks the substrate to adjust the period to so many samples a second over the whole system
/// (perf's -F): of each tier, of each core, or of each tier on each core, where the policy opens an
/// event for each of them. Events are demand loads that missed the last level of cache, and all
/// retired stores.
///
/// What a substrate grants has the same form. It is what was asked for, or less: an event that is
/// off (and then all zeros), a longer period, a lower frequency, one of the whole system instead of
/// each tier or core; the mode is the same otherwise. Of the fast tier's samples it may be more.
struct SamplingRequest {
  enum class Mode : std::uint8_t { off, period, frequency };
  struct Event {
    Mode mode = Mode::off;
    double value = 0;      // events per sample, or samples per second
    bool by_tier = false;  // a frequency is of each tier
    bool by_core = false;  // a frequency is of each core
    /// How many times as many accesses a sample stands for as if `asked` had been granted whole; 1
    /// where nothing was granted.
    [[nodiscard]] double coarser_than(const Event& asked) const {
      if (mode != asked.mode || mode == Mode::off || value == asked.value) return 1;
      return mode == Mode::period ? value / asked.value : asked.value / value;
    }
    friend bool operator==(const Event&, const Event&) = default;
  };
  Event loads;
  Event stores;
  double fast_share = 1;  // of the load samples in the fast tier, those that are taken
  friend bool operator==(const SamplingRequest&, const SamplingRequest&) = default;
};

}  // namespace tt
