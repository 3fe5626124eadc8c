// SPDX-License-Identifier: MIT

// pghot: Bharata B Rao, "mm: Hot page tracking and promotion infrastructure", v7, 2026: proposed
// for Linux, not merged.
//
// The version before: https://lore.kernel.org/linux-mm/20260323095104.238982-1-bharata@amd.com/
//
// Several sources tell of accesses to slow pages; one record of a page counts them
// (track/hot_records.hpp). Sources here: NUMA balancing's hint faults, with its scan, and samples
// of the hardware (IBS). A page that was seen freq_threshold times, each time within the window
// after the last, is ready. A thread of the slow tier, kmigrated, wakes every 100 ms, and promotes
// what is ready: as much as the rate limit of memory tiering lets through, of pages whose last
// access is not longer ago than its threshold, which adjusts itself
// (classify/latency_threshold.hpp); without either while much of the fast tier is free. kswapd
// demotes (migrate/reclaim.hpp), woken where there is no room.
//
// Published: records, window (3 s; 5 s for precise ones), threshold, period, limits. Inferred: that
// the latency threshold is adjusted as often as that of NBT, and the period of samples: IBS takes
// one operation in 10,000, so that it sees one miss in as many. Left out: kmigrated's batch of 512
// pages, which nothing depends on here.
//
// records_    accesses lately, of each page
// threshold_  the longest time since the last access, and the rate limit
// free_space_ free pages above the promotion watermark from which on neither matters, or a
//             sixteenth of the tier if that is more
#include <algorithm>
#include <vector>

#include "classify/latency_threshold.hpp"
#include "core/make_policy.hpp"
#include "policy/hint_fault.hpp"
#include "regulate/aol.hpp"
#include "track/hot_records.hpp"

namespace tt {
namespace {

class Pghot final : public KswapdPolicy {
 public:
  explicit Pghot(const PolicyContext& context)
      : KswapdPolicy(context, migrate::KernelMarks(context.knobs).promo, EitherLists{}),
        by_faults_(context.knobs.choice("source") != "samples"),
        by_samples_(context.knobs.choice("source") != "hint_faults"),
        period_(from_millis(context.knobs.real("kmigrated_period"))),
        records_(format(context.knobs), window(context.knobs),
                 static_cast<std::uint32_t>(context.knobs.integer("freq_threshold"))),
        threshold_(latency_knobs(context.knobs), memory_.page_bytes(),
                   from_millis(context.knobs.real("scan_period_max"))),
        free_space_(context.knobs.real("free_space") * (1 << 20) /
                    static_cast<double>(memory_.page_bytes())) {
    memory_.set_watermarks({.reserve = marks_.low});
    if (!by_samples_) return;
    using Mode = SamplingRequest::Mode;
    memory_.set_sampling(
        {.loads = {Mode::period, context.knobs.real("sampling_period")}, .stores = {Mode::off, 0}});
  }

  void on_map(PageRange range, std::uint32_t site, Nanos now) override {
    KswapdPolicy::on_map(range, site, now);
    records_.map(range);
  }
  void on_unmap(PageRange range, Nanos now) override {
    KswapdPolicy::on_unmap(range, now);
    records_.unmap(range);
  }
  void on_faults(std::span<const Fault> faults, Nanos now) override {
    for (const Fault& fault : faults)
      if (is_slow(fault)) record(fault.page, now);
  }
  void on_samples(std::span<const Sample> samples, Nanos now) override {
    if (!by_samples_) return;
    std::uint64_t slow = 0;
    for (const Sample& sample : samples) {
      if (sample.tier != Tier::slow) continue;
      record(sample.page, now);
      ++slow;
    }
    memory_.charge(Work::tracker_update, slow);
  }
  void tick(Nanos now) override {
    KswapdPolicy::tick(now);
    if (by_faults_) clock_.run(now, Tiers::slow);
    if (now - migrated_ < period_) return;
    migrated_ = now;
    kmigrated(now);
  }
  Nanos tick_period() const override {
    const Nanos scan = by_faults_ ? clock_.pause() : period_;
    const Nanos period = std::min(period_, scan);
    return kswapd_.awake() ? std::min(period, migrate::Reclaim::period) : period;
  }

  std::uint64_t metadata_bytes() const override { return records_.bytes() * records_.pages(); }
  void gauges(Gauges& out) const override {
    KswapdPolicy::gauges(out);
    out["hot_threshold_ms"] = 1e3 * seconds(threshold_.value());
    out["ready_pages"] = static_cast<double>(ready_count_);
    out["promotions_asked"] = static_cast<double>(asked_);
  }
  Heat heat(PageId page) const override {
    const std::uint32_t frequency = records_.frequency(page);
    if (frequency >= records_.threshold() || KswapdPolicy::heat(page) == Heat::hot)
      return Heat::hot;
    return frequency > 0 ? Heat::warm : Heat::cold;
  }

 private:
  static track::HotRecords::Format format(const Knobs& knobs) {
    return knobs.choice("records") == "precise" ? track::HotRecords::precise
                                                : track::HotRecords::byte;
  }
  static Nanos window(const Knobs& knobs) {
    return from_millis(
        knobs.real(knobs.choice("records") == "precise" ? "precise_window" : "freq_window"));
  }
  static Knobs latency_knobs(Knobs knobs) {
    knobs.set("hot_threshold", seconds(window(knobs)) * 1e3);
    return knobs;
  }

  void record(PageId page, Nanos now) {
    lists_.found(page, Tier::slow);
    records_.accessed(page, now);
  }
  void kmigrated(Nanos now) {
    records_.take(now, ready_);
    ready_count_ += ready_.size();
    if (ready_.empty()) return;
    where_.resize(ready_.size());
    pages_.clear();
    for (const auto& [page, since] : ready_) pages_.push_back(page);
    memory_.residency(pages_, where_);
    promotions_.clear();
    const std::uint64_t room = room_above(marks_.high);
    const std::uint64_t plenty = room_above(marks_.promo);
    const double spare =
        std::max(free_space_, static_cast<double>(memory_.capacity(Tier::fast)) / 16);
    for (std::size_t i = 0; i < ready_.size(); ++i) {
      if (where_[i] != Residency::slow) continue;
      if (static_cast<double>(plenty) - static_cast<double>(promotions_.size()) > spare) {
        threshold_.reset();
      } else if (!threshold_.admit(ready_[i].since, now)) {
        continue;
      }
      if (promotions_.size() < room) {
        promotions_.push_back(ready_[i].page);
      } else {
        kswapd_.wake();
      }
    }
    // Isolating a page from its list.
    memory_.charge(Work::lru_step, promotions_.size());
    asked_ += promotions_.size();
    if (!promotions_.empty()) memory_.request(Tier::fast, promotions_);
  }

  const bool by_faults_, by_samples_;
  const Nanos period_;
  track::HotRecords records_;
  classify::LatencyThreshold threshold_;
  const double free_space_;  // in pages
  Nanos migrated_{};
  std::uint64_t ready_count_ = 0, asked_ = 0;
  // Scratch.
  std::vector<track::HotRecords::Ready> ready_;
  std::vector<Residency> where_;
  std::vector<PageId> pages_, promotions_;
};

std::vector<KnobDecl> pghot_knobs() {
  using namespace knob;
  const std::string series = "pghot, v7, 2026";
  auto rate = classify::latency_threshold_knobs();
  std::erase_if(rate, [](const KnobDecl& knob) { return knob.name != "promote_rate_limit"; });
  return list(
      choice("records", {"default", "precise"}, series,
             "what is kept of a page: a byte, or four of a finer time and a higher frequency"),
      choice("source", {"hint_faults", "samples", "both"}, series, "what tells of accesses"),
      integer("freq_threshold", 2, {1, 7}, count_per_page, series,
              "accesses from which a page is hot; at most 3 with a byte"),
      real("freq_window", 3000, {128, 3968}, milliseconds, series,
           "longest time between two accesses that count together")
          .when("records", std::string{"default"}),
      real("precise_window", 5000, {100, 16383}, milliseconds, series,
           "the same with precise records")
          .when("records", std::string{"precise"}),
      real("kmigrated_period", 100, {50, 1000, log}, milliseconds, series,
           "time between two passes of kmigrated"),
      real("sampling_period", 10000, {100, 1e6, log}, events_per_sample,
           "inferred: IBS at one operation in 10,000", "load misses between two samples"),
      rate,
      real("free_space", 1024, {1, 1 << 20, log}, mebibytes, series + ", pgdat_free_space_enough",
           "free fast memory beyond which all that is ready is promoted, if a sixteenth is less"),
      migrate::scan_clock_knobs("time between two adjustments of the hot threshold"),
      migrate::kernel_marks_knobs(), migrate::reclaim_or_generation_knobs());
}

const RegisterPolicy pghot_policy{regulate::with_aol<make_policy<Pghot>>({
    .name = "pghot",
    .family = "hint faults",
    .summary = "counts faults and samples in a byte per page; a thread promotes what is hot",
    .citation =
        "Bharata B Rao, mm: Hot page tracking and promotion infrastructure (pghot), v7, 2026",
    .addresses = {"https://lore.kernel.org/linux-mm/20260323095104.238982-1-bharata@amd.com/"},
    .knobs = pghot_knobs(),
    .traits = {.needs = Need::samples | Need::faults | Need::accessed_bits},
})};

}  // namespace
}  // namespace tt
