// Reading an access stream: memory-mapped, checked, block by block.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "trace/stream.hpp"

namespace tt::trace {

/// Reads a stream by memory mapping. Throws std::runtime_error naming the file and what is wrong
/// (not a stream, other version, truncated, checksum). The constructor checks header, tables and
/// block index; read() checks a block's structure, classes and events, so that a corrupt file is an
/// error and never undefined behaviour. That every page number of segments and sampled operations
/// is below info().pages is known once verify(), or a trusted cache, says so.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& file);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  [[nodiscard]] const StreamInfo& info() const;
  /// Loads + stores per base page over the timed part.
  [[nodiscard]] std::span<const std::uint64_t> page_totals() const;
  /// Fills `out` with block i, reusing its storage.
  void read(std::uint64_t i, Block& out) const;
  /// Checks every block's checksum and every page number. Throws as the constructor.
  void verify() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tt::trace
