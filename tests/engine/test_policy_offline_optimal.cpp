// SPDX-License-Identifier: MIT

#include <limits>
#include <map>

#include "check.hpp"
#include "core/rng.hpp"
#include "fake_memory.hpp"
#include "knob_effects.hpp"
#include "sim/simulate.hpp"
#include "sim_streams.hpp"

using namespace tt;
using test::Rig;
using test::Then;

namespace {

/// As two_phases() has it, played to the middle and a tick beyond.
void to_second_phase(Rig& r) {
  r.map(0, 100);
  r.run(0.01);
  r.settle();
  r.future->next_block = 20;
  r.run(0.01);
}
double asked(Rig& r) {
  r.future->next_block = 20;
  r.run(0.01);
  return test::promotions(r);
}

/// Where a move costs about what it saves, which takes steps to find out.
double bound(Rig& r) {
  test::FakeFuture future(100, 40);
  Rng rng(3);
  for (auto& block : future.saved)
    for (float& page : block) page = static_cast<float>(1e6 * rng.uniform());
  future.move_ns = 1e6;
  const Oracle oracle = future.oracle();
  Gauges gauges;
  r.info.make({r.memory, r.knobs, &oracle, 1})->gauges(gauges);
  return gauges.at("schedule_bound_s");
}

const KnobMap base{{"epoch", 1000.0}, {"steps", test::whole(30)}, {"movers", test::whole(4)}};
const test::RegisterEffects effects{
    "offline-optimal",
    base,
    {{"epoch", 500.0, 2000.0, Then::less, [](Rig& r) { return r.gauge("schedule_epochs"); }},
     {"steps", test::whole(1), test::whole(60), Then::less, bound},
     {"movers", test::whole(1), test::whole(4), Then::differs, [](Rig& r) {
        asked(r);
        return static_cast<double>(r.memory.movers.back().threads);
      }}}};

/// 1024 pages; 64 hot ones, others in the second half; R 16.
void write_phases(const simtest::TempStream& file) {
  constexpr std::uint32_t pages = 1024;
  simtest::StreamWriter writer{file, simtest::one_class(pages, 16)};
  simtest::map_and_touch(writer, 0, pages);
  writer.block(false, 1e6);
  for (int b = 0; b < 400; ++b) {
    simtest::Part part;
    const std::uint32_t first = b < 200 ? 0 : 512;
    for (std::uint32_t page = first; page < first + 64; ++page) {
      part.pages.push_back(page);
      part.counts.push_back(static_cast<std::uint16_t>(20 + page % 5));
    }
    part.pages.push_back(700 + static_cast<std::uint32_t>(b) % 300);
    part.counts.push_back(3);
    writer.parts.push_back(std::move(part));
    writer.operations()[0] = 100;
    writer.block(true, 1e7);
  }
  writer.finish();
}
sim::RunResult run(simtest::TempStream& file, const char* name, const sim::MachineProfile& machine,
                   const KnobMap& knobs = {}) {
  return sim::simulate(file.reader(), machine, policy(name), knobs,
                       {.fast_share = 1.0 / 16, .coarse = true});
}
double cell(const sim::RunResult& result, const char* column) {
  return std::get<double>(result.rows.at(0).cells.at(column));
}

}  // namespace

TEST("offline-optimal: first touches go where the first epoch wants them, and the rest follows") {
  Rig rig("offline-optimal", {}, 20, 100);
  to_second_phase(rig);
  // Pages 0.. are worth most before the middle and pages 20.. after it (two_phases, 100 pages).
  CHECK(rig.memory.where({0}) == Residency::fast);
  CHECK(rig.memory.where({90}) == Residency::slow);
  CHECK(rig.policy->heat({40}) == Heat::hot);
  CHECK(rig.policy->heat({10}) == Heat::cold);
  CHECK(rig.memory.queued(Tier::fast).size() > 10);
  CHECK_EQ(rig.memory.queued(Tier::fast).size(), rig.memory.queued(Tier::slow).size());
  CHECK(rig.memory.queue.front().second == Tier::slow);  // room first
  rig.settle();
  CHECK(rig.memory.where({40}) == Residency::fast);
  const auto calls = rig.memory.residency_calls;
  rig.run(1);
  CHECK(rig.memory.residency_calls <= calls + 1);  // settled until the next epoch
}

TEST("offline-optimal: a move that failed is asked for again") {
  Rig rig("offline-optimal", {}, 20, 100);
  to_second_phase(rig);
  rig.settle([](PageId page, Tier) { return page.value % 2 == 0 ? Outcome::busy : Outcome::done; });
  CHECK(rig.memory.queue.empty());
  rig.run(0.01);
  CHECK(!rig.memory.queue.empty());
  for (int n = 0; n < 5; ++n) {
    rig.settle();
    rig.run(0.01);
  }
  CHECK(rig.memory.where({40}) == Residency::fast);
}

TEST("offline-optimal: refuses to run without the future") {
  test::FakeMemory memory(1, 1);
  const Knobs knobs = resolve(policy("offline-optimal").knobs, {});
  const Oracle only_counts;
  CHECK_THROWS(policy("offline-optimal").make({memory, knobs, nullptr, 0}), "needs the future");
  CHECK_THROWS(policy("offline-optimal").make({memory, knobs, &only_counts, 0}),
               "needs the future");
}

TEST("offline-optimal: beats the best static placement where the hot set changes") {
  simtest::TempStream file;
  write_phases(file);
  const auto machine = simtest::plain_machine();
  const auto optimal = run(file, "offline-optimal", machine, {{"epoch", 100.0}});
  const auto still = run(file, "static-hot", machine);
  const auto fast = run(file, "all-fast", machine);
  CHECK(optimal.seconds < 0.8 * still.seconds);
  CHECK(optimal.seconds > fast.seconds);
  CHECK(optimal.metrics.at("promotions") >= 64 * 16.0);
  // It said so before.
  const auto slow = run(file, "all-slow", machine);
  CHECK_NEAR(slow.seconds - optimal.seconds, cell(optimal, "gain_s"), 0.05 * slow.seconds);
  CHECK(cell(optimal, "gain_s") <= cell(optimal, "bound_s"));
  CHECK_NEAR(slow.seconds - still.seconds, cell(optimal, "static_gain_s"), 0.01 * slow.seconds);
  CHECK(cell(optimal, "gap") < 0.05);
}

TEST("offline-optimal: is static-hot where moves take for ever") {
  simtest::TempStream file;
  write_phases(file);
  auto machine = simtest::plain_machine();
  machine.migration_fixed_us = 1e9;
  const auto optimal = run(file, "offline-optimal", machine, {{"epoch", 100.0}});
  const auto still = run(file, "static-hot", machine);
  CHECK_EQ(optimal.metrics.at("promotions_requested"), 0.0);
  CHECK_NEAR(optimal.seconds, still.seconds, 1e-9 * still.seconds);
  CHECK_NEAR(cell(optimal, "gain_s"), cell(optimal, "static_gain_s"), 1e-12);
}

TEST("offline-optimal: starts from the slow tier if it has to") {
  simtest::TempStream file;
  write_phases(file);
  const auto result =
      sim::simulate(file.reader(), simtest::plain_machine(), policy("offline-optimal"), {},
                    {.fast_share = 1.0 / 16, .coarse = true, .start_slow = true});
  CHECK(result.metrics.at("promotions") >= 64 * 16.0);
  CHECK(result.metrics.at("fast_hit_ratio") > 0.5);
}
