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
using test::with;

namespace {

// 20 fast pages 0..19, 80 slow ones; ten samples in 100 ms.
const KnobMap base{{"sampling_interval", 10.0}, {"aggregation_interval", 100.0},
                   {"update_interval", 500.0},  {"min_regions", 10.0},
                   {"max_regions", 100.0},      {"demote_age", 1.0},
                   {"young_filter", false}};
Rig hmsdk(const KnobMap& more = {}) {
  Rig rig("hmsdk", {}, with(base, more), 20, 4000);
  rig.map(0, 100);
  return rig;
}

}  // namespace

TEST("hmsdk: its defaults are those that its tool writes") {
  const auto& knobs = policy("hmsdk").knobs;
  const std::map<std::string, double> published{{"sampling_interval", 100},
                                                {"aggregation_interval", 2000},
                                                {"update_interval", 20000},
                                                {"min_regions", 100},
                                                {"max_regions", 10000},
                                                {"demote_access_max", 0},
                                                {"demote_age", 30},
                                                {"promote_access_min", 0.05},
                                                {"promote_access_max", 1},
                                                {"promote_age", 0},
                                                {"quota_interval", 20},
                                                {"demote_quota_cores", 0.05},
                                                {"promote_quota_cores", 0.1},
                                                {"demote_quota_size", 51200},
                                                {"promote_quota_size", 51200},
                                                {"access_weight", 0},
                                                {"age_weight", 0.01}};
  const Knobs values = resolve(knobs, {});
  for (const auto& [name, value] : published) CHECK_EQ(values.real(name), value);
  CHECK(values.flag("young_filter"));
}

TEST("hmsdk: hot regions of the slow tier go up, whatever their age, others stay") {
  auto rig = hmsdk();
  probed(rig, 2, pages(40, 20));
  const auto up = rig.memory.queued(Tier::fast);
  for (std::uint64_t page = 40; page < 60; ++page) CHECK(std::ranges::count(up, page) == 1);
  CHECK(up.size() < 30);  // regions do not follow the border at once
  CHECK(rig.policy->heat({50}) == Heat::hot);
  CHECK(rig.policy->heat({90}) == Heat::cold);
  CHECK(rig.gauge("hot_pages") >= 20);
}

TEST("hmsdk: a region goes down that no sample found accessed for long enough") {
  auto rig = hmsdk();
  probed(rig, 0.9, pages(0, 10));
  CHECK_EQ(demotions(rig), 0.0);
  probed(rig, 1, pages(0, 10));
  const auto down = rig.memory.queued(Tier::slow);
  CHECK(std::ranges::count(down, 19) == 1);
  CHECK(std::ranges::count(down, 2) == 0);
}

TEST(
    "hmsdk: a page that nobody looked at counts as young, so that it goes down at the second try") {
  auto rig = hmsdk({{"young_filter", true}});
  probed(rig, 1.9, nothing());
  CHECK_EQ(demotions(rig), 0.0);  // tried after one second, and young again
  CHECK(rig.gauge("demotions_tried") >= 20);
  rig.memory.access({7}, AccessKind::load, rig.now);
  probed(rig, 1, nothing());
  CHECK_EQ(demotions(rig), 19.0);
  CHECK(std::ranges::count(rig.memory.queued(Tier::slow), 7) == 0);
}

TEST("hmsdk: demotions are asked for before promotions, and the monitoring thread moves both") {
  auto rig = hmsdk({{"demote_age", 0.0}});
  probed(rig, 0.3, pages(60, 40));
  CHECK(demotions(rig) > 0 && promotions(rig) > 0);
  CHECK(rig.memory.queue.front().second == Tier::slow);
  CHECK_EQ(rig.memory.movers.back().threads, 0u);
}

TEST("hmsdk: knobs that contradict each other are refused") {
  CHECK_THROWS(hmsdk({{"aggregation_interval", 5.0}}), "aggregation");
  CHECK_THROWS(hmsdk({{"min_regions", 101.0}}), "max_regions");
  CHECK_THROWS(hmsdk({{"demote_free_high", 0.1}, {"demote_free_mid", 0.2}}), "watermarks");
}

namespace {

double probes(Rig& r) {
  probed(r, 2, nothing());
  return static_cast<double>(r.memory.work(Work::probe));
}
/// Weaker pages at the lower addresses.
double promoted_of_stronger(Rig& r) {
  auto n = std::make_shared<int>(0);
  probed(r, 0.3, [=](PageId page) {
    return page.value / 10 == 6 || (page.value / 10 == 3 && ++*n % 2 == 0);
  });
  double count = 0;
  for (const auto page : r.memory.queued(Tier::fast)) count += page >= 60 ? 1 : 0;
  return count;
}
/// Two cold ends of the fast tier, the lower addresses cold for a shorter time; nothing is demoted
/// while there is room.
double demoted_of_older(Rig& r) {
  r.memory.free({PageId{8}, 4});
  probed(r, 5, [](PageId page) { return page.value < 12; });
  probed(r, 1.5, [](PageId page) { return page.value >= 6 && page.value < 12; });
  for (std::uint64_t page = 8; page < 12; ++page) r.memory.touch({page}, Tier::fast);
  probed(r, 0.3, [](PageId page) { return page.value >= 6 && page.value < 12; });
  double count = 0;
  for (const auto page : r.memory.queued(Tier::slow)) count += page >= 12 ? 1 : 0;
  return count;
}
/// A quarter is free at first, later a tenth.
double demoted_when_fuller(Rig& r) {
  r.memory.free({PageId{0}, 5});
  probed(r, 0.5, nothing());
  for (std::uint64_t page = 0; page < 3; ++page) r.memory.touch({page}, Tier::fast);
  probed(r, 2, nothing());
  return demotions(r);
}
double demoted_with_room(Rig& r) {
  r.memory.free({PageId{0}, 5});
  probed(r, 2, nothing());
  return demotions(r);
}

std::vector<Entry> entries() {
  const KnobMap four{{"promote_quota_size", 4 * page_mib}};
  std::vector<Entry> all{
      {"sampling_interval", 10.0, 20.0, Then::less, probes},
      {"aggregation_interval", 100.0, 500.0, Then::less, promoted_after(0.3, pages(20, 10))},
      {"update_interval", 500.0, 5000.0, Then::less, found_in_new_mapping},
      {"min_regions", 10.0, 50.0, Then::more, gauge_after("regions", 1, nothing())},
      {"max_regions", 20.0, 100.0, Then::more,
       gauge_after("regions", 3, [](PageId page) { return page.value / 3 % 2 == 0; })},
      {"demote_access_max",
       0.0,
       0.8,
       Then::more,
       demoted_after(2, half(0, 20)),
       {{"demote_age", 0.0}}},
      {"demote_age", 1.0, 10.0, Then::less, demoted_after(3, nothing())},
      {"promote_access_min", 0.05, 0.9, Then::less, promoted_after(1, half(20, 10))},
      {"promote_access_max", 1.0, 0.5, Then::less, promoted_after(1, pages(20, 80))},
      {"promote_age", 0.0, 10.0, Then::less, promoted_after(2, pages(20, 10))},
      {"demote_quota_cores", 2e-7, 6e-7, Then::more, demoted_after(2, nothing())},
      {"promote_quota_cores", 1e-7, 3e-7, Then::more, promoted_after(1, pages(20, 10))},
      {"demote_quota_size", 4 * page_mib, 8 * page_mib, Then::more, demoted_after(2, nothing())},
      {"promote_quota_size", 4 * page_mib, 8 * page_mib, Then::more,
       promoted_after(1, pages(20, 10))},
      {"quota_interval", 20.0, 0.5, Then::more, promoted_after(2, pages(20, 10)), four},
      {"access_weight", 0.0, 1.0, Then::more, promoted_of_stronger,
       with(four, {{"age_weight", 0.0}})},
      {"age_weight",
       0.0,
       1.0,
       Then::more,
       demoted_of_older,
       {{"demote_free_high", 0.15}, {"demote_free_mid", 0.1}, {"demote_quota_size", 4 * page_mib}}},
      {"young_filter", true, false, Then::more, demoted_after(1.5, nothing())},
      {"demote_free_high", 0.1, 1.0, Then::more, demoted_with_room, {{"demote_free_mid", 0.05}}},
      {"demote_free_mid", 0.05, 0.15, Then::more, demoted_when_fuller, {{"demote_free_high", 0.2}}},
  };
  return test::joined(std::move(all),
                      test::probed_aol_entries({{"promote_quota_size", 10 * page_mib}}));
}

const test::RegisterEffects effects{"hmsdk", base, entries()};

}  // namespace
