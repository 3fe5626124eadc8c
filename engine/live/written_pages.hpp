// SPDX-License-Identifier: MIT

// WrittenPages: which pages of processes were written to lately, as the kernel's soft-dirty bits
// tell (Documentation/admin-guide/mm/soft-dirty.rst). For that it makes all of a process's pages
// read-only again and again: the first write to each of them faults. Others that use these bits, as
// CRIU does for its incremental dumps, lose them.
#pragma once

#include <bitset>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>

#include "live/kernel_calls.hpp"

namespace tt::live {

class WrittenPages {
 public:
  struct Options {
    Nanos every = from_millis(1000);  // longer where a look takes more of the time than this:
    double most_looking = 0.01;
  };
  WrittenPages(KernelCalls& kernel, const Options& options) : kernel_(kernel), options_(options) {}

  /// Where that is due: which pages of these processes were written to since the look before, as
  /// far as it was of the same process. What it misses is written to between asking and clearing.
  void look(std::span<const int> pids);
  /// Whether the page of this address was written to between the last two looks.
  [[nodiscard]] bool contains(int pid, std::uint64_t address) const;
  /// The errno of a process that could not be looked at in the last look; 0 if there was none.
  [[nodiscard]] int error() const { return error_; }

 private:
  using Written = std::unordered_map<std::uint64_t, std::bitset<block_pages>>;  // by block
  int look_at(int pid, Written& out);

  KernelCalls& kernel_;
  const Options options_;
  std::map<int, Written> written_;  // of processes that were looked at before
  Nanos next_{};
  int error_ = 0;
};

/// Whether the kernel has soft-dirty bits, by what it tells of pages of our own. Empty if so; else
/// what is missing.
[[nodiscard]] std::string lacking_written_pages(KernelCalls& kernel);

}  // namespace tt::live
