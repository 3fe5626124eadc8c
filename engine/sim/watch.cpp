// SPDX-License-Identifier: MIT

#include "sim/watch.hpp"

namespace tt::sim {

void Watch::block_done(std::uint64_t done_blocks, std::uint64_t entries) {
  constexpr std::uint64_t entries_between = std::uint64_t{1} << 20;
  entries_ += entries;
  if (entries_ < entries_between && done_blocks % 64 != 0) return;
  entries_ = 0;
  look(done_blocks);
}

void Watch::look(std::uint64_t done_blocks) {
  const auto clock = std::chrono::steady_clock::now();
  if (options_.deadline_seconds &&
      std::chrono::duration<double>(clock - started_).count() > *options_.deadline_seconds)
    throw DeadlineExceeded{};
  if (options_.progress && clock - reported_ >= std::chrono::milliseconds(50)) {
    reported_ = clock;
    if (!options_.progress(static_cast<double>(done_blocks) / static_cast<double>(blocks_)))
      throw Interrupted{};
  }
}

}  // namespace tt::sim
