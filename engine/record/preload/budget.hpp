// SPDX-License-Identifier: MIT

// Budget: what the hint-fault sampler may cost the program, and what it has cost so far.
//
// The sampler earns `overhead` times the program's processor time. It pays with its own processor
// time, with the time that threads wait for a page that is away, and with the interrupts that a
// move sends to other processors. Pages are taken only while there is credit.
#pragma once

#include <algorithm>
#include <cstdint>

#include "record/preload/kernel.hpp"

namespace tt::record {

inline std::uint64_t monotonic_ns() { return kernel::clock_ns(CLOCK_MONOTONIC); }
/// Processor time of the sampler's own thread, s.
inline double own_seconds() {
  return static_cast<double>(kernel::clock_ns(CLOCK_THREAD_CPUTIME_ID)) * 1e-9;
}
/// Processor time of all threads of the process, the sampler's included, s.
inline double process_seconds() {
  return static_cast<double>(kernel::clock_ns(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9;
}

class Budget {
 public:
  explicit Budget(double overhead) : overhead_(overhead) {}

  /// Processor time counts from here on.
  void begin() {
    wall_ns_ = monotonic_ns();
    process_s_ = process_seconds();
    own_s_ = own_seconds();
  }
  /// Closes a tick: what was earned and spent since the last call.
  void account() {
    const std::uint64_t at = monotonic_ns();
    const double wall = static_cast<double>(at - wall_ns_) * 1e-9;
    const double process = process_seconds();
    const double own = own_seconds();
    const double used = std::max(0.0, (process - process_s_) - (own - own_s_));
    const double spent = own - own_s_ + stalled_s_;
    if (wall > 0) busy_ = used / wall;
    credit_ = std::min(credit_ + overhead_ * used - spent, overhead_ * 0.1);
    spent_s_ += spent;
    program_s_ += used;
    used_s_ = used;
    wall_ns_ = at;
    process_s_ = process;
    own_s_ = own;
    stalled_s_ = 0;
  }

  // --- Costs ------------------------------------------------------------------------------------

  /// The sampler woke this much later than it had asked for: so does a thread that it lets go.
  void woke_late(std::uint64_t ns) {
    late_s_ += (std::min(static_cast<double>(ns) * 1e-9, 1e-3) - late_s_) * 0.1;
  }
  /// A thread waited for its page from `fault_ns` until now.
  void fault_served(std::uint64_t fault_ns) {
    stalled_s_ += late_s_ + wake_s + static_cast<double>(monotonic_ns() - fault_ns) * 1e-9;
  }
  /// A move of this many bytes interrupted the processors that the program runs on.
  void moved(std::uint64_t bytes) {
    stalled_s_ += busy_ > 1 ? (busy_ - 1) * interrupt_s * static_cast<double>(bytes) / 4096 : 0;
  }

  // --- State ------------------------------------------------------------------------------------

  [[nodiscard]] double overhead() const { return overhead_; }
  [[nodiscard]] double credit() const { return credit_; }
  [[nodiscard]] double spent_s() const { return spent_s_; }
  /// The program's processor time up to the last tick.
  [[nodiscard]] double program_s() const { return program_s_; }
  /// The same in the last tick alone.
  [[nodiscard]] double used_s() const { return used_s_; }
  /// Processors that the program used in the last tick.
  [[nodiscard]] double busy() const { return busy_; }
  /// Threads that the program has.
  [[nodiscard]] std::uint32_t threads() const { return threads_; }
  void set_threads(std::uint32_t threads) { threads_ = threads; }
  /// The program's processor time up to `at_ns`. It is a sum over its threads: of many it is
  /// extrapolated.
  [[nodiscard]] double program_s_at(std::uint64_t at_ns) const {
    if (threads_ <= exact_threads)
      return program_s_ +
             std::max(0.0, (process_seconds() - process_s_) - (own_seconds() - own_s_));
    const double wall = at_ns > wall_ns_ ? static_cast<double>(at_ns - wall_ns_) * 1e-9 : 0;
    return program_s_ + wall * busy_;
  }

 private:
  static constexpr std::uint32_t exact_threads = 64;
  static constexpr double interrupt_s = 1e-6;  // per processor and page moved; an estimate
  static constexpr double wake_s = 20e-6;      // until a thread runs that was let go; likewise

  double overhead_;
  std::uint64_t wall_ns_ = 0;  // of the last tick, as process_s_ and own_s_
  double process_s_ = 0;
  double own_s_ = 0;
  double program_s_ = 0;
  double used_s_ = 0;
  double busy_ = 1;
  std::uint32_t threads_ = 1;
  double late_s_ = 50e-6;
  double stalled_s_ = 0;  // waits and interrupts since the last tick
  double spent_s_ = 0;
  double credit_ = 0;
};

}  // namespace tt::record
