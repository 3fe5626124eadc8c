// SPDX-License-Identifier: MIT

// What cachebench's generators of requests read to make one (facebook/CacheLib,
// cachebench/workload). Their tables are memory of the application, allocated before the cache.
//
//  - `online` draws a key number and builds the key: it looks up the key's length and its sizes, in
//    tables of 32,768 entries each (OnlineGenerator).
//  - `default` has drawn all key numbers beforehand, into an index of numOps x numThreads entries
//    of 4 bytes, 2^32 - 1 at most; a request is a random entry of it. Per key it keeps a request
//    record, in which it stores the kind of operation, a string, the string's characters where they
//    exceed 15, and a list of sizes (WorkloadGenerator).
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "core/rng.hpp"
#include "trace/recorder.hpp"

namespace tt::kernels {

struct GeneratorOptions {
  bool online = true;
  double scale = 1;
  double index_entries = 0;  // full-scale
  std::uint64_t keys = 0;    // of the miniature
  /// Of an object that is drawn with a uniform number in [0, 1): its number, below `keys`.
  std::function<std::uint64_t(double)> object;
  /// Where a key's records are: its number among the sorted keys.
  std::function<std::uint64_t(std::uint64_t object)> key_number;
  std::function<std::uint32_t(std::uint64_t object)> key_bytes;
};

/// Stream classes that the tables' touches belong to.
struct GeneratorClasses {
  std::uint32_t dependent = 0;
  std::uint32_t value = 0;
  std::uint32_t update = 0;
};

class Generator {
 public:
  /// Maps and fills the tables.
  Generator(GeneratorOptions options, const GeneratorClasses& classes, trace::Recorder& recorder);

  /// Draws the object of the next request, and reports what that reads.
  std::uint64_t draw(Rng& rng);
  /// Reports the reading of the object's size, which only an insertion needs.
  void read_size(std::uint64_t object);

 private:
  static constexpr std::uint64_t table_entries = 32768;
  static constexpr std::uint64_t length_bytes = 8;  // of a key, in the online generator's table
  static constexpr std::uint64_t list_bytes = 24;   // std::vector
  static constexpr std::uint64_t size_bytes = 32;   // smallest heap chunk
  static constexpr std::uint64_t index_bytes = 4;
  static constexpr std::uint64_t request_bytes = 120;  // Request
  static constexpr std::uint64_t operation_at = 112;   // in it, its last member
  static constexpr std::uint64_t string_bytes = 32;    // std::string
  static constexpr std::uint32_t inline_characters = 15;
  static constexpr std::uint64_t characters_bytes = 80;  // heap chunk of the longest key

  [[nodiscard]] std::uint64_t row(std::uint64_t object) const;

  GeneratorOptions options_;
  GeneratorClasses stream_;
  trace::Recorder& recorder_;
  std::uint64_t rows_ = 0;     // of sizes
  std::uint64_t entries_ = 0;  // of the index
  trace::Address lengths_ = 0, lists_ = 0, sizes_ = 0;
  trace::Address index_ = 0, requests_ = 0, strings_ = 0, characters_ = 0;
};

}  // namespace tt::kernels
