// SPDX-License-Identifier: MIT

#include "check.hpp"
#include "fault_rig.hpp"

using namespace tt;
using namespace tt::test;

namespace {

/// 20 fast pages 0..19, 80 slow ones; nothing is demoted unless the test says so.
Rig tpp(const KnobMap& scaled = {}) {
  const KnobMap base{
      {"demote_scale_factor", 0.0}, {"watermark_min", 0.0}, {"watermark_scale", 0.0001}};
  Rig rig("tpp", {}, with(with(scanning(), base), scaled), 20, 200);
  rig.map(0, 100);
  return rig;
}
/// A scan, and a fault of each page.
void fault(Rig& r, const Numbers& pages) {
  r.run(1);
  access(r, pages);
}
double twice_faulted(Rig& r) {
  make_room(r, 5);
  fault(r, span_of(30, 5));
  fault(r, span_of(30, 5));
  return promotions(r);
}
auto faulted_at(double aol) {
  return [=](Rig& r) {
    make_room(r, 20);
    set_aol(r, aol);
    fault(r, span_of(30, 10));
    r.run(1);
    fault(r, span_of(30, 10));
    return promotions(r);
  };
}
double demoted_soon(Rig& r) {
  r.memory.accessed({{0}, 100}, {}, true);
  r.run(1.5);
  return demotions(r);
}

const RegisterEffects effects{
    "tpp", scanning(),
    joined(
        scan_entries(), reclaim_entries(),
        std::vector<Entry>{
            {"scan_period_max", 1000.0, 4000.0, Then::more,
             [](Rig& r) {
               r.run(30);
               return r.gauge("scan_period_ms");
             }},
            {"demote_scale_factor", 0.05, 0.5, Then::more, demoted_soon},
            {"port", std::string{"paper"}, std::string{"linux-5.15"}, Then::more,
             [](Rig& r) {
               make_room(r, 5);
               fault(r, span_of(30, 5));
               return promotions(r);
             }},
            {"activation", std::string{"paper"}, std::string{"code"}, Then::less, twice_faulted},
            {"watermark_min", 0.0, 0.2, Then::less, twice_faulted, {{"demote_scale_factor", 0.0}}},
            {"watermark_scale", 0.001, 0.1, Then::more, demoted_soon}},
        aol_entries(faulted_at, with(scanning(), {{"watermark_min", 0.0}})))};

}  // namespace

TEST("tpp: the first fault puts a page on the active list, the second promotes it") {
  Rig r = tpp();
  make_room(r, 5);
  fault(r, {30});
  CHECK_EQ(promotions(r), 0.0);
  CHECK(r.policy->heat({30}) == Heat::hot);
  fault(r, {30, 31});
  CHECK((r.memory.queued(Tier::fast) == Numbers{30}));
  r.settle();
  CHECK_EQ(r.gauge("active_pages"), 1.0);  // it stays active
}

TEST("tpp: by the code's rule the third fault promotes") {
  Rig r = tpp({{"activation", std::string{"code"}}});
  make_room(r, 5);
  fault(r, {30});
  CHECK(r.policy->heat({30}) == Heat::warm);
  fault(r, {30});
  CHECK(r.policy->heat({30}) == Heat::hot);
  CHECK_EQ(promotions(r), 0.0);
  fault(r, {30});
  CHECK_EQ(promotions(r), 1.0);
}

TEST("tpp: promotion goes on where allocation does not") {
  Rig r = tpp({{"watermark_min", 0.05}, {"watermark_scale", 0.2}});
  CHECK_NEAR(r.memory.marks.reserve, 0.25, 1e-12);
  make_room(r, 3);
  fault(r, {30, 31, 32});
  fault(r, {30, 31, 32});
  CHECK_EQ(promotions(r), 2.0);
}

TEST("tpp: demotes the inactive tail ahead of allocation, up to its own mark") {
  Rig r = tpp({{"demote_scale_factor", 0.2}});
  CHECK_NEAR(r.memory.marks.wake, 0.2, 1e-12);
  r.memory.accessed({{0}, 100}, {}, true);
  (void)r.memory.access({0}, AccessKind::load, r.now);
  r.run(1);  // the timer alone: nothing was allocated
  CHECK((r.memory.queued(Tier::slow) == Numbers{1, 2, 3, 4}));
  r.settle();
  r.run(5);
  CHECK(r.memory.queue.empty());
}

TEST("tpp: the demotion watermark is no less than twice the high one") {
  Rig r = tpp({{"demote_scale_factor", 0.02}, {"watermark_scale", 0.03}});
  CHECK_NEAR(r.memory.marks.wake, 2 * 0.06, 1e-12);
}

TEST("tpp: pressure wakes kswapd at once") {
  Rig r = tpp({{"demote_scale_factor", 0.2}});
  r.memory.accessed({{0}, 100}, {}, true);
  r.run(0.3);
  r.policy->on_pressure(Tier::fast, r.now);
  CHECK_EQ(demotions(r), 4.0);
}

TEST("tpp: on Linux 5.15 an inactive page faults until a batch is full, and is promoted") {
  Rig r = tpp({{"port", std::string{"linux-5.15"}}});
  make_room(r, 5);
  fault(r, {30});
  CHECK_EQ(r.memory.faults_again.at({30}), 30u);
  CHECK_EQ(promotions(r), 1.0);
  // An active one, for which there was no room, faults once.
  Rig full = tpp({{"port", std::string{"linux-5.15"}}});
  fault(full, {30});
  CHECK(full.policy->heat({30}) == Heat::hot);
  fault(full, {30});
  CHECK_EQ(full.memory.faults_again.at({30}), 30u);
  CHECK_EQ(promotions(full), 0.0);
}

TEST("tpp: on Linux 5.15 a demoted page faults with its next access") {
  for (const char* port : {"paper", "linux-5.15"}) {
    Rig r = tpp({{"demote_scale_factor", 0.2}, {"port", std::string{port}}});
    r.memory.accessed({{0}, 100}, {}, true);
    r.run(1);
    CHECK((r.memory.queued(Tier::slow) == Numbers{0, 1, 2, 3}));
    (void)r.memory.access({0}, AccessKind::load, r.now);
    r.settle();
    CHECK_EQ(r.memory.is_protected({0}), std::string_view{port} == "linux-5.15");
    CHECK(!r.memory.is_protected({4}));  // which stayed
  }
}

TEST("tpp: on Linux 5.15 a huge page is promoted by its first fault") {
  Rig r("tpp", {}, with(scanning(1 << 20), {{"port", std::string{"linux-5.15"}}}), 20, 200,
        2 << 20);
  r.map(0, 100);
  make_room(r, 5);
  fault(r, {30});
  CHECK_EQ(promotions(r), 1.0);
  CHECK(r.memory.faults_again.empty());
}
