// SPDX-License-Identifier: MIT

// ARMS: Yadalam et al., "ARMS: Adaptive and Robust Memory Tiering System", 2025, arXiv:2508.04417.
//
// Paper: https://arxiv.org/abs/2508.04417
//
// averages_  samples of each page per round, over a short and a long time
// top_       pages whose scores, weighted means of the two, are the highest: as many as fit the
//            fast tier; and for how many rounds each has been one of them
// cost_      what a move takes, as measured
// change_    looks for a rise of the slow tier's bandwidth: the hot set has changed
// recency_   since such a rise, until it has calmed down: recent samples count more, and there are
//            more of them
// gain_      by how much the slow tier's latency exceeds the fast tier's under the present load
//
// Each round the pages at the top that stay there are promoted, in the place of the coldest ones,
// as long as what they save pays for the moves, and as many as can be moved until the next round.
//
// Published: the idea of each part. The paper's constants were not at hand: those below are what
// the authors' code has, and are knobs. Inferred: that stores are sampled like loads; that moves
// are HeMem's, from whose code theirs descends; that the decision of a round costs a sort of all
// pages. Other than there: latencies under load are measured, as Little's law has them, and not
// read from lines that were fitted to a machine's bandwidth; a round's moves enter the average cost
// together, since a miniature has fewer of them.
#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "classify/change_point.hpp"
#include "classify/top_set.hpp"
#include "core/every.hpp"
#include "core/make_policy.hpp"
#include "migrate/allowance.hpp"
#include "migrate/mapped_ranges.hpp"
#include "migrate/move_cost.hpp"
#include "regulate/aol.hpp"
#include "regulate/latency_gain.hpp"
#include "track/moving_averages.hpp"

namespace tt {
namespace {

constexpr double huge_page = 2 << 20;

class Arms final : public Policy {
 public:
  explicit Arms(const PolicyContext& context) : Arms(context, context.knobs) {}

  void on_map(PageRange range, std::uint32_t, Nanos) override { space_.map(range); }
  void on_unmap(PageRange range, Nanos) override {
    space_.unmap(range);
    averages_.erase(range);
    top_.erase(range);
  }
  Tier placement(PageRange) const override { return Tier::fast; }
  void on_samples(std::span<const Sample> samples, Nanos) override {
    for (const Sample& sample : samples)
      if (space_.contains(sample.page))
        averages_.count(sample.page, sample.kind == AccessKind::store ? write_weight_ : 1);
    memory_.charge(Work::tracker_update, samples.size());
  }
  void tick(Nanos now) override {
    if (measure_.due(now)) measure(now);
    if (!round_.due(now)) return;
    cost_.end_round();
    end_round();
    migrate();
  }
  Nanos tick_period() const override { return std::min(round_.period(), measure_.period()); }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    cost_.moved(results);
  }

  std::uint64_t metadata_bytes() const override { return 48 * space_.pages(); }
  void gauges(Gauges& out) const override {
    out["recency_mode"] = recency_;
    out["latency_gain_ns"] = gain_.ns();
    out["promotion_cost_us"] = cost_.promotion_ns() / 1e3;
    out["demotion_cost_us"] = cost_.demotion_ns() / 1e3;
    out["stable_slow_pages"] = static_cast<double>(candidates_);
  }
  Heat heat(PageId page) const override {
    if (top_.contains(page)) return Heat::hot;
    return averages_.get(page).recent > 0 ? Heat::warm : Heat::cold;
  }

 private:
  using Item = classify::TopSet::Item;

  /// Each page's score, and the pages that belong in the fast tier by it.
  void end_round() {
    const double recent = recency_ ? recency_weight_ : history_weight_;
    items_.clear();
    std::uint64_t left = space_.pages();
    for (PageId at{}; left > 0;) {
      const PageRange run = space_.next(at, left);
      where_.resize(run.count);
      memory_.residency(run.first, where_);
      averages_.end_round(run, [&](PageId page, const track::MovingAverages::Page& average) {
        const Residency where = where_[page.value - run.first.value];
        if (where == Residency::absent) return;
        const double score = recent * average.recent + (1 - recent) * average.lasting;
        items_.push_back({.page = page,
                          .score = static_cast<float>(score),
                          .tier = static_cast<Tier>(where),
                          .least = std::min(average.recent, average.lasting),
                          .most = std::max(average.recent, average.lasting)});
      });
      left -= run.count;
      at = run.end();
    }
    const std::uint64_t pages = items_.size();
    const std::size_t top = top_.choose(items_, memory_.capacity(Tier::fast));
    memory_.charge(Work::tracker_update, pages);
    memory_.charge(Work::sort_step, pages * std::bit_width(pages));
    hot_.clear();
    cold_.clear();
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const Item& item = items_[i];
      if (i < top && item.tier == Tier::slow && item.age > hot_age_ && !item.falling)
        hot_.push_back(item);
      if (i >= top && item.tier == Tier::fast) cold_.push_back(item);
    }
    candidates_ = hot_.size();
    std::ranges::sort(hot_, classify::TopSet::higher);
    std::ranges::sort(cold_, [](auto& a, auto& b) { return classify::TopSet::higher(b, a); });
  }

  /// The hottest take the places of the coldest. The first move that does not pay ends the round.
  void migrate() {
    std::uint64_t pairs =
        pairs_.next(cores_ * seconds(round_.period()) * 1e9 / cost_.exchange_ns());
    const std::uint64_t leaving = memory_.free_pages(Tier::fast) + memory_.pending(Tier::slow);
    std::uint64_t room = leaving - std::min(leaving, memory_.pending(Tier::fast));
    promotions_.clear();
    victims_.clear();
    auto coldest = cold_.begin();
    // A budget that shrank has to be met, whether it pays or not.
    const std::uint64_t excess = memory_.excess_pages(Tier::fast);
    const std::uint64_t due = excess - std::min(excess, memory_.pending(Tier::slow));
    for (; victims_.size() < due && coldest != cold_.end(); ++coldest)
      victims_.push_back(coldest->page);
    for (const Item& hot : hot_) {
      if (pairs == 0) break;
      // What it may be expected to save: it stays for as long as it has been there.
      const double each = hot.age * accesses_per_sample_ * coarser_ * gain_.ns();
      if (room > 0) {
        if (hot.score * each < margin_ * cost_.promotion_ns()) break;
        --room;
      } else {
        if (coldest == cold_.end() || hot.least < coldest->most) break;
        if ((hot.score - coldest->score) * each < margin_ * cost_.exchange_ns()) break;
        victims_.push_back((coldest++)->page);
      }
      promotions_.push_back(hot.page);
      --pairs;
    }
    if (!victims_.empty()) memory_.request(Tier::slow, victims_);
    if (!promotions_.empty()) memory_.request(Tier::fast, promotions_);
  }

  /// The tiers' latencies and the slow one's bandwidth since the last call.
  void measure(Nanos now) {
    const Counters counters = memory_.counters();
    const double reads = counters.tier[0].reads + counters.tier[1].reads;
    if (reads <= std::exchange(reads_, reads)) return;  // the interval goes on
    const double elapsed = seconds(now - measured_at_);
    measured_at_ = now;
    gain_.update(counters);
    const TierCounters& slow = counters.tier[index(Tier::slow)];
    const double bytes = slow.read_bytes + slow.written_bytes;
    if (change_.add((bytes - std::exchange(slow_bytes_, bytes)) / elapsed / (1 << 30))) {
      recency_since_ = now;
      sample(true);
    } else if (recency_ && change_.calm() && now - recency_since_ >= recency_time_) {
      sample(false);
    }
  }
  void sample(bool recency) {
    recency_ = recency;
    const SamplingRequest::Event event{SamplingRequest::Mode::period,
                                       recency ? recency_period_ : history_period_};
    coarser_ = memory_.set_sampling({.loads = event, .stores = event}).loads.coarser_than(event);
  }

  Arms(const PolicyContext& context, const Knobs& knobs)
      : memory_(context.memory),
        history_period_(knobs.real("sampling_period")),
        recency_period_(knobs.real("recency_sampling_period")),
        write_weight_(knobs.real("write_weight")),
        history_weight_(knobs.real("history_weight")),
        recency_weight_(knobs.real("recency_weight")),
        hot_age_(static_cast<std::uint32_t>(knobs.integer("hot_age"))),
        margin_(knobs.real("benefit_margin")),
        accesses_per_sample_(knobs.real("accesses_per_sample")),
        cores_(knobs.real("migration_cores")),
        round_(from_millis(knobs.real("round"))),
        measure_(from_millis(knobs.real("measure_period"))),
        recency_time_(from_millis(knobs.real("recency_time"))),
        averages_(rounds(knobs, "short_window"), rounds(knobs, "long_window")),
        cost_({.weight = track::ewma_weight(knobs.real("cost_rounds")),
               .decay = knobs.real("cost_decay"),
               .least_ns = knobs.real("least_cost") * 1e6 *
                           static_cast<double>(memory_.page_bytes()) / huge_page}),
        change_({.mean_weight = knobs.real("change_mean_weight"),
                 .deviation_weight = knobs.real("change_deviation_weight"),
                 .slack = knobs.real("change_slack"),
                 .limit = knobs.real("change_limit"),
                 .least = knobs.real("change_bandwidth"),
                 .unit = knobs.real("change_unit")}) {
    memory_.set_movers({.threads = 4, .together = 4, .copy = Copy::write_protected});
    sample(false);
  }
  /// How many rounds a time has.
  double rounds(const Knobs& knobs, const char* window) const {
    return std::max(1.0, knobs.real(window) / (seconds(round_.period()) * 1e3));
  }

  Memory& memory_;
  const double history_period_, recency_period_, write_weight_, history_weight_, recency_weight_;
  const std::uint32_t hot_age_;
  const double margin_, accesses_per_sample_, cores_;
  double coarser_ = 1;  // so many times these, by what is granted
  Every round_, measure_;
  const Nanos recency_time_;
  migrate::MappedRanges space_;
  track::MovingAverages averages_;
  classify::TopSet top_;
  migrate::MoveCost cost_;
  migrate::PerPass pairs_;
  classify::ChangePoint change_;
  bool recency_ = false;
  regulate::LatencyGain gain_;
  double slow_bytes_ = 0, reads_ = 0;  // the counters when last looked at
  Nanos measured_at_{}, recency_since_{};
  std::uint64_t candidates_ = 0;
  std::vector<Item> items_, hot_, cold_;  // scratch
  std::vector<Residency> where_;
  std::vector<PageId> promotions_, victims_;
};

std::vector<KnobDecl> arms_knobs() {
  using namespace knob;
  const std::string code = "authors' code";
  return list(
      real("sampling_period", 10007, {100, 1e6, log}, events_per_sample, code,
           "load misses, and stores, between two samples"),
      real("recency_sampling_period", 5003, {100, 1e6, log}, events_per_sample, code,
           "the same while the hot set changes"),
      real("write_weight", 1, {0, 16}, ratio, code + ": 1 for CXL, 3 for persistent memory",
           "load samples that a store sample counts for"),
      real("round", 500, {10, 60000, log}, milliseconds, code, "time between two decisions"),
      real("short_window", 1000, {10, 600000, log}, milliseconds, code,
           "time that the short average goes back"),
      real("long_window", 10000, {10, 6e6, log}, milliseconds, code,
           "time that the long average goes back"),
      real("history_weight", 0.4, {0, 1}, ratio, code,
           "weight of the short average in a score; the long one has the rest"),
      real("recency_weight", 0.731, {0, 1}, ratio, code, "the same while the hot set changes"),
      integer("hot_age", 1, {0, 1000}, none, code,
              "rounds at the top after which a page may be promoted in the next one"),
      real("benefit_margin", 1.5, {0, 100}, ratio, code,
           "times its cost that a move must be expected to save"),
      real("accesses_per_sample", 5003, {1, 1e6, log}, events_per_sample, code,
           "accesses that a sample stands for where what a move saves is expected"),
      real("cost_rounds", 20, {1, 1000, log}, none, code,
           "rounds over which the cost of a move is averaged"),
      real("cost_decay", 1.5, {1, 10}, ratio, code,
           "factor by which a round without moves takes their cost to be less"),
      real("least_cost", 0.7, {0.001, 100, log}, milliseconds, code + ": a copy and 0.5 ms",
           "least cost of moving a 2 MiB page"),
      real("migration_cores", 1, {0.01, 64, log}, cores,
           code + ": a round's moves take no longer than the round",
           "time that moves may take, in a round's length"),
      real("measure_period", 1000, {10, 60000, log}, milliseconds, code,
           "time over which latencies and bandwidth are measured"),
      real("change_mean_weight", 0.1, {0.001, 1, log}, ratio, code,
           "weight of the latest bandwidth in the mean that it is compared with"),
      real("change_deviation_weight", 0.2, {0.001, 1, log}, ratio, code,
           "weight of its square distance in the deviation"),
      real("change_slack", 0.5, {0, 10}, ratio, code,
           "deviations by which the bandwidth may exceed the mean"),
      real("change_limit", 6, {0.1, 1000, log}, ratio, code,
           "deviations that it must exceed this by in all, for a change of the hot set"),
      real("change_bandwidth", 0.3, {0, 1000}, gib_per_second, code,
           "slow-tier bandwidth up to which the hot set does not change"),
      real("change_unit", 1, {1e-3, 1000, log}, gib_per_second, code + ": 1 GB/s, implied",
           "bandwidth whose 0.8-fold the deviation does not fall below"),
      real("recency_time", 20000, {0, 6e6}, milliseconds, code,
           "time after which the change of the hot set may be over"));
}

const RegisterPolicy arms_policy{regulate::with_aol<make_policy<Arms>>({
    .name = "arms",
    .family = "frequency",
    .summary = "short and long moving averages, and moves that pay for themselves",
    .citation = "Yadalam et al., ARMS: Adaptive and Robust Memory Tiering System, 2025, "
                "arXiv:2508.04417",
    .addresses = {"https://arxiv.org/abs/2508.04417"},
    .knobs = arms_knobs(),
    .traits = {.page_bytes = 2ULL << 20, .needs = Need::samples | Need::tier_counters},
})};

}  // namespace
}  // namespace tt
