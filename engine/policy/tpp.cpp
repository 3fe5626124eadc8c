// SPDX-License-Identifier: MIT

// TPP: Maruf et al., "TPP: Transparent Page Placement for CXL-Enabled Tiered-Memory", ASPLOS'23,
// with the arithmetic of the patches that its authors sent to Linux ("Transparent Page Placement
// for Tiered-Memory", 2021).
//
// Paper: https://doi.org/10.1145/3582016.3582063;
// patches: https://lore.kernel.org/all/cover.1637778851.git.hasanalmaruf@fb.com/
//
// Demotion (§5.1, §5.2): kswapd demotes the inactive tail of the fast tier, and begins early: from
// the demotion watermark on, which lies above those of allocation. Allocation goes on down to its
// own mark, so that new pages, which are hot as a rule, find room in the fast tier.
//
// Promotion (§5.3): slow pages are scanned as for NUMA balancing. A page that faults is promoted if
// it is on the active list, by the thread that faulted, and whatever the watermarks of allocation
// say; else the fault counts as an access. By the paper that puts an inactive page on the active
// list; by the code it follows the kernel's rule of two touches, so that a third fault promotes.
//
// demote_mark_   share of the fast tier that is kept free: demote_scale_factor, but no less than
//                twice the high watermark
//
// Not kept: choosing the tier by the kind of a page (§5.4), since a stream does not tell files.
#include "policy/tpp.hpp"

#include <vector>

#include "core/make_policy.hpp"
#include "regulate/aol.hpp"

namespace tt {
namespace {

class Tpp final : public TppPolicy {
 public:
  explicit Tpp(const PolicyContext& context) : TppPolicy(context, Tiers::slow) {}

  void on_faults(std::span<const Fault> faults, Nanos now) override {
    promote(faults, room_above(marks_.min), Way::in_fault,
            [this](const Fault& fault) { return touch(fault); });
    keep_room(now);
  }
};

const RegisterPolicy tpp_policy{regulate::with_aol<make_policy<Tpp>, regulate::Thins::requests>({
    .name = "tpp",
    .family = "hint faults",
    .summary = "promotes active pages that fault; kswapd keeps room ahead of allocation",
    .citation = "Maruf et al., TPP: Transparent Page Placement for CXL-Enabled Tiered-Memory, "
                "ASPLOS 2023",
    .addresses = {"https://doi.org/10.1145/3582016.3582063"},
    .knobs = tpp_knobs(),
    .traits = {.needs = Need::faults | Need::accessed_bits},
})};

}  // namespace

std::vector<KnobDecl> tpp_knobs() {
  using namespace knob;
  return list(migrate::scan_clock_knobs(),
              real("demote_scale_factor", 0.02, {0, 0.1}, ratio,
                   "TPP, ASPLOS'23, §5.2; patches: vm.demote_scale_factor, 200 of 10000",
                   "share of the fast tier that demotion keeps free"),
              choice("activation", {"paper", "code"}, "TPP, ASPLOS'23, §5.3; patches",
                     "an inactive page turns active when it faults, or by the rule of two touches"),
              migrate::kernel_marks_knobs(), migrate::reclaim_knobs());
}

}  // namespace tt
