// SPDX-License-Identifier: MIT

// Guest: the program under the emulator, as the plugin's parts see it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "record/plugin/observer.hpp"

namespace tt::record {

/// A thread of the program, as the emulator numbers them.
struct GuestThread : ObservedThread {
  std::uint64_t stack = 0;                   // where the last call put its return address
  std::array<std::uint64_t, 6> arguments{};  // of its system call
};

struct Guest {
  static constexpr std::size_t max_threads = 1 << 16;

  std::unique_ptr<Observer> observer;
  std::uint64_t base = 0;  // its address + base = ours
  bool base_known = false;
  std::uint64_t heap_end = 0;
  std::vector<std::string> emulator;  // the words of a command that put a program under us
  std::array<GuestThread*, max_threads> threads{};
};

/// The emulator's callbacks carry no pointer of ours through all of them.
[[gnu::visibility("hidden")]] extern Guest* guest;
/// The thread that runs here, since its first system call.
[[gnu::visibility("hidden")]] extern constinit thread_local GuestThread* running;

inline GuestThread& thread_of(unsigned vcpu) { return *guest->threads[vcpu % Guest::max_threads]; }

/// Copies from the program's memory, wherever it points. Returns the bytes that were there.
std::size_t peek(std::uint64_t address, void* to, std::size_t bytes);
/// Up to a zero word, or what cannot be read.
std::vector<std::uint64_t> peek_pointers(std::uint64_t address);
/// A zero-terminated text; empty when it cannot be read.
std::string peek_text(std::uint64_t address);

}  // namespace tt::record
