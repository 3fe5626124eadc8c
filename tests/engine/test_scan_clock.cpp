// SPDX-License-Identifier: MIT

// NUMA balancing's clock, and kswapd: the rooms of the hint-fault systems.
#include "check.hpp"
#include "fake_memory.hpp"
#include "migrate/reclaim.hpp"
#include "migrate/scan_clock.hpp"

using namespace tt;
using migrate::KernelMarks;
using migrate::Reclaim;
using migrate::ScanClock;
using test::FakeMemory;
using track::LruLists;
using enum track::LruLists::List;

namespace {

PageRange range(std::uint64_t first, std::uint64_t count) { return {{first}, count}; }

Knobs with(std::vector<KnobDecl> declared, const KnobMap& raw) {
  Knobs knobs = resolve(declared, {});
  for (const auto& [name, value] : raw) knobs.set(name, value);
  return knobs;
}
constexpr double page_mib = 4.0 / 1024;

/// After the time from which on a scan may be due.
Nanos later(double ms) { return 2 * ScanClock::delay + from_millis(ms); }

/// 160 slow pages; windows of 16 of them and one of the program's own, 100 ms between two scans, no
/// limit to the rate. A second has passed.
struct Clock {
  FakeMemory memory{40, 1000};
  ScanClock clock;
  explicit Clock(const KnobMap& raw = {})
      : clock(memory,
              with(migrate::scan_clock_knobs(), KnobMap(raw).empty() ? defaults() : merged(raw))) {
    clock.map(range(0, 160));
    for (std::uint64_t p = 0; p < 160; ++p) memory.touch({p}, Tier::slow);
    (void)clock.run(ScanClock::delay, Tiers::slow);
  }
  static KnobMap defaults() {
    return {{"scan_size", 16 * page_mib}, {"scan_period_min", 1100.0}, {"max_scan_rate", 100.0}};
  }
  static KnobMap merged(KnobMap raw) {
    for (const auto& [name, value] : defaults()) raw.insert({name, value});
    return raw;
  }
  /// When it scans, in ms behind the first time it may, if it is called each ms of a span.
  std::vector<int> scans(int first, int last) {
    std::vector<int> out;
    for (int ms = first; ms <= last; ++ms) {
      const bool due = clock.due(later(ms));
      (void)clock.run(later(ms), Tiers::slow);
      if (due) out.push_back(ms);
    }
    return out;
  }
};

using Times = std::vector<int>;

}  // namespace

TEST("scan clock: the first scan is late; a pass takes scan_period_min, a window a time") {
  Clock c;
  CHECK(c.clock.period() == from_millis(100));
  CHECK(!c.clock.due(later(-1)));
  CHECK_EQ(c.clock.run(later(-1), Tiers::slow), 0u);
  CHECK_EQ(c.clock.run(later(0), Tiers::slow), 16u);
  CHECK(c.memory.is_protected({15}) && !c.memory.is_protected({16}));
  CHECK_EQ(c.clock.run(later(99), Tiers::slow), 0u);
  CHECK((c.scans(100, 900) == Times{100, 200, 300, 400, 500, 600, 700, 800, 900}));
  CHECK(c.memory.is_protected({159}));
  CHECK_EQ(c.clock.passes(), 0u);
  (void)c.memory.access({0}, AccessKind::load, {});
  CHECK_EQ(c.clock.run(later(1000), Tiers::slow), 0u);  // what a program has beside its data
  CHECK_EQ(c.clock.passes(), 1u);
  CHECK_EQ(c.clock.run(later(1100), Tiers::slow), 1u);
}

TEST("scan clock: after a pass it begins anew, not at what has come meanwhile") {
  Clock c({{"scan_size", 200 * page_mib}, {"scan_period_min", 100.0}});
  CHECK_EQ(c.clock.run(later(0), Tiers::slow), 160u);
  CHECK_EQ(c.clock.passes(), 1u);
  c.clock.map(range(200, 100));
  for (std::uint64_t p = 200; p < 300; ++p) c.memory.touch({p}, Tier::slow);
  for (std::uint64_t p = 0; p < 10; ++p) (void)c.memory.access({p}, AccessKind::load, {});
  // 160 of the program's pages, of which ten are protected anew, and 40 of what has come.
  CHECK_EQ(c.clock.run(later(100), Tiers::slow), 50u);
  CHECK_EQ(c.clock.passes(), 1u);
  CHECK_EQ(c.clock.run(later(200), Tiers::slow), 60u);
  CHECK_EQ(c.clock.passes(), 2u);
}

TEST("scan clock: the first period is by what is resident after a second") {
  Clock c;
  ScanClock clock(c.memory, with(migrate::scan_clock_knobs(), Clock::defaults()));
  clock.map(range(0, 160));
  c.memory.free(range(40, 120));
  (void)clock.run(ScanClock::delay - from_millis(1), Tiers::slow);
  CHECK(clock.period() == from_seconds(1.1 / 3));
  (void)clock.run(ScanClock::delay, Tiers::slow);
  for (std::uint64_t p = 40; p < 160; ++p) c.memory.touch({p}, Tier::slow);
  CHECK(clock.period() == from_seconds(1.1 / 3));
  CHECK_EQ(clock.run(later(200), Tiers::slow), 16u);
  CHECK(clock.period() == from_seconds(1.1 / 3));
}

TEST("scan clock: no faster than the highest rate") {
  Clock c({{"max_scan_rate", 16 * page_mib / 1024 / 0.4}});
  CHECK(c.clock.period() == from_millis(400));
}

TEST("scan clock: a thread runs for 32 times as long as it has scanned before it does again") {
  const auto second_scan = [](double threads) {
    Clock c;
    c.memory.protect_seconds_a_page = 0.001 / 16;
    c.memory.now.threads = threads;
    CHECK_EQ(c.clock.run(later(0), Tiers::slow), 16u);
    return c.scans(1, 1000).at(0);
  };
  CHECK_EQ(second_scan(1), 132);
  CHECK_EQ(second_scan(2), 116);  // at 66 one asks, too early
  CHECK_EQ(second_scan(20), 102);
}

TEST("scan clock: that a scan is late changes nothing of those that follow") {
  Clock c;
  CHECK_EQ(c.clock.run(later(50), Tiers::slow), 16u);
  CHECK((c.scans(51, 300) == Times{100, 200, 300}));
}

TEST("scan clock: slower, and who asks before the new period has passed asks again after it") {
  Clock c;
  CHECK_EQ(c.clock.run(later(0), Tiers::slow), 16u);
  c.clock.slow_down(later(30));
  CHECK(c.clock.period() == from_millis(200));
  CHECK((c.scans(31, 900) == Times{400, 600, 800}));
}

TEST("scan clock: tells when it may scan next") {
  Clock c;
  CHECK(c.clock.pause() == from_seconds(1));
  CHECK_EQ(c.clock.run(later(0), Tiers::slow), 16u);
  CHECK(c.clock.pause() == from_millis(100));
  CHECK_EQ(c.clock.run(later(52), Tiers::slow), 0u);
  CHECK(c.clock.pause() == from_millis(48));
  CHECK_EQ(c.clock.run(later(99), Tiers::slow), 0u);
  CHECK(c.clock.pause() == from_millis(4));  // a timer tick
}

TEST("scan clock: windows of the other tier, or protected, do not count, up to eight") {
  Clock c;
  for (std::uint64_t p = 0; p < 40; ++p) {
    c.memory.free(range(p, 1));
    c.memory.touch({p}, Tier::fast);
  }
  CHECK_EQ(c.clock.run(later(100), Tiers::slow), 8u);  // pages 32..47
  CHECK(c.memory.is_protected({40}) && !c.memory.is_protected({48}));
  (void)c.memory.protect(range(0, 160), Tiers::both, {});
  CHECK_EQ(c.clock.run(later(200), Tiers::slow), 0u);
  (void)c.memory.access({48}, AccessKind::load, {});  // behind the eight windows from 48 on: 32
  (void)c.memory.access({20}, AccessKind::load, {});
  CHECK_EQ(c.clock.run(later(300), Tiers::both), 1u);
}

TEST("scan clock: a scan ends behind eight windows in which nothing counts, not before") {
  Clock c;
  (void)c.memory.protect(range(0, 160), Tiers::both, {});
  CHECK_EQ(c.clock.run(later(100), Tiers::slow), 0u);  // pages 0..127
  for (const PageId page : {PageId{127}, PageId{128}})
    (void)c.memory.access(page, AccessKind::load, {});
  CHECK_EQ(c.clock.run(later(300), Tiers::slow), 1u);
  CHECK(!c.memory.is_protected({127}) && c.memory.is_protected({128}));
}

TEST("scan clock: tells which pages have not been touched since") {
  Clock c;
  (void)c.memory.protect(range(3, 1), Tiers::slow, {});
  std::vector<std::uint64_t> untouched;
  c.clock.run(later(100), Tiers::slow, [&](PageRange part, auto mask) {
    for (std::uint64_t i = 0; i < part.count; ++i)
      if (in_mask(mask, i)) untouched.push_back(part.first.value + i);
  });
  CHECK((untouched == std::vector<std::uint64_t>{3}));
}

TEST("scan clock: a miniature's window may be less than a page") {
  Clock c({{"scan_size", page_mib / 4}, {"scan_period_min", 64100.0}});
  CHECK(from_millis(100) - c.clock.period() <= Nanos{1});
  std::uint64_t count = 0;
  for (int n = 1; n <= 40; ++n) count += c.clock.run(later(n * 100), Tiers::slow);
  CHECK_EQ(count, 10u);
}

TEST("scan clock: slower while faults are local or none, faster when they are not") {
  Clock c({{"scan_period_max", 8800.0}});
  c.clock.adapt(0, 0, false, later(0));
  CHECK(c.clock.period() == from_millis(200));
  c.clock.adapt(90, 10, false, later(0));  // two tenths above the threshold
  CHECK(c.clock.period() == from_millis(240));
  c.clock.adapt(70, 30, false, later(0));  // at the threshold: one
  CHECK(c.clock.period() == from_millis(264));
  c.clock.adapt(20, 80, false, later(0));  // five below it
  CHECK(c.clock.period() == from_millis(132));
  c.clock.adapt(50, 50, true, later(0));  // promotions failed
  CHECK(c.clock.period() == from_millis(264));
  for (int n = 0; n < 9; ++n) c.clock.adapt(0, 0, false, later(0));
  CHECK(c.clock.period() == from_millis(800));  // of eight seconds a pass
  for (int n = 0; n < 99; ++n) c.clock.adapt(0, 9, false, later(0));
  CHECK(c.clock.period() == from_millis(100));
}

namespace {

/// 100 fast pages, all in use, which have not been accessed.
struct Kswapd {
  FakeMemory memory{100, 1000};
  LruLists lists{memory, 1024};
  Reclaim reclaim;
  /// A page stands for 32 of a kernel unless `raw` says otherwise.
  explicit Kswapd(KnobMap raw = {}, double target = 0.05, Nanos sizes_age = {})
      : reclaim(memory, lists, knobs(std::move(raw)), target, sizes_age) {
    lists.map(range(0, 100));
    for (std::uint64_t p = 0; p < 100; ++p) memory.touch({p}, Tier::fast);
    memory.accessed(range(0, 100), {}, true);
  }
  static Knobs knobs(KnobMap raw) {
    raw.try_emplace("lru_batch", 1.0);
    return with(knob::list(migrate::reclaim_knobs(), migrate::kernel_marks_knobs()), raw);
  }
  /// All but the first `idle` pages are active.
  void activate(std::uint64_t idle) {
    lists.find_new();
    for (std::uint64_t p = idle; p < 100; ++p) lists.put({p}, active);
  }
};

}  // namespace

TEST("reclaim: asleep it does nothing; awake it demotes the inactive tail up to its mark") {
  Kswapd k;
  CHECK_EQ(k.reclaim.run(from_seconds(1)), 0u);
  k.reclaim.wake();
  CHECK_EQ(k.reclaim.run(from_seconds(1)), 5u);
  CHECK((k.memory.queued(Tier::slow) == std::vector<std::uint64_t>{0, 1, 2, 3, 4}));
  CHECK_EQ(k.reclaim.run(from_seconds(1)), 0u);  // on their way
  CHECK(k.reclaim.awake());
  k.memory.complete();
  CHECK_EQ(k.reclaim.run(from_seconds(1)), 0u);
  CHECK(!k.reclaim.awake());
}

TEST("reclaim: looks at twice as many pages with each round, and so demotes more than is missing") {
  Kswapd k({{"watermark_min", 0.0}, {"watermark_scale", 0.1}}, 0.1);  // high: 20 pages
  k.reclaim.wake();
  // Of the 3200 pages that the list stands for, 2^-p in a round of priority p, and of that what is
  // left for pages that are no file's: 1 and 2 of 9 and 8 are less than one, then 2, 4, 8, 17, 35,
  // 70, 141 and 282: after those 561, 17 of 100.
  CHECK_EQ(k.reclaim.run(from_seconds(1)), 17u);  // 10 are missing
  k.memory.complete();
  CHECK_EQ(k.reclaim.run(from_seconds(1)), 0u);
  CHECK(!k.reclaim.awake());
  Kswapd low({{"watermark_min", 0.0}, {"watermark_scale", 0.055}}, 0.1);  // 11
  low.reclaim.wake();
  CHECK_EQ(low.reclaim.run(from_seconds(1)), 11u);
}

TEST("reclaim: accessed pages are spared; active ones first have to turn inactive") {
  Kswapd k;
  for (std::uint64_t p = 0; p < 98; ++p) (void)k.memory.access({p}, AccessKind::load, {});
  k.reclaim.wake();
  CHECK_EQ(k.reclaim.run(from_seconds(1)), 5u);
  // When it has looked at all of them, and cleared their bits, it comes to the first again.
  CHECK((k.memory.queued(Tier::slow) == std::vector<std::uint64_t>{98, 99, 0, 1, 2}));
  Kswapd all;
  all.activate(0);
  for (std::uint64_t p = 0; p < 100; ++p) (void)all.memory.access({p}, AccessKind::load, {});
  all.reclaim.wake();
  CHECK_EQ(all.reclaim.run(from_seconds(1)), 5u);  // their bits are cleared on the way
  CHECK(all.memory.queued(Tier::slow).front() == 0);
}

TEST("reclaim: refills a short inactive list by two batches in a round, and by its part") {
  const auto refilled = [](double batch) {
    Kswapd k({{"lru_batch", batch}});
    k.activate(10);
    k.reclaim.wake();
    (void)k.reclaim.run(from_seconds(1));
    return 90 - k.lists.size(Tier::fast, active);
  };
  CHECK(refilled(1) > 5 && refilled(1) < refilled(2));
  CHECK(refilled(2) <= 40);  // then both are as long
  Kswapd even;               // as many of both: nothing to refill
  even.activate(50);
  even.reclaim.wake();
  CHECK_EQ(even.reclaim.run(from_seconds(1)), 5u);
  CHECK_EQ(even.lists.size(Tier::fast, active), 50u);
}

TEST("reclaim: by sizes that are old, the inactive list runs empty, and kswapd gives up") {
  for (const bool old : {false, true}) {
    Kswapd k({}, 0.05, from_seconds(old ? 2 : 0));
    k.lists.find_new();
    k.reclaim.wake();
    CHECK_EQ(k.reclaim.run(from_seconds(0.5)), 5u);  // now the sizes are known: all is inactive
    k.memory.complete();
    for (std::uint64_t p = 0; p < 5; ++p) k.memory.touch({100 + p}, Tier::fast);
    for (std::uint64_t p = 5; p < 100; ++p) k.lists.put({p}, active);
    k.reclaim.wake();
    CHECK_EQ(k.reclaim.run(from_seconds(1)), old ? 0u : 5u);
    CHECK_EQ(k.reclaim.gave_up(), old);
    CHECK_EQ(k.reclaim.awake(), !old);
    k.reclaim.wake();
    CHECK_EQ(k.reclaim.run(from_seconds(3)), 0u);
    CHECK_EQ(k.reclaim.awake(), !old);
  }
  Kswapd later({}, 0.05, from_seconds(2));
  later.lists.find_new();
  later.reclaim.wake();
  CHECK_EQ(later.reclaim.run(from_seconds(0.5)), 5u);
  later.memory.complete();
  for (std::uint64_t p = 0; p < 5; ++p) later.memory.touch({100 + p}, Tier::fast);
  for (std::uint64_t p = 5; p < 100; ++p) later.lists.put({p}, active);
  later.reclaim.wake();
  CHECK_EQ(later.reclaim.run(from_seconds(2)), 5u);  // the next sizes are due
}

TEST("reclaim: looks at no more pages than a thread can") {
  Kswapd k({{"reclaim_scan_rate", 300.0 * 4096 / (1 << 30)}}, 0.5);  // 300 pages a second
  k.reclaim.wake();
  CHECK_EQ(k.reclaim.run(from_seconds(1)), 30u);  // a tenth of a second is kept
  CHECK_EQ(k.reclaim.run(from_seconds(1)), 0u);
  CHECK_EQ(k.reclaim.run(from_seconds(1.01)), 3u);
  CHECK_EQ(k.memory.work(Work::lru_step), 33u);
}

TEST("reclaim: the kernel's marks follow from two knobs") {
  const KernelMarks marks(
      with(migrate::kernel_marks_knobs(), {{"watermark_min", 0.01}, {"watermark_scale", 0.02}}));
  CHECK_NEAR(marks.low, 0.03, 1e-12);
  CHECK_NEAR(marks.high, 0.05, 1e-12);
  CHECK_NEAR(marks.promo, 0.07, 1e-12);
  FakeMemory memory(100, 100);
  CHECK(migrate::is_free(memory, 1.0) && !migrate::is_free(memory, 1.0, 1));
}
