// SPDX-License-Identifier: MIT

// Arena: where kernels keep what is no part of the workload's memory. In the emulated machine it is
// the memory of a device, which the guest's kernel does not manage and whose accesses take no time;
// elsewhere it is ordinary memory.
//
// All of the program's `new` comes from there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tt::emulate {

class Arena {
 public:
  static constexpr std::size_t bytes = std::size_t{4} << 30;

  Arena();
  /// The upper half, zeros; null but for the first time.
  void* reserve() noexcept;
  [[nodiscard]] bool has(const void* at, std::size_t length) const noexcept;
  /// Of the lower half; null when it is used up. Aligned to 64 bytes.
  void* take(std::size_t size) noexcept;
  void give(void* at) noexcept;
  /// Whether it is memory of a device.
  [[nodiscard]] bool is_device() const { return device_; }

 private:
  static constexpr unsigned classes = 48;
  struct Free {
    Free* next;
  };
  /// A piece of that list that is long enough; null if there is none.
  void* take_known(unsigned number, std::size_t length) noexcept;

  std::byte* base_;
  std::size_t used_ = 0;
  bool device_ = false, reserved_ = false;
  Free* free_[classes] = {};  // by size
};

Arena& arena();

}  // namespace tt::emulate
