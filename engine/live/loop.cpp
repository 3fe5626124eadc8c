// SPDX-License-Identifier: MIT

#include "live/loop.hpp"

#include <algorithm>
#include <utility>

namespace tt::live {

Loop::Loop(KernelCalls& kernel, LiveMemory& memory, Policy& policy, Collect collect, Follow follow,
           const Options& options, Nanos start)
    : kernel_(kernel),
      memory_(memory),
      policy_(policy),
      collect_(std::move(collect)),
      follow_(std::move(follow)),
      options_(options),
      start_(start),
      ticker_(policy.tick_period()),
      looks_(options.look_every),
      finds_(options.find_every) {}

Nanos Loop::turn() {
  const Nanos begin = now();
  if (finds_.due(begin)) {
    if (follow_(memory_)) looked_ = false;
    const double took = seconds(now() - begin);
    finds_.set_period(std::max(options_.find_every, from_seconds(took / options_.most_finding)));
    finds_.tick(begin);
  }
  if (!looked_ || looks_.due(begin)) {
    look_error_ = memory_.look(policy_, begin);
    const double took = seconds(now() - begin);
    looks_.set_period(std::max(options_.look_every, from_seconds(took / options_.most_looking)));
    if (looks_.due(begin)) looks_.tick(begin);
    looked_ = true;
  }
  const bool unplaced = memory_.place_some();
  samples_.clear();
  const Nanos used = kernel_.processor_time();
  collect_(memory_, begin, samples_);
  if (!samples_.empty()) policy_.on_samples(samples_, begin);
  memory_.sampling_took(kernel_.processor_time() - used);
  if (ticker_.due(begin)) {
    ticker_.set_period(policy_.tick_period());
    policy_.tick(begin);
    ticker_.tick(begin);
  }
  memory_.press(policy_, begin);
  bool waits = true;
  while (waits && now() - begin < options_.most_moving) waits = memory_.move(policy_, now());
  const double owed = seconds(begin - verified_) * options_.verified_per_second;
  if (owed >= 1) {
    memory_.verify(static_cast<std::uint64_t>(owed));
    verified_ = begin;
  }
  if (waits || unplaced) return Nanos{};
  const Nanos next = std::min({ticker_.next(), looks_.next(), finds_.next()});
  return std::clamp(next - now(), Nanos{}, memory_.quantum());
}

}  // namespace tt::live
