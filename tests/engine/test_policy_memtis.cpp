// SPDX-License-Identifier: MIT

// MEMTIS' rules, one by one.
#include <algorithm>

#include "aol_effects.hpp"
#include "check.hpp"
#include "fake_memory.hpp"
#include "knob_effects.hpp"

using namespace tt;
using test::Entry;
using test::Rig;
using test::span_of;
using test::Then;
using test::with;

namespace {

using Pages = std::vector<std::uint64_t>;
constexpr std::uint64_t huge = 2 << 20;

/// 20 fast pages 0..19, 80 slow ones. The thresholds adapt every 50 samples, and nothing cools.
const KnobMap base{{"adaptation_period", 50.0}, {"cooling_period", 1e9}};
Rig memtis(const KnobMap& scaled = {}, std::uint64_t page_bytes = huge) {
  Rig rig("memtis", {}, with(base, scaled), 20, 200, page_bytes);
  rig.map(0, 100);
  return rig;
}
const KnobMap artifact{{"variant", std::string{"artifact"}}};

}  // namespace

TEST("memtis: the hot threshold takes in as many bins as fit the fast tier") {
  auto rig = memtis();
  CHECK_EQ(rig.gauge("hot_bin"), 1.0);  // "initially 1, 1 and 0"
  CHECK_EQ(rig.gauge("warm_bin"), 1.0);
  CHECK_EQ(rig.gauge("hot_pages"), 100.0);  // new pages are as hot as the threshold
  // 2 + 5 samples: bin 2. The 90 pages of bin 1 do not fit beside these ten.
  rig.sample(span_of(20, 10), 5);
  CHECK_EQ(rig.gauge("hot_bin"), 2.0);
  CHECK_EQ(rig.gauge("hot_pages"), 10.0);
  // 15 more, of which 10 + 15 exceed the tier at bin 2: only what is in bin 3 fits.
  rig.sample(span_of(20, 10), 6);  // 13: bin 3
  rig.sample(span_of(40, 15), 6);  // 8: bin 3, too, so that 25 do not fit either
  CHECK_EQ(rig.gauge("hot_bin"), 4.0);
}

TEST("memtis: a base page is 512 times as hot as a huge page of as many samples") {
  auto rig = memtis({}, 4096);
  CHECK_EQ(rig.gauge("hot_pages"), 100.0);  // new pages are as hot as the threshold
  rig.sample(span_of(20, 10), 5);
  CHECK_EQ(rig.gauge("hot_pages"), 10.0);
  CHECK_EQ(rig.gauge("hot_bin"), 2.0);  // all sampled pages fit
  rig.sample(span_of(20, 30), 5);
  CHECK_EQ(rig.gauge("hot_bin"), 12.0);  // 10 * 512: bin 12; the others are in bin 11
  CHECK_EQ(rig.gauge("hot_pages"), 10.0);
  CHECK_EQ(rig.policy->metadata_bytes(), 1600u);
  CHECK_EQ(memtis().policy->metadata_bytes(), 0u);  // in unused struct pages
}

TEST("memtis: demotes for the hot pages that wait, and for the free space") {
  auto rig = memtis();
  rig.sample(span_of(20, 10), 6);
  CHECK_EQ(rig.gauge("promotion_list_pages"), 10.0);
  CHECK_EQ(rig.memory.queue.size(), 0u);  // in the background only
  rig.run(0.5);
  // The hot set fills half of the tier: bin 1 is warm, and there are no cold pages.
  CHECK_EQ(rig.gauge("warm_bin"), 1.0);
  CHECK((rig.memory.queued(Tier::slow) == span_of(0, 11)));  // 10, and 2 % of 20
  CHECK((rig.memory.queued(Tier::fast) == span_of(20, 10)));
  CHECK(rig.memory.queue.front().second == Tier::slow);
  rig.settle();
  rig.run(2);
  CHECK_EQ(rig.memory.queue.size(), 0u);  // nothing left to do
  CHECK_EQ(rig.memory.free_pages(Tier::fast), 1u);
}

TEST("memtis: a pass asks for the residency of many pages at once") {
  Rig rig("memtis", {}, base, 400, 2000, huge);
  rig.map(0, 1000);
  rig.sample(span_of(400, 300), 6);
  const auto calls = rig.memory.residency_calls;
  rig.run(0.5);
  CHECK(rig.memory.requested.size() >= 600);
  CHECK(rig.memory.residency_calls - calls <= 20);
}

TEST("memtis: cold pages are demoted before warm ones, hot ones never") {
  auto rig = memtis({{"adaptation_period", 780.0}});
  rig.sample(span_of(0, 5), 40);    // 42: bin 5
  rig.sample(span_of(5, 5), 20);    // 22: bin 4, five pages that do not fit beside the 17 of bin 5
  rig.sample(span_of(20, 12), 40);  // bin 5; the 780th sample
  CHECK_EQ(rig.gauge("hot_bin"), 5.0);
  CHECK_EQ(rig.gauge("warm_bin"), 4.0);
  rig.run(0.5);
  Pages victims = span_of(10, 10);  // all cold pages, and three of the warm ones
  for (const std::uint64_t page : {5, 6, 7}) victims.push_back(page);
  CHECK((rig.memory.queued(Tier::slow) == victims));
  CHECK((rig.memory.queued(Tier::fast) == span_of(20, 12)));
}

TEST("memtis: without a warm set, and with a hot set that fills the tier, pages are hot or cold") {
  for (const bool warm : {true, false}) {
    auto rig = memtis({{"warm_set", warm}});
    rig.sample(span_of(20, 10), 5);
    CHECK_EQ(rig.gauge("warm_bin"), warm ? 1.0 : 2.0);
    CHECK(rig.policy->heat({0}) == (warm ? Heat::warm : Heat::cold));
    CHECK(rig.policy->heat({20}) == Heat::hot);
  }
  auto full = memtis({{"adaptation_period", 95.0}});
  full.sample(span_of(20, 19), 5);  // more than 90 % of 20
  CHECK_EQ(full.gauge("hot_bin"), 2.0);
  CHECK_EQ(full.gauge("warm_bin"), 2.0);
}

TEST("memtis: cooling shifts the histogram at once, and halves a page when it is looked at") {
  auto rig = memtis({{"cooling_period", 160.0}, {"adaptation_period", 1e9}});
  rig.sample(span_of(20, 10), 14);  // 16: bin 4
  rig.sample(span_of(50, 10), 2);   // 4: bin 2; the 160th sample cools
  CHECK_EQ(rig.gauge("coolings"), 1.0);
  // Ten of bin 3, ten of bin 1; the untouched 80 are in bin 0.
  CHECK_EQ(rig.gauge("hot_bin"), 1.0);
  CHECK_EQ(rig.gauge("hot_pages"), 20.0);
  CHECK(rig.policy->heat({50}) == Heat::hot);
  CHECK(rig.policy->heat({0}) == Heat::cold);
  rig.run(0.5);                                        // goes through all pages
  CHECK_EQ(rig.memory.work(Work::cooling_step), 25u);  // 100 states of 16 bytes
  CHECK_EQ(rig.gauge("hot_pages"), 20.0);
  CHECK_EQ(rig.memory.queued(Tier::slow).size(), 20u);  // 20 hot pages wait, and the tier has 20
  CHECK_EQ(rig.memory.queued(Tier::fast).size(), 20u);
}

TEST("memtis: a page of the last bin that belongs there still is counted there again") {
  auto rig = memtis({{"cooling_period", 300.0}, {"adaptation_period", 1e9}}, 4096);
  rig.sample({20}, 300);  // cools: 150 * 512 is in bin 15 still
  CHECK_EQ(rig.gauge("hot_bin"), 1.0);
  CHECK_EQ(rig.gauge("hot_pages"), 1.0);
  rig.run(0.5);
  rig.sample({20}, 300);  // cools again: one page all the time
  CHECK_EQ(rig.gauge("hot_pages"), 1.0);
  rig.run(0.5);
  CHECK_EQ(rig.gauge("hot_pages"), 1.0);
}

TEST("memtis: base pages that get a single sample between coolings stay hot") {
  auto rig = memtis({{"cooling_period", 10.0}, {"adaptation_period", 1e9}}, 4096);
  for (int cooling = 0; cooling < 4; ++cooling) {
    rig.sample(span_of(20, 10), 1);
    rig.run(0.5);
    rig.settle();
    CHECK_EQ(rig.gauge("coolings"), cooling + 1.0);
    for (std::uint64_t page = 20; page < 30; ++page) {
      CHECK(rig.policy->heat({page}) == Heat::hot);
      CHECK(rig.memory.where({page}) == Residency::fast);
    }
  }
}

TEST("memtis: what has been cold for longest is demoted first, whatever its address") {
  auto rig = memtis();
  rig.sample(span_of(0, 5), 20);    // hot, in the fast tier
  rig.sample(span_of(20, 10), 20);  // hot, and waiting
  rig.run(0.5);
  CHECK((rig.memory.queued(Tier::slow) == span_of(5, 11)));
  rig.settle();
  // 20 pages that are hotter: the first five are not hot any more, and the last on the list.
  rig.sample(span_of(20, 10), 40);
  rig.sample(span_of(40, 10), 80);
  CHECK(rig.policy->heat({0}) == Heat::cold);
  rig.run(1);  // the first pass fills the page that was free
  Pages victims = span_of(16, 4);
  for (const std::uint64_t page : span_of(0, 5)) victims.push_back(page);
  CHECK((rig.memory.queued(Tier::slow) == victims));
}

TEST("memtis: a page that comes back to the promotion list waits there once") {
  auto rig = memtis();
  rig.sample(span_of(20, 10), 2);   // as hot as all others: listed
  rig.sample(span_of(50, 15), 30);  // the first ten do not fit beside these
  CHECK_EQ(rig.gauge("hot_bin"), 3.0);
  rig.sample({20}, 1);  // not hot any more
  CHECK(rig.policy->heat({20}) != Heat::hot);
  rig.sample({20}, 3);  // hot again
  CHECK(rig.policy->heat({20}) == Heat::hot);
  rig.run(0.5);
  CHECK_EQ(rig.memory.queued(Tier::fast).size(), 16u);
  CHECK_EQ(rig.memory.queued(Tier::slow).size(), 17u);  // and 2 % of 20
}

TEST("memtis: a new page starts as hot as the threshold, and is no victim before it cools") {
  auto rig = memtis();
  rig.sample(span_of(20, 10), 14);  // 16: bin 4
  rig.run(0.5);
  rig.settle();
  const double hot = rig.gauge("hot_bin");
  rig.unmap(11, 5);
  rig.map(100, 5);  // into the room
  CHECK(rig.memory.where({100}) == Residency::fast);
  CHECK(rig.policy->heat({100}) == Heat::hot);
  CHECK_EQ(rig.gauge("hot_bin"), hot);
  rig.sample(span_of(60, 4), 13);
  rig.run(0.5);
  for (const auto page : rig.memory.queued(Tier::slow)) CHECK(page < 100);
}

TEST("memtis: a failed move goes back onto its list; a page that is gone is forgotten") {
  auto rig = memtis();
  rig.sample(span_of(20, 10), 6);
  rig.run(0.5);
  rig.settle([](PageId page, Tier to) {
    if (to == Tier::slow) return Outcome::done;
    return page.value == 20 ? Outcome::busy : page.value == 21 ? Outcome::gone : Outcome::done;
  });
  CHECK_EQ(rig.gauge("promotion_list_pages"), 1.0);
  rig.run(0.5);
  CHECK((rig.memory.queued(Tier::fast) == Pages{20}));
  rig.settle();
  rig.memory.queue_limit = 0;
  rig.sample(span_of(70, 3), 30);
  rig.run(0.5);
  CHECK_EQ(rig.gauge("promotion_list_pages"), 3.0);  // the queue took none
  rig.unmap(70, 2);
  rig.memory.queue_limit = SIZE_MAX;
  rig.run(0.5);
  CHECK((rig.memory.queued(Tier::fast) == Pages{72}));
}

TEST("memtis: a hot page that cools while it waits leaves the promotion list") {
  auto rig = memtis({{"migration_period", 1000.0}});
  rig.sample(span_of(20, 10), 6);
  rig.sample(span_of(50, 20), 20);  // hotter, and they fill the tier
  rig.run(1);
  CHECK((rig.memory.queued(Tier::fast) == span_of(50, 20)));
}

TEST("memtis: the code's threshold rises at once and falls a bin at a time, after coolings") {
  const auto life = [](const KnobMap& knobs) {
    auto rig = memtis(with(knobs, {{"adaptation_period", 200.0}}));
    rig.sample(span_of(20, 25), 8);  // 10: 25 pages of bin 3 do not fit
    const double high = rig.gauge("hot_bin");
    rig.unmap(30, 70);  // of them ten are left
    rig.sample({20}, 200);
    return std::pair{high, rig.gauge("hot_bin")};
  };
  CHECK((life({}) == std::pair{4.0, 2.0}));
  CHECK((life(artifact) == std::pair{4.0, 4.0}));
  CHECK((life(with(artifact, {{"cooling_period", 400.0}})) == std::pair{4.0, 3.0}));
}

TEST("memtis: the code keeps 3 % free of promotions, and cools when 10 GiB were allocated") {
  auto rig = memtis(with(artifact, {{"artifact_free_target", 0.25}}));
  rig.sample(span_of(20, 10), 6);
  rig.run(0.5);
  CHECK_EQ(rig.memory.queued(Tier::slow).size(), 15u);
  CHECK_EQ(rig.memory.queued(Tier::fast).size(), 10u);
  rig.settle();
  rig.sample(span_of(40, 3), 30);
  rig.run(0.5);
  CHECK_EQ(rig.memory.queued(Tier::fast).size(), 0u);  // five are free: above 2 %, and kept
  auto allocating = memtis(with(artifact, {{"artifact_cooling_allocation", 40.0 * 512}}));
  CHECK_EQ(allocating.gauge("coolings"), 1.0);
  CHECK_EQ(memtis({{"artifact_cooling_allocation", 40.0 * 512}}).gauge("coolings"), 0.0);
}

namespace {

double load_period(Rig& r) { return r.memory.sampling.back().loads.value; }
double store_period(Rig& r) { return r.memory.sampling.back().stores.value; }
/// A window in which sampling takes 6.7 % of a processor.
double busy_load_period(Rig& r) {
  r.memory.now.sampling_seconds = 1;
  r.run(20);
  return load_period(r);
}
auto gauge(const char* name, std::uint64_t pages) {
  return [=](Rig& r) {
    r.sample(span_of(20, pages), 5);
    return r.gauge(name);
  };
}
/// Moves toward the tier after a second, with ten hot pages in the slow one.
auto moved(Tier to) {
  return [=](Rig& r) {
    r.sample(span_of(20, 10), 5);
    r.run(1);
    return static_cast<double>(r.memory.queued(to).size());
  };
}

/// Splits that are asked for of four huge pages with four hot subpages each; a quarter of the
/// samples is of the fast tier, which would hold all of them.
double splits(Rig& r) {
  Pages hot;
  for (const std::uint64_t group : {0, 1, 2, 3}) {
    r.memory.make_huge({group * 512});
    for (const std::uint64_t page : {1, 2, 3, 4}) hot.push_back(group * 512 + page);
  }
  r.map(0, 2048);
  r.memory.now.tier[0] = {.reads = 1000, .occupancy_ns = 1e5};
  r.memory.now.tier[1] = {.reads = 1000, .occupancy_ns = 1e6};
  r.sample(hot, 70);  // cools on the way
  r.run(1);           // looks at the subpages
  r.sample(hot, 70);
  r.run(0.5);
  return static_cast<double>(r.memory.reshapes.size());
}

std::vector<Entry> entries() {
  const KnobMap cooling{{"cooling_period", 600.0}};
  std::vector<Entry> all{
      {"variant",
       std::string{"paper"},
       std::string{"artifact"},
       Then::more,
       gauge("warm_bin", 16),
       {{"adaptation_period", 80.0}}},
      {"load_sampling_period", 200.0, 400.0, Then::more, load_period},
      {"store_sampling_period", 1e5, 2e5, Then::more, store_period},
      {"cpu_limit", 0.03, 0.1, Then::less, busy_load_period},
      {"cpu_hysteresis", 0.005, 0.05, Then::less, busy_load_period},
      {"cpu_window", 15.0, 30.0, Then::less, busy_load_period},
      {"adaptation_period", 50.0, 1000.0, Then::less, gauge("hot_bin", 10)},
      {"cooling_period", 20.0, 1000.0, Then::less, gauge("coolings", 10)},
      {"warm_set", true, false, Then::more, gauge("warm_bin", 10)},
      {"warm_fraction", 0.9, 0.4, Then::more, gauge("warm_bin", 10)},
      {"artifact_warm_fraction", 0.9, 0.4, Then::more, gauge("warm_bin", 10), artifact},
      {"migration_period", 500.0, 5000.0, Then::less, moved(Tier::fast)},
      {"free_watermark", 0.02, 0.4, Then::more, moved(Tier::slow)},
      {"artifact_free_target", 0.03, 0.4, Then::more, moved(Tier::slow), artifact},
      {"artifact_cooling_allocation", 1e4, 1e9, Then::less, gauge("coolings", 1), artifact},
  };
  for (Entry& entry : all) entry.page_bytes = huge;
  all =
      test::joined(std::move(all), test::aol_entries(test::asked_at(moved(Tier::fast)), {}, huge));
  for (Entry entry : std::vector<Entry>{
           {"split", true, false, Then::less, splits, cooling},
           {"split_benefit", 0.05, 0.9, Then::less, splits, cooling},
           {"split_beta", 0.4, 0.01, Then::less, splits, cooling},
           {"artifact_split_limit", 1.0, 50.0, Then::more, splits, with(artifact, cooling)}}) {
    entry.mapped = false;
    all.push_back(std::move(entry));
  }
  return all;
}
const test::RegisterEffects effects{"memtis", base, entries()};

}  // namespace
