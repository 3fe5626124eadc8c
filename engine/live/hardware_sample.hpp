// SPDX-License-Identifier: MIT

// HardwareSample: one access that a processor has sampled, as a record of a perf ring tells it.
//
// Four layouts: PEBS and whatever else fills the kernel's perf_mem_data_src; the registers of
// AMD's IBS, which every kernel hands out as they are ("Processor Programming Reference for AMD
// Family 19h Model 01h", 55898, IBS; arch/x86/include/asm/amd/ibs.h); records of Arm's Statistical
// Profiling Extension (perf/spe.hpp); and page faults. In which tier the page is, is not taken from
// any: a processor knows sockets and kinds of memory, not which node is slow.
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/types.hpp"
#include "perf/spe.hpp"

namespace tt::live {

struct HardwareSample {
  /// What becomes of it.
  enum class Fate : std::uint8_t {
    access,   // a load that memory served, or a store that the nearer caches did not take
    cached,   // served by a cache
    other,    // no load and no store, or without a valid address in user space
    outside,  // in the kernel or the hypervisor
  };
  int pid = 0;
  AccessKind kind = AccessKind::load;
  std::uint64_t address = 0;
  std::uint64_t period = 0;  // events since the sample before
};

enum class SampleLayout : std::uint8_t { data_source, ibs, spe, fault };

/// Loads that take at least so many cycles come from memory, most of them: a period then counts
/// about what policies mean by it. The last level of a large cache takes 70 or so.
inline constexpr unsigned memory_cycles = 128;

/// Of 57 bits at most on x86-64 and 52 on Arm; the upper half is the kernel's.
[[nodiscard]] constexpr bool in_user_space(std::uint64_t address) {
  return address != 0 && address >> 57 == 0;
}

/// The sample_type of events whose records have this layout. Without a time: with one, Intel's
/// kernel interrupts for each sample rather than for a full buffer of them.
[[nodiscard]] std::uint64_t sample_type(SampleLayout layout);

/// What follows the header of a PERF_RECORD_SAMPLE. `out` is whole if the fate is `access`.
/// std::runtime_error for a record that is too short.
[[nodiscard]] HardwareSample::Fate decode_data_source(const perf_event_header& header,
                                                      std::span<const std::byte> body,
                                                      HardwareSample& out);
[[nodiscard]] HardwareSample::Fate decode_ibs(const perf_event_header& header,
                                              std::span<const std::byte> body, HardwareSample& out);
/// Loads count that memory served: as the record's data source says, if `knows_sources` (of a core
/// with the encoding of Arm's Neoverse; see Pmu), else as its events say of the last cache, else
/// those that took `memory_cycles` or more. Of stores no source is told. `period` operations stand
/// behind each; `pid` becomes the thread's number.
[[nodiscard]] HardwareSample::Fate decode_spe(const perf::SpeRecord& record, bool knows_sources,
                                              std::uint64_t period, HardwareSample& out);
/// An access that faulted, by the program or by the kernel for it; whether it was a store is not
/// told, and it counts as a load.
[[nodiscard]] HardwareSample::Fate decode_fault(std::span<const std::byte> body,
                                                HardwareSample& out);

}  // namespace tt::live
