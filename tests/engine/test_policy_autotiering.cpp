// SPDX-License-Identifier: MIT

#include "check.hpp"
#include "fault_rig.hpp"
#include "track/history.hpp"

using namespace tt;
using namespace tt::test;

namespace {

const KnobMap base =
    with(scanning(),
         {{"background_demotion", false}, {"watermark_min", 0.0}, {"watermark_scale", 0.0001}});
/// 20 fast pages 0..19, 80 slow ones.
Rig autotiering(const KnobMap& scaled = {}) {
  Rig rig("autotiering", {}, with(base, scaled), 20, 200);
  rig.map(0, 100);
  return rig;
}
/// Scans, between which these pages are accessed; faults are told.
void scans(Rig& r, int count, const Numbers& pages) {
  for (; count > 0; --count) {
    r.run(1);
    access(r, pages);
  }
}
/// A scan finds pages 5 to 9 untouched, and page 30 touched, which faults.
auto asked_without_room(Tier to) {
  return [=](Rig& r) {
    Numbers busy{0, 1, 2, 3, 4, 30};
    for (std::uint64_t p = 10; p < 20; ++p) busy.push_back(p);
    scans(r, 1, busy);
    r.run(1);
    access(r, {30});
    return static_cast<double>(r.memory.queued(to).size());
  };
}
auto demoted_idle(double time) {
  return [=](Rig& r) {
    scans(r, 3, span_of(0, 5));
    r.run(time);
    return demotions(r);
  };
}
auto promoted_at(double aol) {
  return [=](Rig& r) {
    make_room(r, 15);
    set_aol(r, aol);
    r.run(1.5);
    for (std::uint64_t p = 0; p < 100; ++p) (void)r.memory.access({p}, AccessKind::load, r.now);
    r.run(1);
    access(r, span_of(30, 10));
    return promotions(r);
  };
}

std::vector<Entry> own_entries() {
  const KnobMap background{{"background_demotion", true}};
  const KnobMap small{{"reserve", 0.5}, {"background_demotion", true}};
  return {
      {"scan_period_max", 8000.0, 16000.0, Then::more,
       [](Rig& r) {
         r.run(100);
         return r.gauge("scan_period_ms");
       }},
      {"mode", std::string{"cpm"}, std::string{"opm"}, Then::more, asked_without_room(Tier::slow)},
      {"exchange", false, true, Then::more, asked_without_room(Tier::fast)},
      {"background_demotion", false, true, Then::more, demoted_idle(1), {{"reserve", 0.1}}},
      {"reserve", 0.1, 0.3, Then::more, demoted_idle(1), background},
      {"demotion_batch", 0.1, 0.5, Then::more, demoted_idle(0.5), small},
      {"history_bits", whole(1), whole(8), Then::more,
       [](Rig& r) {  // touched once in some scans
         scans(r, 1, span_of(0, 20));
         r.run(10);
         return r.policy->heat({3}) == Heat::cold ? 0.0 : 1.0;
       }},
      {"watermark_min", 0.0, 0.2, Then::less, [](Rig& r) { return promoted_of_ten(r); }},
      {"watermark_scale", 0.001, 0.1, Then::less, [](Rig& r) { return promoted_of_ten(r); }}};
}

const RegisterEffects effects{
    "autotiering", base,
    joined(scan_entries(), own_entries(), aol_entries(promoted_at, scanning()))};

}  // namespace

TEST("history: a bit for each scan, full at first and after a move") {
  track::History history(8);
  history.map({{0}, 10});
  CHECK_EQ(history.level({3}), 8u);
  for (int n = 0; n < 3; ++n) history.scanned({3}, Tier::fast, false);
  CHECK_EQ(history.level({3}), 5u);
  history.scanned({3}, Tier::fast, true);
  CHECK_EQ(history.level({3}), 5u);  // a set bit left
  for (int n = 0; n < 8; ++n) history.scanned({3}, Tier::fast, false);
  CHECK_EQ(history.level({3}), 0u);
  history.moved({3}, Tier::slow);
  CHECK_EQ(history.level({3}), 8u);
  CHECK_EQ(history.level({99}), 0u);
}

TEST("history: victims come from the lowest level, those that were last untouched first") {
  track::History history(4);
  history.map({{0}, 10});
  for (std::uint64_t p = 0; p < 5; ++p) history.scanned({p}, Tier::fast, true);
  CHECK(!history.coldest(4));
  CHECK(history.coldest(5) == PageId{0});
  history.scanned({2}, Tier::fast, false);
  CHECK(history.coldest(4) == PageId{2});
  history.scanned({3}, Tier::fast, false);
  CHECK(history.coldest(4) == PageId{3});
  history.scanned({2}, Tier::fast, true);  // still at level three, but touched since
  history.scanned({4}, Tier::fast, false);
  CHECK(history.coldest(4) == PageId{4});
  history.take({4});
  CHECK(history.coldest(4) == PageId{3});
  history.moved({3}, Tier::slow);
  CHECK(history.coldest(4) == PageId{2});
  history.unmap({{2}, 1});
  CHECK(!history.coldest(4));
  CHECK_EQ(history.size(4), 2u);
}

TEST("autotiering: what faults in the slow tier is promoted while there is room") {
  Rig r = autotiering();
  make_room(r, 2);
  r.run(1);
  CHECK(r.memory.is_protected({10}) && r.memory.is_protected({30}));
  access(r, {10, 30});
  CHECK((r.memory.queued(Tier::fast) == Numbers{30}));
}

TEST("autotiering: conservative, nothing moves without room") {
  Rig r = autotiering({{"mode", std::string{"cpm"}}});
  CHECK_EQ(asked_without_room(Tier::slow)(r), 0.0);
  CHECK(r.memory.requested.empty());
}

TEST("autotiering: opportunistic, a page that scans found untouched is demoted") {
  Rig r = autotiering();
  CHECK_EQ(asked_without_room(Tier::slow)(r), 1.0);
  CHECK((r.memory.queued(Tier::slow) == Numbers{9}));
  for (int n = 0; n < 2; ++n) {  // a page beyond the mark takes two
    CHECK_EQ(promotions(r), 0.0);
    r.settle();
    r.run(10);
    access(r, {30});
  }
  CHECK_EQ(promotions(r), 1.0);
}

TEST("autotiering: a page does not drive out one of its own level") {
  Rig r = autotiering();
  scans(r, 3, span_of(0, 20));
  access(r, {30});
  CHECK(r.memory.requested.empty());
}

TEST("autotiering: an exchange asks for the victim first") {
  Rig r = autotiering({{"exchange", true}});
  asked_without_room(Tier::fast)(r);
  CHECK_EQ(r.memory.queue.size(), 2u);
  CHECK((r.memory.queued(Tier::slow) == Numbers{9} && r.memory.queued(Tier::fast) == Numbers{30}));
  CHECK(r.memory.requested.front().second == Tier::slow);
}

TEST("autotiering: the daemon keeps its reserve, from the lowest level up") {
  Rig r = autotiering({{"background_demotion", true}, {"reserve", 0.1}});
  r.run(5);  // nothing is known to be cold: all histories are full until a scan has found otherwise
  r.memory.queue.clear();
  Rig idle = autotiering({{"background_demotion", true}, {"reserve", 0.1}});
  scans(idle, 3, span_of(0, 5));
  idle.run(0.2);
  CHECK_EQ(demotions(idle), 2.0);
  for (const auto page : idle.memory.queued(Tier::slow)) CHECK(page >= 5 && page < 20);
  idle.settle();
  idle.run(0.5);
  CHECK(idle.memory.queue.empty());
}

TEST("autotiering: metadata are 32 bytes a page") {
  CHECK_EQ(autotiering().policy->metadata_bytes(), 3200u);
}
