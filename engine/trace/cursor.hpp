// SPDX-License-Identifier: MIT

// Going through the bytes of a mapped file without believing it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "trace/layout.hpp"
#include "trace/mapping.hpp"

namespace tt::trace {

/// What an error names: a file, and the block, if it is in one.
struct Where {
  static constexpr std::uint64_t no_block = std::numeric_limits<std::uint64_t>::max();
  const Mapping& mapping;
  std::uint64_t block = no_block;

  /// Bytes that are gone read as zeros, and are not what was written.
  void confirm() const {
    if (mapping.lost())
      throw std::runtime_error(mapping.file().string() +
                               ": truncated stream: it was cut short while it was read, or its "
                               "disk fails");
  }
  [[noreturn]] void corrupt(std::string_view what) const {
    confirm();
    throw std::runtime_error(mapping.file().string() + ": corrupt stream: " +
                             (block == no_block ? "" : "block " + std::to_string(block) + ": ") +
                             std::string(what));
  }
};

/// Hands out consecutive arrays of a byte range; refuses to go beyond its end, whatever count the
/// file gives.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, Where where) : bytes_(bytes), where_(where) {}

  template <typename T>
  std::span<const T> take(std::uint64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (count > (bytes_.size() - at_) / sizeof(T)) corrupt("an array exceeds its part");
    const auto* first = reinterpret_cast<const T*>(bytes_.data() + at_);
    at_ += count * sizeof(T);
    return {first, static_cast<std::size_t>(count)};
  }
  template <typename T>
  T value() {  // may be unaligned
    T result;
    std::memcpy(&result, take<std::byte>(sizeof(T)).data(), sizeof(T));
    return result;
  }
  std::string text() {
    const auto chars = take<char>(value<std::uint32_t>());
    return {chars.begin(), chars.end()};
  }
  void align() {
    if (layout::aligned(at_) > bytes_.size()) corrupt("an array exceeds its part");
    at_ = layout::aligned(at_);
  }
  [[nodiscard]] std::size_t left() const { return bytes_.size() - at_; }
  [[noreturn]] void corrupt(std::string_view what) const { where_.corrupt(what); }

 private:
  std::span<const std::byte> bytes_;
  Where where_;
  std::size_t at_ = 0;
};

}  // namespace tt::trace
