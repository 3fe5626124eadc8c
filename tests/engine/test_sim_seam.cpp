// SPDX-License-Identifier: MIT

// What else the simulated machine offers a policy: tier counters, watermarks, sites, placement.
#include <cmath>
#include <utility>

#include "check.hpp"
#include "hooked.hpp"
#include "isas.hpp"
#include "sim/lanes.hpp"
#include "watcher.hpp"

namespace {

using namespace tt;
using namespace tt::sim;
using namespace hooked;
using simtest::StreamWriter;
using simtest::TempStream;

}  // namespace

TEST("traps: tier counters tell latency and parallelism, at any R") {
  // Half of each block is computation. 4 threads at MLP 2: N loads of L ns, L / 2 of thread time
  // each.
  for (const double scale : {1.0, 16.0, 256.0}) {
    TempStream stream;
    StreamWriter writer{stream, simtest::one_class(10, scale, 2)};
    simtest::map_and_touch(writer, 0, 10);
    writer.block(false, 1);
    for (int b = 0; b < 10; ++b) {
      writer.parts = {{0, AccessKind::load, {0, 9}, {1000, 1000}}};
      writer.compute()[0] = 1000 * 100 / 2 + 1000 * 300 / 2;
      writer.block(true, 1e6);
    }
    writer.finish();
    Counters last;
    double seconds_passed = 0;
    Hooks policy;
    policy.period = Nanos{1};
    policy.tick = [&](Memory& memory, Nanos now) {
      last = memory.counters();
      seconds_passed = seconds(now);
    };
    (void)run(stream, simtest::plain_machine(), policy);
    for (const Tier tier : {Tier::fast, Tier::slow}) {
      const TierCounters& found = last.tier[index(tier)];
      const double latency = tier == Tier::fast ? 100 : 300;
      CHECK_NEAR(found.occupancy_ns / found.reads, latency, 1e-9 * latency);
      // Share of a thread's time with a read of this tier outstanding.
      const double share = latency / 2 / (2 * (50 + 150));
      CHECK_NEAR(found.occupancy_ns / found.busy_ns, 2 * 4 * share / (1 - std::pow(1 - share, 4)),
                 1e-6);
      CHECK_NEAR(found.read_bytes / found.reads, 64, 1e-9);
      CHECK_NEAR(found.written_bytes, 0, 0);
    }
    CHECK(seconds_passed > 0);
  }
  CHECK_NEAR(busy_ns(8e6, 4, 1e6), 1e6, 0);  // more than there is: all of it
  CHECK_NEAR(busy_ns(0, 4, 1e6), 0, 0);
  CHECK_NEAR(busy_ns(3e5, 1.5, 1e6), 1e6 * (1 - std::pow(0.8, 1.5)), 1e-6);
}

TEST("traps: page moves count as bytes of both tiers") {
  TempStream stream;
  constexpr double scale = 4;
  StreamWriter writer{stream, simtest::one_class(10, scale)};
  simtest::map_and_touch(writer, 0, 10);
  writer.block(false, 1);
  for (int b = 0; b < 10; ++b) {
    writer.compute()[0] = 1e6;
    writer.block(true, 1e6);
  }
  writer.finish();
  Hooks policy;
  policy.period = Nanos{1};
  bool asked = false;
  Counters last;
  policy.tick = [&](Memory& memory, Nanos) {
    last = memory.counters();
    const PageId page{0};
    if (!std::exchange(asked, true)) (void)memory.request(Tier::slow, {&page, 1});
  };
  (void)run(stream, simtest::plain_machine(), policy);
  CHECK_NEAR(last.tier[0].read_bytes, 4096, 0);  // of the miniature
  CHECK_NEAR(last.tier[1].written_bytes, 4096, 0);
  CHECK_NEAR(last.tier[0].written_bytes + last.tier[1].read_bytes, 0, 0);
}

TEST("traps: the reserve is kept from first touches, and the policy is woken between them") {
  TempStream stream;
  constexpr std::uint32_t pages = 8192;
  StreamWriter writer{stream, simtest::one_class(pages, 1)};
  simtest::map_and_touch(writer, 0, pages);
  writer.block(false, 1);
  for (int b = 0; b < 3; ++b) {
    writer.compute()[0] = 1e6;
    writer.block(true, 1e6);
  }
  writer.finish();
  std::vector<std::uint64_t> free;  // when woken
  Hooks policy;
  policy.start = [](Memory& memory) { memory.set_watermarks({.reserve = 0.125, .wake = 0.5}); };
  policy.pressure = [&](Memory& memory, Tier tier) {
    CHECK(tier == Tier::fast);
    free.push_back(memory.free_pages(Tier::fast));
    // Served in the same block: the mover has not started yet.
    if (free.size() == 1) {
      const PageId page{0};
      (void)memory.request(Tier::slow, {&page, 1});
    }
  };
  // 4096 fast pages: woken below 2048 of them, before each run of 512; 512 are kept.
  const RunResult result = run(stream, simtest::plain_machine(), policy);
  CHECK(free.size() > 10);
  CHECK_EQ(free.front(), 1536u);
  CHECK_EQ(free[2], 512u);
  CHECK_EQ(free[9], 512u);
  CHECK_EQ(free.back(), 513u);
  CHECK_NEAR(result.metrics.at("footprint_bytes"), 4096.0 * pages, 0);
}

TEST("traps: a policy is told of sites, and asked for as much as it wants at a time") {
  trace::StreamInfo info = simtest::one_class(4096, 1);
  info.objects = {{"heap", 0, 1024}, {"arena", 1024, 1024}, {"heap", 2048, 2048}};
  for (const Granularity placement : {Granularity::range, Granularity::page, Granularity::object}) {
    TempStream stream;
    StreamWriter writer{stream, info};
    for (std::uint32_t object = 0; object < 3; ++object)
      for (const auto type : {trace::EventType::map, trace::EventType::touch})
        writer.events.push_back({type, object, 1024 * object, object == 2 ? 2048U : 1024U});
    writer.block(false, 1);
    writer.compute()[0] = 1e6;
    writer.block(true, 1e6);
    writer.finish();
    std::vector<std::uint32_t> sites;
    std::vector<std::uint64_t> asked;
    Hooks policy;
    policy.map = [&](Memory& memory, PageRange range, std::uint32_t site) {
      sites.push_back(site);
      CHECK_EQ(memory.site(site), range.first.value == 1024 ? "arena" : "heap");
      CHECK_EQ(memory.site(1000), "");
      CHECK(memory.unit(range.first) == (PageRange{range.first, 1}));
    };
    policy.placement = [&](Memory&, PageRange range) {
      asked.push_back(range.count);
      return Tier::fast;
    };
    (void)run(stream, simtest::plain_machine(), policy, {.fast_share = 1}, placement);
    CHECK(sites.size() == 3 && sites[0] == sites[2] && sites[0] != sites[1]);
    std::vector<std::uint64_t> expected(8, 512);
    if (placement == Granularity::page) expected.assign(4096, 1);
    if (placement == Granularity::object) expected = {1024, 1024, 2048};
    CHECK(asked == expected);
  }
}

TEST("traps: a policy that uses all of them gets the same on every processor, and again") {
  TempStream stream;
  const auto rate = [](std::uint32_t page) {
    return page % 10 == 0 ? 50.0 : page % 2 == 0 ? 2.0 : 0.1;
  };
  write_poisson(stream, 1024, 16, rate, 6, 20, true);
  const PolicyInfo watcher = test::watcher();
  RunResult expected;
  check::on_each_isa([&] {
    const RunResult result = simulate(stream.reader(), simtest::full_machine(), watcher, {},
                                      {.fast_share = 0.2, .coarse = true});
    if (expected.rows.empty()) expected = result;
    CHECK(result.rows == expected.rows);
    CHECK(result.metrics == expected.metrics);
    CHECK(result.breakdown == expected.breakdown);
    CHECK(result.series == expected.series);
  });
  CHECK_EQ(expected.rows.size(), 1u);
  const auto& cells = expected.rows.at(0).cells;
  for (const char* what : {"faults", "probes", "probed_yes", "woken", "idle", "untouched"})
    if (!(std::get<double>(cells.at(what)) > 20)) check::fail(__FILE__, __LINE__, what);
  CHECK(std::get<double>(cells.at("probed_yes")) < std::get<double>(cells.at("probes")));
  CHECK(expected.metrics.at("promotions") > 100 && expected.metrics.at("demotions") > 100);
  CHECK(expected.series.contains("hint_faults"));
  // Another seed, another result.
  const RunResult other = simulate(stream.reader(), simtest::full_machine(), watcher, {},
                                   {.fast_share = 0.2, .coarse = true, .seed = 1});
  CHECK(other.rows != expected.rows);
}
