// SPDX-License-Identifier: MIT

// VirtualClock: QEMU's virtual time, which memory makes later than the instructions alone.
//
// QEMU's own interface for it (qemu_plugin_update_ns) does nothing under -icount. What works is the
// bias of its instruction counter, which the binary exports within `timers_state`: where, is found
// by trying, and a QEMU in which it is not found is refused.
//
// The clock moves between two runs of the processor and under QEMU's lock alone, and timers that
// are due run at once: moved within a callback, the main loop's thread could see the new time first
// and fire a timer at a moment that the host decides. It never goes back: what an instruction
// should not have taken, being of a faster processor or of another one, is a debt that later waits
// repay.
#pragma once

#include <cstdint>
#include <string>

#include "emulate/memory_model.hpp"

namespace tt::emulate {

class VirtualClock {
 public:
  /// Of waits that are not yet on the clock, before it is moved.
  static constexpr Picos quantum = 20'000'000;

  /// Empty, or what this QEMU lacks.
  [[nodiscard]] std::string find();

  /// The processor has waited. `settle` is called before the clock moves.
  void wait(Picos picos);
  /// What the next instructions do not take of what they move the clock by.
  void set_back(Picos picos) {
    back_ += picos;
    const Picos whole = back_ / 1000;
    back_ -= whole * 1000;
    move(-static_cast<std::int64_t>(whole));
  }
  void owe(Picos picos) {
    debt_ += picos;
    if (debt_ > most_debt_) most_debt_ = debt_;
  }
  void before_settling(void (*account)()) { account_ = account; }

  [[nodiscard]] Picos owed() const { return debt_; }
  [[nodiscard]] Picos most_owed() const { return most_debt_; }
  [[nodiscard]] Picos repaid() const { return repaid_; }

 private:
  void move(std::int64_t nanoseconds) {
    __atomic_store_n(bias_, *bias_ + nanoseconds, __ATOMIC_RELAXED);
  }
  static void settle(void* cpu, std::uint64_t clock);

  std::int64_t* bias_ = nullptr;
  void** current_cpu_ = nullptr;  // of the only processor's thread
  void (*run_later_)(void*, void (*)(void*, std::uint64_t), std::uint64_t) = nullptr;
  bool (*run_timers_)(int) = nullptr;
  void (*account_)() = nullptr;
  Picos pending_ = 0, back_ = 0, debt_ = 0, most_debt_ = 0, repaid_ = 0;
  bool asked_ = false;
};

}  // namespace tt::emulate
