// Work: what a policy does per event, and whose time that takes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tt {

/// Work that a policy does per event. The simulator charges its cost from the machine profile; on a
/// live machine the work itself has taken the time.
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
inline constexpr std::size_t work_count = 9;
/// Whether there is more of this work the more pages there are. What is left is done as often on a
/// small system as on a large one: the simulator does not scale it.
[[nodiscard]] constexpr bool per_page(Work kind) {
  return kind != Work::threshold_pass && kind != Work::probe;
}

/// Whose time the work takes: the tiering system's own threads', or the application's (what a
/// kernel does inside a fault, or as a task's own work).
enum class Payer : std::uint8_t { daemon, application };

}  // namespace tt
