// SPDX-License-Identifier: MIT

// From the spools of a recording to a stream: all processes, merged by time, through an assembler.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "record/assembler.hpp"
#include "trace/stream.hpp"

namespace tt::record {

struct SpoolSummary {
  std::uint64_t processes = 0;
  std::uint64_t records = 0;
  std::uint64_t dropped = 0;
  std::uint64_t threads = 0;  // most at the same time, over all processes
  double sampled = 0;
  double error_share = 0;  // worst of the processes
  std::uint64_t operations = 0;
  std::uint64_t abandoned = 0;  // operations that did not end before the thread began another
  std::uint64_t unbegun = 0;    // ends of operations that had not begun
  std::uint64_t probes = 0;  // USDT probes at which operations begin or end, where code was mapped
  bool disk_full = false;
  /// Processes that died, or lost their spool, before they closed it, or that still have it open.
  std::vector<std::uint32_t> open;
};

/// Of a recorded program's operations there is one kind.
inline constexpr char operation_kind[] = "operation";

/// Reads all *.spool of a folder, merges them by time, and writes the stream. Pages of different
/// processes are different, unless they map the same memory shared. Throws std::runtime_error
/// naming the file and what is wrong: no spools, not a spool, other version, an invalid record.
trace::StreamInfo assemble(const std::filesystem::path& folder, const std::filesystem::path& file,
                           trace::StreamInfo info, AssemblerOptions options, SpoolSummary& summary,
                           const std::function<bool(double)>& progress = {});

}  // namespace tt::record
