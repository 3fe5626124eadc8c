// SPDX-License-Identifier: MIT

// AccessSource: what tells which pages processes access. One is chosen for a session: an emulated
// machine's samples on such a machine, the processor's where it takes them, else the kernel's
// DAMON; NUMA hinting faults, which have their price, by name alone.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/needs.hpp"
#include "live/changes.hpp"
#include "live/damon.hpp"
#include "live/kernel_calls.hpp"
#include "live/live_memory.hpp"

namespace tt::live {

class AccessSource : public SampleSource {
 public:
  /// As options name it: "damon".
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// What it gives to policies.
  [[nodiscard]] virtual Need serves() const = 0;

  /// Watches these processes from now on. NotAllowed naming what is missing, and what would grant
  /// it; nothing has changed then.
  virtual void start(std::span<const int> pids) = 0;
  /// Watches these and no others from now on. Returns an errno while the kernel refuses the new
  /// ones, as it may where one has just ended: then it wants to be told again. NotAllowed as
  /// start().
  virtual int follow(std::span<const int> pids) = 0;
  /// Appends the samples that have come since it was called last. NotAllowed when there will be no
  /// more.
  virtual void collect(const LiveMemory& memory, Nanos now, std::vector<Sample>& out) = 0;

  /// Whether it lives on the kernel's NUMA balancing, which is off otherwise.
  [[nodiscard]] virtual bool takes_balancing() const { return false; }
  /// Takes samples so many times as seldom as policies ask for, from now on; 1 for as often.
  virtual void spare(unsigned times) = 0;
  /// Processor time that threads of the kernel have used for it; false if that cannot be read.
  [[nodiscard]] virtual bool kernel_time(Nanos& out) = 0;

  /// Records that were lost on their way here.
  [[nodiscard]] virtual std::uint64_t lost() const = 0;
  /// For people: where samples come from, whether they are estimated, and what became of those that
  /// were not handed on.
  [[nodiscard]] virtual std::string text() const = 0;
};

/// What make_source() takes.
inline constexpr std::array<std::string_view, 7> source_names{"auto",  "pebs",  "ibs",     "spe",
                                                              "damon", "hints", "emulated"};

/// What tells of writes where a source does not: nothing, or the kernel's soft-dirty bits.
inline constexpr std::array<std::string_view, 2> writes_names{"none", "soft-dirty"};

/// The source of this name; "auto": an emulated machine's, else the processor's, if it really
/// samples, else DAMON. What it changes in the kernel is noted in `changes`, which has to outlive
/// it. `writes`: of writes_names. NotAllowed telling why the machine, the processor or the kernel
/// does not sample so, or does not tell of writes; std::invalid_argument for an unknown name, and
/// for help with writes of which the source tells itself.
[[nodiscard]] std::unique_ptr<AccessSource> make_source(std::string_view name, KernelCalls& kernel,
                                                        Changes& changes,
                                                        const Damon::Options& damon,
                                                        std::uint64_t seed,
                                                        std::string_view writes = "none");

}  // namespace tt::live
