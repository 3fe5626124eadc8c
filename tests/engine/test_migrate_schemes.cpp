// SPDX-License-Identifier: MIT

// DAMOS: quotas by size, time and goal, watermarks, and schemes that move regions.
#include <algorithm>
#include <vector>

#include "check.hpp"
#include "fake_memory.hpp"
#include "migrate/quota.hpp"
#include "migrate/scheme.hpp"

using namespace tt;
using migrate::FreeGate;
using migrate::MappedRanges;
using migrate::next_input;
using migrate::Quota;
using migrate::Scheme;
using test::FakeMemory;
using track::Region;
using track::RegionMonitor;

TEST("quota: so many pages a window, of which a fraction is carried over") {
  Quota quota({.window = from_seconds(1), .pages = 2.6});
  quota.open(Nanos{});
  CHECK_EQ(quota.left(), 2u);
  quota.charge(2);
  CHECK_EQ(quota.left(), 0u);
  quota.open(from_millis(999));  // the window is not over
  CHECK_EQ(quota.left(), 0u);
  quota.open(from_seconds(1));
  CHECK_EQ(quota.left(), 3u);
  quota.charge(1);
  quota.open(from_seconds(2));  // whole pages that were left over are lost
  CHECK_EQ(quota.left(), 2u);
}

TEST("quota: time is turned into pages at the cost that was measured") {
  Quota quota({.window = from_seconds(1), .cores = 0.001});  // a millisecond
  quota.open(Nanos{});
  CHECK_EQ(quota.left(), 1024u);  // the kernel's guess
  quota.charge(100);
  quota.spent(from_millis(1));
  quota.open(from_seconds(1));
  CHECK_EQ(quota.left(), 100u);
  quota.charge(100);  // pages that were tried and did not move took no time
  quota.open(from_seconds(2));
  CHECK_EQ(quota.left(), 200u);
}

TEST("quota: the smaller of size and time counts; without either there is no limit") {
  Quota both({.window = from_seconds(1), .pages = 10, .cores = 1});
  both.open(Nanos{});
  CHECK_EQ(both.left(), 10u);
  Quota none({.window = from_seconds(1)});
  none.open(Nanos{});
  CHECK(none.left() > 1'000'000'000);
}

TEST("quota: feedback is in proportion to the distance from the goal") {
  CHECK_NEAR(next_input(100, 0, 1), 200, 1e-9);
  CHECK_NEAR(next_input(100, 0.9, 1), 110, 1e-9);
  CHECK_NEAR(next_input(100, 1, 1), 100, 1e-9);
  CHECK_NEAR(next_input(100, 1.5, 1), 50, 1e-9);
  CHECK_NEAR(next_input(100, 7, 1), 1, 1e-9);

  Quota quota({.window = from_seconds(1), .pages = 100, .least = 2});
  std::vector<double> sizes;
  for (const double score : {0.0, 0.0, 0.5, 1.0, 1.5, 3.0, 0.0}) {
    quota.open(from_seconds(static_cast<double>(sizes.size())), score);
    sizes.push_back(quota.size());
  }
  CHECK((sizes == std::vector<double>{4, 8, 12, 12, 6, 2, 4}));
}

TEST("quota: what has grown while the goal was far away stays beyond the limit") {
  Quota quota(
      {.window = from_seconds(1), .pages = 100, .least = 1, .head_start = from_seconds(20)});
  quota.open(Nanos{}, 1.0);
  CHECK_EQ(quota.size(), 100);
  for (int n = 1; n <= 10; ++n) quota.open(from_seconds(n), 1.5);
  CHECK_EQ(quota.size(), 100);  // 2^20 / 2^10
  for (int n = 11; n <= 14; ++n) quota.open(from_seconds(n), 1.5);
  CHECK_EQ(quota.size(), 64);
}

TEST("watermarks: off above high, on again only below mid, off below low") {
  FreeGate gate({.high = 0.5, .mid = 0.3, .low = 0.1});
  CHECK(gate.open(0.4));
  CHECK(!gate.open(0.6));
  CHECK(!gate.open(0.4));
  CHECK(gate.open(0.2));
  CHECK(gate.open(0.4));
  CHECK(!gate.open(0.05));
  CHECK(FreeGate({}).open(1));
  CHECK(FreeGate({}).open(0));
  CHECK_THROWS(FreeGate({.high = 0.2, .mid = 0.3}), "watermarks");
}

TEST("schemes: a score is the mean of access and age, which counts against idle regions") {
  CHECK_EQ(Scheme::hot_score(1, 0, 1, 0), 99);
  CHECK_EQ(Scheme::hot_score(0.5, 100, 1, 0), 49);
  CHECK_EQ(Scheme::hot_score(0, 0, 0, 1), 49);
  CHECK(Scheme::hot_score(0.5, 100, 0, 1) > Scheme::hot_score(0.5, 10, 0, 1));
  CHECK(Scheme::hot_score(0, 100, 0, 1) < Scheme::hot_score(0, 10, 0, 1));
  CHECK_EQ(Scheme::hot_score(0.005, 100, 0, 1), Scheme::hot_score(0, 100, 0, 1));  // per cent
  CHECK_EQ(Scheme::hot_score(1, 5, 0, 0), 0);
}

namespace {

/// Four regions of ten pages, one aggregation old: never accessed, sometimes, often, always. Even
/// pages are fast, odd ones slow.
struct Regions {
  FakeMemory memory{100, 100};
  MappedRanges space;
  RegionMonitor monitor;
  Nanos now = from_millis(100);

  Regions()
      : monitor(memory,
                {.sampling = from_millis(10),
                 .aggregation = from_millis(100),
                 .update = from_seconds(100),
                 .min_regions = 4,
                 .max_regions = 4},
                1) {
    space.map({PageId{0}, 40});
    for (std::uint64_t page = 0; page < 40; ++page)
      memory.touch({page}, page % 2 == 0 ? Tier::fast : Tier::slow);
    std::array<int, 4> seen{};
    const auto accessed = [&](PageId page) {
      const auto region = page.value / 10;
      static constexpr std::array<int, 4> of_ten{0, 2, 6, 10};
      return seen[region]++ % 10 < of_ten[region];
    };
    bool over = false;
    while (!over) {
      monitor.tick(now, space.ranges());
      while (!over && !memory.rounds.empty()) over = monitor.answered(memory.answer(accessed));
      now += from_millis(10);
    }
    for (Region& region : monitor.regions()) region.age = 1;
  }
  std::vector<std::uint64_t> apply(Scheme& scheme) {
    memory.queue.clear();
    scheme.apply(monitor, space, now);
    std::vector<std::uint64_t> moved;
    for (const auto& [page, to] : memory.queue) moved.push_back(page.value);
    return moved;
  }
};
using Pages = std::vector<std::uint64_t>;
Pages odd(std::uint64_t first, std::uint64_t end) {
  Pages pages;
  for (std::uint64_t page = first | 1; page < end; page += 2) pages.push_back(page);
  return pages;
}

}  // namespace

TEST("schemes: regions are chosen by access and age, and pages of them by tier") {
  Regions at;
  CHECK_EQ(at.monitor.regions().size(), 4u);
  Scheme hot(at.memory, {.to = Tier::fast, .least_access = 0.2, .most_access = 0.9});
  CHECK((at.apply(hot) == odd(10, 30)));
  CHECK_EQ(at.monitor.regions()[1].age, 0u);  // tried
  CHECK_EQ(at.monitor.regions()[3].age, 1u);
  Scheme cold(at.memory, {.to = Tier::slow, .most_access = 0});
  CHECK((at.apply(cold) == Pages{0, 2, 4, 6, 8}));
  Scheme old(at.memory, {.to = Tier::fast, .least_age = from_millis(100)});
  CHECK((at.apply(old) == odd(30, 40)));
  at.space.unmap({PageId{30}, 5});
  CHECK((at.apply(old) == Pages{}));  // tried: young again
  at.monitor.regions()[3].age = 1;
  CHECK((at.apply(old) == odd(35, 40)));
}

TEST("schemes: under a quota the best go first, and the next window goes on behind") {
  Regions at;
  Scheme hot(at.memory, {.to = Tier::fast,
                         .least_access = 0.1,
                         .access_weight = 1,
                         .quota = {.window = from_seconds(1), .pages = 7}});
  // The two best regions have ten pages; both are within the quota's reach.
  CHECK((at.apply(hot) == Pages{21, 23, 25, 27, 29, 31, 33}));
  CHECK((at.apply(hot) == Pages{}));
  at.now += from_seconds(1);
  CHECK((at.apply(hot) == Pages{35, 37, 39}));  // to the end of memory
  at.now += from_seconds(1);
  CHECK((at.apply(hot) == Pages{21, 23, 25, 27, 29, 31, 33}));
  CHECK_EQ(hot.tried(), 17u);
}

TEST("schemes: a page's own accessed bit can speak against it, and is cleared") {
  Regions at;
  Scheme hot(at.memory, {.to = Tier::fast, .least_access = 0.9, .ask_pages = true});
  Scheme cold(at.memory, {.to = Tier::slow, .most_access = 0, .ask_pages = true});
  // Nobody has looked at these pages before: they count as accessed.
  CHECK((at.apply(cold) == Pages{}));
  CHECK((at.apply(hot) == odd(30, 40)));
  CHECK_EQ(at.memory.work(Work::lru_step), 10u);
  at.memory.access({4}, AccessKind::load, at.now);
  at.memory.access({37}, AccessKind::load, at.now);
  CHECK((at.apply(cold) == Pages{0, 2, 6, 8}));
  CHECK((at.apply(hot) == Pages{37}));
}

TEST("schemes: goals of the fast tier set the quota") {
  Regions at;  // 20 of 100 fast pages in use
  Scheme fill(at.memory, {.to = Tier::fast,
                          .quota = {.window = from_seconds(1), .least = 1},
                          .goal = Scheme::Goal::used,
                          .goal_share = 0.4});
  CHECK_EQ(at.apply(fill).size(), 1u);  // 1.5
  CHECK_NEAR(fill.quota(), 1.5, 1e-9);
  Scheme drain(at.memory, {.to = Tier::slow,
                           .quota = {.window = from_seconds(1), .least = 1},
                           .goal = Scheme::Goal::free,
                           .goal_share = 1});
  at.apply(drain);
  CHECK_NEAR(drain.quota(), 1.2, 1e-9);
}

TEST("schemes: watermarks stop them") {
  Regions at;
  Scheme cold(at.memory, {.to = Tier::slow, .gate = {.high = 0.5, .mid = 0.3}});
  CHECK((at.apply(cold) == Pages{}));
  for (std::uint64_t page = 100; page < 175; ++page) at.memory.touch({page}, Tier::fast);
  CHECK_EQ(at.apply(cold).size(), 20u);
}

TEST("schemes: what moves cost counts against the quota's time") {
  Regions at;
  Scheme hot(at.memory, {.to = Tier::fast, .quota = {.window = from_seconds(1), .cores = 0.001}});
  CHECK_EQ(at.apply(hot).size(), 20u);
  std::vector<MigrationResult> results{
      {.page = {1}, .to = Tier::fast, .cost = from_millis(2)},
      {.page = {3}, .to = Tier::slow, .cost = from_seconds(1)},  // another scheme's
      {.page = {5}, .to = Tier::fast, .outcome = Outcome::no_space}};
  hot.migrated(results);
  at.now += from_seconds(1);
  CHECK_EQ(at.apply(hot).size(), 10u);
}
