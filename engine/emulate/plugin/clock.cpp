// SPDX-License-Identifier: MIT

#include "emulate/plugin/clock.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>

namespace tt::emulate {
namespace {

constexpr int virtual_clock = 1;  // QEMU_CLOCK_VIRTUAL
constexpr std::size_t searched_bytes = 0x60;
constexpr std::int64_t step = 4096;

template <typename Function>
bool look_up(const char* name, Function& out) {
  out = reinterpret_cast<Function>(::dlsym(RTLD_DEFAULT, name));
  return out != nullptr;
}

}  // namespace

std::string VirtualClock::find() {
  char* state = nullptr;
  int* counted = nullptr;
  std::int64_t (*clock)() = nullptr;
  std::int64_t (*counter)() = nullptr;
  if (!look_up("timers_state", state) || !look_up("icount_get", clock) ||
      !look_up("icount_get_raw", counter) || !look_up("use_icount", counted) ||
      !look_up("async_run_on_cpu", run_later_) || !look_up("qemu_clock_run_timers", run_timers_))
    return "this QEMU does not export its instruction counter";
  if (*counted == 0) return "QEMU must run with -icount shift=0,sleep=off";
  const std::int64_t time = clock(), instructions = counter();
  unsigned found = 0;
  // The word that moves the clock by as much as itself, and the counter not at all.
  for (std::size_t at = 0; at < searched_bytes; at += sizeof(std::int64_t)) {
    auto* const word = reinterpret_cast<std::int64_t*>(state + at);
    const std::int64_t before = *word;
    *word = before + step;
    const bool moves = clock() == time + step && counter() == instructions;
    *word = before;
    if (!moves) continue;
    bias_ = word;
    ++found;
  }
  return found == 1 ? "" : "this QEMU keeps its virtual clock in an unknown way";
}

void VirtualClock::wait(Picos picos) {
  pending_ += picos;
  if (pending_ < quantum || asked_) return;
  if (current_cpu_ == nullptr && !look_up("current_cpu", current_cpu_)) return;
  asked_ = true;
  run_later_(*current_cpu_, &settle, reinterpret_cast<std::uintptr_t>(this));
}

void VirtualClock::settle(void*, std::uint64_t self) {
  auto& clock = *reinterpret_cast<VirtualClock*>(self);
  clock.account_();
  const Picos pay = std::min(clock.debt_, clock.pending_);
  clock.debt_ -= pay;
  clock.repaid_ += pay;
  clock.pending_ -= pay;
  const Picos whole = clock.pending_ / 1000;
  clock.pending_ -= whole * 1000;
  clock.move(static_cast<std::int64_t>(whole));
  clock.asked_ = false;
  clock.run_timers_(virtual_clock);
}

}  // namespace tt::emulate
