// SPDX-License-Identifier: MIT

// DAMON's regions: what is asked, how regions follow the accesses, ages, intervals.
#include <algorithm>
#include <functional>
#include <vector>

#include "check.hpp"
#include "fake_memory.hpp"
#include "track/region_monitor.hpp"

using namespace tt;
using test::FakeMemory;
using track::Region;
using track::RegionMonitor;

namespace {

constexpr Nanos sampling = from_millis(10);

RegionMonitor::Options options(double least, double most) {
  return {.sampling = sampling,
          .aggregation = 20 * sampling,
          .update = from_seconds(1),
          .min_regions = least,
          .max_regions = most};
}

/// A monitor, 1000 pages, and a clock.
struct Monitored {
  FakeMemory memory{2000, 2000};
  std::vector<PageRange> mapped{{PageId{0}, 1000}};
  RegionMonitor monitor;
  Nanos now{};

  explicit Monitored(const RegionMonitor::Options& options) : monitor(memory, options, 7) {
    for (std::uint64_t page = 0; page < 2000; ++page) memory.touch({page}, Tier::fast);
  }
  /// So many aggregations; the regions are as they are when the last one is over.
  void run(int aggregations, const std::function<bool(PageId)>& accessed) {
    while (aggregations > 0) {
      if (over) monitor.next(now, mapped);
      over = false;
      now += monitor.tick_period();
      monitor.tick(now, mapped);
      while (!over && !memory.rounds.empty()) over = monitor.answered(memory.answer(accessed));
      aggregations -= over ? 1 : 0;
    }
  }
  bool over = false;
};

std::uint64_t pages_of(const RegionMonitor& monitor) {
  std::uint64_t pages = 0;
  for (const Region& region : monitor.regions()) pages += region.range.count;
  return pages;
}

}  // namespace

TEST("regions: each sampling interval asks for one page of each region, without gaps in time") {
  FakeMemory memory(1000, 1000);
  RegionMonitor monitor(memory, options(10, 100), 7);
  const std::vector<PageRange> mapped{{PageId{5}, 600}, {PageId{900}, 400}};
  monitor.tick(from_millis(50), mapped);
  CHECK_EQ(pages_of(monitor), 1000u);
  const auto count = monitor.regions().size();
  CHECK_EQ(count, 10u);
  CHECK_EQ(memory.rounds.size(), 1u);
  const auto& probes = memory.rounds.front();
  CHECK_EQ(probes.size() % count, 0u);
  CHECK(probes.size() >= 2 * count);  // ahead of time
  CHECK_EQ(memory.work(Work::probe), probes.size());
  for (std::size_t i = 0; i < probes.size(); ++i) {
    CHECK(monitor.regions()[i % count].range.contains(probes[i].page));
    CHECK(probes[i].from == from_millis(50) + static_cast<int>(i / count) * sampling);
    CHECK(probes[i].length == sampling);
  }
  const Nanos end = probes.back().from + sampling;
  monitor.tick(from_millis(60), mapped);
  CHECK(memory.rounds.back().front().from == end);
}

TEST("regions: they follow the borders of what is accessed, within their limits") {
  Monitored at(options(10, 100));
  const auto hot = [](PageId page) { return page.value >= 300 && page.value < 400; };
  at.run(40, hot);
  CHECK_EQ(pages_of(at.monitor), 1000u);
  CHECK(at.monitor.regions().size() <= 100);
  CHECK(at.monitor.regions().size() >= 10);
  std::uint64_t right = 0;
  for (std::uint64_t page = 0; page < 1000; ++page) {
    const Region* region = at.monitor.find({page});
    CHECK(region != nullptr && region->range.contains({page}));
    const auto accesses = RegionMonitor::accesses(*region);
    right += hot({page}) ? accesses >= 15 : accesses <= 5;
  }
  CHECK(right > 970);
  CHECK(at.monitor.find({1000}) == nullptr);
}

TEST("regions: neighbours alike are merged up to a share of memory, and split again at random") {
  Monitored at(options(10, 100));
  at.run(10, [](PageId) { return false; });
  for (const Region& region : at.monitor.regions()) CHECK(region.range.count <= 100);
  const auto merged = at.monitor.regions().size();
  at.monitor.next(at.now, at.mapped);
  at.over = false;
  CHECK(at.monitor.regions().size() > merged);
  CHECK(at.monitor.regions().size() <= 3 * merged);
  // No more than half of the most is split.
  Monitored full(options(10, 20));
  full.run(10, [](PageId page) { return page.value / 37 % 2 == 0; });
  CHECK(full.monitor.regions().size() <= 20);
}

TEST("regions: an age counts aggregations without much change") {
  Monitored at(options(10, 100));
  at.run(6, [](PageId) { return false; });
  for (const Region& region : at.monitor.regions()) CHECK_EQ(region.age, 6u);
  at.run(1, [](PageId) { return true; });
  for (const Region& region : at.monitor.regions()) CHECK_EQ(region.age, 0u);
  at.run(2, [](PageId) { return true; });
  for (const Region& region : at.monitor.regions()) CHECK_EQ(region.age, 2u);
  // From some accesses to none the age begins anew even where the difference is small.
  Monitored rare(options(10, 100));
  int n = 0;
  rare.run(3, [&](PageId page) { return page.value >= 500 || ++n % 15 == 0; });
  rare.run(1, [](PageId page) { return page.value >= 500; });
  for (const Region& region : rare.monitor.regions())
    if (region.accesses == 0 && region.last != 0) CHECK_EQ(region.age, 0u);
}

TEST("regions: the count moves with the samples between two aggregations") {
  Monitored at(options(10, 10));
  at.run(1, [](PageId) { return true; });
  for (const Region& region : at.monitor.regions()) CHECK_EQ(RegionMonitor::accesses(region), 20u);
  at.monitor.next(at.now, at.mapped);
  while (at.memory.rounds.empty()) at.monitor.tick(at.now += sampling, at.mapped);
  const auto& probes = at.memory.rounds.front();
  const auto asked = static_cast<std::uint32_t>(probes.size() / at.monitor.regions().size());
  CHECK(asked >= 1);
  CHECK(!at.monitor.answered(at.memory.answer([](PageId) { return false; })));
  for (const Region& region : at.monitor.regions())
    CHECK_EQ(RegionMonitor::accesses(region), 20u - asked);
}

TEST("regions: mappings are looked at once in an update interval") {
  Monitored at(options(10, 100));
  at.run(1, [](PageId) { return false; });
  at.mapped = {{PageId{0}, 200}, {PageId{500}, 300}, {PageId{1500}, 100}};
  at.run(2, [](PageId) { return false; });
  CHECK_EQ(pages_of(at.monitor), 1000u);
  at.run(6, [](PageId) { return false; });
  CHECK_EQ(pages_of(at.monitor), 600u);
  CHECK(at.monitor.find({300}) == nullptr);
  CHECK(at.monitor.find({700}) != nullptr);
  CHECK(at.monitor.find({1550}) != nullptr);
  CHECK(at.monitor.find({1550})->age < at.monitor.find({700})->age);
}

TEST("regions: intervals grow while little is seen, and shrink slowly while much is") {
  auto wanted = options(10, 100);
  wanted.goal = {
      .share = 0.04, .aggregations = 3, .least = from_millis(5), .most = from_millis(100)};
  Monitored idle(wanted);
  idle.run(4, [](PageId) { return false; });
  CHECK(idle.monitor.sampling() == from_millis(20));
  CHECK(idle.monitor.aggregation() == from_millis(400));                       // as many samples
  for (const Region& region : idle.monitor.regions()) CHECK(region.age <= 3);  // 2, and one
  idle.run(20, [](PageId) { return false; });
  CHECK(idle.monitor.sampling() == from_millis(100));

  Monitored busy(wanted);
  busy.run(4, [](PageId) { return true; });
  CHECK(busy.monitor.sampling() == from_millis(5));  // by half, however much it is

  Monitored right(wanted);
  right.run(4, [](PageId page) { return page.value < 40; });
  CHECK_NEAR(seconds(right.monitor.sampling()), 0.010, 0.004);
}

TEST("regions: nothing mapped, and limits that cross") {
  Monitored at(options(10, 100));
  at.mapped.clear();
  at.monitor.tick(from_millis(10), at.mapped);
  CHECK(at.memory.rounds.empty());
  CHECK(at.monitor.regions().empty());
  FakeMemory memory(10, 10);
  CHECK_THROWS(RegionMonitor(memory, options(101, 100), 1), "max_regions");
  auto wrong = options(10, 100);
  wrong.aggregation = from_millis(5);
  CHECK_THROWS(RegionMonitor(memory, wrong, 1), "aggregation");
}
