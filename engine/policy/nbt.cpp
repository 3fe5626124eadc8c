// SPDX-License-Identifier: MIT

// NBT: NUMA balancing with memory tiering, "Tiering 0.8" before it was merged
// (kernel.numa_balancing = 2; Huang Ying, "memory tiering: hot page selection", Linux 6.1; here as
// in Linux 6.3: should_numa_migrate_memory, migrate_balanced_pgdat, pgdat_balanced). It is what
// published comparisons run as AutoNUMA when they want demotion.
//
// Patches: https://lwn.net/ml/linux-kernel/20220622083519.708236-1-ying.huang@intel.com/;
// code: https://github.com/torvalds/linux/blob/v6.3/kernel/sched/fair.c
//
// Slow pages are scanned (scan_clock.hpp). A page that faults soon after it was protected is hot
// (latency_threshold.hpp) and is promoted by the thread that faulted, if the fast tier has a page
// beyond its high watermark; else kswapd is woken and the page stays. kswapd demotes (reclaim.hpp)
// up to the promotion watermark: from the oldest generation, as distributions configure Linux, or
// the inactive tail, as in the kernels of published comparisons (lru_gen). While much is free,
// everything that faults is promoted, and the threshold starts anew.
//
// threshold_   hot threshold, adjusted each scan_period_max to the promotion rate limit
// free_space_  free pages of the fast tier, above the promotion watermark, from which on latency
//              does not matter, or a sixteenth of the tier if that is more
//
// The scan gets slower: of faults in the slow tier only those of promoted pages count for its
// period (task_numa_fault), as ones of another node that are the task's alone. Where no fault is of
// this node or of several tasks the period is doubled (update_task_scan_period), here with the
// first page that is promoted after each pass. Pages that are refused do not count, whatever for.
//
// Inferred: kswapd's share of the processor (reclaim_scan_rate) and the smallest watermark.
#include <algorithm>
#include <vector>

#include "classify/latency_threshold.hpp"
#include "core/make_policy.hpp"
#include "policy/hint_fault.hpp"
#include "regulate/aol.hpp"

namespace tt {
namespace {

class Nbt final : public KswapdPolicy {
 public:
  explicit Nbt(const PolicyContext& context)
      : KswapdPolicy(context, migrate::KernelMarks(context.knobs).promo, EitherLists{}),
        threshold_(context.knobs, memory_.page_bytes(),
                   from_millis(context.knobs.real("scan_period_max"))),
        free_space_(context.knobs.real("free_space") * (1 << 20) /
                    static_cast<double>(memory_.page_bytes())) {
    // An allocation below the low mark goes to the slow tier without waking anybody.
    memory_.set_watermarks({.reserve = marks_.low});
  }

  void on_faults(std::span<const Fault> faults, Nanos now) override {
    const std::uint64_t plenty = room_above(marks_.promo);
    const double spare =
        std::max(free_space_, static_cast<double>(memory_.capacity(Tier::fast)) / 16);
    bool refused = false;
    const auto hot = [&](const Fault& fault) {
      lists_.found(fault.page, Tier::slow);
      if (static_cast<double>(plenty) - static_cast<double>(promoting()) <= spare)
        return threshold_.admit(fault.since, now);
      threshold_.reset();
      return true;
    };
    promote(faults, room_above(marks_.high), Way::in_fault, hot,
            [&](const Fault&) { refused = true; });
    if (refused) reclaim(now);
    if (promoting() > 0 && clock_.passes() != passes_) {
      passes_ = clock_.passes();
      clock_.slow_down(now);
    }
  }
  void tick(Nanos now) override {
    KswapdPolicy::tick(now);
    clock_.run(now, Tiers::slow);
  }

  void gauges(Gauges& out) const override {
    KswapdPolicy::gauges(out);
    out["hot_threshold_ms"] = 1e3 * seconds(threshold_.value());
    out["promotion_candidates"] = static_cast<double>(threshold_.candidates());
  }

 private:
  classify::LatencyThreshold threshold_;
  const double free_space_;   // in pages
  std::uint64_t passes_ = 0;  // when the scan was last slowed down
};

std::vector<KnobDecl> nbt_knobs() {
  using namespace knob;
  return list(migrate::scan_clock_knobs("time between two adjustments of the hot threshold"),
              classify::latency_threshold_knobs(),
              real("free_space", 1024, {1, 1 << 20, log}, mebibytes,
                   "Linux 6.3, kernel/sched/fair.c, pgdat_free_space_enough",
                   "free fast memory beyond which latency does not matter, if a sixteenth is less"),
              migrate::kernel_marks_knobs(), migrate::reclaim_or_generation_knobs());
}

const RegisterPolicy nbt_policy{regulate::with_aol<make_policy<Nbt>, regulate::Thins::windows>({
    .name = "nbt",
    .family = "hint faults",
    .summary = "promotes what faults soon after its scan, under a rate limit; kswapd demotes",
    .citation = "Huang Ying, memory tiering: hot page selection (Tiering 0.8), Linux 6.1",
    .addresses = {"https://lwn.net/ml/linux-kernel/20220622083519.708236-1-ying.huang@intel.com/"},
    .knobs = nbt_knobs(),
    .traits = {.needs = Need::faults | Need::accessed_bits},
})};

}  // namespace
}  // namespace tt
