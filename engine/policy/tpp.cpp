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
// Linux 5.15 with the patches as Soar/Alto's artifact has them
// (https://github.com/MoatLab/SoarAlto, src/alto/tpp/tpp.patch) does two things more (`port`),
// both with base pages alone. A demoted page is mapped without access (remove_migration_pte), so
// that its next access faults, whatever the scan has reached. And the fault of an inactive page
// returns before access to it is restored (do_numa_page): the thread faults again until the page
// is active. Each second fault adds it to the batch of pages to be activated, which is gone
// through once it has 15 entries (mm/swap.c: mark_page_accessed, activate_page, PAGEVEC_SIZE): 30
// faults. Then the page is promoted. A huge page is promoted by its first fault, active or not.
// These numbers follow from the code, not from a run.
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
  explicit Tpp(const PolicyContext& context)
      : TppPolicy(context, Tiers::slow),
        repeats_(context.knobs.choice("port") == "linux-5.15"),
        huge_(memory_.page_bytes() > base_page) {}

  void on_faults(std::span<const Fault> faults, Nanos now) override {
    promote(faults, room_above(marks_.min), Way::in_fault,
            [this](const Fault& fault) { return repeats_ ? activate(fault) : touch(fault); });
    keep_room(now);
  }
  void on_migrated(std::span<const MigrationResult> results, Nanos now) override {
    TppPolicy::on_migrated(results, now);
    if (!repeats_ || huge_) return;
    demoted_.clear();
    for (const MigrationResult& result : results)
      if (result.outcome == Outcome::done && result.to == Tier::slow)
        demoted_.push_back(result.page);
    if (!demoted_.empty()) memory_.leave_protected(demoted_);
  }

 private:
  /// Faults again and again until the page is active.
  bool activate(const Fault& fault) {
    using enum track::LruLists::List;
    lists_.found(fault.page, fault.tier);
    if (huge_ || lists_.on(active, fault.page)) return true;
    memory_.fault_again(fault.page, 2 * batch - (lists_.referenced(fault.page) ? 1 : 0));
    lists_.put(fault.page, active);
    return true;
  }

  static constexpr std::uint64_t base_page = 4096;
  static constexpr std::uint32_t batch = 15;
  const bool repeats_;
  const bool huge_;
  std::vector<PageId> demoted_;  // scratch
};

const RegisterPolicy tpp_policy{regulate::with_aol<make_policy<Tpp>, regulate::Thins::requests>({
    .name = "tpp",
    .family = "hint faults",
    .summary = "promotes active pages that fault; kswapd keeps room ahead of allocation",
    .citation = "Maruf et al., TPP: Transparent Page Placement for CXL-Enabled Tiered-Memory, "
                "ASPLOS 2023",
    .addresses = {"https://doi.org/10.1145/3582016.3582063"},
    .knobs = knob::list(
        tpp_knobs(),
        knob::choice("port", {"paper", "linux-5.15"}, "Soar/Alto's artifact: TPP on Linux 5.15",
                     "what becomes of demoted pages, and of the fault of an inactive one")),
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
