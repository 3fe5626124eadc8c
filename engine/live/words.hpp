// SPDX-License-Identifier: MIT

// Words: parts and numbers of the kernel's texts.
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace tt::live {

/// The whole text as a number; none if it is anything else.
template <typename Number>
std::optional<Number> number(std::string_view text) {
  Number out{};
  const auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{} || at != text.data() + text.size()) return {};
  return out;
}

/// Without the line's end and spaces before it.
[[nodiscard]] inline std::string stripped(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  return std::string{text};
}

/// Without spaces at either end, and without the end of a line of DOS.
[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  return text;
}

/// What the system says of an errno.
[[nodiscard]] inline std::string message(int error) {
  return std::generic_category().message(error);
}

/// Calls with each part of the text that `end` separates.
template <typename Visit>
void each_part(std::string_view text, char end, Visit visit) {
  while (!text.empty()) {
    const std::size_t length = std::min(text.find(end), text.size());
    if (length > 0) visit(text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
}

}  // namespace tt::live
