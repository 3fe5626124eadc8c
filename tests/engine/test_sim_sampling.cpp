// SPDX-License-Identifier: MIT

// What samplers and counters of the simulated machine show of the accesses.
#include <cmath>
#include <initializer_list>
#include <map>

#include "check.hpp"
#include "scripted.hpp"
#include "sim/access_sampler.hpp"
#include "sim/estimates.hpp"

namespace {

using namespace tt;
using namespace tt::sim;
using namespace simtest;
using Mode = SamplingRequest::Mode;

/// One class of these events, on pages of which every second one is slow.
struct Rig {
  explicit Rig(trace::StreamClass all = {.name = "all"}, double prefetch_shown = 0.3) {
    info = one_class(entries, 1);
    info.classes = {std::move(all)};
    machine = plain_machine();
    machine.prefetch_shown = prefetch_shown;
    for (std::size_t i = 0; i < entries; ++i) {
      pages.push_back(static_cast<std::uint32_t>(i));
      counts.push_back(static_cast<std::uint16_t>(1 + i % 3));
      if (i % trace::chunk == 0) sums.push_back(0);
      sums.back() += counts.back();
      segment.sum += counts.back();
      if (i % 2 == 0) slow.set(i);
      if (i % 2 == 0) in_slow += counts.back();
    }
    segment.pages = pages;
    segment.counts = counts;
    segment.chunk_sums = sums;
  }
  AccessSampler sampler() const { return AccessSampler{info, machine, 4, 5}; }
  /// Samples of so many rounds of the segment, each a block of 10 ms.
  std::vector<Sample> play(AccessSampler& sampler, int rounds) {
    trace::Block block;
    block.segments = {segment};
    std::vector<Sample> samples;
    for (int round = 0; round < rounds; ++round) {
      sampler.begin(block, 10e6);
      (void)sampler.play(segment, in_slow, 0, slow, samples);
    }
    return samples;
  }
  std::vector<Sample> play(const SamplingRequest& request, int rounds) {
    AccessSampler made = sampler();
    made.set(request);
    return play(made, rounds);
  }
  double events(int rounds) const { return static_cast<double>(segment.sum) * rounds; }

  static constexpr std::size_t entries = 1000;
  trace::StreamInfo info;
  MachineProfile machine;
  std::vector<std::uint32_t> pages, sums;
  std::vector<std::uint16_t> counts;
  trace::Segment segment;
  std::uint64_t in_slow = 0;
  PageBits slow{entries};
};

double in_tier(const std::vector<Sample>& samples, Tier tier) {
  return static_cast<double>(std::ranges::count(samples, tier, &Sample::tier));
}

/// Expected, give or take five standard deviations of a Poisson count.
void check_count(double found, double expected) {
  CHECK_NEAR(found, expected, 5 * std::sqrt(expected));
}

/// A block of so many loads, for begin().
void begin(AccessSampler& sampler, double loads, double nanoseconds = 10e6) {
  trace::Block block;
  block.segments.resize(1);
  block.segments[0].sum = static_cast<std::uint64_t>(loads);
  sampler.begin(block, nanoseconds);
}

/// 100 loads each of pages 0 to 9 as a class of which this much is prefetched, and of pages 10 to
/// 19 as a chase; the first half is in the fast tier.
void write_sweep_and_chase(const TempStream& file, double prefetched) {
  trace::StreamInfo info = one_class(20, 64);
  info.classes = {{.name = "sweep", .mlp = 8, .prefetched = prefetched}, {.name = "chase"}};
  StreamWriter writer{file, info};
  map_and_touch(writer, 0, 20);
  writer.block(false, 1000);
  for (int block = 0; block < 1000; ++block) {
    writer.parts.resize(2);
    for (std::uint32_t page = 0; page < 20; ++page) {
      Part& part = writer.parts[page / 10];
      part.stream_class = page / 10;
      part.pages.push_back(page);
      part.counts.push_back(100);
    }
    writer.block(true, 1e6);
  }
  writer.finish();
}

}  // namespace

TEST("sampling: samples are a Poisson process over the accesses of their kind") {
  Rig rig;
  AccessSampler sampler = rig.sampler();
  sampler.set({.loads = {Mode::period, 100}, .stores = {}});
  const int rounds = 5000;
  const auto samples = rig.play(sampler, rounds);
  const double expected = rig.events(rounds) / 100;
  check_count(static_cast<double>(samples.size()), expected);
  // Each page in proportion to its count, with the tier that it is in.
  std::array<double, 3> by_count{};
  for (const Sample& sample : samples) {
    by_count[sample.page.value % 3] += 1;
    CHECK(sample.tier == (sample.page.value % 2 == 0 ? Tier::slow : Tier::fast));
  }
  for (std::size_t c = 0; c < 3; ++c) {
    const double share = expected * static_cast<double>(c + 1) / 6;
    CHECK_NEAR(by_count[c], share, 5 * std::sqrt(share) + 0.002 * expected);
  }
  // The other kind is off.
  rig.segment.kind = AccessKind::store;
  CHECK(rig.play(sampler, 1).empty());
}

TEST("sampling: of prefetched lines only those are seen that came late") {
  const SamplingRequest request{.loads = {Mode::period, 100}, .stores = {}};
  for (const double shown : {0.0, 0.3, 1.0}) {
    Rig sweep{{.name = "sweep", .prefetched = 0.9}, shown};
    check_count(static_cast<double>(sweep.play(request, 5000).size()),
                sweep.events(5000) / 100 * (0.1 + 0.9 * shown));
  }
  // Pages in proportion to their counts, as ever.
  Rig sweep{{.name = "sweep", .prefetched = 0.9}, 0};
  std::array<double, 3> by_count{};
  for (const Sample& sample : sweep.play(request, 50000)) by_count[sample.page.value % 3] += 1;
  CHECK_NEAR(by_count[2] / by_count[0], 3, 0.2);
}

TEST("sampling: a store event counts what the caches served, too") {
  Rig rig{{.name = "all", .prefetched = 1, .store_events = 7.5}, 0};
  rig.segment.kind = AccessKind::store;
  const auto samples = rig.play({.loads = {}, .stores = {Mode::period, 100}}, 2000);
  check_count(static_cast<double>(samples.size()), rig.events(2000) / 100 * 7.5);
  for (const Sample& sample : samples) CHECK(sample.kind == AccessKind::store);
  // A page's samples can be several for an access, and still follow its count.
  std::array<double, 3> by_count{};
  for (const Sample& sample : samples) by_count[sample.page.value % 3] += 1;
  CHECK_NEAR(by_count[2] / by_count[0], 3, 0.2);
}

TEST("sampling: frequency mode asks for so many samples a second") {
  const Rig rig;
  AccessSampler sampler = rig.sampler();
  sampler.set({.loads = {Mode::frequency, 1000}, .stores = {}});
  CHECK(std::isinf(sampler.period(AccessKind::load)));  // no event rate is known yet
  begin(sampler, 5e4);                                  // 5 M events a second
  CHECK_NEAR(sampler.period(AccessKind::load), 5000, 1e-9);
  for (int i = 0; i < 100; ++i) begin(sampler, 1e5);
  CHECK_NEAR(sampler.period(AccessKind::load), 10000, 1e-3);
  begin(sampler, 5e4);  // one block of 10 ms in a window of 50
  CHECK_NEAR(sampler.period(AccessKind::load), 10000 - 5000 / 6.0, 1e-3);
  begin(sampler, 0);  // silence: no samples, and a fresh start after it
  CHECK(std::isinf(sampler.period(AccessKind::load)));
  begin(sampler, 2e5);
  CHECK_NEAR(sampler.period(AccessKind::load), 20000, 1e-9);
}

TEST("sampling: how slow set-up was does not change how many samples are taken after it") {
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(10, 1, 1)};
  simtest::map_and_touch(writer, 0, 10);
  writer.compute()[0] = 4 * 20e6;  // by four threads: 20 ms where 1 was expected
  writer.block(false, 1e6);
  for (int b = 0; b < 20; ++b) {
    writer.parts = {{0, AccessKind::load, {0, 1}, {20'000, 20'000}}};  // 1 ms
    writer.block(true, 1e6);
  }
  writer.finish();
  Hooks policy;
  policy.start = [](Memory& memory) {
    (void)memory.set_sampling({.loads = {Mode::frequency, 1e5}, .stores = {}});
  };
  const RunResult result = run(stream, plain_machine(), policy, share(1));
  CHECK_NEAR(result.seconds, 20e-3, 1e-9);
  CHECK_NEAR(result.metrics.at("samples"), 2000, 200);
}

TEST("sampling: an event for each tier gets as many samples of either") {
  Rig rig;  // every second page is slow; now only every twentieth
  rig.in_slow = 0;
  for (std::size_t page = 0; page < Rig::entries; ++page) {
    if (page % 20 != 0)
      rig.slow.clear(page);
    else
      rig.in_slow += rig.counts[page];
  }
  // 200 k events a second, of which 5 % are slow; 10 s.
  const double slow_share = static_cast<double>(rig.in_slow) / static_cast<double>(rig.segment.sum);
  CHECK_NEAR(slow_share, 0.05, 0.002);
  const auto whole = rig.play({.loads = {Mode::frequency, 1000}, .stores = {}}, 1000);
  check_count(in_tier(whole, Tier::slow), 10'000 * slow_share);
  check_count(in_tier(whole, Tier::fast), 10'000 * (1 - slow_share));
  const auto each = rig.play(
      {.loads = {.mode = Mode::frequency, .value = 1000, .by_tier = true}, .stores = {}}, 1000);
  check_count(in_tier(each, Tier::slow), 10'000);
  check_count(in_tier(each, Tier::fast), 10'000);
}

TEST("sampling: of the fast tier's loads a share alone is kept, if that is asked for") {
  Rig rig;
  rig.in_slow = 0;
  for (std::size_t page = 0; page < Rig::entries; ++page)
    if (rig.slow.test(page)) rig.in_slow += rig.counts[page];
  const double slow_share = static_cast<double>(rig.in_slow) / static_cast<double>(rig.segment.sum);
  const auto taken =
      rig.play({.loads = {Mode::frequency, 1000}, .stores = {}, .fast_share = 0.25}, 1000);
  check_count(in_tier(taken, Tier::slow), 10'000 * slow_share);
  check_count(in_tier(taken, Tier::fast), 2'500 * (1 - slow_share));
}

TEST("sampling: an event for each core follows the rate of its own threads") {
  Rig rig;
  rig.info.lanes = {{"many", 0.75}, {"one", 0}};  // of four threads: three, and one
  rig.info.classes = {{.name = "busy", .lane = 0}, {.name = "idle", .lane = 1}};
  trace::Segment idle = rig.segment;
  idle.stream_class = 1;
  trace::Block block;
  block.segments = {rig.segment, rig.segment, rig.segment, idle};
  for (const bool by_core : {false, true}) {
    AccessSampler sampler = rig.sampler();
    sampler.set(
        {.loads = {.mode = Mode::frequency, .value = 1000, .by_core = by_core}, .stores = {}});
    std::array<std::vector<Sample>, 2> samples;
    for (int round = 0; round < 1000; ++round) {
      sampler.begin(block, 10e6);
      for (const trace::Segment& segment : block.segments)
        (void)sampler.play(segment, rig.in_slow, 0, rig.slow, samples[segment.stream_class]);
    }
    check_count(static_cast<double>(samples[0].size()), by_core ? 30'000 : 7'500);
    check_count(static_cast<double>(samples[1].size()), by_core ? 10'000 : 2'500);
  }
}

TEST("sampling: the kernel bounds the time that handling takes of a processor") {
  Rig rig;
  rig.machine.sample_assist_ns = 500;
  rig.machine.sample_interrupt_ns = 2000;
  AccessSampler sampler = rig.sampler();
  sampler.set({.loads = {Mode::frequency, 1e7}, .stores = {}});
  begin(sampler, 1e8);  // 10 G events a second
  // A quarter of four processors at 2.5 us each: 400 k samples a second.
  CHECK_NEAR(sampler.period(AccessKind::load), 10e9 / 400e3, 1e-6);
  // Which is what it grants, where it is told so; all that is less it grants as it is.
  CHECK_NEAR(sampler.granted().loads.value, 400e3, 1e-6);
  sampler.set({.loads = {Mode::frequency, 1e7, false, true}});
  CHECK_NEAR(sampler.granted().loads.value, 100e3, 1e-6);
  const SamplingRequest less{.loads = {Mode::frequency, 1e5}, .stores = {Mode::period, 100}};
  sampler.set(less);
  CHECK(sampler.granted() == less);
  // Where handling is cheap, Linux's highest rate binds: 100 k of each processor.
  rig.machine.sample_interrupt_ns = 100;
  AccessSampler cheap = rig.sampler();
  cheap.set({.loads = {Mode::frequency, 1e7}, .stores = {}});
  begin(cheap, 1e8);
  CHECK_NEAR(cheap.period(AccessKind::load), 10e9 / 400e3, 1e-6);
  CHECK_NEAR(cheap.granted().loads.value, 400e3, 1e-6);
}

TEST("sampling: a sample of frequency mode is an interrupt") {
  TempStream stream;
  write_sweep_and_chase(stream, 0);
  MachineProfile machine = plain_machine();
  machine.sample_assist_ns = 250;
  machine.sample_interrupt_ns = 2000;
  const auto cost_of = [&](const SamplingRequest& request) {
    Hooks policy;
    policy.start = [&](Memory& memory) { memory.set_sampling(request); };
    const RunResult result = run(stream, machine, policy, share(0.5));
    return result.breakdown.at("sampling") * 4 / result.metrics.at("samples") * 1e9;
  };
  CHECK_NEAR(cost_of({.loads = {Mode::period, 1000}, .stores = {}}), 250, 1e-6);
  CHECK_NEAR(cost_of({.loads = {Mode::frequency, 1e5}, .stores = {}}), 2250, 1e-6);
}

TEST("sampling: the hit ratio is that of demand misses for a policy, and by line beside it") {
  TempStream stream;
  write_sweep_and_chase(stream, 0.9);
  Hooks policy;
  policy.placement = [](PageRange) { return Tier::fast; };
  double seen = 0;
  policy.tick = [&](Memory& memory, Nanos) {
    const Counters counters = memory.counters();
    seen = counters.loads[0] / (counters.loads[0] + counters.loads[1]);
  };
  const double demand = 0.1 + 0.9 * 0.3;
  const RunResult result = run(stream, plain_machine(), policy, share(0.5));
  CHECK_NEAR(result.metrics.at("fast_hit_ratio"), 0.5, 1e-12);
  CHECK_NEAR(result.metrics.at("demand_hit_ratio"), demand / (1 + demand), 1e-12);
  CHECK_NEAR(seen, demand / (1 + demand), 1e-12);
  CHECK_NEAR(result.metrics.at("demand_loads_fast"), demand * result.metrics.at("loads_fast"),
             1e-6 * result.metrics.at("loads_fast"));
}

TEST("sampling: huge pages save time as far as accesses change the page") {
  for (const double translation : {1.0, 0.5, 0.0}) {
    TempStream stream;
    trace::StreamInfo info = one_class(1024, 1, 2);
    info.classes[0].translation = translation;
    StreamWriter writer{stream, info};
    map_and_touch(writer, 0, 1024);
    writer.block(false, 1000);
    writer.parts.push_back({0, AccessKind::load, {0, 600}, {100, 100}});
    writer.block(true, 1e6);
    writer.finish();
    MachineProfile machine = plain_machine();
    machine.huge_page_gain = 0.1;
    RunOptions options = share(1);
    const double base = run(stream, machine, {}, options).seconds;
    options.page_bytes = 2 << 20;
    CHECK_NEAR(run(stream, machine, {}, options).seconds, base * (1 - 0.1 * translation), 1e-15);
  }
}

TEST("estimates: each has a place of its own in the profile, and a range around its default") {
  std::map<double, std::string_view> at;
  double mark = 1;
  MachineProfile machine;
  for (const Estimate& estimate : estimates()) {
    CHECK(estimate.low < estimate.high && !estimate.source.empty());
    if (const double value = default_of(estimate); value != 0)
      CHECK(estimate.low <= value && value <= estimate.high);
    estimate.field(machine) = mark;
    at[mark++] = estimate.name;
  }
  for (const Estimate& estimate : estimates()) CHECK_EQ(at[estimate.field(machine)], estimate.name);
}
