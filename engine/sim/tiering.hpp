// SPDX-License-Identifier: MIT

// The tiering thread: one core on which the policy runs.
//
// It owns the thread's time. The policy's work is charged as it is done; what does not fit a block
// is owed and comes first in the next one, and a thread that owes time delivers samples late, loses
// those that find the rings full, and ticks late. So a policy that costs too much suffers for it.
//
// A block may be longer than the policy's period. The block's samples are then delivered in parts,
// with a tick after each, at the times at which they were due.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/seam.hpp"
#include "core/ticker.hpp"
#include "sim/interference.hpp"
#include "sim/ledger.hpp"
#include "sim/profile.hpp"
#include "sim/work.hpp"

namespace tt::sim {

class TieringThread {
 public:
  /// `standing`: threads of the policy that spin while there is nothing to do.
  TieringThread(Ledger& ledger, const MachineProfile& profile, double scale, double standing)
      : ledger_(ledger), profile_(profile), scale_(scale), standing_(standing) {}

  /// When the policy exists: its first tick is due one period after the start.
  void start(const Policy& policy);

  /// What work takes on one core; `times` in the miniature, where each page stands for `scale` of
  /// them.
  [[nodiscard]] double work_ns(Work work, std::uint64_t times) const {
    return static_cast<double>(times) * profile_.work_ns[work] *
           (kind_of(work).per_page ? scale_ : 1);
  }
  /// As Memory::charge, for the work that this thread does.
  void charge(Work work, std::uint64_t times) { charged_ns_ += work_ns(work, times); }
  /// The lines of work are brought into the shared cache, whoever does it.
  void bring_lines(Work work, std::uint64_t times) {
    lines_ +=
        static_cast<double>(times) * kind_of(work).lines * (kind_of(work).per_page ? scale_ : 1);
  }

  /// One core's worth of work in the block that ends now: what it still owes, then the rings and
  /// the ticks. `fresh` are the block's samples, in random order; end() takes them.
  void begin(double block_ns, double now_ns, std::vector<Sample>& fresh, const Policy& policy);
  /// The block lasts longer.
  void extend(double ns) {
    block_ns_ += ns;
    now_ns_ += ns;
    left_ns_ += ns;
  }
  /// The ticks until then, each with the samples before it.
  void run(double until_ns, Policy& policy);
  /// The policy has been told something: its next tick may be due earlier than it was.
  void hurry(double at_ns, const Policy& policy);
  void end(Policy& policy);
  /// The most ticks in a block: a policy that wants more of them sees this many.
  static constexpr int most_ticks = 64;

  /// Of the last block, or of this one until now: time that it has left, which is the mover's if
  /// that has no threads of its own; and of the last block the share that this was.
  [[nodiscard]] double left_ns() const { return left_ns_; }
  [[nodiscard]] double idle_share() const { return idle_share_; }
  /// Adds the work of the last block, or what standing threads took of the cores if that is more.
  void disturb(Interference& out) {
    out.lines += std::exchange(lines_, 0.0);
    out.sampling_ns += sampling_ns_;
    out.policy_ns += std::max(policy_ns_, standing_ * block_ns_ - sampling_ns_);
  }

 private:
  double take_charged();
  using Time = std::chrono::duration<double, std::nano>;  // blocks end between nanoseconds
  [[nodiscard]] Time period(const Policy& policy) const;
  void pay(double cost);
  void drain(std::span<const Sample> fresh, double now_ns, Policy& policy);

  Ledger& ledger_;
  const MachineProfile& profile_;
  const double scale_;
  const double standing_;
  std::vector<Sample> waiting_;  // in the rings
  double charged_ns_ = 0;        // by charge(), not yet accounted
  double lines_ = 0;             // by bring_lines() and for samples, not yet felt
  double debt_ns_ = 0;           // work that it still has to do before anything else
  double sample_work_ns_ = 0;    // the policy's own work per simulated sample, moving average
  Ticker<Time> ticker_;
  // Of the current or last block.
  double block_ns_ = 0;
  double now_ns_ = 0;
  double free_ns_ = 0;  // from then on it owes nothing
  double left_ns_ = 0;
  double idle_share_ = 1;
  std::vector<Sample>* fresh_ = nullptr;
  std::span<const Sample> rest_;  // of these, not delivered yet
  double sampling_ns_ = 0;        // draining the rings
  double policy_ns_ = 0;          // the policy's own work
};

}  // namespace tt::sim
