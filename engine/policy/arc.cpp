// ARC: Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST'03, as a
// tiering system on samples, as which HybridTier (ASPLOS'25, §5.2) compares with it. Cases are
// those of ARC's Figure 4; "artifact" is HybridTier's published code.
//
// lists_  t1, t2: pages of the fast tier that were sampled once, or more often, since they came;
//         b1, b2: ghosts, pages that left t1 and t2 not long ago. All in order of the last sample.
// p_      the size that t1 is to have; ghosts that return tell whether it was too small
// size()  c, the pages that the lists may fill the fast tier with
//
// HybridTier, §5.2: ARC assumes "that the cache is initially empty", so pages start in the slow
// tier; §6.1: a sample is a request, and a page is promoted "the first time [it] is sampled".
//
// The artifact moves each page before it looks at the next sample. So while moves are under way,
// samples of pages that are not in the cache are passed over.
//
// Inferred: a page that could not be promoted is asked for again by its next sample, and one that
// could not be demoted at once; what the lists take of the fast tier is not theirs to fill. The
// artifact asks for the demotion of the page that comes, not of its victim: not taken from there.
#include <algorithm>

#include "core/make_policy.hpp"
#include "migrate/mapped_ranges.hpp"
#include "regulate/aol.hpp"
#include "track/ghost_lists.hpp"
#include "track/sampling_knobs.hpp"

namespace tt {
namespace {

class Arc final : public Policy {
 public:
  explicit Arc(const PolicyContext& context) : memory_(context.memory) {
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
    out["t1_pages"] = static_cast<double>(lists_.size(t1));
    out["t2_pages"] = static_cast<double>(lists_.size(t2));
    out["b1_pages"] = static_cast<double>(lists_.size(b1));
    out["b2_pages"] = static_cast<double>(lists_.size(b2));
    out["t1_target_pages"] = p_;
  }
  Heat heat(PageId page) const override {
    const unsigned list = lists_.where(page);
    return list == t2 ? Heat::hot : list == t1 ? Heat::warm : Heat::cold;
  }

 private:
  enum List : std::uint8_t { t1, t2, b1, b2, lists };
  using Lists = track::GhostLists<lists>;
  static bool is_cached(unsigned list) { return list == t1 || list == t2; }

  std::uint64_t size() const {
    const std::uint64_t own = metadata_bytes() / memory_.page_bytes();
    return memory_.capacity(Tier::fast) - std::min(own, memory_.capacity(Tier::fast));
  }
  double pages(List list) const { return static_cast<double>(lists_.size(list)); }

  void request(const Sample& sample) {
    const PageId page = sample.page;
    const unsigned list = lists_.where(page);
    if (is_cached(list)) {  // case I: a hit
      lists_.put(t2, page);
      if (sample.tier == Tier::slow && !busy_) memory_.request(Tier::fast, {&page, 1});
      return;
    }
    const std::uint64_t c = size();
    if (c == 0 || busy_) return;
    if (list == b1) {  // case II
      p_ = std::min(static_cast<double>(c), p_ + std::max(1.0, pages(b2) / pages(b1)));
    } else if (list == b2) {  // case III
      p_ = std::max(0.0, p_ - std::max(1.0, pages(b1) / pages(b2)));
    } else {  // case IV
      forget(c);
    }
    while (lists_.size(t1) + lists_.size(t2) >= c) replace(list == b2);
    lists_.put(list == Lists::none ? t1 : t2, page);
    memory_.request(Tier::fast, {&page, 1});
  }
  /// Case IV: room for another page in the directory, where t1 and b1 have c places, and all lists
  /// 2 c.
  void forget(std::uint64_t c) {
    if (lists_.size(t1) + lists_.size(b1) >= c) {
      // With b1 empty, t1 fills the tier: its oldest page leaves without becoming a ghost.
      if (lists_.size(b1) > 0) {
        lists_.remove(lists_.oldest(b1));
      } else {
        evict(t1);
      }
    } else if (lists_.size(b2) > 0 &&
               lists_.size(t1) + lists_.size(t2) + lists_.size(b1) + lists_.size(b2) >= 2 * c) {
      lists_.remove(lists_.oldest(b2));
    }
  }
  /// REPLACE: of t1 if that is larger than it is to be, else of t2.
  void replace(bool wanted_by_b2) {
    const double first = pages(t1);
    const bool from_t1 =
        lists_.size(t1) > 0 && (first > p_ || (wanted_by_b2 && first >= p_) || pages(t2) == 0);
    const PageId page = evict(from_t1 ? t1 : t2);
    lists_.put(from_t1 ? b1 : b2, page);
  }
  PageId evict(List list) {
    const PageId page = lists_.oldest(list);
    lists_.remove(page);
    memory_.request(Tier::slow, {&page, 1});
    return page;
  }

  Memory& memory_;
  migrate::MappedRanges space_;
  Lists lists_;
  bool busy_ = false;  // with moves that the samples before these have led to
  double p_ = 0;
};

const RegisterPolicy registered{regulate::with_aol<make_policy<Arc>>({
    .name = "arc",
    .family = "cache",
    .summary = "a cache that balances recency and frequency by ghosts; promotes at first sample",
    .citation = "Megiddo and Modha, ARC: A Self-Tuning, Low Overhead Replacement Cache, FAST 2003; "
                "as a tiering system in HybridTier, ASPLOS 2025",
    .knobs = track::frequency_knobs("HybridTier, ASPLOS'25, artifact: as HybridTier's",
                                    "HybridTier, ASPLOS'25, artifact: tier_and_core"),
})};

}  // namespace
}  // namespace tt
