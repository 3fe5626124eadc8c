// SPDX-License-Identifier: MIT

// HeMem: Raybuck et al., "HeMem: Scalable Tiered Memory Management for Big Data Applications and
// Real NVM", SOSP'21, with the ten knobs, defaults and ranges of "From Good to Great: Improving
// Memory Tiering Performance Through Parameter Tuning", 2025, Table 2 (cited as GG). Where the
// papers are silent it does what HeMem's published code does.
//
// Papers: https://doi.org/10.1145/3477132.3483550; https://arxiv.org/abs/2504.18714;
// artifact: https://bitbucket.org/ajaustin/hemem
//
// states_      of each page its samples: loads that the fast tier answered, those of the slow one,
//              and stores. One that exceeds the cooling threshold halves all: on the hot lists at
//              once, else when a page is sampled next, after that sample was judged.
// hot_         the hot pages of each tier, as they became so
// cold_        cold pages of the fast tier, likewise: the victims
// hot_ring_    requests of the sampling thread to the migration thread: this page is hot, or cold
// cold_ring_   (whether it was hot before or not). A page may wait many times. Rings have a fixed
//              size, as in the code, and drop what does not fit; which size is chosen here.
// sweeps_      hot pages that a halving left to look at, cooling_pages of each tier per pass
#include <algorithm>
#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "core/assert.hpp"
#include "core/make_policy.hpp"
#include "migrate/allowance.hpp"
#include "migrate/cold_list.hpp"
#include "migrate/page_list.hpp"
#include "regulate/aol.hpp"
#include "track/clocked_counts.hpp"
#include "track/page_index.hpp"

namespace tt {
namespace {

// Not taken from the code: it halves only the sampled one of a page's counters, so that the others
// escape, and a page that was hot in the slow tier looks hot for ever. GG says "of all pages".
class HeMem final : public Policy {
 public:
  explicit HeMem(const PolicyContext& context) : HeMem(context, context.knobs) {}

  void on_map(PageRange range, std::uint32_t, Nanos) override {
    index_.map(range);
    states_.resize(index_.size());
    cold_.map(range);
  }
  void on_unmap(PageRange range, Nanos) override {
    index_.unmap(range, [&](std::uint32_t number) {
      states_[number] = {};
      forget(index_.page(number));
    });
  }
  Tier placement(PageRange) const override { return Tier::fast; }  // DRAM while there is some
  void on_samples(std::span<const Sample> samples, Nanos) override {
    // Pages come in no order, so that most states are not in a cache: they are fetched together.
    numbers_.resize(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      numbers_[i] = index_.find(samples[i].page);
      if (numbers_[i] != track::PageIndex::none) __builtin_prefetch(&states_[numbers_[i]], 1);
    }
    for (std::size_t i = 0; i < samples.size(); ++i)
      if (numbers_[i] != track::PageIndex::none) count(samples[i], states_[numbers_[i]]);
    memory_.charge(Work::tracker_update, samples.size());
    memory_.charge(Work::tracker_lookup, samples.size());
  }
  void tick(Nanos now) override {
    take(hot_ring_, hot_requests_.next(), true);
    take(cold_ring_, cold_requests_.next(), false);
    migrate(now);
    sweep();
  }
  Nanos tick_period() const override { return period_; }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    for (const auto& [page, to, outcome, change, cost] : results) {
      State* const state = state_of(page);
      if (state == nullptr) continue;
      state->moving = false;
      const Tier tier = outcome == Outcome::done ? to : other(to);
      if (outcome != Outcome::gone) enlist(page, state->hot, tier);
    }
  }

  std::uint64_t metadata_bytes() const override {
    return 168 * index_.pages();
  }  // FreqTier, §VII-C
  void gauges(Gauges& out) const override {
    out["read_threshold"] = read_hot_;
    out["write_threshold"] = write_hot_;
    out["hot_pages"] = static_cast<double>(hot_[0].size() + hot_[1].size());
    out["slow_hot_pages"] = static_cast<double>(hot_[index(Tier::slow)].size());
    out["coolings"] = static_cast<double>(counts_.coolings());
    out["hot_ring_pages"] = static_cast<double>(hot_ring_.size());
    out["cold_ring_pages"] = static_cast<double>(cold_ring_.size());
    out["sweep_pages"] = static_cast<double>(sweeps_[0].size() + sweeps_[1].size());
  }
  Heat heat(PageId page) const override {
    const State* const state = state_of(page);
    if (state == nullptr) return Heat::cold;
    if (state->hot) return Heat::hot;
    return is_hot(state->entry.counts) ? Heat::warm : Heat::cold;  // warm: hot by count alone
  }

 private:
  /// That a ring holds for each page that was ever mapped at once, on average. No golden run has
  /// more that wait; it is 128 bytes a page in both rings at worst.
  static constexpr std::size_t most_requests = 8;
  enum Kind : std::uint8_t { fast_load, slow_load, store, kinds };
  using Counts = track::ClockedCounts<kinds>;
  struct State {
    Counts::Entry entry;
    bool hot : 1 = false;
    bool in_ring : 1 = false;  // a request about it was made since one was last taken
    bool moving : 1 = false;
  };

  /// nullptr: the page is not ours, or gone by now.
  const State* state_of(PageId page) const {
    const std::uint32_t number = index_.find(page);
    return number == track::PageIndex::none ? nullptr : &states_[number];
  }
  State* state_of(PageId page) { return const_cast<State*>(std::as_const(*this).state_of(page)); }
  /// Of a page that is on a list: it is mapped.
  State& at(PageId page) {
    TT_ASSERT(index_.contains(page));
    return states_[index_.find(page)];
  }

  bool is_hot(const Counts::PageCounts& counts) const {
    return counts[store] >= write_hot_ || counts[fast_load] + counts[slow_load] >= read_hot_;
  }
  void forget(PageId page) {
    cold_.remove(page);
    for (auto& list : hot_) list.remove(page);
  }

  /// The sampling thread.
  void count(const Sample& sample, State& state) {
    const Kind kind = sample.kind == AccessKind::store ? store
                      : sample.tier == Tier::fast      ? fast_load
                                                       : slow_load;
    // GG, §3.2: "If the page access count exceeds a threshold, it classifies the page as hot."
    const bool hot = is_hot(counts_.count(state.entry, kind));
    auto& ring = hot ? hot_ring_ : cold_ring_;
    if ((state.hot != hot || !state.in_ring) && ring.size() < most_requests * states_.size()) {
      state.in_ring = true;
      ring.push_back(sample.page);
    }
    // "When the access count of any page reaches a cooling_threshold, page cooling is triggered."
    if (static_cast<double>(counts_.settle(state.entry)[kind]) <= cooling_threshold_) return;
    counts_.begin_cooling();
    for (const Tier tier : {Tier::fast, Tier::slow})
      if (sweeps_[index(tier)].empty()) sweeps_[index(tier)] = hot_[index(tier)].newest_first();
  }

  /// The migration thread, from here on.
  void take(std::deque<PageId>& ring, std::uint64_t count, bool hot) {
    const auto end =
        ring.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(count, ring.size()));
    pages_.assign(ring.begin(), end);
    ring.erase(ring.begin(), end);
    look_up();
    for (std::size_t i = 0; i < pages_.size(); ++i) {
      State* const state = state_of(pages_[i]);
      if (state == nullptr) continue;
      state->in_ring = false;
      set_hot(pages_[i], *state, hot, where_[i]);
    }
  }
  /// Where pages_ are.
  void look_up() {
    where_.resize(pages_.size());
    memory_.residency(pages_, where_);
  }
  void set_hot(PageId page, State& state, bool hot, Residency where) {
    // A request to move that was dropped on the way is nowhere any more: it is made again.
    if (state.moving && memory_.pending(Tier::fast) + memory_.pending(Tier::slow) == 0)
      state.moving = false;
    const bool listed = hot_[0].contains(page) || hot_[1].contains(page);
    if (!state.moving && (hot ? listed : !state.hot)) return;
    state.hot = hot;
    if (state.moving) return;  // it is put on a list when it has arrived
    if (where != Residency::absent) enlist(page, hot, static_cast<Tier>(where));
  }
  /// Puts a page on the list of its tier. The slow tier's cold pages need none.
  void enlist(PageId page, bool hot, Tier tier) {
    cold_.remove(page);
    for (auto& list : hot_) list.remove(page);
    if (hot) {
      hot_[index(tier)].push(page);
    } else if (tier == Tier::fast) {
      cold_.push(page);
    }
  }

  /// "To avoid scanning all pages, HeMem cools pages in batches."
  void sweep() {
    const auto pages = cooling_pages_.next();
    for (auto& sweep : sweeps_) {
      const auto count = std::min<std::uint64_t>(pages, sweep.size());
      memory_.charge(Work::tracker_lookup, count);
      pages_.clear();
      for (auto left = count; left > 0; --left) {
        const PageId page = sweep.back();
        sweep.pop_back();
        const State* const state = state_of(page);
        // "If the access count falls below the hot threshold after cooling, the page is then
        // considered cold."
        if (state != nullptr && !is_hot(counts_.cooled(state->entry))) pages_.push_back(page);
      }
      look_up();
      for (std::size_t i = 0; i < pages_.size(); ++i)
        set_hot(pages_[i], at(pages_[i]), false, where_[i]);
    }
  }

  /// "The migration thread promotes hot pages on slower tiers and demotes cold pages from faster
  /// tiers." A full fast tier gives up one cold page per hot one; with no cold page left the hot
  /// set exceeds it, and migration stops.
  void migrate(Nanos now) {
    std::uint64_t budget = rate_.available(now);
    const std::uint64_t leaving = memory_.free_pages(Tier::fast) + memory_.pending(Tier::slow);
    std::uint64_t room = leaving - std::min(leaving, memory_.pending(Tier::fast));
    auto& slow = hot_[index(Tier::slow)];
    victims_.clear();
    promotions_.clear();
    cold_.begin_pass(memory_);
    budget -= shrink(budget);
    while (budget > 0 && slow.size() > 0) {
      const PageId page = *slow.pop();
      State& state = at(page);
      if (!is_hot(state.entry.counts)) {  // cooled meanwhile
        state.hot = false;
        continue;
      }
      if (room == 0) {
        const auto victim = cold_.pop(memory_);
        if (!victim) {
          slow.push(page);
          break;
        }
        victims_.push_back(*victim);
        ++room;
        --budget;
      }
      if (budget == 0) {
        slow.push(page);
        break;
      }
      promotions_.push_back(page);
      --room;
      --budget;
    }
    // A promotion whose victim did not fit the queue any more fails there and is tried again.
    rate_.spend(ask(Tier::slow, victims_) + ask(Tier::fast, promotions_));
    memory_.charge(Work::scan_step, cold_.looked_at());
  }
  /// What the fast tier holds beyond a budget that has shrunk leaves: cold pages first, then the
  /// hot ones that have been so for longest. Returns how many.
  std::uint64_t shrink(std::uint64_t budget) {
    const std::uint64_t excess = memory_.excess_pages(Tier::fast);
    if (excess == 0) return 0;
    const std::uint64_t leaving = std::min(excess, memory_.pending(Tier::slow));
    while (victims_.size() < std::min(budget, excess - leaving)) {
      auto victim = cold_.pop(memory_);
      if (!victim) victim = hot_[index(Tier::fast)].pop();
      if (!victim) break;
      victims_.push_back(*victim);
    }
    return victims_.size();
  }
  std::size_t ask(Tier to, std::span<const PageId> pages) {
    const std::size_t taken = pages.empty() ? 0 : memory_.request(to, pages);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      State& state = at(pages[i]);
      state.moving = i < taken;
      if (!state.moving) enlist(pages[i], state.hot, other(to));
    }
    return taken;
  }

  HeMem(const PolicyContext& context, const Knobs& knobs)
      : memory_(context.memory),
        read_hot_(static_cast<std::uint32_t>(knobs.integer("read_hot_threshold"))),
        write_hot_(static_cast<std::uint32_t>(knobs.integer("write_hot_threshold"))),
        cooling_threshold_(knobs.real("cooling_threshold")),
        gib_pages_(static_cast<double>((1ULL << 30) / memory_.page_bytes())),
        period_(from_millis(knobs.real("migration_period"))),
        rate_(knobs.real("max_migration_rate") * gib_pages_,
              knobs.real("max_migration_rate") * gib_pages_ * seconds(period_)),
        cooling_pages_(knobs.real("cooling_pages")),
        hot_requests_(knobs.real("hot_ring_reqs_threshold")),
        cold_requests_(knobs.real("cold_ring_reqs_threshold")) {
    // §3.2: four threads copy a page together, one page at a time, which is write-protected.
    memory_.set_movers({.threads = 4, .together = 4, .copy = Copy::write_protected});
    using Mode = SamplingRequest::Mode;
    memory_.set_sampling({.loads = {Mode::period, knobs.real("sampling_period")},
                          .stores = {Mode::period, knobs.real("write_sampling_period")}});
  }

  Memory& memory_;
  const std::uint32_t read_hot_, write_hot_;
  const double cooling_threshold_, gib_pages_;
  const Nanos period_;
  migrate::RateLimiter rate_;
  migrate::PerPass cooling_pages_, hot_requests_, cold_requests_;
  Counts counts_;
  track::PageIndex index_;
  std::vector<State> states_;  // by the page's number in it
  std::array<migrate::PageList, tier_count> hot_;
  migrate::ColdList cold_;
  std::deque<PageId> hot_ring_, cold_ring_;
  std::array<std::vector<PageId>, tier_count> sweeps_;  // taken from the back
  std::vector<PageId> victims_, promotions_, pages_;    // scratch
  std::vector<Residency> where_;                        // of pages_
  std::vector<std::uint32_t> numbers_;                  // of a batch of samples
};

std::vector<KnobDecl> hemem_knobs() {
  using namespace knob;
  const auto table = [](std::string name, std::int64_t initial, Limits limits, Unit unit,
                        std::string meaning) {
    return integer(std::move(name), initial, limits, unit, "GG, 2025, Table 2", std::move(meaning));
  };
  return list(table("sampling_period", 5000, {100, 10000, log}, events_per_sample,
                    "load misses between two samples"),
              table("write_sampling_period", 10000, {1000, 20000, log}, events_per_sample,
                    "stores between two samples"),
              table("read_hot_threshold", 8, {1, 30}, count_per_page,
                    "load samples from which a page is hot"),
              table("write_hot_threshold", 4, {1, 30}, count_per_page,
                    "store samples from which a page is hot"),
              table("cooling_threshold", 18, {4, 40}, extreme_per_page,
                    "samples of one kind on any page above which all counts halve"),
              table("migration_period", 10, {10, 5000, log}, milliseconds,
                    "time between two passes of the migration thread"),
              table("max_migration_rate", 10, {2, 20}, gib_per_second,
                    "most bytes moved per second, both directions together"),
              table("cooling_pages", 8192, {1024, 65536, log}, pages,
                    "hot pages of each tier per pass that are checked again after a halving"),
              table("hot_ring_reqs_threshold", 1024, {128, 4096, log}, pages,
                    "requests per pass that put pages on the hot lists"),
              table("cold_ring_reqs_threshold", 32, {8, 256, log}, pages,
                    "requests per pass that take pages off them because a sample found them cold"));
}

const RegisterPolicy hemem_policy{regulate::with_aol<make_policy<HeMem>>({
    .name = "hemem",
    .family = "frequency",
    .summary = "exact read and write counts, static thresholds, rate-limited background migration",
    .citation =
        "Raybuck et al., HeMem: Scalable Tiered Memory Management for Big Data Applications "
        "and Real NVM, SOSP 2021; knobs of From Good to Great, 2025, Table 2",
    .addresses = {"https://doi.org/10.1145/3477132.3483550", "https://arxiv.org/abs/2504.18714"},
    .knobs = hemem_knobs(),
    // The thread that reads samples spins on its own processor; the policy's sleeps (artifact).
    .traits = {.page_bytes = 2ULL << 20, .standing_threads = 1},
})};

}  // namespace
}  // namespace tt
