// SPDX-License-Identifier: MIT

// Counters: what hardware and kernel count whether or not anything is sampled.
#pragma once

#include <array>

#include "core/types.hpp"

namespace tt {

/// What crosses a tier's memory controller, page copies included; cumulative since start. With
/// differences over an interval, latency = occupancy / reads and parallelism = occupancy / busy (as
/// in Colloid, SOSP'24, and PACT, ASPLOS'26), and bandwidth = bytes / time.
struct TierCounters {
  double read_bytes = 0, written_bytes = 0;
  double reads = 0;         // demand reads (inserts into the table of outstanding requests)
  double occupancy_ns = 0;  // sum over reads of the time that each was outstanding
  double busy_ns = 0;       // time with at least one of them outstanding
};

/// Counters that the hardware or the kernel keeps whether or not anything is sampled; cumulative
/// since start, and of the pages that the policy sees: in a miniature those of the miniature, like
/// every other count. a1 and a3 are those of Soar/Alto (OSDI'25, Table 1): cycles with at least one
/// outstanding demand read, and number of demand reads. AOL over an interval is their ratio of
/// differences.
struct Counters {
  std::array<double, tier_count> loads{};  // as the sampled event counts them
  std::array<double, tier_count> stores{};
  double a1_cycles = 0;
  double a3_reads = 0;
  // Of the application's threads: all, and those in which one waits for memory (s_LLC there).
  double cycles = 0;
  double stall_cycles = 0;
  double samples_taken = 0;
  double samples_lost = 0;
  double sampling_seconds = 0;  // processor time that draining samples and on_samples() have taken
  std::array<TierCounters, tier_count> tier{};
  double hint_faults = 0;
  // Time of one of the application's threads that protect() has taken, where it is known.
  double protect_seconds = 0;
  // Pages that moved without a request of the policy, as far as is known: by reclaim, by a kernel's
  // own balancing, by somebody else's hand. A live substrate looks at least once a second.
  double moved_by_others = 0;
  // Not cumulative: what there is now.
  double protected_pages = 0;
  double shadow_pages = 0;
  double threads = 1;  // of the application
};

}  // namespace tt
