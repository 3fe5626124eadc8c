// SPDX-License-Identifier: MIT

// The simulated machine's hardware profile. Loaded from engine/machines/*.yaml by the front end.
#pragma once

#include <array>
#include <string>

#include "core/types.hpp"
#include "sim/loaded_latency.hpp"
#include "sim/work.hpp"

namespace tt::sim {

/// One memory tier. Bandwidths in GB/s (10^9 bytes), latency of an idle load in ns.
struct TierProfile {
  double latency_ns = 0;
  double read_gbps = 0;
  double write_gbps = 0;
  /// Both directions together, at the mix of reads and writes at which they are most; 0 where they
  /// do not share a limit.
  double total_gbps = 0;
  LoadedLatency loaded;
  /// Share of the latency that a store costs its thread (write-buffer pressure).
  double store_stall = 0;
  /// Bytes that the device moves at least, whatever is asked for: 64, or 256 of Optane's media.
  double granule_bytes = 64;
};

struct MachineProfile {
  std::string name;
  double ghz = 0;  // for AOL in cycles
  unsigned cores = 0;
  unsigned threads = 0;  // application threads of the published runs
  double llc_bytes = 0;
  std::array<TierProfile, tier_count> tiers;

  // What tiering itself costs.
  double migration_fixed_us = 0;      // per move, on the mover: system call share, unmap, remap
  double migration_copy_gbps = 0;     // one mover thread's copy speed, before the tiers' own limits
  double migration_shootdown_us = 0;  // per TLB shootdown, on every application thread
  double migration_shootdown_pages = 1;  // moved for each of them
  double sample_assist_ns = 0;           // per sample, on the application thread that it hits
  double sample_interrupt_ns = 2000;     // per sample of frequency mode, on that thread as well
  double sample_drain_ns = 0;            // per sample, on the tiering thread
  /// Share of the lines that a prefetcher asked for which a demand-miss event counts all the same,
  /// because they came late.
  double prefetch_shown = 0.3;
  WorkCosts work_ns;  // on the thread that does it
  // Relative saving of latency with 2 MiB pages, of accesses that all go to another page.
  double huge_page_gain = 0;
  double daemon_core_share = 0;  // share of a tiering thread's time that is lost to the
                                 // application: 0 own cores, 1 its cores
  double sample_queue = 0;       // samples that fit the rings before they are lost, full scale
  // Lines that tiering brings into the shared cache take the place of the application's.
  double sample_lines = 70;  // per sample, beside what the policy's own work touches
  double live_lines = 0.14;  // share of a cache's lines that would be used before they leave
  // Hint faults; the defaults are estimates (sim/README.md has their sources).
  double hint_fault_us = 1.5;  // per fault, on the thread that it hits
  double pte_ns = 25;          // per page that is protected, on the application
  double tlb_flush_us = 4;     // per protected range, on every application thread
  // First touches; estimates as well.
  double first_touch_us = 1;  // per page or unit, on the thread that it hits, beside its clearing
  double clear_overlap = 10;  // lines that are on their way at a time when a page is cleared
  // Mixed page sizes; an estimate as well. Per huge page that is split or mapped, on the mover,
  // beside the copy that mapping one takes.
  double split_us = 30;
};

}  // namespace tt::sim
