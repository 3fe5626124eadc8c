// SPDX-License-Identifier: MIT

// MEMTIS: Lee, Monga, Min and Eom, "MEMTIS: Efficient Memory Tiering with Dynamic Page
// Classification and Page Size Determination", SOSP'23, §4. Published are the rules and constants
// below; those of the variant `artifact` are its published code's. Inferred: the steps of the
// sampling period, how often its cost is looked at and how that is averaged (the paper has no
// figures; the code's are used), that lists are gone through again when a threshold has changed (as
// in the code; the paper names cooling alone), the order of the demotion list (the code's), and
// that a page is new when it is mapped.
//
// Paper: https://doi.org/10.1145/3600006.3613167; artifact: https://github.com/cosmoss-jigu/memtis
//
// Page sizes are determined where the machine mixes them; pages of one size are left as they are.
// Inferred there: the latencies of equation (2) are measured, avg_samples_hp is that of the huge
// pages which have samples at the last cooling, and one without a hot subpage is not skewed.
//
// counts_      of each page its hotness H, to which a sample adds 1, or 512 of a base page, since a
//              huge page is so much more likely to be sampled. Each cooling halves H once the page
//              is looked at. Pages by hotness, in 16 bins that double in width: as they are, and
//              the emulated histogram of all base pages, as if none were part of a huge page.
// bins_        the bins from which pages are hot and warm, and up to which they are cold;
//              base_bins_: likewise by the emulated histogram
// lists_       promotion list: hot pages of the slow tier, as samples found them. Demotion list:
//              warm and cold pages of the fast tier, here one list each, the first to leave in
//              front. An entry counts only while the page's tag names its list.
// plan_        the hit ratio as it is, and as it would be with base pages alone; huge pages by how
//              skewed the accesses in them are
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "classify/split_plan.hpp"
#include "classify/thresholds.hpp"
#include "core/histogram.hpp"
#include "core/make_policy.hpp"
#include "migrate/allowance.hpp"
#include "migrate/mapped_ranges.hpp"
#include "regulate/aol.hpp"
#include "regulate/cpu_budget.hpp"
#include "track/cooled_counts.hpp"

namespace tt {
namespace {

class Memtis final : public Policy {
 public:
  explicit Memtis(const PolicyContext& context) : Memtis(context, context.knobs) {}

  void on_map(PageRange range, std::uint32_t, Nanos now) override {
    on_unmap(range, now);  // a live process may map what is mapped
    space_.map(range);
    // "Initial hotness for newly allocated pages is set to the current hotness threshold to prevent
    // them from being immediately chosen as demotion candidates."
    const std::uint32_t hotness = histogram().least(std::min(bins_.hot, top_bin));
    Counts::each_group(range, [&](PageRange part) {
      counts_.map(part, hotness, memory_.unit(part.first).count == Counts::subpages);
    });
    if (!artifact_) return;
    allocated_ += static_cast<double>(range.count * (memory_.page_bytes() / 4096));
    if (allocated_ >= cooling_allocation_) cool();
  }
  void on_unmap(PageRange range, Nanos) override {
    space_.unmap(range);
    counts_.unmap(range);
  }
  Tier placement(PageRange) const override { return Tier::fast; }  // "whenever available"
  void on_samples(std::span<const Sample> samples, Nanos) override {
    // Pages come in no order, so that most states are not in a cache: they are fetched together.
    for (const Sample& sample : samples) counts_.prefetch(sample.page);
    for (const Sample& sample : samples) count(sample);
    memory_.charge(Work::tracker_update, samples.size());
  }
  void on_capacity(Tier, Nanos) override {
    size();
    adapt(false);
  }
  void tick(Nanos now) override {
    budget_.tick(now);
    if (std::exchange(changed_, false)) go_through();
    split();
    demote();
    promote();
  }
  Nanos tick_period() const override { return period_; }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    for (const auto& [page, to, outcome, change, cost] : results) {
      if (change != Change::move) {
        if (outcome == Outcome::done) reshaped(change, page);
      } else if (outcome != Outcome::gone) {
        enlist(counts_.entry(page), outcome == Outcome::done ? to : other(to));
      }
    }
  }

  /// 16 bytes beside the struct page of 4 KiB (HybridTier, ASPLOS'25, §2.2; §5 has half of that).
  /// A huge page's are kept in its unused struct pages (§5).
  std::uint64_t metadata_bytes() const override {
    const std::uint64_t huge = counts_.huge_pages() * Counts::subpages;
    return memory_.page_bytes() > 4096 ? 0 : 16 * (space_.pages() - std::min(space_.pages(), huge));
  }
  void gauges(Gauges& out) const override {
    out["hot_bin"] = bins_.hot;
    out["warm_bin"] = bins_.warm;
    out["hot_pages"] = static_cast<double>(
        bins_.hot > top_bin ? 0 : histogram().at_least(histogram().least(bins_.hot)));
    out["coolings"] = static_cast<double>(counts_.coolings());
    out["promotion_list_pages"] = static_cast<double>(list(Heat::hot).size());
    out["demotion_list_pages"] =
        static_cast<double>(list(Heat::warm).size() + list(Heat::cold).size());
    out["load_period"] = budget_.load_period();
    out["store_period"] = budget_.store_period();
    out["sampling_cpu_share"] = budget_.share();
    if (!counts_.mixed()) return;
    out["huge_pages"] = static_cast<double>(counts_.huge_pages());
    out["estimated_hit_ratio"] = plan_.estimated();
    out["real_hit_ratio"] = plan_.real();
    out["splits_wanted"] = splits_wanted_;
  }
  Heat heat(PageId page) const override {
    const auto hotness = counts_.hotness(page);
    return hotness ? heat_of(*hotness) : Heat::cold;
  }

 private:
  using Counts = track::CooledCounts;
  static constexpr int top_bin = 15;
  static constexpr std::uint8_t seen_tag = 4;  // of no list: it has been seen on the one at hand

  const Histogram& histogram() const { return counts_.histogram(); }
  int bin_of(std::uint32_t hotness) const {
    return hotness == 0 ? -1 : static_cast<int>(histogram().bin(hotness));
  }
  Heat heat_of(std::uint32_t hotness) const {
    const int bin = bin_of(hotness);
    return bin >= bins_.hot ? Heat::hot : bin > bins_.cold ? Heat::warm : Heat::cold;
  }
  std::deque<PageId>& list(Heat heat) { return lists_[static_cast<std::size_t>(heat)]; }
  const std::deque<PageId>& list(Heat heat) const { return lists_[static_cast<std::size_t>(heat)]; }
  /// What the state of an entry of this list is tagged with; 0: it is on none.
  static std::uint8_t tag(Heat heat) { return static_cast<std::uint8_t>(heat) + 1; }

  /// ksampled, from here on: "compares the page's hotness factor to T_hot and moves the page to the
  /// promotion list if it is hot".
  void count(const Sample& sample) {
    const auto counted = counts_.count(sample.page);
    if (!counted) return;  // not ours, or gone by now
    if (sample.tier == Tier::slow) enlist(counted->entry, Tier::slow);
    if (counts_.mixed()) {
      plan_.sample(sample.tier == Tier::fast, bin_of(counted->hotness) >= base_bins_.hot);
      if (static_cast<double>(plan_.samples()) > plan_interval()) plan();
    }
    if (++since_adaptation_ >= adaptation_period_) {
      since_adaptation_ -= adaptation_period_;
      adapt(false);
    }
    if (++since_cooling_ >= cooling_period_) cool();
  }
  /// Algorithm 1.
  void adapt(bool cooled) {
    memory_.charge(Work::threshold_pass, 1);
    classify::Thresholds next =
        classify::fit_thresholds(histogram(), room_for_hot_, warm_fraction_);
    if (artifact_) {
      // Up at any time, down by one bin after a cooling; never all pages, never none.
      const int warm_bins = next.hot - next.warm;
      next.hot = std::clamp(next.hot, 1, top_bin);
      if (next.hot < bins_.hot) next.hot = cooled && bins_.hot > 1 ? bins_.hot - 1 : bins_.hot;
      next.warm = next.hot - warm_bins;
    }
    if (!warm_set_) next.warm = next.hot;
    next.cold = next.warm - 1;
    changed_ = changed_ || next.hot != bins_.hot || next.warm != bins_.warm;
    bins_ = next;
    base_bins_ = classify::fit_thresholds(counts_.base_histogram(), room_for_hot_, warm_fraction_);
  }
  /// "Cooling requires merely shifting the value of each bin in the histogram one bin to its left.
  /// The hot and warm thresholds are updated based on the shifted histogram."
  void cool() {
    since_cooling_ = allocated_ = 0;
    counts_.cool();
    adapt(true);
    changed_ = recount_ = true;
  }

  /// kmigrated, from here on: "scans the page lists and halves each page's access count", and
  /// "corrects the histogram if necessary".
  void go_through() {
    const bool recount = std::exchange(recount_, false);
    if (recount) {
      counts_.begin_recount();
      plan_.clear();
    }
    list_anew();
    PageId from{};
    for (std::uint64_t left = space_.pages(); left > 0;) {
      const PageRange range = space_.next(from, left);
      counts_.each_run(range, [&](PageId first, std::span<Counts::State> states) {
        where_.resize(states.size());
        memory_.residency(first, where_);
        if (recount) {
          counts_.recount(first, states);
          if (counts_.mixed() && split_) look_at_subpages(first, states);
        }
        enlist_all(first, states);
      });
      left -= range.count;
      from = range.end();
    }
    constexpr std::uint64_t states_per_line = 4;
    memory_.charge(Work::cooling_step, (space_.pages() + states_per_line - 1) / states_per_line);
  }
  /// The demotion list by the thresholds as they are now, in the order that it has: whatever has
  /// been on it for longest is the next victim, as in the code, where isolate_lru_pages takes from
  /// the end to which no page is added. A list by address would begin with the same pages after
  /// each cooling, also with those that have just become cold, and never get to those behind.
  void list_anew() {
    chosen_.clear();
    for (const Heat victims : {Heat::cold, Heat::warm}) {
      tidy(victims);
      chosen_.insert(chosen_.end(), list(victims).begin(), list(victims).end());
      list(victims).clear();
    }
    for (const PageId page : chosen_) {
      const auto entry = counts_.entry(page);
      entry.state->tag = 0;
      enlist(entry, Tier::fast);
    }
  }
  /// Drops entries that do not count any more, and all but the first of those that name one page:
  /// it left the list and came back while its entry was still there. Returns how many pages are
  /// left.
  std::uint64_t tidy(Heat heat) {
    std::uint64_t pages = 0;
    std::erase_if(list(heat), [&](PageId page) {
      const auto entry = listed(heat, page);
      if (!entry) return true;
      entry->state->tag = seen_tag;
      pages += entry->pages;
      return false;
    });
    for (const PageId page : list(heat)) counts_.entry(page).state->tag = tag(heat);
    return pages;
  }
  /// A run of pages that are where `where_` says.
  void enlist_all(PageId first, std::span<Counts::State> states) {
    const bool huge = counts_.huge(first);
    for (std::size_t i = 0; i < (huge ? 1 : states.size()); ++i) {
      const auto entry = huge ? counts_.entry(first) : counts_.of({first.value + i}, states[i]);
      if (where_[i] != Residency::absent) enlist(entry, static_cast<Tier>(where_[i]));
    }
  }
  /// Onto the list on which it belongs, if any: "the promotion list contains only the hot pages
  /// while the demotion list has both warm and cold pages".
  void enlist(const Counts::Entry& entry, Tier tier) {
    if (!entry.state->mapped) return;
    const Heat heat = heat_of(counts_.settle(entry));
    const bool there = (tier == Tier::fast) == (heat == Heat::hot);
    const std::uint8_t wanted = there ? 0 : tag(heat);
    if (std::exchange(entry.state->tag, wanted) != wanted && !there)
      list(heat).push_back(entry.page);
  }
  /// The entry that the list means; nothing if it is not on it any more.
  std::optional<Counts::Entry> listed(Heat heat, PageId page) {
    const auto entry = counts_.entry(page);
    if (entry.page != page || entry.state->tag != tag(heat)) return std::nullopt;
    return entry;
  }
  /// Pages that the fast tier can still take, once what is queued has been done.
  double room() const {
    return static_cast<double>(memory_.free_pages(Tier::fast) + memory_.pending(Tier::slow)) -
           static_cast<double>(memory_.pending(Tier::fast) + memory_.excess_pages(Tier::fast));
  }
  /// "When available memory in the fast tier falls below a free-space threshold": cold pages, and
  /// warm ones if they do not suffice, until there is room for the hot pages that wait and the free
  /// space.
  void demote() {
    const auto waiting = static_cast<double>(tidy(Heat::hot));
    const double free = room();
    if (free >= free_watermark_) return;
    double need = std::ceil(free_target_ + waiting - free);
    for (const Heat victims : {Heat::cold, Heat::warm})
      need -= static_cast<double>(move(victims, Tier::slow, need));
  }
  /// "If there are hot pages in the capacity tier and free space is available in the fast tier."
  /// What demotions make room for comes after them in the queue.
  void promote() { move(Heat::hot, Tier::fast, room() - (artifact_ ? free_target_ : 0)); }

  /// Asks for entries of the list to be moved: so many pages at least to the slow tier, at most to
  /// the fast one. Those that do not fit the queue go back onto the list; those that are there
  /// already, or not as hot or cold any more, leave it. Returns how many pages were taken.
  std::uint64_t move(Heat heat, Tier to, double wanted) {
    chosen_.clear();
    std::uint64_t seen = 0, pages = 0;
    std::size_t known = 0;  // of the front of the list, by where_
    for (auto& waiting = list(heat); !waiting.empty(); waiting.pop_front()) {
      const auto entry = listed(heat, waiting.front());
      if (known > 0) --known;
      if (!entry) continue;
      const std::uint64_t next = pages + (to == Tier::fast ? entry->pages : 1);
      if (static_cast<double>(next) > wanted) break;
      ++seen;
      entry->state->tag = 0;
      if (known == 0) known = look_ahead(waiting, wanted - static_cast<double>(pages));
      const Residency where = where_[where_.size() - known];
      if (where != static_cast<Residency>(other(to))) continue;
      if (heat_of(counts_.settle(*entry)) == heat) {
        chosen_.push_back(entry->page);
        pages += entry->pages;
      } else {
        enlist(*entry, other(to));
      }
    }
    memory_.charge(Work::lru_step, seen);
    const std::size_t taken = chosen_.empty() ? 0 : memory_.request(to, chosen_);
    for (const PageId page : std::span{chosen_}.subspan(taken)) {
      const auto entry = counts_.entry(page);
      enlist(entry, other(to));
      pages -= entry.pages;
    }
    return pages;
  }

  /// Asks where the next pages of the list are, as many as are wanted, to begin with. Returns how
  /// many it asked for, at least one.
  std::size_t look_ahead(const std::deque<PageId>& waiting, double wanted) {
    constexpr double most = 512;
    const auto count =
        std::min(waiting.size(), static_cast<std::size_t>(std::clamp(wanted, 1.0, most)));
    ahead_.assign(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(count));
    where_.resize(count);
    memory_.residency(ahead_, where_);
    return count;
  }

  /// Page sizes, from here on (§4.3). "Calculates eHR whenever the number of sampled records
  /// exceeds a quarter of the total number of allocated pages."
  double plan_interval() const {
    const double quarter = static_cast<double>(space_.pages()) / 4;
    return artifact_ ? std::max(quarter, room_for_hot_ + free_target_) : quarter;
  }
  void plan() {
    const Counters counters = memory_.counters();
    const auto latency = [&](Tier tier) {
      const TierCounters& seen = counters.tier[index(tier)];
      return seen.reads > 0 ? seen.occupancy_ns / seen.reads : 0;
    };
    const double fast = latency(Tier::fast);
    splits_wanted_ = plan_.end_interval(fast > 0 ? latency(Tier::slow) / fast - 1 : 0);
    for (const PageId page : plan_.take(splits_wanted_)) split_queue_.push_back(page);
  }
  /// "kmigrated updates the skewness factor of each huge page at every cooling interval." "MEMTIS
  /// coalesces base pages only when all constituent base pages are hot."
  void look_at_subpages(PageId first, std::span<const Counts::State> states) {
    double squares = 0;
    std::uint64_t useful = 0, hot = 0;
    for (std::size_t i = 0; i < states.size(); ++i) {
      const std::uint32_t hotness = states[i].hotness;
      squares += static_cast<double>(hotness) * hotness;
      useful += bin_of(hotness) >= base_bins_.hot ? 1 : 0;
      hot += where_[i] == Residency::fast && bin_of(hotness) >= bins_.hot ? 1 : 0;
    }
    if (counts_.huge(first))
      plan_.add(first, counts_.entry(first).state->hotness, squares, useful);
    else if (hot == Counts::subpages)
      (void)memory_.reshape(Change::collapse, {&first, 1});
  }
  /// "The chosen split candidates are moved to a split queue and kmigrated splinters them."
  void split() {
    std::uint64_t most = artifact_ ? split_limit_.next() : split_queue_.size();
    for (; most > 0 && !split_queue_.empty(); --most) {
      const PageId page = split_queue_.front();
      split_queue_.pop_front();
      if (counts_.huge(page)) (void)memory_.reshape(Change::split, {&page, 1});
    }
  }
  /// "Finally, it migrates each subpage into the appropriate memory tier."
  void reshaped(Change change, PageId page) {
    if (change == Change::split) {
      counts_.split(page);
    } else if (memory_.unit(page).count == Counts::subpages) {
      counts_.join(page);
    }
    counts_.each_run(Counts::group(page), [&](PageId first, std::span<Counts::State> states) {
      for (Counts::State& state : states) state.tag = 0;  // its entries may have been dropped
      where_.resize(states.size());
      memory_.residency(first, where_);
      enlist_all(first, states);
    });
  }

  static constexpr std::uint32_t base_factor = Counts::subpages;  // equation (1)

  Memtis(const PolicyContext& context, const Knobs& knobs)
      : memory_(context.memory),
        artifact_(knobs.choice("variant") == "artifact"),
        warm_set_(knobs.flag("warm_set")),
        split_(knobs.flag("split")),
        warm_fraction_(knobs.real(artifact_ ? "artifact_warm_fraction" : "warm_fraction")),
        adaptation_period_(knobs.real("adaptation_period")),
        cooling_period_(knobs.real("cooling_period")),
        cooling_allocation_(knobs.real("artifact_cooling_allocation")),
        free_watermark_share_(knobs.real("free_watermark")),
        free_target_share_(knobs.real("artifact_free_target")),
        period_(from_millis(knobs.real("migration_period"))),
        budget_(memory_, knobs),
        counts_(memory_.page_bytes() == 4096 ? base_factor : 1),
        plan_({.benefit = knobs.real("split_benefit"),
               .beta = knobs.real("split_beta"),
               .estimate = artifact_ ? 0.95 : 1,
               .end_below = artifact_ ? 0.03 : -1}),
        split_limit_(knobs.real("artifact_split_limit")) {
    memory_.set_movers({.threads = 2});  // a migration thread for each tier
    size();
  }
  /// What depends on how much the fast tier holds.
  void size() {
    const auto fast = static_cast<double>(memory_.capacity(Tier::fast));
    free_watermark_ = free_watermark_share_ * fast;
    free_target_ =
        artifact_ ? std::max(free_target_share_ * fast, free_watermark_) : free_watermark_;
    room_for_hot_ = fast - (artifact_ ? free_target_ : 0);
  }

  Memory& memory_;
  const bool artifact_, warm_set_, split_;
  const double warm_fraction_, adaptation_period_, cooling_period_, cooling_allocation_;
  const double free_watermark_share_, free_target_share_;
  double free_watermark_ = 0, free_target_ = 0, room_for_hot_ = 0;  // in pages
  const Nanos period_;
  regulate::CpuBudget budget_;
  migrate::MappedRanges space_;
  Counts counts_;
  classify::Thresholds bins_{.hot = 1, .warm = 1, .cold = 0};  // "initially"
  classify::Thresholds base_bins_ = bins_;
  std::array<std::deque<PageId>, 3> lists_;          // by Heat
  double since_adaptation_ = 0, since_cooling_ = 0;  // samples
  double allocated_ = 0;                             // pages of 4 KiB since the last cooling
  bool changed_ = false;  // the thresholds: the lists have to be gone through
  bool recount_ = false;  // and the histograms have to be counted again
  classify::SplitPlan plan_;
  double splits_wanted_ = 0;  // by the last estimate
  std::deque<PageId> split_queue_;
  migrate::PerPass split_limit_;
  std::vector<PageId> chosen_, ahead_;  // scratch
  std::vector<Residency> where_;        // likewise
};

std::vector<KnobDecl> memtis_knobs() {
  using namespace knob;
  const std::string artifact = "artifact";
  return list(
      choice("variant", {"paper", "artifact"}, "SOSP'23; artifact",
             "where the published code differs from the paper: thresholds fall by one bin at a "
             "time, cooling by allocations, promotions leave free space"),
      regulate::cpu_budget_knobs("§4.1.1"),
      real("adaptation_period", 1e5, {1000, 1e8, log}, samples, "§4.2.1",
           "samples between two adaptations of the thresholds to the fast tier's size"),
      real("cooling_period", 2e6, {1e4, 1e9, log}, samples, "§4.2.2",
           "samples between two coolings, which halve all counts"),
      flag("warm_set", true, "§4.2.1, §6.3",
           "pages in the bin below the hot ones are demoted only if cold ones do not suffice"),
      real("warm_fraction", 0.9, {0, 1}, ratio, "§4.2.1 (alpha)",
           "share of the fast tier up to which the hot set leaves room for a warm bin")
          .when("variant", std::string{"paper"}),
      real("artifact_warm_fraction", 0.75, {0, 1}, ratio, artifact, "warm_fraction of the code")
          .when("variant", artifact),
      real("migration_period", 500, {10, 60000, log}, milliseconds, "§4.2.3",
           "time between two passes of the migration threads"),
      real("free_watermark", 0.02, {0, 0.5}, ratio, "§4.2.3",
           "share of the fast tier below which its free space starts demotion"),
      real("artifact_free_target", 0.03, {0, 0.5}, ratio, artifact,
           "share of the fast tier up to which demotion goes on, and which promotions leave free")
          .when("variant", artifact),
      real("artifact_cooling_allocation", 2621440, {1024, 1e9, log}, pages, artifact,
           "pages of 4 KiB whose allocation cools as well (10 GiB)")
          .when("variant", artifact),
      flag("split", true, "§4.3",
           "splits huge pages that are hot in parts, and maps hot base pages as huge pages; where "
           "page sizes are mixed"),
      real("split_benefit", 0.05, {0, 1}, ratio, "§4.3.1",
           "least gain of the hit ratio by base pages alone from which huge pages are split")
          .when("split"),
      real("split_beta", 0.4, {0.01, 10, log}, ratio, "§4.3.2 (beta)",
           "scale factor of the number of huge pages that are split")
          .when("split"),
      real("artifact_split_limit", 50, {1, 1e6, log}, pages, artifact,
           "most huge pages that are split per pass")
          .when("variant", artifact));
}

const RegisterPolicy memtis_policy{regulate::with_aol<make_policy<Memtis>>({
    .name = "memtis",
    .family = "frequency",
    .summary = "histogram of sampled hotness fits the hot set to the fast tier, with a warm set",
    .citation = "Lee et al., MEMTIS: Efficient Memory Tiering with Dynamic Page Classification and "
                "Page Size Determination, SOSP 2023",
    .addresses = {"https://doi.org/10.1145/3600006.3613167"},
    .knobs = memtis_knobs(),
    .traits = {.page_bytes = 2ULL << 20},  // transparent huge pages (§3)
})};

}  // namespace
}  // namespace tt
