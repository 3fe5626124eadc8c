// SPDX-License-Identifier: MIT

// What /proc/PID/stat tells of a process (proc_pid_stat(5)).
#pragma once

#include <cstdint>
#include <optional>

#include "core/types.hpp"
#include "live/kernel_calls.hpp"

namespace tt::live {

struct ProcessStat {
  int parent = 0;
  std::uint64_t started = 0;  // clock ticks since boot
  Nanos processor{};          // time that it has had, to a clock tick
};

/// None for a process that has ended or is a zombie, or where the text is not as documented.
[[nodiscard]] std::optional<ProcessStat> process_stat(KernelCalls& kernel, int pid);

}  // namespace tt::live
