// SPDX-License-Identifier: MIT

// FreqTier: Song et al., "Lightweight Frequency-Based Tiering for CXL Memory Systems", 2024 (arXiv
// 2312.04789v1). Section, algorithm and line numbers are that paper's.
//
// Paper: https://arxiv.org/abs/2312.04789v1
//
// filter_     counts samples in one blocked counting Bloom filter, halved now and then (§V-A)
// threshold_  hot threshold, moved in steps until the hot set has the fast tier's size (§V-C(a))
// scan_       walks the address space for demotion (§V-B1)
// ladder_     how much is sampled: from full rate down to monitoring mode, in which only the hit
//             ratio is watched (§V-B2)
//
// Inferred, since not published: the cooling period and the watermarks (values of the artifact of
// HybridTier, its successor); one step of the threshold per batch; the bound on a run of the scan.
#include <algorithm>

#include "classify/adaptive_threshold.hpp"
#include "core/make_policy.hpp"
#include "migrate/demotion_scan.hpp"
#include "migrate/mapped_ranges.hpp"
#include "migrate/promotion_batch.hpp"
#include "regulate/aol.hpp"
#include "regulate/intensity.hpp"
#include "track/cbf_knobs.hpp"
#include "track/cooling.hpp"
#include "track/sample_batch.hpp"

namespace tt {
namespace {

class FreqTier final : public Policy {
 public:
  explicit FreqTier(const PolicyContext& context) : FreqTier(context, context.knobs) {}

  void on_map(PageRange range, std::uint32_t, Nanos) override { space_.map(range); }
  void on_unmap(PageRange range, Nanos) override { space_.unmap(range); }
  Tier placement(PageRange) const override { return Tier::fast; }  // §V-B: local DRAM first
  void on_samples(std::span<const Sample> samples, Nanos now) override {
    batch_.add(samples, [&] { process_batch(now); });
  }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    ladder_.promoted(migrate::promoted(results));
  }
  void on_capacity(Tier, Nanos) override {
    const double pages = std::max(1.0, static_cast<double>(memory_.capacity(Tier::fast)));
    threshold_.set_fast_pages(pages);
    if (fast_pages_ > 0) filter_.stretch(pages / fast_pages_);
  }
  void tick(Nanos now) override {
    ladder_.tick(now);
    demote(now);
  }
  Nanos tick_period() const override { return from_seconds(1); }

  std::uint64_t metadata_bytes() const override {
    return filter_->bytes() + space_.bytes() + batch_.bytes() +
           threshold_.histogram().bins().size_bytes();
  }
  void gauges(Gauges& out) const override {
    out["hot_threshold"] = threshold_.value();
    out["hot_pages"] = static_cast<double>(threshold_.hot_pages());
    out["sampling_hz"] = ladder_.frequency();
    out["sampling_level"] = static_cast<double>(ladder_.level());
    out["monitoring"] = ladder_.monitoring();
    out["coolings"] = static_cast<double>(filter_.epoch());
  }
  Heat heat(PageId page) const override {
    return filter_->get(page) >= threshold_.value() ? Heat::hot : Heat::cold;
  }

 private:
  void process_batch(Nanos now) {
    while (const auto part = batch_.take(filter_.room())) {
      for (const Tier tier : {Tier::fast, Tier::slow}) count(tier);
      if (threshold_.advance(part)) memory_.charge(Work::threshold_pass, 1);
      if (filter_.advance(part, memory_)) threshold_.cool();
    }
    demote(now);  // room first, so that the promotions queued behind find it
    promotions_.flush(memory_);
  }

  /// Algorithm 1, with the increments of a page coalesced (§V-C(c)).
  void count(Tier tier) {
    const auto [pages, counts, before, after] = batch_.count(tier, *filter_);  // lines 3-4
    threshold_.move(before, after);
    memory_.charge(Work::tracker_update, pages.size());
    memory_.charge(Work::tracker_lookup, pages.size());
    if (tier == Tier::fast) return;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const bool hot = after[i] >= threshold_.value();
      if (hot && space_.contains(pages[i])) promotions_.add(pages[i]);  // line 5
    }
  }

  /// Algorithm 2.
  void demote(Nanos now) {
    if (ladder_.monitoring()) return;
    const auto result = scan_.run(memory_, space_, [&](auto fast, auto& victims) {
      filter_->get(fast, counts_);
      memory_.charge(Work::tracker_lookup, fast.size());
      for (std::size_t i = 0; i < fast.size(); ++i) {
        if (counts_[i] < threshold_.value()) victims.push_back(fast[i]);  // lines 7-8
      }
    });
    // §V-B2: "If no more cold pages are found, FreqTier enters monitoring mode."
    if (result.empty) ladder_.empty_scan(now);
  }

  FreqTier(const PolicyContext& context, const Knobs& knobs)
      : memory_(context.memory),
        fast_pages_(static_cast<double>(memory_.capacity(Tier::fast))),
        batch_(knobs),
        filter_(filter(knobs, context.seed), knobs.real("cooling_period") * fast_pages_),
        threshold_({.rule = classify::AdaptiveThreshold::Rule::step,
                    .initial = track::threshold(knobs, "hot_threshold", *filter_),
                    .floor = track::threshold(knobs, "hot_threshold_floor", *filter_),
                    .ceiling = filter_->max_count(),
                    .fast_pages = fast_pages_,
                    .period = knobs.real("adaptation_period")}),
        scan_(knobs),
        ladder_(memory_, knobs) {
    memory_.set_movers({.threads = 0});  // it calls move_pages() itself
  }
  /// §V-A: "large enough to store all pages in local DRAM" at the error rate.
  std::unique_ptr<track::Tracker> filter(const Knobs& knobs, std::uint64_t seed) const {
    auto options = track::cbf_options(knobs, fast_pages_, 1, seed);
    options.blocked = knobs.flag("cbf_blocked");
    return track::make_cbf(options);
  }

  Memory& memory_;
  const double fast_pages_;  // at first
  track::SampleBatch batch_;
  track::CoolingTracker filter_;
  classify::AdaptiveThreshold threshold_;
  migrate::MappedRanges space_;
  migrate::DemotionScan scan_;
  migrate::PromotionBatch promotions_;
  regulate::IntensityLadder ladder_;
  std::vector<std::uint32_t> counts_;  // scratch
};

std::vector<KnobDecl> freqtier_knobs() {
  using namespace knob;
  return list(
      regulate::ladder_knobs("§V-B2"), track::sample_batch_knob("§IV-C"),
      track::threshold_knob("hot_threshold", 5, "§V-C(a)",
                            "count from which a page is hot, until adapted"),
      track::threshold_knob("hot_threshold_floor", 1, "ours: the paper sets no limit",
                            "lowest threshold that adaptation may choose"),
      real("adaptation_period", 1e5, {1000, 1e8, log}, samples,
           "§V-C(a); period not published: one batch",
           "samples between steps of the hot threshold toward a hot set of the fast tier's size"),
      real("cooling_period", 160, {0.1, 1e5, log}, samples_per_page,
           "§V-A (\"periodically\"); value of HybridTier's artifact, its successor",
           "samples per fast-tier page between halvings of the counters"),
      track::cbf_knobs(3, "§V-A", "§V-A", "§VII-E"),
      flag("cbf_blocked", true, "§V-C(b)", "keep the counters of a page in one 64-byte line"),
      migrate::watermark_knobs("§V-B; value of HybridTier's artifact"),
      migrate::scan_chunk_knob("§V-B1 (\"a batch of contiguous pages\")"));
}

const RegisterPolicy freqtier_policy{regulate::with_aol<make_policy<FreqTier>>({
    .name = "freqtier",
    .family = "frequency",
    .summary = "one counting Bloom filter, adaptive threshold, sampling that backs off when stable",
    .citation = "Song et al., Lightweight Frequency-Based Tiering for CXL Memory Systems, 2024, "
                "arXiv:2312.04789v1",
    .addresses = {"https://arxiv.org/abs/2312.04789v1"},
    .knobs = freqtier_knobs(),
})};

}  // namespace
}  // namespace tt
