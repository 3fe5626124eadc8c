// SPDX-License-Identifier: MIT

// A file that is mapped to be read, and may be cut short meanwhile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace tt::trace {

/// What distinguishes a file from one that replaces it, or from itself after a change: nobody can
/// set the time of the last change (ctime).
struct FileStamp {
  std::uint64_t device = 0;
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  std::int64_t changed_ns = 0;  // since the epoch

  bool operator==(const FileStamp&) const = default;
};

/// Throws std::system_error naming the file when there is none.
[[nodiscard]] FileStamp stamp_of(const std::filesystem::path& file);

namespace detail {
struct Region;
}

/// A regular file, mapped. Where its bytes are gone when they are read (the file was cut short, its
/// disk fails) there are zeros instead of a SIGBUS, and `lost()` says so: whoever has read asks
/// before he believes.
///
/// Comparing the file's size before every read would leave the time between the two, and a file
/// that is emptied in the middle of a block would still kill the process. Copying every block
/// (pread) is safe, too, but a replay is so fast that it would become a third slower.
class Mapping {
 public:
  /// Throws std::runtime_error (or std::system_error) naming the file when it cannot be mapped.
  explicit Mapping(std::filesystem::path file);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  [[nodiscard]] const std::filesystem::path& file() const { return file_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  /// The file's, when it was mapped.
  [[nodiscard]] const FileStamp& stamp() const { return stamp_; }
  [[nodiscard]] bool lost() const;

 private:
  std::filesystem::path file_;
  std::span<const std::byte> bytes_;
  FileStamp stamp_;
  detail::Region* region_ = nullptr;
};

}  // namespace tt::trace
