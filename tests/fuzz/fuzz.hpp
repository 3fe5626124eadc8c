// SPDX-License-Identifier: MIT

// Fuzzing: a target says how an input is run; the driver makes inputs.
//
// The driver (driver.cpp) is a small coverage-guided mutator, so that fuzzing needs no other tool
// than the compiler that builds the engine. The targets are also linked into engine_tests, which
// runs the committed corpus once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/rng.hpp"

namespace tt::fuzz {

using Bytes = std::vector<char>;

struct Target {
  const char* name;
  /// Well-formed inputs to begin with.
  std::vector<Bytes> (*seeds)();
  /// Puts right, at random, what would stop a mutated input early (checksums, counts), so that
  /// mutations get deeper.
  void (*refit)(Bytes& input, Rng& rng);
  /// Runs an input; may use files in `scratch`. True when it was accepted. A clear refusal is
  /// caught by the target itself; anything that gets out is a finding.
  bool (*run)(const Bytes& input, const std::filesystem::path& scratch);
};

/// A stream file: the reader, verify(), and a simulation if that accepts it.
const Target& stream_target();
/// A spool: assemble(), and the stream that comes of it.
const Target& spool_target();
/// An importer's text: the first byte says which.
const Target& import_target();
/// A trace of a cache: the first byte says whether its columns are given.
const Target& requests_target();
/// Records of a perf ring, as a live engine reads them: the first byte says whose they are.
const Target& perf_target();
/// All of them.
inline std::array<const Target*, 5> targets() {
  return {&stream_target(), &spool_target(), &import_target(), &requests_target(), &perf_target()};
}

template <typename T>
T peek(const Bytes& bytes, std::size_t at) {
  T value{};
  if (at + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}
template <typename T>
void poke(Bytes& bytes, std::size_t at, T value) {
  if (at + sizeof(T) <= bytes.size()) std::memcpy(bytes.data() + at, &value, sizeof(T));
}

/// A source that gives an input from `at` on in uneven pieces: lines and records go across their
/// borders. The input must outlive it.
inline auto in_pieces(const Bytes& input, std::size_t at) {
  return [&input, at](char* buffer, std::size_t size) mutable {
    const std::size_t count = std::min({size, input.size() - at, 1 + at * 7 % 97});
    std::memcpy(buffer, input.data() + at, count);
    at += count;
    return count;
  };
}

inline Bytes read_file(const std::filesystem::path& file) {
  std::ifstream in{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}
inline void write_file(const std::filesystem::path& file, const Bytes& bytes) {
  std::ofstream out{file, std::ios::binary | std::ios::trunc};
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error(file.string() + ": cannot write");
}

}  // namespace tt::fuzz
