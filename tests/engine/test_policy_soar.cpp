// SPDX-License-Identifier: MIT

#include <algorithm>

#include "check.hpp"
#include "fake_memory.hpp"
#include "knob_effects.hpp"
#include "profiling_effects.hpp"
#include "sim/simulate.hpp"
#include "sim_streams.hpp"

using namespace tt;
using test::Rig;
using test::score_at;
using test::Then;

namespace {

using Samples = std::vector<Sample>;

const KnobMap base{{"sampling_period", test::whole(3000)},
                   {"profile_period", 1000.0},
                   {"r_min", 0.03},
                   {"r_max", 0.7},
                   {"overlap_aol", 100.0},
                   {"factor", std::string{"paper"}},
                   {"predictor_a", 0.87},
                   {"predictor_b", 24.67}};
const test::RegisterEffects effects{"soar", base, test::profiling_entries("sampling_period")};

/// The policy with a placement.
struct Placed {
  explicit Placed(Placement given, std::uint64_t fast)
      : placement(std::move(given)), memory(fast, 1000) {
    knobs = resolve(policy("soar").knobs, {});
    soar = policy("soar").make({memory, knobs, nullptr, 1, &placement});
  }
  /// Maps and touches; returns how many of the pages are fast.
  std::uint64_t map(std::uint64_t first, std::uint64_t count, std::uint32_t site) {
    soar->on_map({{first}, count}, site, {});
    std::uint64_t fast = 0;
    for (std::uint64_t page = first; page < first + count; ++page) {
      memory.touch({page}, soar->placement({{page}, 1}));
      fast += memory.where({page}) == Residency::fast;
    }
    return fast;
  }
  void unmap(std::uint64_t first, std::uint64_t count) {
    memory.free({{first}, count});
    soar->on_unmap({{first}, count}, {});
  }
  Placement placement;
  test::FakeMemory memory;
  Knobs knobs;
  std::unique_ptr<Policy> soar;
};
// FakeMemory names site 1 "arena" and all others "".

const sim::RunOptions half{.fast_share = 0.5, .coarse = true};

sim::MachineProfile machine() {
  auto plain = simtest::plain_machine();
  plain.threads = 1;
  return plain;
}

}  // namespace

TEST("soar: the best objects that fit, the next in part, the others slow") {
  Placed placed({{{"arena", 9, 30, 0}, {"", 5, 40, 1}, {"never seen", 1, 10, 2}}}, 50);
  CHECK_EQ(placed.map(100, 40, 2), 20u);  // what the better one will leave, although it is first
  CHECK(placed.soar->heat({119}) == Heat::hot);
  CHECK(placed.soar->heat({120}) == Heat::cold);
  CHECK_EQ(placed.map(0, 30, 1), 30u);
  CHECK_EQ(placed.memory.free_pages(Tier::fast), 0u);
  Rows rows;
  placed.soar->report(rows);
  CHECK_EQ(rows.size(), 3u);
  CHECK_EQ(std::get<double>(rows[1].cells.at("fast_pages")), 20.0);
  CHECK_EQ(std::get<double>(rows[2].cells.at("fast_pages")), 0.0);
}

TEST("soar: objects that take turns share the room of the largest") {
  Placed placed({{{"arena", 9, 30, 0}, {"", 5, 20, 0}, {"third", 1, 10, 1}}}, 30);
  for (int turn = 0; turn < 3; ++turn) {
    CHECK_EQ(placed.map(0, 30, 1), 30u);
    placed.unmap(0, 30);
    CHECK_EQ(placed.map(40, 20, 2), 20u);
    placed.unmap(40, 20);
  }
}

TEST("soar: what the profile has not seen gets what is left over") {
  Placed full({{{"arena", 9, 30, 0}}}, 30);
  CHECK_EQ(full.map(100, 20, 7), 0u);
  CHECK_EQ(full.map(0, 30, 1), 30u);
  Placed roomy({{{"arena", 9, 30, 0}}}, 36);
  CHECK_EQ(roomy.map(100, 20, 7), 6u);
  CHECK_EQ(roomy.map(0, 30, 1), 30u);
}

TEST("soar: without a placement it samples, scores every second, and moves nothing") {
  Rig rig("soar", {}, 100, 100);
  CHECK_NEAR(score_at(0.5, 200)(rig), 0.5 / (0.87 + 24.67 / 200), 1e-9);
  CHECK_NEAR(rig.gauge("profile_aol_cycles"), 200, 1e-9);
  CHECK(rig.memory.requested.empty());
  Rows rows;
  rig.policy->report(rows);
  CHECK_EQ(rows.size(), 2u);
  CHECK_EQ(std::get<std::string>(rows[0].cells.at("site")), "arena");
  CHECK_EQ(std::get<double>(rows[0].cells.at("samples")), 1000.0);
}

TEST("soar: the object that is chased goes fast, although the swept one is hotter and came first") {
  simtest::TempStream file;
  simtest::write_chase_and_sweep(file);
  const auto& soar = policy("soar");
  const auto profile = sim::profile(file.reader(), machine(), soar, {}, half);
  CHECK_EQ(profile.placement.size(), 2u);
  CHECK_EQ(profile.placement[0].site, "chased");
  CHECK_NEAR(profile.placement[0].bytes, 512 * 4096 * 4.0, 1);
  CHECK_EQ(profile.run.metrics.at("fast_hit_ratio"), 1.0);
  auto with = half;
  with.placement = profile.placement;
  const auto placed = sim::simulate(file.reader(), machine(), soar, {}, with);
  const auto still = sim::simulate(file.reader(), machine(), policy("static-hot"), {}, half);
  const auto touch = sim::simulate(file.reader(), machine(), policy("first-touch"), {}, half);
  CHECK(placed.seconds < 0.95 * still.seconds);
  CHECK(placed.seconds < 0.95 * touch.seconds);
  CHECK_EQ(placed.metrics.at("promotions"), 0.0);
  CHECK_EQ(std::get<std::string>(placed.rows.at(0).cells.at("site")), "chased");
  // A run without a placement is profiled first, and comes to the same.
  const auto alone = sim::simulate(file.reader(), machine(), soar, {}, half);
  CHECK_EQ(alone.seconds, placed.seconds);
  CHECK(alone.rows == placed.rows);
}

TEST("soar: the two replays of a run without a placement share its progress and its deadline") {
  simtest::TempStream file;
  simtest::write_chase_and_sweep(file);
  auto options = half;
  double last = 0, most = 0;
  options.progress = [&](double done) {
    CHECK(done >= last);
    most = last = done;
    return true;
  };
  (void)sim::simulate(file.reader(), machine(), policy("soar"), {}, options);
  CHECK(most <= 1);
  options.deadline_seconds = 0;
  bool late = false;
  try {
    (void)sim::simulate(file.reader(), machine(), policy("soar"), {}, options);
  } catch (const sim::DeadlineExceeded&) {
    late = true;
  }
  CHECK(late);
}

TEST("soar: a placement of another program, or for another policy, is refused") {
  simtest::TempStream file;
  simtest::write_chase_and_sweep(file);
  auto options = half;
  options.placement = {{"heap", 1, 4096, 0}};
  CHECK_THROWS(sim::simulate(file.reader(), machine(), policy("soar"), {}, options),
               "found 'heap', known are swept, chased, scratch");
  CHECK_THROWS(sim::simulate(file.reader(), machine(), policy("hybridtier"), {}, options),
               "hybridtier does not go by a placement");
  CHECK_THROWS(sim::profile(file.reader(), machine(), policy("hybridtier"), {}, half),
               "nothing to profile");
  options.placement.reset();
  options.start_slow = true;
  CHECK_THROWS(sim::simulate(file.reader(), machine(), policy("soar"), {}, options),
               "never moves a page");
}

TEST("soar: an object of which nothing is touched takes no room") {
  simtest::TempStream file;
  simtest::write_chase_and_sweep(file, true);
  const auto profile = sim::profile(file.reader(), machine(), policy("soar"), {}, half);
  CHECK_EQ(profile.placement.size(), 3u);
  CHECK_EQ(profile.placement[2].site, "scratch");
  CHECK_EQ(profile.placement[2].score, 0.0);
}
