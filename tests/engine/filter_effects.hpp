// SPDX-License-Identifier: MIT

// What knobs do to the systems that count in Bloom filters: HybridTier, FreqTier, and the one that
// has the parts of both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aol_effects.hpp"
#include "knob_effects.hpp"

namespace tt::test {

// --- Situations ----------------------------------------------------------------------------------

/// Promotions of a slow page after so many samples.
[[nodiscard]] inline auto sampled(std::uint64_t page, unsigned times,
                                  AccessKind kind = AccessKind::load) {
  return [=](Rig& r) {
    r.sample({page}, times, kind);
    r.run(0.05);
    return promotions(r);
  };
}
[[nodiscard]] inline auto gauge_after(const char* gauge, std::uint64_t page, unsigned times) {
  return [=](Rig& r) {
    r.sample({page}, times);
    return r.gauge(gauge);
  };
}
[[nodiscard]] inline double metadata(Rig& r) {
  return static_cast<double>(r.policy->metadata_bytes());
}
/// Calls that ask for ten pages, sampled once.
[[nodiscard]] inline double requests(Rig& r) {
  r.sample(span_of(20, 10));
  return static_cast<double>(r.memory.request_calls);
}
/// Twenty pages sampled once fill the fast tier; the threshold may adapt from then on.
[[nodiscard]] inline double adapted_threshold(Rig& r) {
  r.sample(span_of(0, 20));
  return r.gauge("frequency_threshold");
}
/// 40 batches of one page; three promotions complete in the first 20.
[[nodiscard]] inline double threshold_after_plateau(Rig& r) {
  r.memory.free({{0}, 5});
  r.memory.queue = {{{20}, Tier::fast}, {{21}, Tier::fast}, {{22}, Tier::fast}};
  r.settle();
  r.sample({3}, 20);
  return r.gauge("frequency_threshold");
}
/// Pages promoted of 3000 that were sampled once, when two samples are asked for: over-counting.
[[nodiscard]] inline double overcounted(Rig& r) {
  r.map(0, 3100);
  r.sample(span_of(100, 3000));
  return promotions(r);
}
[[nodiscard]] inline double scanned(Rig& r) {
  r.run(1);
  return static_cast<double>(r.memory.work(Work::scan_step));
}
[[nodiscard]] inline double demoted(Rig& r) {
  r.run(1);
  return demotions(r);
}
/// Likewise, after as many runs as a whole pass of slices takes.
[[nodiscard]] inline double demoted_in_a_pass(Rig& r) {
  r.run(60);
  return demotions(r);
}
/// Likewise, by four batches a second.
[[nodiscard]] inline double demoted_by_batches(Rig& r) {
  for (int n = 0; n < 12; ++n) {
    r.run(0.25);
    r.sample({3000});
  }
  return demotions(r);
}
/// Twenty pages with a count of two, not mapped before: no scan judges them on the way.
[[nodiscard]] inline double demoted_of_lukewarm(Rig& r) {
  r.sample(span_of(0, 20), 2);
  r.map(0, 20);
  return demoted(r);
}
[[nodiscard]] inline double marked(Rig& r) {
  r.sample(span_of(0, 20), 8);
  r.map(0, 20);
  r.run(1);
  return r.gauge("second_chance_pages");
}
[[nodiscard]] inline double demoted_after_revisit(Rig& r) {
  (void)marked(r);
  r.run(30);
  return demotions(r);
}
/// The sampling frequency after two windows of a minute with a promotion in each and these hit
/// ratios.
[[nodiscard]] inline auto sampling_after(double first, double second) {
  return [=](Rig& r) {
    std::uint64_t page = 20;
    for (const double ratio : {first, second}) {
      r.memory.free({{page - 20}, 1});
      r.sample({page++}, 10);
      r.settle();
      r.memory.now.loads[0] += 1000 * ratio;
      r.memory.now.loads[1] += 1000 * (1 - ratio);
      r.run(60);
    }
    return r.gauge("sampling_hz");
  };
}
/// Samples that make pages hot. As HeMem needs it: a sample that finds a page cold makes a request,
/// which is to be served before that of the last sample.
inline void sample_hot(Rig& r, const std::vector<std::uint64_t>& pages, unsigned times,
                       AccessKind kind = AccessKind::load) {
  for (; times > 1; --times) {
    r.sample(pages, 1, kind);
    r.run(0.1);
  }
  r.sample(pages, 1, kind);
}
/// Ten hot pages.
inline void ask_for_ten(Rig& r) {
  sample_hot(r, span_of(20, 10), 8);
  r.run(0.05);
  r.sample(span_of(20, 10), 32);
  r.run(0.05);
}

// --- Entries -------------------------------------------------------------------------------------

/// Of all: filter, batches, and the scan that demotes. `hot_threshold` is the knob that says how
/// frequent a hot page is.
[[nodiscard]] inline std::vector<Entry> filter_entries(const std::string& hot_threshold) {
  const KnobMap sized{{"cbf_counters_per_fast_page", 0.0}};
  const KnobMap two{{hot_threshold, whole(2)}};
  const KnobMap watched{{"promote_watermark", 0.1}, {"demote_watermark", 0.1}};
  return joined(
      {{"sample_batch", 1.0, 10.0, Then::less, requests, {{hot_threshold, whole(1)}}},
       {hot_threshold, whole(3), whole(4), Then::less, sampled(30, 3)},
       {"cbf_error", 0.3, 0.0001, Then::less, overcounted, with(sized, two), 4096, false},
       {"cbf_hashes", whole(1), whole(8), Then::less, metadata, sized},
       {"cbf_counter_bits", std::string{"4"}, std::string{"8"}, Then::more, metadata},
       {"cbf_counters_per_fast_page", 16.0, 256.0, Then::less, overcounted, two, 4096, false},
       {"promote_watermark", 0.0, 0.1, Then::more, demoted, {{"demote_watermark", 0.5}}},
       {"demote_watermark", 0.1, 0.5, Then::more, demoted_in_a_pass,
        with(watched, {{"scan_chunk", 1.0}})},
       {"scan_chunk", 1.0, 8.0, Then::more, scanned, watched}},
      aol_entries(asked_at(ask_for_ten), {{"sample_batch", 400.0}}));
}

/// What HybridTier's entries start from: batches of one sample; nothing adapts, cools, collides or
/// demotes unless the entry says so.
[[nodiscard]] inline KnobMap hybridtier_base() {
  return {{"sample_batch", 1.0},
          {"frequency_hot_threshold", whole(8)},
          {"momentum_hot_threshold", whole(15)},
          {"demote_momentum_below", whole(15)},
          {"adaptation_period", 1e9},
          {"frequency_cooling_period", 1e9},
          {"momentum_cooling_period", 1e9},
          {"cbf_counters_per_fast_page", 256.0},
          {"momentum_cbf_ratio", 1.0},
          {"promote_watermark", 0.0},
          {"demote_watermark", 0.0}};
}
/// HybridTier's own: two filters, thresholds that adapt, and second chances.
[[nodiscard]] inline std::vector<Entry> hybridtier_entries() {
  const KnobMap full{{"promote_watermark", 0.1}, {"demote_watermark", 0.9}};
  const KnobMap soon{{"adaptation_period", 10.0}};
  return joined(
      {{"frequency_threshold_floor", whole(2), whole(6), Then::more, adapted_threshold, soon},
       {"adaptation_period", 10.0, 100.0, Then::more, adapted_threshold},
       {"momentum_hot_threshold", whole(3), whole(4), Then::less, sampled(30, 3)},
       {"demote_momentum_below", whole(2), whole(3), Then::more, demoted_of_lukewarm, full, 4096,
        false},
       {"frequency_cooling_period", 1.0, 3.0, Then::less,
        gauge_after("frequency_coolings", 3, 100)},
       {"momentum_cooling_period", 1.0, 3.0, Then::less, gauge_after("momentum_coolings", 3, 100)},
       {"momentum_cbf_ratio",
        1.0,
        64.0,
        Then::more,
        overcounted,
        {{"momentum_hot_threshold", whole(2)}, {"frequency_hot_threshold", whole(15)}},
        4096,
        false},
       {"second_chance_revisit", 1000.0, 100000.0, Then::less, demoted_after_revisit, full, 4096,
        false},
       {"second_chance_queue", 3.0, 5.0, Then::more, marked, full, 4096, false}},
      frequency_entries(), filter_entries("frequency_hot_threshold"));
}
/// The monitoring of its artifact, which `thrift` turns on.
[[nodiscard]] inline std::vector<Entry> thrift_entries(const KnobMap& thrift) {
  const KnobMap one{{"promote_watermark", 0.1}, {"demote_watermark", 0.9}, {"scan_chunk", 1.0}};
  return {{"plateau_promotions", 2.0, 3.0, Then::less, threshold_after_plateau,
           with(thrift, {{"plateau_batches", whole(0)}})},
          {"plateau_batches", whole(20), whole(40), Then::more,
           gauge_after("frequency_threshold", 3, 40), thrift},
          {"demotion_pause_rate", 1e-6, 1.0, Then::more, demoted_by_batches, with(thrift, one)}};
}
/// FreqTier's levels of sampling, which `ladder` turns on.
[[nodiscard]] inline std::vector<Entry> ladder_entries(const KnobMap& ladder = {}) {
  return {{"sampling_levels", whole(1), whole(3), Then::more, sampling_after(0.7, 0.7), ladder},
          {"sampling_step", 2.0, 10.0, Then::less, sampling_after(0.7, 0.7), ladder},
          {"window", 60.0, 90.0, Then::more, sampling_after(0.7, 0.7), ladder},
          {"stable_band", 0.01, 0.1, Then::less, sampling_after(0.7, 0.75), ladder}};
}

}  // namespace tt::test
