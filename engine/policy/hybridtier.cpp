// HybridTier: Song et al., "HybridTier: an Adaptive and Lightweight CXL-Memory Tiering System",
// ASPLOS'25. Section numbers below are that paper's; "artifact" is its published code.
//
// Two counting Bloom filters count the samples of each page over two horizons (§3.1):
//   frequency_  long: halved rarely; what a page was over minutes to hours;
//   momentum_   short: halved often; what a page is within seconds.
// threshold_ is the count from which a page has high frequency; it follows the hotness
// distribution. chances_ holds the pages that got a second chance; scan_ walks the address space
// for demotion.
//
//   Table 1          momentum high            momentum low
//   frequency high   promote / no action      promote / no action (second chance)
//   frequency low    promote / (none)         no action / demote
//   (in the slow tier / in the fast tier)
#include <array>
#include <cmath>
#include <deque>
#include <stdexcept>
#include <vector>

#include "classify/adaptive_threshold.hpp"
#include "classify/cooling.hpp"
#include "migrate/address_space.hpp"
#include "migrate/demotion_scan.hpp"
#include "migrate/promotion_batch.hpp"
#include "migrate/second_chance.hpp"
#include "regulate/aol.hpp"
#include "regulate/hit_ratio.hpp"
#include "track/cbf.hpp"
#include "track/coalesce.hpp"

namespace tt {
namespace {

constexpr std::uint64_t huge_page = 2ULL << 20;
// Huge-page mode of the artifact: the floor and the step of the frequency threshold.
constexpr std::uint32_t huge_floor = 600;
constexpr std::uint32_t huge_step = 100;
// Plateau rules of the artifact: promotions are summed over this many batches, and the threshold is
// lowered only while the hot set fills less than this share of the fast tier.
constexpr unsigned plateau_window = 20;
constexpr double plateau_fill = 0.8;
// Monitoring ends when the hit ratio moves; window and band are FreqTier's (2024, §V-B2), of which
// HybridTier is the successor.
constexpr double monitor_seconds = 60;
constexpr double monitor_band = 0.005;

std::vector<KnobDecl> declare() {
  const KnobCondition paper{"variant", {KnobValue{std::string{"paper"}}}};
  const KnobCondition artifact{"variant", {KnobValue{std::string{"artifact"}}}};
  return {
      {.name = "variant",
       .type = KnobType::choice,
       .initial = std::string{"paper"},
       .meaning =
           "where the published code differs from the paper: threshold adaptation, increment "
           "rule, low momentum, monitoring",
       .source = "ASPLOS'25; artifact",
       .choices = {"paper", "artifact"}},
      {.name = "sampling_frequency",
       .type = KnobType::real,
       .initial = 100000.0,
       .min = 100,
       .max = 10000000,
       .log = true,
       .unit = Unit::hertz,
       .meaning = "access samples per second",
       .source = "FreqTier, 2024, §V-B2; artifact"},
      {.name = "sample_batch",
       .type = KnobType::real,
       .initial = 100000.0,
       .min = 1000,
       .max = 10000000,
       .log = true,
       .unit = Unit::samples,
       .meaning = "samples processed together; their hot pages are promoted by one call",
       .source = "§4.3"},
      {.name = "frequency_hot_threshold",
       .type = KnobType::integer,
       .initial = std::int64_t{5},
       .min = 1,
       .max = 65535,
       .unit = Unit::count_per_page,
       .meaning = "count from which a page has high frequency, until adapted; at most what "
                  "cbf_counter_bits can hold",
       .source = "artifact; adapted as in §3.1"},
      {.name = "frequency_threshold_floor",
       .type = KnobType::integer,
       .initial = std::int64_t{3},
       .min = 1,
       .max = 65535,
       .unit = Unit::count_per_page,
       .meaning = "lowest frequency threshold that adaptation may choose",
       .source = "artifact"},
      {.name = "adaptation_period",
       .type = KnobType::real,
       .initial = 100000.0,
       .min = 1000,
       .max = 100000000,
       .log = true,
       .unit = Unit::samples,
       .meaning = "samples between adaptations of the frequency threshold to the fast tier's size",
       .source = "§3.1 (\"similar to Memtis\"); MEMTIS, SOSP'23, §4.2.1",
       .condition = paper},
      {.name = "momentum_hot_threshold",
       .type = KnobType::integer,
       .initial = std::int64_t{3},
       .min = 1,
       .max = 65535,
       .unit = Unit::count_per_page,
       .meaning =
           "count from which a page has high momentum; at most what cbf_counter_bits can hold",
       .source = "§6.4.3, Fig. 17"},
      {.name = "demote_momentum_below",
       .type = KnobType::integer,
       .initial = std::int64_t{3},
       .min = 1,
       .max = 65535,
       .unit = Unit::count_per_page,
       .meaning = "a fast page may be demoted only if its momentum is below this (artifact: 1)",
       .source = "§3.1, Table 1",
       .condition = paper},
      {.name = "frequency_cooling_period",
       .type = KnobType::real,
       .initial = 160.0,
       .min = 0.1,
       .max = 100000,
       .log = true,
       .unit = Unit::samples_per_page,
       .meaning = "samples per fast-tier page between halvings of the frequency counters",
       .source = "artifact; \"high\" in §3.1"},
      {.name = "momentum_cooling_period",
       .type = KnobType::real,
       .initial = 1100000.0,
       .min = 10000,
       .max = 1000000000,
       .log = true,
       .unit = Unit::samples,
       .meaning = "samples between halvings of the momentum counters",
       .source = "artifact; \"within seconds\" in §3.1"},
      {.name = "cbf_error",
       .type = KnobType::real,
       .initial = 0.001,
       .min = 0.000001,
       .max = 0.5,
       .log = true,
       .unit = Unit::ratio,
       .meaning = "false-positive rate that the filters are sized for",
       .source = "§4.2"},
      {.name = "cbf_hashes",
       .type = KnobType::integer,
       .initial = std::int64_t{4},
       .min = 1,
       .max = 8,
       .meaning = "counters per page in a filter (k)",
       .source = "§4.2"},
      {.name = "cbf_counter_bits",
       .type = KnobType::choice,
       .initial = std::string{"4"},
       .meaning = "width of a counter; 16 with 2 MiB pages whatever this says",
       .source = "§4.2, §4.4, §6.4.2",
       .choices = {"4", "8", "16"}},
      {.name = "cbf_counters_per_fast_page",
       .type = KnobType::real,
       .initial = 0.0,
       .min = 0,
       .max = 256,
       .unit = Unit::ratio,
       .meaning = "counters of the frequency filter per fast-tier page; 0: as cbf_error asks",
       .source = "§6.4.2, Table 5"},
      {.name = "momentum_cbf_ratio",
       .type = KnobType::real,
       .initial = 128.0,
       .min = 1,
       .max = 4096,
       .log = true,
       .unit = Unit::ratio,
       .meaning = "how many times smaller the momentum filter is than the frequency filter",
       .source = "§4.2"},
      {.name = "promote_watermark",
       .type = KnobType::real,
       .initial = 0.0125,
       .min = 0,
       .max = 0.9,
       .unit = Unit::ratio,
       .meaning = "share of the fast tier that is free when demotion starts (PROMO_WMARK)",
       .source = "§4.3; artifact"},
      {.name = "demote_watermark",
       .type = KnobType::real,
       .initial = 0.05,
       .min = 0,
       .max = 0.9,
       .unit = Unit::ratio,
       .meaning =
           "share of the fast tier that is free when demotion stops (DEMOTE_WMARK); not below "
           "promote_watermark",
       .source = "§4.3; artifact"},
      {.name = "second_chance_revisit",
       .type = KnobType::real,
       .initial = 60000.0,
       .min = 100,
       .max = 3600000,
       .log = true,
       .unit = Unit::milliseconds,
       .meaning = "time after which a page that got a second chance is looked at again",
       .source = "§4.3"},
      {.name = "second_chance_queue",
       .type = KnobType::real,
       .initial = 10000.0,
       .min = 1,
       .max = 100000000,
       .log = true,
       .unit = Unit::pages,
       .meaning =
           "most pages that wait for a second look; others of high frequency stay where they are",
       .source = "artifact"},
      {.name = "scan_chunk",
       .type = KnobType::real,
       .initial = 1024.0,
       .min = 1,
       .max = 1048576,
       .log = true,
       .unit = Unit::pages,
       .meaning =
           "pages whose residency the demotion scan asks at a time; it stops at a chunk's end",
       .source = "FreqTier, 2024, §V-B1; artifact"},
      {.name = "plateau_promotions",
       .type = KnobType::real,
       .initial = 25000.0,
       .min = 0,
       .max = 100000000,
       .unit = Unit::pages,
       .meaning = "promotions within 20 batches up to which promotion is on a plateau",
       .source = "artifact",
       .condition = artifact},
      {.name = "plateau_batches",
       .type = KnobType::integer,
       .initial = std::int64_t{500},
       .min = 20,
       .max = 1000000,
       .meaning = "batches on a plateau after which sampling stops until the hit ratio changes",
       .source = "artifact",
       .condition = artifact},
      {.name = "huge_frequency_hot_threshold",
       .type = KnobType::integer,
       .initial = std::int64_t{1000},
       .min = 1,
       .max = 65535,
       .unit = Unit::count_per_page,
       .meaning = "frequency_hot_threshold with 2 MiB pages (floor 600)",
       .source = "§4.4; artifact"},
      {.name = "huge_momentum_hot_threshold",
       .type = KnobType::integer,
       .initial = std::int64_t{200},
       .min = 1,
       .max = 65535,
       .unit = Unit::count_per_page,
       .meaning = "momentum_hot_threshold and demote_momentum_below with 2 MiB pages",
       .source = "§4.4; artifact"},
  };
}

class HybridTier final : public Policy {
 public:
  explicit HybridTier(const PolicyContext& context)
      : memory_(context.memory),
        artifact_(context.knobs.choice("variant") == "artifact"),
        huge_(memory_.page_bytes() >= huge_page),
        sampling_hz_(context.knobs.real("sampling_frequency")),
        batch_(batch_size(context.knobs)),
        frequency_(filter(context, 1.0, 0)),
        momentum_(filter(context, context.knobs.real("momentum_cbf_ratio"), 1)),
        frequency_clock_(*frequency_,
                         context.knobs.real("frequency_cooling_period") * fast_pages()),
        momentum_clock_(*momentum_, context.knobs.real("momentum_cooling_period")),
        threshold_(frequency_threshold(context.knobs)),
        momentum_hot_(
            count(context.knobs, huge_ ? "huge_momentum_hot_threshold" : "momentum_hot_threshold")),
        momentum_low_(low_momentum(context.knobs)),
        scan_({.promote_watermark = context.knobs.real("promote_watermark"),
               .demote_watermark = context.knobs.real("demote_watermark"),
               .chunk = context.knobs.real("scan_chunk"),
               .slice = migrate::scan_slice}),
        chances_(from_millis(context.knobs.real("second_chance_revisit")),
                 context.knobs.real("second_chance_queue")),
        plateau_promotions_(context.knobs.real("plateau_promotions")),
        plateau_batches_(static_cast<std::uint64_t>(context.knobs.integer("plateau_batches"))),
        hit_ratio_(from_seconds(monitor_seconds)) {
    sample(true);
  }

  void on_map(PageRange range, std::uint32_t, Nanos) override {
    space_.map(range);
    ++space_version_;
  }
  void on_unmap(PageRange range, Nanos) override { space_.unmap(range); }
  Tier placement(PageRange) const override { return Tier::fast; }  // Linux: local memory first

  void on_samples(std::span<const Sample> samples, Nanos now) override {
    for (const Sample& sample : samples) {
      pending_.push_back(sample);
      if (pending_.size() >= batch_) process_batch(now);
    }
  }

  void tick(Nanos now) override {
    if (monitoring_) monitor(now);
    revisit(now);
    demote(now);
  }
  Nanos tick_period() const override { return from_seconds(1); }

  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    for (const auto& result : results) {
      promoted_ += result.to == Tier::fast && result.outcome == Outcome::done;
    }
  }

  std::uint64_t metadata_bytes() const override {
    return frequency_->bytes() + momentum_->bytes() + space_.bytes() + chances_.bytes() +
           pending_.capacity() * sizeof(Sample) + threshold_.histogram().bins().size_bytes();
  }

  void gauges(Gauges& out) const override {
    out["frequency_threshold"] = threshold_.value();
    out["momentum_threshold"] = momentum_hot_;
    out["hot_pages"] = static_cast<double>(threshold_.hot_pages());
    out["sampling_hz"] = monitoring_ ? 0 : sampling_hz_;
    out["monitoring"] = monitoring_;
    out["second_chance_pages"] = static_cast<double>(chances_.size());
    out["frequency_coolings"] = static_cast<double>(frequency_clock_.epoch());
    out["momentum_coolings"] = static_cast<double>(momentum_clock_.epoch());
  }

  Heat heat(PageId page) const override {
    const std::uint32_t momentum = momentum_->get(page);
    if (frequency_->get(page) >= threshold_.value() || momentum >= momentum_hot_) return Heat::hot;
    return momentum >= momentum_low_ ? Heat::warm : Heat::cold;
  }

 private:
  double fast_pages() const { return static_cast<double>(memory_.capacity(Tier::fast)); }

  static std::size_t batch_size(const Knobs& knobs) {
    return static_cast<std::size_t>(std::max(1.0, std::round(knobs.real("sample_batch"))));
  }

  unsigned counter_bits(const Knobs& knobs) const {
    // §4.4: "HybridTier increases each CBF counter to 16-bit" for huge pages.
    return huge_ ? 16 : static_cast<unsigned>(std::stoul(knobs.choice("cbf_counter_bits")));
  }

  /// A count that the filters can reach.
  std::uint32_t count(const Knobs& knobs, const char* knob) const {
    const auto value = knobs.integer(knob);
    const auto limit = (std::int64_t{1} << counter_bits(knobs)) - 1;
    if (value > limit) {
      throw std::invalid_argument("knob " + std::string(knob) + ": found " + std::to_string(value) +
                                  ", allowed up to " + std::to_string(limit) +
                                  " with cbf_counter_bits " + std::to_string(counter_bits(knobs)));
    }
    return static_cast<std::uint32_t>(value);
  }

  /// §4.2: n is the number of fast-tier pages; the momentum filter is `smaller` times smaller.
  std::unique_ptr<track::Tracker> filter(const PolicyContext& context, double smaller,
                                         std::uint64_t which) const {
    const Knobs& knobs = context.knobs;
    track::CbfOptions options;
    const auto share = [&](double n) {
      return static_cast<std::uint64_t>(std::max(1.0, std::ceil(n / smaller)));
    };
    options.pages = share(fast_pages());
    options.error = knobs.real("cbf_error");
    options.hashes = static_cast<unsigned>(knobs.integer("cbf_hashes"));
    options.counter_bits = counter_bits(knobs);
    options.conservative = !artifact_;  // §4.2: "increment the minimum counters"; artifact: all
    options.seed = context.seed + which;
    if (const double per_page = knobs.real("cbf_counters_per_fast_page"); per_page > 0) {
      options.pages = 1;
      options.min_counters = share(per_page * fast_pages());
    }
    return track::make_cbf(options);
  }

  classify::AdaptiveThreshold::Options frequency_threshold(const Knobs& knobs) const {
    using Rule = classify::AdaptiveThreshold::Rule;
    return {
        .rule = artifact_ ? Rule::fixed : Rule::fill,
        .initial = count(knobs, huge_ ? "huge_frequency_hot_threshold" : "frequency_hot_threshold"),
        .floor = huge_ ? huge_floor : count(knobs, "frequency_threshold_floor"),
        .ceiling = frequency_->max_count(),
        .fast_pages = fast_pages(),
        .period = knobs.real("adaptation_period")};
  }

  std::uint32_t low_momentum(const Knobs& knobs) const {
    if (artifact_) return 1;
    return huge_ ? momentum_hot_ : count(knobs, "demote_momentum_below");
  }

  void sample(bool on) {
    SamplingRequest request;
    if (on) request.loads = {SamplingRequest::Mode::frequency, sampling_hz_};
    memory_.set_sampling(request);
  }

  void process_batch(Nanos now) {
    // A batch may span halvings: each part is counted and judged between two of them.
    for (std::size_t at = 0; at < pending_.size();) {
      const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(
          {pending_.size() - at, frequency_clock_.room(), momentum_clock_.room()}));
      count_samples(std::span{pending_}.subspan(at, part));
      at += part;
      if (threshold_.advance(part)) memory_.charge(Work::threshold_pass, 1);
      if (frequency_clock_.advance(part, memory_)) threshold_.cool();
      momentum_clock_.advance(part, memory_);
    }
    pending_.clear();
    // Room first, so that the promotions queued behind find it.
    demote(now);
    promotions_.flush(memory_);
    if (artifact_) watch_plateau(now);
  }

  /// §4.3: "For each access sample collected, HybridTier records this access in both CBFs. Based on
  /// the updated page frequency and momentum, HybridTier decides whether to promote this page."
  void count_samples(std::span<const Sample> samples) {
    for (const Tier tier : {Tier::fast, Tier::slow}) {
      batch_pages_.clear();
      for (const Sample& sample : samples) {
        if (sample.tier == tier) batch_pages_.push_back(sample.page);
      }
      if (batch_pages_.empty()) continue;
      const auto counts = coalescer_.coalesce(batch_pages_);
      pages_.clear();
      for (const auto& item : counts) pages_.push_back(item.page);
      before_.resize(pages_.size());
      after_.resize(pages_.size());
      frequency_->get(pages_, before_);
      frequency_->increment(counts);
      frequency_->get(pages_, after_);
      for (std::size_t i = 0; i < pages_.size(); ++i) threshold_.move(before_[i], after_[i]);
      momentum_->increment(counts);
      memory_.charge(Work::tracker_update, 2 * pages_.size());
      if (tier == Tier::fast) continue;

      before_.swap(after_);  // before_: frequency, after_: momentum
      momentum_->get(pages_, after_);
      memory_.charge(Work::tracker_lookup, 2 * pages_.size());
      for (std::size_t i = 0; i < pages_.size(); ++i) {
        // Table 1, left of the slash: high frequency or high momentum is promoted.
        const bool hot = before_[i] >= threshold_.value() || after_[i] >= momentum_hot_;
        if (hot && space_.contains(pages_[i])) promotions_.add(pages_[i]);
      }
    }
  }

  void demote(Nanos now) {
    // Counts only grow between halvings, so a scan that found nobody would find nobody again until
    // something that it depends on changes.
    const std::array<std::uint64_t, 6> state{
        frequency_clock_.epoch(), momentum_clock_.epoch(),        threshold_.value(),
        space_version_,           memory_.free_pages(Tier::fast), chances_.size()};
    if (state == fruitless_) return;
    const auto result =
        scan_.run(memory_, space_, [&](auto fast, auto& victims) { judge(fast, victims, now); });
    if (result.empty) {
      fruitless_ = state;
      fruitless_.back() = chances_.size();  // the scan itself may have marked pages
    }
  }

  /// Table 1, right of the slash.
  void judge(std::span<const PageId> fast, std::vector<PageId>& victims, Nanos now) {
    before_.resize(fast.size());
    after_.resize(fast.size());
    frequency_->get(fast, before_);
    momentum_->get(fast, after_);
    memory_.charge(Work::tracker_lookup, 2 * fast.size());
    for (std::size_t i = 0; i < fast.size(); ++i) {
      // "Pages with high momentum but low frequency will not be demoted since they may have been
      // recently promoted."
      if (after_[i] >= momentum_low_) continue;
      if (before_[i] < threshold_.value()) {
        victims.push_back(fast[i]);  // "immediately demotes pages with low frequency and momentum"
      } else {
        // "Pages with high frequency but low momentum are given a second chance."
        chances_.mark(fast[i], before_[i], frequency_clock_.epoch(), now);
      }
    }
  }

  /// §4.3: "later revisits previously marked pages and compares their current access frequency
  /// count against the previously stored count".
  void revisit(Nanos now) {
    std::vector<PageId> pages;
    std::vector<migrate::SecondChance::Marked> marked;
    while (auto next = chances_.due(now)) {
      pages.push_back(next->page);
      marked.push_back(*next);
    }
    if (pages.empty()) return;
    std::vector<Residency> where(pages.size());
    memory_.residency(pages, where);
    memory_.charge(Work::scan_step, pages.size());
    memory_.charge(Work::tracker_lookup, 2 * pages.size());
    std::vector<PageId> victims;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if (where[i] != Residency::fast) continue;  // demoted or freed meanwhile
      const std::uint32_t frequency = frequency_->get(pages[i]);
      const std::uint32_t momentum = momentum_->get(pages[i]);
      // A saturated counter cannot grow; any momentum then shows that the page was accessed.
      const bool accessed =
          migrate::SecondChance::grew(marked[i], frequency, frequency_clock_.epoch()) ||
          (frequency == frequency_->max_count() && momentum > 0);
      if (!accessed && momentum < momentum_low_) victims.push_back(pages[i]);
    }
    if (!victims.empty()) memory_.request(Tier::slow, victims);
  }

  /// Artifact: when promotions run dry, first accept less hot pages; if the fast tier is full of
  /// hot ones already, stop sampling.
  void watch_plateau(Nanos now) {
    if (++window_batches_ < plateau_window) return;
    window_batches_ = 0;
    const bool plateau = static_cast<double>(promoted_) <= plateau_promotions_;
    promoted_ = 0;
    if (!plateau) {
      on_plateau_ = 0;
      return;
    }
    on_plateau_ += plateau_window;
    if (static_cast<double>(threshold_.hot_pages()) < plateau_fill * fast_pages()) {
      const std::uint32_t step = huge_ ? huge_step : 1;
      if (threshold_.value() > threshold_.floor()) {
        threshold_.set(threshold_.value() > step ? threshold_.value() - step : 1);
      }
    }
    if (on_plateau_ >= plateau_batches_) {
      monitoring_ = true;
      reference_.reset();
      hit_ratio_.restart(now, memory_.counters());
      sample(false);
    }
  }

  /// Nothing is sampled; counters tell when the distribution changed.
  void monitor(Nanos now) {
    const auto ratio = hit_ratio_.update(now, memory_.counters());
    if (!ratio) return;
    if (!reference_) {
      reference_ = ratio;
    } else if (std::abs(*ratio - *reference_) > monitor_band) {
      monitoring_ = false;
      on_plateau_ = 0;
      window_batches_ = 0;
      promoted_ = 0;
      sample(true);
    }
  }

  Memory& memory_;
  const bool artifact_;
  const bool huge_;
  const double sampling_hz_;
  const std::size_t batch_;

  std::unique_ptr<track::Tracker> frequency_, momentum_;
  classify::CoolingClock frequency_clock_, momentum_clock_;
  classify::AdaptiveThreshold threshold_;
  const std::uint32_t momentum_hot_;
  const std::uint32_t momentum_low_;  // demotable below it

  migrate::AddressSpace space_;
  std::uint64_t space_version_ = 0;
  migrate::DemotionScan scan_;
  std::array<std::uint64_t, 6> fruitless_{};  // state in which a whole scan found nothing
  migrate::SecondChance chances_;
  migrate::PromotionBatch promotions_;

  // Artifact variant only.
  const double plateau_promotions_;
  const std::uint64_t plateau_batches_;
  std::uint64_t promoted_ = 0;    // in this window of batches
  unsigned window_batches_ = 0;   // batches in it
  std::uint64_t on_plateau_ = 0;  // batches since promotions ran dry
  bool monitoring_ = false;
  regulate::HitRatioWindow hit_ratio_;
  std::optional<double> reference_;  // hit ratio when monitoring began

  // Scratch.
  std::vector<Sample> pending_;
  track::Coalescer coalescer_;
  std::vector<PageId> batch_pages_, pages_;
  std::vector<std::uint32_t> before_, after_;
};

std::unique_ptr<Policy> make(const PolicyContext& context) {
  return std::make_unique<HybridTier>(context);
}

const RegisterPolicy registered{regulate::with_aol<make>({
    .name = "hybridtier",
    .family = "hybrid",
    .summary = "frequency and momentum in counting Bloom filters, second chance on demotion",
    .citation = "Song et al., HybridTier: an Adaptive and Lightweight CXL-Memory Tiering System, "
                "ASPLOS 2025",
    .knobs = declare(),
    .traits = {.mover_threads = 0},
})};

}  // namespace
}  // namespace tt
