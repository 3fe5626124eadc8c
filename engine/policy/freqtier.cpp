// FreqTier: Song et al., "Lightweight Frequency-Based Tiering for CXL Memory Systems", 2024 (arXiv
// 2312.04789v1). Section and algorithm numbers below are that paper's.
//
// filter_ counts the samples of each page in one blocked counting Bloom filter, halved now and
// then; threshold_ is the hot threshold, moved step by step until the hot set has the size of the
// fast tier; scan_ walks the address space for demotion; ladder_ chooses how much is sampled, from
// full rate down to monitoring mode, in which only the hit ratio is watched.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "classify/adaptive_threshold.hpp"
#include "classify/cooling.hpp"
#include "migrate/address_space.hpp"
#include "migrate/demotion_scan.hpp"
#include "migrate/promotion_batch.hpp"
#include "regulate/aol.hpp"
#include "regulate/intensity.hpp"
#include "track/cbf.hpp"
#include "track/coalesce.hpp"

namespace tt {
namespace {

std::vector<KnobDecl> declare() {
  return {
      {.name = "sampling_frequency",
       .type = KnobType::real,
       .initial = 100000.0,
       .min = 100,
       .max = 10000000,
       .log = true,
       .unit = Unit::hertz,
       .meaning = "samples per second at the highest sampling level",
       .source = "§V-B2"},
      {.name = "sampling_levels",
       .type = KnobType::integer,
       .initial = std::int64_t{3},
       .min = 1,
       .max = 6,
       .meaning = "number of sampling levels (100, 10 and 1 kHz by default)",
       .source = "§V-B2"},
      {.name = "sampling_step",
       .type = KnobType::real,
       .initial = 10.0,
       .min = 1.1,
       .max = 100,
       .log = true,
       .unit = Unit::ratio,
       .meaning = "how many times less a level samples than the one above it",
       .source = "§V-B2"},
      {.name = "window",
       .type = KnobType::real,
       .initial = 60.0,
       .min = 1,
       .max = 3600,
       .log = true,
       .unit = Unit::seconds,
       .meaning = "time between two decisions on the sampling level",
       .source = "§V-B2"},
      {.name = "stable_band",
       .type = KnobType::real,
       .initial = 0.005,
       .min = 0,
       .max = 0.5,
       .unit = Unit::ratio,
       .meaning = "change of the hit ratio between windows that counts as stable",
       .source = "§V-B2"},
      {.name = "sample_batch",
       .type = KnobType::real,
       .initial = 100000.0,
       .min = 1000,
       .max = 10000000,
       .log = true,
       .unit = Unit::samples,
       .meaning =
           "samples coalesced and processed together; their hot pages are promoted by one call",
       .source = "§IV-C"},
      {.name = "hot_threshold",
       .type = KnobType::integer,
       .initial = std::int64_t{5},
       .min = 1,
       .max = 65535,
       .unit = Unit::count_per_page,
       .meaning =
           "count from which a page is hot, until adapted; at most what cbf_counter_bits can "
           "hold",
       .source = "§V-C(a)"},
      {.name = "hot_threshold_floor",
       .type = KnobType::integer,
       .initial = std::int64_t{1},
       .min = 1,
       .max = 65535,
       .unit = Unit::count_per_page,
       .meaning = "lowest threshold that adaptation may choose",
       .source = "ours: the paper sets no limit, a count of one is the least that means anything"},
      {.name = "adaptation_period",
       .type = KnobType::real,
       .initial = 100000.0,
       .min = 1000,
       .max = 100000000,
       .log = true,
       .unit = Unit::samples,
       .meaning =
           "samples between steps of the hot threshold toward a hot set of the fast tier's size",
       .source = "§V-C(a); period not published: one batch"},
      {.name = "cooling_period",
       .type = KnobType::real,
       .initial = 160.0,
       .min = 0.1,
       .max = 100000,
       .log = true,
       .unit = Unit::samples_per_page,
       .meaning = "samples per fast-tier page between halvings of the counters",
       .source = "§V-A (\"periodically\"); value of HybridTier's artifact, its successor"},
      {.name = "cbf_error",
       .type = KnobType::real,
       .initial = 0.001,
       .min = 0.000001,
       .max = 0.5,
       .log = true,
       .unit = Unit::ratio,
       .meaning = "false-positive rate that the filter is sized for",
       .source = "§V-A"},
      {.name = "cbf_hashes",
       .type = KnobType::integer,
       .initial = std::int64_t{3},
       .min = 1,
       .max = 8,
       .meaning = "counters per page in the filter (k)",
       .source = "§V-A"},
      {.name = "cbf_counter_bits",
       .type = KnobType::choice,
       .initial = std::string{"4"},
       .meaning = "width of a counter",
       .source = "§V-A",
       .choices = {"4", "8", "16"}},
      {.name = "cbf_counters_per_fast_page",
       .type = KnobType::real,
       .initial = 0.0,
       .min = 0,
       .max = 256,
       .unit = Unit::ratio,
       .meaning = "counters of the filter per fast-tier page; 0: as cbf_error asks",
       .source = "§VII-E"},
      {.name = "cbf_blocked",
       .type = KnobType::boolean,
       .initial = true,
       .meaning = "keep the counters of a page in one 64-byte line",
       .source = "§V-C(b)"},
      {.name = "promote_watermark",
       .type = KnobType::real,
       .initial = 0.0125,
       .min = 0,
       .max = 0.9,
       .unit = Unit::ratio,
       .meaning = "share of the fast tier that is free when demotion starts (PROMO_WMARK)",
       .source = "§V-B; value of HybridTier's artifact"},
      {.name = "demote_watermark",
       .type = KnobType::real,
       .initial = 0.05,
       .min = 0,
       .max = 0.9,
       .unit = Unit::ratio,
       .meaning =
           "share of the fast tier that is free when demotion stops (DEMOTE_WMARK); not below "
           "promote_watermark",
       .source = "§V-B; value of HybridTier's artifact"},
      {.name = "scan_chunk",
       .type = KnobType::real,
       .initial = 1024.0,
       .min = 1,
       .max = 1048576,
       .log = true,
       .unit = Unit::pages,
       .meaning =
           "pages whose residency the demotion scan asks at a time; it stops at a chunk's end",
       .source = "§V-B1 (\"a batch of contiguous pages\")"},
  };
}

class FreqTier final : public Policy {
 public:
  explicit FreqTier(const PolicyContext& context)
      : memory_(context.memory),
        batch_(static_cast<std::size_t>(
            std::max(1.0, std::round(context.knobs.real("sample_batch"))))),
        filter_(filter(context)),
        clock_(*filter_, context.knobs.real("cooling_period") * fast_pages()),
        threshold_({.rule = classify::AdaptiveThreshold::Rule::step,
                    .initial = count(context.knobs, "hot_threshold"),
                    .floor = count(context.knobs, "hot_threshold_floor"),
                    .ceiling = filter_->max_count(),
                    .fast_pages = fast_pages(),
                    .period = context.knobs.real("adaptation_period")}),
        scan_({.promote_watermark = context.knobs.real("promote_watermark"),
               .demote_watermark = context.knobs.real("demote_watermark"),
               .chunk = context.knobs.real("scan_chunk"),
               .slice = migrate::scan_slice}),
        ladder_({.levels = levels(context.knobs),
                 .window = from_seconds(context.knobs.real("window")),
                 .stable_band = context.knobs.real("stable_band")}) {
    set_sampling();
  }

  void on_map(PageRange range, std::uint32_t, Nanos) override { space_.map(range); }
  void on_unmap(PageRange range, Nanos) override { space_.unmap(range); }
  Tier placement(PageRange) const override { return Tier::fast; }  // §V-B: local DRAM first

  void on_samples(std::span<const Sample> samples, Nanos now) override {
    for (const Sample& sample : samples) {
      pending_.push_back(sample);
      if (pending_.size() >= batch_) process_batch(now);
    }
  }

  void tick(Nanos now) override {
    if (ladder_.update(now, memory_.counters())) set_sampling();
    demote(now);
  }
  Nanos tick_period() const override { return from_seconds(1); }

  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    for (const auto& result : results) {
      if (result.to == Tier::fast && result.outcome == Outcome::done) ladder_.promoted(1);
    }
  }

  std::uint64_t metadata_bytes() const override {
    return filter_->bytes() + space_.bytes() + pending_.capacity() * sizeof(Sample) +
           threshold_.histogram().bins().size_bytes();
  }

  void gauges(Gauges& out) const override {
    out["hot_threshold"] = threshold_.value();
    out["hot_pages"] = static_cast<double>(threshold_.hot_pages());
    out["sampling_hz"] = ladder_.frequency();
    out["sampling_level"] = static_cast<double>(ladder_.level());
    out["monitoring"] = ladder_.monitoring();
    out["coolings"] = static_cast<double>(clock_.epoch());
  }

  Heat heat(PageId page) const override {
    return filter_->get(page) >= threshold_.value() ? Heat::hot : Heat::cold;
  }

 private:
  double fast_pages() const { return static_cast<double>(memory_.capacity(Tier::fast)); }

  /// §V-A: "large enough to store all pages in local DRAM" at the error rate.
  std::unique_ptr<track::Tracker> filter(const PolicyContext& context) const {
    const Knobs& knobs = context.knobs;
    track::CbfOptions options;
    options.pages = std::max<std::uint64_t>(1, memory_.capacity(Tier::fast));
    options.error = knobs.real("cbf_error");
    options.hashes = static_cast<unsigned>(knobs.integer("cbf_hashes"));
    options.counter_bits = static_cast<unsigned>(std::stoul(knobs.choice("cbf_counter_bits")));
    options.blocked = knobs.flag("cbf_blocked");
    options.seed = context.seed;
    if (const double per_page = knobs.real("cbf_counters_per_fast_page"); per_page > 0) {
      options.pages = 1;
      options.min_counters = static_cast<std::uint64_t>(std::ceil(per_page * fast_pages()));
    }
    return track::make_cbf(options);
  }

  /// A count that the filter can reach.
  std::uint32_t count(const Knobs& knobs, const char* knob) const {
    const auto value = knobs.integer(knob);
    if (value > filter_->max_count()) {
      throw std::invalid_argument("knob " + std::string(knob) + ": found " + std::to_string(value) +
                                  ", allowed up to " + std::to_string(filter_->max_count()) +
                                  " with cbf_counter_bits " + knobs.choice("cbf_counter_bits"));
    }
    return static_cast<std::uint32_t>(value);
  }

  static std::vector<double> levels(const Knobs& knobs) {
    std::vector<double> result{knobs.real("sampling_frequency")};
    while (static_cast<std::int64_t>(result.size()) < knobs.integer("sampling_levels")) {
      result.push_back(result.back() / knobs.real("sampling_step"));
    }
    return result;
  }

  void set_sampling() {
    SamplingRequest request;
    if (!ladder_.monitoring()) {
      request.loads = {SamplingRequest::Mode::frequency, ladder_.frequency()};
    }
    memory_.set_sampling(request);
  }

  void process_batch(Nanos now) {
    // A batch may span halvings: each part is counted and judged between two of them.
    for (std::size_t at = 0; at < pending_.size();) {
      const auto part =
          static_cast<std::size_t>(std::min<std::uint64_t>(pending_.size() - at, clock_.room()));
      count_samples(std::span{pending_}.subspan(at, part));
      at += part;
      if (threshold_.advance(part)) memory_.charge(Work::threshold_pass, 1);
      if (clock_.advance(part, memory_)) threshold_.cool();
    }
    pending_.clear();
    // Room first, so that the promotions queued behind find it.
    demote(now);
    promotions_.flush(memory_);
  }

  /// Algorithm 1, with the increments of a page coalesced (§V-C(c)).
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
      filter_->get(pages_, before_);
      filter_->increment(counts);    // line 3
      filter_->get(pages_, after_);  // line 4
      memory_.charge(Work::tracker_update, pages_.size());
      memory_.charge(Work::tracker_lookup, pages_.size());
      for (std::size_t i = 0; i < pages_.size(); ++i) {
        threshold_.move(before_[i], after_[i]);
        if (tier == Tier::slow && after_[i] >= threshold_.value() && space_.contains(pages_[i])) {
          promotions_.add(pages_[i]);  // line 5
        }
      }
    }
  }

  /// Algorithm 2.
  void demote(Nanos now) {
    if (ladder_.monitoring()) return;
    const auto result = scan_.run(memory_, space_, [&](auto fast, auto& victims) {
      after_.resize(fast.size());
      filter_->get(fast, after_);
      memory_.charge(Work::tracker_lookup, fast.size());
      for (std::size_t i = 0; i < fast.size(); ++i) {
        if (after_[i] < threshold_.value()) victims.push_back(fast[i]);  // lines 7-8
      }
    });
    // §V-B2: "If no more cold pages are found, FreqTier enters monitoring mode."
    if (result.empty && ladder_.empty_scan(now, memory_.counters())) set_sampling();
  }

  Memory& memory_;
  const std::size_t batch_;
  std::unique_ptr<track::Tracker> filter_;
  classify::CoolingClock clock_;
  classify::AdaptiveThreshold threshold_;
  migrate::AddressSpace space_;
  migrate::DemotionScan scan_;
  migrate::PromotionBatch promotions_;
  regulate::IntensityLadder ladder_;

  // Scratch.
  std::vector<Sample> pending_;
  track::Coalescer coalescer_;
  std::vector<PageId> batch_pages_, pages_;
  std::vector<std::uint32_t> before_, after_;
};

std::unique_ptr<Policy> make(const PolicyContext& context) {
  return std::make_unique<FreqTier>(context);
}

const RegisterPolicy registered{regulate::with_aol<make>({
    .name = "freqtier",
    .family = "frequency",
    .summary = "one counting Bloom filter, adaptive threshold, sampling that backs off when stable",
    .citation = "Song et al., Lightweight Frequency-Based Tiering for CXL Memory Systems, 2024, "
                "arXiv:2312.04789v1",
    .knobs = declare(),
    .traits = {.mover_threads = 0},
})};

}  // namespace
}  // namespace tt
