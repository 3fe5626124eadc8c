// HeMem: Raybuck et al., "HeMem: Scalable Tiered Memory Management for Big Data Applications and
// Real NVM", SOSP'21, with the ten knobs, defaults and ranges of "From Good to Great: Improving
// Memory Tiering Performance Through Parameter Tuning", 2025, Table 2 (cited as GG below), which
// also split the sampling period of stores from that of loads.
//
// reads_, writes_  exact counts per page. A count that reaches the cooling threshold moves the
//                  cooling clock: all counts halve, each when it is next looked at.
// hot_             the pages on the hot lists, and on which one; all others are cold.
// slow_hot_        the slow tier's hot list, first in, first out: what to promote.
// hot_ring_, cold_ring_
//                  pages that a sample found to be hot (cold) but that are not (are) on a hot list;
//                  each pass of the migration thread takes so many of them.
// sweep_           hot pages that the last halving may have made cold, still to be looked at; each
//                  pass takes cooling_pages of them.
//
// Victims are the fast pages that are on no hot list, in address order from a cursor: HeMem's own
// cold list holds them in order of allocation, which it sees because it is the allocator.
#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "migrate/address_space.hpp"
#include "migrate/allowance.hpp"
#include "regulate/aol.hpp"
#include "track/exact.hpp"

namespace tt {
namespace {

std::vector<KnobDecl> declare() {
  const auto knob = [](const char* name, std::int64_t initial, double min, double max, bool log,
                       Unit unit, const char* meaning) {
    return KnobDecl{.name = name,
                    .type = KnobType::integer,
                    .initial = initial,
                    .min = min,
                    .max = max,
                    .log = log,
                    .unit = unit,
                    .meaning = meaning,
                    .source = "GG, 2025, Table 2"};
  };
  return {
      knob("sampling_period", 5000, 100, 10000, true, Unit::events_per_sample,
           "load misses between two samples"),
      knob("write_sampling_period", 10000, 1000, 20000, true, Unit::events_per_sample,
           "stores between two samples"),
      knob("read_hot_threshold", 8, 1, 30, false, Unit::count_per_page,
           "load samples from which a page is hot"),
      knob("write_hot_threshold", 4, 1, 30, false, Unit::count_per_page,
           "store samples from which a page is hot"),
      knob("cooling_threshold", 18, 4, 40, false, Unit::extreme_per_page,
           "samples of one kind on any page at which all counts halve"),
      knob("migration_period", 10, 10, 5000, true, Unit::milliseconds,
           "time between two passes of the migration thread"),
      knob("max_migration_rate", 10, 2, 20, false, Unit::gib_per_second,
           "most bytes moved per second, both ways together"),
      knob("cooling_pages", 8192, 1024, 65536, true, Unit::pages,
           "hot pages per pass whose class is brought up to date after a halving"),
      knob("hot_ring_reqs_threshold", 1024, 128, 4096, true, Unit::pages,
           "pages per pass that enter the hot lists"),
      knob("cold_ring_reqs_threshold", 32, 8, 256, true, Unit::pages,
           "pages per pass that leave the hot lists because a sample found them cold"),
  };
}

class HeMem final : public Policy {
 public:
  explicit HeMem(const PolicyContext& context)
      : memory_(context.memory),
        read_hot_(static_cast<std::uint32_t>(context.knobs.integer("read_hot_threshold"))),
        write_hot_(static_cast<std::uint32_t>(context.knobs.integer("write_hot_threshold"))),
        cooling_threshold_(context.knobs.real("cooling_threshold")),
        period_(from_millis(context.knobs.real("migration_period"))),
        rate_(gib_pages(context.knobs.real("max_migration_rate")),
              gib_pages(context.knobs.real("max_migration_rate")) * seconds(period_)),
        cooling_pages_(context.knobs.real("cooling_pages")),
        hot_requests_(context.knobs.real("hot_ring_reqs_threshold")),
        cold_requests_(context.knobs.real("cold_ring_reqs_threshold")),
        reads_(track::make_exact(memory_.capacity(Tier::fast))),
        writes_(track::make_exact(memory_.capacity(Tier::fast))) {
    using Mode = SamplingRequest::Mode;
    memory_.set_sampling({.loads = {Mode::period, context.knobs.real("sampling_period")},
                          .stores = {Mode::period, context.knobs.real("write_sampling_period")}});
  }

  void on_map(PageRange range, std::uint32_t, Nanos) override {
    space_.map(range);
    victims_left_ = true;
  }
  void on_unmap(PageRange range, Nanos) override {
    space_.unmap(range);
    if (std::erase_if(hot_, [&](const auto& item) { return range.contains(item.first); }) > 0) {
      victims_left_ = true;
    }
  }
  Tier placement(PageRange) const override { return Tier::fast; }  // DRAM while there is some

  void on_samples(std::span<const Sample> samples, Nanos) override {
    // Samples are counted one by one: a batch would run past the cooling threshold.
    for (const Sample& sample : samples) count(sample);
    memory_.charge(Work::tracker_update, samples.size());
    memory_.charge(Work::tracker_lookup, samples.size());
  }

  void tick(Nanos now) override {
    take_hot_requests();
    take_cold_requests();
    sweep();
    migrate(now);
  }
  Nanos tick_period() const override { return period_; }

  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    for (const auto& result : results) {
      if (result.outcome == Outcome::gone) {
        forget(result.page);
        continue;
      }
      const auto it = hot_.find(result.page);
      if (it == hot_.end()) continue;
      // A hot page that is in the slow tier, whether it stayed or was moved there, waits for its
      // (next) turn.
      const bool slow = (result.to == Tier::slow) == (result.outcome == Outcome::done);
      it->second.list = slow ? List::slow : List::fast;
      if (slow) enqueue(result.page, it->second);
    }
  }

  std::uint64_t metadata_bytes() const override {
    return reads_->bytes() + writes_->bytes() + space_.bytes() +
           hot_.size() * (sizeof(PageId) + sizeof(Hot) + 2 * sizeof(void*)) +
           hot_.bucket_count() * sizeof(void*) +
           (slow_hot_.size() + hot_ring_.size() + cold_ring_.size() + sweep_.size()) *
               sizeof(PageId);
  }

  void gauges(Gauges& out) const override {
    out["read_threshold"] = read_hot_;
    out["write_threshold"] = write_hot_;
    out["hot_pages"] = static_cast<double>(hot_.size());
    out["slow_hot_pages"] = static_cast<double>(slow_hot_.size());
    out["coolings"] = static_cast<double>(coolings_);
    out["hot_ring_pages"] = static_cast<double>(hot_ring_.size());
    out["cold_ring_pages"] = static_cast<double>(cold_ring_.size());
    out["sweep_pages"] = static_cast<double>(sweep_.size());
  }

  Heat heat(PageId page) const override {
    if (hot_.contains(page)) return Heat::hot;
    return is_hot(page) ? Heat::warm : Heat::cold;  // warm: hot by count, not yet on a list
  }

 private:
  enum class List : std::uint8_t { fast, slow };
  struct Hot {
    List list = List::fast;
    bool queued = false;  // in slow_hot_
  };

  double gib_pages(double gib) const {
    return gib * static_cast<double>(1ULL << 30) / static_cast<double>(memory_.page_bytes());
  }

  bool is_hot(PageId page) const {
    return reads_->get(page) >= read_hot_ || writes_->get(page) >= write_hot_;
  }

  // ---------------------------------------------------------------- the sampling thread

  void count(const Sample& sample) {
    if (!space_.contains(sample.page)) return;  // not ours, or gone by now
    auto& tracker = sample.kind == AccessKind::load ? *reads_ : *writes_;
    tracker.increment(std::span{&sample.page, 1});
    // GG, §3.2: "If the page access count exceeds a threshold, it classifies the page as hot."
    const auto it = hot_.find(sample.page);
    if (is_hot(sample.page)) {
      if (it == hot_.end()) {
        if (hot_ring_members_.insert(sample.page).second) {
          hot_ring_.push_back({sample.page, sample.tier});
        }
      } else if (sample.tier == Tier::slow && !it->second.queued) {
        // On a list, yet still slow: a request that was dropped on the way is made again. One that
        // is under way is not, since the substrate takes a page only once.
        it->second.list = List::slow;
        enqueue(sample.page, it->second);
      }
    } else if (it != hot_.end() && cold_ring_members_.insert(sample.page).second) {
      cold_ring_.push_back(sample.page);
    }
    // "When the access count of any page reaches a cooling_threshold, page cooling is triggered
    // which halves access count of all pages."
    if (static_cast<double>(tracker.get(sample.page)) >= cooling_threshold_) cool();
  }

  void cool() {
    reads_->begin_cooling();
    writes_->begin_cooling();
    ++coolings_;
    // "To avoid scanning all pages, HeMem cools pages in batches": the lists are brought up to date
    // pass by pass. A sweep under way goes on; what it has looked at is looked at again after it.
    sweep_again_ = !sweep_.empty();
    if (!sweep_again_) start_sweep();
  }

  void start_sweep() {
    sweep_.clear();
    for (const auto& [page, hot] : hot_) sweep_.push_back(page);
    std::ranges::sort(sweep_, std::greater{});  // taken from the back, in address order
  }

  // ---------------------------------------------------------------- the migration thread

  void enqueue(PageId page, Hot& hot) {
    if (hot.queued) return;
    hot.queued = true;
    slow_hot_.push_back(page);
  }

  void take_hot_requests() {
    for (auto n = hot_requests_.next(); n > 0 && !hot_ring_.empty(); --n) {
      const auto [page, tier] = hot_ring_.front();
      hot_ring_.pop_front();
      hot_ring_members_.erase(page);
      if (!space_.contains(page) || !is_hot(page)) continue;  // gone, or cooled meanwhile
      auto& hot = hot_[page];
      hot.list = tier == Tier::slow ? List::slow : List::fast;
      if (hot.list == List::slow) enqueue(page, hot);
    }
  }

  void take_cold_requests() {
    for (auto n = cold_requests_.next(); n > 0 && !cold_ring_.empty(); --n) {
      const PageId page = cold_ring_.front();
      cold_ring_.pop_front();
      cold_ring_members_.erase(page);
      if (!is_hot(page)) forget(page);  // sampled hot again since: stays
    }
  }

  void sweep() {
    // The tables themselves are halved in slices too, as many lines as hold that many pages.
    const auto pages = cooling_pages_.next();
    constexpr std::uint64_t entries_per_line = 4;
    for (auto* tracker : {reads_.get(), writes_.get()}) {
      if (tracker->cooling()) {
        memory_.charge(Work::cooling_step, tracker->cool(pages / entries_per_line + 1));
      }
    }
    std::uint64_t looked_at = 0;
    for (; looked_at < pages && !sweep_.empty(); ++looked_at) {
      const PageId page = sweep_.back();
      sweep_.pop_back();
      // "If the access count falls below the hot threshold after cooling, the page is then
      // considered cold."
      if (!is_hot(page)) forget(page);
    }
    memory_.charge(Work::tracker_lookup, 2 * looked_at);
    if (sweep_.empty() && sweep_again_) {
      sweep_again_ = false;
      start_sweep();
    }
  }

  /// The page is cold from now on, so it may be a victim.
  void forget(PageId page) { victims_left_ = hot_.erase(page) > 0 || victims_left_; }

  /// "The migration thread promotes hot pages on slower tiers and demotes cold pages from faster
  /// tiers." A full fast tier gives up one cold page per hot one; with no cold page left the hot
  /// set exceeds it, and migration stops.
  void migrate(Nanos now) {
    std::uint64_t budget = rate_.available(now);
    const std::uint64_t leaving = memory_.free_pages(Tier::fast) + memory_.pending(Tier::slow);
    std::uint64_t room = leaving - std::min(leaving, memory_.pending(Tier::fast));
    victims_.clear();
    promotions_.clear();
    scanned_ = 0;
    std::size_t stale = 0;
    for (const PageId page : slow_hot_) {
      const auto it = hot_.find(page);
      if (it == hot_.end() || it->second.list != List::slow) {
        ++stale;  // cold, moved or gone meanwhile
        continue;
      }
      if (room == 0 && budget > 0) {
        const auto victim = next_victim();
        if (!victim) break;
        victims_.push_back(*victim);
        ++room;
        --budget;
      }
      if (budget == 0) break;
      promotions_.push_back(page);
      --room;
      --budget;
    }
    // A promotion whose victim did not fit the queue any more fails there and is tried again.
    std::size_t moved = victims_.empty() ? 0 : memory_.request(Tier::slow, victims_);
    const std::size_t taken = promotions_.empty() ? 0 : memory_.request(Tier::fast, promotions_);
    moved += taken;
    rate_.spend(moved);
    memory_.charge(Work::scan_step, scanned_);
    for (std::size_t i = 0; i < taken; ++i) {
      hot_.find(promotions_[i])->second.list = List::fast;  // until told otherwise
    }
    // What was taken or has become stale leaves the front of the queue.
    for (std::size_t n = taken + stale; n > 0; --n) {
      const auto it = hot_.find(slow_hot_.front());
      if (it != hot_.end()) {
        if (it->second.list == List::slow) break;
        it->second.queued = false;
      }
      slow_hot_.pop_front();
    }
  }

  /// The next fast page that is on no hot list. Looks at every page at most once per pass of the
  /// migration thread, and not at all while nothing changed since a pass that found none.
  std::optional<PageId> next_victim() {
    const std::uint64_t free = memory_.free_pages(Tier::fast);
    if (!victims_left_ && free == free_when_exhausted_) return std::nullopt;
    constexpr std::uint64_t chunk = 64;
    while (scanned_ < space_.pages()) {
      const PageRange run = space_.next(cursor_, std::min(chunk, space_.pages() - scanned_));
      where_.resize(run.count);
      memory_.residency(run.first, where_);
      for (std::uint64_t i = 0; i < run.count; ++i) {
        ++scanned_;
        cursor_ = {run.first.value + i + 1};
        const PageId page{run.first.value + i};
        if (where_[i] == Residency::fast && !hot_.contains(page)) return page;
      }
    }
    if (victims_.empty()) {
      victims_left_ = false;
      free_when_exhausted_ = free;
    }
    return std::nullopt;
  }

  Memory& memory_;
  const std::uint32_t read_hot_, write_hot_;
  const double cooling_threshold_;
  const Nanos period_;
  migrate::RateLimiter rate_;
  migrate::PerPass cooling_pages_, hot_requests_, cold_requests_;

  migrate::AddressSpace space_;
  std::unique_ptr<track::Tracker> reads_, writes_;
  std::uint64_t coolings_ = 0;

  struct Request {
    PageId page;
    Tier tier;
  };
  std::unordered_map<PageId, Hot> hot_;
  std::deque<PageId> slow_hot_;
  std::deque<Request> hot_ring_;
  std::deque<PageId> cold_ring_;
  std::unordered_set<PageId> hot_ring_members_, cold_ring_members_;  // no page twice in a ring
  std::vector<PageId> sweep_;
  bool sweep_again_ = false;  // another halving began during the sweep

  PageId cursor_;
  std::uint64_t scanned_ = 0;  // pages looked at in this pass of the migration thread
  bool victims_left_ = true;   // false: a whole pass found none, and nothing has turned cold since
  std::uint64_t free_when_exhausted_ = 0;

  // Scratch.
  std::vector<Residency> where_;
  std::vector<PageId> victims_, promotions_;
};

std::unique_ptr<Policy> make(const PolicyContext& context) {
  return std::make_unique<HeMem>(context);
}

const RegisterPolicy registered{regulate::with_aol<make>({
    .name = "hemem",
    .family = "frequency",
    .summary = "exact read and write counts, static thresholds, rate-limited background migration",
    .citation =
        "Raybuck et al., HeMem: Scalable Tiered Memory Management for Big Data Applications "
        "and Real NVM, SOSP 2021; knobs of From Good to Great, 2025, Table 2",
    .knobs = declare(),
    .traits = {.page_bytes = 2ULL << 20, .write_protected_moves = true, .mover_threads = 4},
})};

}  // namespace
}  // namespace tt
