// SPDX-License-Identifier: MIT

// Trackers: cooling in slices, and the exact table.
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "fake_memory.hpp"
#include "track/cbf.hpp"
#include "track/clocked_counts.hpp"
#include "track/cooling.hpp"
#include "track/exact.hpp"
#include "track_checks.hpp"

using namespace tt;
using namespace tt::track;

namespace {

/// Random increments, slices of cooling and queries on `sliced`; `at_once` gets the same increments
/// but finishes each halving where it begins. They must agree on every page at every moment.
void check_cooling_equivalence(Tracker& sliced, Tracker& at_once, std::uint64_t pages, Rng& rng) {
  const auto every_page = dense(0, pages);
  std::uint64_t checked_while_cooling = 0;
  for (int step = 0; step < 120; ++step) {
    switch (rng.below(6)) {
      case 0:
        sliced.begin_cooling();
        at_once.begin_cooling();
        CHECK(at_once.cooling());
        CHECK_EQ(at_once.cool(at_once.lines()), at_once.lines());
        CHECK(!at_once.cooling());
        CHECK_EQ(at_once.cool(1), 0U);
        break;
      case 1:
      case 2: {
        const std::uint64_t lines = rng.below(sliced.lines() / 3 + 2);
        CHECK(sliced.cool(lines) <= lines);
        break;
      }
      case 3: {
        std::vector<PageCount> batch;
        for (const PageId page : skewed(rng, pages, rng.below(60)))
          batch.push_back({page, static_cast<std::uint32_t>(rng.below(7))});
        sliced.increment(std::span<const PageCount>(batch));
        at_once.increment(std::span<const PageCount>(batch));
        break;
      }
      default: {
        const auto batch = skewed(rng, pages, rng.below(120));
        sliced.increment(std::span<const PageId>(batch));
        at_once.increment(std::span<const PageId>(batch));
      }
    }
    checked_while_cooling += sliced.cooling() ? 1 : 0;
    const auto out = counts(sliced, every_page);
    for (std::size_t i = 0; i < out.size(); ++i) {
      CHECK_EQ(out[i], at_once.get(every_page[i]));
      CHECK_EQ(sliced.get(every_page[i]), out[i]);
    }
  }
  CHECK(checked_while_cooling > 20);
}

}  // namespace

TEST("track: cooling in slices equals halving all at once") {
  for_each_filter(150, [](const CbfOptions& options) {
    Rng rng(options.hashes * 100 + options.counter_bits);
    // Sized for fewer pages than are used, so that lines and counters are shared.
    const auto sliced = make_cbf(options);
    const auto at_once = make_cbf(options);
    check_cooling_equivalence(*sliced, *at_once, 400, rng);
  });
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    const auto sliced = make_exact(1'000);
    const auto at_once = make_exact(1'000);
    check_cooling_equivalence(*sliced, *at_once, 400 + 20 * seed, rng);
  }
}

TEST("track: halving rounds down and never leaks into a neighbour") {
  for_each_filter(2'000, [](const CbfOptions& options) {
    const auto filter = make_cbf(options);
    std::vector<PageCount> batch;
    for (std::uint64_t page = 0; page < 1'000; ++page)
      batch.push_back({PageId{page}, static_cast<std::uint32_t>(1 + page % filter->max_count())});
    filter->increment(std::span<const PageCount>(batch));
    const auto pages = dense(0, 1'000);
    const auto before = counts(*filter, pages);
    filter->begin_cooling();
    filter->cool(filter->lines());
    const auto after = counts(*filter, pages);
    for (std::size_t i = 0; i < pages.size(); ++i) CHECK_EQ(after[i], before[i] / 2);
  });
}

TEST("track: a halving begun while one is under way finishes that first") {
  std::vector<std::unique_ptr<Tracker>> trackers;
  trackers.push_back(make_cbf({.pages = 10'000}));
  trackers.push_back(make_cbf({.pages = 10'000, .blocked = false}));
  trackers.push_back(make_exact(10'000));
  for (const auto& tracker : trackers) {
    const std::vector<PageCount> batch{{PageId{1}, 15}, {PageId{77}, 14}};
    tracker->increment(std::span<const PageCount>(batch));
    tracker->begin_cooling();
    CHECK_EQ(tracker->cool(3), 3U);
    tracker->begin_cooling();
    CHECK_EQ(tracker->get({1}), 3U);
    CHECK_EQ(tracker->get({77}), 3U);
    CHECK_EQ(tracker->cool(tracker->lines() + 5), tracker->lines());
    CHECK(!tracker->cooling());
    CHECK_EQ(tracker->get({1}), 3U);
  }
}

TEST("track: there is nothing to cool until a halving begins, nor after growth has ended one") {
  for_each_filter(5'000, [](const CbfOptions& options) {
    const auto filter = make_cbf(options);
    CHECK(!filter->cooling());
    CHECK_EQ(filter->cool(10), 0U);
  });
  const auto table = make_exact(100);
  CHECK(!table->cooling());
  CHECK_EQ(table->cool(10), 0U);
  const std::vector<PageCount> batch{{PageId{1}, 9}};
  table->increment(std::span<const PageCount>(batch));
  table->begin_cooling();
  const std::uint64_t lines = table->lines();
  table->increment(std::span<const PageId>(dense(100, 10'000)));
  CHECK(table->lines() > lines);
  CHECK(!table->cooling());
  CHECK_EQ(table->cool(10), 0U);
  CHECK_EQ(table->get({1}), 4U);
}

TEST("track: the exact table agrees with a map, across growth and cooling") {
  Rng rng(5);
  const auto table = make_exact(16);
  std::unordered_map<std::uint64_t, std::uint32_t> map;
  for (int round = 0; round < 60; ++round) {
    std::vector<PageId> batch(500);
    // Few distinct low bits, sparse high bits, and the extremes of the range.
    for (auto& page : batch)
      page = {rng.below(8) == 0 ? ~rng.below(50) : rng.below(300) << rng.below(40)};
    table->increment(std::span<const PageId>(batch));
    for (const PageId page : batch) ++map[page.value];
    if (round % 7 == 6) {
      table->begin_cooling();
      for (auto& [page, count] : map) count /= 2;
    }
    table->cool(table->lines() / 4);
    for (const auto& [page, count] : map) CHECK_EQ(table->get({page}), count);
  }
  CHECK_EQ(table->get({123'456'789'123'456'789ULL}), 0U);
}

TEST("track: the exact table drops cooled pages, so it follows the working set") {
  const auto table = make_exact(10'000);
  const std::uint64_t bytes = table->bytes();
  // 100 working sets of 5 000 pages, one after the other: 500 000 pages in all.
  for (std::uint64_t set = 0; set < 100; ++set) {
    table->increment(std::span<const PageId>(dense(set * 5'000, 5'000)));
    table->begin_cooling();
    while (table->cool(7) != 0) {
    }
  }
  CHECK_EQ(table->bytes(), bytes);
  table->increment(std::span<const PageId>(dense(0, 50'000)));
  CHECK(table->bytes() > bytes);
}

TEST("cooling: samples that still count after a halving make the next one come sooner") {
  test::FakeMemory memory(10, 10);
  CoolingTracker tracker(make_cbf({.pages = 100}), 100, 0.5);
  std::vector<int> at;
  for (int n = 1; n <= 250; ++n)
    if (tracker.advance(1, memory)) at.push_back(n);
  CHECK((at == std::vector<int>{100, 150, 200, 250}));
  CHECK(tracker->cooling());
  for (int n = 0; n < 49; ++n) (void)tracker.advance(1, memory);
  CHECK(!tracker->cooling());  // over before the next one
}

TEST("cooling: a halving may come out of turn") {
  test::FakeMemory memory(10, 10);
  CoolingTracker tracker(make_exact(100), 100);
  const std::vector<PageCount> counts{{{7}, 6}};
  tracker->increment(std::span{counts});
  (void)tracker.advance(60, memory);
  tracker.halve();
  CHECK_EQ(tracker->get({7}), 3u);
  CHECK_EQ(tracker.epoch(), 1u);
  CHECK_EQ(tracker.room(), 100u);
}

TEST("clocked counts: a page makes up for the halvings that it missed when it is sampled") {
  ClockedCounts<2> counts;
  ClockedCounts<2>::Entry page, other;
  for (int n = 0; n < 8; ++n) (void)counts.count(page, 0);
  for (int n = 0; n < 4; ++n) (void)counts.count(page, 1);
  counts.begin_cooling();
  CHECK((page.counts == std::array{8U, 4U}));
  CHECK((counts.cooled(page) == std::array{4U, 2U}));
  CHECK((counts.count(page, 0) == std::array{9U, 4U}));
  CHECK((counts.settle(page) == std::array{4U, 2U}));
  CHECK((counts.cooled(page) == std::array{4U, 2U}));
  for (int n = 0; n < 40; ++n) counts.begin_cooling();
  CHECK((counts.cooled(page) == std::array{0U, 0U}));
  CHECK((counts.count(other, 0) == std::array{1U, 0U}));  // the first has missed none
  CHECK((counts.settle(other) == std::array{1U, 0U}));
}
