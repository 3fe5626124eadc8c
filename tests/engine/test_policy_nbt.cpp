// SPDX-License-Identifier: MIT

#include "check.hpp"
#include "classify/latency_threshold.hpp"
#include "fault_rig.hpp"

using namespace tt;
using namespace tt::test;

namespace {

/// 20 fast pages 0..19, 80 slow ones. No room is plenty.
Rig nbt(const KnobMap& scaled = {}) {
  Rig rig("nbt", {}, with(scanning(), scaled), 20, 200);
  rig.map(0, 100);
  return rig;
}
/// The slow pages fault this long after they were protected.
void faults(Rig& r, const Numbers& pages, double after) {
  for (std::uint64_t p = 0; p < 100; ++p) (void)r.memory.access({p}, AccessKind::load, r.now);
  r.memory.clock = r.now;
  r.memory.protect({{20}, 80}, Tiers::slow, {});
  r.now += from_seconds(after);
  access(r, pages);
}

const RegisterEffects effects{
    "nbt", scanning(),
    joined(
        scan_entries(), generation_entries(),
        std::vector<Entry>{
            {"scan_period_max", 2000.0, 8000.0, Then::less,
             [](Rig& r) {
               for (int n = 0; n < 10; ++n) {
                 r.run(1);
                 faults(r, {30}, 0.1);
               }
               return r.gauge("hot_threshold_ms");
             }},
            {"hot_threshold", 50.0, 1000.0, Then::more,
             [](Rig& r) {
               make_room(r, 5);
               faults(r, {30}, 0.1);
               return promotions(r);
             }},
            {"promote_rate_limit", 2 * page_gib, 4 * page_gib, Then::more,
             [](Rig& r) { return promoted_of_ten(r); }},
            {"free_space", 1024.0, page_mib, Then::more,
             [](Rig& r) {
               make_room(r, 10);
               faults(r, {30}, 30);
               return promotions(r);
             }},
            {"watermark_min", 0.0, 0.2, Then::less, [](Rig& r) { return promoted_of_ten(r); }},
            {"watermark_scale", 0.001, 0.1, Then::less, [](Rig& r) { return promoted_of_ten(r); }}},
        aol_entries(protected_at, scanning(20)))};

}  // namespace

TEST("nbt: slow pages alone are scanned") {
  Rig r = nbt();
  r.run(1);
  CHECK_EQ(protected_among(r, 100), 80u);
  CHECK(!r.memory.is_protected({19}) && r.memory.is_protected({20}));
}

TEST("nbt: promotes in the fault what faults within the hot threshold") {
  Rig r = nbt();
  make_room(r, 5);
  faults(r, {30}, 1.2);
  CHECK(r.memory.queue.empty());
  faults(r, {30, 31}, 0.9);
  CHECK_EQ(promotions(r), 2.0);
}

TEST("nbt: while much is free everything that faults is promoted, and the threshold starts anew") {
  Rig r = nbt({{"free_space", 4 * page_mib}, {"scan_period_max", 1000.0}});
  faults(r, {30}, 2);
  faults(r, {30}, 2);
  CHECK_NEAR(r.gauge("hot_threshold_ms"), 1250, 1e-6);
  make_room(r, 8);
  faults(r, span_of(30, 10), 20);
  CHECK_NEAR(r.gauge("hot_threshold_ms"), 1000, 1e-6 + 125);
  CHECK(promotions(r) >= 3 && promotions(r) < 8);
}

TEST("nbt: without room a hot fault wakes kswapd, which demotes up to the promotion watermark") {
  for (const bool by_generations : {false, true}) {
    Rig r = nbt({{"watermark_scale", 0.05},  // high 0.1, promotion 0.15
                 {"lru_gen", by_generations},
                 {"lru_gen_batch", 1.0},
                 {"lru_batch", 1.0}});
    r.run(1);
    r.memory.accessed({{0}, 100}, {}, true);
    CHECK_EQ(demotions(r), 0.0);
    faults(r, {30}, 0.1);
    CHECK_EQ(promotions(r), 0.0);
    r.run(0.1);
    CHECK((r.memory.queued(Tier::slow) == Numbers{0, 1, 2, 3}));
    r.settle();
    r.run(1);
    CHECK_EQ(r.memory.queue.size(), 0u);
    faults(r, {30, 31, 32}, 0.1);
    CHECK_EQ(promotions(r), 1.0);  // four are free, two of them below the high mark, and a bit
  }
}

TEST("nbt: says that kswapd gave up, as on an inactive list too short to look at a part of it") {
  for (const bool short_list : {false, true}) {
    Rig r = nbt(
        {{"watermark_scale", 0.05}, {"lru_gen", false}, {"lru_batch", short_list ? 320.0 : 1.0}});
    r.run(1);
    CHECK_EQ(r.gauge("kswapd_gave_up"), 0.0);
    r.policy->on_pressure(Tier::fast, r.now);
    CHECK_EQ(r.gauge("kswapd_gave_up"), short_list ? 1.0 : 0.0);
    CHECK_EQ(demotions(r) > 0, !short_list);
  }
}

TEST("nbt: pages that are accessed are not demoted") {
  for (const bool by_generations : {false, true}) {
    Rig r = nbt({{"watermark_scale", 0.05},
                 {"lru_gen", by_generations},
                 {"lru_gen_batch", 1.0},
                 {"lru_batch", 1.0}});
    r.run(1);
    r.memory.accessed({{0}, 100}, {}, true);
    for (std::uint64_t p = 0; p < 10; ++p) (void)r.memory.access({p}, AccessKind::load, r.now);
    r.memory.clock = r.now;
    r.memory.protect({{20}, 80}, Tiers::slow, {});
    r.now += from_millis(100);
    access(r, {30});
    r.run(0.1);
    CHECK((r.memory.queued(Tier::slow) == Numbers{10, 11, 12, 13}));
  }
}

TEST("nbt: by generations, promoted pages are the youngest, and what refuses to leave is, too") {
  Rig r = nbt({{"watermark_scale", 0.05}, {"lru_gen_batch", 1.0}});
  r.run(1);
  r.memory.accessed({{0}, 100}, {}, true);
  r.policy->on_pressure(Tier::fast, r.now);
  CHECK((r.memory.queued(Tier::slow) == Numbers{0, 1, 2, 3}));
  CHECK(r.policy->heat({4}) == Heat::cold && r.policy->heat({0}) == Heat::cold);
  const auto results = r.memory.complete(
      SIZE_MAX, [](PageId page, Tier) { return page.value == 1 ? Outcome::busy : Outcome::done; });
  r.policy->on_migrated(results, r.now);
  CHECK(r.policy->heat({0}) == Heat::cold && r.policy->heat({1}) == Heat::hot);
  CHECK_EQ(r.gauge("active_pages"), 1.0);
  CHECK_EQ(r.gauge("inactive_pages"), 16.0);
  CHECK_EQ(r.gauge("agings"), 2.0);
  r.policy->tick(r.now);
  CHECK((r.memory.queued(Tier::slow) == Numbers{4}));
  r.settle();
  faults(r, {30}, 0.1);
  r.settle();
  CHECK(r.policy->heat({30}) == Heat::hot);
  CHECK_EQ(r.gauge("active_pages"), 2.0);
}

TEST("nbt: the scan gets slower by half with the first promotion after each pass") {
  Rig r = nbt();  // a pass a window, a second
  const auto pass = [&](const Numbers& pages) {
    r.run(r.gauge("scan_period_ms") / 1000 + 0.01);
    faults(r, pages, 0.1);
    return r.gauge("scan_period_ms");
  };
  CHECK_EQ(pass({30, 31}), 1000.0);  // refused: nothing is free
  make_room(r, 8);
  CHECK_EQ(pass({30}), 2000.0);
  faults(r, {31}, 0.1);
  CHECK_EQ(r.gauge("scan_period_ms"), 2000.0);
  CHECK_EQ(pass({}), 2000.0);
  CHECK_EQ(pass({32}), 4000.0);
}

TEST("nbt: first touches below the low watermark go to the slow tier and wake nobody") {
  Rig r("nbt", {}, {{"watermark_min", 0.1}, {"watermark_scale", 0.05}}, 20, 100);
  CHECK_NEAR(r.memory.marks.reserve, 0.15, 1e-12);
  CHECK_EQ(r.memory.marks.wake, 0.0);
}

TEST("latency threshold: sixteen steps up to twice the initial one, down to one step") {
  const auto knobs = [](double pages_per_second) {
    Knobs set = resolve(classify::latency_threshold_knobs(), {});
    set.set("promote_rate_limit", pages_per_second * page_gib);
    return set;
  };
  const auto after = [&](double limit, int periods, int candidates) {
    classify::LatencyThreshold threshold(knobs(limit), 4096, from_seconds(10));
    Nanos now{};
    for (int n = 0; n < periods; ++n) {
      for (int c = 0; c < candidates; ++c) (void)threshold.admit(from_millis(1), now);
      now += from_seconds(10) + Nanos{1};
    }
    (void)threshold.admit(from_seconds(9), now);
    return 1e3 * seconds(threshold.value());
  };
  CHECK_NEAR(after(10, 1, 100), 1000, 1e-6);  // as many as allowed
  CHECK_NEAR(after(10, 1, 111), 875, 1e-6);
  CHECK_NEAR(after(10, 1, 89), 1125, 1e-6);
  CHECK_NEAR(after(10, 40, 5), 2000, 1e-6);
  CHECK_NEAR(after(10, 40, 500), 125, 1e-6);
}

TEST("latency threshold: goes by ticks of the timer") {
  classify::LatencyThreshold threshold(
      resolve(classify::latency_threshold_knobs(), {{"hot_threshold", 20.0}}), 4096,
      from_seconds(60));
  CHECK(threshold.admit(from_millis(19), from_millis(1000 + 3)));  // ticks at 984 and 1000
  CHECK(!threshold.admit(from_millis(17), from_millis(1000)));     // at 980 and 1000
  CHECK(threshold.admit(from_millis(16), from_millis(1000)));
  CHECK(!threshold.admit(from_millis(20), from_millis(1000 + 3)));
}

TEST("latency threshold: candidates beyond a second's limit are refused until the next") {
  Knobs set = resolve(classify::latency_threshold_knobs(), {});
  set.set("promote_rate_limit", 3 * page_gib);
  classify::LatencyThreshold threshold(set, 4096, from_seconds(60));
  const auto admitted = [&](double at) {
    int count = 0;
    for (int n = 0; n < 10; ++n) count += threshold.admit({}, from_seconds(at));
    return count;
  };
  CHECK_EQ(admitted(0.5), 2);
  CHECK_EQ(admitted(0.9), 0);
  CHECK_EQ(admitted(1.6), 3);
}
