// SPDX-License-Identifier: MIT

// Mappings: which of a process's addresses hold memory of its own.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tt::live {

/// Addresses [begin, end).
struct Mapping {
  std::uint64_t begin = 0, end = 0;
  friend bool operator==(const Mapping&, const Mapping&) = default;
};

/// The mappings of a /proc/PID/maps that are memory of the program, in their order: anonymous ones
/// and shared memory. Files are left out (their pages are the page cache's, and mostly do not
/// move), and so are huge pages that were set aside by hand (hugetlb) and what the kernel maps
/// itself ([vdso] and the like). Neighbours are joined.
///
/// std::runtime_error naming the line that is not as documented in proc_pid_maps(5).
[[nodiscard]] std::vector<Mapping> own_memory(std::string_view maps);

}  // namespace tt::live
