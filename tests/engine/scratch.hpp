// SPDX-License-Identifier: MIT

// A directory that goes with the test.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "trace/checksum.hpp"

namespace check {

class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "tt-test-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Scratch() { std::filesystem::remove_all(path); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] std::filesystem::path file(const std::string& name) const { return path / name; }
  [[nodiscard]] std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator{path}, {}));
  }
  std::filesystem::path path;
};

inline std::vector<char> bytes_of(const std::filesystem::path& file) {
  std::ifstream in{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

inline std::uint64_t hash_of(const std::filesystem::path& file) {
  const std::vector<char> bytes = bytes_of(file);
  return tt::trace::checksum(std::as_bytes(std::span{bytes}));
}

}  // namespace check
