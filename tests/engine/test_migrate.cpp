// SPDX-License-Identifier: MIT

#include "check.hpp"
#include "core/assert.hpp"
#include "fake_memory.hpp"
#include "migrate/allowance.hpp"
#include "migrate/cold_list.hpp"
#include "migrate/demotion_scan.hpp"
#include "migrate/mapped_ranges.hpp"
#include "migrate/page_list.hpp"
#include "migrate/promotion_batch.hpp"
#include "migrate/second_chance.hpp"

using namespace tt;
using migrate::DemotionScan;
using migrate::MappedRanges;
using migrate::SecondChance;
using test::FakeMemory;

namespace {

PageRange range(std::uint64_t first, std::uint64_t count) { return {{first}, count}; }

std::vector<std::uint64_t> walk(const MappedRanges& space, std::uint64_t from,
                                std::uint64_t chunk) {
  std::vector<std::uint64_t> pages;
  PageId cursor{from};
  while (pages.size() < space.pages()) {
    const auto run = space.next(cursor, chunk);
    for (std::uint64_t i = 0; i < run.count; ++i) pages.push_back(run.first.value + i);
    cursor = run.end();
  }
  return pages;
}

}  // namespace

TEST("address space: maps, merges, splits; harmless when told twice") {
  MappedRanges space;
  CHECK_EQ(space.next({0}, 10).count, 0u);
  space.map(range(10, 5));
  space.map(range(20, 5));
  space.map(range(15, 5));  // joins both
  CHECK_EQ(space.pages(), 15u);
  CHECK(space.next({10}, 100) == range(10, 15));
  space.map(range(12, 4));  // known already
  CHECK_EQ(space.pages(), 15u);
  space.unmap(range(14, 2));
  CHECK_EQ(space.pages(), 13u);
  CHECK(space.contains({13}));
  CHECK(!space.contains({14}));
  CHECK(!space.contains({15}));
  CHECK(space.contains({16}));
  const auto version = space.version();
  space.unmap(range(0, 12));
  CHECK_EQ(space.version(), version);  // nothing new is mapped
  CHECK_EQ(space.pages(), 11u);
  space.unmap(range(100, 12));
  space.unmap(range(0, 1000));
  CHECK_EQ(space.pages(), 0u);
  space.map(range(0, 1));
  CHECK(space.version() > version);
}

TEST("address space: against a plain set of pages, at random") {
  MappedRanges space;
  std::set<std::uint64_t> pages;
  std::uint64_t x = 1;
  for (int n = 0; n < 2000; ++n) {
    x = mix64(x + 1);
    const auto r = range(x % 200, (x >> 20) % 30);
    for (std::uint64_t i = 0; i < r.count; ++i) {
      if (x >> 63) {
        pages.insert(r.first.value + i);
      } else {
        pages.erase(r.first.value + i);
      }
    }
    x >> 63 ? space.map(r) : space.unmap(r);
    CHECK_EQ(space.pages(), pages.size());
    CHECK_EQ(space.contains({x % 230}), pages.contains(x % 230));
    auto all = walk(space, 0, 7);
    CHECK(std::ranges::equal(all, pages));
  }
}

TEST("address space: a cursor wraps and survives ranges that appear and vanish") {
  MappedRanges space;
  space.map(range(10, 10));
  space.map(range(100, 10));
  CHECK(space.next({15}, 3) == range(15, 3));
  CHECK(space.next({18}, 5) == range(18, 2));  // a run ends with its range
  CHECK(space.next({20}, 5) == range(100, 5));
  CHECK(space.next({110}, 5) == range(10, 5));  // wraps
  space.unmap(range(100, 10));
  CHECK(space.next({104}, 5) == range(10, 5));
  space.map(range(105, 2));
  CHECK(space.next({104}, 5) == range(105, 2));
}

namespace {

struct ScanRig {
  FakeMemory memory{100, 1000};
  MappedRanges space;
  std::set<std::uint64_t> cold;
  std::vector<std::uint64_t> judged;

  explicit ScanRig(std::uint64_t pages) {
    space.map(range(0, pages));
    for (std::uint64_t p = 0; p < pages; ++p) memory.touch({p}, Tier::fast);
  }
  DemotionScan::Result run(DemotionScan& scan) {
    return scan.run(memory, space, [&](auto fast, auto& victims) {
      for (const PageId page : fast) {
        judged.push_back(page.value);
        if (cold.contains(page.value)) victims.push_back(page);
      }
    });
  }
};

}  // namespace

TEST("demotion scan: starts below the promote watermark, runs to the demote watermark") {
  ScanRig rig(95);
  for (std::uint64_t p = 0; p < 95; ++p) rig.cold.insert(p);
  DemotionScan scan({.promote_watermark = 0.05, .demote_watermark = 0.10, .chunk = 1});
  CHECK(!rig.run(scan).triggered);  // exactly 5 % free: not below
  rig.memory.touch({95}, Tier::fast);
  rig.space.map(range(95, 1));
  const auto result = rig.run(scan);
  CHECK(result.triggered);
  CHECK_EQ(result.requested, 6u);  // 4 free, 10 wanted
  CHECK_EQ(result.scanned, 6u);
  CHECK_EQ(rig.memory.work(Work::scan_step), 6u);
  CHECK(!rig.run(scan).triggered);  // demotions under way count as free
  rig.memory.complete();
  CHECK_EQ(rig.memory.free_pages(Tier::fast), 10u);
}

TEST("demotion scan: resumes where it stopped, and asks chunk by chunk") {
  ScanRig rig(100);
  for (std::uint64_t p = 0; p < 100; ++p) rig.cold.insert(p);
  DemotionScan scan({.promote_watermark = 0.01, .demote_watermark = 0.10, .chunk = 4});
  auto result = rig.run(scan);
  CHECK_EQ(result.scanned, 12u);  // whole chunks
  CHECK_EQ(rig.memory.residency_calls, 3u);
  CHECK(scan.cursor() == PageId{12});
  rig.memory.complete();
  for (std::uint64_t p = 100; p < 112; ++p) rig.memory.touch({p}, Tier::fast);
  rig.space.map(range(100, 12));
  rig.judged.clear();
  rig.run(scan);
  CHECK_EQ(rig.judged.front(), 12u);
}

TEST("demotion scan: one pass at most; an empty one is told apart") {
  ScanRig rig(100);
  DemotionScan scan({.promote_watermark = 0.5, .demote_watermark = 0.5, .chunk = 7});
  auto result = rig.run(scan);
  CHECK(result.empty);
  CHECK_EQ(result.scanned, 100u);
  CHECK_EQ(rig.judged.size(), 100u);
  rig.cold = {50};
  result = rig.run(scan);
  CHECK(!result.empty);
  CHECK_EQ(result.requested, 1u);
  CHECK_EQ(result.scanned, 100u);
}

TEST("demotion scan: a slice bounds a run; a whole pass without a victim is told, over its runs") {
  ScanRig rig(100);
  DemotionScan scan({.promote_watermark = 0.5, .demote_watermark = 0.5, .chunk = 7, .slice = 0.25});
  for (int run = 0; run < 3; ++run) {
    const auto result = rig.run(scan);
    CHECK_EQ(result.scanned, 25u);
    CHECK(!result.empty);
  }
  CHECK(rig.run(scan).empty);
  rig.cold = {40};
  CHECK(!rig.run(scan).empty);
  CHECK_EQ(rig.run(scan).requested, 1u);  // 40 is in the second quarter
  for (int run = 0; run < 3; ++run) CHECK(!rig.run(scan).empty);
}

TEST("demotion scan: a demotion goes on over the slices up to the demote watermark") {
  ScanRig rig(96);
  for (std::uint64_t p = 0; p < 96; ++p) rig.cold.insert(p);
  DemotionScan scan(
      {.promote_watermark = 0.05, .demote_watermark = 0.25, .chunk = 1, .slice = 0.1});
  CHECK_EQ(rig.run(scan).requested, 10u);  // 14 of 100 free: above the promote watermark by now
  CHECK_EQ(rig.run(scan).requested, 10u);
  CHECK_EQ(rig.run(scan).requested, 1u);
  CHECK(!rig.run(scan).triggered);
}

TEST("demotion scan: stops at a full queue; absent and slow pages are not judged") {
  ScanRig rig(120);  // 20 of them in the slow tier
  for (std::uint64_t p = 0; p < 100; ++p) rig.cold.insert(p);
  rig.memory.free(range(0, 2));
  rig.memory.queue_limit = 5;
  DemotionScan scan({.promote_watermark = 0.1, .demote_watermark = 0.5, .chunk = 4});
  const auto result = rig.run(scan);
  CHECK_EQ(result.requested, 5u);
  CHECK_EQ(rig.judged.front(), 2u);
  CHECK(rig.judged.size() < 10);
}

TEST("demotion scan: watermarks in the wrong order are refused by name") {
  CHECK_THROWS(DemotionScan({.promote_watermark = 0.2, .demote_watermark = 0.1}),
               "demote_watermark: found 0.1");
}

TEST("demotion scan: constructed from its knobs, it takes a sixtieth of the pages a run") {
  std::vector<KnobDecl> declared = migrate::watermark_knobs("a");
  declared.push_back(migrate::scan_chunk_knob("b"));
  DemotionScan scan(resolve(
      declared, {{"promote_watermark", 0.5}, {"demote_watermark", 0.9}, {"scan_chunk", 1.0}}));
  ScanRig rig(120);
  for (std::uint64_t p = 0; p < 120; ++p) rig.cold.insert(p);
  CHECK_EQ(rig.run(scan).scanned, 2u);
  CHECK_EQ(rig.memory.residency_calls, 2u);  // a page at a time
  CHECK_THROWS(DemotionScan(resolve(declared, {{"promote_watermark", 0.1}})),
               "demote_watermark: found 0.05");
}

TEST("demotion scan: nothing mapped") {
  FakeMemory memory(0, 10);
  MappedRanges space;
  DemotionScan scan({.promote_watermark = 0.1, .demote_watermark = 0.5, .chunk = 4});
  const auto result = scan.run(memory, space, [](auto, auto&) {});
  CHECK_EQ(result.scanned, 0u);
}

namespace {

/// The pages that are due by then, in order; `demoted` of them are victims.
std::vector<std::uint64_t> due(SecondChance& chances, FakeMemory& memory, double second,
                               const std::set<std::uint64_t>& demoted = {}) {
  std::vector<std::uint64_t> pages;
  chances.revisit(memory, from_seconds(second), [&](const SecondChance::Marked& marked) {
    pages.push_back(marked.page.value);
    return demoted.contains(marked.page.value);
  });
  return pages;
}
using Pages = std::vector<std::uint64_t>;

}  // namespace

TEST("second chance: due after the revisit time, once, in order; bounded; no page twice") {
  FakeMemory memory(10, 10);
  for (std::uint64_t p = 0; p < 4; ++p) memory.touch({p}, Tier::fast);
  SecondChance chances(from_seconds(60), 2);
  CHECK(chances.mark({1}, 9, 0, from_seconds(0)));
  CHECK(!chances.mark({1}, 9, 0, from_seconds(1)));
  CHECK(chances.mark({2}, 9, 0, from_seconds(2)));
  CHECK(!chances.mark({3}, 9, 0, from_seconds(3)));  // full
  CHECK((due(chances, memory, 59) == Pages{}));
  CHECK((due(chances, memory, 60) == Pages{1}));
  CHECK((due(chances, memory, 60) == Pages{}));
  CHECK(chances.mark({1}, 9, 0, from_seconds(61)));  // may be marked again
  CHECK((due(chances, memory, 300) == Pages{2, 1}));
  CHECK_EQ(chances.size(), 0u);
}

TEST("second chance: victims are requested at once; pages that left the fast tier are not judged") {
  FakeMemory memory(3, 10);
  for (std::uint64_t p = 0; p < 5; ++p) memory.touch({p}, Tier::fast);  // 3 and 4 are slow
  SecondChance chances(from_seconds(1), 10);
  for (std::uint64_t p = 0; p < 6; ++p) chances.mark({p}, 9, 0, {});  // 5 is not mapped
  CHECK((due(chances, memory, 1, {0, 2, 4}) == Pages{0, 1, 2}));
  CHECK((memory.queued(Tier::slow) == Pages{0, 2}));
  CHECK_EQ(memory.request_calls, 1u);
  CHECK_EQ(memory.residency_calls, 1u);
  CHECK_EQ(memory.work(Work::scan_step), 6u);  // the residency of all that were due was asked
  due(chances, memory, 2);
  CHECK_EQ(memory.residency_calls, 1u);  // none is due: nothing is asked
}

TEST("second chance: constructed from its knobs") {
  FakeMemory memory(3, 10);
  memory.touch({0}, Tier::fast);
  SecondChance chances(resolve(migrate::second_chance_knobs("a", "b"),
                               {{"second_chance_revisit", 5000.0}, {"second_chance_queue", 1.0}}));
  CHECK(chances.mark({0}, 9, 0, {}));
  CHECK(!chances.mark({1}, 9, 0, {}));
  CHECK((due(chances, memory, 4.9) == Pages{}));
  CHECK((due(chances, memory, 5) == Pages{0}));
}

TEST("second chance: limits of a miniature, and none at all") {
  SecondChance tiny(from_seconds(1), 0.2);
  CHECK(tiny.mark({1}, 9, 0, {}));
  CHECK(!tiny.mark({2}, 9, 0, {}));
  SecondChance none(from_seconds(1), 0);
  CHECK(!none.mark({1}, 9, 0, {}));
}

TEST("second chance: growth is judged against what cooling left of the remembered count") {
  const SecondChance::Marked marked{{1}, 9, 3, {}};
  CHECK(!SecondChance::grew(marked, 9, 3));  // untouched
  CHECK(SecondChance::grew(marked, 10, 3));
  CHECK(!SecondChance::grew(marked, 4, 4));  // untouched, halved once
  CHECK(SecondChance::grew(marked, 5, 4));   // smaller than remembered, and yet it was accessed
  CHECK(!SecondChance::grew(marked, 0, 40));
  CHECK(SecondChance::grew(marked, 1, 40));
}

TEST("allowance: half a page per pass is one page in two passes") {
  migrate::PerPass half(0.5);
  std::uint64_t total = 0;
  for (int n = 0; n < 10; ++n) total += half.next();
  CHECK_EQ(total, 5u);
  migrate::PerPass more(2.25);
  total = 0;
  for (int n = 0; n < 8; ++n) total += more.next();
  CHECK_EQ(total, 18u);
}

TEST("rate limiter: accrues with time, saves up to its burst, keeps fractions") {
  migrate::RateLimiter limiter(0.4, 2);
  CHECK_EQ(limiter.available(from_seconds(2)), 0u);
  CHECK_EQ(limiter.available(from_seconds(3)), 1u);
  limiter.spend(1);
  CHECK_EQ(limiter.available(from_seconds(5)), 1u);  // 0.2 left of before + 0.8
  CHECK_EQ(limiter.available(from_seconds(500)), 2u);
  limiter.spend(2);
  CHECK_EQ(limiter.available(from_seconds(500)), 0u);
  CHECK_EQ(limiter.available(from_seconds(400)), 0u);  // time never runs back
}

TEST("rate limiter: more than was granted cannot be spent") {
  if constexpr (assert_level >= 1) {
    migrate::RateLimiter limiter(1, 4);
    (void)limiter.available(from_seconds(2));
    CHECK_BREAKS(limiter.spend(3), "invariant broken");
  }
}

TEST("rate limiter: what was spent beyond the grant is taken from the next") {
  migrate::RateLimiter limiter(1, 4);
  CHECK_EQ(limiter.available(from_seconds(2)), 2u);
  limiter.overspend(5);
  CHECK_EQ(limiter.available(from_seconds(2)), 0u);
  CHECK_EQ(limiter.available(from_seconds(5)), 0u);
  CHECK_EQ(limiter.available(from_seconds(6)), 1u);
}

TEST("promoted: pages that reached the fast tier, not those that failed or went down") {
  const MigrationResult results[] = {{{1}, Tier::fast, Outcome::done},
                                     {{2}, Tier::fast, Outcome::no_space},
                                     {{3}, Tier::slow, Outcome::done},
                                     {{4}, Tier::fast, Outcome::done}};
  CHECK_EQ(migrate::promoted(results), 2u);
}

TEST("promotion batch: one request, each page once, order kept") {
  FakeMemory memory(10, 10);
  for (std::uint64_t p = 0; p < 4; ++p) memory.touch({p}, Tier::slow);
  migrate::PromotionBatch batch;
  CHECK_EQ(batch.flush(memory), 0u);
  CHECK_EQ(memory.request_calls, 0u);
  for (std::uint64_t p : {3, 1, 3, 2, 1}) batch.add({p});
  CHECK_EQ(batch.flush(memory), 3u);
  CHECK_EQ(memory.request_calls, 1u);
  CHECK((memory.queued(Tier::fast) == std::vector<std::uint64_t>{3, 1, 2}));
  memory.queue.clear();
  batch.add({3});
  CHECK_EQ(batch.flush(memory), 1u);  // the next batch starts afresh
}

TEST("page list: first in, first out; each page once; any may leave") {
  migrate::PageList list;
  for (const std::uint64_t page : {7, 2, 9, 2, 4}) list.push({page});
  CHECK_EQ(list.size(), 4u);
  CHECK(list.remove({9}));
  CHECK(!list.remove({9}));
  CHECK((list.newest_first() == std::vector<PageId>{{4}, {2}, {7}}));
  CHECK(list.pop() == PageId{7});
  CHECK(!list.contains({7}));
  list.push({7});
  CHECK(list.pop() == PageId{2});
  CHECK(list.pop() == PageId{4});
  CHECK(list.pop() == PageId{7});
  CHECK(!list.pop());
}

TEST("cold list: fast pages in the order in which they came; pages not yet there come later") {
  FakeMemory memory(4, 10);
  for (const std::uint64_t page : {0, 1, 3}) memory.touch({page}, Tier::fast);
  memory.touch({2}, Tier::slow);
  migrate::ColdList cold;
  cold.map(range(0, 6));  // 4 and 5 are not touched yet
  cold.remove({1});
  cold.begin_pass(memory);
  CHECK(cold.pop(memory) == PageId{0});
  cold.push({1});
  CHECK(cold.pop(memory) == PageId{3});
  CHECK_EQ(cold.looked_at(), 3u);
  CHECK(cold.pop(memory) == PageId{1});  // 4 and 5 have gone to the end
  memory.touch({4}, Tier::fast);
  cold.begin_pass(memory);
  CHECK(cold.pop(memory) == PageId{4});
}

TEST("cold list: is not searched again while nothing has changed") {
  FakeMemory memory(4, 10);
  for (std::uint64_t p = 0; p < 6; ++p) memory.touch({p}, p < 3 ? Tier::fast : Tier::slow);
  migrate::ColdList cold;
  cold.map(range(3, 5));  // slow, or absent
  const auto looked_at = [&] {
    cold.begin_pass(memory);
    CHECK(!cold.pop(memory));
    return cold.looked_at();
  };
  CHECK_EQ(looked_at(), 5u);
  CHECK_EQ(looked_at(), 0u);
  memory.touch({6}, Tier::fast);  // the fast tier has changed
  cold.begin_pass(memory);
  CHECK(cold.pop(memory) == PageId{6});
  CHECK_EQ(looked_at(), 1u);
  cold.push({0});
  cold.begin_pass(memory);
  CHECK(cold.pop(memory) == PageId{0});
}

TEST("cold list: is searched again when others have moved pages, though as many are free") {
  FakeMemory memory(4, 10);
  for (std::uint64_t p = 0; p < 6; ++p) memory.touch({p}, p < 3 ? Tier::fast : Tier::slow);
  migrate::ColdList cold;
  cold.map(range(6, 2));  // absent
  cold.begin_pass(memory);
  CHECK(!cold.pop(memory));
  memory.touch({6}, Tier::slow);
  memory.move_unasked({0});
  memory.move_unasked({6});
  CHECK_EQ(memory.free_pages(Tier::fast), 1u);
  cold.begin_pass(memory);
  CHECK(cold.pop(memory) == PageId{6});
}

TEST("cold list: asks for batches of pages, not for each") {
  FakeMemory memory(1000, 1000);
  for (std::uint64_t p = 0; p < 1000; ++p) memory.touch({p}, p < 900 ? Tier::slow : Tier::fast);
  migrate::ColdList cold;
  cold.map(range(0, 1000));
  cold.begin_pass(memory);
  for (std::uint64_t p = 900; p < 1000; ++p) CHECK(cold.pop(memory) == PageId{p});
  CHECK(!cold.pop(memory));
  CHECK_EQ(cold.looked_at(), 1000u);
  CHECK(memory.residency_calls <= 8);
}

TEST("demotion pause: a second after each demotion, from a fast one on until a slow one") {
  migrate::DemotionPause pause(100);
  const auto at = [](double s) { return from_seconds(s); };
  pause.demoted(90, at(1));
  CHECK(!pause.paused(at(1)));
  pause.demoted(100, at(2));
  CHECK(!pause.paused(at(2)));
  pause.demoted(101, at(3));
  CHECK(pause.paused(at(3)) && pause.paused(at(3.9)));
  CHECK(!pause.paused(at(4)));
  pause.demoted(20, at(5));  // 10 a second: not slow enough
  CHECK(pause.paused(at(5.5)));
  pause.demoted(9, at(6));
  CHECK(!pause.paused(at(6)));
}

TEST("demotion scan: says whether it ended short of its mark") {
  FakeMemory memory(10, 20);
  MappedRanges space;
  space.map(range(0, 10));
  for (std::uint64_t p = 0; p < 10; ++p) memory.touch({p}, Tier::fast);
  const auto run = [&](std::uint64_t victims) {
    DemotionScan scan(
        {.promote_watermark = 0.1, .demote_watermark = 0.3, .chunk = 1, .slice = 0.5});
    memory.queue.clear();
    const auto judge = [&](auto fast, auto& out) {
      if (fast[0].value < victims) out.push_back(fast[0]);
    };
    const auto first = scan.run(memory, space, judge);
    const auto second = first.ended ? first : scan.run(memory, space, judge);
    return std::pair{first.ended, second.ended && second.short_of_mark};
  };
  CHECK(run(3) == std::pair(true, false));
  CHECK(run(2) == std::pair(false, true));
}
