// SPDX-License-Identifier: MIT

// KernelCalls: every system call of the live engine, so that a test can play the kernel and let any
// call fail.
//
// Calls answer with an errno, 0 for success, unless they say otherwise. Nothing here throws.
#pragma once

#include <linux/perf_event.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/types.hpp"

namespace tt::live {

inline constexpr std::uint64_t base_page_bytes = 4096;
/// 0 while the kernel's NUMA balancing is off.
inline const std::string balancing_file = "/proc/sys/kernel/numa_balancing";
/// The knobs of its scans.
inline const std::string scan_folder = "/sys/kernel/debug/sched/numa_balancing/";
/// The longest time in ms that it takes between two looks at a process.
inline const std::string scan_period_file = scan_folder + "scan_period_max_ms";
/// Pages are numbered by blocks of this size: what a huge page maps.
inline constexpr std::uint64_t block_bytes = 2 << 20;
inline constexpr std::uint64_t block_pages = block_bytes / base_page_bytes;

/// Pages of a process that have memory: addresses [begin, end).
struct Populated {
  std::uint64_t begin = 0, end = 0;
  bool huge = false;  // by entries of 2 MiB
  friend bool operator==(const Populated&, const Populated&) = default;
};

/// Records that the kernel writes for as long as this lives.
class TraceRing {
 public:
  virtual ~TraceRing() = default;
  /// What has come and not been taken yet: `out` holds nothing else then.
  virtual void read(std::vector<std::byte>& out) = 0;
  virtual void take(std::size_t bytes) = 0;
};

/// An event that samples, as perf_event_open(2) takes it.
struct SampledEvent {
  perf_event_attr attributes{};
  std::uint64_t leader = 0;  // config of an event that has to lead its group; 0: none
  /// Of an area of its own, into which the processor writes (perf's AUX area): a power of two. Such
  /// an event is alone in its ring. 0: none.
  std::size_t area_bytes = 0;
};

/// The records of such events on a processor.
class SampleRing : public TraceRing {
 public:
  /// From now on one sample of the event of this index for so many occurrences.
  [[nodiscard]] virtual int set_period(std::size_t event, std::uint64_t period) = 0;

  // Of an event with an area; places in it are counted over all that was ever written.

  /// How much has been written, and told by a record.
  [[nodiscard]] virtual std::uint64_t area_written() = 0;
  /// So much from there on; `out` holds nothing else then. False if it is not there (any more).
  [[nodiscard]] virtual bool read_area(std::uint64_t begin, std::uint64_t bytes,
                                       std::vector<std::byte>& out) = 0;
  /// All before `end` has been dealt with.
  virtual void take_area(std::uint64_t end) = 0;
  /// The event samples again: the kernel stops it when its area is full.
  [[nodiscard]] virtual int resume() = 0;
};

/// A device's memory, which is mapped for as long as this lives.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// All of it, from a page's begin on.
  [[nodiscard]] virtual std::span<std::byte> bytes() = 0;
};

class KernelCalls {
 public:
  virtual ~KernelCalls() = default;

  /// CLOCK_MONOTONIC.
  [[nodiscard]] virtual Nanos now() = 0;
  /// CLOCK_PROCESS_CPUTIME_ID: what this process has used of processors.
  [[nodiscard]] virtual Nanos processor_time() = 0;
  /// The text of a file of /proc or /sys.
  [[nodiscard]] virtual int read(const std::string& path, std::string& text) = 0;
  /// The names of the folders in a folder.
  [[nodiscard]] virtual int folders(const std::string& path, std::vector<std::string>& names) = 0;
  /// Writes to such a file, in one call.
  [[nodiscard]] virtual int write(const std::string& path, const std::string& text) = 0;
  /// A ring into which this thread's hits of a tracepoint go, with perf's `sample_type`.
  [[nodiscard]] virtual int trace(std::uint64_t tracepoint, int thread, std::uint64_t sample_type,
                                  std::unique_ptr<TraceRing>& out) = 0;
  /// A ring into which events on a processor go, of all processes. They sample from now on.
  [[nodiscard]] virtual int sample(std::span<const SampledEvent> events, int processor,
                                   std::unique_ptr<SampleRing>& out) = 0;
  /// Maps the memory of a PCI device: a resource file of sysfs (/sys/bus/pci/devices/*/resource2),
  /// to read and to write.
  [[nodiscard]] virtual int map_device(const std::string& path,
                                       std::unique_ptr<DeviceMemory>& out) = 0;
  /// A program that this thread starts from now on takes new pages from these nodes, and the kernel
  /// makes all of its pages inaccessible in turn, to see which are accessed, and leaves them where
  /// they are moved (set_mempolicy(2): MPOL_PREFERRED_MANY with MPOL_F_NUMA_BALANCING, which lets
  /// balancing move nothing as long as no processor is on these nodes). Without nodes: as before.
  [[nodiscard]] virtual int hint(std::span<const int> nodes) = 0;
  /// The populated pages of [begin, end), in order, behind what `out` has already. A page that
  /// stands for zeros (read, never written) is not among them, if the kernel tells (6.7 or newer).
  [[nodiscard]] virtual int populated(int pid, std::uint64_t begin, std::uint64_t end,
                                      std::vector<Populated>& out) = 0;
  /// Those of them that were written to since the process's soft-dirty bits were cleared: 4 written
  /// to /proc/PID/clear_refs. A kernel without such bits takes that, too, and tells nothing of it.
  [[nodiscard]] virtual int soft_dirty(int pid, std::uint64_t begin, std::uint64_t end,
                                       std::vector<Populated>& out) = 0;
  /// move_pages(2) with MPOL_MF_MOVE: each address to the node of the same index; without nodes it
  /// asks where they are. Returns what the system call does, or a negative errno. The kernel may
  /// leave statuses unwritten.
  [[nodiscard]] virtual long move_pages(int pid, std::span<const std::uint64_t> addresses,
                                        std::span<const int> nodes, std::span<int> statuses) = 0;
};

/// The machine's own.
class Linux final : public KernelCalls {
 public:
  Nanos now() override;
  Nanos processor_time() override;
  int read(const std::string& path, std::string& text) override;
  int folders(const std::string& path, std::vector<std::string>& names) override;
  int write(const std::string& path, const std::string& text) override;
  int trace(std::uint64_t tracepoint, int thread, std::uint64_t sample_type,
            std::unique_ptr<TraceRing>& out) override;
  int sample(std::span<const SampledEvent> events, int processor,
             std::unique_ptr<SampleRing>& out) override;
  int map_device(const std::string& path, std::unique_ptr<DeviceMemory>& out) override;
  int hint(std::span<const int> nodes) override;
  int populated(int pid, std::uint64_t begin, std::uint64_t end,
                std::vector<Populated>& out) override;
  int soft_dirty(int pid, std::uint64_t begin, std::uint64_t end,
                 std::vector<Populated>& out) override;
  long move_pages(int pid, std::span<const std::uint64_t> addresses, std::span<const int> nodes,
                  std::span<int> statuses) override;

 private:
  struct MemoryPolicy {
    int mode = 0;
    std::array<unsigned long, 16> nodes{};  // a bit each: 1024, the most that Linux has
  };
  std::optional<MemoryPolicy> before_;  // hint()
};

}  // namespace tt::live
