// SPDX-License-Identifier: MIT

// EmulatedRing: the reader's side of the ring in which an emulated machine's sampler leaves misses
// (emulate/ring.hpp). Nothing that stands there is believed but its records, one by one: numbers
// that contradict each other make the reader begin anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/types.hpp"
#include "emulate/ring.hpp"
#include "live/changes.hpp"
#include "live/kernel_calls.hpp"

namespace tt::live {

class EmulatedRing {
 public:
  /// std::runtime_error naming what is there and what was expected, if it is no such ring, or one
  /// of another version.
  explicit EmulatedRing(std::unique_ptr<DeviceMemory> memory);

  /// What was sampled before is not read.
  void skip();
  /// Appends what has been sampled since, and makes room for more.
  void read(std::vector<emulate::SampleRecord>& out);
  /// From now on one sample of so many misses of this kind, or without a period the first one after
  /// so many nanoseconds; neither: none.
  void set(AccessKind kind, std::uint64_t period, std::uint64_t interval_ns);

  // The machine's counts, since it began.

  /// Samples for which there was no room.
  [[nodiscard]] std::uint64_t lost() const;
  [[nodiscard]] std::uint64_t misses(AccessKind kind, Tier tier) const;

  /// How often read() found numbers that cannot be, and began anew.
  [[nodiscard]] std::uint64_t restarts() const { return restarts_; }
  /// Whether somebody else has taken samples.
  [[nodiscard]] bool is_shared() const { return shared_; }

 private:
  void leave_tail(std::uint64_t tail);

  const std::unique_ptr<DeviceMemory> memory_;
  emulate::SampleRing& ring_;
  const std::span<const std::byte> records_;
  std::uint64_t tail_ = 0;  // as it was written here last
  std::uint64_t restarts_ = 0;
  bool shared_ = false;
};

/// What find_emulated_ring() finds.
struct FoundRing {
  bool is_there = false;               // a device of its kind
  std::unique_ptr<EmulatedRing> ring;  // null if it cannot be used
  std::string missing;                 // then: why
};

/// Looks for the ring among the PCI devices. One of its kind and size is enabled, which is noted in
/// `changes`; nothing is written to its memory.
[[nodiscard]] FoundRing find_emulated_ring(KernelCalls& kernel, Changes& changes);

}  // namespace tt::live
