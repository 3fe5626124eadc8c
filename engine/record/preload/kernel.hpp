// SPDX-License-Identifier: MIT

// The parts of Linux that the hint-fault sampler needs, with declarations that older headers lack.
//
// userfaultfd with UFFDIO_MOVE (Linux 6.8) moves pages of private anonymous memory within one
// process without copying; PAGEMAP_SCAN (6.7) lists the pages that are present. The sampler runs
// beside the program on a thread that the C library does not know. It must not touch memory that it
// may have taken away itself: nothing here allocates, and everything calls the kernel directly.
#pragma once

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace tt::record::kernel {

inline constexpr std::uint64_t page_bytes = 4096;
inline constexpr std::uint64_t huge_bytes = 2ull << 20;

// --- userfaultfd ------------------------------------------------------------------------------

struct Move {  // struct uffdio_move
  std::uint64_t dst;
  std::uint64_t src;
  std::uint64_t len;
  std::uint64_t mode;
  std::int64_t move;
};
inline constexpr unsigned long move_request = _IOWR(UFFDIO, 0x05, Move);
inline constexpr std::uint64_t move_allow_holes = 1u << 1;
inline constexpr std::uint64_t feature_move = 1u << 16;
inline constexpr std::uint64_t feature_events = UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP |
                                                UFFD_FEATURE_EVENT_REMOVE |
                                                UFFD_FEATURE_EVENT_UNMAP;

/// A descriptor with these features, or a negative errno.
inline int open_userfault(std::uint64_t features) {
  const long file = ::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return -errno;
  uffdio_api api{.api = UFFD_API, .features = features, .ioctls = 0};
  if (::ioctl(static_cast<int>(file), UFFDIO_API, &api) == 0) return static_cast<int>(file);
  const int error = errno;
  ::close(static_cast<int>(file));
  return -error;
}

/// Whether the sampler can work here: 0, or an errno. EPERM: CAP_SYS_PTRACE is missing (without it
/// the kernel reports no fork, and a child would find holes); EINVAL, ENOSYS: the kernel is too
/// old.
inline int probe() {
  const int file = open_userfault(feature_events | feature_move);
  if (file < 0) return -file;
  ::close(file);
  return 0;
}

inline bool enrol(int file, std::uint64_t address, std::uint64_t bytes) {
  uffdio_register request{
      .range = {.start = address, .len = bytes}, .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
  return ::ioctl(file, UFFDIO_REGISTER, &request) == 0;
}
/// Also lets threads that wait in the range go on.
inline void dismiss(int file, std::uint64_t address, std::uint64_t bytes) {
  uffdio_range range{.start = address, .len = bytes};
  (void)::ioctl(file, UFFDIO_UNREGISTER, &range);
}
/// Moves pages; `moved` is raised by what was done. Returns 0 or an errno.
inline int move(int file, std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
                std::uint64_t& moved) {
  Move request{.dst = to, .src = from, .len = bytes, .mode = move_allow_holes, .move = 0};
  const int error = ::ioctl(file, move_request, &request) == 0 ? 0 : errno;
  if (request.move > 0) moved += static_cast<std::uint64_t>(request.move);
  return error;
}
/// Copies into absent pages, also of another process.
inline int copy(int file, std::uint64_t to, std::uint64_t from, std::uint64_t bytes,
                std::uint64_t& copied) {
  uffdio_copy request{.dst = to, .src = from, .len = bytes, .mode = 0, .copy = 0};
  const int error = ::ioctl(file, UFFDIO_COPY, &request) == 0 ? 0 : errno;
  if (request.copy > 0) copied += static_cast<std::uint64_t>(request.copy);
  return error;
}

// --- Which pages are present --------------------------------------------------------------------

struct PageRange {  // struct page_region
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t categories;
};
struct ScanRequest {  // struct pm_scan_arg
  std::uint64_t size;
  std::uint64_t flags;
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t walk_end;
  std::uint64_t vec;
  std::uint64_t vec_len;
  std::uint64_t max_pages;
  std::uint64_t category_inverted;
  std::uint64_t category_mask;
  std::uint64_t category_anyof_mask;
  std::uint64_t return_mask;
};
inline constexpr std::uint64_t page_is_file = 1u << 2;
inline constexpr std::uint64_t page_is_present = 1u << 3;
inline constexpr std::uint64_t page_is_zero = 1u << 5;
inline constexpr std::uint64_t page_is_huge = 1u << 6;
inline constexpr unsigned long scan_request = _IOWR('f', 16, ScanRequest);

/// Present anonymous pages of [start, end); `start` is moved to where the scan ended. Returns how
/// many ranges were filled in, or -1 (nothing is mapped there any more).
inline int scan(int pagemap, std::uint64_t& start, std::uint64_t end, PageRange* ranges,
                std::size_t size) {
  ScanRequest request{};
  request.size = sizeof request;
  request.start = start;
  request.end = end;
  request.vec = reinterpret_cast<std::uint64_t>(ranges);
  request.vec_len = size;
  request.category_inverted = page_is_file | page_is_zero;
  request.category_mask = page_is_present | page_is_file | page_is_zero;
  request.return_mask = page_is_huge;
  const int found = ::ioctl(pagemap, scan_request, &request);
  start = found >= 0 && request.walk_end > start ? request.walk_end : end;
  return found;
}

/// Whether a present anonymous page belongs to this process alone.
inline bool exclusive(int pagemap, std::uint64_t address) {
  std::uint64_t entry = 0;
  return ::pread(pagemap, &entry, sizeof entry,
                 static_cast<off_t>(address / page_bytes * sizeof entry)) == sizeof entry &&
         (entry >> 63 & 1) != 0 && (entry >> 56 & 1) != 0 && (entry >> 61 & 1) == 0;
}

// --- Time and memory ----------------------------------------------------------------------------

inline std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

inline void sleep_ns(std::uint64_t ns) {
  const timespec span{static_cast<time_t>(ns / 1'000'000'000u),
                      static_cast<long>(ns % 1'000'000'000u)};
  ::syscall(SYS_nanosleep, &span, nullptr);
}

/// The sampler's own memory: never sampled, and not copied by a fork (the child starts over).
class OwnMemory {
 public:
  /// Null: none left.
  void* take(std::uint64_t bytes) {
    if (count_ == limit) return nullptr;
    const long at = ::syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == -1) return nullptr;
    ::syscall(SYS_madvise, at, bytes, MADV_DONTFORK);
    note(reinterpret_cast<void*>(at), bytes);
    return reinterpret_cast<void*>(at);
  }
  void note(const void* at, std::uint64_t bytes) {
    const auto start = reinterpret_cast<std::uint64_t>(at);
    ranges_[count_++] = {start, start + bytes};
  }
  void give(void* at, std::uint64_t bytes) {
    ::syscall(SYS_munmap, at, bytes);
    for (std::size_t i = 0; i < count_; ++i)
      if (ranges_[i].start == reinterpret_cast<std::uint64_t>(at)) ranges_[i--] = ranges_[--count_];
  }
  [[nodiscard]] bool overlaps(std::uint64_t start, std::uint64_t end) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (ranges_[i].start < end && start < ranges_[i].end) return true;
    return false;
  }

 private:
  static constexpr std::size_t limit = 8192;
  struct Range {
    std::uint64_t start;
    std::uint64_t end;
  };
  Range ranges_[limit] = {};
  std::size_t count_ = 0;
};

/// Growing array in memory of its own. Elements are plain data; those that do not fit are dropped.
template <typename T>
class Array {
 public:
  explicit Array(OwnMemory& own) : own_(&own) {}
  bool push(const T& value) {
    if (size_ == capacity_ && !grow()) return false;
    data_[size_++] = value;
    return true;
  }
  bool insert(std::size_t at, const T& value) {
    if (!push(value)) return false;
    for (std::size_t i = size_ - 1; i > at; --i) data_[i] = data_[i - 1];
    data_[at] = value;
    return true;
  }
  void clear() { size_ = 0; }
  void truncate(std::size_t size) { size_ = size; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] T* begin() { return data_; }
  [[nodiscard]] T* end() { return data_ + size_; }
  T& operator[](std::size_t i) { return data_[i]; }
  void swap(Array& other) {
    const Array mine = *this;
    *this = other;
    other = mine;
  }

 private:
  bool grow() {
    const std::size_t next = capacity_ == 0 ? (std::size_t{64} << 10) / sizeof(T) : capacity_ * 2;
    auto* const at = static_cast<T*>(own_->take(next * sizeof(T)));
    if (at == nullptr) return false;
    for (std::size_t i = 0; i < size_; ++i) at[i] = data_[i];
    if (data_ != nullptr) own_->give(data_, capacity_ * sizeof(T));
    data_ = at;
    capacity_ = next;
    return true;
  }
  OwnMemory* own_;
  T* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace tt::record::kernel
