// SPDX-License-Identifier: MIT

#include "check.hpp"
#include "fault_rig.hpp"

using namespace tt;
using test::Entry;
using test::Numbers;
using test::Rig;
using test::span_of;
using test::Then;
using test::with;

namespace {

// 20 fast pages 0..19, 80 slow ones, of which each stands for 32 of kswapd's; all of a list in each
// pass.
const KnobMap base{
    {"scan_pages", 200.0}, {"watermark_min", 0.0}, {"watermark_scale", 0.05}, {"lru_batch", 1.0}};
Rig multiclock(const KnobMap& more = {}) {
  Rig rig("multiclock", {}, with(base, more), 20, 4000);
  rig.map(0, 100);
  return rig;
}
void use(Rig& rig, const Numbers& pages) {
  for (const auto page : pages) (void)rig.memory.access({page}, AccessKind::load, rig.now);
}
/// Passes between which these pages are accessed.
void passes(Rig& rig, int count, const Numbers& pages) {
  for (; count > 0; --count) {
    use(rig, pages);
    rig.run(1);
  }
}

}  // namespace

TEST("multiclock: a slow page climbs from inactive over active to the promote list, by accesses") {
  auto rig = multiclock();
  rig.run(1);  // clears the bits: what is found counts as accessed once
  passes(rig, 1, {30, 31, 32});
  CHECK(rig.policy->heat({30}) == Heat::hot);  // active
  CHECK_EQ(test::promotions(rig), 0.0);
  passes(rig, 1, {30, 31});
  CHECK((rig.memory.queued(Tier::fast) == Numbers{30, 31}));  // in the same pass
  CHECK_EQ(rig.gauge("promote_pages"), 2.0);
  CHECK_EQ(rig.gauge("slow_active_pages"), 1.0);
}

TEST("multiclock: an inactive page without accesses forgets that it was referenced") {
  auto rig = multiclock();
  rig.run(1);
  rig.run(1);
  passes(rig, 1, {30});
  CHECK(rig.policy->heat({30}) == Heat::warm);
  rig.run(1);
  CHECK(rig.policy->heat({30}) == Heat::cold);
}

TEST(
    "multiclock: what was promoted is active; what found no room is active again, and kswapd "
    "wakes") {
  auto rig = multiclock();
  rig.run(1);
  passes(rig, 2, {30, 31});
  rig.memory.free({{0}, 1});
  rig.settle();  // the first gets the free page
  CHECK(rig.memory.where({30}) == Residency::fast);
  CHECK(rig.policy->heat({30}) == Heat::hot);
  CHECK_EQ(rig.gauge("active_pages"), 1.0);
  CHECK_EQ(rig.gauge("promote_pages"), 0.0);
  CHECK_EQ(rig.gauge("slow_active_pages"), 1.0);
  rig.run(0.05);
  CHECK(test::demotions(rig) > 0);
}

TEST("multiclock: a pass looks at so many pages of each list") {
  auto rig = multiclock({{"scan_pages", 2.5}});
  rig.run(1);
  CHECK_EQ(rig.memory.work(Work::lru_step), 2u);
  rig.run(1);
  CHECK_EQ(rig.memory.work(Work::lru_step), 5u);
}

namespace {

double promoted(Rig& r) {
  r.run(1);
  passes(r, 4, span_of(20, 20));
  return test::promotions(r);
}
/// Twenty pages reach the promote list at once.
void ask(Rig& r) { passes(r, 3, span_of(20, 20)); }

const test::RegisterEffects effects{
    "multiclock", base,
    test::joined(
        std::vector<Entry>{
            {"kpromoted_period", 1000.0, 10000.0, Then::less, promoted},
            {"scan_pages", 20.0, 200.0, Then::more, promoted},
        },
        test::kswapd_entries(), test::aol_entries(test::asked_at(ask)))};

}  // namespace
