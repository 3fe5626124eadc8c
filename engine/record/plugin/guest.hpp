// SPDX-License-Identifier: MIT

// Guest: the program under the emulator, as the plugin's parts see it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "record/plugin/observer.hpp"
#include "record/plugin/probes.hpp"

namespace tt::record {

/// The calls of a thread that have not returned. A call is known by where its return address is:
/// stacks grow downward, so that whatever lies at or below another call, or a return, is over.
/// Exceptions and longjmp() need no care. Of calls that are nested too deeply the innermost ones
/// are kept.
class CallStack {
 public:
  struct Frame {
    std::uint64_t at;       // of the return address, on the stack
    std::uint64_t returns;  // where to
  };

  void call(std::uint64_t at, std::uint64_t returns) {
    leave(at);
    if (depth_ == frames_.size()) {
      std::copy(frames_.begin() + frames_.size() / 2, frames_.end(), frames_.begin());
      depth_ -= frames_.size() / 2;
    }
    frames_[depth_++] = {at, returns};
  }
  void leave(std::uint64_t at) {
    while (depth_ > 0 && frames_[depth_ - 1].at <= at) --depth_;
  }
  void clear() { depth_ = 0; }
  /// The outermost first.
  [[nodiscard]] std::span<const Frame> frames() const { return {frames_.data(), depth_}; }

 private:
  std::array<Frame, 1024> frames_;
  std::size_t depth_ = 0;
};

/// A thread of the program, as the emulator numbers them.
struct GuestThread : ObservedThread {
  CallStack calls;
  std::array<std::uint64_t, 6> arguments{};  // of its system call
  bool leaves = false;  // it executes a program that is not recorded, if the kernel can
};

struct Guest {
  std::unique_ptr<Observer> observer;
  Probes probes;
  std::uint64_t base = 0;  // its address + base = ours
  bool base_known = false;
  std::uint64_t heap_end = 0;
  std::vector<std::string> emulator;  // the words of a command that put a program under us
};

/// The emulator's callbacks carry no pointer of ours through all of them.
extern Guest* guest;
/// By the emulator's number.
extern constinit std::array<GuestThread*, 1 << 16> threads;
/// The thread that runs here, since its first system call.
extern constinit thread_local GuestThread* running;

inline GuestThread& thread_of(unsigned vcpu) { return *threads[vcpu % threads.size()]; }

/// Copies from the program's memory, wherever it points. Returns the bytes that were there.
std::size_t peek(std::uint64_t address, void* to, std::size_t bytes);
/// Copies into it. False where nothing may be written.
bool poke(std::uint64_t address, const void* from, std::size_t bytes);
/// Up to a zero word, or what cannot be read.
std::vector<std::uint64_t> peek_pointers(std::uint64_t address);
/// A zero-terminated text; empty when it cannot be read.
std::string peek_text(std::uint64_t address);

}  // namespace tt::record
