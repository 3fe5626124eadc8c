// SPDX-License-Identifier: MIT

#include <algorithm>
#include <memory>

#include "check.hpp"
#include "probed.hpp"

using namespace tt;
using test::demoted_after;
using test::demotions;
using test::Entry;
using test::found_in_new_mapping;
using test::gauge_after;
using test::half;
using test::nothing;
using test::page_mib;
using test::pages;
using test::probed;
using test::promoted_after;
using test::promotions;
using test::Rig;
using test::Then;
using test::whole;
using test::with;

namespace {

// 20 fast pages 0..19, 80 slow ones; ten samples in 100 ms, which stay, and schemes as often.
const KnobMap base{{"sampling_interval", 10.0}, {"aggregation_samples", whole(10)},
                   {"update_interval", 500.0},  {"min_regions", 10.0},
                   {"max_regions", 100.0},      {"access_goal", 0.0},
                   {"apply_interval", 100.0},   {"quota_least", 1 * page_mib},
                   {"young_filter", false}};
Rig damon(const KnobMap& more = {}) {
  Rig rig("damon-goal", {}, with(base, more), 20, 4000);
  rig.map(0, 100);
  return rig;
}
/// As the kernel has it: a byte, which is next to nothing of a page.
const KnobMap from_a_byte{{"quota_least", 1e-6}};

}  // namespace

TEST("damon-goal: its defaults are those of damo's script") {
  const Knobs values = resolve(policy("damon-goal").knobs, {});
  const std::map<std::string, double> published{
      {"access_goal", 0.04},    {"goal_aggregations", 3},  {"sampling_min", 5},
      {"sampling_max", 10000},  {"sampling_interval", 5},  {"aggregation_samples", 20},
      {"min_regions", 10},      {"max_regions", 1000},     {"promote_access_min", 0.05},
      {"demote_access_max", 0}, {"apply_interval", 1000},  {"quota_interval", 1000},
      {"quota_size", 200},      {"fast_free_goal", 0.005}, {"fast_used_goal", 0.997}};
  for (const auto& [name, value] : published) CHECK_EQ(values.real(name), value);
}

TEST("damon-goal: demotion begins slowly once the fast tier is full, and ends when there is room") {
  auto rig = damon({{"fast_free_goal", 0.2}});
  probed(rig, 0.95, nothing());
  CHECK_EQ(demotions(rig), 2.0);  // the least, doubled
  probed(rig, 1, nothing());
  CHECK_EQ(demotions(rig), 6.0);
  rig.settle();  // 6 of 20 are free: 1.5 times the goal
  probed(rig, 1, nothing());
  CHECK_EQ(demotions(rig), 2.0);  // half of four
  rig.settle();                   // twice the goal
  probed(rig, 3, nothing());
  CHECK_NEAR(rig.gauge("demote_quota_pages"), 1, 1e-9);
}

TEST("damon-goal: a promotion quota that grew on an empty tier does not shrink to nothing") {
  auto rig = damon(from_a_byte);
  probed(rig, 1, pages(20, 10));
  CHECK(promotions(rig) >= 10);  // at once, though the tier is full
  auto late = damon(with(from_a_byte, {{"head_start", 0.0}}));
  probed(late, 5, pages(20, 10));
  CHECK_EQ(promotions(late), 0.0);
  CHECK_EQ(demotions(late), 0.0);
  probed(late, 10, pages(20, 10));
  CHECK(demotions(late) >= 10);  // 2^12 bytes after as many seconds
}

TEST("damon-goal: schemes act between two aggregations, by moving counts") {
  // An aggregation takes ten seconds; after the first, they see what has changed since.
  auto rig = damon({{"sampling_interval", 100.0}, {"aggregation_samples", whole(100)}});
  probed(rig, 11, pages(20, 10));
  CHECK(promotions(rig) >= 10);
  rig.settle();
  CHECK_EQ(std::ranges::count(rig.memory.queued(Tier::fast), 60), 0);
  probed(rig, 2, pages(60, 10));
  CHECK_EQ(std::ranges::count(rig.memory.queued(Tier::fast), 60), 1);
}

TEST("damon-goal: intervals follow how much is seen") {
  auto rig = damon({{"access_goal", 0.2}, {"sampling_min", 5.0}, {"sampling_max", 40.0}});
  probed(rig, 3, nothing());
  CHECK_NEAR(rig.gauge("sampling_interval_ms"), 40, 1e-9);
  probed(rig, 20, pages(0, 100));
  CHECK_NEAR(rig.gauge("sampling_interval_ms"), 5, 1e-9);
  CHECK(rig.policy->tick_period() == rig.memory.quantum());
}

namespace {

/// The first look, after four seconds, finds two hot stretches: the one at the lower addresses is
/// younger, and is accessed half as often or as much.
auto promoted_of_upper(bool weaker) {
  return [=](Rig& r) {
    auto n = std::make_shared<int>(0);
    probed(r, 2.5, pages(60, 10));
    probed(r, 1.6, [=](PageId page) {
      if (page.value / 10 == 6) return true;
      return page.value / 10 == 3 && (!weaker || ++*n % 2 == 0);
    });
    double count = 0;
    for (const auto page : r.memory.queued(Tier::fast)) count += page >= 55 ? 1 : 0;
    return count;
  };
}
/// A quarter of the fast tier is free.
auto with_room(double time, const test::Accessed& accessed, double (*count)(const Rig&)) {
  return [=](Rig& r) {
    r.memory.free({PageId{0}, 5});
    probed(r, time, accessed);
    return count(r);
  };
}

std::vector<Entry> entries() {
  const KnobMap tuned{{"access_goal", 0.2}, {"sampling_min", 5.0}, {"sampling_max", 100.0}};
  const KnobMap two{{"quota_size", 2 * page_mib}};
  const KnobMap four_late{{"quota_size", 4 * page_mib},
                          {"apply_interval", 4000.0},
                          {"access_weight", 0.0},
                          {"age_weight", 0.0}};
  std::vector<Entry> all{
      {"access_goal", 0.01, 0.9, Then::more, gauge_after("sampling_interval_ms", 2, pages(0, 30)),
       tuned},
      {"goal_aggregations", 1.0, 10.0, Then::less,
       gauge_after("sampling_interval_ms", 0.7, nothing()), tuned},
      {"sampling_min", 5.0, 8.0, Then::more, gauge_after("sampling_interval_ms", 2, pages(0, 100)),
       tuned},
      {"sampling_max", 20.0, 40.0, Then::more, gauge_after("sampling_interval_ms", 2, nothing()),
       tuned},
      {"sampling_interval", 10.0, 20.0, Then::more,
       gauge_after("sampling_interval_ms", 1, nothing())},
      {"aggregation_samples",
       whole(10),
       whole(40),
       Then::less,
       promoted_after(0.3, pages(20, 10)),
       {{"promote_access_min", 0.9}}},
      {"update_interval", 500.0, 5000.0, Then::less, found_in_new_mapping},
      {"min_regions", 10.0, 50.0, Then::more, gauge_after("regions", 1, nothing())},
      {"max_regions", 20.0, 100.0, Then::more,
       gauge_after("regions", 3, [](PageId page) { return page.value / 3 % 2 == 0; })},
      {"demote_access_max",
       0.0,
       0.8,
       Then::more,
       demoted_after(1.5, half(0, 20)),
       {{"apply_interval", 1000.0}, {"quota_least", 20 * page_mib}}},
      {"promote_access_min", 0.05, 0.9, Then::less, promoted_after(1, half(20, 10))},
      {"apply_interval", 100.0, 1000.0, Then::less, promoted_after(0.5, pages(20, 10))},
      {"quota_interval", 1000.0, 200.0, Then::more, promoted_after(1.5, pages(20, 10)), two},
      {"quota_size", 2 * page_mib, 4 * page_mib, Then::more, promoted_after(0.9, pages(20, 10))},
      {"quota_least", 1 * page_mib, 4 * page_mib, Then::more, demoted_after(0.9, nothing())},
      {"head_start", 0.0, 60.0, Then::more, promoted_after(2, pages(20, 10)), from_a_byte},
      {"fast_free_goal", 0.005, 0.5, Then::more, with_room(4, nothing(), demotions)},
      {"fast_used_goal",
       0.5,
       1.0,
       Then::more,
       with_room(6, pages(20, 80), promotions),
       {{"head_start", 0.0}}},
      {"access_weight", 0.0, 1.0, Then::more, promoted_of_upper(true), four_late},
      {"age_weight", 0.0, 1.0, Then::more, promoted_of_upper(false), four_late},
      {"young_filter",
       true,
       false,
       Then::more,
       demoted_after(0.35, nothing()),
       {{"quota_least", 20 * page_mib}, {"apply_interval", 200.0}}},
  };
  return test::joined(std::move(all), test::probed_aol_entries({{"quota_size", 10 * page_mib},
                                                                {"quota_interval", 10000.0}}));
}

const test::RegisterEffects effects{"damon-goal", base, entries()};

}  // namespace
