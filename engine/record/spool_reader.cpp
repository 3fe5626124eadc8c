// SPDX-License-Identifier: MIT

#include "record/spool_reader.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace tt::record {

SpoolReader::SpoolReader(const std::filesystem::path& path, bool consume)
    : path_(path.string()), consume_(consume) {
  const int file = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (file < 0) throw std::system_error(errno, std::generic_category(), path_);
  struct stat found{};
  const bool regular = ::fstat(file, &found) == 0 && S_ISREG(found.st_mode);
  bytes_ = regular ? static_cast<std::uint64_t>(found.st_size) : 0;
  void* at = MAP_FAILED;
  if (bytes_ >= spool_header_bytes) at = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  if (at == MAP_FAILED) throw bad("not a spool, or cut off in its header");
  data_ = static_cast<const char*>(at);
  try {
    check();
  } catch (...) {
    ::munmap(const_cast<char*>(data_), bytes_);
    throw;
  }
}

SpoolReader::~SpoolReader() { ::munmap(const_cast<char*>(data_), bytes_); }

void SpoolReader::check() {
  if (header().magic != spool_magic) throw bad("not a spool of a recording");
  if (header().version != spool_version)
    throw bad("version " + std::to_string(header().version) + " of the spool format; this is " +
              std::to_string(spool_version));
  records_ = header().records.load(std::memory_order_acquire);
  if (records_ > (bytes_ - spool_header_bytes) / sizeof(Record))
    throw bad("claims " + std::to_string(records_) + " records and is too short for them");
}

std::string SpoolReader::text(std::uint64_t length) {
  const std::uint64_t count = (length + sizeof(Record) - 1) / sizeof(Record);
  if (length > 4096 || count > records_ - next_) {
    // A sampler that died between a site and its text; nothing can follow.
    if (length <= 4096 && header().state.load() == 0) {
      next_ = records_;
      return {};
    }
    throw bad("record " + std::to_string(next_) + ": a call site of " + std::to_string(length) +
              " bytes");
  }
  std::string text(reinterpret_cast<const char*>(&at(next_)), length);
  next_ += count;
  return text;
}

void SpoolReader::release() {
  const std::uint64_t taken = next_ * sizeof(Record) / spool_piece_bytes * spool_piece_bytes;
  if (!consume_ || taken == released_) return;
  // Opened again, not kept open: a recording has a spool per thread, and thousands of threads.
  if (const int file = ::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW); file >= 0) {
    (void)::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                      static_cast<off_t>(spool_header_bytes + released_),
                      static_cast<off_t>(taken - released_));
    ::close(file);
  }
  released_ = taken;
}

std::runtime_error SpoolReader::bad(const std::string& what) const {
  return std::runtime_error(path_ + ": " + what);
}

}  // namespace tt::record
