// SPDX-License-Identifier: MIT

// A small deterministic generator: the same numbers on every platform and standard library.
#pragma once

#include <cstdint>

#include "core/math.hpp"
#include "core/types.hpp"

namespace tt {

/// xoshiro256++ (Blackman and Vigna, 2019), seeded by SplitMix64. The standard distributions differ
/// between libraries, so the few draws that the engine needs are defined here.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) {
    for (auto& word : state_) {
      seed += 0x9e3779b97f4a7c15ULL;
      word = mix64(seed);
    }
  }

  std::uint64_t next() {
    const std::uint64_t result = rotl(state_[0] + state_[3], 23) + state_[0];
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = rotl(state_[3], 45);
    return result;
  }

  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

  /// Uniform integer in [0, n), n > 0 (multiply-shift; bias below 2^-32 for n < 2^32).
  std::uint64_t below(std::uint64_t n) {
    return static_cast<std::uint64_t>((static_cast<Wide>(next()) * n) >> 64);
  }

  /// Exponential with the given mean.
  double exponential(double mean) { return -mean * math::log1p(-uniform()); }

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr std::uint64_t rotl(std::uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
  std::uint64_t state_[4]{};
};

}  // namespace tt
