// SPDX-License-Identifier: MIT

// Probes: where the program's operations begin and end.
//
// Either at a marker, an instruction that does nothing, which tuner/record/tiertune.h puts into the
// program; or at a USDT probe, also an instruction that does nothing, of which the ELF file has a
// note (section .note.stapsdt). A probe may be passed by unless its semaphore, a counter in the
// program's data, says that somebody listens.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tt::record {

/// `next`: one ends, and another begins.
enum class Edge : std::uint8_t { none = 0, begin = 1, end = 2, next = 3 };

class Probes {
 public:
  /// PROVIDER:BEGIN:END, or PROVIDER:NEXT for one probe at which an operation ends and another
  /// begins; empty: no probes. Before anything is mapped.
  void look_for(const std::string& usdt);
  /// The files that are mapped already. Guest address + base = ours.
  void adopt(std::uint64_t base);
  /// Code of a file that has been mapped, from `offset` in it on.
  void map(std::uint64_t address, std::uint64_t bytes, const std::string& path,
           std::uint64_t offset);
  /// What the instruction there is. It is about to be translated: code that is reached for the
  /// first time has its data mapped, so that semaphores are set then.
  [[nodiscard]] Edge edge(std::uint64_t address, const std::uint8_t* code, std::size_t bytes);

 private:
  struct Pending {
    std::uint64_t from, to;  // of the code
    std::vector<std::uint64_t> semaphores;
  };
  std::string provider_, begin_, end_;
  std::atomic<bool> any_ = false;
  std::mutex lock_;
  std::map<std::uint64_t, Edge> places_;
  std::vector<Pending> pending_;
};

}  // namespace tt::record
