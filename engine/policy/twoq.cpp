// TwoQ: Johnson and Shasha, "2Q: A Low Overhead High Performance Buffer Management Replacement
// Algorithm", VLDB'94, full version (§3.1), as a tiering system on samples, as which HybridTier
// (ASPLOS'25, §5.2) compares with it.
//
// lists_  a1in: pages of the fast tier that came lately, in the order in which they came;
//         a1out: ghosts, the pages that left a1in last;
//         am: pages of the fast tier that returned as ghosts, in order of the last sample
// size()  the pages that am and a1in may fill the fast tier with
//
// §5.3 of HybridTier: pages start in the slow tier, since 2Q assumes "that the cache is initially
// empty"; a sample is a request, so that a page is promoted when it is first sampled. "The default
// values provided by the original paper worked well": a1in a quarter, a1out half of the size.
//
// The artifact moves each page before it looks at the next sample. So while moves are under way,
// samples of pages that are not in the cache are passed over.
//
// Inferred: a page that could not be promoted is asked for again by its next sample, and one that
// could not be demoted at once; what the lists take of the fast tier is not theirs to fill.
#include <algorithm>

#include "core/make_policy.hpp"
#include "migrate/mapped_ranges.hpp"
#include "regulate/aol.hpp"
#include "track/ghost_lists.hpp"
#include "track/sampling_knobs.hpp"

namespace tt {
namespace {

class TwoQ final : public Policy {
 public:
  explicit TwoQ(const PolicyContext& context)
      : memory_(context.memory),
        in_(context.knobs.real("in_share")),
        out_(context.knobs.real("out_share")) {
    memory_.set_movers({.threads = 0});  // artifact: it calls move_pages() itself
    memory_.set_sampling({.loads = track::load_events(context.knobs)});
  }

  void on_map(PageRange range, std::uint32_t, Nanos) override { space_.map(range); }
  void on_unmap(PageRange range, Nanos) override {
    space_.unmap(range);
    lists_.remove(range);
  }
  Tier placement(PageRange) const override { return Tier::slow; }
  void on_samples(std::span<const Sample> samples, Nanos) override {
    busy_ = memory_.pending(Tier::fast) + memory_.pending(Tier::slow) > 0;
    for (const Sample& sample : samples)
      if (space_.contains(sample.page)) request(sample);
    memory_.charge(Work::tracker_lookup, samples.size());
    memory_.charge(Work::tracker_update, samples.size());
  }
  void tick(Nanos) override {}
  Nanos tick_period() const override { return from_seconds(1); }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    for (const MigrationResult& result : results) {
      const bool failed = result.outcome == Outcome::busy || result.outcome == Outcome::no_space;
      if (failed && result.to == Tier::slow && space_.contains(result.page) &&
          !is_cached(lists_.where(result.page)))
        memory_.request(Tier::slow, {&result.page, 1});
    }
  }

  std::uint64_t metadata_bytes() const override { return lists_.bytes() + space_.bytes(); }
  void gauges(Gauges& out) const override {
    out["a1in_pages"] = static_cast<double>(lists_.size(a1in));
    out["a1out_pages"] = static_cast<double>(lists_.size(a1out));
    out["am_pages"] = static_cast<double>(lists_.size(am));
  }
  Heat heat(PageId page) const override {
    const unsigned list = lists_.where(page);
    return list == am ? Heat::hot : list == a1in ? Heat::warm : Heat::cold;
  }

 private:
  enum List : std::uint8_t { a1in, a1out, am, lists };
  using Lists = track::GhostLists<lists>;
  static bool is_cached(unsigned list) { return list == a1in || list == am; }

  std::uint64_t size() const {
    const std::uint64_t own = metadata_bytes() / memory_.page_bytes();
    return memory_.capacity(Tier::fast) - std::min(own, memory_.capacity(Tier::fast));
  }

  void request(const Sample& sample) {
    const PageId page = sample.page;
    const unsigned list = lists_.where(page);
    if (is_cached(list)) {
      // "If X is in A1in, do nothing": samples that come soon after the first are correlated.
      if (list == am) lists_.put(am, page);
      if (sample.tier == Tier::slow && !busy_) memory_.request(Tier::fast, {&page, 1});
      return;
    }
    const std::uint64_t pages = size();
    if (pages == 0 || busy_) return;
    while (lists_.size(a1in) + lists_.size(am) >= pages) reclaim(pages);
    lists_.put(list == a1out ? am : a1in, page);
    memory_.request(Tier::fast, {&page, 1});
  }
  /// The victim is the tail of a1in, if that is larger than K_in, and becomes a ghost; else that of
  /// am, which does not: "it hasn't been accessed for a while".
  void reclaim(std::uint64_t pages) {
    const double size = static_cast<double>(pages);
    const bool first = static_cast<double>(lists_.size(a1in)) > in_ * size || lists_.size(am) == 0;
    const PageId page = lists_.oldest(first ? a1in : am);
    lists_.remove(page);
    memory_.request(Tier::slow, {&page, 1});
    if (!first) return;
    lists_.put(a1out, page);
    if (static_cast<double>(lists_.size(a1out)) > out_ * size) lists_.remove(lists_.oldest(a1out));
  }

  Memory& memory_;
  const double in_, out_;  // K_in and K_out, as shares of the size
  migrate::MappedRanges space_;
  Lists lists_;
  bool busy_ = false;  // with moves that the samples before these have led to
};

std::vector<KnobDecl> knobs() {
  using namespace knob;
  return list(track::frequency_knobs("HybridTier, ASPLOS'25, artifact: as HybridTier's",
                                     "HybridTier, ASPLOS'25, artifact: tier_and_core"),
              real("in_share", 0.25, {0.001, 1, log}, ratio, "VLDB'94, §3.1; HybridTier, §6.1",
                   "share of the fast tier that new pages may keep (K_in)"),
              real("out_share", 0.5, {0.001, 16, log}, ratio, "VLDB'94, §3.1; HybridTier, §6.1",
                   "how many ghosts are remembered, as a share of the fast tier's pages (K_out)"));
}

const RegisterPolicy registered{regulate::with_aol<make_policy<TwoQ>>({
    .name = "twoq",
    .family = "cache",
    .summary = "a cache that keeps what returns after it left; promotes at first sample",
    .citation = "Johnson and Shasha, 2Q: A Low Overhead High Performance Buffer Management "
                "Replacement Algorithm, VLDB 1994; as a tiering system in HybridTier, ASPLOS 2025",
    .knobs = knobs(),
})};

}  // namespace
}  // namespace tt
