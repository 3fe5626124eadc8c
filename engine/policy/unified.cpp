// Unified: ours. HybridTier, FreqTier and what else has been found to help, as parts of one policy
// that can each be turned off. A part that is off counts, draws, charges and samples nothing, so
// that the presets are the published systems to the last bit (with 4 KiB pages).
//
//                 hybridtier  freqtier   ours
//   filters       both        frequency  frequency  frequency_, momentum_: what is counted
//   threshold     fill        step       fill       threshold_: how it follows the hot set's size
//   second_chance yes         no         no         chances_: fast pages that were hot for long
//   intensity     fixed       ladder     ladder     ladder_, thrift_: when less is sampled
//   gate          no          no         no         gate_: no promotion while it does no good
//   cost_test     no          no         no         a promotion has to pay for its move (ARMS)
//   store_weight  0           0          0          stores are samples, too (HeMem)
//   neighbours    no          no         yes        prior_: a page is judged by its neighbours, too
//
// HybridTier is cited as HT (ASPLOS'25), FreqTier as FT (2024): hybridtier.cpp and freqtier.cpp
// have the sections.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "classify/adaptive_threshold.hpp"
#include "classify/neighbour_prior.hpp"
#include "core/every.hpp"
#include "core/make_policy.hpp"
#include "migrate/demotion_scan.hpp"
#include "migrate/mapped_ranges.hpp"
#include "migrate/move_cost.hpp"
#include "migrate/promotion_batch.hpp"
#include "migrate/second_chance.hpp"
#include "regulate/aol.hpp"
#include "regulate/harm_gate.hpp"
#include "regulate/intensity.hpp"
#include "regulate/latency_gain.hpp"
#include "regulate/thrift.hpp"
#include "track/cbf_knobs.hpp"
#include "track/cooling.hpp"
#include "track/moving_averages.hpp"
#include "track/sample_batch.hpp"
#include "track/sampling_knobs.hpp"

namespace tt {
namespace {

/// Which parts are on.
struct Parts {
  using Rule = classify::AdaptiveThreshold::Rule;
  bool frequency = true, momentum = true, second_chance = true;
  Rule rule = Rule::fill;
  bool ladder = false, thrift = false, gate = false, cost_test = false, neighbours = false;
  std::int64_t store_weight = 0;
  std::optional<double> hashes, floor;  // where the preset has another default

  explicit Parts(const Knobs& knobs) {
    const std::string& preset = knobs.choice("preset");
    if (preset == "hybridtier") return;
    if (preset == "freqtier") {
      momentum = second_chance = false;
      rule = Rule::step;
      ladder = true;
      hashes = 3;
      floor = 1;
      return;
    }
    frequency = knobs.choice("filters") != "momentum";
    momentum = knobs.choice("filters") != "frequency";
    second_chance = frequency && momentum && knobs.flag("second_chance");
    const std::string& follows = knobs.choice("threshold");
    rule = !frequency || follows == "fixed" ? Rule::fixed
           : follows == "step"              ? Rule::step
                                            : Rule::fill;
    ladder = knobs.choice("intensity") == "ladder";
    thrift = knobs.choice("intensity") == "thrift";
    gate = knobs.flag("gate");
    cost_test = knobs.flag("cost_test");
    neighbours = frequency && knobs.flag("neighbours");
    if (!ladder && !thrift) store_weight = knobs.integer("store_weight");
  }
};

class Unified final : public Policy {
 public:
  explicit Unified(const PolicyContext& context) : Unified(context, context.knobs) {}

  void on_map(PageRange range, std::uint32_t, Nanos) override {
    space_.map(range);
    if (prior_) prior_->map(range);
  }
  void on_unmap(PageRange range, Nanos) override {
    space_.unmap(range);
    if (prior_) prior_->unmap(range);
  }
  Tier placement(PageRange) const override { return Tier::fast; }
  void on_samples(std::span<const Sample> samples, Nanos now) override {
    if (parts_.store_weight > 1) samples = weighted(samples);
    batch_.add(samples, [&] { process_batch(now); });
  }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    const std::uint64_t promoted = migrate::promoted(results);
    if (ladder_) ladder_->promoted(promoted);
    if (thrift_) thrift_->promoted(promoted);
    if (gate_) gate_->promoted(promoted);
    if (parts_.cost_test) cost_.moved(results);
  }
  void tick(Nanos now) override {
    if (ladder_) ladder_->tick(now);
    if (thrift_ && thrift_->tick(now)) wake();
    if (gate_) gate_->tick(now, memory_.counters());
    if (parts_.cost_test) measure();
    if (stopped()) return;
    if (chances_) revisit(now);
    demote(now);
  }
  Nanos tick_period() const override { return from_seconds(1); }

  /// Neighbourhoods are as many in a miniature as in the full system, where they are nothing.
  std::uint64_t metadata_bytes() const override {
    return (frequency_ ? (*frequency_)->bytes() + threshold_.histogram().bins().size_bytes() : 0) +
           (momentum_ ? (*momentum_)->bytes() : 0) + (chances_ ? chances_->bytes() : 0) +
           space_.bytes() + batch_.bytes();
  }
  void gauges(Gauges& out) const override {
    const bool monitoring = stopped() || (ladder_ && ladder_->monitoring());
    out["sampling_hz"] = ladder_ ? ladder_->frequency() : monitoring ? 0 : sampling_hz_;
    out["monitoring"] = monitoring;
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
    if (thrift_) thrift_->gauges(out);
    if (gate_) out["gate_closed"] = gate_->closed();
    if (parts_.cost_test) out["latency_gain_ns"] = gain_.ns();
  }
  Heat heat(PageId page) const override {
    const std::uint32_t momentum = momentum_ ? (*momentum_)->get(page) : 0;
    if (frequency_ && frequent(page, (*frequency_)->get(page))) return Heat::hot;
    if (momentum_ && momentum >= momentum_hot_) return Heat::hot;
    return momentum_ && momentum >= momentum_low_ ? Heat::warm : Heat::cold;
  }

 private:
  using Filter = track::CoolingTracker;

  std::span<const Sample> weighted(std::span<const Sample> samples) {
    weighted_.clear();
    for (const Sample& sample : samples) {
      const auto times = sample.kind == AccessKind::store ? parts_.store_weight : 1;
      weighted_.insert(weighted_.end(), static_cast<std::size_t>(times), sample);
    }
    return weighted_;
  }

  void process_batch(Nanos now) {
    if (stopped()) return batch_.drop();  // samples that were under way
    while (const auto part = batch_.take(std::min(room(frequency_), room(momentum_)))) {
      if (prior_ && prior_->advance(part)) memory_.charge(Work::threshold_pass, 1);
      for (const Tier tier : {Tier::fast, Tier::slow}) count(tier);
      if (frequency_ && threshold_.advance(part)) memory_.charge(Work::threshold_pass, 1);
      if (frequency_ && frequency_->advance(part, memory_)) cooled();
      if (momentum_) momentum_->advance(part, memory_);
    }
    demote(now);  // room first, so that the promotions queued behind find it
    promotions_.flush(memory_);
    if (thrift_ && thrift_->end_batch()) accept_less_hot(now);
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
    if (thrift_ && tier == Tier::fast) thrift_->counted(counted, counter->max_count());
    if (both) (*momentum_)->increment(counts);
    memory_.charge(Work::tracker_update, filters_ * pages.size());
    // With one filter, what it holds after the increment is looked up in any case (FT, Alg. 1).
    if (!both || tier == Tier::slow) memory_.charge(Work::tracker_lookup, filters_ * pages.size());
    if (tier == Tier::fast || held_back()) return;
    if (both) (*momentum_)->get(pages, momenta_);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const bool frequent = frequency_ && this->frequent(pages[i], after[i], rate_margin_);
      const bool recent = momentum_ && (both ? momenta_[i] : after[i]) >= momentum_hot_;
      if ((frequent || recent) && space_.contains(pages[i]) && pays(after[i]))
        promotions_.add(pages[i]);
    }
  }

  /// Of the fast pages, those without momentum go; those with frequency get a second chance, or
  /// stay (HT, Table 1; FT, Algorithm 2).
  void demote(Nanos now) {
    if (stopped() || held_back() || (ladder_ && ladder_->monitoring())) return;
    if (thrift_ && thrift_->demotion_paused(now)) return;
    // Counts only grow between halvings, so a scan that found nothing would find nothing again.
    const bool remembers = !thrift_ && !ladder_;
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
    if (ladder_ && result.empty) ladder_->empty_scan(now);
    if (remembers && result.empty) fruitless_ = scan_state();
    if (thrift_) thrift_->demoted(result, now);
  }
  /// What the result of a scan depends on.
  std::array<std::uint64_t, 7> scan_state() const {
    return {frequency_ ? frequency_->epoch() : 0,
            momentum_ ? momentum_->epoch() : 0,
            space_.version(),
            threshold_.value(),
            chances_ ? chances_->size() : 0,
            prior_ ? prior_->version() : 0,
            memory_.free_pages(Tier::fast)};
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

  /// Nothing is sampled, by thrift.
  [[nodiscard]] bool stopped() const { return thrift_ && thrift_->monitoring(); }
  [[nodiscard]] bool held_back() const { return gate_ && gate_->closed(); }

  /// The test of ARMS: it stays as hot as it was, for as long as it was counted.
  [[nodiscard]] bool pays(std::uint32_t count) const {
    return !parts_.cost_test ||
           count * accesses_per_sample_ * gain_.ns() >= margin_ * cost_.exchange_ns();
  }
  void measure() {
    const Counters counters = memory_.counters();
    gain_.update(counters);
    cost_.end_round();
    const double loads = counters.loads[0] + counters.loads[1];
    if (counters.samples_taken > samples_)
      accesses_per_sample_ = (loads - loads_) / (counters.samples_taken - samples_);
    loads_ = loads;
    samples_ = counters.samples_taken;
  }

  /// As HybridTier's artifact does: promotions have run dry, and the hit ratio falls.
  void accept_less_hot(Nanos now) {
    const bool hot = static_cast<double>(threshold_.hot_pages()) >= 0.8 * fast_pages_;
    if (frequency_ && !prior_ && !hot && !threshold_.at_floor()) {
      threshold_.lower(1);
    } else {
      thrift_->begin_monitoring(now);
    }
  }
  void wake() {
    if (frequency_) frequency_->halve();
    if (momentum_) momentum_->halve();
    cooled();
    threshold_.reset();
    if (chances_) chances_->clear();
  }

  Unified(const PolicyContext& context, const Knobs& knobs)
      : memory_(context.memory),
        parts_(knobs),
        fast_pages_(static_cast<double>(memory_.capacity(Tier::fast))),
        sampling_hz_(knobs.real("sampling_frequency")),
        margin_(knobs.real("benefit_margin")),
        rate_margin_(knobs.real("rate_margin")),
        batch_(knobs),
        threshold_({.initial = 1}),
        scan_(knobs),
        cost_({.weight = track::ewma_weight(20), .decay = 1.5}) {
    if (parts_.frequency) {
      frequency_.emplace(filter(knobs, 1, context.seed), period(knobs, "frequency_cooling_period"));
      threshold_ = classify::AdaptiveThreshold(
          {.rule = parts_.rule,
           .initial = track::threshold(knobs, "frequency_hot_threshold", **frequency_),
           .floor = parts_.floor
                        ? static_cast<std::uint32_t>(*parts_.floor)
                        : track::threshold(knobs, "frequency_threshold_floor", **frequency_),
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
    filters_ = (frequency_ ? 1U : 0U) + (momentum_ ? 1U : 0U);
    if (parts_.second_chance) chances_.emplace(knobs);
    if (parts_.gate) gate_.emplace(knobs, fast_pages_);
    memory_.set_movers({.threads = 0});  // it calls move_pages() itself
    if (parts_.ladder) {
      ladder_.emplace(memory_, knobs);
    } else if (parts_.thrift) {
      thrift_.emplace(memory_, knobs, track::load_events(knobs), -0.01);
    } else {
      SamplingRequest request{.loads = track::load_events(knobs)};
      if (parts_.store_weight > 0)
        request.stores = {SamplingRequest::Mode::period, knobs.real("store_sampling_period")};
      memory_.set_sampling(request);
    }
  }
  std::unique_ptr<track::Tracker> filter(const Knobs& knobs, double smaller, std::uint64_t seed) {
    auto options = track::cbf_options(knobs, fast_pages_, smaller, seed);
    if (memory_.page_bytes() >= 2ULL << 20) options.counter_bits = 16;  // HT, §4.4
    if (parts_.hashes) options.hashes = static_cast<unsigned>(*parts_.hashes);
    return track::make_cbf(options);
  }
  double period(const Knobs& knobs, const char* name) const {  // in samples
    return knobs.real(name) * fast_pages_;
  }

  Memory& memory_;
  const Parts parts_;
  const double fast_pages_, sampling_hz_, margin_, rate_margin_;
  track::SampleBatch batch_;
  std::optional<Filter> frequency_, momentum_;
  std::uint64_t filters_ = 0;
  classify::AdaptiveThreshold threshold_;
  std::optional<classify::NeighbourPrior> prior_;
  std::uint32_t momentum_hot_ = 0, momentum_low_ = 0;  // promoted from, demotable below

  migrate::MappedRanges space_;
  migrate::DemotionScan scan_;
  std::array<std::uint64_t, 7> fruitless_{};  // state in which a whole scan found nothing
  std::optional<migrate::SecondChance> chances_;
  migrate::PromotionBatch promotions_;
  std::optional<regulate::IntensityLadder> ladder_;
  std::optional<regulate::Thrift> thrift_;
  std::optional<regulate::HarmGate> gate_;
  migrate::MoveCost cost_;
  regulate::LatencyGain gain_;
  double accesses_per_sample_ = 0, loads_ = 0, samples_ = 0;
  std::vector<std::uint32_t> frequencies_, momenta_;  // scratch
  std::vector<Sample> weighted_;
};

/// The same declarations, active for these values of `parent`.
std::vector<KnobDecl> only(std::vector<KnobDecl> knobs, const std::string& parent,
                           const std::vector<KnobValue>& values) {
  for (KnobDecl& knob : knobs) knob.condition = KnobCondition{parent, values};
  return knobs;
}

std::vector<KnobDecl> knobs() {
  using namespace knob;
  const auto text = [](const char* value) { return KnobValue{std::string{value}}; };
  auto ladder = regulate::ladder_knobs("FT, §V-B2");
  std::erase_if(ladder, [](const KnobDecl& knob) { return knob.name == "sampling_frequency"; });
  const std::vector<KnobValue> not_freqtier{text("ours"), text("hybridtier")};
  auto cbf = track::cbf_knobs(4, "HT, §4.2", "HT, §4.2, §6.4.2", "HT, §6.4.2, Table 5",
                              "; always 16 with 2 MiB pages");
  const auto hashes = std::ranges::find(cbf, "cbf_hashes", &KnobDecl::name);
  hashes->meaning += "; 3 as freqtier";
  hashes->condition = KnobCondition{"preset", not_freqtier};
  return list(
      choice("preset", {"ours", "hybridtier", "freqtier"}, "ours",
             "the parts of a published system, or those that the next knobs name"),
      only(list(choice("filters", {"frequency", "momentum", "both"}, "HT, §3.1; FT, §V-A",
                       "what is counted: samples over hours, over seconds, or both"),
                choice("threshold", {"fill", "step", "fixed"}, "HT, §3.1; FT, §V-C(a)",
                       "how the frequency threshold follows the hot set's size: it jumps to where "
                       "that fits the fast tier, or goes there step by step"),
                choice("intensity", {"ladder", "thrift", "fixed"}, "FT, §V-B2; HT, artifact",
                       "whether less is sampled while the hit ratio is stable, as FreqTier or "
                       "HybridTier's artifact does"),
                flag("second_chance", true, "HT, §3.1",
                     "look again at pages of high frequency before they are demoted; takes both "
                     "filters"),
                flag("gate", false, "ours", "stop promoting while the hit ratio does not rise"),
                flag("cost_test", false, "ARMS, 2025",
                     "promote what saves as much as it costs to move it"),
                flag("neighbours", true, "ours",
                     "judge a page by the samples of its neighbourhood, too; takes the frequency "
                     "filter"),
                integer("store_weight", 0, {0, 16}, none, "HeMem, SOSP'21",
                        "load samples that a store sample counts for; 0: stores are not sampled; "
                        "only with fixed intensity")),
           "preset", {text("ours")}),
      track::frequency_knobs("FT, §V-B2; HT, artifact", "HT, §4.1; artifact: tier_and_core"),
      real("store_sampling_period", 10000, {100, 1e6, log}, events_per_sample,
           "From Good to Great, 2025, Table 2", "stores between two samples"),
      only(std::move(ladder), "intensity", {text("ladder")}),
      only(regulate::thrift_knobs("intensity", "thrift"), "intensity", {text("thrift")}),
      track::sample_batch_knob("HT, §4.3"),
      track::threshold_knob("frequency_hot_threshold", 5, "HT, artifact; FT, §V-C(a)",
                            "count from which a page has high frequency, until adapted"),
      only(list(track::threshold_knob("frequency_threshold_floor", 3, "HT, artifact",
                                      "lowest frequency threshold that adaptation may choose; 1 as "
                                      "freqtier")),
           "preset", not_freqtier),
      real("adaptation_period", 1e5, {1000, 1e8, log}, samples, "HT, §3.1; FT, §V-C(a)",
           "samples between adaptations of the frequency threshold"),
      track::threshold_knob("momentum_hot_threshold", 3, "HT, §6.4.3, Fig. 17",
                            "count from which a page has high momentum"),
      track::threshold_knob("demote_momentum_below", 3, "HT, §3.1, Table 1",
                            "momentum below which a fast page may be demoted"),
      real("frequency_cooling_period", 160, {0.1, 1e5, log}, samples_per_page, "HT, artifact",
           "samples per page of the fast tier between halvings of the frequency counters"),
      real("momentum_cooling_period", 0.0656, {1e-4, 1e3, log}, samples_per_page,
           "HT, §3.1, §4.2; artifact",
           "samples per page of the fast tier between halvings of the momentum counters"),
      std::move(cbf),
      real("momentum_cbf_ratio", 128, {1, 4096, log}, ratio, "HT, §4.2",
           "how many times smaller the momentum filter is than the frequency filter"),
      migrate::watermark_knobs("HT, §4.3; artifact"),
      only(migrate::second_chance_knobs("HT, §4.3", "HT, artifact"), "second_chance", {true}),
      migrate::scan_chunk_knob("FT, §V-B1"), regulate::gate_knobs("gate"),
      real("benefit_margin", 1.5, {0, 100}, ratio, "ARMS, 2025, authors' code",
           "times its cost that a move must be expected to save")
          .when("cost_test"),
      only(list(real("neighbourhoods", 256, {1, 65536, log}, none, "ours",
                     "neighbourhoods that the fast tier has room for"),
                real("neighbour_cooling_period", 1, {0.01, 1e4, log}, samples_per_page, "ours",
                     "samples per page of the fast tier between halvings of the neighbourhoods' "
                     "counts"),
                real("rate_margin", 1.25, {1, 10}, ratio, "ours",
                     "times the rate at which it would stay that a page must have to come")),
           "neighbours", {true}));
}

const RegisterPolicy registered{regulate::with_aol<make_policy<Unified>>({
    .name = "unified",
    .family = "hybrid",
    .summary = "the parts of hybridtier and freqtier, each on or off, and what neighbours tell",
    .citation = "ours; parts of HybridTier (ASPLOS 2025), FreqTier (2024), ARMS (2025), HeMem "
                "(SOSP 2021)",
    .knobs = knobs(),
    .traits = {.needs = Need::samples | Need::tier_counters},
})};

}  // namespace
}  // namespace tt
