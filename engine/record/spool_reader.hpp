// SPDX-License-Identifier: MIT

// SpoolReader: the records of one spool (spool.hpp), mapped and checked.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "record/spool.hpp"

namespace tt::record {

/// Throws std::runtime_error naming the file and what is wrong: not a spool, other version, fewer
/// records than it claims; std::system_error when it cannot be opened.
class SpoolReader {
 public:
  /// `consume`: release() gives disk space back.
  SpoolReader(const std::filesystem::path& path, bool consume);
  ~SpoolReader();
  SpoolReader(const SpoolReader&) = delete;
  SpoolReader& operator=(const SpoolReader&) = delete;

  [[nodiscard]] const SpoolHeader& header() const {
    return *reinterpret_cast<const SpoolHeader*>(data_);
  }
  [[nodiscard]] std::uint64_t size() const { return records_; }
  [[nodiscard]] bool done() const { return next_ == records_; }
  /// Of the next record.
  [[nodiscard]] std::uint64_t position() const { return next_; }
  Record take() { return at(next_++); }
  /// The text of the site record that was taken last, whose value is `length`.
  std::string text(std::uint64_t length);
  /// What has been taken is not needed any more. A file system that cannot make holes keeps it.
  void release();
  /// The error to throw about this file.
  [[nodiscard]] std::runtime_error bad(const std::string& what) const;

 private:
  [[nodiscard]] const Record& at(std::uint64_t i) const {
    return reinterpret_cast<const Record*>(data_ + spool_header_bytes)[i];
  }
  void check();

  std::string path_;
  const char* data_ = nullptr;
  bool consume_;
  std::uint64_t bytes_ = 0;
  std::uint64_t released_ = 0;  // of the records' bytes
  std::uint64_t records_ = 0;
  std::uint64_t next_ = 0;
};

}  // namespace tt::record
