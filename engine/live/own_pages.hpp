// SPDX-License-Identifier: MIT

// OwnPages: memory of this process, on which it is tried what the kernel does.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

#include "live/kernel_calls.hpp"

namespace tt::live {

/// Some pages of our own, which are touched.
class OwnPages {
 public:
  static constexpr std::size_t bytes = 16 * base_page_bytes;
  /// std::system_error without memory.
  OwnPages()
      : at_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (at_ == MAP_FAILED) throw std::system_error(errno, std::generic_category());
    std::memset(at_, 1, bytes);
  }
  ~OwnPages() { ::munmap(at_, bytes); }
  OwnPages(const OwnPages&) = delete;
  OwnPages& operator=(const OwnPages&) = delete;
  void touch() { std::memset(at_, 2, bytes); }
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uintptr_t>(at_); }

 private:
  void* at_;
};

}  // namespace tt::live
