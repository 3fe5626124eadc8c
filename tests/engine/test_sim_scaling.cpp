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
