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
