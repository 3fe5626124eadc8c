// SPDX-License-Identifier: MIT

#include "live/loop.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace tt::live {

Loop::Loop(KernelCalls& kernel, const std::vector<Step>& steps, Collect collect, Follow follow,
           const Options& options, Nanos start)
    : kernel_(kernel),
      steps_(steps),
      top_(steps_.front().memory),
      collect_(std::move(collect)),
      follow_(std::move(follow)),
      options_(options),
      start_(start),
      looks_(options.look_every),
      finds_(options.find_every) {
  for (const Step& step : steps_) ticks_.emplace_back(step.policy.tick_period());
}

void Loop::hand_over(Nanos now) {
  samples_.clear();
  Nanos used = kernel_.processor_time();
  collect_(top_, now, samples_);
  top_.share_accesses();
  for (const Step& step : steps_) {
    const std::span<const Sample> own = step.memory.own(samples_, own_);
    if (!own.empty()) step.policy.on_samples(own, now);
    const Nanos after = kernel_.processor_time();
    step.memory.sampling_took(after - std::exchange(used, after));
  }
}

bool Loop::move(Nanos begin) {
  bool waits = true;
  while (waits && now() - begin < options_.most_moving) {
    waits = false;
    // From below: a demotion makes room for the one above.
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step)
      waits = step->memory.move(step->policy, now()) || waits;
  }
  return waits;
}

Nanos Loop::turn() {
  const Nanos begin = now();
  if (finds_.due(begin)) {
    if (follow_(top_)) looked_ = false;
    const double took = seconds(now() - begin);
    finds_.set_period(std::max(options_.find_every, from_seconds(took / options_.most_finding)));
    finds_.tick(begin);
  }
  if (!looked_ || looks_.due(begin)) {
    BlockChanges changes;
    const Nanos looking = now();
    look_error_ = top_.look(changes);
    const double took = seconds(now() - looking - top_.placing_time());
    for (const Step& step : steps_) step.memory.tell(changes, step.policy, begin);
    looks_.set_period(std::max(options_.look_every, from_seconds(took / options_.most_looking)));
    if (looks_.due(begin)) looks_.tick(begin);
    looked_ = true;
  }
  const bool unplaced = top_.place_some();
  hand_over(begin);
  Nanos next = std::min(looks_.next(), finds_.next());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    Policy& policy = steps_[i].policy;
    if (ticks_[i].due(begin)) {
      policy.tick(begin);
      ticks_[i].set_period(policy.tick_period());  // what the tick has made of it
      ticks_[i].tick(begin);
    }
    next = std::min(next, ticks_[i].next());
    steps_[i].memory.press(policy, begin);
  }
  const bool waits = move(begin);
  const double owed = seconds(begin - verified_) * options_.verified_per_second;
  if (owed >= 1) {
    top_.verify(static_cast<std::uint64_t>(owed));
    verified_ = begin;
  }
  if (waits || unplaced) return Nanos{};
  return std::clamp(next - now(), Nanos{}, top_.quantum());
}

}  // namespace tt::live
