// SPDX-License-Identifier: MIT

// Checksum of the stream format: finds damage, does not defend against an adversary.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/types.hpp"

namespace tt::trace {

/// 64-bit checksum at memory speed: four independent lanes of multiply-rotate. Each step is a
/// bijection of the lane's state and of the word, so a single wrong word always changes the sum.
[[nodiscard]] inline std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t lanes[4] = {0x9e3779b97f4a7c15ULL, 0xbf58476d1ce4e5b9ULL, 0x94d049bb133111ebULL,
                            0xd6e8feb86659fd93ULL};
  const auto absorb = [&lanes](const std::byte* from) {
    for (std::size_t i = 0; i < 4; ++i) {
      std::uint64_t word = 0;
      std::memcpy(&word, from + 8 * i, 8);
      lanes[i] = std::rotl(lanes[i] ^ word, 29) * 0x9fb21c651e98df25ULL;
    }
  };
  std::size_t at = 0;
  for (; at + 32 <= bytes.size(); at += 32) absorb(bytes.data() + at);
  if (at < bytes.size()) {
    std::byte tail[32] = {};
    std::memcpy(tail, bytes.data() + at, bytes.size() - at);
    absorb(tail);
  }
  std::uint64_t sum = mix64(bytes.size() + 1);
  for (const std::uint64_t lane : lanes) sum = mix64(sum ^ lane);
  return sum;
}

}  // namespace tt::trace
