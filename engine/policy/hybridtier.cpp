// SPDX-License-Identifier: MIT

// HybridTier: Song et al., "HybridTier: an Adaptive and Lightweight CXL-Memory Tiering System",
// ASPLOS'25. Section numbers are that paper's; "artifact" is its published code.
//
// Paper: https://doi.org/10.1145/3676642.3736119;
// artifact: https://github.com/kevins981/hybridtier-asplos25-artifact
//
// frequency_  counts samples, halved rarely: what a page was over minutes to hours (§3.1)
// momentum_   counts samples, halved often: what a page is within seconds
// threshold_  count from which a page has high frequency; follows the hotness distribution
// chances_    pages that got a second chance
// scan_       walks the address space for demotion
// thrift_     of the artifact alone: does and samples less when there is little to win
//
// Table 1 (in the slow tier / in the fast tier):
//                 momentum high          momentum low
// frequency high  promote / no action    promote / no action (second chance)
// frequency low   promote / no action    no action / demote
//
// Inferred: MEMTIS' Algorithm 1 adapts the threshold (§3.1: "similar to Memtis"); at the counter's
// limit momentum tells whether a page was accessed; the bound on a run of the scan.
#include <algorithm>
#include <array>
#include <bit>

#include "classify/adaptive_threshold.hpp"
#include "core/make_policy.hpp"
#include "migrate/demotion_scan.hpp"
#include "migrate/mapped_ranges.hpp"
#include "migrate/promotion_batch.hpp"
#include "migrate/second_chance.hpp"
#include "regulate/aol.hpp"
#include "regulate/thrift.hpp"
#include "track/cbf_knobs.hpp"
#include "track/cooling.hpp"
#include "track/sample_batch.hpp"
#include "track/sampling_knobs.hpp"

namespace tt {
namespace {

class HybridTier final : public Policy {
 public:
  explicit HybridTier(const PolicyContext& context) : HybridTier(context, context.knobs) {}

  void on_map(PageRange range, std::uint32_t, Nanos) override { space_.map(range); }
  void on_unmap(PageRange range, Nanos) override { space_.unmap(range); }
  Tier placement(PageRange) const override { return Tier::fast; }  // Linux: local memory first
  void on_samples(std::span<const Sample> samples, Nanos now) override {
    batch_.add(samples, [&] { process_batch(now); });
  }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    if (thrift_) thrift_->promoted(migrate::promoted(results));
  }
  void on_capacity(Tier, Nanos) override {
    const double pages = std::max(1.0, static_cast<double>(memory_.capacity(Tier::fast)));
    threshold_.set_fast_pages(pages);
    if (first_fast_pages_ > 0) frequency_.stretch(pages / first_fast_pages_);
    if (first_fast_pages_ > 0 && !artifact_) momentum_.stretch(pages / first_fast_pages_);
    fast_pages_ = pages;
  }
  void tick(Nanos now) override {
    if (thrift_ && thrift_->tick(now)) wake();
    if (monitoring()) return;
    revisit(now);
    demote(now);
  }
  Nanos tick_period() const override { return from_seconds(1); }

  std::uint64_t metadata_bytes() const override {
    return frequency_->bytes() + momentum_->bytes() + space_.bytes() + chances_.bytes() +
           batch_.bytes() + threshold_.histogram().bins().size_bytes();
  }
  void gauges(Gauges& out) const override {
    out["frequency_threshold"] = threshold_.value();
    out["momentum_threshold"] = momentum_hot_;
    out["hot_pages"] = static_cast<double>(threshold_.hot_pages());
    out["sampling_hz"] = monitoring() ? 0 : thrift_ ? thrift_->sampling_hz() : sampling_hz_;
    out["monitoring"] = monitoring();
    if (thrift_) thrift_->gauges(out);
    out["second_chance_pages"] = static_cast<double>(chances_.size());
    out["frequency_coolings"] = static_cast<double>(frequency_.epoch());
    out["momentum_coolings"] = static_cast<double>(momentum_.epoch());
  }
  Heat heat(PageId page) const override {
    const std::uint32_t momentum = momentum_->get(page);
    if (frequency_->get(page) >= threshold_.value() || momentum >= momentum_hot_) return Heat::hot;
    return momentum >= momentum_low_ ? Heat::warm : Heat::cold;
  }

 private:
  void process_batch(Nanos now) {
    if (monitoring()) return batch_.drop();  // samples that were under way
    while (const auto part = batch_.take(std::min(frequency_.room(), momentum_.room()))) {
      for (const Tier tier : {Tier::fast, Tier::slow}) count(tier);
      if (threshold_.advance(part)) memory_.charge(Work::threshold_pass, 1);
      if (frequency_.advance(part, memory_)) threshold_.cool();
      momentum_.advance(part, memory_);
    }
    demote(now);  // room first, so that the promotions queued behind find it
    promotions_.flush(memory_);
    if (thrift_ && thrift_->end_batch()) accept_less_hot(now);
  }

  /// §4.3: "For each access sample collected, HybridTier records this access in both CBFs. Based on
  /// the updated page frequency and momentum, HybridTier decides whether to promote this page."
  void count(Tier tier) {
    const auto counted = batch_.count(tier, *frequency_);
    const auto& [pages, counts, before, after] = counted;
    threshold_.move(before, after);
    if (thrift_ && tier == Tier::fast) thrift_->counted(counted, frequency_->max_count());
    momentum_->increment(counts);
    memory_.charge(Work::tracker_update, 2 * pages.size());
    if (tier == Tier::fast) return;
    momentum_->get(pages, momenta_);
    memory_.charge(Work::tracker_lookup, 2 * pages.size());
    for (std::size_t i = 0; i < pages.size(); ++i) {
      // Table 1, left of the slash: high frequency or high momentum is promoted.
      const bool hot = after[i] >= threshold_.value() || momenta_[i] >= momentum_hot_;
      if (hot && space_.contains(pages[i])) promotions_.add(pages[i]);
    }
  }

  /// Table 1, right of the slash.
  void demote(Nanos now) {
    if (thrift_ && thrift_->demotion_paused(now)) return;
    // Counts only grow between halvings, so a scan that found nothing would find nothing again.
    if (!thrift_ && scan_state() == fruitless_) return;
    const auto result = scan_.run(memory_, space_, [&](auto fast, auto& victims) {
      frequency_->get(fast, frequencies_);
      momentum_->get(fast, momenta_);
      memory_.charge(Work::tracker_lookup, 2 * fast.size());
      for (std::size_t i = 0; i < fast.size(); ++i) {
        // "Pages with high momentum but low frequency will not be demoted since they may have been
        // recently promoted."
        if (momenta_[i] >= momentum_low_) continue;
        if (frequencies_[i] >= threshold_.value()) {
          // "Pages with high frequency but low momentum are given a second chance."
          chances_.mark(fast[i], frequencies_[i], frequency_.epoch(), now);
        } else {
          victims.push_back(fast[i]);  // "immediately demotes" those with both low
        }
      }
    });
    if (result.empty) fruitless_ = scan_state();
    if (thrift_) thrift_->demoted(result, now);
  }
  [[nodiscard]] bool monitoring() const { return thrift_ && thrift_->monitoring(); }
  /// What the result of a scan depends on.
  using State = std::array<std::uint64_t, 8>;
  State scan_state() const {
    return {frequency_.epoch(),
            momentum_.epoch(),
            space_.version(),
            threshold_.value(),
            chances_.size(),
            memory_.capacity(Tier::fast),
            memory_.free_pages(Tier::fast),
            static_cast<std::uint64_t>(memory_.counters().moved_by_others)};
  }

  /// §4.3: "later revisits previously marked pages and compares their current access frequency
  /// count against the previously stored count".
  void revisit(Nanos now) {
    const auto due = chances_.revisit(memory_, now, [&](const auto& marked) {
      const std::uint32_t frequency = frequency_->get(marked.page);
      const std::uint32_t momentum = momentum_->get(marked.page);
      const bool accessed = chances_.grew(marked, frequency, frequency_.epoch()) ||
                            (frequency == frequency_->max_count() && momentum > 0);
      return !accessed && momentum < momentum_low_;
    });
    memory_.charge(Work::tracker_lookup, 2 * due);
  }

  /// Artifact: promotions have run dry. Less hot pages will do while 4/5 of the tier are not hot.
  void accept_less_hot(Nanos now) {
    const auto hot = static_cast<double>(threshold_.hot_pages());
    if (hot < 0.8 * fast_pages_ && !threshold_.at_floor()) {
      threshold_.lower(huge_ ? 100 : 1);
    } else {
      thrift_->begin_monitoring(now);
    }
  }
  /// Artifact: the hit ratio falls. What was hot before is to make room.
  void wake() {
    frequency_.halve();
    momentum_.halve();
    threshold_.cool();
    threshold_.reset();
    chances_.clear();
  }

  using Rule = classify::AdaptiveThreshold::Rule;
  HybridTier(const PolicyContext& context, const Knobs& knobs)
      : memory_(context.memory),
        artifact_(knobs.choice("variant") == "artifact"),
        huge_(memory_.page_bytes() >= 2ULL << 20),
        first_fast_pages_(static_cast<double>(memory_.capacity(Tier::fast))),
        fast_pages_(first_fast_pages_),
        batch_(knobs),
        frequency_(filter(knobs, 1, context.seed), period(knobs, "frequency_cooling_period"),
                   artifact_ ? 0.5 : 0),
        momentum_(
            filter(knobs, knobs.real(huge_ ? "huge_momentum_cbf_ratio" : "momentum_cbf_ratio"),
                   context.seed + 1),
            artifact_ ? knobs.real("artifact_momentum_cooling_period")
                      : period(knobs, "momentum_cooling_period"),
            artifact_ ? 0.5 : 0),
        threshold_({.rule = artifact_ ? Rule::fixed : Rule::fill,
                    .initial = read(knobs, "frequency_hot_threshold"),
                    .floor = huge_ ? 600 : read(knobs, "frequency_threshold_floor"),
                    .ceiling = frequency_->max_count(),
                    .fast_pages = fast_pages_,
                    .period = knobs.real("adaptation_period")}),
        momentum_hot_(read(knobs, "momentum_hot_threshold")),
        momentum_low_(artifact_ ? 1
                      : huge_   ? momentum_hot_
                                : read(knobs, "demote_momentum_below")),
        scan_(knobs),
        chances_(knobs),
        thrift_(artifact_ ? std::make_unique<regulate::Thrift>(
                                memory_, knobs, track::load_events(knobs), huge_ ? -0.02 : -0.01)
                          : nullptr) {
    memory_.set_movers({.threads = 0});  // it calls move_pages() itself
    if (!thrift_)
      sampling_hz_ = memory_.set_sampling({.loads = track::load_events(knobs)}).loads.value;
  }
  /// §4.2: sized for the pages of the fast tier; the momentum filter is `smaller` times smaller.
  std::unique_ptr<track::Tracker> filter(const Knobs& knobs, double smaller, std::uint64_t seed) {
    auto options = track::cbf_options(knobs, fast_pages_, smaller, seed);
    if (huge_) options.counter_bits = 16;  // §4.4: "increases each CBF counter to 16-bit"
    if (artifact_) {
      options.conservative = false;  // all counters, not "the minimum counters" (§4.2)
      options.min_counters = std::bit_ceil(std::max(
          options.min_counters, track::cbf_counters(options.pages, options.error, options.hashes)));
    }
    return track::make_cbf(options);
  }
  double period(const Knobs& knobs, const std::string& name) const {  // in samples
    return knobs.real(name) * fast_pages_ * static_cast<double>(memory_.page_bytes() / 4096);
  }
  /// With 2 MiB pages the hot thresholds have knobs of their own (§4.4).
  std::uint32_t read(const Knobs& knobs, const std::string& name) {
    return track::threshold(knobs, huge_ ? "huge_" + name : name, *frequency_);
  }

  Memory& memory_;
  const bool artifact_, huge_;
  const double first_fast_pages_;
  double fast_pages_, sampling_hz_ = 0;
  track::SampleBatch batch_;
  track::CoolingTracker frequency_, momentum_;
  classify::AdaptiveThreshold threshold_;
  const std::uint32_t momentum_hot_, momentum_low_;  // promoted from, demotable below

  migrate::MappedRanges space_;
  migrate::DemotionScan scan_;
  State fruitless_{};  // state in which a whole scan found nothing
  migrate::SecondChance chances_;
  migrate::PromotionBatch promotions_;
  std::unique_ptr<regulate::Thrift> thrift_;
  std::vector<std::uint32_t> frequencies_, momenta_;  // scratch
};

std::vector<KnobDecl> hybridtier_knobs() {
  using namespace knob;
  return list(
      choice("variant", {"paper", "artifact"}, "ASPLOS'25; artifact",
             "where the published code differs from the paper: constants, threshold adaptation, "
             "increments, monitoring"),
      track::frequency_knobs("FreqTier, 2024, §V-B2; artifact", "§4.1; artifact: tier_and_core"),
      track::sample_batch_knob("§4.3"),
      track::threshold_knob("frequency_hot_threshold", 5, "artifact; adapted as in §3.1",
                            "count from which a page has high frequency, until adapted"),
      track::threshold_knob("frequency_threshold_floor", 3, "artifact",
                            "lowest frequency threshold that adaptation may choose"),
      real("adaptation_period", 1e5, {1000, 1e8, log}, samples,
           "§3.1 (\"similar to Memtis\"); MEMTIS, SOSP'23, §4.2.1",
           "samples between adaptations of the frequency threshold to the fast tier's size")
          .when("variant", "paper"),
      track::threshold_knob("momentum_hot_threshold", 3, "§6.4.3, Fig. 17",
                            "count from which a page has high momentum"),
      track::threshold_knob("demote_momentum_below", 3, "§3.1, Table 1",
                            "momentum below which a fast page may be demoted (artifact: 1)")
          .when("variant", "paper"),
      real("frequency_cooling_period", 160, {0.1, 1e5, log}, samples_per_page,
           "artifact; \"high\" in §3.1",
           "samples per 4 KiB of the fast tier between halvings of the frequency counters"),
      // §4.2: it is to reduce "access counts of most pages to 0", so it must end before the pages
      // sampled since it began crowd the filter: in proportion to the fast tier. The artifact's
      // 1.1 M samples on the middle one of the paper's tiers, 64 GiB.
      real("momentum_cooling_period", 0.0656, {1e-4, 1e3, log}, samples_per_page,
           "§3.1, §4.2; artifact's 1.1 M samples at 64 GiB, the middle tier of §6.1",
           "samples per 4 KiB of the fast tier between halvings of the momentum counters")
          .when("variant", std::string{"paper"}),
      real("artifact_momentum_cooling_period", 1.1e6, {1e4, 1e9, log}, samples, "artifact",
           "samples between halvings of the momentum counters, whatever the fast tier's size")
          .when("variant", std::string{"artifact"}),
      track::cbf_knobs(4, "§4.2", "§4.2, §4.4, §6.4.2", "§6.4.2, Table 5",
                       "; always 16 with 2 MiB pages"),
      real("momentum_cbf_ratio", 128, {1, 4096, log}, ratio, "§4.2",
           "how many times smaller the momentum filter is than the frequency filter"),
      real("huge_momentum_cbf_ratio", 8, {1, 4096, log}, ratio, "artifact",
           "momentum_cbf_ratio with 2 MiB pages"),
      migrate::watermark_knobs("§4.3; artifact"), migrate::second_chance_knobs("§4.3", "artifact"),
      migrate::scan_chunk_knob("FreqTier, 2024, §V-B1; artifact"),
      regulate::thrift_knobs("variant", "artifact"),
      integer("huge_frequency_hot_threshold", 1000, {1, 65535}, count_per_page, "§4.4; artifact",
              "frequency_hot_threshold with 2 MiB pages (floor 600)"),
      integer("huge_momentum_hot_threshold", 200, {1, 65535}, count_per_page, "§4.4; artifact",
              "momentum_hot_threshold and demote_momentum_below with 2 MiB pages"));
}

const RegisterPolicy hybridtier_policy{regulate::with_aol<make_policy<HybridTier>>({
    .name = "hybridtier",
    .family = "hybrid",
    .summary = "frequency and momentum in counting Bloom filters, second chance on demotion",
    .citation = "Song et al., HybridTier: an Adaptive and Lightweight CXL-Memory Tiering System, "
                "ASPLOS 2025",
    .addresses = {"https://doi.org/10.1145/3676642.3736119"},
    .knobs = hybridtier_knobs(),
})};

}  // namespace
}  // namespace tt
