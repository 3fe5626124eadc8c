// SPDX-License-Identifier: MIT

#include "live/joint_sampling.hpp"

namespace tt::live {
namespace {

using Event = SamplingRequest::Event;
using Mode = SamplingRequest::Mode;

/// Whether it asks for more samples of the same kind.
bool is_more(const Event& event, const Event& than) {
  return event.mode == Mode::period ? event.value < than.value : event.value > than.value;
}

/// What a policy that has asked for `asked` is told of what all have been granted.
Event told(const Event& asked, const Event& granted) {
  return asked.mode == granted.mode ? granted : Event{};
}

}  // namespace

JointSampling::JointSampling(SampleSource& source, std::size_t steps)
    : source_(source), asked_(steps) {
  for (std::size_t step = 0; step < steps; ++step) parts_.emplace_back(*this, step);
}

/// Of the first step that wants any, and of those that count in the same way.
Event JointSampling::most(Event SamplingRequest::* kind) const {
  Event out;
  for (const SamplingRequest& each : asked_) {
    const Event& event = each.*kind;
    if (out.mode == Mode::off || (event.mode == out.mode && is_more(event, out))) out = event;
  }
  return out;
}

SamplingRequest JointSampling::grant(std::size_t step, const SamplingRequest& request) {
  asked_[step] = request;
  SamplingRequest all;
  all.loads = most(&SamplingRequest::loads);
  all.stores = most(&SamplingRequest::stores);
  // Nobody else sees samples of the fastest tier; those of any other are the fast ones of somebody.
  all.fast_share = asked_.front().fast_share;
  const SamplingRequest granted = source_.grant(all);
  return {.loads = told(request.loads, granted.loads),
          .stores = told(request.stores, granted.stores),
          .fast_share = step == 0 ? granted.fast_share : 1};
}

}  // namespace tt::live
