// SPDX-License-Identifier: MIT

#include <algorithm>

#include "check.hpp"
#include "fake_memory.hpp"

using namespace tt;
using test::Rig;

namespace {

using Pages = std::vector<std::uint64_t>;

KnobMap with(KnobMap base, const KnobMap& more) {
  for (auto& [name, value] : more) base.insert_or_assign(name, value);
  return base;
}

// 20 fast pages 0..19, 80 slow ones; nothing adapts, cools or demotes unasked; one-sample batches.
Rig freq(const KnobMap& more = {}, const KnobMap& scaled = {}) {
  Rig rig("freqtier",
          with({{"adaptation_period", 1e8},
                {"cooling_period", 1e5},
                {"cbf_counters_per_fast_page", 256.0},
                {"promote_watermark", 0.0},
                {"demote_watermark", 0.0}},
               more),
          with({{"sample_batch", 1.0}}, scaled), 20, 100);
  rig.map(0, 100);
  return rig;
}

void window(Rig& rig, double ratio) {
  rig.memory.now.loads[0] += 1000 * ratio;
  rig.memory.now.loads[1] += 1000 * (1 - ratio);
  rig.run(60);
}

}  // namespace

TEST("freqtier: Algorithm 1: a slow page is promoted when its count reaches the threshold") {
  auto rig = freq();
  rig.sample({30}, 4);
  CHECK_EQ(rig.memory.queue.size(), 0u);
  rig.sample({30});
  CHECK((rig.memory.queued(Tier::fast) == Pages{30}));
  rig.memory.queue.clear();
  rig.sample({3}, 9);  // fast already
  CHECK_EQ(rig.memory.queue.size(), 0u);
}

TEST("freqtier: Algorithm 2: fast pages below the threshold are demoted, the others stay") {
  Rig rig("freqtier",
          {{"promote_watermark", 0.05}, {"demote_watermark", 0.5}, {"adaptation_period", 1e8}},
          {{"sample_batch", 1.0}}, 20, 100);
  rig.sample({0, 2, 4}, 5);
  rig.map(0, 20);
  rig.run(1);
  Pages expected{1, 3};
  for (std::uint64_t p = 5; p < 20; ++p) expected.push_back(p);
  CHECK((rig.memory.queued(Tier::slow) == expected));  // chunks are whole: all of them
}

TEST("freqtier: coalescing: one filter update per distinct page of a batch") {
  auto rig = freq({}, {{"sample_batch", 100.0}});
  Pages pages;
  for (std::uint64_t p = 20; p < 30; ++p) pages.push_back(p);
  rig.sample(pages, 10);
  CHECK_EQ(rig.memory.work(Work::tracker_update), 10u);
  CHECK_EQ(rig.memory.queued(Tier::fast).size(), 10u);
  CHECK_EQ(rig.memory.request_calls, 1u);
}

TEST("freqtier: the threshold climbs step by step until the hot set fits the fast tier") {
  auto rig = freq({}, {{"adaptation_period", 100.0}});
  Pages many;
  for (std::uint64_t p = 20; p < 60; ++p) many.push_back(p);
  rig.sample(many, 8);  // 40 pages at 8, twice the fast tier
  rig.sample({5}, 480);
  CHECK_EQ(rig.gauge("hot_threshold"), 9.0);
  rig.memory.queue.clear();
  rig.sample({20});
  CHECK((rig.memory.queued(Tier::fast) == Pages{20}));
}

TEST("freqtier: sampling follows the ladder down, off, and back to the top") {
  auto rig = freq();
  const auto rate = [&] { return rig.memory.sampling.back().loads.value; };
  CHECK_EQ(rate(), 100000.0);
  const auto promote = [&](std::uint64_t page) {
    rig.memory.free({{page - 20}, 1});
    rig.sample({page}, 6);
    rig.settle();
  };
  promote(20);
  window(rig, 0.7);
  promote(21);
  window(rig, 0.7);
  CHECK_EQ(rate(), 10000.0);
  promote(22);
  window(rig, 0.7);
  CHECK_EQ(rate(), 1000.0);
  promote(23);
  window(rig, 0.7);
  CHECK_EQ(rig.gauge("monitoring"), 1.0);
  CHECK(rig.memory.sampling.back().loads.mode == SamplingRequest::Mode::off);
  window(rig, 0.69);
  CHECK_EQ(rate(), 100000.0);
}

TEST("freqtier: no promotion in a window, or an empty scan, is monitoring too") {
  auto plateau = freq();
  window(plateau, 0.5);
  window(plateau, 0.9);
  CHECK_EQ(plateau.gauge("monitoring"), 1.0);

  Rig full("freqtier", {{"promote_watermark", 0.05}, {"demote_watermark", 0.1}},
           {{"sample_batch", 1.0}, {"adaptation_period", 1e9}}, 20, 100);
  Pages all;
  for (std::uint64_t p = 0; p < 20; ++p) all.push_back(p);
  full.sample(all, 6);
  full.map(0, 40);
  full.run(1);
  CHECK_EQ(full.gauge("monitoring"), 1.0);
  CHECK(full.memory.sampling.back().loads.mode == SamplingRequest::Mode::off);
  const auto scanned = full.memory.work(Work::scan_step);
  full.run(30);
  CHECK_EQ(full.memory.work(Work::scan_step), scanned);  // monitoring does not scan
}

TEST("freqtier: counters halve every cooling period") {
  auto rig = freq({{"cooling_period", 10.0}});  // 200 samples
  rig.sample({30}, 4);
  rig.sample({3}, 196);
  CHECK_EQ(rig.gauge("coolings"), 1.0);
  rig.sample({30}, 2);  // 4 / 2 + 2
  CHECK_EQ(rig.memory.queue.size(), 0u);
  rig.sample({30});
  CHECK_EQ(rig.memory.queue.size(), 1u);
}

TEST("freqtier: thresholds that the counters cannot reach are refused") {
  CHECK_THROWS(Rig("freqtier", {{"hot_threshold", std::int64_t{16}}}, 20, 100),
               "hot_threshold: found 16, allowed up to 15 with cbf_counter_bits 4");
}
