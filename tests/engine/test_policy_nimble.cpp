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

// 20 fast pages 0..19, 80 slow ones.
const KnobMap base{{"manage_period", 1000.0}};
Rig nimble(const KnobMap& more = {}, std::uint64_t page_bytes = 4096) {
  Rig rig("nimble", {}, with(base, more), 20, 4000, page_bytes);
  rig.map(0, 100);
  return rig;
}
void use(Rig& rig, const Numbers& pages) {
  for (const auto page : pages) (void)rig.memory.access({page}, AccessKind::load, rig.now);
}
/// After a first call, which clears all bits.
void begin(Rig& rig) {
  rig.run(1);
  rig.memory.queue.clear();
}

}  // namespace

TEST(
    "nimble: one access since the last call is enough to be promoted, in exchange for an idle "
    "page") {
  auto rig = nimble({{"exchange_batch", 2.0}});
  begin(rig);
  use(rig, {0, 1, 30, 31, 32});
  rig.run(1);
  const std::deque<std::pair<PageId, Tier>> expected{{{2}, Tier::slow},  {{3}, Tier::slow},
                                                     {{30}, Tier::fast}, {{31}, Tier::fast},
                                                     {{4}, Tier::slow},  {{32}, Tier::fast}};
  CHECK(rig.memory.queue == expected);
  rig.settle();
  CHECK(rig.memory.where({32}) == Residency::fast);
  CHECK(rig.memory.where({4}) == Residency::slow);
  CHECK(rig.policy->heat({32}) == Heat::hot);
  rig.run(1);  // nothing was accessed since
  CHECK_EQ(rig.memory.queue.size(), 0u);
  CHECK(rig.policy->heat({32}) == Heat::cold);
}

TEST("nimble: with room, all go up and nothing comes down") {
  auto rig = nimble();
  begin(rig);
  rig.memory.free({{0}, 3});
  use(rig, span_of(30, 5));
  rig.run(1);
  CHECK_EQ(test::promotions(rig), 5.0);
  CHECK_EQ(test::demotions(rig), 2.0);
  CHECK(rig.memory.queue.front().second == Tier::fast);
}

TEST("nimble: a fast tier that is all in use exchanges nothing") {
  auto rig = nimble();
  begin(rig);
  use(rig, span_of(0, 100));
  rig.run(1);
  CHECK_EQ(rig.memory.queue.size(), 0u);
  CHECK_EQ(rig.gauge("active_pages"), 20.0);
}

TEST("nimble: a call ends when all of its pages have moved") {
  auto rig = nimble();
  begin(rig);
  use(rig, {30});
  rig.run(1);
  const auto looked = rig.memory.work(Work::lru_step);
  use(rig, {40});
  rig.run(3);
  CHECK_EQ(rig.memory.work(Work::lru_step), looked);
  rig.settle();
  rig.run(1);
  CHECK((rig.memory.queued(Tier::fast) == Numbers{40}));
}

TEST("nimble: threads copy huge pages together, and base pages side by side") {
  CHECK((nimble().memory.movers.back() == Movers{.threads = 4}));
  auto huge = nimble({}, 2 << 20);
  CHECK((huge.memory.movers.back() == Movers{.threads = 4, .together = 4}));
}

namespace {

auto promoted_at(double aol) {
  return [=](Rig& r) {
    test::set_aol(r, aol);
    begin(r);
    r.run(1);
    r.memory.queue.clear();
    use(r, span_of(20, 20));
    r.run(1);
    return test::promotions(r);
  };
}
double calls(Rig& r) {
  r.run(10);
  return r.memory.work(Work::lru_step);
}
double before_first_promotion(Rig& r) {
  begin(r);
  use(r, span_of(20, 10));
  r.run(1);
  double count = 0;
  for (const auto& [page, to] : r.memory.queue) {
    if (to == Tier::fast) break;
    ++count;
  }
  return count;
}
double threads(Rig& r) { return r.memory.movers.back().threads; }

const test::RegisterEffects effects{
    "nimble", base,
    test::joined(
        std::vector<Entry>{{"manage_period", 1000.0, 4000.0, Then::less, calls},
                           {"exchange_batch", 1.0, 4.0, Then::more, before_first_promotion},
                           {"copy_threads", 1.0, 4.0, Then::more, threads}},
        test::aol_entries(promoted_at))};

}  // namespace
