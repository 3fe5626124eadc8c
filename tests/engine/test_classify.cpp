// SPDX-License-Identifier: MIT

#include "check.hpp"
#include "classify/adaptive_threshold.hpp"
#include "classify/thresholds.hpp"
#include "core/histogram.hpp"

using namespace tt;
using classify::AdaptiveThreshold;

TEST("histogram: exponential bins hold [2^n, 2^(n+1)), the last is open") {
  const auto h = Histogram::exponential(4);
  CHECK_EQ(h.bin(1), 0u);
  CHECK_EQ(h.bin(2), 1u);
  CHECK_EQ(h.bin(3), 1u);
  CHECK_EQ(h.bin(4), 2u);
  CHECK_EQ(h.bin(7), 2u);
  CHECK_EQ(h.bin(8), 3u);
  CHECK_EQ(h.bin(1000), 3u);
  CHECK_EQ(h.least(2), 4u);
  CHECK_EQ(h.least(-1), 0u);
}

TEST("histogram: linear bins hold one count each") {
  const auto h = Histogram::linear(15);
  CHECK_EQ(h.bins().size(), 15u);
  CHECK_EQ(h.bin(1), 0u);
  CHECK_EQ(h.bin(15), 14u);
  CHECK_EQ(h.least(4), 5u);
}

TEST("histogram: counter width chooses the finer affordable bins") {
  CHECK_EQ(Histogram::for_counter(15).bins().size(), 15u);
  CHECK_EQ(Histogram::for_counter(255).bins().size(), 255u);
  CHECK_EQ(Histogram::for_counter(65535).bins().size(), 16u);
}

TEST("histogram: pages move between bins, and an unseen page leaves no negative bin") {
  auto h = Histogram::exponential();
  h.add(1);
  h.move(1, 2);
  h.move(2, 3);  // same bin
  CHECK_EQ(h.bins()[0], 0u);
  CHECK_EQ(h.bins()[1], 1u);
  h.move(9, 10);  // raised to 9 by a collision that nobody reported
  CHECK_EQ(h.bins()[3], 1u);
  h.remove(3);
  h.remove(3);
  CHECK_EQ(h.bins()[1], 0u);
}

TEST("histogram: a unit of several pages counts with all of them") {
  auto h = Histogram::exponential();
  h.add(5);
  h.add(3, 512);
  h.move(3, 4, 512);
  CHECK_EQ(h.bins()[1], 0u);
  CHECK_EQ(h.bins()[2], 513u);
  h.remove(4, 600);  // more than there are
  CHECK_EQ(h.bins()[2], 0u);
}

TEST("histogram: cooling moves every page to the bin of half its count") {
  for (const bool linear : {true, false}) {
    auto h = linear ? Histogram::linear(31) : Histogram::exponential();
    auto expected = h;
    for (std::uint32_t count = 1; count <= 31; ++count) {
      for (std::uint32_t n = 0; n < count; ++n) {  // as many pages as the count says
        h.add(count);
        expected.add(count / 2);
      }
    }
    h.cool();
    for (std::size_t b = 0; b < h.bins().size(); ++b) CHECK_EQ(h.bins()[b], expected.bins()[b]);
  }
}

TEST("histogram: MEMTIS Algorithm 1 by hand") {
  auto h = Histogram::exponential(4);  // pages per bin: 100, 50, 20, 10
  const std::uint64_t pages[] = {100, 50, 20, 10};
  for (int b = 0; b < 4; ++b) {
    for (std::uint64_t n = 0; n < pages[b]; ++n) h.add(h.least(b));
  }
  struct {
    double fast, alpha;
    int hot, warm, cold;
  } cases[] = {
      {5, 0.9, 4, 3, 2},       // not even the top bin fits; nothing is hot, s = 0
      {10, 0.9, 3, 3, 2},      // exactly the top bin: s = 10 > 9, no warm band
      {29, 0.9, 3, 2, 1},      // s = 10 <= 26.1: the bin below is warm
      {30, 0.9, 2, 2, 1},      // two bins fill it
      {33, 0.9, 2, 2, 1},      // s = 30 > 29.7
      {34, 0.9, 2, 1, 0},      // s = 30 <= 30.6
      {34, 0.75, 2, 2, 1},     // s = 30 > 25.5: the artifact's alpha
      {80, 0.9, 1, 1, 0},      //
      {180, 0.9, 0, 0, -1},    // all fits exactly
      {1000, 0.9, 0, -1, -2},  // all fits with room to spare; stops at b < 0
  };
  for (const auto& c : cases) {
    const auto t = classify::fit_thresholds(h, c.fast, c.alpha);
    CHECK_EQ(t.hot, c.hot);
    CHECK_EQ(t.warm, c.warm);
    CHECK_EQ(t.cold, c.cold);
  }
}

TEST("histogram: at_least counts the pages of a hot set") {
  auto h = Histogram::linear(15);
  for (std::uint32_t count : {1u, 1u, 5u, 7u, 15u}) h.add(count);
  CHECK_EQ(h.at_least(0), 5u);
  CHECK_EQ(h.at_least(2), 3u);
  CHECK_EQ(h.at_least(15), 1u);
}

namespace {

AdaptiveThreshold adaptive(AdaptiveThreshold::Rule rule, double fast_pages) {
  return AdaptiveThreshold({.rule = rule,
                            .initial = 5,
                            .floor = 3,
                            .ceiling = 15,
                            .fast_pages = fast_pages,
                            .period = 100});
}
/// So many pages have that count now, none before.
void pages(AdaptiveThreshold& threshold, std::size_t number, std::uint32_t count) {
  const std::vector<std::uint32_t> before(number, 0), after(number, count);
  threshold.move(before, after);
}

}  // namespace

TEST("threshold: the fill rule jumps to the lowest count whose pages fit") {
  auto t = adaptive(AdaptiveThreshold::Rule::fill, 25);
  pages(t, 20, 9);
  pages(t, 20, 6);
  CHECK(!t.advance(99));
  CHECK_EQ(t.value(), 5u);
  CHECK(t.advance(1));
  CHECK_EQ(t.value(), 7u);  // counts 7..15 hold 20 pages; 6 would make 40
  CHECK_EQ(t.hot_pages(), 20u);
}

TEST("threshold: stays within floor and ceiling") {
  auto low = adaptive(AdaptiveThreshold::Rule::fill, 1);
  pages(low, 1, 1);
  low.advance(100);
  CHECK_EQ(low.value(), 3u);
  auto high = adaptive(AdaptiveThreshold::Rule::fill, 1);
  pages(high, 20, 15);
  high.advance(100);
  CHECK_EQ(high.value(), 15u);
}

TEST("threshold: the fill rule begins when the sampled pages could fill the fast tier") {
  auto t = adaptive(AdaptiveThreshold::Rule::fill, 25);
  pages(t, 24, 2);
  CHECK(!t.advance(100));
  CHECK_EQ(t.value(), 5u);
  pages(t, 1, 1);
  CHECK(t.advance(100));
  CHECK_EQ(t.value(), 3u);
  t.cool();  // 24 pages are left; what has begun goes on
  CHECK(t.advance(100));
}

TEST("threshold: the step rule climbs while the hot set is too large, sinks while it fits") {
  auto t = adaptive(AdaptiveThreshold::Rule::step, 10);
  pages(t, 20, 6);
  t.advance(100);
  CHECK_EQ(t.value(), 6u);
  t.advance(100);
  CHECK_EQ(t.value(), 7u);  // no page is hot now,
  t.advance(100);
  CHECK_EQ(t.value(), 7u);  // but at 6 too many would be: no swinging
  t.cool();                 // 6 -> 3: all thresholds above 3 fit
  for (int n = 0; n < 10; ++n) t.advance(100);
  CHECK_EQ(t.value(), 4u);
}

TEST("threshold: the fixed rule never adapts, and periods carry their remainder") {
  auto fixed = adaptive(AdaptiveThreshold::Rule::fixed, 1);
  pages(fixed, 20, 9);
  CHECK(!fixed.advance(1000));
  CHECK_EQ(fixed.value(), 5u);
  auto t = adaptive(AdaptiveThreshold::Rule::fill, 1);
  pages(t, 1, 1);
  CHECK(t.advance(150));
  CHECK(t.advance(50));
}

TEST("threshold: pages that rise leave the bins that they were in") {
  auto t = adaptive(AdaptiveThreshold::Rule::fixed, 1);
  const std::uint32_t before[] = {0, 0, 0}, after[] = {6, 6, 2}, later[] = {7, 4, 9};
  t.move(before, after);
  CHECK_EQ(t.hot_pages(), 2u);
  t.move(after, later);
  CHECK_EQ(t.hot_pages(), 2u);  // 7 and 9; one fell to 4
  CHECK_EQ(t.histogram().at_least(1), 3u);
}

TEST("threshold: lowered by a step, not below the floor, and not raised by it") {
  auto t = adaptive(AdaptiveThreshold::Rule::fixed, 1);
  t.lower(1);
  CHECK_EQ(t.value(), 4u);
  t.lower(100);
  CHECK_EQ(t.value(), 3u);
  AdaptiveThreshold below({.initial = 2, .floor = 3, .ceiling = 15});
  below.lower(1);
  CHECK_EQ(below.value(), 2u);
}
