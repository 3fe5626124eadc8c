// SPDX-License-Identifier: MIT

// Loop: what a live engine does again and again: looks at the processes, hands over samples, ticks,
// moves, verifies. It sleeps nowhere: it tells when there is something to do again.
#pragma once

#include <functional>
#include <vector>

#include "core/seam.hpp"
#include "core/ticker.hpp"
#include "live/live_memory.hpp"

namespace tt::live {

class Loop {
 public:
  struct Options {
    // Both are longer where they take more of the time than this: what a new page costs once, here
    // and in a policy, does not count.
    Nanos look_every = from_millis(500), find_every = from_millis(500);
    double most_looking = 0.02, most_finding = 0.01;
    double verified_per_second = 8192;    // pages: under a hundredth of a core
    Nanos most_moving = from_millis(50);  // in a turn: samples wait no longer
  };
  /// Appends the samples that have come since it was called last.
  using Collect =
      std::function<void(const LiveMemory& memory, Nanos now, std::vector<Sample>& out)>;
  /// Finds which processes there are and tells the memory; whether others than before.
  using Follow = std::function<bool(LiveMemory& memory)>;
  /// Two neighbouring tiers, and the policy between them.
  struct Step {
    LiveMemory& memory;
    Policy& policy;
  };

  /// `steps`: from the fastest tier on. `start`: the clock's time that policies take for 0.
  Loop(KernelCalls& kernel, const std::vector<Step>& steps, Collect collect, Follow follow,
       const Options& options, Nanos start);

  /// One turn. Returns how long nothing is due then; 0 if moves still wait.
  Nanos turn();
  /// Of the last look: the errno of a process that could not be looked at, 0 if there was none.
  [[nodiscard]] int look_error() const { return look_error_; }
  /// Since the start.
  [[nodiscard]] Nanos now() { return kernel_.now() - start_; }

 private:
  /// Collects samples for the policies.
  void hand_over(Nanos now);
  /// Moves while there is time; whether some still wait.
  bool move(Nanos begin);

  KernelCalls& kernel_;
  std::vector<Step> steps_;
  LiveMemory& top_;
  const Collect collect_;
  const Follow follow_;
  const Options options_;
  const Nanos start_;
  std::vector<Ticker<Nanos>> ticks_;  // of each step
  Ticker<Nanos> looks_, finds_;
  std::vector<Sample> samples_, own_;
  Nanos verified_{};
  bool looked_ = false;
  int look_error_ = 0;
};

}  // namespace tt::live
