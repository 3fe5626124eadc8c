// SPDX-License-Identifier: MIT

#include "check.hpp"
#include "fault_rig.hpp"

using namespace tt;
using namespace tt::test;

namespace {

/// 20 fast pages 0..19, 80 slow ones.
Rig autonuma(const KnobMap& scaled = scanning()) {
  Rig rig("autonuma", {}, scaled, 20, 200);
  rig.map(0, 100);
  return rig;
}

const RegisterEffects effects{
    "autonuma", scanning(),
    joined(
        scan_entries(),
        std::vector<Entry>{
            {"scan_period_max", 8000.0, 16000.0, Then::more,
             [](Rig& r) {
               r.run(100);
               return r.gauge("scan_period_ms");
             }},
            {"watermark_min", 0.0, 0.2, Then::less, [](Rig& r) { return promoted_of_ten(r); }},
            {"watermark_scale", 0.001, 0.1, Then::less, [](Rig& r) { return promoted_of_ten(r); }}},
        aol_entries(protected_at, scanning(20)))};

}  // namespace

TEST("autonuma: pages of both tiers are scanned; what faults in the slow tier is promoted") {
  Rig r = autonuma();
  make_room(r, 5);
  r.run(1);
  CHECK_EQ(protected_among(r, 100), 95u);
  access(r, {10, 30, 31});
  CHECK((r.memory.queued(Tier::fast) == Numbers{31, 30} ||
         r.memory.queued(Tier::fast) == Numbers{30, 31}));
}

TEST("autonuma: however late, at the first fault") {
  Rig r = autonuma();
  make_room(r, 5);
  r.run(1);
  r.now += from_seconds(100);
  access(r, {30});
  CHECK((r.memory.queued(Tier::fast) == Numbers{30}));
}

TEST("autonuma: no promotion below the high watermark, and never a demotion") {
  Rig r = autonuma();
  r.run(1);
  access(r, {30, 31});
  CHECK(r.memory.requested.empty());
  make_room(r, 3);
  r.run(2);
  access(r, span_of(30, 10));
  CHECK_EQ(r.memory.queued(Tier::fast).size(), 2u);  // the mark takes the third
  r.run(100);
  CHECK(r.memory.queued(Tier::slow).empty());
}

TEST("autonuma: allocation ends at the low watermark") {
  Rig r("autonuma", {}, {{"watermark_min", 0.1}, {"watermark_scale", 0.05}}, 20, 100);
  CHECK_NEAR(r.memory.marks.reserve, 0.15, 1e-12);
  CHECK_EQ(r.memory.marks.wake, 0.0);
}

TEST("autonuma: scans half as often after a pass in which a promotion failed, or nothing faulted") {
  Rig r = autonuma(scanning(50));
  r.run(1);
  CHECK_NEAR(r.gauge("scan_period_ms"), 1000.0 / 3, 1e-6);
  access(r, {30});
  r.run(1);  // the rest of a program's memory has a window of its own
  CHECK_NEAR(r.gauge("scan_period_ms"), 2000.0 / 3, 1e-6);
  r.run(10);
  CHECK(r.gauge("scan_period_ms") > 2500);
  Rig busy = autonuma(scanning(50));
  for (int n = 0; n < 20; ++n) {
    make_room(busy, 20);
    busy.run(0.5);
    access(busy, {30, 31, 32, 50, 51, 52});
    busy.memory.queue.clear();
  }
  CHECK_NEAR(busy.gauge("scan_period_ms"), 500, 1e-9);
}

TEST("autonuma: faults of pages that are gone are ignored") {
  Rig r = autonuma();
  make_room(r, 5);
  r.run(1);
  r.unmap(30, 10);
  const Fault stale{{35}, Tier::slow, AccessKind::load, {}};
  r.policy->on_faults({&stale, 1}, r.now);
  CHECK(r.memory.requested.empty());
}
