// SPDX-License-Identifier: MIT

// Another size and another length for a recording: a stream that stands for more memory than was
// recorded, and in which a steady phase comes several times.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "trace/stream.hpp"

namespace tt::record {

struct Restatement {
  std::string workload;
  std::string parameters;
  /// Real pages for each of those that a page of the stream has stood for so far. Nominal time
  /// grows by as much: every page still has all its accesses, and there are more pages.
  double factor = 1;
  /// Threads that the accesses are spread over, for each one of those that were recorded.
  double threads = 1;
  /// Blocks [from, to) come `passes` times in all.
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t passes = 1;
  /// A block that lasts longer is cut into equal parts, into any of which each access falls.
  double most_block_ms = 50;
};

/// Writes the stream anew. Memory that a repeated block frees and that was there before it is freed
/// in the last pass; memory that comes and stays comes in the first; what comes and goes within the
/// blocks comes anew, as other pages, in each pass.
///
/// std::invalid_argument for what is not possible, std::runtime_error as Reader and Writer, and
/// for what `progress` stops.
trace::StreamInfo restate(const std::filesystem::path& from, const std::filesystem::path& to,
                          const Restatement& wanted,
                          const std::function<bool(double)>& progress = {});

}  // namespace tt::record
