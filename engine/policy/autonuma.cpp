// SPDX-License-Identifier: MIT

// AutoNUMA: Linux's NUMA balancing, as it stands without memory tiering (kernel.numa_balancing = 1;
// van Riel and Chegu, "Automatic NUMA Balancing", Red Hat Summit 2014; Linux 6.3,
// kernel/sched/fair.c and mm/migrate.c). It treats the slow tier as a node without processors:
// whatever faults there is accessed from afar.
//
// Code: https://github.com/torvalds/linux/blob/v6.3/kernel/sched/fair.c
//
// Both tiers are scanned (scan_clock.hpp). A page that faults in the slow tier is promoted by the
// thread that faulted, if the fast tier has a page beyond its high watermark; nothing is ever
// demoted. So it fills what is free, and then costs faults. What it had to leave, and faults in the
// fast tier, make it scan less often.
//
// Published comparisons that call a system AutoNUMA and demote use memory tiering: see nbt.cpp.
//
// It keeps nothing of a page. Of each pass over the address space it counts the faults by tier, and
// whether a promotion found no room.
//
// Inferred: all threads run beside the fast tier, so that the filter of private and shared faults,
// which is about the processor's node, lets every one pass.
#include "core/make_policy.hpp"
#include "policy/hint_fault.hpp"
#include "regulate/aol.hpp"

namespace tt {
namespace {

class AutoNuma final : public HintFaultPolicy {
 public:
  explicit AutoNuma(const PolicyContext& context) : HintFaultPolicy(context) {
    memory_.set_watermarks({.reserve = marks_.low});
  }

  void on_faults(std::span<const Fault> faults, Nanos) override {
    promote(faults, room_above(marks_.high), Way::in_fault, [](const Fault&) { return true; });
  }
  void tick(Nanos now) override { scan_by_faults(now, Tiers::both); }
};

const RegisterPolicy autonuma_policy{
    regulate::with_aol<make_policy<AutoNuma>, regulate::Thins::windows>({
        .name = "autonuma",
        .family = "hint faults",
        .summary = "promotes what faults in the slow tier while there is room; never demotes",
        .citation = "van Riel and Chegu, Automatic NUMA Balancing, Red Hat Summit 2014; Linux 6.3",
        .addresses = {"https://github.com/torvalds/linux/blob/v6.3/kernel/sched/fair.c"},
        .knobs = knob::list(migrate::scan_clock_knobs(), migrate::kernel_marks_knobs()),
        .traits = {.needs = Need::faults},
    })};

}  // namespace
}  // namespace tt
