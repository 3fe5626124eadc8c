// SPDX-License-Identifier: MIT

#include "aol_effects.hpp"
#include "check.hpp"
#include "fake_memory.hpp"
#include "knob_effects.hpp"

using namespace tt;
using test::Entry;
using test::Rig;
using test::span_of;
using test::Then;
using Pages = std::vector<std::uint64_t>;

namespace {

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
// Eight fast pages: K_in is two, K_out four.
Rig twoq() {
  Rig rig("twoq", {}, 8, 1000);
  rig.map(0, 100);
  return rig;
}

const test::RegisterEffects effects{
    "twoq",
    {},
    test::joined({{"in_share", 0.25, 1.0, Then::less,
                   [](Rig& r) {
                     request(r, span_of(0, 25));
                     request(r, span_of(0, 5));  // ghosts that return
                     request(r, span_of(30, 10));
                     return r.gauge("am_pages");
                   }},
                  {"out_share", 0.25, 0.5, Then::more,
                   [](Rig& r) {
                     request(r, span_of(0, 60));
                     return r.gauge("a1out_pages");
                   }}},
                 test::frequency_entries(),
                 test::aol_entries(test::asked_at([](Rig& r) { r.sample(span_of(20, 20)); })))};

}  // namespace

TEST("twoq: pages start in the slow tier, and the first sample promotes into a1in") {
  auto rig = twoq();
  CHECK(fast_pages(rig).empty());
  request(rig, {7, 7, 7});
  CHECK((fast_pages(rig) == Pages{7}));
  CHECK_EQ(rig.gauge("a1in_pages"), 1.0);  // samples that follow soon do not make it hot
  CHECK_EQ(rig.gauge("am_pages"), 0.0);
  CHECK_EQ(rig.memory.requested.size(), 1u);
}

TEST("twoq: a1in is first in, first out; who leaves it is remembered, K_out at most") {
  auto rig = twoq();
  request(rig, span_of(0, 8));
  request(rig, {0, 8});  // sampled again, 0 leaves nevertheless
  CHECK((fast_pages(rig) == span_of(1, 8)));
  CHECK((rig.memory.requested.back() == std::pair{PageId{8}, Tier::fast}));
  CHECK_EQ(rig.gauge("a1out_pages"), 1.0);
  request(rig, span_of(9, 10));
  CHECK_EQ(rig.gauge("a1out_pages"), 4.0);
}

TEST("twoq: a ghost that returns is hot, and stays while new pages pass through K_in places") {
  auto rig = twoq();
  request(rig, span_of(0, 10));  // 0 and 1 are ghosts
  request(rig, {0, 1});          // and so are 2 and 3
  CHECK_EQ(rig.gauge("am_pages"), 2.0);
  CHECK(rig.policy->heat({0}) == Heat::hot);
  request(rig, span_of(2, 4));  // four more: of a1in, two are left
  CHECK_EQ(rig.gauge("am_pages"), 6.0);
  CHECK_EQ(rig.gauge("a1in_pages"), 2.0);
  request(rig, {20});  // a1in is not larger than K_in: the oldest of am goes, without a ghost
  CHECK_EQ(rig.gauge("am_pages"), 5.0);
  CHECK(rig.memory.where({0}) == Residency::slow);
  CHECK(rig.policy->heat({0}) == Heat::cold);
  request(rig, span_of(30, 20));
  CHECK_EQ(rig.gauge("am_pages"), 5.0);
  CHECK_EQ(fast_pages(rig).size(), 8u);
}

TEST("twoq: am is ordered by the last sample") {
  auto rig = twoq();
  request(rig, span_of(0, 10));
  request(rig, {0, 1, 2, 3, 4, 5});
  CHECK_EQ(rig.gauge("am_pages"), 6.0);
  request(rig, {0, 20});
  CHECK(rig.memory.where({0}) == Residency::fast);
  CHECK(rig.memory.where({1}) == Residency::slow);
}

TEST("twoq: moves that fail are asked for again; pages that go leave the lists") {
  auto rig = twoq();
  rig.sample({7});
  rig.settle([](PageId, Tier) { return Outcome::busy; });
  request(rig, {7});
  CHECK((fast_pages(rig) == Pages{7}));
  request(rig, span_of(10, 7));
  rig.sample({30});
  rig.settle([](PageId, Tier to) { return to == Tier::slow ? Outcome::busy : Outcome::done; });
  CHECK((rig.memory.queued(Tier::slow) == Pages{7}));
  rig.settle();
  CHECK(rig.memory.where({7}) == Residency::slow);
  rig.unmap(0, 100);
  CHECK_EQ(rig.gauge("a1in_pages") + rig.gauge("a1out_pages"), 0.0);
}
