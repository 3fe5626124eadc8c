// SPDX-License-Identifier: MIT

#include <algorithm>

#include "check.hpp"
#include "fake_memory.hpp"

using namespace tt;
using test::Rig;

namespace {

using Pages = std::vector<std::uint64_t>;
constexpr std::uint64_t huge = 2 << 20;

// 10 fast pages 0..9, 30 slow ones; passes of 10 ms, rates that do not bind.
Rig hemem(const KnobMap& given = {}, const KnobMap& scaled = {}) {
  Rig rig("hemem", given, scaled, 10, 100, huge);
  rig.map(0, 40);
  return rig;
}
KnobMap uncooled(KnobMap knobs = {}) {
  knobs.insert({"cooling_threshold", 1e9});
  return knobs;
}
/// So many samples of each page, one at a time: a sample that finds a page cold makes a request,
/// which would take the page off the hot list again if it were served after the last sample's.
void sample(Rig& rig, const Pages& pages, unsigned times, AccessKind kind = AccessKind::load) {
  for (; times > 1; --times) {
    rig.sample(pages, 1, kind);
    rig.run(0.1);
  }
  rig.sample(pages, 1, kind);
}
Pages span_of(std::uint64_t first, std::uint64_t count) {
  Pages pages;
  for (std::uint64_t i = 0; i < count; ++i) pages.push_back(first + i);
  return pages;
}

}  // namespace

TEST("hemem: the knobs are exactly the ten of the published table") {
  struct {
    const char* name;
    double initial, min, max;
  } table[] = {{"sampling_period", 5000, 100, 10000},
               {"write_sampling_period", 10000, 1000, 20000},
               {"read_hot_threshold", 8, 1, 30},
               {"write_hot_threshold", 4, 1, 30},
               {"cooling_threshold", 18, 4, 40},
               {"migration_period", 10, 10, 5000},
               {"max_migration_rate", 10, 2, 20},
               {"cooling_pages", 8192, 1024, 65536},
               {"hot_ring_reqs_threshold", 1024, 128, 4096},
               {"cold_ring_reqs_threshold", 32, 8, 256}};
  const auto& knobs = policy("hemem").knobs;
  CHECK_EQ(knobs.size(), std::size(table) + 4);  // and those of AOL regulation
  for (const auto& row : table) {
    const auto it = std::ranges::find(knobs, row.name, &KnobDecl::name);
    CHECK(it != knobs.end());
    if (it == knobs.end()) continue;
    CHECK(it->type == KnobType::integer);
    CHECK_EQ(static_cast<double>(std::get<std::int64_t>(it->initial)), row.initial);
    CHECK_EQ(it->min, row.min);
    CHECK_EQ(it->max, row.max);
  }
}

TEST("hemem: loads and stores are counted apart, each against its own threshold") {
  auto rig = hemem({}, uncooled());
  sample(rig, {20}, 7, AccessKind::load);
  sample(rig, {20}, 3, AccessKind::store);  // ten samples, and yet cold
  sample(rig, {21}, 8, AccessKind::load);
  sample(rig, {22}, 4, AccessKind::store);
  rig.run(0.05);
  CHECK((rig.memory.queued(Tier::fast) == Pages{21, 22}));
}

TEST("hemem: a full fast tier gives up one cold page per hot one, victims first") {
  auto rig = hemem({}, uncooled());
  sample(rig, {0, 1, 20, 21}, 8);  // 0 and 1 are hot themselves
  rig.run(0.05);
  CHECK((rig.memory.queued(Tier::slow) == Pages{2, 3}));
  CHECK((rig.memory.queued(Tier::fast) == Pages{20, 21}));
  CHECK(rig.memory.queue.front().second == Tier::slow);
  rig.settle();
  CHECK(rig.memory.where({20}) == Residency::fast);
  CHECK(rig.memory.where({2}) == Residency::slow);
  rig.run(1);
  CHECK_EQ(rig.memory.queue.size(), 0u);  // nothing left to do
}

TEST("hemem: a pass asks for the residency of many pages at once") {
  Rig rig("hemem", {{"hot_ring_reqs_threshold", 1000.0}}, uncooled(), 400, 1000);
  rig.map(0, 1000);
  sample(rig, span_of(500, 300), 8);
  const auto calls = rig.memory.residency_calls;
  rig.run(0.05);  // hot pages enter their lists, and victims are looked for
  CHECK(rig.memory.requested.size() > 100);
  CHECK(rig.memory.residency_calls - calls <= 50);
}

TEST("hemem: migration stops when the hot set exceeds the fast tier, and goes on when it shrinks") {
  auto rig = hemem({}, uncooled());
  sample(rig, span_of(0, 10), 8);
  rig.run(0.02);
  sample(rig, {20}, 8);
  rig.run(0.02);
  CHECK_EQ(rig.memory.queue.size(), 0u);
  const auto scanned = rig.memory.work(Work::scan_step);
  rig.run(1);
  CHECK_EQ(rig.memory.work(Work::scan_step), scanned);  // no search while nothing changed
  rig.unmap(5, 1);                                      // room
  rig.run(0.02);
  CHECK((rig.memory.queued(Tier::fast) == Pages{20}));
}

TEST("hemem: a page above the cooling threshold halves every count; hot pages then turn cold") {
  auto rig = hemem();
  sample(rig, {0}, 8);
  sample(rig, {1}, 18);
  sample(rig, {2}, 16);
  rig.run(0.05);
  CHECK_EQ(rig.gauge("hot_pages"), 3.0);
  CHECK_EQ(rig.gauge("coolings"), 0.0);
  rig.sample({1});  // the 19th: 9; 0 has 4 left, 2 has 8
  CHECK_EQ(rig.gauge("coolings"), 1.0);
  rig.run(0.05);
  CHECK(rig.policy->heat({1}) == Heat::hot);
  CHECK(rig.policy->heat({2}) == Heat::hot);
  CHECK(rig.policy->heat({0}) == Heat::warm);  // its counters are halved when next sampled
  sample(rig, {1}, 9);                         // the first of them halves: 10, and then 18
  CHECK_EQ(rig.gauge("coolings"), 1.0);
  rig.sample({1});
  CHECK_EQ(rig.gauge("coolings"), 2.0);
}

namespace {

void sample_as(Rig& rig, std::uint64_t page, Tier tier, unsigned times) {
  for (; times > 0; --times) {
    const Sample sample{{page}, tier, AccessKind::load};
    rig.policy->on_samples({&sample, 1}, rig.now);
    rig.run(0.05);
  }
}

}  // namespace

TEST("hemem: the cooling threshold is of each kind of event, hotness of all loads") {
  auto rig = hemem();
  sample_as(rig, 0, Tier::fast, 18);
  sample_as(rig, 0, Tier::slow, 18);
  CHECK_EQ(rig.gauge("coolings"), 0.0);
  sample_as(rig, 1, Tier::fast, 4);
  sample_as(rig, 1, Tier::slow, 4);
  rig.run(0.05);
  CHECK(rig.policy->heat({1}) == Heat::hot);
}

TEST("hemem: a sample is judged before the page makes up for the halvings that it missed") {
  auto rig = hemem();
  sample(rig, {20}, 7);
  sample(rig, {0}, 19);  // halves
  rig.run(0.05);
  rig.sample({20});  // the eighth: hot, and only then halved
  CHECK_EQ(rig.gauge("hot_ring_pages"), 1.0);
  CHECK(rig.policy->heat({20}) == Heat::cold);  // four are left
}

TEST("hemem: victims are the oldest of the cold list; a page that turns cold comes last") {
  auto rig = hemem();
  sample(rig, {0, 1}, 8);
  rig.run(0.05);
  sample(rig, {30}, 19);  // halves: 0 and 1 are swept cold, and 30 is hot
  rig.run(0.05);
  CHECK((rig.memory.queued(Tier::slow) == Pages{2}));
  rig.settle();
  sample(rig, span_of(20, 9), 18);
  rig.run(0.05);
  CHECK((rig.memory.queued(Tier::slow) == Pages{3, 4, 5, 6, 7, 8, 9, 0, 1}));
}

TEST("hemem: cold pages wait in the cold ring with those that turned cold") {
  auto rig = hemem(
      {}, {{"cold_ring_reqs_threshold", 1.0}, {"cooling_pages", 0.0}, {"cooling_threshold", 9.0}});
  sample(rig, {0}, 8);
  sample(rig, {9}, 9);
  rig.run(0.05);
  rig.sample(span_of(20, 5));  // cold, and never were hot
  CHECK_EQ(rig.gauge("cold_ring_pages"), 5.0);
  rig.sample(span_of(20, 5));  // they are in already
  CHECK_EQ(rig.gauge("cold_ring_pages"), 5.0);
  rig.sample({9});     // halves
  rig.sample({0}, 2);  // 9 / 2, and one more: cold
  rig.run(0.05);
  CHECK(rig.policy->heat({0}) == Heat::hot);  // its turn comes after the five
  rig.run(0.03);
  CHECK(rig.policy->heat({0}) == Heat::cold);
}

namespace {

constexpr double most_waiting = 8 * 512;  // in a ring: of 40 pages, which are kept by 512

}  // namespace

TEST("hemem: a ring drops what it has no room for, and the next sample asks again") {
  auto rig = hemem({}, uncooled());
  rig.sample({20}, 5000);  // from the eighth on it is hot, and not yet taken
  CHECK_EQ(rig.gauge("hot_ring_pages"), most_waiting);
  rig.sample({21}, 8);
  CHECK_EQ(rig.gauge("hot_ring_pages"), most_waiting);
  rig.run(0.05);
  CHECK_EQ(rig.gauge("hot_ring_pages"), 0.0);
  CHECK(rig.policy->heat({21}) == Heat::warm);
  rig.sample({21});
  rig.run(0.05);
  CHECK(rig.policy->heat({21}) == Heat::hot);
}

TEST("hemem: the rings do not grow with pages that come and go, or turn hot and cold") {
  auto rig = hemem(
      {}, {{"cold_ring_reqs_threshold", 0.0}, {"cooling_pages", 0.0}, {"cooling_threshold", 9.0}});
  for (int round = 0; round < 600; ++round) {
    sample(rig, span_of(20, 5), 9);
    rig.run(0.05);
    sample(rig, {9}, 20);  // halves all, more than once
    rig.sample(span_of(20, 5), 3);
    rig.unmap(22, 2);
    rig.map(22, 2);
  }
  CHECK(rig.gauge("coolings") >= 600.0);
  CHECK_EQ(rig.gauge("cold_ring_pages"), most_waiting);  // nothing is taken from it here
}

TEST("hemem: four threads copy one page at a time, write-protected; 168 bytes describe a page") {
  auto rig = hemem();
  const Movers expected{.threads = 4, .together = 4, .copy = Copy::write_protected};
  CHECK(rig.memory.movers.back() == expected);
  CHECK_EQ(rig.policy->metadata_bytes(), 40u * 168);
}

TEST("hemem: cooling_pages hot pages are looked at per pass, fractions carried over") {
  auto rig = hemem({}, {{"cooling_pages", 0.5}, {"cooling_threshold", 9.0}});
  sample(rig, {0, 1, 2, 3}, 8);
  rig.run(0.01);
  CHECK_EQ(rig.gauge("hot_pages"), 4.0);
  sample(rig, {9}, 10);
  CHECK_EQ(rig.gauge("sweep_pages"), 5.0);
  rig.run(0.02);
  CHECK_EQ(rig.gauge("hot_pages"), 4.0);  // one was looked at, and left
  rig.run(0.04);
  CHECK_EQ(rig.gauge("hot_pages"), 2.0);
}

TEST("hemem: the rings let so many pages per pass enter and leave the hot lists") {
  auto rig = hemem({}, uncooled({{"hot_ring_reqs_threshold", 1.5}}));
  sample(rig, span_of(0, 6), 8);
  CHECK_EQ(rig.gauge("hot_ring_pages"), 6.0);
  rig.run(0.01);
  CHECK_EQ(rig.gauge("hot_pages"), 1.0);
  rig.run(0.01);
  CHECK_EQ(rig.gauge("hot_pages"), 3.0);

  auto cold = hemem(
      {}, {{"cold_ring_reqs_threshold", 1.0}, {"cooling_pages", 0.0}, {"cooling_threshold", 9.0}});
  sample(cold, {0, 1, 2}, 8);
  cold.run(0.05);         // the samples before the eighth are in the cold ring, too
  sample(cold, {9}, 10);  // halves all; the sweep never looks
  cold.run(0.05);
  CHECK_EQ(cold.gauge("cold_ring_pages"), 0.0);
  cold.sample({0, 1, 2}, 2);
  CHECK_EQ(cold.gauge("cold_ring_pages"), 3.0);
  cold.run(0.01);
  CHECK_EQ(cold.gauge("cold_ring_pages"), 2.0);
  CHECK(cold.policy->heat({0}) == Heat::cold);
  CHECK(cold.policy->heat({1}) == Heat::hot);
}

TEST("hemem: the migration rate bounds both directions together, remainder carried") {
  // Half a page per pass of 10 ms.
  auto rig = hemem({}, uncooled({{"max_migration_rate", 50.0 * huge / (1 << 30)}}));
  sample(rig, span_of(20, 4), 8);
  rig.run(0.1);
  CHECK_EQ(rig.memory.queue.size(), 5u);
  rig.run(0.1);
  CHECK_EQ(rig.memory.queued(Tier::slow).size() + rig.memory.queued(Tier::fast).size(), 8u);
}

TEST("hemem: a failed promotion is tried again; a page that is gone is forgotten") {
  auto rig = hemem({}, uncooled());
  sample(rig, {20, 21, 22}, 8);
  rig.run(0.02);
  rig.settle([](PageId page, Tier to) {
    if (to == Tier::slow) return Outcome::done;
    if (page.value == 20) return Outcome::busy;
    if (page.value == 21) return Outcome::gone;
    return Outcome::done;
  });
  CHECK_EQ(rig.gauge("hot_pages"), 2.0);
  CHECK_EQ(rig.gauge("slow_hot_pages"), 1.0);
  rig.run(0.02);
  CHECK((rig.memory.queued(Tier::fast) == Pages{20}));
}

TEST("hemem: a promotion that was dropped on the way is asked for again when sampled") {
  auto rig = hemem({}, uncooled());
  sample(rig, {20}, 8);
  rig.run(0.02);
  rig.memory.queue.clear();  // as a regulator would
  rig.run(1);
  CHECK_EQ(rig.memory.queue.size(), 0u);
  rig.sample({20});
  rig.run(0.02);
  CHECK((rig.memory.queued(Tier::fast) == Pages{20}));
}

TEST("hemem: samples the two kinds of events at their own periods") {
  auto rig = hemem({{"sampling_period", std::int64_t{300}}});
  const auto& request = rig.memory.sampling.back();
  CHECK(request.loads == (SamplingRequest::Event{SamplingRequest::Mode::period, 300}));
  CHECK(request.stores == (SamplingRequest::Event{SamplingRequest::Mode::period, 10000}));
}
