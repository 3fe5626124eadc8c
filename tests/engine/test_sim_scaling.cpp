// SPDX-License-Identifier: MIT

// What a miniature must not change: costs, counters, capacity, moves and ticks at any scale.
#include "check.hpp"
#include "scripted.hpp"
#include "sim/pages.hpp"
#include "sim/timing.hpp"

namespace {

using namespace tt;
using namespace tt::sim;
using simtest::check_breakdown;
using simtest::Hooks;
using simtest::run;
using simtest::share;
using simtest::StreamWriter;
using simtest::TempStream;
using simtest::write_even;

}  // namespace

TEST("sim: work per page is done for every real page, work per system once") {
  const auto cpu_seconds = [](Work kind, double scale) {
    TempStream stream;
    write_even(stream, 100, 50, scale);
    Hooks policy;
    bool charged = false;
    policy.tick = [&](Memory& memory, Nanos) {
      if (!std::exchange(charged, true)) memory.charge(kind, 100);
    };
    policy.period = Nanos{1000};
    MachineProfile machine = simtest::plain_machine();
    machine.work_ns = WorkCosts::all(50);
    return run(stream, machine, policy, share(1)).metrics.at("tiering_cpu_seconds");
  };
  for (const WorkKind& kind : work_kinds) {
    const double times = kind.per_page ? 16 : 1;
    CHECK_NEAR(cpu_seconds(kind.work, 1), 100 * 50e-9, 1e-15);
    CHECK_NEAR(cpu_seconds(kind.work, 16), 100 * 50e-9 * times, 1e-15);
  }
  CHECK(kind_of(Work::scan_step).per_page && !kind_of(Work::threshold_pass).per_page);
}

TEST("sim: counters count what a policy in the miniature can see") {
  TempStream stream;
  write_even(stream, 10, 5, 64);
  Hooks policy;
  policy.start = [](Memory& memory) {
    memory.set_sampling({.loads = {SamplingRequest::Mode::period, 10}, .stores = {}});
  };
  Counters last;
  double sampled = 0;
  policy.tick = [&](Memory& memory, Nanos) { last = memory.counters(); };
  policy.samples = [&](Memory&, std::span<const Sample> samples, Nanos) {
    sampled += static_cast<double>(samples.size());
  };
  policy.period = Nanos{1000};
  const RunResult result = run(stream, simtest::plain_machine(), policy, share(0.3));
  // 5 blocks of 100 simulated loads of each page; 64 times as many are reported.
  CHECK_NEAR(last.loads[index(Tier::fast)], 5 * 3 * 100, 0);
  CHECK_NEAR(last.loads[index(Tier::slow)], 5 * 7 * 100, 0);
  CHECK_NEAR(last.a3_reads, 5 * 1000, 1e-9);
  // MLP 2 at 2 GHz: 100 cycles a load in the fast tier, 300 in the slow one.
  CHECK_NEAR(last.a1_cycles, 5 * (300 * 100.0 + 700 * 300.0), 1e-6);
  CHECK_NEAR(last.samples_taken, sampled, 0);
  CHECK_NEAR(result.metrics.at("loads_slow"), 64 * last.loads[index(Tier::slow)], 0);
  CHECK_NEAR(result.metrics.at("samples"), 64 * sampled, 0);
}

TEST("sim: fast memory is as large for huge pages as for base pages") {
  // Every fourth base page is touched: 2 MiB pages hold four times as much as the stream does.
  TempStream stream;
  constexpr std::uint32_t touched = 4096;
  StreamWriter writer{stream, simtest::one_class(4 * touched, 16)};
  writer.events.push_back({trace::EventType::map, 0, 0, 4 * touched});
  for (std::uint32_t page = 0; page < touched; ++page)
    writer.events.push_back({trace::EventType::touch, 0, 4 * page, 1});
  writer.parts = {{0, AccessKind::load, {0}, {1}}};
  writer.block(true, 1000);
  writer.finish();
  const auto metrics = [&](std::uint64_t page_bytes, std::uint64_t fast_bytes) {
    RunOptions options = share(0.5);
    options.page_bytes = page_bytes;
    options.fast_bytes = fast_bytes;
    return run(stream, simtest::plain_machine(), {}, options).metrics;
  };
  constexpr double bytes = 16.0 * touched * 4096;  // 8 MiB are half of it: four huge pages
  for (const std::uint64_t fast_bytes : {0U, 128U << 20}) {
    const auto base = metrics(4096, fast_bytes);
    const auto huge = metrics(huge_page_bytes, fast_bytes);
    CHECK_NEAR(base.at("footprint_bytes"), bytes, 0);
    CHECK_NEAR(huge.at("footprint_bytes"), bytes, 0);
    CHECK_NEAR(base.at("fast_capacity_bytes"), bytes / 2, 0);
    CHECK_NEAR(huge.at("fast_capacity_bytes"), bytes / 2, 0);
  }
}

TEST("sim: a move takes as many blocks as it takes, at the speed of the copy") {
  // A huge page of a miniature with R = 64: 64 moves of 10 us + 2 MiB / 4.096 GB/s = 522 us.
  constexpr double move_ns = 10e3 + 2097152 / 4.096;
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(2 * 512, 64)};
  simtest::map_and_touch(writer, 0, 2 * 512);
  writer.block(false, 1);
  for (int b = 0; b < 20; ++b) {
    writer.parts = {{0, AccessKind::load, {512}, {625}}};  // 625 * 64 * 300 ns / 4 threads = 3 ms
    writer.block(true, 3e6);
  }
  writer.finish();
  Hooks policy;
  policy.placement = [](PageRange) { return Tier::slow; };
  std::vector<double> told_ms;
  policy.tick = [&](Memory& memory, Nanos now) {
    const PageId page{0};
    if (now == from_millis(3)) (void)memory.request(Tier::fast, {&page, 1});
  };
  policy.migrated = [&](Memory& memory, std::span<const MigrationResult> results, Nanos now) {
    CHECK(results.size() == 1 && results[0].outcome == Outcome::done);
    CHECK_EQ(memory.free_pages(Tier::slow), 1u);
    told_ms.push_back(seconds(now) * 1e3);
  };
  policy.period = from_millis(3);
  RunOptions options = share(0.5);
  options.page_bytes = huge_page_bytes;
  const RunResult result = run(stream, simtest::plain_machine(), policy, options);
  CHECK_NEAR(result.seconds, 60e-3, 1e-9);
  CHECK_NEAR(result.breakdown.at("bandwidth"), 0, 0);  // in one block: 128 MiB / 20 GB/s = 6.7 ms
  CHECK_NEAR(result.metrics.at("promotions"), 64, 0);
  // The accesses leave nearly all of the bandwidth: the copy is limited by its thread.
  CHECK_NEAR(result.metrics.at("mover_cpu_seconds"), 64 * move_ns * 1e-9, 1e-9);
  // It starts at 3 ms and takes 33.4 ms; the policy is told at the next border.
  CHECK_EQ(told_ms.size(), 1u);
  if (!told_ms.empty()) CHECK_NEAR(told_ms[0], 39, 1e-3);
}

TEST("sim: a page that vanishes under way is gone and leaves both of its slots") {
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(2 * 512, 64)};
  simtest::map_and_touch(writer, 0, 2 * 512);
  for (int b = 0; b < 20; ++b) {
    if (b == 5) writer.events.push_back({trace::EventType::unmap, 0, 0, 512});
    writer.parts = {{0, AccessKind::load, {512}, {625}}};
    writer.block(true, 3e6);
  }
  writer.finish();
  Hooks policy;
  policy.placement = [](PageRange) { return Tier::slow; };
  std::vector<MigrationResult> seen;
  policy.tick = [&](Memory& memory, Nanos now) {
    const PageId page{0};
    if (now == from_millis(3)) (void)memory.request(Tier::fast, {&page, 1});
    if (now == from_millis(12)) {
      CHECK_EQ(memory.pending(Tier::fast), 1u);
      CHECK_EQ(memory.free_pages(Tier::fast), 0u);
      CHECK_EQ(memory.free_pages(Tier::slow), 0u);
    }
    if (now == from_millis(24)) {
      CHECK_EQ(memory.pending(Tier::fast), 0u);
      CHECK_EQ(memory.free_pages(Tier::fast), 1u);
      CHECK_EQ(memory.free_pages(Tier::slow), 1u);
    }
  };
  policy.migrated = [&](Memory&, std::span<const MigrationResult> results, Nanos) {
    seen.insert(seen.end(), results.begin(), results.end());
  };
  policy.period = from_millis(3);
  RunOptions options = share(0.5);
  options.page_bytes = huge_page_bytes;
  const RunResult result = run(stream, simtest::plain_machine(), policy, options);
  CHECK(seen.size() == 1 && seen[0].outcome == Outcome::gone);
  CHECK_NEAR(result.metrics.at("promotions"), 0, 0);
  CHECK_NEAR(result.metrics.at("promotions_started"), 64, 0);
  CHECK_NEAR(result.metrics.at("migrated_bytes"), 0, 0);
}

TEST("sim: a busy tier slows page moves down, to the movers' fair share at worst") {
  const MachineProfile machine = simtest::plain_machine();  // the slow tier reads 20 GB/s
  const auto copy_ns = [&](double utilisation, double movers) {
    return move_ns(machine, Tier::fast, 2097152, movers, {4, {0, utilisation}}) - 10e3;
  };
  CHECK_NEAR(copy_ns(0, 1), 2097152 / 4.096, 1e-6);     // the thread's own speed
  CHECK_NEAR(copy_ns(0.79, 1), 2097152 / 4.096, 1e-6);  // 4.2 GB/s are left: still
  CHECK_NEAR(copy_ns(0.8, 1), 2097152 / 4.0, 1e-6);
  CHECK_NEAR(copy_ns(1, 1), 2097152 / 4.0, 1e-6);  // one of five threads
  CHECK_NEAR(copy_ns(0.5, 4), 2097152 / 2.5, 1e-6);
  CHECK_NEAR(copy_ns(1, 4), 2097152 / 2.5, 1e-6);  // four of eight
  const auto mover_seconds = [&](std::uint16_t loads) {
    TempStream stream;
    StreamWriter writer{stream, simtest::one_class(2 * 512, 64, 20)};
    simtest::map_and_touch(writer, 0, 2 * 512);
    writer.block(false, 1);
    for (int b = 0; b < 40; ++b) {
      writer.compute()[0] = 12e6 / 64;
      writer.parts = {{0, AccessKind::load, {512}, {loads}}};
      writer.block(true, 3e6);
    }
    writer.finish();
    Hooks policy;
    policy.placement = [](PageRange) { return Tier::slow; };
    policy.tick = [](Memory& memory, Nanos) {
      const PageId page{0};
      (void)memory.request(Tier::fast, {&page, 1});
    };
    RunOptions options = share(0.5);
    options.page_bytes = huge_page_bytes;
    MachineProfile slow = machine;
    slow.migration_copy_gbps = 16;
    const RunResult result = run(stream, slow, policy, options);
    CHECK_NEAR(result.metrics.at("promotions"), 64, 0);
    return result.metrics.at("mover_cpu_seconds");
  };
  const double idle = mover_seconds(1);
  CHECK_NEAR(idle, 64 * (10e3 + 2097152 / 16.0) * 1e-9, 1e-5);
  CHECK(mover_seconds(60000) > 2 * idle);  // 14 of 20 GB/s are in use
}

TEST("sim: how many pages move does not depend on the length of the blocks") {
  const auto promotions = [](double block_ms) {
    TempStream stream;
    StreamWriter writer{stream, simtest::one_class(4000, 64)};
    simtest::map_and_touch(writer, 0, 4000);
    writer.block(false, 1);
    for (double at = 0; at < 1000; at += block_ms) {
      writer.compute()[0] = 4e6 / 64 * block_ms;
      writer.block(true, 1e6 * block_ms);
    }
    writer.finish();
    Hooks policy;
    policy.placement = [](PageRange) { return Tier::slow; };
    policy.tick = [&](Memory& memory, Nanos) {
      std::vector<PageId> pages;
      for (std::uint64_t page = 0; page < 4000; ++page) pages.push_back(PageId{page});
      (void)memory.request(Tier::fast, pages);
    };
    return run(stream, simtest::plain_machine(), policy, share(0.9)).metrics.at("promotions");
  };
  // A page takes 64 * 11 us = 0.7 ms: longer than a block, and a small part of one.
  CHECK_NEAR(promotions(0.5), 990e6 / 11e3, 0.01 * 990e6 / 11e3);
  for (const double block_ms : {0.2, 1.0, 5.0, 10.0})
    CHECK_NEAR(promotions(block_ms), promotions(0.5), 0.011 * promotions(0.5));
}

TEST("sim: ticks come at their times, whatever the blocks") {
  for (const double block_ms : {0.7, 3.0, 10.0, 50.0}) {
    TempStream stream;
    StreamWriter writer{stream, simtest::one_class(10, 16)};
    simtest::map_and_touch(writer, 0, 10);
    writer.block(false, 1);
    for (double at = 0; at < 1000; at += block_ms) {
      // 16 times as many on two pages, 100 ns each on 4 threads.
      const auto loads = static_cast<std::uint16_t>(block_ms * 1e6 * 4 / 16 / 100 / 2);
      writer.parts = {{0, AccessKind::load, {0, 1}, {loads, loads}}};
      writer.block(true, 1e6 * block_ms);
    }
    writer.finish();
    Hooks policy;
    std::vector<Nanos> ticks;
    Nanos last{};
    std::uint64_t sampled = 0;
    policy.start = [](Memory& memory) {
      memory.set_sampling({.loads = {SamplingRequest::Mode::period, 100}, .stores = {}});
    };
    policy.samples = [&](Memory&, std::span<const Sample> samples, Nanos now) {
      CHECK(now >= last);
      last = now;
      sampled += samples.size();
    };
    policy.tick = [&](Memory&, Nanos now) {
      CHECK(now >= last);
      last = now;
      ticks.push_back(now);
      // What has been sampled by now is what the accesses of this time give.
      const double expected = seconds(now) * 4 / 100e-9 / 100;
      CHECK_NEAR(static_cast<double>(sampled) * 16, expected, 0.05 * expected + 1500);
    };
    policy.period = from_millis(10);
    const RunResult result = run(stream, simtest::plain_machine(), policy, share(1));
    CHECK_NEAR(static_cast<double>(ticks.size()), result.total_seconds * 100, 1);
    for (std::size_t i = 0; i < ticks.size(); ++i)
      CHECK_EQ(ticks[i].count(), (from_millis(10) * static_cast<std::int64_t>(i + 1)).count());
  }
}

TEST("sim: a busy thread misses ticks, and does not make up for them") {
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(10, 1)};
  simtest::map_and_touch(writer, 0, 10);
  for (int b = 0; b < 50; ++b) {
    writer.compute()[0] = 4 * 20e6;
    writer.block(true, 20e6);
  }
  writer.finish();
  Hooks policy;
  std::vector<Nanos> ticks;
  MachineProfile machine = simtest::plain_machine();
  machine.work_ns = WorkCosts::all(1);
  policy.tick = [&](Memory& memory, Nanos now) {
    // The third tick takes 300 ms, all others nothing.
    if (ticks.size() == 2) memory.charge(Work::scan_step, 300'000'000);
    ticks.push_back(now);
  };
  policy.period = from_millis(10);
  (void)run(stream, machine, policy, share(1));
  CHECK(ticks.size() > 60 && ticks.size() < 75);  // about 30 of 100 are missed
  for (std::size_t i = 1; i < ticks.size(); ++i) {
    const double gap = seconds(ticks[i] - ticks[i - 1]);
    if (i == 3) {
      CHECK(gap > 0.28);
    } else {
      CHECK_NEAR(gap, 0.01, 1e-6);
    }
  }
}
