// SPDX-License-Identifier: MIT

// Sampler: the machine's side of the ring (ring.hpp). It samples misses as a processor does, by
// their number or by time, into memory that the guest's reader maps.
#pragma once

#include <array>
#include <cstdint>

#include "emulate/ring.hpp"

namespace tt::emulate {

class Sampler {
 public:
  /// `memory` has ring_bytes and outlives it; what is in there is lost.
  explicit Sampler(void* memory);

  struct Miss {
    std::uint64_t time_ns = 0;
    std::uint64_t address = 0, physical = 0;
    bool store = false;
    unsigned tier = 0;
  };
  enum class Wants { nothing, by_number, by_time };
  /// Counts it, and tells whether it is one to be sampled: then take() it.
  Wants wants(const Miss& miss);
  void take(const Miss& miss, std::uint32_t pid, std::uint32_t tid);

  [[nodiscard]] std::uint64_t taken() const { return ring_.head; }
  [[nodiscard]] std::uint64_t lost() const { return ring_.lost; }

 private:
  SampleRing& ring_;  // the guest reads and writes it, too
  SampleRecord* const records_;
  // By kind.
  std::array<std::uint64_t, 2> left_{};  // misses until the next one is sampled
  std::array<std::uint64_t, 2> due_{};   // ns
};

}  // namespace tt::emulate
