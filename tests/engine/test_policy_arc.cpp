// SPDX-License-Identifier: MIT

#include "aol_effects.hpp"
#include "check.hpp"
#include "core/rng.hpp"
#include "fake_memory.hpp"
#include "knob_effects.hpp"

using namespace tt;
using test::Rig;
using test::span_of;
using Pages = std::vector<std::uint64_t>;

namespace {

// Four fast pages, none of them used; pages 0..99 in the slow tier.
Rig arc(std::uint64_t fast = 4) {
  Rig rig("arc", {}, fast, 1000);
  rig.map(0, 100);
  return rig;
}
/// Samples one after the other, with the moves that they lead to done in between.
void request(Rig& rig, const Pages& pages) {
  for (const auto page : pages) {
    rig.sample({page});
    rig.settle();
  }
}
Pages fast_pages(const Rig& rig) {
  Pages pages;
  for (std::uint64_t page = 0; page < 100; ++page)
    if (rig.memory.where({page}) == Residency::fast) pages.push_back(page);
  return pages;
}

const test::RegisterEffects effects{
    "arc", {}, test::joined(test::frequency_entries(), test::aol_entries(test::asked_at([](Rig& r) {
                              r.sample(span_of(20, 20));
                            })))};

}  // namespace

TEST("arc: pages start in the slow tier, and the first sample promotes") {
  auto rig = arc();
  CHECK(fast_pages(rig).empty());
  request(rig, {7});
  CHECK((fast_pages(rig) == Pages{7}));
  CHECK_EQ(rig.gauge("t1_pages"), 1.0);
  CHECK(rig.policy->heat({7}) == Heat::warm);
}

TEST("arc: a second sample moves a page from t1 to t2 (case I)") {
  auto rig = arc();
  request(rig, {7, 7});
  CHECK_EQ(rig.gauge("t1_pages"), 0.0);
  CHECK_EQ(rig.gauge("t2_pages"), 1.0);
  CHECK(rig.policy->heat({7}) == Heat::hot);
  CHECK_EQ(rig.memory.requested.size(), 1u);  // it is in the fast tier already
}

TEST("arc: pages sampled once pass by those sampled twice; the victim is demoted, not the page") {
  auto rig = arc();
  request(rig, {1, 1, 2, 2});      // t2
  request(rig, {10, 11, 12, 13});  // t1 has two places
  CHECK((fast_pages(rig) == Pages{1, 2, 12, 13}));
  CHECK_EQ(rig.gauge("b1_pages"), 2.0);
  CHECK((rig.memory.requested.back() == std::pair{PageId{13}, Tier::fast}));
  CHECK(
      (rig.memory.requested[rig.memory.requested.size() - 2] == std::pair{PageId{11}, Tier::slow}));
}

TEST("arc: a ghost of t1 that returns makes t1 larger, one of t2 smaller (cases II and III)") {
  auto rig = arc();
  request(rig, {1, 1, 2, 2, 10, 11, 12});  // 10 is a ghost
  CHECK_EQ(rig.gauge("t1_target_pages"), 0.0);
  request(rig, {10});
  CHECK_EQ(rig.gauge("t1_target_pages"), 1.0);
  CHECK_EQ(rig.gauge("t2_pages"), 3.0);  // it was sampled again
  request(rig, {20, 21, 20, 21});        // both to t2, of which the oldest becomes a ghost
  CHECK(rig.gauge("b2_pages") >= 1.0);
  const double target = rig.gauge("t1_target_pages");
  request(rig, {1});
  CHECK(rig.gauge("t1_target_pages") < target);
}

TEST("arc: with t1 alone in the tier, its oldest page leaves and is forgotten (case IV)") {
  auto rig = arc();
  request(rig, {10, 11, 12, 13, 14});
  CHECK((fast_pages(rig) == Pages{11, 12, 13, 14}));
  CHECK_EQ(rig.gauge("b1_pages"), 0.0);
}

TEST("arc: t1 and b1 never have more than c pages, all lists never more than 2 c") {
  auto rig = arc();
  Rng rng(5);
  for (int n = 0; n < 2000; ++n) {
    request(rig, {rng.below(1 + rng.below(40))});
    const double first = rig.gauge("t1_pages") + rig.gauge("b1_pages");
    const double second = rig.gauge("t2_pages") + rig.gauge("b2_pages");
    CHECK(first <= 4);
    CHECK(first + second <= 8);
    CHECK(rig.gauge("t1_pages") + rig.gauge("t2_pages") <= 4);
    CHECK(fast_pages(rig).size() <= 4);
  }
  CHECK_EQ(rig.memory.free_pages(Tier::fast), 0u);
}

TEST("arc: moves that fail are asked for again; pages that go leave the lists") {
  auto rig = arc();
  rig.sample({7});
  rig.settle([](PageId, Tier) { return Outcome::busy; });
  CHECK(fast_pages(rig).empty());
  request(rig, {7});
  CHECK((fast_pages(rig) == Pages{7}));
  request(rig, {8, 8, 7, 9, 9, 10, 10});
  rig.sample({11});  // demotes one of them
  rig.settle([](PageId, Tier to) { return to == Tier::slow ? Outcome::busy : Outcome::done; });
  CHECK_EQ(rig.memory.queued(Tier::slow).size(), 1u);
  rig.settle();
  CHECK_EQ(fast_pages(rig).size(), 3u);
  rig.unmap(0, 100);
  CHECK_EQ(rig.gauge("t1_pages") + rig.gauge("t2_pages") + rig.gauge("b1_pages"), 0.0);
}

TEST("arc: what the lists take of the fast tier is not filled") {
  Rig rig("arc", {}, 300, 100000);
  rig.map(0, 20000);
  request(rig, span_of(0, 2000));
  const double cached = rig.gauge("t1_pages") + rig.gauge("t2_pages");
  const auto own = static_cast<double>(rig.policy->metadata_bytes()) / 4096;
  CHECK(own >= 1);
  CHECK_NEAR(cached, 300 - own, 1);
}
