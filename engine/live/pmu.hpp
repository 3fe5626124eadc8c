// SPDX-License-Identifier: MIT

// Pmu: how a processor samples accesses to memory, as the kernel's files describe it
// (/sys/bus/event_source/devices), and whether it really does. The kernel itself samples too, by
// NUMA hinting faults: it makes pages inaccessible in turn, and sees who comes.
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
    double stands_for = 1;           // accesses that missed the caches, each time it occurs
    std::uint64_t jitter = 0;        // that the processor adds to a period, on the average
  };
  std::string name;                                           // "pebs"
  std::string told = "samples by the processor's " + name;    // for people
  std::string processors = "/sys/devices/system/cpu/online";  // the file that lists those it has
  SampleLayout layout = SampleLayout::data_source;
  bool knows_sources = false;  // decode_spe()
  std::vector<Event> events;   // one of loads, or of both kinds, comes first
};

/// Intel: loads that took at least so many cycles, and stores where the kernel lists them. Nothing
/// if this processor has none. std::runtime_error naming a file that is not as the kernel documents
/// it (Documentation/ABI/testing/sysfs-bus-event_source-devices-format).
[[nodiscard]] std::optional<Pmu> find_pebs(KernelCalls& kernel, unsigned least_cycles);
/// AMD: operations, of which those that are loads and stores count. `misses`: only such as miss the
/// last level of cache, where the processor can tell (Zen 4).
[[nodiscard]] std::optional<Pmu> find_ibs(KernelCalls& kernel, bool misses);
/// Arm: operations, of which those that are loads and stores count; nearly all cores have the same
/// one (arm_spe_0), of others nothing is sampled. `misses`: only such as miss the first cache.
[[nodiscard]] std::optional<Pmu> find_spe(KernelCalls& kernel, bool misses);

/// The kernel's page faults, of which those of pages that are there are hinting faults. Only pages
/// of a program that was started under KernelCalls::hint take part, while NUMA balancing is on.
/// Nothing where the kernel has none (CONFIG_NUMA_BALANCING).
[[nodiscard]] std::optional<Pmu> find_hints(KernelCalls& kernel);

/// Whether `name` ("pebs", "ibs", "spe", "hints") samples this process's own accesses: opens its
/// events as they will be opened, touches and reads memory, and waits for a sample of that, for
/// some 100 ms at most. Of "hints" it also tries whether the kernel takes its memory policy. Empty
/// if so; else what is missing, and what would grant it.
[[nodiscard]] std::string lacking(KernelCalls& kernel, std::string_view name);

/// Rings of the events on all processors. Empty if it could, else what is missing, and what would
/// grant it.
[[nodiscard]] std::string open_rings(KernelCalls& kernel, const Pmu& pmu,
                                     std::vector<std::unique_ptr<SampleRing>>& out);

}  // namespace tt::live
