// SPDX-License-Identifier: MIT

// What FreqTier and HybridTier count with: batches of samples, trackers that cool, and the knobs of
// their filters.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "check.hpp"
#include "fake_memory.hpp"
#include "track/cbf_knobs.hpp"
#include "track/cooling.hpp"
#include "track/exact.hpp"
#include "track/sample_batch.hpp"

using namespace tt;
using track::SampleBatch;

namespace {

using Pages = std::vector<std::uint64_t>;
using Counts = std::vector<std::uint32_t>;

Sample fast(std::uint64_t page) { return {{page}, Tier::fast}; }
Sample slow(std::uint64_t page) { return {{page}, Tier::slow}; }

Pages numbers(std::span<const PageId> pages) {
  Pages result;
  for (const PageId page : pages) result.push_back(page.value);
  return result;
}
Counts values(std::span<const std::uint32_t> counts) { return {counts.begin(), counts.end()}; }

}  // namespace

TEST("sample batch: handed over when it is full, across calls, and empty again after it") {
  SampleBatch batch(2.6);  // rounded
  std::vector<std::size_t> sizes;
  const auto take_all = [&] { sizes.push_back(batch.take(100)); };
  const Sample four[] = {fast(1), fast(2), fast(3), fast(4)};
  batch.add(std::span{four}.first(2), take_all);
  CHECK(sizes.empty());
  batch.add(std::span{four}.subspan(2), take_all);
  CHECK((sizes == std::vector<std::size_t>{3}));
  CHECK_EQ(batch.take(100), 1u);  // the fourth
  SampleBatch least(0.2);
  sizes.clear();
  least.add(four, [&] { sizes.push_back(least.take(100)); });
  CHECK((sizes == std::vector<std::size_t>{1, 1, 1, 1}));
}

TEST("sample batch: parts follow each other and respect their limits") {
  SampleBatch batch(5);
  const auto tracker = track::make_exact(100);
  const Sample samples[] = {fast(1), fast(2), fast(3), fast(4), fast(5)};
  std::vector<Pages> parts;
  batch.add(samples, [&] {
    for (const std::uint64_t limit : {2, 1, 100}) {
      batch.take(limit);
      parts.push_back(numbers(batch.count(Tier::fast, *tracker).pages));
    }
    CHECK_EQ(batch.take(1), 0u);
  });
  CHECK((parts == std::vector<Pages>{{1, 2}, {3}, {4, 5}}));
}

TEST("sample batch: a tier's pages are counted once each, with what the tracker held") {
  SampleBatch batch(7);
  const auto tracker = track::make_exact(100);
  const PageId seen[] = {{8}, {8}, {8}};
  tracker->increment(seen);
  const Sample samples[] = {slow(8), fast(1), slow(9), slow(8), fast(1), fast(2), slow(8)};
  batch.add(samples, [&] {
    batch.take(100);
    const auto in_fast = batch.count(Tier::fast, *tracker);
    CHECK((numbers(in_fast.pages) == Pages{1, 2}));
    CHECK_EQ(in_fast.counts[0].count, 2u);
    CHECK((values(in_fast.before) == Counts{0, 0}));
    CHECK((values(in_fast.after) == Counts{2, 1}));
    const auto in_slow = batch.count(Tier::slow, *tracker);
    CHECK((numbers(in_slow.pages) == Pages{8, 9}));
    CHECK((values(in_slow.before) == Counts{3, 0}));
    CHECK((values(in_slow.after) == Counts{6, 1}));
  });
  CHECK_EQ(tracker->get({8}), 6u);
}

TEST("sample batch: a tier that answered no sample gives nothing and counts nothing") {
  SampleBatch batch(1);
  const auto tracker = track::make_exact(100);
  const Sample sample = fast(1);
  batch.add({&sample, 1}, [&] {
    batch.take(1);
    CHECK_EQ(batch.count(Tier::slow, *tracker).pages.size(), 0u);
  });
  CHECK_EQ(tracker->get({1}), 0u);
}

TEST("cooling tracker: halves every period, in slices that end within half a period") {
  track::CoolingTracker tracker(track::make_exact(10000), 1000.5);
  std::vector<PageId> pages;
  for (std::uint64_t p = 0; p < 10000; ++p) pages.push_back({p});
  for (int n = 0; n < 8; ++n) tracker->increment(pages);
  test::FakeMemory memory(1, 1);
  CHECK_EQ(tracker.room(), 1001u);
  for (int n = 0; n < 10; ++n) CHECK(!tracker.advance(100, memory));
  CHECK_EQ(tracker.room(), 1u);
  CHECK_EQ(memory.work(Work::cooling_step), 0u);
  CHECK(tracker.advance(1, memory));
  CHECK_EQ(tracker.epoch(), 1u);
  CHECK(tracker->cooling());
  CHECK_EQ(tracker->get({5}), 4u);  // as if all were halved at once
  std::uint64_t most = 0;
  for (int n = 0; n < 6; ++n) {
    const auto before = memory.work(Work::cooling_step);
    tracker.advance(100, memory);
    most = std::max(most, memory.work(Work::cooling_step) - before);
  }
  CHECK(!tracker->cooling());
  CHECK(most <= tracker->lines() / 4);  // no batch paid for more than its share
  CHECK_EQ(tracker->get({5}), 4u);
}

namespace {

Knobs cbf_values(const KnobMap& given = {}) {
  return resolve(track::cbf_knobs(3, "a", "b", "c"), given);
}

}  // namespace

TEST("CBF knobs: the options of a filter for the fast tier, or for a share of it") {
  const auto options = track::cbf_options(cbf_values({{"cbf_error", 0.01}}), 1000, 1, 7);
  CHECK_EQ(options.pages, 1000u);
  CHECK_EQ(options.error, 0.01);
  CHECK_EQ(options.hashes, 3u);
  CHECK_EQ(options.counter_bits, 4u);
  CHECK_EQ(options.min_counters, 0u);
  CHECK_EQ(options.seed, 7u);
  CHECK_EQ(track::cbf_options(cbf_values(), 1000, 128, 0).pages, 8u);  // 7.8
  CHECK_EQ(track::cbf_options(cbf_values(), 0, 128, 0).pages, 1u);
  CHECK_EQ(track::cbf_options(cbf_values({{"cbf_counter_bits", std::string{"16"}}}), 10, 1, 0)
               .counter_bits,
           16u);
}

TEST("CBF knobs: counters per fast page overrule the error rate") {
  const auto values = cbf_values({{"cbf_counters_per_fast_page", 2.5}});
  CHECK_EQ(track::cbf_options(values, 1000, 1, 0).min_counters, 2500u);
  CHECK_EQ(track::cbf_options(values, 1000, 1, 0).pages, 1u);
  CHECK_EQ(track::cbf_options(values, 1000, 4, 0).min_counters, 625u);
}

TEST("CBF knobs: a threshold that the filter's counters cannot reach is refused by name") {
  const std::vector<KnobDecl> declared{track::threshold_knob("hot", 5, "a", "count")};
  CHECK(declared[0].meaning.ends_with("at most what cbf_counter_bits can hold"));
  const auto filter = track::make_cbf({.pages = 10, .counter_bits = 8});
  const auto threshold = [&](std::int64_t value) {
    return track::threshold(resolve(declared, {{"hot", value}}), "hot", *filter);
  };
  CHECK_EQ(threshold(255), 255u);
  CHECK_THROWS(threshold(256), "hot: found 256, allowed up to 255 with cbf_counter_bits 8");
}
