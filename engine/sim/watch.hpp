// SPDX-License-Identifier: MIT

// The wall clock of a run: its deadline, and telling the caller how far it is.
#pragma once

#include <chrono>
#include <cstdint>

#include "sim/simulate.hpp"

namespace tt::sim {

class Watch {
 public:
  /// Starts the clock of a run of so many blocks.
  Watch(const RunOptions& options, std::uint64_t blocks) : options_(options), blocks_(blocks) {}

  /// After each block: looks at the clock every few milliseconds, not at every block. `entries`:
  /// those of the block, by which its length is judged.
  void block_done(std::uint64_t done_blocks, std::uint64_t entries);
  /// Throws DeadlineExceeded or Interrupted.
  void look(std::uint64_t done_blocks);

 private:
  const RunOptions& options_;
  const std::uint64_t blocks_;
  std::uint64_t entries_ = 0;  // since the last look
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point reported_ = started_;
};

}  // namespace tt::sim
