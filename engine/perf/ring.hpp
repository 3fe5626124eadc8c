// SPDX-License-Identifier: MIT

// The kernel's perf events: opening one, and reading the ring buffer into which it writes records.
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tt::perf {

/// A file descriptor of its own; closed with it.
class File {
 public:
  explicit File(int number = -1) : number_(number) {}
  ~File();
  File(File&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  [[nodiscard]] int get() const { return number_; }
  [[nodiscard]] bool is_open() const { return number_ >= 0; }

 private:
  int number_;
};

/// perf_event_open(2), closed on exec. Returns an errno.
[[nodiscard]] int open_event(perf_event_attr& attributes, int pid, int cpu, int group, File& out);

/// The same behind an event of this config that leads its group and takes no samples, unless
/// `leader` is 0: since Sapphire Rapids, Intel samples loads in such groups alone. The leader
/// begins as `attributes` say, the other with it. What is opened joins `files`, the event last.
[[nodiscard]] int open_led_event(perf_event_attr& attributes, std::uint64_t leader, int pid,
                                 int cpu, std::vector<File>& files);

/// The ring buffer of an event, which others may share (PERF_EVENT_IOC_SET_OUTPUT).
class Ring {
 public:
  static constexpr std::size_t default_bytes = std::size_t{1} << 19;  // a power of two
  /// std::system_error when there is no memory for it, or too much is locked already.
  explicit Ring(int file, std::size_t bytes = default_bytes);
  ~Ring();
  Ring(Ring&& other) noexcept
      : meta_(std::exchange(other.meta_, nullptr)), page_(other.page_), bytes_(other.bytes_) {}
  Ring& operator=(Ring&&) = delete;

  /// What has been written and not been taken yet: `out` holds nothing else then.
  void read(std::vector<std::byte>& out) const;
  /// So much of it has been dealt with: the kernel may write there.
  void take(std::size_t bytes);

 private:
  friend class Area;
  perf_event_mmap_page* meta_ = nullptr;
  std::size_t page_ = 0;
  std::size_t bytes_ = 0;
};

/// The AUX area of an event: a ring buffer into which the processor itself writes. Places in it are
/// counted over all that was ever written.
class Area {
 public:
  /// Beside the event's ring, which has to outlive it; `bytes`: a power of two, of whole pages.
  /// std::system_error when the event has no such area, or as with the ring.
  Area(Ring& ring, int file, std::size_t bytes);
  ~Area();
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;

  /// How much has been written.
  [[nodiscard]] std::uint64_t written() const;
  /// So much from there on; `out` holds nothing else then. False if it is not there any more, or
  /// not yet.
  [[nodiscard]] bool read(std::uint64_t begin, std::uint64_t bytes,
                          std::vector<std::byte>& out) const;
  /// All before `end` has been dealt with: the processor may write there.
  void take(std::uint64_t end);

 private:
  perf_event_mmap_page* meta_;
  std::byte* data_;
  std::size_t bytes_;
};

}  // namespace tt::perf
