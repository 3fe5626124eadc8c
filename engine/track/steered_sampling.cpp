// SPDX-License-Identifier: MIT

#include "track/steered_sampling.hpp"

#include <algorithm>
#include <cmath>

namespace tt::track {
namespace {

/// A change of the rate that is worth a new period.
constexpr double worth = 0.1;

}  // namespace

SamplingRequest SteeredSampling::set_sampling(const SamplingRequest& request) {
  wanted_ = request;
  return apply();
}

void SteeredSampling::tick(Nanos now) {
  const Counters counters = this->counters();
  const double events = counters.loads[index(Tier::fast)] + counters.loads[index(Tier::slow)];
  const double rate = now > last_ ? (events - events_) / seconds(now - last_) : 0;
  last_ = now;
  events_ = events;
  if (rate <= 0 || std::abs(rate - rate_) <= worth * rate_) return;
  rate_ = rate;
  apply();
}

SamplingRequest SteeredSampling::apply() {
  using Mode = SamplingRequest::Mode;
  SamplingRequest asked = wanted_;
  SamplingRequest::Event& loads = asked.loads;
  const bool steered = loads.mode == Mode::frequency && !loads.by_tier && !loads.by_core;
  const bool known = rate_ > 0;
  if (steered && known) loads = {Mode::period, std::max(1.0, rate_ / loads.value)};
  SamplingRequest granted = inner().set_sampling(asked);
  if (!steered || granted.loads.mode == Mode::off) return granted;
  // What an interrupt for each sample allows until the first tick says nothing of the periods.
  const double coarser = known ? granted.loads.coarser_than(asked.loads) : 1;
  granted.loads = {Mode::frequency, wanted_.loads.value / coarser};
  return granted;
}

}  // namespace tt::track
