// SPDX-License-Identifier: MIT

// Options as text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace tt::emulate {

/// The parts between the separators; of an empty text an empty one.
inline std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> out;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

}  // namespace tt::emulate
