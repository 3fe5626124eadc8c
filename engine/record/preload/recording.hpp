// SPDX-License-Identifier: MIT

// Recording: the spool of one process, PID.spool in the recording's folder, and its clock.
#pragma once

#include <sys/stat.h>

#include <cstring>

#include "record/preload/address_map.hpp"
#include "record/preload/budget.hpp"
#include "record/spool.hpp"

namespace tt::record {

struct Recording {
  static constexpr std::size_t folder_bytes = 3800;

  explicit Recording(std::uint64_t begin) : begin_ns(begin) {}

  /// Creates the spool. An earlier one of that name means that the process has begun another
  /// program (exec), or that its number was used before: that recording is over.
  bool open(const char* folder) {
    char path[folder_bytes + 64];
    for (unsigned attempt = 0; attempt < 1000; ++attempt) {
      char* at = path;
      for (const char* from = folder; *from != 0;) *at++ = *from++;
      *at++ = '/';
      at = append_number(at, static_cast<unsigned>(::getpid()));
      if (attempt != 0) {
        *at++ = '.';
        at = append_number(at, attempt);
      }
      std::memcpy(at, ".spool", 7);
      const int error = spool.open(path, "hint-fault", elapsed_ns());
      if (error == 0) return true;
      if (error != EEXIST) return false;
      close_earlier(path);
    }
    return false;
  }

  /// Since the recording began.
  [[nodiscard]] std::uint64_t elapsed_ns() const {
    const std::uint64_t now = monotonic_ns();
    return now > begin_ns ? now - begin_ns : 0;
  }
  /// All records that follow are of now.
  void stamp() { spool.time(elapsed_ns()); }

  std::uint64_t begin_ns;  // CLOCK_MONOTONIC
  SpoolWriter spool;

 private:
  static void close_earlier(const char* path) {
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void* const at =
        ::mmap(nullptr, spool_header_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (at == MAP_FAILED) return;
    auto* const header = static_cast<SpoolHeader*>(at);
    std::uint32_t open = static_cast<std::uint32_t>(SpoolState::open);
    header->state.compare_exchange_strong(open, static_cast<std::uint32_t>(SpoolState::closed));
    if (header->sampled == 0) ::unlink(path);  // a shell on its way to another program
    ::munmap(at, spool_header_bytes);
  }
};

}  // namespace tt::record
