// SPDX-License-Identifier: MIT

// Unified: ours. HybridTier, FreqTier and what else has been found to help, as parts of one policy
// that can each be turned off. A part that is off counts, draws, charges and samples nothing, so
// that the presets are the published systems to the last bit (with 4 KiB pages).
//
// HybridTier: https://doi.org/10.1145/3676642.3736119;
// FreqTier: https://arxiv.org/abs/2312.04789v1;
// Soar: https://www.usenix.org/conference/osdi25/presentation/liu
//
//                 hybridtier  freqtier   ours
//   filters       both        frequency  frequency  frequency_, momentum_: what is counted
//   threshold     fill        step       fill       threshold_: how it follows the hot set's size
//   second_chance yes         no         no         chances_: fast pages that were hot for long
//   sampling      frequency   frequency  period     steered_: how a frequency of samples is had
//   intensity     fixed       ladder     ladder     ladder_: when less is sampled; ours does not
//                                                   stop before settled()
//   gate          no          no         no         gate_: no promotion while it does no good
//   neighbours    no          no         no         prior_: a page is judged by its neighbours, too
//   placement     fast first  fast first fast first plan_: first touches as a profile says (Soar)
//
// A fourth preset, static, is only the last line: pages stay where they are first placed, which is
// Soar, or first-touch.
//
// policy/unified_knobs.cpp has the knobs, and what the presets stand for. HybridTier is cited as HT
// (ASPLOS'25), FreqTier as FT (2024): hybridtier.cpp and freqtier.cpp have the sections.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "classify/adaptive_threshold.hpp"
#include "classify/neighbour_prior.hpp"
#include "core/every.hpp"
#include "core/make_policy.hpp"
#include "migrate/demotion_scan.hpp"
#include "migrate/mapped_ranges.hpp"
#include "migrate/placement_plan.hpp"
#include "migrate/promotion_batch.hpp"
#include "migrate/second_chance.hpp"
#include "policy/placing.hpp"
#include "policy/unified_knobs.hpp"
#include "regulate/aol.hpp"
#include "regulate/harm_gate.hpp"
#include "regulate/intensity.hpp"
#include "regulate/profiling_run.hpp"
#include "track/cbf_knobs.hpp"
#include "track/cooling.hpp"
#include "track/sample_batch.hpp"
#include "track/sampling_knobs.hpp"
#include "track/steered_sampling.hpp"

namespace tt {
namespace {

/// Which parts are on.
struct Parts {
  using Rule = classify::AdaptiveThreshold::Rule;
  explicit Parts(const Knobs& knobs)
      : ours(knobs.choice("preset") == "ours"),
        frequency(knobs.choice("filters") != "momentum"),
        momentum(knobs.choice("filters") != "frequency"),
        second_chance(frequency && momentum && knobs.flag("second_chance")),
        steered(knobs.choice("sampling_by") == "period"),
        ladder(knobs.choice("intensity") == "ladder"),
        gate(knobs.flag("gate")),
        neighbours(frequency && knobs.flag("neighbours")) {
    const std::string& follows = knobs.choice("threshold");
    rule = !frequency || follows == "fixed" ? Rule::fixed
           : follows == "step"              ? Rule::step
                                            : Rule::fill;
  }

  bool ours, frequency, momentum, second_chance, steered, ladder, gate, neighbours;
  Rule rule;
};

class Unified final : public Policy {
 public:
  explicit Unified(const PolicyContext& context)
      : Unified(context, unified::expanded(context.knobs)) {}

  void on_map(PageRange range, std::uint32_t site, Nanos) override {
    space_.map(range);
    if (plan_) plan_->map(range, site);
    if (prior_) prior_->map(range);
  }
  void on_unmap(PageRange range, Nanos) override {
    space_.unmap(range);
    if (plan_) plan_->unmap(range);
    if (prior_) prior_->unmap(range);
  }
  Tier placement(PageRange range) const override {
    return !plan_ || plan_->fast(range.first) ? Tier::fast : Tier::slow;
  }
  void on_samples(std::span<const Sample> samples, Nanos now) override {
    batch_.add(samples, [&] { process_batch(now); });
  }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    const std::uint64_t promoted = migrate::promoted(results);
    if (ladder_) ladder_->promoted(promoted);
    if (gate_) gate_->promoted(promoted);
  }
  void on_capacity(Tier, Nanos) override {
    const double pages = std::max(1.0, static_cast<double>(memory_.capacity(Tier::fast)));
    const double times = fast_pages_ > 0 ? pages / fast_pages_ : 1;
    threshold_.set_fast_pages(pages);
    if (prior_) prior_->set_fast_pages(pages);
    if (frequency_) frequency_->stretch(times);
    if (momentum_) momentum_->stretch(times);
    if (gate_) gate_->stretch(times);
    if (plan_) plan_->divide();
  }
  void tick(Nanos now) override {
    if (steered_) steered_->tick(now);
    if (ladder_ && ladder_->tick(now, settled())) woken_ = epoch();
    if (gate_) gate_->tick(now, memory_.counters());
    if (chances_) revisit(now);
    demote(now);
  }
  Nanos tick_period() const override { return from_seconds(1); }

  /// Neighbourhoods are as many in a miniature as in the full system, where they are nothing.
  std::uint64_t metadata_bytes() const override {
    return (frequency_ ? (*frequency_)->bytes() + threshold_.histogram().bins().size_bytes() : 0) +
           (momentum_ ? (*momentum_)->bytes() : 0) + (chances_ ? chances_->bytes() : 0) +
           (plan_ ? plan_->bytes() : 0) + space_.bytes() + batch_.bytes();
  }
  void gauges(Gauges& out) const override {
    out["sampling_hz"] = ladder_ ? ladder_->frequency() : sampling_hz_;
    out["monitoring"] = monitoring();
    if (frequency_) {
      out["frequency_threshold"] = threshold_.value();
      out["hot_pages"] = static_cast<double>(threshold_.hot_pages());
      out["frequency_coolings"] = static_cast<double>(frequency_->epoch());
    }
    if (momentum_) {
      out["momentum_threshold"] = momentum_hot_;
      out["momentum_coolings"] = static_cast<double>(momentum_->epoch());
    }
    if (prior_) {
      out["rate_threshold"] = prior_->version() > 0 ? prior_->threshold() : 0;
      out["hot_pages"] = prior_->hot_pages();
    }
    if (chances_) out["second_chance_pages"] = static_cast<double>(chances_->size());
    if (ladder_) out["sampling_level"] = static_cast<double>(ladder_->level());
    if (gate_) out["gate_closed"] = gate_->closed();
  }
  Heat heat(PageId page) const override {
    const std::uint32_t momentum = momentum_ ? (*momentum_)->get(page) : 0;
    if (frequency_ && frequent(page, (*frequency_)->get(page))) return Heat::hot;
    if (momentum_ && momentum >= momentum_hot_) return Heat::hot;
    return momentum_ && momentum >= momentum_low_ ? Heat::warm : Heat::cold;
  }

 private:
  using Filter = track::CoolingTracker;

  void process_batch(Nanos now) {
    while (const auto part = batch_.take(std::min(room(frequency_), room(momentum_)))) {
      if (prior_ && prior_->advance(part)) memory_.charge(Work::threshold_pass, 1);
      for (const Tier tier : {Tier::fast, Tier::slow}) count(tier);
      if (frequency_ && threshold_.advance(part)) memory_.charge(Work::threshold_pass, 1);
      if (frequency_ && frequency_->advance(part, memory_)) cooled();
      if (momentum_) momentum_->advance(part, memory_);
    }
    demote(now);  // room first, so that the promotions queued behind find it
    promotions_.flush(memory_);
  }
  void cooled() {
    threshold_.cool();
    if (prior_) prior_->cool();
  }
  /// Whether a page with this count has high frequency: enough of it to come, or to stay.
  [[nodiscard]] bool frequent(PageId page, std::uint32_t count, double margin = 1) const {
    if (!prior_) return count >= threshold_.value();
    return prior_->rate(page, count) >= margin * prior_->threshold();
  }
  static std::uint64_t room(const std::optional<Filter>& filter) {
    return filter ? filter->room() : UINT64_MAX;
  }

  /// A page is hot if either filter says so (HT, §4.3).
  void count(Tier tier) {
    const bool both = frequency_ && momentum_;
    Filter& counter = frequency_ ? *frequency_ : *momentum_;
    const auto counted = batch_.count(tier, *counter);
    const auto& [pages, counts, before, after] = counted;
    if (frequency_) threshold_.move(before, after);
    if (prior_) {
      prior_->add(counts, before, after);
      memory_.charge(Work::tracker_update, pages.size());
    }
    if (both) (*momentum_)->increment(counts);
    memory_.charge(Work::tracker_update, filters_ * pages.size());
    // With one filter, what it holds after the increment is looked up in any case (FT, Alg. 1).
    if (!both || tier == Tier::slow) memory_.charge(Work::tracker_lookup, filters_ * pages.size());
    if (tier == Tier::fast || held_back()) return;
    if (both) (*momentum_)->get(pages, momenta_);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const bool frequent = frequency_ && this->frequent(pages[i], after[i], rate_margin_);
      const bool recent = momentum_ && (both ? momenta_[i] : after[i]) >= momentum_hot_;
      if ((frequent || recent) && space_.contains(pages[i])) promotions_.add(pages[i]);
    }
  }

  /// Of the fast pages, those without momentum go; those with frequency get a second chance, or
  /// stay (HT, Table 1; FT, Algorithm 2).
  void demote(Nanos now) {
    if (held_back() || monitoring()) return;
    // Counts only grow between halvings, so a scan that found nothing would find nothing again.
    const bool remembers = !ladder_;
    if (remembers && scan_state() == fruitless_) return;
    const auto result = scan_.run(memory_, space_, [&](auto fast, auto& victims) {
      if (frequency_) (*frequency_)->get(fast, frequencies_);
      if (momentum_) (*momentum_)->get(fast, momenta_);
      memory_.charge(Work::tracker_lookup, filters_ * fast.size());
      for (std::size_t i = 0; i < fast.size(); ++i) {
        if (momentum_ && momenta_[i] >= momentum_low_) continue;
        if (!frequency_ || !frequent(fast[i], frequencies_[i])) {
          victims.push_back(fast[i]);
        } else if (chances_) {
          chances_->mark(fast[i], frequencies_[i], frequency_->epoch(), now);
        }
      }
    });
    if (ladder_ && result.empty && settled()) ladder_->empty_scan(now);
    if (remembers && result.empty) fruitless_ = scan_state();
  }
  /// What the result of a scan depends on.
  using State = std::array<std::uint64_t, 9>;
  State scan_state() const {
    return {epoch(),
            momentum_ ? momentum_->epoch() : 0,
            space_.version(),
            threshold_.value(),
            chances_ ? chances_->size() : 0,
            prior_ ? prior_->version() : 0,
            memory_.capacity(Tier::fast),
            memory_.free_pages(Tier::fast),
            static_cast<std::uint64_t>(memory_.counters().moved_by_others)};
  }
  void revisit(Nanos now) {
    const auto due = chances_->revisit(memory_, now, [&](const auto& marked) {
      const std::uint32_t frequency = (*frequency_)->get(marked.page);
      const std::uint32_t momentum = (*momentum_)->get(marked.page);
      const bool accessed = migrate::SecondChance::grew(marked, frequency, frequency_->epoch()) ||
                            (frequency == (*frequency_)->max_count() && momentum > 0);
      return !accessed && momentum < momentum_low_;
    });
    memory_.charge(Work::tracker_lookup, 2 * due);
  }

  [[nodiscard]] bool monitoring() const { return ladder_ && ladder_->monitoring(); }
  [[nodiscard]] bool held_back() const { return gate_ && gate_->closed(); }

  /// Whether the counters have been halved since the ladder began. While a program loads its data
  /// there is nothing to promote, which the ladder takes for a plateau.
  [[nodiscard]] bool settled() const { return !parts_.ours || !frequency_ || epoch() > woken_; }
  [[nodiscard]] std::uint64_t epoch() const { return frequency_ ? frequency_->epoch() : 0; }

  Unified(const PolicyContext& context, const Knobs& knobs)
      : parts_(knobs),
        steered_(parts_.steered ? std::make_unique<track::SteeredSampling>(context.memory)
                                : nullptr),
        memory_(steered_ ? *steered_ : context.memory),
        fast_pages_(static_cast<double>(memory_.capacity(Tier::fast))),
        rate_margin_(knobs.real("rate_margin")),
        batch_(knobs),
        threshold_({.initial = 1}),
        scan_(knobs) {
    if (parts_.frequency) {
      // Huge pages are few, and have as many samples in all: they can be remembered for longer.
      const auto base_pages = static_cast<double>(memory_.page_bytes() / 4096);
      frequency_.emplace(filter(knobs, 1, context.seed),
                         base_pages * period(knobs, "frequency_cooling_period"));
      threshold_ = classify::AdaptiveThreshold(
          {.rule = parts_.rule,
           .initial = track::threshold(knobs, "frequency_hot_threshold", **frequency_),
           .floor = track::threshold(knobs, "frequency_threshold_floor", **frequency_),
           .ceiling = (*frequency_)->max_count(),
           .fast_pages = fast_pages_,
           .period = knobs.real("adaptation_period")});
    }
    if (parts_.neighbours)
      prior_.emplace(
          classify::NeighbourPrior::Options{.fast_pages = fast_pages_,
                                            .neighbourhoods = knobs.real("neighbourhoods"),
                                            .memory = period(knobs, "neighbour_cooling_period"),
                                            .period = knobs.real("adaptation_period"),
                                            .max_count = (*frequency_)->max_count()});
    if (parts_.momentum) {
      // Two filters share the pages between them, and the small one forgets soon (HT, §4.2).
      const double smaller = parts_.frequency ? knobs.real("momentum_cbf_ratio") : 1;
      momentum_.emplace(filter(knobs, smaller, context.seed + 1),
                        period(knobs, "momentum_cooling_period"));
      momentum_hot_ = track::threshold(knobs, "momentum_hot_threshold", **momentum_);
      momentum_low_ = track::threshold(knobs, "demote_momentum_below", **momentum_);
    }
    if (context.placement != nullptr) plan_.emplace(memory_, *context.placement);
    filters_ = (frequency_ ? 1U : 0U) + (momentum_ ? 1U : 0U);
    if (parts_.second_chance) chances_.emplace(knobs);
    if (parts_.gate) gate_.emplace(knobs, fast_pages_);
    memory_.set_movers({.threads = 0});  // it calls move_pages() itself
    if (parts_.ladder) {
      ladder_.emplace(memory_, knobs);
    } else {
      sampling_hz_ = memory_.set_sampling({.loads = track::load_events(knobs)}).loads.value;
    }
  }
  std::unique_ptr<track::Tracker> filter(const Knobs& knobs, double smaller, std::uint64_t seed) {
    auto options = track::cbf_options(knobs, fast_pages_, smaller, seed);
    if (memory_.page_bytes() >= 2ULL << 20) options.counter_bits = 16;  // HT, §4.4
    return track::make_cbf(options);
  }
  double period(const Knobs& knobs, const char* name) const {  // in samples
    return knobs.real(name) * fast_pages_;
  }

  const Parts parts_;
  const std::unique_ptr<track::SteeredSampling> steered_;
  Memory& memory_;
  const double fast_pages_, rate_margin_;  // at first
  double sampling_hz_ = 0;
  track::SampleBatch batch_;
  std::optional<Filter> frequency_, momentum_;
  std::uint64_t filters_ = 0;
  classify::AdaptiveThreshold threshold_;
  std::optional<classify::NeighbourPrior> prior_;
  std::uint32_t momentum_hot_ = 0, momentum_low_ = 0;  // promoted from, demotable below

  migrate::MappedRanges space_;
  std::optional<migrate::PlacementPlan> plan_;
  migrate::DemotionScan scan_;
  State fruitless_{};  // state in which a whole scan found nothing
  std::optional<migrate::SecondChance> chances_;
  migrate::PromotionBatch promotions_;
  std::optional<regulate::IntensityLadder> ladder_;
  std::optional<regulate::HarmGate> gate_;
  std::uint64_t woken_ = 0;  // epoch in which the ladder began, or began again
  std::vector<std::uint32_t> frequencies_, momenta_;  // scratch
};

std::unique_ptr<Policy> make_unified(const PolicyContext& context) {
  static const std::vector<KnobDecl> declared = unified::knobs();
  const Knobs& knobs = context.knobs;
  if (holds(unified::by_profile(), declared, knobs) && context.placement == nullptr)
    return regulate::make_profiling_run(context.memory, knobs, "profile_sampling_period");
  if (knobs.choice("preset") == "static") return std::make_unique<Placing>(context);
  return std::make_unique<Unified>(context);
}

const RegisterPolicy unified_policy{unified::where_pages_move(regulate::with_aol<make_unified>({
    .name = "unified",
    .family = "hybrid",
    .summary = "the parts of hybridtier and freqtier, each on or off, and what neighbours tell",
    .citation = "ours; parts of HybridTier (ASPLOS 2025), FreqTier (2024), Soar (OSDI 2025)",
    .addresses = {"https://doi.org/10.1145/3676642.3736119", "https://arxiv.org/abs/2312.04789v1",
                  "https://www.usenix.org/conference/osdi25/presentation/liu"},
    .knobs = unified::knobs(),
    .traits = {.profiled = true,
               .profiled_when = unified::by_profile(),
               .placement = Granularity::page},
}))};

}  // namespace
}  // namespace tt
