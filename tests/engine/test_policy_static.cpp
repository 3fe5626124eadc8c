// SPDX-License-Identifier: MIT

#include "check.hpp"
#include "fake_memory.hpp"

using namespace tt;
using test::Rig;

namespace {

std::vector<std::uint64_t> in_fast(const Rig& rig, std::uint64_t pages) {
  std::vector<std::uint64_t> result;
  for (std::uint64_t p = 0; p < pages; ++p) {
    if (rig.memory.where({p}) == Residency::fast) result.push_back(p);
  }
  return result;
}

}  // namespace

TEST("first-touch: the fast tier while it has room, then the slow one; nothing moves") {
  Rig rig("first-touch", {}, 3, 10);
  rig.map(0, 6);
  rig.sample({5}, 1000);
  rig.run(7200);
  CHECK((in_fast(rig, 6) == std::vector<std::uint64_t>{0, 1, 2}));
  CHECK(rig.memory.requested.empty());
}

TEST("all-fast and all-slow: everything where the name says") {
  Rig fast("all-fast", {}, 100, 10);
  fast.map(0, 50);
  CHECK_EQ(fast.memory.free_pages(Tier::fast), 50u);
  CHECK(fast.info.traits.unbounded_fast);
  Rig slow("all-slow", {}, 100, 100);
  slow.map(0, 50);
  CHECK_EQ(slow.memory.free_pages(Tier::fast), 100u);
  CHECK(!slow.info.traits.unbounded_fast);
}

TEST("static-hot: the hottest pages that fit, ties by page number, whatever is touched first") {
  Rig rig("static-hot", {}, 3, 10, 4096, {5, 0, 9, 5, 5, 1});
  rig.map(0, 6);
  CHECK((in_fast(rig, 6) == std::vector<std::uint64_t>{0, 2, 3}));
  CHECK(rig.policy->heat({2}) == Heat::hot);
  CHECK(rig.policy->heat({4}) == Heat::cold);
  CHECK(rig.policy->heat({600}) == Heat::cold);
  CHECK_EQ(rig.gauge("hot_pages"), 3.0);
}

TEST("static-hot: pages that are never accessed are not hot, however much room there is") {
  Rig rig("static-hot", {}, 10, 10, 4096, {5, 0, 9});
  rig.map(0, 3);
  CHECK((in_fast(rig, 3) == std::vector<std::uint64_t>{0, 2}));
}

TEST("static-hot: refuses to run without the oracle") {
  test::FakeMemory memory(1, 1);
  const Knobs none;
  CHECK_THROWS(policy("static-hot").make({memory, none, nullptr, 0}), "needs the accesses");
}
