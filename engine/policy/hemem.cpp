// HeMem: Raybuck et al., "HeMem: Scalable Tiered Memory Management for Big Data Applications and
// Real NVM", SOSP'21, with the ten knobs, defaults and ranges of "From Good to Great: Improving
// Memory Tiering Performance Through Parameter Tuning", 2025, Table 2 (cited as GG below), which
// also split the sampling period of stores from that of loads.
//
// reads_, writes_  exact counts per page. A count that reaches the cooling threshold halves all
//                  counts, each when it is next looked at.
// lists_           the pages that are hot, each on the list of its tier; all others are cold. A
//                  halving starts a sweep over them, of cooling_pages pages per pass.
// hot_ring_        pages that a sample found hot and that are on no list yet;
// cold_ring_       pages on a list that a sample found cold: each pass takes so many of them
// scan_            finds victims
//
// Inferred: victims are the fast pages on no hot list, in address order from a cursor. HeMem's own
// cold list holds them in order of allocation, which it sees because it is the allocator.
#include <algorithm>

#include "core/make_policy.hpp"
#include "migrate/allowance.hpp"
#include "migrate/hot_lists.hpp"
#include "migrate/mapped_ranges.hpp"
#include "migrate/page_ring.hpp"
#include "migrate/victim_scan.hpp"
#include "regulate/aol.hpp"
#include "track/exact.hpp"

namespace tt {
namespace {

class HeMem final : public Policy {
 public:
  explicit HeMem(const PolicyContext& context) : HeMem(context, context.knobs) {}

  void on_map(PageRange range, std::uint32_t, Nanos) override {
    space_.map(range);
    scan_.changed();
  }
  void on_unmap(PageRange range, Nanos) override {
    space_.unmap(range);
    if (lists_.unmap(range) > 0) scan_.changed();
  }
  Tier placement(PageRange) const override { return Tier::fast; }  // DRAM while there is some
  void on_samples(std::span<const Sample> samples, Nanos) override {
    // Samples are counted one by one: a batch would run past the cooling threshold.
    for (const Sample& sample : samples) count(sample);
    memory_.charge(Work::tracker_update, samples.size());
    memory_.charge(Work::tracker_lookup, samples.size());
  }
  void tick(Nanos now) override {
    take_requests();
    sweep();
    migrate(now);
  }
  Nanos tick_period() const override { return period_; }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    for (const auto& result : results) {
      if (result.outcome == Outcome::gone) {
        forget(result.page);
      } else if (lists_.contains(result.page)) {
        // A hot page in the slow tier, whether it stayed or was moved there, waits for its turn.
        const bool moved = result.outcome == Outcome::done;
        lists_.put(result.page, moved ? result.to : other(result.to));
      }
    }
  }

  std::uint64_t metadata_bytes() const override {
    return reads_->bytes() + writes_->bytes() + space_.bytes() + lists_.bytes() +
           (hot_ring_.size() + cold_ring_.size()) * sizeof(PageId);
  }
  void gauges(Gauges& out) const override {
    out["read_threshold"] = read_hot_;
    out["write_threshold"] = write_hot_;
    out["hot_pages"] = static_cast<double>(lists_.size());
    out["slow_hot_pages"] = static_cast<double>(lists_.slow_entries());
    out["coolings"] = static_cast<double>(coolings_);
    out["hot_ring_pages"] = static_cast<double>(hot_ring_.size());
    out["cold_ring_pages"] = static_cast<double>(cold_ring_.size());
    out["sweep_pages"] = static_cast<double>(lists_.sweep_left());
  }
  Heat heat(PageId page) const override {
    if (lists_.contains(page)) return Heat::hot;
    return is_hot(page) ? Heat::warm : Heat::cold;  // warm: hot by count, not yet on a list
  }

 private:
  bool is_hot(PageId page) const {
    return reads_->get(page) >= read_hot_ || writes_->get(page) >= write_hot_;
  }
  /// The page is cold from now on, so it may be a victim.
  void forget(PageId page) {
    if (lists_.erase(page)) scan_.changed();
  }

  /// The sampling thread.
  void count(const Sample& sample) {
    const PageId page = sample.page;
    if (!space_.contains(page)) return;  // not ours, or gone by now
    auto& tracker = sample.kind == AccessKind::load ? *reads_ : *writes_;
    tracker.increment(std::span{&page, 1});
    const bool listed = lists_.contains(page);
    // GG, §3.2: "If the page access count exceeds a threshold, it classifies the page as hot."
    if (is_hot(page)) {
      if (!listed) {
        hot_ring_.push(page, sample.tier);
      } else if (sample.tier == Tier::slow && !lists_.queued(page)) {
        // On a list, yet still slow: a request that was dropped on the way is made again. One that
        // is under way is not, since the substrate takes a page only once.
        lists_.put(page, Tier::slow);
      }
    } else if (listed) {
      cold_ring_.push(page, sample.tier);
    }
    // "When the access count of any page reaches a cooling_threshold, page cooling is triggered
    // which halves access count of all pages."
    if (static_cast<double>(tracker.get(page)) < cooling_threshold_) return;
    reads_->begin_cooling();
    writes_->begin_cooling();
    ++coolings_;
    lists_.begin_sweep();
  }

  /// The migration thread, from here on.
  void take_requests() {
    hot_ring_.take(hot_requests_.next(), [&](PageId page, Tier tier) {
      if (space_.contains(page) && is_hot(page)) lists_.put(page, tier);  // else gone, or cooled
    });
    cold_ring_.take(cold_requests_.next(), [&](PageId page, Tier) {
      if (!is_hot(page)) forget(page);  // else sampled hot again since
    });
  }

  /// "To avoid scanning all pages, HeMem cools pages in batches."
  void sweep() {
    const auto pages = cooling_pages_.next();
    // The tables are halved in slices too, as many lines as hold that many pages.
    constexpr std::uint64_t entries_per_line = 4;
    for (auto* tracker : {reads_.get(), writes_.get()}) {
      if (tracker->cooling()) {
        memory_.charge(Work::cooling_step, tracker->cool(pages / entries_per_line + 1));
      }
    }
    const auto looked_at = lists_.sweep(pages, [&](PageId page) {
      // "If the access count falls below the hot threshold after cooling, the page is then
      // considered cold."
      if (!is_hot(page)) forget(page);
    });
    memory_.charge(Work::tracker_lookup, 2 * looked_at);
  }

  /// "The migration thread promotes hot pages on slower tiers and demotes cold pages from faster
  /// tiers." A full fast tier gives up one cold page per hot one; with no cold page left the hot
  /// set exceeds it, and migration stops.
  void migrate(Nanos now) {
    std::uint64_t budget = rate_.available(now);
    const std::uint64_t leaving = memory_.free_pages(Tier::fast) + memory_.pending(Tier::slow);
    std::uint64_t room = leaving - std::min(leaving, memory_.pending(Tier::fast));
    victims_.clear();
    promotions_.clear();
    scan_.begin_pass();
    lists_.for_each_slow([&](PageId page) {
      if (room == 0 && budget > 0) {
        const auto victim =
            scan_.next(memory_, space_, [&](PageId fast) { return lists_.contains(fast); });
        if (!victim) return false;
        victims_.push_back(*victim);
        ++room;
        --budget;
      }
      if (budget == 0) return false;
      promotions_.push_back(page);
      --room;
      --budget;
      return true;
    });
    // A promotion whose victim did not fit the queue any more fails there and is tried again.
    const std::size_t demoted = victims_.empty() ? 0 : memory_.request(Tier::slow, victims_);
    const std::size_t taken = promotions_.empty() ? 0 : memory_.request(Tier::fast, promotions_);
    rate_.spend(demoted + taken);
    memory_.charge(Work::scan_step, scan_.scanned());
    lists_.promoted(std::span{promotions_}.first(taken));
  }

  double gib_pages(double gib) const {
    return gib * static_cast<double>(1ULL << 30) / static_cast<double>(memory_.page_bytes());
  }
  HeMem(const PolicyContext& context, const Knobs& knobs)
      : memory_(context.memory),
        read_hot_(static_cast<std::uint32_t>(knobs.integer("read_hot_threshold"))),
        write_hot_(static_cast<std::uint32_t>(knobs.integer("write_hot_threshold"))),
        cooling_threshold_(knobs.real("cooling_threshold")),
        period_(from_millis(knobs.real("migration_period"))),
        rate_(gib_pages(knobs.real("max_migration_rate")),
              gib_pages(knobs.real("max_migration_rate")) * seconds(period_)),
        cooling_pages_(knobs.real("cooling_pages")),
        hot_requests_(knobs.real("hot_ring_reqs_threshold")),
        cold_requests_(knobs.real("cold_ring_reqs_threshold")),
        reads_(track::make_exact(memory_.capacity(Tier::fast))),
        writes_(track::make_exact(memory_.capacity(Tier::fast))) {
    // §3.2: four threads copy in parallel; a page in flight is write-protected.
    memory_.set_movers({.threads = 4, .copy = Copy::write_protected});
    using Mode = SamplingRequest::Mode;
    memory_.set_sampling({.loads = {Mode::period, knobs.real("sampling_period")},
                          .stores = {Mode::period, knobs.real("write_sampling_period")}});
  }

  Memory& memory_;
  const std::uint32_t read_hot_, write_hot_;
  const double cooling_threshold_;
  const Nanos period_;
  migrate::RateLimiter rate_;
  migrate::PerPass cooling_pages_, hot_requests_, cold_requests_;
  migrate::MappedRanges space_;
  std::unique_ptr<track::Tracker> reads_, writes_;
  std::uint64_t coolings_ = 0;
  migrate::HotLists lists_;
  migrate::PageRing hot_ring_, cold_ring_;
  migrate::VictimScan scan_;
  std::vector<PageId> victims_, promotions_;  // scratch
};

std::vector<KnobDecl> knobs() {
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
                    "samples of one kind on any page at which all counts halve"),
              table("migration_period", 10, {10, 5000, log}, milliseconds,
                    "time between two passes of the migration thread"),
              table("max_migration_rate", 10, {2, 20}, gib_per_second,
                    "most bytes moved per second, both directions together"),
              table("cooling_pages", 8192, {1024, 65536, log}, pages,
                    "hot pages per pass that are checked again after a halving"),
              table("hot_ring_reqs_threshold", 1024, {128, 4096, log}, pages,
                    "pages per pass that enter the hot lists"),
              table("cold_ring_reqs_threshold", 32, {8, 256, log}, pages,
                    "pages per pass that leave the hot lists because a sample found them cold"));
}

const RegisterPolicy registered{regulate::with_aol<make_policy<HeMem>>({
    .name = "hemem",
    .family = "frequency",
    .summary = "exact read and write counts, static thresholds, rate-limited background migration",
    .citation =
        "Raybuck et al., HeMem: Scalable Tiered Memory Management for Big Data Applications "
        "and Real NVM, SOSP 2021; knobs of From Good to Great, 2025, Table 2",
    .knobs = knobs(),
    .traits = {.page_bytes = 2ULL << 20},
})};

}  // namespace
}  // namespace tt
