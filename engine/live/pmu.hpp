// SPDX-License-Identifier: MIT

// Pmu: how a processor samples accesses to memory, as the kernel's files describe it
// (/sys/bus/event_source/devices), and whether it really does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "live/hardware_sample.hpp"
#include "live/kernel_calls.hpp"

namespace tt::live {

struct Pmu {
  struct Event {
    SampledEvent opened;
    bool loads = false, stores = false;
    std::uint64_t least_period = 1;  // and the step in which it can be set
    std::uint64_t step = 1;
    std::uint64_t first_period = 1;  // before its rate is known, where a frequency is asked for
  };
  std::string name;                                           // "pebs"
  std::string processors = "/sys/devices/system/cpu/online";  // the file that lists those it has
  SampleLayout layout = SampleLayout::data_source;
  std::vector<Event> events;  // one of loads, or of both kinds, comes first
};

/// Intel: loads that took at least so many cycles, and stores where the kernel lists them. Nothing
/// if this processor has none. std::runtime_error naming a file that is not as the kernel documents
/// it (Documentation/ABI/testing/sysfs-bus-event_source-devices-format).
[[nodiscard]] std::optional<Pmu> find_pebs(KernelCalls& kernel, unsigned least_cycles);
/// AMD: operations, of which those that are loads and stores count. `misses`: only such as miss the
/// last level of cache, where the processor can tell (Zen 4).
[[nodiscard]] std::optional<Pmu> find_ibs(KernelCalls& kernel, bool misses);

/// Whether `name` ("pebs", "ibs") samples this process's own accesses: opens its events as they
/// will be opened, reads memory, and waits for a sample of that, for some 100 ms at most. Empty if
/// so; else what is missing, and what would grant it.
[[nodiscard]] std::string lacking(KernelCalls& kernel, std::string_view name);

/// Rings of the events on all processors. Empty if it could, else what is missing, and what would
/// grant it.
[[nodiscard]] std::string open_rings(KernelCalls& kernel, const Pmu& pmu,
                                     std::vector<std::unique_ptr<SampleRing>>& out);

}  // namespace tt::live
