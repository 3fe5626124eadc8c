// SPDX-License-Identifier: MIT

#include "regulate/object_profile.hpp"

#include <map>

#include "check.hpp"
#include "fake_memory.hpp"

using namespace tt;
using regulate::ObjectProfile;
using regulate::ObjectRules;
using regulate::OverlapFactor;

namespace {

constexpr PageId at(std::uint64_t page) { return {page}; }
std::vector<Sample> samples(std::uint64_t page, std::size_t times) {
  return std::vector<Sample>(times, Sample{{page}});
}
/// A period of so much AOL, of which this share is stalls.
void pass(test::FakeMemory& memory, double aol, double stalls) {
  memory.now.a3_reads += 1000;
  memory.now.a1_cycles += 1000 * aol;
  memory.now.cycles += 1e6;
  memory.now.stall_cycles += 1e6 * stalls;
}
void touch(test::FakeMemory& memory, std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t page = first; page < first + count; ++page) memory.touch(at(page), Tier::fast);
}

}  // namespace

TEST("object profile: the slowdown is the share of stalls, less where they overlap") {
  const ObjectRules rules;
  CHECK_NEAR(rules.slowdown(0.5, 100), 0.5 / (0.87 + 0.2467), 1e-12);
  CHECK_NEAR(rules.slowdown(0.5, 24.67), 0.5 / 1.87, 1e-12);
  CHECK_EQ(rules.slowdown(0.5, 0), 0.0);
}

TEST("object profile: Algorithm 1 amplifies rare accesses and divides frequent ones") {
  ObjectRules rules;
  CHECK_NEAR(rules.score(0.5, 0.4, 50), 0.2, 1e-12);
  CHECK_NEAR(rules.score(0.02, 0.4, 50), 0.02 * 0.4 * 2, 1e-12);
  CHECK_NEAR(rules.score(0.02, 0.4, 90), 0.02 * 0.4 * 8, 1e-12);
  CHECK_NEAR(rules.score(0.8, 0.4, 50), 0.8 * 0.4 / 8, 1e-12);
  CHECK_NEAR(rules.score(0.8, 0.4, 100), 0.8 * 0.4, 1e-12);  // L0: nothing overlaps
  CHECK_NEAR(rules.score(0.02, 0.4, 100), 0.02 * 0.4, 1e-12);
  rules.factor.kind = OverlapFactor::Kind::artifact;
  CHECK_NEAR(rules.score(0.8, 0.4, 39), 0.8 * 0.4 / 12, 1e-12);
  CHECK_NEAR(rules.score(0.02, 0.4, 39), 0.02 * 0.4 * 12, 1e-12);
}

TEST("object profile: both functions F, step by step") {
  const OverlapFactor paper, artifact{OverlapFactor::Kind::artifact};
  double low = 0;
  for (const double aol : {30.0, 55.0, 70.0, 90.0}) {
    CHECK(paper.amplify(aol) > low);
    low = paper.amplify(aol);
    CHECK_EQ(paper.divide(aol), 8.0);
  }
  CHECK_EQ(paper.amplify(30), 2.0);
  CHECK_EQ(low, 8.0);
  const std::vector<std::pair<double, double>> steps{{40, 12}, {45, 8}, {60, 4}, {80, 2}, {81, 1}};
  for (const auto& [aol, factor] : steps) {
    CHECK_EQ(artifact.amplify(aol), factor);
    CHECK_EQ(artifact.divide(aol), factor);
  }
}

TEST("object profile: scores add up by site, and rank by page") {
  test::FakeMemory memory(100, 100);
  ObjectProfile profile{ObjectRules{}};
  profile.map({at(0), 10}, 1, {});
  profile.map({at(10), 40}, 2, {});
  touch(memory, 0, 50);
  for (int second = 1; second <= 2; ++second) {
    profile.count(samples(3, 40));
    profile.count(samples(20, 60));
    profile.count(samples(99, 7));  // nobody's
    pass(memory, 200, 0.5);
    profile.close(memory, from_seconds(second));
  }
  const double p = ObjectRules{}.slowdown(0.5, 200);
  CHECK_NEAR(profile.objects()[0].score, 2 * 0.4 * p, 1e-12);
  CHECK_NEAR(profile.objects()[1].score, 2 * 0.6 * p, 1e-12);
  CHECK_EQ(profile.objects()[1].accesses, 120.0);
  CHECK_EQ(profile.objects()[0].last, 2.0);
  const Placement placement = profile.placement(memory);
  CHECK_EQ(placement.objects.size(), 2u);
  CHECK_EQ(placement.objects[0].site, "arena");  // FakeMemory's name of site 1
  CHECK_NEAR(placement.objects[0].score, 0.08 * p, 1e-12);
  CHECK_EQ(placement.objects[0].pages, 10.0);
  CHECK_EQ(placement.objects[1].pages, 40.0);
  CHECK(placement.objects[0].slot != placement.objects[1].slot);
}

TEST("object profile: an object is as large as it was resident at most") {
  test::FakeMemory memory(100, 100);
  ObjectProfile profile{ObjectRules{}};
  profile.map({at(0), 50}, 1, {});
  touch(memory, 0, 20);
  profile.close(memory, from_seconds(1));
  memory.free({at(0), 10});
  profile.unmap({at(0), 10}, from_seconds(1));
  touch(memory, 30, 5);
  profile.close(memory, from_seconds(2));
  CHECK_EQ(profile.objects()[0].pages, 20u);
  CHECK_EQ(profile.objects()[0].live, 40u);
  profile.map({at(60), 8}, 2, from_seconds(2));
  profile.unmap({at(60), 8}, from_seconds(2.5));  // nobody looked meanwhile
  CHECK_EQ(profile.objects()[1].pages, 8u);
}

TEST("object profile: objects that take turns share a slot, the others do not") {
  test::FakeMemory memory(100, 100);
  ObjectProfile profile{ObjectRules{}};
  profile.map({at(0), 10}, 1, {});
  touch(memory, 0, 10);
  for (int turn = 0; turn < 3; ++turn) {
    profile.map({at(10), 10}, 2, {});
    profile.unmap({at(10), 10}, {});
    profile.map({at(20), 30}, 3, {});
    profile.unmap({at(20), 30}, {});
  }
  profile.close(memory, from_seconds(1));
  const auto placement = profile.placement(memory);
  std::map<std::uint32_t, std::vector<double>> slots;
  for (const auto& object : placement.objects) slots[object.slot].push_back(object.pages);
  CHECK_EQ(slots.size(), 2u);
  for (const auto& [slot, sizes] : slots)
    CHECK(sizes == std::vector<double>{10} || sizes == (std::vector<double>{10, 30}));
}

TEST("object profile: parts of ranges can go, in any order") {
  test::FakeMemory memory(100, 100);
  ObjectProfile profile{ObjectRules{}};
  profile.map({at(0), 30}, 1, {});
  profile.unmap({at(10), 10}, {});
  profile.map({at(12), 4}, 2, {});
  profile.count(samples(5, 1));
  profile.count(samples(13, 2));
  profile.count(samples(17, 4));  // gone
  profile.count(samples(25, 8));
  pass(memory, 100, 0.5);
  profile.close(memory, from_seconds(1));
  CHECK_EQ(profile.objects()[0].accesses, 9.0);
  CHECK_EQ(profile.objects()[1].accesses, 2.0);
  profile.unmap({at(0), 100}, {});
  CHECK_EQ(profile.objects()[0].live, 0u);
  CHECK_EQ(profile.objects()[1].live, 0u);
}
