// SPDX-License-Identifier: MIT

// PerfRecorder: hardware samples of memory accesses (Intel PEBS, AMD IBS), by the kernel's perf
// events.
//
// A sampler beside the program: events are opened on the process before it begins the program and
// inherited by all its threads and children, one ring buffer per processor. Rings of several
// processors are merged by time: a record is written once every ring has been read beyond it.
// perf_decoder.hpp tells what becomes of a record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "record/perf_decoder.hpp"

namespace tt::record {

/// Opens events on a process that is about to begin a program, and reads them on a thread of its
/// own from then on.
class PerfRecorder {
 public:
  /// `raw`: a file for the bytes of all rings as they come, for tests; may be empty.
  /// std::system_error naming the event and what is wrong.
  PerfRecorder(int pid, const std::vector<PerfEvent>& events, std::filesystem::path folder,
               std::string sampler, std::uint64_t begin_ns, const std::filesystem::path& raw = {});
  ~PerfRecorder();
  PerfRecorder(const PerfRecorder&) = delete;
  PerfRecorder& operator=(const PerfRecorder&) = delete;

  /// Reads what is left and closes the spools. Throws the error that ended the reading, if any.
  PerfCounts stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tt::record
