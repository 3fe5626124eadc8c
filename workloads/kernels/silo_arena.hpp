// SPDX-License-Identifier: MIT

// The allocator that Silo puts under its trees and records (stephentu/silo, allocator.cc).
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "kernels/traced_memory.hpp"

namespace tt::kernels {

/// Stream classes that the touches of tree, records and allocator belong to.
struct SiloClasses {
  std::uint32_t node = 0;    // a node's lines, prefetched side by side
  std::uint32_t record = 0;  // header and value
  std::uint32_t update = 0;  // stores
};

/// Pieces of a size come from huge pages of 2 MiB that hold this size only; a free piece holds the
/// link to the next.
class SiloArena {
 public:
  SiloArena(TracedMemory& memory, const SiloClasses& classes) : memory_(memory), stream_(classes) {}

  [[nodiscard]] trace::Address allocate(std::uint64_t bytes);
  /// Frees at the next reclaim(): until then (in Silo: until the epoch ends) it may still be read.
  void retire(trace::Address piece, std::uint64_t bytes) { retired_.emplace_back(piece, bytes); }
  void reclaim();
  /// What a piece of `bytes` really takes.
  [[nodiscard]] static std::uint64_t rounded(std::uint64_t bytes) { return (bytes + 15) / 16 * 16; }

  [[nodiscard]] TracedMemory& memory() { return memory_; }
  [[nodiscard]] const TracedMemory& memory() const { return memory_; }
  [[nodiscard]] const SiloClasses& classes() const { return stream_; }

 private:
  TracedMemory& memory_;
  SiloClasses stream_;
  std::map<std::uint64_t, trace::Address> free_;  // first free piece by size
  std::vector<std::pair<trace::Address, std::uint64_t>> retired_;
};

}  // namespace tt::kernels
