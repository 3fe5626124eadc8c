// SPDX-License-Identifier: MIT

// Guest: which task the processor runs, as the guest's kernel knows it.
//
// The kernel's own switch of tasks tells; where it is and where a task keeps what is read here is
// given by the driver, from the kernel's symbols and its BTF.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "emulate/plugin/qemu.hpp"

namespace tt::emulate {

struct GuestOptions {
  std::uint64_t switch_to = 0;  // address of __switch_to_asm; 0: tasks are not told apart
  std::uint64_t comm = 0, pid = 0, tgid = 0;  // offsets in task_struct
  // By name, of tasks that run on another processor: processes, and threads of the kernel.
  std::vector<std::string> elsewhere, kernel_threads;
};

class Guest {
 public:
  explicit Guest(GuestOptions options) : options_(std::move(options)) {}

  [[nodiscard]] std::uint64_t switch_to() const { return options_.switch_to; }
  /// What RSI holds: in callbacks that may read registers.
  std::uint64_t rsi();
  bool peek(std::uint64_t address, void* to, std::size_t bytes);
  /// At its first instruction. Returns whether another process runs from now on.
  bool switched();
  /// The process that runs now has a processor of its own, from now on.
  void elsewhere();

  [[nodiscard]] std::uint32_t pid() const { return process_; }
  [[nodiscard]] std::uint32_t tid() const { return thread_; }
  /// Whether what runs now is on another processor.
  [[nodiscard]] bool is_elsewhere() const { return elsewhere_ || kernel_thread_; }
  /// Whether that is a thread of the kernel.
  [[nodiscard]] bool is_kernel_thread() const { return kernel_thread_; }
  [[nodiscard]] std::uint64_t switches() const { return switches_; }

 private:
  void classify();

  const GuestOptions options_;
  GArrayHead* bytes_ = nullptr;
  qemu_plugin_register* rsi_ = nullptr;
  std::uint32_t process_ = 0, thread_ = 0;
  std::array<char, 17> name_{};
  std::vector<std::uint32_t> processes_elsewhere_;
  bool elsewhere_ = false, kernel_thread_ = false;
  std::uint64_t switches_ = 0;
};

}  // namespace tt::emulate
