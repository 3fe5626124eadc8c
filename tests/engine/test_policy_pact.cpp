// SPDX-License-Identifier: MIT

#include "aol_effects.hpp"
#include "check.hpp"
#include "classify/bins.hpp"
#include "core/rng.hpp"
#include "fake_memory.hpp"
#include "knob_effects.hpp"
#include "sim/scale.hpp"
#include "track/scores.hpp"

using namespace tt;
using test::Entry;
using test::Rig;
using test::span_of;
using test::Then;
using test::whole;
using Pages = std::vector<std::uint64_t>;

namespace {

/// A window of 20 ms in which the slow tier is read so often, at this parallelism, and these pages
/// are sampled.
void window(Rig& r, const Pages& pages, unsigned times = 1, double mlp = 1, double reads = 1000) {
  TierCounters& slow = r.memory.now.tier[index(Tier::slow)];
  slow.reads += reads;
  slow.occupancy_ns += reads * 200;
  slow.busy_ns += reads * 200 / mlp;
  r.sample(pages, times);
  r.run(0.02);
}
const KnobMap base{{"initial_width", 1.0}, {"reclaim_scan_rate", 1.0}};

// Ten fast pages 0..9, thirty slow ones.
Rig pact(const KnobMap& knobs = {}) {
  Rig rig("pact", {}, test::with(base, knobs), 10, 100);
  rig.map(0, 40);
  return rig;
}
auto promoted(Pages pages, unsigned windows = 1) {
  return [=](Rig& r) {
    for (unsigned n = 0; n < windows; ++n) window(r, pages);
    return test::promotions(r);
  };
}
/// Ten slow pages whose PACs lie apart, one window after the other.
double spread(Rig& r, unsigned windows, unsigned first = 1) {
  for (; windows > 0; --windows) {
    Pages pages;
    for (std::uint64_t i = 0; i < 10; ++i) pages.insert(pages.end(), first + i, 40 + i);
    window(r, pages);
  }
  return r.gauge("bin_width");
}
/// Demotions in three seconds after three promotions that found no room; nothing is accessed.
double demoted(Rig& r, double seconds) {
  r.run(1);
  std::vector<std::uint64_t> mask(2);
  r.memory.accessed({{0}, 100}, mask, true);
  std::vector<MigrationResult> results(3, {.page = {40}, .outcome = Outcome::no_space});
  r.policy->on_migrated(results, r.now);
  r.run(seconds);
  return test::demotions(r);
}

std::vector<Entry> entries() {
  return {
      {"sampling_period", 100.0, 200.0, Then::more, test::load_rate},
      {"window", 20.0, 200.0, Then::less, promoted(span_of(30, 5))},
      {"bins", 20.0, 2000.0, Then::less, promoted(span_of(30, 5))},
      {"bin_sample", whole(4), whole(100), Then::differs, [](Rig& r) { return spread(r, 1); }},
      {"crowd",
       0.01,
       1.0,
       Then::less,
       [](Rig& r) { return spread(r, 1); },
       {{"bin_sample", whole(8)}}},
      {"initial_width", 1.0, 100.0, Then::less, promoted(span_of(30, 5))},
      {"max_pages", 2.0, 4.0, Then::more, promoted(span_of(30, 5))},
      {"decay",
       1.0,
       0.1,
       Then::less,
       [](Rig& r) {
         for (int n = 0; n < 4; ++n) window(r, span_of(30, 20), 1, 1, 200);
         return test::promotions(r);
       },
       {{"decay_period", 20.0}}},
      {"decay_period",
       20.0,
       1e9,
       Then::more,
       [](Rig& r) {
         for (int n = 0; n < 4; ++n) window(r, span_of(30, 20), 1, 1, 200);
         return test::promotions(r);
       },
       {{"decay", 0.1}}},
      {"tracked_pages", 3.0, 5.0, Then::more,
       [](Rig& r) {
         window(r, span_of(30, 10));
         return r.gauge("tracked_pages");
       }},
      {"counted_pages",
       1.0,
       1000.0,
       Then::more,
       [](Rig& r) { return spread(r, 1); },
       {{"bin_sample", whole(8)}}},
      {"demotion_period", 1000.0, 10000.0, Then::less, [](Rig& r) { return demoted(r, 3); }},
      {"demotion_margin", 0.0, 4.0, Then::more, [](Rig& r) { return demoted(r, 3); }},
      {"reclaim_scan_rate", 2 * 4096.0 / (1 << 30), 1.0, Then::more,
       [](Rig& r) { return demoted(r, 1); }},
      {"lru_gib", 1024.0, 0.01, Then::differs,
       [](Rig& r) {
         // All pages are accessed again and again, so that they become active.
         std::vector<MigrationResult> results(3, {.page = {40}, .outcome = Outcome::no_space});
         r.policy->on_migrated(results, r.now);
         for (int n = 0; n < 5; ++n) {
           for (std::uint64_t page = 0; page < 20; ++page)
             r.memory.access({page}, AccessKind::load, r.now);
           r.run(1);
         }
         return static_cast<double>(r.memory.work(Work::lru_step));
       }},
  };
}
const test::RegisterEffects effects{
    "pact", base,
    test::joined(entries(),
                 test::aol_entries(test::asked_at([](Rig& r) { window(r, span_of(30, 10)); })))};

}  // namespace

TEST("scores: sums, a limit on pages, decay when looked at") {
  track::Scores scores(2, 0.5);
  CHECK_EQ(scores.add({1}, 3), 3.0);
  CHECK_EQ(scores.add({1}, 3), 6.0);
  CHECK_EQ(scores.add({900}, 1), 1.0);
  CHECK_EQ(scores.add({5}, 1), 0.0);  // no place
  CHECK_EQ(scores.size(), 2U);
  scores.decay();
  scores.decay();
  CHECK_EQ(scores.add({1}, 1), 2.5);
  scores.erase({{0}, 100});
  CHECK_EQ(scores.size(), 1U);
  CHECK_EQ(scores.add({5}, 1), 1.0);
}

TEST("bins: the rule of Freedman and Diaconis, doubled where the last bin is crowded") {
  classify::AdaptiveBins bins({.bins = 5, .width = 10, .sample = 40});
  unsigned last = 0;
  for (int n = 0; n < 40; ++n) last += bins.add(n);
  CHECK_EQ(last, 0U);  // from 40 on
  bins.end_round(1000);
  CHECK_NEAR(bins.width(), 2.0 * 20 / 10 / 2, 1e-9);
  for (int n = 0; n < 40; ++n) last += bins.add(n + 0.5);
  CHECK_EQ(last, 32U);  // from 8 on: 80 %
  bins.end_round(1000);
  CHECK_NEAR(bins.width(), 2.0 * 20 / 10 * 2, 1e-9);
  bins.add(7);
  bins.end_round(1e9);  // too few values: the round goes on
  CHECK_NEAR(bins.width(), 8.0, 1e-9);
  for (int n = 1; n < 40; ++n) bins.add(7);
  bins.end_round(1000);
  CHECK_NEAR(bins.width(), 8.0, 1e-9);  // all are alike
}

TEST("bins: of many values a sample is drawn without favour") {
  double sum = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    classify::AdaptiveBins bins({.bins = 5, .width = 1e9, .sample = 100, .seed = seed});
    for (int n = 0; n < 4000; ++n) bins.add(n);
    bins.end_round(1);
    sum += bins.width();
  }
  CHECK_NEAR(sum / 50, 2000, 100);
}

TEST("pact: samples of the slow tier share the stall of a window by parallelism") {
  auto rig = pact({{"initial_width", 1e6}});
  window(rig, {20, 21}, 1, 4);
  CHECK_NEAR(rig.gauge("slow_mlp"), 4, 1e-9);
  CHECK_EQ(rig.gauge("tracked_pages"), 2.0);
  CHECK_EQ(rig.policy->metadata_bytes(), 50U);
  auto fast = pact();
  window(fast, {0, 1}, 10);  // of the fast tier
  CHECK_EQ(fast.gauge("tracked_pages"), 0.0);
  CHECK_EQ(fast.memory.sampling.back().fast_share, 0.0);
}

TEST("pact: a page that is chased is promoted before one that is swept as often") {
  // Bins of 100 from 1900 on: 1000 a window for the one, 100 for the other.
  auto chased = pact({{"initial_width", 100.0}});
  auto swept = pact({{"initial_width", 100.0}});
  for (int n = 0; n < 2; ++n) {
    window(chased, {30}, 5, 1);
    window(swept, {30}, 5, 10);
  }
  CHECK((chased.memory.queued(Tier::fast) == Pages{30}));
  CHECK(chased.policy->heat({30}) == Heat::hot);
  CHECK(swept.memory.queue.empty());
  CHECK(swept.policy->heat({30}) == Heat::warm);
}

TEST("pact: no more than so many promotions in a window, the remainder carried") {
  auto rig = pact({{"max_pages", 1.5}});
  window(rig, span_of(30, 8));
  CHECK_EQ(rig.memory.queued(Tier::fast).size(), 1U);
}

TEST("pact: as many pages are demoted as were promoted, oldest first, and not accessed ones") {
  auto rig = pact();
  rig.run(1);  // the pages are found
  std::vector<std::uint64_t> mask(1);
  rig.memory.accessed({{0}, 40}, mask, true);
  for (std::uint64_t page = 0; page < 3; ++page)
    rig.memory.access({page}, AccessKind::load, rig.now);
  window(rig, {30, 31});
  rig.settle();  // no room
  CHECK_EQ(rig.gauge("demotions_owed"), 2.0);
  rig.run(1);
  CHECK((rig.memory.queued(Tier::slow) == Pages{3, 4}));
  CHECK_EQ(rig.gauge("demotions_owed"), 0.0);
  rig.settle();
  window(rig, {30, 31});
  rig.settle();
  CHECK(rig.memory.where({30}) == Residency::fast);
  CHECK(rig.memory.where({31}) == Residency::fast);
}

TEST("pact: what depends on the number of pages is scaled") {
  const auto& declared = policy("pact").knobs;
  const Knobs scaled = sim::scale_knobs(declared, resolve(declared, {}), 64, 1e6);
  CHECK_NEAR(scaled.real("max_pages"), 64, 0);
  CHECK_NEAR(scaled.real("tracked_pages"), 2e6 / 64, 0);
  CHECK_NEAR(scaled.real("counted_pages"), 1.0 / 64, 0);
}
