// SPDX-License-Identifier: MIT

#include "check.hpp"
#include "fault_rig.hpp"
#include "regulate/latency_balance.hpp"

using namespace tt;
using namespace tt::test;

namespace {

/// Counters go on by a quantum of reads at these latencies; `share` of them in the fast tier.
void measure(Counters& now, double fast_ns, double slow_ns, double share, double reads = 1e6) {
  now.tier[0].reads += reads * share;
  now.tier[0].occupancy_ns += reads * share * fast_ns;
  now.tier[1].reads += reads * (1 - share);
  now.tier[1].occupancy_ns += reads * (1 - share) * slow_ns;
}
/// 20 fast pages 0..19, 80 slow ones; nothing is demoted for room.
const KnobMap base = with(scanning(), {{"demote_scale_factor", 0.0},
                                       {"watermark_min", 0.0},
                                       {"watermark_scale", 0.0001},
                                       {"latency_weight", 1.0}});
Rig colloid(const KnobMap& scaled = {}) {
  Rig rig("colloid", {}, with(base, scaled), 20, 200);
  rig.map(0, 100);
  return rig;
}
/// Pages are active, and fault once more in a quantum at these latencies. What moves to `to`.
double moved(Rig& r, Tier to, const Numbers& pages, double fast_ns, double slow_ns,
             double share = 0.5, double reads = 1e6) {
  if (to == Tier::fast) make_room(r, 15);
  start_before_scans(r);
  for (int n = 0; n < 2; ++n) {
    r.run(1.01);
    if (n == 1) {
      measure(r.memory.now, fast_ns, slow_ns, share, reads);
      r.run(0.03);
    }
    access(r, pages);
  }
  return static_cast<double>(r.memory.queued(to).size());
}
auto promoted(double fast_ns, double slow_ns, double reads = 1e6) {
  return
      [=](Rig& r) { return moved(r, Tier::fast, span_of(30, 10), fast_ns, slow_ns, 0.5, reads); };
}

std::vector<Entry> own_entries() {
  return {
      {"latency_tolerance", 0.05, 0.5, Then::less, promoted(100, 120)},
      {"share_tolerance", 0.01, 0.45, Then::more,
       [](Rig& r) {  // bounds that are half apart: 0.3 and 0.7
         const auto quantum = [&](double fast_ns, double slow_ns, double share) {
           measure(r.memory.now, fast_ns, slow_ns, share);
           r.run(0.02);
         };
         quantum(200, 100, 0.7);
         quantum(100, 200, 0.3);
         return r.gauge("access_shift");
       }},
      {"latency_weight", 0.1, 1.0, Then::less,
       [](Rig& r) {
         for (const double latency : {200.0, 100.0}) {
           measure(r.memory.now, latency, 150, 0.5);
           r.run(0.01);
         }
         return r.gauge("fast_latency_ns");
       }},
      {"quantum", 10.0, 10000.0, Then::less, promoted(100, 200)},
      // In the two hundred quanta until the latencies are measured.
      {"migration_limit", 0.01 * page_mib, 0.03 * page_mib, Then::more, promoted(100, 200)},
  };
}
std::vector<Entry> tpp_entries() {
  const auto demoted_soon = [](Rig& r) {
    r.memory.accessed({{0}, 100}, {}, true);
    r.run(1.5);
    return demotions(r);
  };
  return {{"scan_period_max", 1000.0, 4000.0, Then::more,
           [](Rig& r) {
             r.run(30);
             return r.gauge("scan_period_ms");
           }},
          {"demote_scale_factor", 0.05, 0.5, Then::more, demoted_soon},
          {"activation", std::string{"paper"}, std::string{"code"}, Then::less, promoted(100, 200)},
          {"watermark_min", 0.0, 0.4, Then::less, promoted(100, 200)},
          {"watermark_scale", 0.001, 0.1, Then::more, demoted_soon}};
}

const RegisterEffects effects{"colloid", base,
                              joined(scan_entries(), reclaim_entries(), own_entries(),
                                     tpp_entries(), aol_entries(protected_at, scanning(20)))};

}  // namespace

TEST("colloid: promotes while the fast tier answers sooner, as TPP does") {
  Rig r = colloid();
  CHECK_EQ(moved(r, Tier::fast, span_of(30, 10), 100, 200), 10.0);
  Rig once = colloid();
  make_room(once, 15);
  once.run(1);
  measure(once.memory.now, 100, 200, 0.5);
  once.run(0.02);
  access(once, {30});  // not active yet
  CHECK(once.memory.queue.empty());
}

TEST("colloid: while the fast tier is the slower one nothing is promoted, its hot pages leave") {
  Rig r = colloid();
  CHECK_EQ(moved(r, Tier::fast, span_of(30, 10), 200, 100), 0.0);
  Rig away = colloid();
  make_room(away, 1);  // for kswapd to stay asleep
  CHECK_EQ(moved(away, Tier::slow, {3, 4, 30}, 200, 100), 2.0);
}

TEST("colloid: balanced, nothing moves") {
  Rig r = colloid();
  CHECK_EQ(moved(r, Tier::fast, span_of(15, 10), 100, 104), 0.0);
  CHECK(r.memory.queue.empty());
}

TEST("colloid: before anything is measured nothing moves") {
  Rig r = colloid();
  CHECK_EQ(moved(r, Tier::fast, span_of(30, 10), 0, 0, 0.5, 0), 0.0);
}

TEST("colloid: a quantum's pages have no more than the share of accesses that is to move") {
  // A page that faults within 40 ms has more than all of two reads in two seconds.
  const auto promotions_of = [&](double reads) {
    Rig r = colloid();
    return moved(r, Tier::fast, span_of(30, 10), 100, 200, 0.5, reads);
  };
  CHECK_EQ(promotions_of(1e6), 10.0);
  CHECK_EQ(promotions_of(2), 0.0);
}

TEST("latency balance: Little's law, and half of the distance to the bound") {
  Knobs knobs = resolve(regulate::latency_balance_knobs(), {{"latency_weight", 1.0}});
  regulate::LatencyBalance balance(knobs);
  Counters now;
  CHECK(!balance.update(now));
  CHECK(!balance.toward());
  measure(now, 100, 250, 0.6);
  CHECK(balance.update(now));
  CHECK_NEAR(balance.latency_ns(Tier::fast), 100, 1e-9);
  CHECK_NEAR(balance.latency_ns(Tier::slow), 250, 1e-9);
  CHECK(balance.toward() == Tier::fast);
  CHECK_NEAR(balance.shift(), 0.2, 1e-9);  // half of the way from 0.6 to 1
  measure(now, 300, 250, 0.8);
  CHECK(balance.update(now));
  CHECK(balance.toward() == Tier::slow);
  CHECK_NEAR(balance.shift(), 0.1, 1e-9);  // back to between 0.6 and 0.8
  measure(now, 250, 251, 0.7);
  CHECK(balance.update(now));
  CHECK(!balance.toward() && balance.shift() == 0);
}

TEST("latency balance: bounds that have met are reset on the side to move to") {
  Knobs knobs = resolve(regulate::latency_balance_knobs(), {{"latency_weight", 1.0}});
  regulate::LatencyBalance balance(knobs);
  Counters now;
  measure(now, 200, 100, 0.5);  // not above 0.5
  (void)balance.update(now);
  measure(now, 100, 200, 0.495);  // nor below: but now the fast tier is faster
  (void)balance.update(now);
  CHECK(balance.toward() == Tier::fast);
  CHECK_NEAR(balance.shift(), (0.495 + 1) / 2 - 0.495, 1e-9);
  measure(now, 200, 100, 0.2);  // slower even below the lower bound: that one is void
  (void)balance.update(now);
  CHECK_NEAR(balance.shift(), 0.1, 1e-9);
}

TEST("latency balance: averages do not depend on how many quanta a call ends") {
  const auto after = [](int calls, double quanta) {
    Knobs knobs = resolve(regulate::latency_balance_knobs(), {});
    regulate::LatencyBalance balance(knobs);
    Counters now;
    measure(now, 100, 100, 0.5);
    (void)balance.update(now);
    for (int n = 0; n < calls; ++n) {
      measure(now, 300, 100, 0.5, 1e6 * quanta);
      (void)balance.update(now, quanta);
    }
    return balance.latency_ns(Tier::fast);
  };
  CHECK_NEAR(after(8, 1), after(2, 4), 1e-9);
  CHECK(after(8, 1) < 200 && after(8, 1) > 110);
}
