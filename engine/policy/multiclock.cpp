// SPDX-License-Identifier: MIT

// MULTI-CLOCK: Maruf et al., "MULTI-CLOCK: Dynamic Tiering for Hybrid Memory Systems", HPCA'22,
// with what its published kernel patch does.
//
// Paper: https://doi.org/10.1109/HPCA53966.2022.00072
//
// The kernel's lists get a third one, of pages to promote. A thread for the slow tier, kpromoted,
// looks once in a period at the tails of its lists, so many pages of each, and clears their
// accessed bits:
//
//     inactive, unreferenced  --accessed-->  inactive, referenced  --accessed-->  active
//     active                  --accessed-->  promote
//     promote                 -->  fast tier, all of them; at the head of its active list
//
// A page that finds no room there goes back to the active list, and kswapd is woken. kswapd demotes
// the inactive tail of the fast tier where it would swap (migrate/reclaim.hpp).
//
// Published: lists and transitions, the period of a second, 1,024 pages. Inferred: that pages which
// one pass puts on the promote list move in the same pass (a page that enters the list wakes
// kpromoted), and kswapd's pace and watermarks, which are the kernel's.
//
// lists_     inactive, active and promote lists of both tiers (track/lru_lists.hpp)
// kswapd_    makes room up to the kernel's high watermark
// allowance_ pages of each list for the next pass: in a miniature perhaps less than one
#include <algorithm>
#include <vector>

#include "core/make_policy.hpp"
#include "migrate/allowance.hpp"
#include "migrate/reclaim.hpp"
#include "regulate/aol.hpp"
#include "track/lru_lists.hpp"

namespace tt {
namespace {

class MultiClock final : public Policy {
 public:
  explicit MultiClock(const PolicyContext& context)
      : memory_(context.memory),
        marks_(context.knobs),
        period_(from_millis(context.knobs.real("kpromoted_period"))),
        allowance_(context.knobs.real("scan_pages")),
        lists_(context.memory, context.knobs.real("lru_gib")),
        kswapd_(context.memory, lists_, context.knobs, marks_.high) {
    // kpromoted and kswapd move pages themselves.
    memory_.set_movers({.threads = 0});
    memory_.set_watermarks({.reserve = marks_.min, .wake = marks_.low});
  }

  void on_map(PageRange range, std::uint32_t, Nanos) override { lists_.map(range); }
  void on_unmap(PageRange range, Nanos) override { lists_.unmap(range); }
  Tier placement(PageRange) const override { return Tier::fast; }
  void on_samples(std::span<const Sample>, Nanos) override {}
  void on_pressure(Tier, Nanos now) override {
    kswapd_.wake();
    kswapd_.run(now);
  }
  void on_capacity(Tier tier, Nanos now) override { on_pressure(tier, now); }
  void tick(Nanos now) override {
    lists_.find_new(std::min(1.0, seconds(now - ticked_)));
    ticked_ = now;
    if (now - passed_ >= period_) {
      passed_ = now;
      kpromoted(allowance_.next());
    }
    kswapd_.run(now);
  }
  Nanos tick_period() const override {
    return kswapd_.awake() ? std::min(period_, migrate::Reclaim::period) : period_;
  }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    for (const MigrationResult& result : results) {
      if (result.outcome == Outcome::done) lists_.moved(result.page, result.to);
      // Arrived, or sent back.
      if (result.to == Tier::fast && result.outcome != Outcome::gone)
        lists_.put(result.page, List::active);
      if (result.to == Tier::fast && result.outcome == Outcome::no_space) kswapd_.wake();
    }
  }

  /// Bits and links in struct page.
  std::uint64_t metadata_bytes() const override { return 0; }
  void gauges(Gauges& out) const override {
    out["active_pages"] = static_cast<double>(lists_.size(Tier::fast, List::active));
    out["inactive_pages"] = static_cast<double>(lists_.size(Tier::fast, List::inactive));
    out["slow_active_pages"] = static_cast<double>(lists_.size(Tier::slow, List::active));
    out["promote_pages"] = static_cast<double>(lists_.size(Tier::slow, List::promote));
    out["promote_candidates"] = static_cast<double>(candidates_);
  }
  Heat heat(PageId page) const override {
    if (lists_.on(List::inactive, page)) return lists_.referenced(page) ? Heat::warm : Heat::cold;
    return lists_.on(List::active, page) || lists_.on(List::promote, page) ? Heat::hot : Heat::cold;
  }

 private:
  using List = track::LruLists::List;

  void kpromoted(std::uint64_t most) {
    // Active pages first: one that turns active in this pass is looked at in a later one.
    lists_.scan(Tier::slow, List::active, most,
                [](PageId, bool accessed) { return accessed ? List::promote : List::active; });
    victims_.clear();  // of no interest: nothing is reclaimed from the slow tier
    lists_.age_inactive(Tier::slow, most, UINT32_MAX, victims_);
    promotions_.clear();
    lists_.scan(Tier::slow, List::promote, UINT64_MAX, [&](PageId page, bool) {
      promotions_.push_back(page);
      return List::promote;
    });
    if (promotions_.empty()) return;
    candidates_ += promotions_.size();
    memory_.request(Tier::fast, promotions_);
  }

  Memory& memory_;
  const migrate::KernelMarks marks_;
  const Nanos period_;
  migrate::PerPass allowance_;
  track::LruLists lists_;
  migrate::Reclaim kswapd_;
  Nanos ticked_{}, passed_{};
  std::uint64_t candidates_ = 0;
  std::vector<PageId> promotions_, victims_;  // scratch
};

std::vector<KnobDecl> multiclock_knobs() {
  using namespace knob;
  return list(real("kpromoted_period", 1000, {10, 60000, log}, milliseconds, "MULTI-CLOCK, HPCA'22",
                   "time between two passes of kpromoted"),
              real("scan_pages", 1024, {64, 1e8, log}, Unit::pages, "MULTI-CLOCK, HPCA'22",
                   "pages of each list of the slow tier that a pass looks at"),
              migrate::kernel_marks_knobs(), migrate::reclaim_knobs());
}

const RegisterPolicy multiclock_policy{regulate::with_aol<make_policy<MultiClock>>({
    .name = "multiclock",
    .family = "page lists",
    .summary = "a promote list above the kernel's active list; kswapd demotes",
    .citation = "Maruf et al., MULTI-CLOCK: Dynamic Tiering for Hybrid Memory Systems, HPCA 2022",
    .addresses = {"https://doi.org/10.1109/HPCA53966.2022.00072"},
    .knobs = multiclock_knobs(),
    .traits = {.needs = Need::accessed_bits},
})};

}  // namespace
}  // namespace tt
