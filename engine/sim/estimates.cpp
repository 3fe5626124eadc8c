// SPDX-License-Identifier: MIT

#include "sim/estimates.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "sim/work.hpp"

namespace tt::sim {
namespace {

template <double MachineProfile::* member>
double& field(MachineProfile& machine) {
  return machine.*member;
}
template <Tier tier, double TierProfile::* member>
double& field(MachineProfile& machine) {
  return machine.tiers[index(tier)].*member;
}
using M = MachineProfile;
using T = TierProfile;

// A figure that machines share has limits of its own; one that differs between them, a factor.
const std::array machines_own{
    Estimate{"fast.store_stall", 0.1, 0.6, false,
             "a tenth: buffers hide nearly all; 0.6: full most of the time",
             field<Tier::fast, &T::store_stall>},
    Estimate{"fast.write_gbps", 0.8, 1.3, true, "50 to 80 % of the read bandwidth, by controller",
             field<Tier::fast, &T::write_gbps>},
    Estimate{"slow.store_stall", 0.1, 0.6, false,
             "as of the fast tier, and longer where the tier drains writes slowly",
             field<Tier::slow, &T::store_stall>},
    Estimate{"slow.write_gbps", 0.8, 1.3, true, "as of the fast tier",
             field<Tier::slow, &T::write_gbps>},
    Estimate{"tiering.clear_overlap", 8, 16, false,
             "a core's line-fill buffers: 10 until Cascade Lake, 12 of Ice Lake, 16 of Sapphire "
             "Rapids",
             field<&M::clear_overlap>},
    Estimate{"tiering.daemon_core_share", 0.4, 1.6, true,
             "two threads of a core do 1.0 to 1.4 times the work of one",
             field<&M::daemon_core_share>},
    Estimate{"tiering.first_touch_us", 0.5, 3, false,
             "a minor fault, the allocation of a page and its page-table entry, with mitigations "
             "or without",
             field<&M::first_touch_us>},
    Estimate{"tiering.hint_fault_us", 1, 3, false,
             "entry, exit and page-table update of a minor fault, with mitigations or without",
             field<&M::hint_fault_us>},
    Estimate{"tiering.huge_page_gain", 0.05, 0.2, false,
             "MEMTIS (SOSP'23) 6.2.5 has 12.5 % of run time for random look-ups; nested tables and "
             "larger footprints gain more",
             field<&M::huge_page_gain>},
    Estimate{"tiering.live_lines", 0.05, 0.4, false,
             "Khan et al. (MICRO'10): a line of a 2 MB cache is dead 86 % of its time; programs "
             "and cache sizes differ",
             field<&M::live_lines>},
    Estimate{"tiering.migration_copy_gbps", 0.5, 2, true,
             "one thread's copy, 2 to 8 GB/s between sockets", field<&M::migration_copy_gbps>},
    Estimate{"tiering.migration_fixed_us", 5, 20, false,
             "Soar/Alto (OSDI'25) 5.1 has 12 us with the copy; kernels and batches differ",
             field<&M::migration_fixed_us>},
    Estimate{"tiering.migration_shootdown_pages", 1, 32, false,
             "Linux flushes for each page that it moves until 6.2, and for a batch since",
             field<&M::migration_shootdown_pages>},
    Estimate{"tiering.migration_shootdown_us", 1, 4, false,
             "an inter-processor interrupt and a flush", field<&M::migration_shootdown_us>},
    Estimate{
        "tiering.prefetch_shown", 0.05, 1, false,
        "a demand-miss event leaves out what a prefetcher brought in time. Against a small share: "
        "Soar/Alto (OSDI'25) 2.1, whose sweeping thread issues 6.5 times the loads of the chase, "
        "and whose pages are 13.6 times as hot by sampled misses",
        field<&M::prefetch_shown>},
    Estimate{"tiering.pte_ns", 20, 30, false, "one page-table entry, in order of addresses",
             field<&M::pte_ns>},
    Estimate{"tiering.sample_assist_ns", 200, 400, false,
             "the microcode assist that writes a record, and its share of a buffer's interrupt",
             field<&M::sample_assist_ns>},
    Estimate{"tiering.sample_drain_ns", 60, 240, false,
             "MEMTIS (SOSP'23) 4.1: 2 % of a core at about 100 k samples a second, update included",
             field<&M::sample_drain_ns>},
    Estimate{"tiering.sample_interrupt_ns", 1000, 4000, false,
             "a non-maskable interrupt and its handler; Linux lowers the highest frequency from "
             "100 kHz when handling takes longer than 2500 ns",
             field<&M::sample_interrupt_ns>},
    Estimate{"tiering.sample_lines", 10, 200, false,
             "a record alone with what describes it, or an interrupt and a context switch with "
             "all of their data",
             field<&M::sample_lines>},
    Estimate{"tiering.sample_queue", 0.25, 4, true, "rings of 128 KiB to 2 MiB for each counter",
             field<&M::sample_queue>},
    Estimate{"tiering.split_us", 20, 50, false,
             "512 page-table entries and page descriptors are written, and a flush; no published "
             "figure",
             field<&M::split_us>},
    Estimate{"tiering.tlb_flush_us", 2, 8, false,
             "an inter-processor interrupt and the refill of the most-used entries",
             field<&M::tlb_flush_us>},
};

}  // namespace

std::span<const Estimate> estimates() {
  static const std::vector<Estimate> all = [] {
    std::vector<Estimate> list(machines_own.begin(), machines_own.end());
    for (const WorkKind& kind : work_kinds)
      list.push_back({"tiering.work_ns." + std::string(kind.name), kind.low, kind.high, false,
                      kind.source, [work = kind.work](MachineProfile& machine) -> double& {
                        return machine.work_ns[work];
                      }});
    std::ranges::sort(list, {}, &Estimate::name);
    return list;
  }();
  return all;
}

double default_of(const Estimate& estimate) {
  MachineProfile machine;
  return estimate.field(machine);
}

}  // namespace tt::sim
