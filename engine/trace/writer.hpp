// SPDX-License-Identifier: MIT

// Writing an access stream, block by block.
#pragma once

#include <filesystem>
#include <memory>

#include "trace/stream.hpp"

namespace tt::trace {

/// Writes a stream. The file appears under its name only when finish() returns (it is written
/// beside it and renamed), so that a crash leaves no half file; it is then on the disk, name and
/// all, whatever happens to the power. Who may read it is decided by the umask. Throws
/// std::system_error naming the file when the disk is full.
class Writer {
 public:
  Writer(std::filesystem::path file, StreamInfo info);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// `block.segments[i].chunk_sums` and `sum` are computed here; the caller may leave them empty.
  void write(const Block& block);
  /// Completes counters, index, page totals. `info` fields known only at the end (pages, objects,
  /// nominal_seconds, the classes' patterns) are taken from `last`. Returns the description that
  /// a reader will get.
  StreamInfo finish(const StreamInfo& last);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tt::trace
