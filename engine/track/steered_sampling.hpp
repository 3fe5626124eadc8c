// SPDX-License-Identifier: MIT

// SteeredSampling: a frequency of samples by fixed periods, each set from the rate of events.
//
// A processor that counts down from a fixed period writes records into a buffer and interrupts when
// that is full. Asked for a frequency, Linux adjusts the period at each sample, so that each is an
// interrupt (intel_pmu_large_pebs_flags() in arch/x86/events/intel/core.c takes no event with
// attr.freq), which costs ten times as much. MEMTIS (SOSP'23, §4.1.1) sets periods too, from the
// processor time that sampling takes. AMD's IBS has no such buffer.
#pragma once

#include "core/forwarding.hpp"

namespace tt::track {

/// Memory that answers a request for a system-wide frequency of load samples by a period. All other
/// requests pass through, and so do all until the rate of loads is known: until the first tick that
/// saw some. What is granted of the period counts as a frequency again, by the rate of then; until
/// it is known, the frequency counts as granted unless there is no sampling at all.
class SteeredSampling final : public ForwardingMemory {
 public:
  using ForwardingMemory::ForwardingMemory;

  SamplingRequest set_sampling(const SamplingRequest& request) override;
  /// Looks at the rate since the last tick.
  void tick(Nanos now);

 private:
  SamplingRequest apply();

  SamplingRequest wanted_;
  Nanos last_{};
  double events_ = 0;  // by then
  double rate_ = 0;    // events per second that the period is for; 0: not known
};

}  // namespace tt::track
