// SPDX-License-Identifier: MIT

// AutoTiering: Kim, Choe and Ahn, "Exploring the Design Space of Page Management for Multi-Tiered
// Memory Systems", ATC'21, for two tiers.
//
// Paper: https://www.usenix.org/conference/atc21/presentation/kim-jonghyeon;
// artifact: https://github.com/csl-ajou/AutoTiering
//
// Both tiers are scanned as for NUMA balancing (scan_clock.hpp). What a scan finds still protected
// was not accessed since the last: a page's history (history.hpp) is what eight scans found. A page
// that faults in the slow tier is promoted by the thread that faulted while there is room. If there
// is none,
//
//     cpm        (conservative) it stays
//     opm        (opportunistic) the fast tier's page of the lowest level is demoted, if that is
//                lower than the page's own, so that the next fault finds room
//     exchange   it changes places with such a page
//     background_demotion   a daemon keeps room ahead of faults: pages of the lowest level go,
//                demotion_batch at a time, until reserve is free
//
// history_     of every page, and the fast tier's pages by level
// batch_       pages that the daemon may demote in a pass
//
// Inferred: that a victim's level must be the lower one; the size of the reserve, and how often the
// daemon looks. A faulting thread cannot move another page than its own here, so that the victim of
// opm, and both pages of an exchange, are moved in the background.
#include <algorithm>
#include <string>
#include <vector>

#include "core/make_policy.hpp"
#include "migrate/allowance.hpp"
#include "policy/hint_fault.hpp"
#include "regulate/aol.hpp"
#include "track/history.hpp"

namespace tt {
namespace {

class AutoTiering final : public HintFaultPolicy {
 public:
  explicit AutoTiering(const PolicyContext& context)
      : HintFaultPolicy(context),
        opportunistic_(context.knobs.choice("mode") == "opm"),
        exchange_(context.knobs.flag("exchange")),
        background_(context.knobs.flag("background_demotion")),
        reserve_(context.knobs.real("reserve")),
        batch_(context.knobs.real("demotion_batch")),
        history_(static_cast<unsigned>(context.knobs.integer("history_bits"))) {
    memory_.set_watermarks({.reserve = marks_.low});
  }

  void on_map(PageRange range, std::uint32_t site, Nanos now) override {
    HintFaultPolicy::on_map(range, site, now);
    history_.map(range);
  }
  void on_unmap(PageRange range, Nanos now) override {
    HintFaultPolicy::on_unmap(range, now);
    history_.unmap(range);
  }
  void on_faults(std::span<const Fault> faults, Nanos) override {
    promote(
        faults, room_above(marks_.high), Way::in_fault, [](const Fault&) { return true; },
        [this](const Fault& fault) {
          if (!opportunistic_ && !exchange_) return;
          const auto victim = history_.coldest(history_.level(fault.page));
          if (!victim) return;
          demote(*victim);
          // Right behind its victim: whichever is asked for first is moved first.
          if (exchange_) memory_.request(Tier::fast, {&fault.page, 1});
        });
  }
  void tick(Nanos now) override {
    scan_by_faults(now, Tiers::both, [this](PageRange part, std::span<const std::uint64_t> mask) {
      note(part, mask);
    });
    if (background_ && now - looked_ >= look_period) {
      looked_ = now;
      make_room();
    }
  }
  [[nodiscard]] Nanos tick_period() const override {
    return background_ ? std::min(look_period, HintFaultPolicy::tick_period())
                       : HintFaultPolicy::tick_period();
  }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    for (const MigrationResult& result : results)
      if (result.outcome == Outcome::done) history_.moved(result.page, result.to);
  }
  /// Of each page its history and its place on a list (published code).
  [[nodiscard]] std::uint64_t metadata_bytes() const override { return 32 * history_.pages(); }
  void gauges(Gauges& out) const override {
    HintFaultPolicy::gauges(out);
    out["untouched_fast_pages"] = static_cast<double>(history_.size(0));
    out["touched_fast_pages"] = static_cast<double>(history_.size(history_.full()));
  }
  [[nodiscard]] Heat heat(PageId page) const override {
    const unsigned level = history_.level(page);
    return level == 0 ? Heat::cold : level == history_.full() ? Heat::hot : Heat::warm;
  }

 private:
  static constexpr Nanos look_period = from_millis(100);

  void note(PageRange part, std::span<const std::uint64_t> untouched) {
    where_.resize(part.count);
    memory_.residency(part.first, where_);
    for (std::uint64_t i = 0; i < part.count; ++i)
      if (where_[i] != Residency::absent)
        history_.scanned({part.first.value + i}, static_cast<Tier>(where_[i]),
                         !in_mask(untouched, i));
  }
  void demote(PageId victim) {
    history_.take(victim);
    memory_.request(Tier::slow, {&victim, 1});
    memory_.charge(Work::lru_step, 1);
  }
  void make_room() {
    std::uint64_t left = batch_.next();
    const double wanted = reserve_ * static_cast<double>(memory_.capacity(Tier::fast));
    auto leaving =
        static_cast<double>(memory_.free_pages(Tier::fast) + memory_.pending(Tier::slow)) -
        static_cast<double>(memory_.excess_pages(Tier::fast));
    victims_.clear();
    for (; left > 0 && leaving < wanted; --left, ++leaving) {
      const auto victim = history_.coldest(history_.full());
      if (!victim) break;
      history_.take(*victim);
      victims_.push_back(*victim);
    }
    if (victims_.empty()) return;
    memory_.request(Tier::slow, victims_);
    memory_.charge(Work::lru_step, victims_.size());
  }

  const bool opportunistic_, exchange_, background_;
  const double reserve_;
  migrate::PerPass batch_;
  track::History history_;
  Nanos looked_{};
  std::vector<PageId> victims_;  // scratch
  std::vector<Residency> where_;
};

std::vector<KnobDecl> autotiering_knobs() {
  using namespace knob;
  const std::string paper = "AutoTiering, ATC'21, §3";
  return list(
      migrate::scan_clock_knobs(),
      choice("mode", {"opm", "cpm"}, paper,
             "without room, demote a page of a lower level, or promote nothing"),
      flag("exchange", false, paper, "without room, change places with a page of a lower level"),
      flag("background_demotion", true, paper + ": BD", "keep room ahead of faults"),
      real("reserve", 0.02, {0.001, 0.3, log}, ratio, "estimate: not published",
           "share of the fast tier that background demotion keeps free")
          .when("background_demotion"),
      real("demotion_batch", 4096, {32, 1 << 20, log}, pages, "estimate: not published",
           "most pages that background demotion takes in 100 ms")
          .when("background_demotion"),
      integer("history_bits", 8, {1, track::History::most_bits}, none, paper,
              "scans that a page's history remembers"),
      migrate::kernel_marks_knobs());
}

const RegisterPolicy autotiering_policy{
    regulate::with_aol<make_policy<AutoTiering>, regulate::Thins::requests>({
        .name = "autotiering",
        .family = "hint faults",
        .summary = "promotes what faults; makes room by the histories of eight scans",
        .citation = "Kim, Choe and Ahn, Exploring the Design Space of Page Management for "
                    "Multi-Tiered Memory Systems, USENIX ATC 2021",
        .addresses = {"https://www.usenix.org/conference/atc21/presentation/kim-jonghyeon"},
        .knobs = autotiering_knobs(),
        .traits = {.needs = Need::faults, .maps_first = true},  // its kernel precedes 5.13
    })};

}  // namespace
}  // namespace tt
