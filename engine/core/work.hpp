// SPDX-License-Identifier: MIT

// Work: what a policy does per event, and whose time that takes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tt {

/// Work that a policy does per event. The simulator charges its cost from the machine profile
/// (sim/work.hpp has a row for each kind); on a live machine the work itself has taken the time.
enum class Work : std::uint8_t {
  tracker_update,  // one counter increment (after coalescing)
  tracker_lookup,  // one counter read
  cooling_step,    // one 64-byte line of counters halved
  scan_step,       // one page's residency looked up
  threshold_pass,  // one pass over a hotness histogram
  pte_scan,        // one page's accessed bit read or cleared, in order of addresses
  lru_step,        // one page moved along a list, its accessed bit looked up by page
  probe,           // one sampled accessed bit: cleared, and looked at later
  sort_step,       // one item of a sort
};
inline constexpr std::size_t work_count = static_cast<std::size_t>(Work::sort_step) + 1;

/// Whose time the work takes: the tiering system's own threads', or the application's (what a
/// kernel does inside a fault, or as a task's own work).
enum class Payer : std::uint8_t { daemon, application };

}  // namespace tt
