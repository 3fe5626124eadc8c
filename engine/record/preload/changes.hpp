// SPDX-License-Identifier: MIT

// Changes: what the program's threads report to the sampler about the address space.
//
// A bounded queue of many writers and one reader (after Vyukov's): no locks, no memory, and safe in
// signal handlers and in a child after fork. When it is full a change is lost; the sampler finds it
// at its next look at the address space, without a call site.
#pragma once

#include <atomic>
#include <cstdint>

namespace tt::record {

struct Change {
  enum class Kind : std::uint8_t { map, unmap, discard, allocated, freed, thread };
  Kind kind = Kind::map;
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t caller = 0;  // return address of the call
};

class Changes {
 public:
  Changes() {
    for (std::uint64_t i = 0; i < size; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }
  bool push(const Change& change) {
    std::uint64_t at = tail_.load(std::memory_order_relaxed);
    while (true) {
      Cell& cell = cells_[at % size];
      const std::uint64_t turn = cell.turn.load(std::memory_order_acquire);
      if (turn == at) {
        if (!tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) continue;
        cell.change = change;
        cell.turn.store(at + 1, std::memory_order_release);
        return true;
      }
      if (turn < at) return false;
      at = tail_.load(std::memory_order_relaxed);
    }
  }
  bool pop(Change& change) {
    Cell& cell = cells_[head_ % size];
    if (cell.turn.load(std::memory_order_acquire) != head_ + 1) return false;
    change = cell.change;
    cell.turn.store(head_ + size, std::memory_order_release);
    ++head_;
    return true;
  }

 private:
  static constexpr std::uint64_t size = 4096;
  struct Cell {
    std::atomic<std::uint64_t> turn;
    Change change;
  };
  Cell cells_[size];
  std::atomic<std::uint64_t> tail_{0};
  std::uint64_t head_ = 0;
};

}  // namespace tt::record
