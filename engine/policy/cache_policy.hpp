// SPDX-License-Identifier: MIT

// What caching algorithms have in common as tiering systems on samples, as which HybridTier
// (ASPLOS'25, §5.2) compares with them: the fast tier is the cache, a sample is a request.
//
// HybridTier, §5.2 on ARC and §5.3 on 2Q: they assume "that the cache is initially empty", so pages
// start in the slow tier; §6.1: a page is promoted "the first time [it] is sampled".
//
// HybridTier's published code ("artifact") moves each page before it looks at the next sample. So
// while moves are under way, samples of pages that are not in the cache are passed over.
//
// Inferred: a page that could not be promoted is asked for again by its next sample, and one that
// could not be demoted at once; what the lists take of the fast tier is not theirs to fill.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/make_policy.hpp"
#include "migrate/mapped_ranges.hpp"
#include "track/ghost_lists.hpp"
#include "track/sampling_knobs.hpp"

namespace tt {

/// An algorithm of two lists of pages in the cache, and of `Ghosts` lists of pages that left it.
template <unsigned Ghosts>
class CachePolicy : public Policy {
 public:
  void on_map(PageRange range, std::uint32_t, Nanos) override { space_.map(range); }
  void on_unmap(PageRange range, Nanos) override {
    space_.unmap(range);
    lists_.remove(range);
  }
  Tier placement(PageRange) const override { return Tier::slow; }
  void on_capacity(Tier, Nanos) override { shrink(size()); }
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
  Heat heat(PageId page) const override {
    const unsigned list = lists_.where(page);
    return list == often ? Heat::hot : list == once ? Heat::warm : Heat::cold;
  }

 protected:
  /// The lists of the cache: pages that came lately, and those that have proved worth keeping.
  enum : std::uint8_t { once, often, first_ghosts };
  using Lists = track::GhostLists<first_ghosts + Ghosts>;

  explicit CachePolicy(const PolicyContext& context) : memory_(context.memory) {
    memory_.set_movers({.threads = 0});  // artifact: it calls move_pages() itself
    memory_.set_sampling({.loads = track::load_events(context.knobs)});
  }

  /// For each sample: hit(page, list) if the page is in the cache, else miss(page, list, size),
  /// which puts it there. The size is what the lists may fill the fast tier with, never 0.
  template <typename Hit, typename Miss>
  void serve(std::span<const Sample> samples, const Hit& hit, const Miss& miss) {
    // With moves that the samples before these have led to.
    const bool busy = memory_.pending(Tier::fast) + memory_.pending(Tier::slow) > 0;
    for (const Sample& sample : samples) {
      const PageId page = sample.page;
      if (!space_.contains(page)) continue;
      const unsigned list = lists_.where(page);
      if (is_cached(list)) {
        hit(page, list);
        if (sample.tier == Tier::slow && !busy) memory_.request(Tier::fast, {&page, 1});
      } else if (const std::uint64_t places = size(); places > 0 && !busy) {
        miss(page, list, places);
        memory_.request(Tier::fast, {&page, 1});
      }
    }
    memory_.charge(Work::tracker_lookup, samples.size());
    memory_.charge(Work::tracker_update, samples.size());
  }
  /// The list's oldest page leaves the cache.
  PageId evict(unsigned list) {
    const PageId page = lists_.oldest(list);
    lists_.remove(page);
    memory_.request(Tier::slow, {&page, 1});
    return page;
  }
  /// Evicts what the lists have beyond a size, which may be 0.
  virtual void shrink(std::uint64_t size) = 0;
  double pages(unsigned list) const { return static_cast<double>(lists_.size(list)); }

  Lists lists_;

 private:
  static bool is_cached(unsigned list) { return list == once || list == often; }
  std::uint64_t size() const {
    const std::uint64_t own = metadata_bytes() / memory_.page_bytes();
    return memory_.capacity(Tier::fast) - std::min(own, memory_.capacity(Tier::fast));
  }

  Memory& memory_;
  migrate::MappedRanges space_;
};

inline std::vector<KnobDecl> cache_knobs() {
  return track::frequency_knobs("HybridTier, ASPLOS'25, artifact: as HybridTier's",
                                "HybridTier, ASPLOS'25, artifact: tier_and_core");
}

}  // namespace tt
