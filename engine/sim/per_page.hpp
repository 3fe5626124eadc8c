// SPDX-License-Identifier: MIT

// A value per page, 0 at first, of which most are never looked at.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace tt::sim {

/// From calloc: the operating system gives memory only to the parts that are written.
template <typename T>
class PerPage {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  PerPage() = default;  // of no page
  explicit PerPage(std::uint64_t pages)
      : values_(static_cast<T*>(std::calloc(std::max<std::uint64_t>(pages, 1), sizeof(T)))) {
    if (!values_) throw std::bad_alloc();
  }
  [[nodiscard]] explicit operator bool() const { return values_ != nullptr; }
  [[nodiscard]] T& operator[](std::uint64_t page) { return values_[page]; }
  [[nodiscard]] const T& operator[](std::uint64_t page) const { return values_[page]; }

 private:
  struct Free {
    void operator()(T* values) const { std::free(values); }
  };
  std::unique_ptr<T[], Free> values_;
};

}  // namespace tt::sim
