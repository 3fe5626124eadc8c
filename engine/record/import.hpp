// SPDX-License-Identifier: MIT

// Importers: turn what other tools recorded of a program into a stream.
//
//   perf-script  `perf script -F comm,pid,tid,time,period,event,addr`: sampled misses, each of
//                which stands for `period` accesses
//   damon        `damo report access --raw_form` or its JSON, or the tracepoint damon_aggregated
//                as `perf script`, trace-cmd or trace_pipe print it: regions, and in how many
//                checks of an interval a region was found accessed; every page of the region gets
//                that many accesses
//   lackey       `valgrind --tool=lackey --trace-mem=yes`: every access, passed through a
//                last-level-cache filter
//   csv          columns time (ns), address, kind (load, store), and optionally count, size,
//                process
//
// How to get such traces is in tuner/record/importers.md. Text is read line by line. An invalid
// line ends the import: the error has its number, what was found and what was expected, and no file
// is left.
//
// Uncertainty. A page that was sampled n times of m accesses has a relative standard error of
// sqrt((1 - n/m) / n): counting of rare events. What is reported is the mean over accesses, of all
// pages and of the hottest ones that get half of the accesses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

#include "record/assemble.hpp"
#include "trace/overlap.hpp"
#include "trace/stream.hpp"

namespace tt::record {

enum class ImportFormat { perf_script, damon, lackey, csv };
/// std::invalid_argument naming the known ones.
[[nodiscard]] ImportFormat import_format(std::string_view name);

struct ImportOptions {
  ImportFormat format = ImportFormat::csv;
  /// Accesses that one observation stands for; 0: what the file says (perf-script), else 1.
  double period = 0;
  double threads = 0;  // that the program ran on; 0: those that the file names, at least 1
  double ns_per_instruction = 0;  // lackey's clock
  double llc_bytes = 0;           // lackey's filter
  double block_ms = 10;
  double nominal_latency_ns = 90;
  /// One page in so many is kept, and stands for them (R of the stream): of each aligned run of
  /// `scale` pages one, drawn by a hash. Sampling in space (Waldspurger et al., FAST'15).
  std::uint64_t scale = 1;
  double mlp_random = trace::random_pattern.mlp;  // of accesses of which only the address is known
  double mlp_sequential =
      trace::sequential_pattern.mlp;   // lackey: of those that go on in an address stream
  std::uint64_t most_pages = 1 << 25;  // of one region or row (128 GiB), after scaling
  std::uint64_t seed = 0;
};

struct ImportSummary {
  std::uint64_t lines = 0;
  std::uint64_t samples = 0;     // observations used
  std::uint64_t no_address = 0;  // samples without a user-space address, left out
  std::uint64_t cached = 0;      // samples that a cache served (perf data_src), left out
  std::uint64_t no_level = 0;    // samples of which data_src says nothing, or no memory: left out
  std::uint64_t unsure = 0;      // samples that memory or a cache further out served: kept
  std::uint64_t repeated = 0;    // events of Arm SPE about an operation that is there, left out
  std::uint64_t skipped = 0;     // lines about something else: call chains, other events
  std::uint64_t lost = 0;        // events that the tool says it lost
  std::uint64_t late = 0;        // rows with a time before that of a row above
  std::uint64_t stood_for = 0;   // observations of pages that others stand for (scale): left out
  bool period_known = true;      // false: each sample says 1, as perf does that knows no period
  std::uint64_t processes = 0;
  double threads = 1;
  double observed = 0;         // accesses in the samples
  double accesses = 0;         // that those stand for
  double error_share = 0;      // 0: exact
  double hot_error_share = 0;  // of the hottest pages that get half of the accesses
};

/// An invalid line. what(): "FILE:LINE: found '...', expected ...".
struct ImportError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Where the text comes from: fills the buffer, returns the bytes read, 0 at the end. May throw.
using ImportSource = std::function<std::size_t(char* buffer, std::size_t size)>;

/// Reads all of `source` (called `name` in messages) and writes the stream to `file`. `info`:
/// workload, input, parameters.
trace::StreamInfo import_trace(const ImportSource& source, const std::string& name,
                               const std::filesystem::path& file, trace::StreamInfo info,
                               const ImportOptions& options, ImportSummary& summary);

}  // namespace tt::record
