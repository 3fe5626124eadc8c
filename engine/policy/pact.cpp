// SPDX-License-Identifier: MIT

// PACT: Hadian et al., "PACT: A Criticality-First Design for Tiered Memory", ASPLOS'26.
//
// Paper: https://doi.org/10.1145/3779212.3790198; artifact: https://github.com/MoatLab/PACT
//
// scores_  per-page access criticality (PAC): the part of the time that cores have stalled for the
//          slow tier that falls to each page
// bins_    PACs in bins; a page whose PAC reaches the last one is promoted
// lists_   the kernel's page lists, by which pages are demoted
// owed_    promotions that were wanted, less demotions that were asked for
//
// Each window the slow tier's parallelism is read from its controller: MLP = occupancy / busy time.
// It has stalled cores in proportion to misses / MLP, which its sampled accesses share equally: a
// page that is chased through costs more than one that is swept. Demotion is eager: once a second,
// as many pages as were promoted, and so many more.
//
// Published: this, and what a page's metadata take. The constants are those of the authors'
// release, as far as they were known. Inferred: that the sample from which the bins' width is taken
// is one of PACs of this window, or of as many windows as it takes; that doubling or halving the
// width is not cumulative; that the width depends on how many pages are tracked; a promotion that
// finds no room counts as one that wants a demotion. The factor of the stall model is left out,
// since bins make it cancel, and so are huge pages that are mapped among small ones.
#include <algorithm>
#include <vector>

#include "classify/bins.hpp"
#include "core/every.hpp"
#include "core/make_policy.hpp"
#include "migrate/allowance.hpp"
#include "migrate/reclaim.hpp"
#include "regulate/aol.hpp"
#include "track/coalesce.hpp"
#include "track/lru_lists.hpp"
#include "track/scores.hpp"

namespace tt {
namespace {

class Pact final : public Policy {
 public:
  explicit Pact(const PolicyContext& context) : Pact(context, context.knobs) {}

  void on_map(PageRange range, std::uint32_t, Nanos) override { lists_.map(range); }
  void on_unmap(PageRange range, Nanos) override {
    lists_.unmap(range);
    scores_.erase(range);
  }
  Tier placement(PageRange) const override { return Tier::fast; }
  void on_samples(std::span<const Sample> samples, Nanos) override {
    for (const Sample& sample : samples)
      if (sample.tier == Tier::slow && lists_.contains(sample.page))
        sampled_.push_back(sample.page);
  }
  void tick(Nanos now) override {
    attribute(now);
    if (demote_.due(now)) demote(now);
  }
  Nanos tick_period() const override { return window_; }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    for (const MigrationResult& result : results) {
      const bool done = result.outcome == Outcome::done;
      if (done) lists_.moved(result.page, result.to);
      if (result.to == Tier::fast && (done || result.outcome == Outcome::no_space)) owed_ += 1;
      if (result.to == Tier::slow && !done) owed_ += 1;
    }
  }

  std::uint64_t metadata_bytes() const override { return 25 * scores_.size(); }
  void gauges(Gauges& out) const override {
    out["slow_mlp"] = mlp_;
    out["bin_width"] = bins_.width();
    out["tracked_pages"] = static_cast<double>(scores_.size());
    out["demotions_owed"] = owed_;
  }
  Heat heat(PageId page) const override {
    const double score = scores_.get(page);
    return score >= last_bin_ * bins_.width() ? Heat::hot : score > 0 ? Heat::warm : Heat::cold;
  }

 private:
  /// The window's stall is shared by the samples that were taken in it.
  void attribute(Nanos at) {
    const TierCounters now = memory_.counters().tier[index(Tier::slow)];
    if (now.reads <= last_.reads) return;  // the window goes on
    const double busy = now.busy_ns - last_.busy_ns;
    if (busy > 0) mlp_ = (now.occupancy_ns - last_.occupancy_ns) / busy;
    const double stall = mlp_ > 0 ? (now.reads - last_.reads) / mlp_ : 0;
    last_ = now;
    if (sampled_.empty()) return;
    const double each = stall / static_cast<double>(sampled_.size());
    const auto counts = coalescer_.coalesce(sampled_);
    std::uint64_t left = per_window_.available(at);
    promotions_.clear();
    for (const auto& [page, count] : counts) {
      if (!lists_.contains(page)) continue;  // gone since it was sampled
      const double score = scores_.add(page, each * count);
      if (score <= 0 || !bins_.add(score) || left == 0) continue;
      promotions_.push_back(page);
      --left;
    }
    memory_.charge(Work::tracker_update, counts.size());
    memory_.charge(Work::sort_step, sample_);
    bins_.end_round(static_cast<double>(scores_.size()) / counted_pages_);
    per_window_.spend(promotions_.size());
    if (!promotions_.empty()) memory_.request(Tier::fast, promotions_);
    samples_ += static_cast<double>(sampled_.size());
    sampled_.clear();
    if (samples_ < decay_period_) return;
    samples_ = 0;
    scores_.decay();
  }

  /// By the kernel's lists, as kswapd would.
  void demote(Nanos now) {
    lists_.find_new();
    const std::uint64_t excess = memory_.excess_pages(Tier::fast);
    const double wanted =
        std::max(owed_ + margin_,
                 static_cast<double>(excess - std::min(excess, memory_.pending(Tier::slow))));
    if (wanted < 1) return;
    const std::uint64_t budget = scan_.available(now);
    const std::uint64_t aged = lists_.age_active(Tier::fast, budget);
    victims_.clear();
    scan_.spend(aged + lists_.age_inactive(Tier::fast, budget - aged,
                                           static_cast<std::uint64_t>(wanted), victims_));
    if (!victims_.empty()) owed_ -= static_cast<double>(memory_.request(Tier::slow, victims_));
  }

  Pact(const PolicyContext& context, const Knobs& knobs)
      : memory_(context.memory),
        window_(from_millis(knobs.real("window"))),
        last_bin_(knobs.real("bins") - 1),
        margin_(knobs.real("demotion_margin")),
        decay_period_(knobs.real("decay_period")),
        counted_pages_(knobs.real("counted_pages")),
        sample_(static_cast<std::uint64_t>(knobs.integer("bin_sample"))),
        per_window_(knobs.real("max_pages") / seconds(window_), 10 * knobs.real("max_pages")),
        demote_(from_millis(knobs.real("demotion_period"))),
        scan_(pages_per_second(knobs),
              pages_per_second(knobs) * knobs.real("demotion_period") / 1e3),
        lists_(memory_, knobs.real("lru_gib")),
        scores_(knobs.real("tracked_pages"), knobs.real("decay")),
        bins_({.bins = knobs.real("bins"),
               .width = knobs.real("initial_width"),
               .sample = sample_,
               .crowd = knobs.real("crowd"),
               .seed = context.seed}) {
    using Mode = SamplingRequest::Mode;
    memory_.set_sampling({.loads = {Mode::period, knobs.real("sampling_period")}, .fast_share = 0});
  }
  double pages_per_second(const Knobs& knobs) const {
    return knobs.real("reclaim_scan_rate") * (1 << 30) / static_cast<double>(memory_.page_bytes());
  }

  Memory& memory_;
  const Nanos window_;
  const double last_bin_, margin_, decay_period_, counted_pages_;
  const std::uint64_t sample_;
  migrate::RateLimiter per_window_;
  Every demote_;
  migrate::RateLimiter scan_;
  track::LruLists lists_;
  track::Scores scores_;
  classify::AdaptiveBins bins_;
  TierCounters last_;
  double mlp_ = 0, owed_ = 0, samples_ = 0;
  track::Coalescer coalescer_;
  std::vector<PageId> sampled_;               // in this window, of the slow tier
  std::vector<PageId> promotions_, victims_;  // scratch
};

std::vector<KnobDecl> pact_knobs() {
  using namespace knob;
  const std::string code = "ASPLOS'26; authors' release";
  return list(
      real("sampling_period", 400, {50, 1e5, log}, events_per_sample, code,
           "load misses between two samples, of which those of the slow tier are taken"),
      real("window", 20, {1, 10000, log}, milliseconds, code,
           "time over which parallelism is measured and stalls are shared out"),
      real("bins", 20, {2, 1000, log}, none, code,
           "bins of PACs; pages in the last one are promoted"),
      integer("bin_sample", 100, {4, 10000, log}, none, code,
              "PACs by whose quartiles the bins' width is set"),
      real("crowd", 0.7, {0.01, 1}, ratio, code,
           "share of a window's pages in the last bin above which bins get wider"),
      real("initial_width", 1000, {1e-3, 1e9, log}, none, code, "width of a bin at first"),
      real("max_pages", 4096, {1, 1e7, log}, pages, code, "most pages promoted in a window"),
      real("decay", 1, {0, 1}, ratio, code, "what is left of a PAC after a decay; 1: none"),
      real("decay_period", 2e5, {100, 1e10, log}, samples, code, "samples between two decays"),
      real("tracked_pages", 2e6, {1, 1e9, log}, pages, code, "pages that the table of PACs holds"),
      real("counted_pages", 1, {1, 1e6, log}, pages, "Freedman and Diaconis, 1981",
           "pages that count as one where the bins' width depends on their number"),
      real("demotion_period", 1000, {10, 60000, log}, milliseconds, code,
           "time between two demotions"),
      real("demotion_margin", 0, {0, 1e7}, pages, code + ": m",
           "pages that are demoted beyond as many as were promoted"),
      migrate::scan_knobs());
}

const RegisterPolicy pact_policy{regulate::with_aol<make_policy<Pact>>({
    .name = "pact",
    .family = "criticality",
    .summary = "stall time shared out to the pages that caused it; eager demotion by kernel lists",
    .citation = "Hadian et al., PACT: A Criticality-First Design for Tiered Memory, ASPLOS 2026",
    .addresses = {"https://doi.org/10.1145/3779212.3790198"},
    .knobs = pact_knobs(),
    .traits = {.needs = Need::samples | Need::tier_counters | Need::accessed_bits},
})};

}  // namespace
}  // namespace tt
