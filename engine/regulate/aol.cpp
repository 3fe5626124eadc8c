#include "regulate/aol.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

namespace tt::regulate {
namespace {

/// Passes everything through but part of the promotions.
class RegulatedMemory final : public Memory {
 public:
  explicit RegulatedMemory(Memory& inner) : inner_(inner) {}

  void admit(unsigned tenths) { tenths_ = tenths; }

  std::size_t request(Tier to, std::span<const PageId> pages) override {
    if (to == Tier::slow || tenths_ == AolRegulator::all) return inner_.request(to, pages);
    admitted_.clear();
    origin_.clear();
    for (std::size_t i = 0; i < pages.size(); ++i) {
      // Evenly spread: the share is kept over any run of candidates, across requests.
      turn_ += tenths_;
      if (turn_ < AolRegulator::all) continue;
      turn_ -= AolRegulator::all;
      admitted_.push_back(pages[i]);
      origin_.push_back(i);
    }
    if (admitted_.empty()) return pages.size();
    const std::size_t taken = inner_.request(to, admitted_);
    return taken < admitted_.size() ? origin_[taken] : pages.size();
  }

  std::uint64_t page_bytes() const override { return inner_.page_bytes(); }
  std::uint64_t capacity(Tier tier) const override { return inner_.capacity(tier); }
  std::uint64_t free_pages(Tier tier) const override { return inner_.free_pages(tier); }
  void residency(std::span<const PageId> pages, std::span<Residency> out) const override {
    inner_.residency(pages, out);
  }
  void residency(PageId first, std::span<Residency> out) const override {
    inner_.residency(first, out);
  }
  std::uint64_t pending(Tier to) const override { return inner_.pending(to); }
  void set_sampling(const SamplingRequest& request) override { inner_.set_sampling(request); }
  Counters counters() const override { return inner_.counters(); }
  void charge(Work kind, std::uint64_t times) override { inner_.charge(kind, times); }

 private:
  Memory& inner_;
  unsigned tenths_ = AolRegulator::all;
  unsigned turn_ = 0;
  std::vector<PageId> admitted_;
  std::vector<std::size_t> origin_;
};

class AolRegulated final : public Policy {
 public:
  AolRegulated(MakePolicy make, const PolicyContext& context)
      : memory_(context.memory),
        proxy_(context.memory),
        regulator_(context.knobs.real("aol.low"), context.knobs.real("aol.high")),
        interval_(from_millis(context.knobs.real("aol.interval"))),
        inner_(make({proxy_, context.knobs, context.oracle, context.seed})) {}

  void on_map(PageRange range, Nanos now) override { inner_->on_map(range, now); }
  void on_unmap(PageRange range, Nanos now) override { inner_->on_unmap(range, now); }
  Tier placement(PageRange range) const override { return inner_->placement(range); }
  void on_samples(std::span<const Sample> samples, Nanos now) override {
    inner_->on_samples(samples, now);
  }
  void on_migrated(std::span<const MigrationResult> results, Nanos now) override {
    inner_->on_migrated(results, now);
  }

  void tick(Nanos now) override {
    if (now - regulated_ >= interval_) {
      regulated_ = now;
      proxy_.admit(regulator_.update(memory_.counters()));
    }
    // Each side keeps its own period, whichever is shorter.
    if (now - ticked_ >= inner_->tick_period()) {
      ticked_ = now;
      inner_->tick(now);
    }
  }
  Nanos tick_period() const override { return std::min(interval_, inner_->tick_period()); }

  std::uint64_t metadata_bytes() const override { return inner_->metadata_bytes(); }
  void gauges(Gauges& out) const override {
    inner_->gauges(out);
    out["aol_cycles"] = regulator_.aol();
    out["aol_promotion_share"] = static_cast<double>(regulator_.tenths()) / AolRegulator::all;
  }
  Heat heat(PageId page) const override { return inner_->heat(page); }

 private:
  Memory& memory_;
  RegulatedMemory proxy_;
  AolRegulator regulator_;
  Nanos interval_;
  Nanos regulated_{}, ticked_{};
  std::unique_ptr<Policy> inner_;
};

}  // namespace

AolRegulator::AolRegulator(double low, double high) : low_(low), high_(high) {
  if (high < low) {
    throw std::invalid_argument("knob aol.high: found " + to_string(KnobValue{high}) +
                                ", must not be below aol.low (" + to_string(KnobValue{low}) + ")");
  }
}

unsigned AolRegulator::tenths(double aol) const {
  if (aol <= low_) return 0;     // lines 2-3: disable page promotions
  if (aol >= high_) return all;  // lines 4-5: enable all page promotions
  // Lines 6-7: F(l). On 40..100 cycles the borders lie at 50, 60 and 80.
  const double position = (aol - low_) / (high_ - low_);
  if (position <= 1.0 / 6) return 1;
  if (position <= 1.0 / 3) return 1;
  if (position <= 2.0 / 3) return 3;
  return 5;
}

unsigned AolRegulator::update(const Counters& counters) {
  const double reads = counters.a3_reads - last_a3_;
  if (reads > 0) {
    aol_ = (counters.a1_cycles - last_a1_) / reads;
    tenths_ = tenths(aol_);
    last_a1_ = counters.a1_cycles;
    last_a3_ = counters.a3_reads;
  }
  return tenths_;
}

std::unique_ptr<Policy> make_aol_regulated(MakePolicy make, const PolicyContext& context) {
  if (!context.knobs.flag("aol.enabled")) return make(context);
  return std::make_unique<AolRegulated>(make, context);
}

std::span<const KnobDecl> aol_knobs() {
  static const KnobCondition enabled{"aol.enabled", {KnobValue{true}}};
  static const std::vector<KnobDecl> knobs{
      {.name = "aol.enabled",
       .type = KnobType::boolean,
       .initial = false,
       .meaning = "admit promotions in proportion to the amortized offcore latency (AOL)",
       .source = "Soar/Alto, OSDI'25, §5.2, Algorithm 2"},
      {.name = "aol.low",
       .type = KnobType::real,
       .initial = 40.0,
       .min = 0,
       .max = 1000,
       .unit = Unit::cycles,
       .meaning = "AOL at or below which nothing is promoted",
       .source = "Soar/Alto, OSDI'25, §5.2: 40 on Skylake, 25 on Sapphire Rapids",
       .condition = enabled},
      {.name = "aol.high",
       .type = KnobType::real,
       .initial = 100.0,
       .min = 0,
       .max = 2000,
       .unit = Unit::cycles,
       .meaning = "AOL at or above which every candidate is promoted",
       .source = "Soar/Alto, OSDI'25, §5.2: 100 on Skylake, 95 on Sapphire Rapids",
       .condition = enabled},
      {.name = "aol.interval",
       .type = KnobType::real,
       .initial = 1000.0,
       .min = 10,
       .max = 60000,
       .log = true,
       .unit = Unit::milliseconds,
       .meaning = "time over which AOL is measured",
       .source = "Soar/Alto, OSDI'25, §5.2, Algorithm 2",
       .condition = enabled},
  };
  return knobs;
}

}  // namespace tt::regulate
