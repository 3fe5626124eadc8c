// SPDX-License-Identifier: MIT

// Under which conditions a run starts, and which part of it is scored.
#include "check.hpp"
#include "core/seam.hpp"
#include "scripted.hpp"
#include "sim/simulate.hpp"

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

/// A set-up block, then ten blocks with so many loads each of page 0 and page 1.
void write_two_pages(const TempStream& file) {
  trace::StreamInfo info = simtest::one_class(2, 1000);
  info.nominal_seconds = 10;
  StreamWriter writer{file, info};
  simtest::map_and_touch(writer, 0, 2);
  writer.block(false, 1e9);
  for (int b = 0; b < 10; ++b) {
    writer.parts.push_back({0, AccessKind::load, {0, 1}, {10'000, 10'000}});
    writer.sampled.push_back({0, 1000.0 * (b + 1), {}});
    writer.operations()[0] = 3;
    writer.block(true, 1e9);
  }
  writer.finish();
}

}  // namespace

TEST("sim: a run that starts slow has every page there until the policy moves it") {
  TempStream stream;
  write_even(stream, 10, 5, 64);
  Hooks idle;
  RunOptions options = share(1);
  CHECK_NEAR(run(stream, simtest::plain_machine(), idle, options).seconds, 4e-3, 1e-12);
  options.start_slow = true;
  const RunResult slow = run(stream, simtest::plain_machine(), idle, options);
  CHECK_NEAR(slow.seconds, 12e-3, 1e-12);
  CHECK_NEAR(slow.metrics.at("fast_hit_ratio"), 0, 0);

  Hooks rescue;
  rescue.tick = [](Memory& memory, Nanos) { (void)memory.request(Tier::fast, {{PageId{0}}}); };
  rescue.period = from_millis(1);
  CHECK(run(stream, simtest::plain_machine(), rescue, options).metrics.at("promotions") == 64);
}

TEST("sim: a policy that never moves a page cannot start slow") {
  TempStream stream;
  write_even(stream, 10, 5, 64);
  RunOptions options = share(0.5);
  options.start_slow = options.coarse = true;
  for (const char* name : {"first-touch", "all-fast", "static-hot"}) {
    CHECK_THROWS(simulate(stream.reader(), simtest::plain_machine(), policy(name), {}, options),
                 "never moves a page");
  }
  CHECK(simulate(stream.reader(), simtest::plain_machine(), policy("hybridtier"), {}, options)
            .metrics.at("loads_fast") == 0);
}

TEST("sim: what comes before the scored part counts for nothing but the series") {
  // Page 0 moves up in the first block, so that later blocks are faster than the first ones.
  TempStream stream;
  write_two_pages(stream);
  Hooks hooks;
  hooks.placement = [](PageRange) { return Tier::slow; };
  hooks.tick = [](Memory& memory, Nanos) { (void)memory.request(Tier::fast, {{PageId{0}}}); };
  hooks.period = from_millis(1);
  RunOptions options = share(1);
  const RunResult whole = run(stream, simtest::plain_machine(), hooks, options);
  CHECK(whole.operations == 30'000);
  CHECK(whole.metrics.at("promotions") == 1000);
  CHECK(whole.latency.at("get").operations == 10);

  // A share of 0.65 has passed before the seventh of ten equal blocks ends: four blocks count.
  options.score_after = 0.65;
  const RunResult tail = run(stream, simtest::plain_machine(), hooks, options);
  CHECK_NEAR(tail.seconds, 4 * (1e7 * 100 + 1e7 * 300) / 4 * 1e-9, 1e-9);
  CHECK(tail.operations == 12'000);
  CHECK(tail.metrics.at("promotions") == 0);
  CHECK_NEAR(tail.metrics.at("fast_hit_ratio"), 0.5, 0);
  CHECK(tail.latency.at("get").operations == 4);
  CHECK_NEAR(tail.latency.at("get").p50, 8000, 1e-3);
  check_breakdown(tail);
  CHECK(tail.total_seconds == whole.total_seconds);
  CHECK(tail.series.at("second") == whole.series.at("second"));

  options.score_after = 1;
  CHECK_THROWS(run(stream, simtest::plain_machine(), hooks, options), "score_after must be");
}
