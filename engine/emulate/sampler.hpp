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
  /// A period that follows how often there are misses, so that there are as many samples a second
  /// as were asked for. As Linux sets that of an event with a frequency: at each sample and at each
  /// timer tick it goes an eighth of the way (kernel/events/core.c, perf_adjust_period and
  /// perf_adjust_freq_unthr_events, 6.12). Linux's limit of samples in a tick is left out.
  class Pace {
   public:
    /// Whether this miss is to be sampled, where one in `interval` ns is wanted.
    bool due(std::uint64_t now, std::uint64_t interval);

   private:
    static constexpr std::uint64_t tick_ns = 4'000'000;  // HZ=250, as Debian's kernel has
    void adjust(std::uint64_t interval, std::uint64_t time, std::uint64_t misses);

    std::uint64_t period_ = 1, left_ = 1;  // misses
    std::uint64_t last_ = 0;               // ns: of the last sample
    std::uint64_t tick_ = 0, seen_ = 0;    // ns: of the last tick; misses since then
  };

  SampleRing& ring_;  // the guest reads and writes it, too
  SampleRecord* const records_;
  // By kind.
  std::array<std::uint64_t, 2> left_{};  // misses until the next one is sampled
  std::array<Pace, 2> pace_{};
};

}  // namespace tt::emulate
