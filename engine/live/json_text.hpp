// SPDX-License-Identifier: MIT

// A text as a string of JSON.
#pragma once

#include <string>
#include <string_view>

namespace tt::live {

/// In quotes; a control character becomes a space.
[[nodiscard]] inline std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + '"';
}

}  // namespace tt::live
