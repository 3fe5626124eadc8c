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
    machine.work_ns.fill(50);
    return run(stream, machine, policy, share(1)).metrics.at("tiering_cpu_seconds");
  };
  for (std::size_t kind = 0; kind < work_count; ++kind) {
    const double times = per_page(static_cast<Work>(kind)) ? 16 : 1;
    CHECK_NEAR(cpu_seconds(static_cast<Work>(kind), 1), 100 * 50e-9, 1e-15);
    CHECK_NEAR(cpu_seconds(static_cast<Work>(kind), 16), 100 * 50e-9 * times, 1e-15);
  }
  CHECK(per_page(Work::scan_step) && !per_page(Work::threshold_pass));
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
