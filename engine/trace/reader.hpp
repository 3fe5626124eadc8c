// SPDX-License-Identifier: MIT

// Reading an access stream: memory-mapped, checked, block by block.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "trace/stream.hpp"

namespace tt::trace {

class Mapping;

/// Reads a stream by memory mapping. Throws std::runtime_error naming the file, the block and what
/// is wrong (not a stream, other version, truncated, checksum): a corrupt file is an error and
/// never undefined behaviour, nor another result.
///
/// The constructor checks header, tables and block index. A block's checksum, its page numbers and
/// its sums are checked when it is read for the first time, which costs as much as a fifth of its
/// replay; its structure, classes and events always. Several threads may read.
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
  /// Of block i, without the rest of it: within the address space, but believed only once it is
  /// read as a whole.
  [[nodiscard]] std::span<const Event> events(std::uint64_t i) const;
  [[nodiscard]] const Mapping& mapping() const;
  /// Throws if the file was cut short since it was opened: what has been read may then be zeros.
  /// read() asks for what was read before it; after the last block, whoever reads asks.
  void confirm() const;
  /// Checks every block anew, and that they add up to the totals. Throws as the constructor.
  void verify() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tt::trace
