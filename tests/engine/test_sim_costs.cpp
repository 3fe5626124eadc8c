// SPDX-License-Identifier: MIT

// What tiering costs in whole runs on the simulated machine: moves, samples, the policy's own work.
#include <algorithm>
#include <array>

#include "check.hpp"
#include "scripted.hpp"
#include "sim/simulate.hpp"

namespace {

using namespace tt;
using namespace tt::sim;
using simtest::Hooks;
using simtest::run;
using simtest::share;
using simtest::StreamWriter;
using simtest::TempStream;
using simtest::write_even;

}  // namespace

TEST("sim: a moved page takes effect at the border, and costs what a move costs") {
  // One page moves up: one block in which it is served, then it is fast.
  TempStream stream;
  write_even(stream, 10, 40, 1);
  Hooks policy;
  policy.placement = [](PageRange) { return Tier::slow; };
  policy.period = Nanos{1};
  bool asked = false;
  std::vector<MigrationResult> seen;
  policy.tick = [&](Memory& memory, Nanos) {
    if (std::exchange(asked, true)) return;
    const PageId page{3};
    CHECK_EQ(memory.request(Tier::fast, {&page, 1}), 1u);
    CHECK_EQ(memory.pending(Tier::fast), 1u);
    CHECK_EQ(memory.request(Tier::fast, {&page, 1}), 1u);  // on its way: dropped
    CHECK_EQ(memory.pending(Tier::fast), 1u);
  };
  policy.migrated = [&](Memory& memory, std::span<const MigrationResult> results, Nanos) {
    seen.insert(seen.end(), results.begin(), results.end());
    CHECK_EQ(memory.pending(Tier::fast), 0u);
  };
  MachineProfile machine = simtest::plain_machine();
  const RunResult result = run(stream, machine, policy, share(0.1));
  CHECK_EQ(seen.size(), 1u);
  CHECK(!seen.empty() && seen[0].outcome == Outcome::done && seen[0].page == PageId{3});
  CHECK_NEAR(result.metrics.at("promotions"), 1, 0);
  CHECK_NEAR(result.metrics.at("mover_cpu_seconds"), 11e-6, 1e-12);  // 10 us + 4096 B / 4.096
  // 100 accesses in a block of 37.5 us to a page that is away for 11 us of it.
  const double block = 1000 * 300 / 2 / 4.0;
  const double waited = 100 * (11000 / block) * (11000 / 2.0) / 4;
  CHECK(result.breakdown.at("migration") > 0);
  CHECK_NEAR(result.breakdown.at("migration") * 1e9, std::min(waited, 5500.0), 0.15 * waited);
  // A shootdown stops every thread.
  machine.migration_shootdown_us = 2;
  asked = false;
  const RunResult slower = run(stream, machine, policy, share(0.1));
  CHECK_NEAR(slower.breakdown.at("migration") - result.breakdown.at("migration"), 2e-6, 0.3e-6);
  // Or of a batch of pages.
  machine.migration_shootdown_pages = 4;
  asked = false;
  const RunResult batched = run(stream, machine, policy, share(0.1));
  CHECK_NEAR(batched.breakdown.at("migration") - result.breakdown.at("migration"), 0.5e-6, 0.1e-6);
  // Only stores wait for a write-protected page.
  asked = false;
  machine.migration_shootdown_us = 0;
  policy.start = [](Memory& memory) { memory.set_movers({.copy = Copy::write_protected}); };
  const RunResult protected_move = run(stream, machine, policy, share(0.1));
  CHECK_NEAR(protected_move.breakdown.at("migration"), 0, 0);
}

TEST("sim: a page's first touch costs a fault, and the clearing of its lines in its tier") {
  constexpr double scale = 3;
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(1024, scale)};
  simtest::map_and_touch(writer, 0, 1024);
  writer.events.push_back({trace::EventType::touch, 0, 100, 200});  // they are there
  writer.compute()[0] = 1e9;
  writer.block(true, 1e6);
  writer.compute()[0] = 1e9;
  writer.block(true, 1e6);
  writer.finish();
  MachineProfile machine = simtest::plain_machine();
  Hooks policy;
  const auto felt_ns = [&](const RunOptions& options) {
    return run(stream, machine, policy, options).breakdown.at("faults") * 1e9 * machine.threads;
  };
  const RunOptions base{.fast_share = 0.5, .page_bytes = trace::base_page_bytes};
  CHECK_NEAR(felt_ns(base), 0, 1);
  machine.first_touch_us = 2;
  CHECK_NEAR(felt_ns(base), scale * 1024 * 2000, 1);
  machine.clear_overlap = 8;  // half of the pages at 100 ns a line, the others at 300
  CHECK_NEAR(felt_ns(base), scale * 1024 * (2000 + 64 * 200 / 8.0), 1);
  policy.placement = [](PageRange) { return Tier::slow; };
  CHECK_NEAR(felt_ns(base), scale * 1024 * (2000 + 64 * 300 / 8.0), 1);
  // Two huge pages, of one size or among others.
  const double huge = scale * 2 * (2000 + 512 * 64 * 300 / 8.0);
  CHECK_NEAR(felt_ns({.fast_share = 0.5, .page_bytes = trace::huge_page_bytes, .coarse = true}),
             huge, 1);
  CHECK_NEAR(
      felt_ns(
          {.fast_share = 0.5, .page_bytes = trace::base_page_bytes, .mixed = true, .coarse = true}),
      huge, 1);
}

TEST("sim: the mover's speed is that of its threads") {
  // 2000 requests of 11 us: one thread moves 91 pages a millisecond, four of them 364.
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(4000, 1)};
  simtest::map_and_touch(writer, 0, 4000);
  writer.block(false, 1);
  for (int b = 0; b < 10; ++b) {
    writer.compute()[0] = 4e6;  // a block of 1 ms on 4 threads
    writer.block(true, 1e6);
  }
  writer.finish();
  for (const unsigned threads : {1U, 4U}) {
    Hooks policy;
    policy.placement = [](PageRange) { return Tier::slow; };
    bool asked = false;
    policy.tick = [&](Memory& memory, Nanos) {
      if (std::exchange(asked, true)) return;
      std::vector<PageId> pages;
      for (std::uint64_t page = 0; page < 2000; ++page) pages.push_back(PageId{page});
      CHECK_EQ(memory.request(Tier::fast, pages), 2000u);
    };
    policy.period = Nanos{1};
    policy.start = [=](Memory& memory) { memory.set_movers({.threads = threads}); };
    const RunResult result = run(stream, simtest::plain_machine(), policy, share(0.5));
    // Asked in the first timed block: nine blocks of moves.
    CHECK_NEAR(result.metrics.at("promotions"), std::min(2000.0, 9e6 / 11e3 * threads), 8);
  }
}

TEST("sim: a demotion makes room for the promotion behind it") {
  TempStream stream;
  write_even(stream, 10, 60, 1);
  Hooks policy;
  policy.period = Nanos{1};
  bool asked = false;
  std::vector<MigrationResult> seen;
  policy.tick = [&](Memory& memory, Nanos) {
    if (std::exchange(asked, true)) return;
    CHECK_EQ(memory.free_pages(Tier::fast), 0u);
    const PageId refused{7};
    const PageId up{8};
    const PageId down{0};
    (void)memory.request(Tier::fast, {&refused, 1});
    (void)memory.request(Tier::slow, {&down, 1});
    (void)memory.request(Tier::fast, {&up, 1});
  };
  policy.migrated = [&](Memory&, std::span<const MigrationResult> results, Nanos) {
    seen.insert(seen.end(), results.begin(), results.end());
  };
  (void)run(stream, simtest::plain_machine(), policy, share(0.5));
  CHECK_EQ(seen.size(), 3u);
  if (seen.size() != 3) return;
  CHECK(seen[0].page == PageId{7} && seen[0].outcome == Outcome::no_space);
  CHECK(seen[1].page == PageId{0} && seen[1].outcome == Outcome::done);
  CHECK(seen[2].page == PageId{8} && seen[2].outcome == Outcome::done);
}

TEST("sim: sampling costs the threads that are hit, and full rings lose samples") {
  TempStream stream;
  write_even(stream, 100, 200, 16);
  Hooks policy;
  policy.start = [](Memory& memory) {
    memory.set_sampling({.loads = {SamplingRequest::Mode::period, 10}, .stores = {}});
  };
  std::uint64_t delivered = 0;
  policy.samples = [&](Memory&, std::span<const Sample> samples, Nanos) {
    delivered += samples.size();
  };
  MachineProfile machine = simtest::plain_machine();
  machine.sample_assist_ns = 200;
  const RunResult result = run(stream, machine, policy, share(1));
  const double samples = result.metrics.at("samples");
  CHECK_NEAR(samples, 200 * 10000 * 16 / 10, 0.02 * 200 * 10000 * 16 / 10);
  CHECK_NEAR(result.breakdown.at("sampling"), samples * 200e-9 / 4, 1e-9);
  CHECK_NEAR(static_cast<double>(delivered) * 16, samples, 0);
  CHECK_NEAR(result.metrics.at("samples_lost"), 0, 0);
  CHECK_NEAR(result.metrics.at("tiering_cpu_seconds"), 0, 0);
  // Draining takes longer than a core has time: the rest fills the rings and is lost.
  machine.sample_assist_ns = 0;
  machine.sample_drain_ns = 1000;
  machine.sample_queue = 16000;
  delivered = 0;
  const RunResult busy = run(stream, machine, policy, share(1));
  CHECK_NEAR(static_cast<double>(delivered) * 16, busy.seconds * 1e6, 0.02 * busy.seconds * 1e6);
  CHECK_NEAR(busy.metrics.at("samples_lost"),
             busy.metrics.at("samples") - static_cast<double>(delivered) * 16, 16000);
  CHECK_NEAR(busy.metrics.at("policy_cpu_share"), 1, 0.02);
}

TEST(
    "sim: the policy's work takes its thread's time, and the application's when cores are shared") {
  TempStream stream;
  write_even(stream, 100, 200, 16);
  Hooks policy;
  policy.period = from_millis(2);  // a block
  std::uint64_t ticks = 0;
  policy.tick = [&](Memory& memory, Nanos) {
    ++ticks;
    memory.charge(Work::scan_step, 100);  // 100 * 16 * 25 ns = 40 us
  };
  MachineProfile machine = simtest::plain_machine();
  machine.work_ns[Work::scan_step] = 25;
  const RunResult apart = run(stream, machine, policy, share(1));
  CHECK_EQ(ticks, 200u);
  CHECK_NEAR(apart.metrics.at("tiering_cpu_seconds"), 200 * 40e-6, 1e-4);
  CHECK_NEAR(apart.breakdown.at("policy"), 0, 0);
  machine.daemon_core_share = 1;
  const RunResult shared = run(stream, machine, policy, share(1));
  CHECK_NEAR(shared.breakdown.at("policy"), 200 * 40e-6 / 4, 1e-4);
  CHECK_NEAR(shared.seconds - apart.seconds, shared.breakdown.at("policy"), 1e-9);
}

TEST("sim: without mover threads the tiering thread moves pages when it has time") {
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(4000, 1)};
  simtest::map_and_touch(writer, 0, 4000);
  writer.block(false, 1);
  for (int b = 0; b < 20; ++b) {
    writer.compute()[0] = 4e6;
    writer.block(true, 1e6);
  }
  writer.finish();
  const auto moved = [&](double busy_share) {
    Hooks policy;
    policy.placement = [](PageRange) { return Tier::slow; };
    bool asked = false;
    policy.period = from_millis(1);  // a block
    policy.tick = [&](Memory& memory, Nanos) {
      memory.charge(Work::scan_step, static_cast<std::uint64_t>(busy_share * 1e6));
      if (std::exchange(asked, true)) return;
      std::vector<PageId> pages;
      for (std::uint64_t page = 0; page < 2000; ++page) pages.push_back(PageId{page});
      (void)memory.request(Tier::fast, pages);
    };
    MachineProfile machine = simtest::plain_machine();
    machine.work_ns[Work::scan_step] = 1;
    policy.start = [](Memory& memory) { memory.set_movers({.threads = 0}); };
    return run(stream, machine, policy, share(0.5)).metrics.at("promotions");
  };
  const double free = moved(0);
  CHECK_NEAR(free, 19e6 / 11e3, 12);
  CHECK_NEAR(moved(0.5), free / 2, 0.05 * free);
}

TEST("sim: a thread that spins takes its share of the application's cores all the time") {
  TempStream stream;
  write_even(stream, 10, 20, 64);
  MachineProfile machine = simtest::plain_machine();  // 4 threads
  machine.daemon_core_share = 0.5;
  const auto seconds = [&](double standing, const Hooks& hooks) {
    return run(stream, machine, hooks, share(1), {.standing_threads = standing}).seconds;
  };
  const Hooks idle;
  const double alone = seconds(0, idle);
  // An eighth of each thread's time in the last block is felt in this one.
  CHECK_NEAR(seconds(1, idle) / alone, 1 / (1 - 0.125), 0.01);
  CHECK_NEAR(seconds(2, idle) / alone, 1 / (1 - 0.25), 0.03);
  // Work that it does meanwhile costs nothing more.
  Hooks busy;
  busy.period = from_millis(1);
  busy.tick = [](Memory& memory, Nanos) { memory.charge(Work::threshold_pass, 1, Payer::daemon); };
  machine.work_ns[Work::threshold_pass] = 1e5;
  CHECK(seconds(0, busy) > 1.005 * alone);
  CHECK_NEAR(seconds(1, busy), seconds(1, idle), 1e-3 * alone);
}

TEST("sim: metadata take room in the fast tier, as far as there is some") {
  TempStream stream;
  simtest::StreamWriter writer{stream, simtest::one_class(100, 1)};
  for (std::uint32_t first = 0; first < 100; first += 20) {
    simtest::map_and_touch(writer, first, 20);
    writer.parts.push_back({0, AccessKind::load, {first}, {1}});
    writer.block(false, 1e6);
  }
  for (int b = 0; b < 20; ++b) {
    writer.parts.push_back({0, AccessKind::load, {0}, {1000}});
    writer.block(true, 1e6);
  }
  writer.finish();
  Hooks hooks;
  std::uint64_t free_at_end = 0;
  hooks.period = Nanos{1};
  hooks.tick = [&](Memory& memory, Nanos) { free_at_end = memory.free_pages(Tier::fast); };
  const auto run_with = [&](std::uint64_t bytes) {
    hooks.metadata_bytes = bytes;
    (void)run(stream, simtest::plain_machine(), hooks, share(1));
    return free_at_end;
  };
  CHECK_EQ(run_with(4095), 0u);
  // It was there before the last pages were touched, and these are in the slow tier now.
  CHECK_EQ(run_with(10 * 4096), 0u);
  std::uint64_t slow = 0;
  hooks.tick = [&](Memory& memory, Nanos) {
    std::array<Residency, 100> where{};
    memory.residency(PageId{0}, where);
    slow = static_cast<std::uint64_t>(std::ranges::count(where, Residency::slow));
  };
  (void)run_with(10 * 4096);
  CHECK_EQ(slow, 10u);
  (void)run_with(0);
  CHECK_EQ(slow, 0u);
}

TEST("sim: lines that tiering brings into the cache take the place of the application's") {
  // Blocks of 2 ms: 160,000 loads of 50 ns on 4 threads.
  TempStream stream;
  write_even(stream, 100, 200, 16);
  MachineProfile machine = simtest::plain_machine();
  machine.live_lines = 0.25;
  machine.work_ns = WorkCosts::all(0);
  const double alone = run(stream, machine, Hooks{}, share(1)).seconds;

  // Its own work, felt in the block after. Of the lines in whose place these came a quarter is read
  // again, and no more than a quarter of what the application brings in itself.
  const auto slower = [&](Work kind, std::uint64_t times, Payer by = Payer::daemon) {
    Hooks policy;
    policy.period = from_millis(1);
    policy.tick = [=](Memory& memory, Nanos) { memory.charge(kind, times, by); };
    const RunResult result = run(stream, machine, policy, share(1));
    simtest::check_breakdown(result);
    const double lines = result.metrics.at("tiering_lines");
    CHECK_NEAR(result.metrics.at("tiering_line_share"), lines / (lines + 200 * 160000), 1e-9);
    CHECK_NEAR(result.seconds / alone - 1, 0.25 * std::min(lines / (200 * 160000), 1.0), 2e-3);
    return lines;
  };
  const double updates = slower(Work::tracker_update, 2000);
  CHECK(updates > 0.3 * 200 * 160000);  // 16 counters for each of 2000, twice in a block
  CHECK_NEAR(slower(Work::tracker_update, 2000, Payer::application), updates, 0.02 * updates);
  CHECK_NEAR(slower(Work::pte_scan, 2000), updates / 8, 0.02 * updates);
  CHECK_NEAR(slower(Work::lru_step, 500), updates, 0.02 * updates);
  CHECK_NEAR(slower(Work::probe, 2000), updates / 16, 0.01 * updates);  // as many in a miniature
  CHECK_NEAR(slower(Work::threshold_pass, 2000), 0, 0);
  CHECK(slower(Work::cooling_step, 100000) > 10.0 * 200 * 160000);

  // A page's copy is read and written.
  Hooks moves;
  moves.period = from_millis(2);
  std::uint64_t page = 0;
  moves.placement = [](PageRange) { return Tier::slow; };
  moves.tick = [&](Memory& memory, Nanos) {
    const PageId next{page++};
    if (page <= 50) (void)memory.request(Tier::fast, {&next, 1});
  };
  const RunResult moved = run(stream, machine, moves, share(1));
  CHECK_NEAR(moved.metrics.at("tiering_lines"), 50 * 16 * 2 * 64, 1);

  // A sample is a record that is written and read.
  machine.sample_lines = 10;
  Hooks samples;
  samples.start = [](Memory& memory) {
    memory.set_sampling({.loads = {SamplingRequest::Mode::period, 100}, .stores = {}});
  };
  const RunResult sampled = run(stream, machine, samples, share(1));
  const double taken = sampled.metrics.at("samples");
  CHECK_NEAR(sampled.metrics.at("tiering_lines"), 10 * taken, 0.01 * 10 * taken);
  CHECK_NEAR(sampled.seconds / alone - 1, 0.25 * 10 * taken / (200 * 160000), 2e-3);
}
