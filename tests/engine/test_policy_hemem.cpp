#include <algorithm>

#include "check.hpp"
#include "fake_memory.hpp"

using namespace tt;
using test::KnobMap;
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
  rig.sample({20}, 7, AccessKind::load);
  rig.sample({20}, 3, AccessKind::store);  // ten samples, and yet cold
  rig.sample({21}, 8, AccessKind::load);
  rig.sample({22}, 4, AccessKind::store);
  rig.run(0.05);
  CHECK((rig.memory.queued(Tier::fast) == Pages{21, 22}));
}

TEST("hemem: a full fast tier gives up one cold page per hot one, victims first") {
  auto rig = hemem({}, uncooled());
  rig.sample({0, 1, 20, 21}, 8);  // 0 and 1 are hot themselves
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

TEST("hemem: migration stops when the hot set exceeds the fast tier, and goes on when it shrinks") {
  auto rig = hemem({}, uncooled());
  rig.sample(span_of(0, 10), 8);
  rig.run(0.02);
  rig.sample({20}, 8);
  rig.run(0.02);
  CHECK_EQ(rig.memory.queue.size(), 0u);
  const auto scanned = rig.memory.work(Work::scan_step);
  rig.run(1);
  CHECK_EQ(rig.memory.work(Work::scan_step), scanned);  // no search while nothing changed
  rig.unmap(5, 1);                                      // room
  rig.run(0.02);
  CHECK((rig.memory.queued(Tier::fast) == Pages{20}));
}

TEST("hemem: a page at the cooling threshold halves every count; hot pages then turn cold") {
  auto rig = hemem();
  rig.sample({20}, 8);
  rig.sample({21}, 17);
  rig.sample({22}, 16);
  rig.run(0.05);
  CHECK_EQ(rig.gauge("hot_pages"), 3.0);
  CHECK_EQ(rig.gauge("coolings"), 0.0);
  rig.sample({21});  // the 18th: 9; 20 has 4 left, 22 has 8
  CHECK_EQ(rig.gauge("coolings"), 1.0);
  rig.run(0.05);
  CHECK(rig.policy->heat({21}) == Heat::hot);
  CHECK(rig.policy->heat({22}) == Heat::hot);
  CHECK(rig.policy->heat({20}) == Heat::cold);
  rig.sample({21}, 9);  // 18 again
  CHECK_EQ(rig.gauge("coolings"), 2.0);
}

TEST("hemem: cooling_pages hot pages are looked at per pass, fractions carried over") {
  auto rig = hemem({}, {{"cooling_pages", 0.5}, {"cooling_threshold", 9.0}});
  rig.sample({0, 1, 2, 3}, 8);
  rig.run(0.01);
  CHECK_EQ(rig.gauge("hot_pages"), 4.0);
  rig.sample({9}, 9);
  rig.run(0.02);
  CHECK_EQ(rig.gauge("hot_pages"), 3.0);  // one looked at; 9 cooled before it entered
  rig.run(0.04);
  CHECK_EQ(rig.gauge("hot_pages"), 1.0);
}

TEST("hemem: the rings let so many pages per pass enter and leave the hot lists") {
  auto rig = hemem({}, uncooled({{"hot_ring_reqs_threshold", 1.5}}));
  rig.sample(span_of(20, 6), 8);
  CHECK_EQ(rig.gauge("hot_ring_pages"), 6.0);
  rig.run(0.01);
  CHECK_EQ(rig.gauge("hot_pages"), 1.0);
  rig.run(0.01);
  CHECK_EQ(rig.gauge("hot_pages"), 3.0);

  auto cold = hemem(
      {}, {{"cold_ring_reqs_threshold", 1.0}, {"cooling_pages", 0.0}, {"cooling_threshold", 9.0}});
  cold.sample({0, 1, 2}, 8);
  cold.run(0.01);
  cold.sample({9}, 9);  // halves all; the sweep never looks
  cold.sample({0, 1, 2});
  CHECK_EQ(cold.gauge("cold_ring_pages"), 3.0);
  cold.run(0.01);
  CHECK_EQ(cold.gauge("cold_ring_pages"), 2.0);
  CHECK(cold.policy->heat({0}) == Heat::cold);
  CHECK(cold.policy->heat({1}) == Heat::hot);
}

TEST("hemem: the migration rate bounds both directions together, remainder carried") {
  // Half a page per pass of 10 ms.
  auto rig = hemem({}, uncooled({{"max_migration_rate", 50.0 * huge / (1 << 30)}}));
  rig.sample(span_of(20, 4), 8);
  rig.run(0.1);
  CHECK_EQ(rig.memory.queue.size(), 5u);
  rig.run(0.1);
  CHECK_EQ(rig.memory.queued(Tier::slow).size() + rig.memory.queued(Tier::fast).size(), 8u);
}

TEST("hemem: a failed promotion is tried again; a page that is gone is forgotten") {
  auto rig = hemem({}, uncooled());
  rig.sample({20, 21, 22}, 8);
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
  rig.sample({20}, 8);
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
