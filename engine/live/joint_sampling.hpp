// SPDX-License-Identifier: MIT

// JointSampling: one source for the policies of several steps between tiers. It samples as often as
// the one that asks for the most, and tells each what it gets with that.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "live/live_memory.hpp"

namespace tt::live {

class JointSampling {
 public:
  /// For so many steps, whose policies ask one after the other; the source has to outlive it.
  JointSampling(SampleSource& source, std::size_t steps);
  /// What the policy of this step asks, 0 for the topmost one.
  [[nodiscard]] SampleSource& of(std::size_t step) { return parts_[step]; }

 private:
  class Part final : public SampleSource {
   public:
    Part(JointSampling& all, std::size_t step) : all_(all), step_(step) {}
    SamplingRequest grant(const SamplingRequest& request) override {
      return all_.grant(step_, request);
    }
    void count(Counters& counters) const override { all_.source_.count(counters); }

   private:
    JointSampling& all_;
    const std::size_t step_;
  };

  SamplingRequest grant(std::size_t step, const SamplingRequest& request);
  [[nodiscard]] SamplingRequest::Event most(SamplingRequest::Event SamplingRequest::* kind) const;

  SampleSource& source_;
  std::vector<SamplingRequest> asked_;  // by step
  std::deque<Part> parts_;
};

}  // namespace tt::live
