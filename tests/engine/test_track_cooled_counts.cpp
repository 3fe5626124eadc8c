// SPDX-License-Identifier: MIT

// Samples of base pages and of the huge pages that they are part of, and their histograms.
#include "check.hpp"
#include "core/rng.hpp"
#include "track/cooled_counts.hpp"

using namespace tt;
using track::CooledCounts;

namespace {

using Bins = std::vector<std::uint64_t>;
Bins bins(const Histogram& histogram) { return {histogram.bins().begin(), histogram.bins().end()}; }
void sample(CooledCounts& counts, std::uint64_t page, int times) {
  for (; times > 0; --times) (void)counts.count({page});
}
/// Both histograms, counted anew from what is mapped.
void recount(CooledCounts& counts, std::uint64_t pages) {
  counts.begin_recount();
  counts.each_run({{0}, pages}, [&](PageId first, std::span<CooledCounts::State> states) {
    counts.recount(first, states);
  });
}

}  // namespace

TEST("cooled counts: a page's hotness is 512 times a huge page's of as many samples") {
  CooledCounts counts(512);
  counts.map({{0}, 512}, 6, true);
  counts.map({{512}, 100}, 6, false);
  CHECK_EQ(*counts.hotness({7}), 6u);
  CHECK_EQ(*counts.hotness({520}), 6u);
  CHECK(!counts.hotness({700}));
  sample(counts, 7, 3);
  sample(counts, 520, 3);
  CHECK_EQ(*counts.hotness({500}), 9u);  // that of its huge page
  CHECK_EQ(*counts.hotness({520}), 1542u);
  CHECK_EQ(counts.histogram().bins()[3], 512u);
  CHECK_EQ(counts.histogram().bins()[10], 1u);
  CHECK_EQ(counts.base_histogram().bins()[10], 2u);  // as if page 7 were alone
  CHECK(!counts.count({700}));
  CHECK_EQ(counts.count({7})->hotness, 2048u);
  CHECK((counts.count({7})->entry.page == PageId{0}));
  CHECK_EQ(counts.count({7})->entry.pages, 512u);
}

TEST("cooled counts: coolings that a page has missed are made up for when it is looked at") {
  CooledCounts counts(1);
  counts.map({{0}, 10}, 16, false);
  sample(counts, 3, 16);
  counts.cool();
  counts.cool();
  CHECK_EQ(*counts.hotness({3}), 8u);
  CHECK_EQ(*counts.hotness({4}), 4u);
  CHECK_EQ(counts.histogram().bins()[2], 9u);
  CHECK_EQ(counts.histogram().bins()[3], 1u);
  sample(counts, 4, 1);
  CHECK_EQ(*counts.hotness({4}), 5u);
  for (int n = 0; n < 40; ++n) counts.cool();
  CHECK_EQ(*counts.hotness({3}), 0u);
}

TEST("cooled counts: a cooling halves the hotness, not the samples, and the shift says so") {
  CooledCounts counts(512);
  counts.map({{0}, 20}, 0, false);
  for (std::uint64_t page = 0; page < 20; ++page) sample(counts, page, static_cast<int>(page));
  for (std::uint32_t cooling = 1; cooling <= 9; ++cooling) {
    counts.cool();
    CHECK_EQ(*counts.hotness({1}), 512u >> cooling);
    CHECK_EQ(*counts.hotness({5}), 5 * 512u >> cooling);
    const Bins shifted = bins(counts.histogram());
    recount(counts, 20);
    CHECK(bins(counts.histogram()) == shifted);
  }
  counts.cool();
  CHECK_EQ(*counts.hotness({1}), 0u);
  CHECK_EQ(counts.histogram().at_least(0), 18u);  // pages 0 and 1 are in no bin
}

TEST("cooled counts: joined pages have the samples of all; split ones have their own again") {
  CooledCounts counts(512);
  counts.map({{0}, 512}, 0, false);
  sample(counts, 5, 4);
  sample(counts, 6, 8);
  counts.join({5});
  CHECK(counts.huge({511}));
  CHECK_EQ(counts.huge_pages(), 1u);
  CHECK_EQ(*counts.hotness({100}), 12u);
  CHECK_EQ(counts.histogram().bins()[3], 512u);
  CHECK_EQ(counts.histogram().bins()[11], 0u);
  sample(counts, 6, 1);
  counts.split({0});
  CHECK(!counts.huge({5}));
  CHECK_EQ(*counts.hotness({6}), 9u * 512);
  CHECK_EQ(*counts.hotness({100}), 0u);
  CHECK_EQ(counts.histogram().bins()[11], 1u);
  CHECK_EQ(counts.histogram().bins()[12], 1u);
  CHECK_EQ(counts.histogram().bins()[3], 0u);
}

TEST("cooled counts: unmapping a part of a huge page splits it") {
  CooledCounts counts(512);
  counts.map({{0}, 512}, 100, true);
  sample(counts, 3, 2);
  sample(counts, 300, 2);
  counts.unmap({{200}, 312});
  CHECK_EQ(counts.huge_pages(), 0u);
  CHECK_EQ(*counts.hotness({3}), 1024u);
  CHECK(!counts.hotness({300}));
  CHECK_EQ(counts.histogram().at_least(0), 1u);
}

TEST("cooled counts: whatever happens, the histograms are those of the pages") {
  CooledCounts counts(512);
  Rng rng{9};
  constexpr std::uint64_t pages = 8 * 512;
  for (int step = 0; step < 3000; ++step) {
    const PageId page{rng.below(pages)};
    const PageId first = CooledCounts::group(page).first;
    switch (rng.below(12)) {
      case 0:
        counts.unmap({first, 512});
        counts.map({first, 512}, 40, rng.below(2) == 0);
        break;
      case 1:
        counts.unmap({page, 1 + rng.below(700)});
        break;
      case 2:
        counts.split(page);
        break;
      case 3: {
        bool whole = true;
        for (std::uint64_t i = 0; i < 512; ++i)
          whole = whole && counts.hotness({first.value + i}).has_value();
        if (whole) counts.join(page);
        break;
      }
      case 4:
        counts.cool();
        recount(counts, pages);  // a shift empties the last bin, which is open
        break;
      default:
        sample(counts, page.value, static_cast<int>(rng.below(20)));
    }
  }
  const Bins all = bins(counts.histogram()), base = bins(counts.base_histogram());
  recount(counts, pages);
  CHECK(bins(counts.histogram()) == all);
  CHECK(bins(counts.base_histogram()) == base);
}
