// SPDX-License-Identifier: MIT

// Nimble: Yan et al., "Nimble Page Management for Tiered Memory Systems", ASPLOS'19, with what its
// published kernel does (mm/memory_manage.c).
//
// Paper: https://doi.org/10.1145/3297858.3304024;
// artifact: https://github.com/ysarch-lab/nimble_page_management_asplos_2019
//
// Now and then the launcher calls the kernel's manager, which
//   - looks at the lists of both tiers and clears accessed bits: a page that was accessed since the
//     last call is active, another one inactive;
//   - promotes all active pages of the slow tier while there is room, and exchanges the others,
//     pair by pair, with inactive pages of the fast tier, the oldest first;
//   - stops where either side has no more of them.
// Pages are copied by several threads: a huge page in parts, base pages several at a time.
//
// Published: the exchange, concurrent and multi-threaded copies, that one access makes a page a
// candidate. Inferred: the period, which is the launcher's (unverified: 5 s), and that an exchange,
// which needs no free page, is a demotion and a promotion queued one right behind the other: so it
// costs two moves.
//
// lists_   inactive and active lists of both tiers (track/lru_lists.hpp)
#include <algorithm>
#include <vector>

#include "core/make_policy.hpp"
#include "regulate/aol.hpp"
#include "track/lru_lists.hpp"

namespace tt {
namespace {

class Nimble final : public Policy {
 public:
  explicit Nimble(const PolicyContext& context)
      : memory_(context.memory),
        period_(from_millis(context.knobs.real("manage_period"))),
        exchange_batch_(static_cast<std::size_t>(context.knobs.integer("exchange_batch"))),
        // The kernel's ratio of the lists is not used: the manager ages both whole.
        lists_(context.memory, 1024) {
    const auto threads = static_cast<unsigned>(context.knobs.integer("copy_threads"));
    const bool huge = memory_.page_bytes() > 4096;
    memory_.set_movers({.threads = threads, .together = huge ? threads : 1});
  }

  void on_map(PageRange range, std::uint32_t, Nanos) override { lists_.map(range); }
  void on_unmap(PageRange range, Nanos) override { lists_.unmap(range); }
  Tier placement(PageRange) const override { return Tier::fast; }
  void on_samples(std::span<const Sample>, Nanos) override {}
  void tick(Nanos) override {
    // A call returns when all of its pages have moved.
    if (memory_.pending(Tier::fast) + memory_.pending(Tier::slow) > 0) return;
    lists_.find_new();
    age(Tier::slow, hot_, cold_);
    std::swap(hot_, candidates_);
    age(Tier::fast, hot_, victims_);
    move();
  }
  Nanos tick_period() const override { return period_; }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    for (const MigrationResult& result : results)
      if (result.outcome == Outcome::done) lists_.moved(result.page, result.to);
  }

  /// Bits and links in struct page.
  std::uint64_t metadata_bytes() const override { return 0; }
  void gauges(Gauges& out) const override {
    out["active_pages"] = static_cast<double>(lists_.size(Tier::fast, List::active));
    out["inactive_pages"] = static_cast<double>(lists_.size(Tier::fast, List::inactive));
    out["slow_active_pages"] = static_cast<double>(lists_.size(Tier::slow, List::active));
    out["exchanged_pages"] = static_cast<double>(exchanged_);
  }
  Heat heat(PageId page) const override {
    return lists_.on(List::active, page) ? Heat::hot : Heat::cold;
  }

 private:
  using List = track::LruLists::List;

  /// Looks at each page of the tier once; those that were accessed, and the others, oldest first.
  void age(Tier tier, std::vector<PageId>& accessed_pages, std::vector<PageId>& others) {
    accessed_pages.clear();
    others.clear();
    const auto judge = [&](PageId page, bool accessed) {
      (accessed ? accessed_pages : others).push_back(page);
      return accessed ? List::active : List::inactive;
    };
    // Pages change lists by entering at the head, behind those that have their turn.
    const std::uint64_t active = lists_.size(tier, List::active);
    lists_.scan(tier, List::inactive, UINT64_MAX, judge);
    lists_.scan(tier, List::active, active, judge);
  }

  void move() {
    const auto room = static_cast<std::size_t>(memory_.free_pages(Tier::fast));
    const std::span<const PageId> all{candidates_};
    const auto up = all.first(std::min(room, all.size()));
    if (!up.empty()) memory_.request(Tier::fast, up);
    const auto rest = all.subspan(up.size());
    // What a budget that shrank leaves no room for goes first, and changes places with nothing.
    const std::span<const PageId> down{victims_};
    const auto excess =
        down.first(std::min<std::size_t>(memory_.excess_pages(Tier::fast), down.size()));
    if (!excess.empty()) memory_.request(Tier::slow, excess);
    const auto victims = down.subspan(excess.size());
    const std::size_t pairs = std::min(rest.size(), victims.size());
    for (std::size_t from = 0; from < pairs; from += exchange_batch_) {
      const std::size_t count = std::min(exchange_batch_, pairs - from);
      memory_.request(Tier::slow, victims.subspan(from, count));
      memory_.request(Tier::fast, rest.subspan(from, count));
      exchanged_ += count;
    }
  }

  Memory& memory_;
  const Nanos period_;
  const std::size_t exchange_batch_;
  track::LruLists lists_;
  std::uint64_t exchanged_ = 0;
  std::vector<PageId> hot_, cold_, candidates_, victims_;  // scratch
};

std::vector<KnobDecl> nimble_knobs() {
  using namespace knob;
  const std::string kernel = "Nimble, ASPLOS'19, §4; published kernel";
  return list(real("manage_period", 5000, {10, 100000, log}, milliseconds,
                   "inferred: the launcher's, a few seconds", "time between two manager calls"),
              integer("exchange_batch", 16, {1, 1024, log}, none, kernel,
                      "pairs of pages that are exchanged at a time"),
              integer("copy_threads", 4, {1, 32}, none, kernel, "threads that copy pages"));
}

const RegisterPolicy nimble_policy{regulate::with_aol<make_policy<Nimble>>({
    .name = "nimble",
    .family = "page lists",
    .summary = "exchanges what was accessed once with what was not, by several threads",
    .citation = "Yan et al., Nimble Page Management for Tiered Memory Systems, ASPLOS 2019",
    .addresses = {"https://doi.org/10.1145/3297858.3304024"},
    .knobs = nimble_knobs(),
    .traits = {.needs = Need::accessed_bits},
})};

}  // namespace
}  // namespace tt
