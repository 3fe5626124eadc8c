// SPDX-License-Identifier: MIT

// Whole runs on the simulated machine: hand-computed times, conservation, determinism.
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "bare_lookup.hpp"
#include "check.hpp"
#include "scripted.hpp"
#include "sim/address_space.hpp"
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

/// A policy that throws pages about at random and keeps asking for what is gone or there already.
Hooks restless(std::uint64_t pages, std::uint64_t seed) {
  Hooks hooks;
  auto rng = std::make_shared<Rng>(seed);
  hooks.placement = [](PageRange range) {
    return range.first.value % 3 == 0 ? Tier::slow : Tier::fast;
  };
  hooks.tick = [=](Memory& memory, Nanos) {
    for (const Tier to : {Tier::fast, Tier::slow, Tier::fast}) {
      std::vector<PageId> wanted;
      for (int i = 0; i < 40; ++i) wanted.push_back(PageId{rng->below(pages + 20)});
      (void)memory.request(to, wanted);
    }
  };
  return hooks;
}

/// Lane a loads the first page, which is fast, and lane b the second; one thread each. A block of
/// theirs is 1000 loads: 0.1 ms of a, 0.3 ms of b.
class TwoLanes {
 public:
  TwoLanes() : writer_(stream_, described()) {
    simtest::map_and_touch(writer_, 0, 2);
    writer_.block(false, 1);
  }
  void blocks(int count, const std::vector<std::uint32_t>& lanes) {
    for (int b = 0; b < count; ++b) {
      for (const std::uint32_t lane : lanes)
        writer_.parts.push_back({lane, AccessKind::load, {lane}, {1000}});
      writer_.block(true, 1e5);
    }
  }
  RunResult run(const sim::MachineProfile& machine = simtest::plain_machine(), Hooks policy = {}) {
    writer_.finish();
    // Both in one touch event: placed by its first page; half of the pages fit.
    policy.placement = [](PageRange range) {
      return range.first.value == 0 ? Tier::fast : Tier::slow;
    };
    RunResult result = simtest::run(stream_, machine, policy, share(0.5));
    check_breakdown(result);
    return result;
  }

 private:
  static trace::StreamInfo described() {
    trace::StreamInfo info = simtest::one_class(2, 1);
    info.lanes = {{"a", 0}, {"b", 0}};
    info.classes = {{"a", 1, 0, 0}, {"b", 1, 0, 1}};
    return info;
  }
  TempStream stream_;
  StreamWriter writer_;
};

}  // namespace

TEST("sim: time of a run by hand") {
  // 10 pages, all fast: 5 blocks * 1000 loads * 64 (R) * 100 ns / MLP 2 / 4 threads = 4 ms.
  TempStream stream;
  write_even(stream, 10, 5, 64);
  const RunResult fast = run(stream, simtest::plain_machine(), {}, share(1));
  CHECK_NEAR(fast.seconds, 4e-3, 1e-12);
  CHECK_NEAR(fast.breakdown.at("fast_stall"), 4e-3, 1e-12);
  CHECK_NEAR(fast.metrics.at("loads_fast"), 5 * 1000 * 64, 0);
  CHECK_NEAR(fast.metrics.at("fast_hit_ratio"), 1, 0);
  // Three of ten pages fit: 30 % at 100 ns, 70 % at 300 ns.
  const RunResult mixed = run(stream, simtest::plain_machine(), {}, share(0.3));
  CHECK_NEAR(mixed.seconds, 4e-3 * (0.3 + 0.7 * 3), 1e-12);
  CHECK_NEAR(mixed.metrics.at("fast_hit_ratio"), 0.3, 1e-12);
  CHECK_NEAR(mixed.metrics.at("fast_capacity_bytes"), 3 * 4096 * 64, 0);
  CHECK_NEAR(mixed.metrics.at("footprint_bytes"), 10 * 4096 * 64, 0);
  // Twice the threads, half the time; fast_bytes overrides the share.
  RunOptions options = share(0.3);
  options.threads = 8;
  options.fast_bytes = 10 * 4096 * 64;
  CHECK_NEAR(run(stream, simtest::plain_machine(), {}, options).seconds, 2e-3, 1e-12);
  check_breakdown(mixed);
}

TEST("sim: stores cost their share of the latency and twice the bandwidth") {
  TempStream stream;
  write_even(stream, 10, 5, 64, AccessKind::store);
  // 1000 * 64 * 100 ns * 0.5 (store_stall) / 2 / 4 threads per block = 0.4 ms.
  CHECK_NEAR(run(stream, simtest::plain_machine(), {}, share(1)).seconds, 2e-3, 1e-12);
  // In the slow tier: 1.2 ms a block; 64000 * 64 bytes written at 10 GB/s take 0.4 ms, read and
  // written at 24 GB/s 0.34: no limit. At 2 GB/s of writes they take 2.048 ms.
  CHECK_NEAR(run(stream, simtest::plain_machine(), {}, share(0)).seconds, 6e-3, 1e-12);
  MachineProfile nvm = simtest::plain_machine();
  nvm.tiers[1].write_gbps = 2;
  const RunResult limited = run(stream, nvm, {}, share(0));
  CHECK_NEAR(limited.seconds, 5 * 2.048e-3, 1e-9);
  CHECK_NEAR(limited.breakdown.at("bandwidth"), 5 * (2.048e-3 - 1.2e-3), 1e-9);
}

TEST("sim: a store that found its line in the cache costs its write-back alone") {
  const auto seconds = [](double store_fill, double write_gbps) {
    TempStream stream;
    write_even(stream, 10, 5, 64, AccessKind::store, store_fill);
    MachineProfile machine = simtest::plain_machine();
    for (TierProfile& tier : machine.tiers) {
      tier.loaded = {{0, 1}};
      tier.write_gbps = write_gbps;
    }
    return run(stream, machine, {}, share(1)).seconds;
  };
  const double all = seconds(1, 1e6);
  CHECK_NEAR(seconds(0.25, 1e6), all / 4, 1e-6 * all);
  // Five blocks of 64000 lines through 1 GB/s, whoever fetched them.
  CHECK_NEAR(seconds(0, 1), 5 * 64000 * 64e-9, 1e-9);
}

TEST("sim: huge pages save address translation, and hold 512 base pages") {
  TempStream stream;
  write_even(stream, 1024, 2);
  MachineProfile machine = simtest::plain_machine();
  machine.huge_page_gain = 0.1;
  RunOptions options = share(0.5);
  options.page_bytes = 2 << 20;
  const RunResult huge = run(stream, machine, {}, options);
  CHECK_NEAR(huge.metrics.at("fast_capacity_bytes"), 2 << 20, 0);
  CHECK_NEAR(huge.metrics.at("fast_hit_ratio"), 0.5, 0);
  const double base = run(stream, machine, {}, share(0.5)).seconds;
  CHECK_NEAR(huge.seconds, 0.9 * base, 1e-12);
}

TEST("sim: every page is in one tier, no tier is over capacity, no access is lost") {
  for (const std::uint64_t page_bytes : {std::uint64_t{4096}, std::uint64_t{2} << 20}) {
    const bool huge = page_bytes > 4096;
    const std::uint32_t pages = huge ? 200 * 512 : 200;
    TempStream stream;
    StreamWriter writer{stream, simtest::one_class(pages, 4)};
    Rng rng{11};
    std::uint64_t accesses = 0;
    std::vector<std::uint32_t> live;
    const std::uint32_t part_pages = pages / 10;
    std::vector<bool> mapped(10);
    for (int b = 0; b < 400; ++b) {
      const auto arena = static_cast<std::uint32_t>(rng.below(10));
      if (mapped[arena]) {
        if (rng.uniform() < 0.3)
          writer.events.push_back({trace::EventType::unmap, 0, arena * part_pages, part_pages}),
              mapped[arena] = false;
      } else {
        simtest::map_and_touch(writer, arena * part_pages, part_pages);
        mapped[arena] = true;
      }
      simtest::Part part;
      for (std::uint32_t page = 0; page < pages; page += huge ? 97 : 1) {
        if (!mapped[page / part_pages]) continue;
        part.pages.push_back(page);
        part.counts.push_back(static_cast<std::uint16_t>(1 + rng.below(50)));
        accesses += part.counts.back();
      }
      if (!part.pages.empty()) writer.parts.push_back(part);
      writer.block(true, 1e6);
    }
    writer.finish();

    const std::uint64_t managed = pages * 4096ULL / page_bytes;
    Hooks policy = restless(managed, 5);
    std::uint64_t checks = 0;
    std::unordered_map<std::uint64_t, int> outcomes;
    std::unordered_set<std::uint64_t> exists;
    policy.range = [&](PageRange range, bool is_mapped) {
      for (std::uint64_t page = range.first.value; page < range.end().value; ++page) {
        CHECK(exists.contains(page) != is_mapped);
        if (is_mapped) {
          exists.insert(page);
        } else {
          exists.erase(page);
        }
      }
    };
    policy.migrated = [&](Memory& memory, std::span<const MigrationResult> results, Nanos) {
      // Counting pages by tier gives what the tiers say; a move that goes on has a slot in both.
      std::vector<Residency> where(managed + 5);
      memory.residency(PageId{0}, where);
      std::uint64_t in[3] = {0, 0, 0};
      for (const Residency residency : where) ++in[static_cast<int>(residency)];
      std::uint64_t coming = 0;
      for (const Tier tier : {Tier::fast, Tier::slow}) {
        const std::uint64_t used = memory.capacity(tier) - memory.free_pages(tier);
        CHECK(memory.free_pages(tier) <= memory.capacity(tier));
        CHECK(used >= in[index(tier)]);
        coming += used - in[index(tier)];
      }
      CHECK(coming <=
            std::min<std::uint64_t>(1, memory.pending(Tier::fast) + memory.pending(Tier::slow)));
      for (std::uint64_t page = 0; page < managed; ++page)
        CHECK((where[page] != Residency::absent) == exists.contains(page));
      for (const MigrationResult& result : results) {
        ++outcomes[static_cast<std::uint64_t>(result.outcome)];
        if (result.outcome == Outcome::done && where[result.page.value] != Residency::absent)
          CHECK(static_cast<int>(where[result.page.value]) == static_cast<int>(result.to));
      }
      ++checks;
    };
    policy.period = Nanos{1000};
    RunOptions options = share(0.25);
    options.page_bytes = page_bytes;
    const RunResult result = run(stream, simtest::full_machine(), policy, options);
    const auto& metrics = result.metrics;
    CHECK(checks > 50);
    CHECK(outcomes[static_cast<std::uint64_t>(Outcome::done)] > 50);
    CHECK(outcomes[static_cast<std::uint64_t>(Outcome::no_space)] > 0);
    CHECK(outcomes[static_cast<std::uint64_t>(Outcome::gone)] > 0);
    CHECK_NEAR(metrics.at("loads_fast") + metrics.at("loads_slow"),
               static_cast<double>(accesses) * 4, 0);
    // What started and did not end was unmapped under way, or goes on at the end.
    for (const std::string way : {"promotions", "demotions"}) {
      const double lost = metrics.at(way + "_started") - metrics.at(way);
      CHECK(lost >= 0 && lost <= metrics.at(way + "_gone") + 4);
    }
    CHECK(metrics.at("promotions") > 0 && metrics.at("demotions") > 0);
    CHECK_NEAR(
        metrics.at("migrated_bytes"),
        (metrics.at("promotions") + metrics.at("demotions")) * static_cast<double>(page_bytes), 0);
    CHECK(metrics.at("ping_pongs") > 0);
    check_breakdown(result);
  }
}

TEST("sim: the same seed gives the same result, another seed another one") {
  TempStream stream;
  simtest::write_zipf(stream, {.full_pages = 1 << 16, .seconds = 1});
  const auto once = [&](std::uint64_t seed) {
    Hooks policy = restless(1024, seed);
    policy.start = [](Memory& memory) {
      memory.set_sampling({.loads = {SamplingRequest::Mode::period, 100},
                           .stores = {SamplingRequest::Mode::frequency, 500}});
    };
    std::uint64_t digest = 0;
    policy.samples = [&](Memory& memory, std::span<const Sample> samples, Nanos now) {
      for (const Sample& sample : samples) {
        digest = mix64(digest ^ sample.page.value ^ static_cast<std::uint64_t>(now.count()) << 20 ^
                       static_cast<std::uint64_t>(sample.tier) << 18 ^
                       static_cast<std::uint64_t>(sample.kind) << 19);
      }
      memory.charge(Work::tracker_update, samples.size());
    };
    RunOptions options = share(0.2);
    options.seed = seed;
    RunResult result = run(stream, simtest::full_machine(), policy, options);
    result.metrics["digest"] = static_cast<double>(digest);
    return result;
  };
  const RunResult a = once(1);
  const RunResult b = once(1);
  const RunResult c = once(2);
  CHECK(a.seconds == b.seconds && a.total_seconds == b.total_seconds);
  CHECK(a.metrics == b.metrics);
  CHECK(a.series == b.series);
  CHECK(a.breakdown == b.breakdown);
  CHECK(a.latency.at("get").p99 == b.latency.at("get").p99);
  CHECK(a.metrics.at("digest") != c.metrics.at("digest"));
  CHECK(a.metrics.at("samples") > 0);
}

TEST("sim: lanes run on their own; the run is as long as its slowest lane") {
  TwoLanes lanes;
  lanes.blocks(5, {0, 1});
  const RunResult result = lanes.run();
  CHECK_NEAR(result.seconds, 1.5e-3, 1e-12);
  CHECK_NEAR(result.breakdown.at("slow_stall"), 1.5e-3, 1e-12);
  CHECK_NEAR(result.breakdown.at("fast_stall"), 0, 1e-12);
}

TEST("sim: a lane that had nothing to do has waited for the others") {
  // Phases follow each other, as an index is built before it is searched, and built again.
  TwoLanes lanes;
  lanes.blocks(5, {0});
  lanes.blocks(5, {1});
  lanes.blocks(2, {0});
  lanes.blocks(1, {});
  lanes.blocks(1, {0, 1});
  const RunResult result = lanes.run();
  CHECK_NEAR(result.seconds, 0.5e-3 + 1.5e-3 + 0.2e-3 + 0.3e-3, 1e-12);
  CHECK_NEAR(result.breakdown.at("slow_stall"), 1.8e-3, 1e-12);
  CHECK_NEAR(result.breakdown.at("fast_stall"), 0.7e-3, 1e-12);
}

TEST("sim: what tiering takes is taken from the lanes that work") {
  // A lane that has ended, or has not begun, takes no part of what is the application's own.
  const auto slower = [](Payer payer) {
    Hooks policy;
    policy.period = Nanos{300'000};  // a block
    policy.tick = [payer](Memory& memory, Nanos) {
      memory.charge(Work::scan_step, 100, payer);  // 10 us
    };
    sim::MachineProfile machine = simtest::plain_machine();
    machine.daemon_core_share = 0.5;
    const auto run = [&](const Hooks& hooks) {
      TwoLanes lanes;
      lanes.blocks(5, {1});
      return lanes.run(machine, hooks).seconds;
    };
    const double alone = run({});
    machine.work_ns[Work::scan_step] = 100;
    return run(policy) - alone;
  };
  // The last block's is not felt any more. A daemon finds the other lane's core idle as often.
  CHECK_NEAR(slower(Payer::daemon), 4 * 2.5e-6, 0.2e-6);
  CHECK_NEAR(slower(Payer::application), 4 * 10e-6, 0.6e-6);
}

TEST("sim: a lane has at least one thread, whatever its share of them") {
  const auto seconds = [](double share_of_threads, double threads) {
    TempStream stream;
    trace::StreamInfo info = simtest::one_class(2, 1);
    info.lanes = {{"waiting for each other", share_of_threads}};
    StreamWriter writer{stream, info};
    simtest::map_and_touch(writer, 0, 2);
    writer.parts = {{0, AccessKind::load, {0}, {1000}}};
    writer.block(true, 1e5);
    writer.finish();
    RunOptions options = share(0.5);
    options.threads = threads;
    return run(stream, simtest::plain_machine(), {}, options).seconds;
  };
  CHECK_NEAR(seconds(0.4, 20), seconds(1, 8), 1e-15);
  CHECK_NEAR(seconds(0.4, 1), seconds(1, 1), 1e-15);
}

TEST("sim: operation latency is the sum of its own accesses") {
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(2, 1, 2, 10)};
  simtest::map_and_touch(writer, 0, 2);
  writer.block(false, 1);
  const std::vector<trace::OpAccess> first = {{0, 3, 0, AccessKind::load}};
  const std::vector<trace::OpAccess> second = {{0, 1, 0, AccessKind::load},
                                               {1, 2, 0, AccessKind::load}};
  writer.parts = {{0, AccessKind::load, {0, 1}, {400, 400}}};
  writer.operations()[0] = 2;
  writer.sampled = {{0, 25, first}, {0, 35, second}};
  writer.block(true, 1e5);
  writer.finish();
  const RunResult result = run(stream, simtest::plain_machine(), {}, share(0.5));
  // Page 0 fast: 50 ns an access; page 1 slow: 150 ns.
  const LatencySummary& get = result.latency.at("get");
  CHECK_EQ(get.operations, 2u);
  CHECK_NEAR(get.p50, 25 + 3 * 50, 1e-3);
  CHECK_NEAR(get.p99, 35 + 50 + 2 * 150, 1e-3);
  CHECK_NEAR(get.mean, (175 + 385) / 2.0, 1e-3);
  CHECK_NEAR(result.operations, 2, 0);
}

TEST("sim: AOL is what the counters say") {
  TempStream stream;
  write_even(stream, 10, 5, 64);
  // MLP 2 at 100 ns: 50 ns outstanding per read, 2 GHz: 100 cycles; all slow: 300.
  CHECK_NEAR(run(stream, simtest::plain_machine(), {}, share(1)).metrics.at("aol_cycles"), 100,
             1e-9);
  CHECK_NEAR(run(stream, simtest::plain_machine(), {}, share(0)).metrics.at("aol_cycles"), 300,
             1e-9);
}

TEST("sim: one row a second, every column as long") {
  TempStream stream;
  simtest::write_zipf(stream, {.full_pages = 1 << 16, .seconds = 3});
  Hooks policy;
  policy.heat = [](PageId page) { return page.value % 4 == 0 ? Heat::hot : Heat::warm; };
  const RunResult result = run(stream, simtest::plain_machine(), policy, share(0.3));
  const auto rows = static_cast<std::size_t>(result.seconds);
  CHECK(rows >= 1);
  for (const char* column :
       {"second", "fast_hit_ratio", "demand_hit_ratio", "promotions", "demotions", "ping_pongs",
        "migrated_bytes", "samples", "samples_lost", "aol_cycles", "fast_used_share",
        "fast_hot_share", "fast_warm_share", "fast_cold_share", "policy_cpu_share",
        "metadata_bytes", "operations_per_second", "get_p50_ns", "policy.answer"})
    CHECK(result.series.contains(column));
  for (const auto& [name, values] : result.series) CHECK_EQ(values.size(), rows);
  double operations = 0;
  for (const double value : result.series.at("operations_per_second")) operations += value;
  CHECK(operations > 0 && operations <= result.operations);
  CHECK_NEAR(result.series.at("fast_used_share")[0], 1, 0);
  CHECK_NEAR(result.series.at("fast_hot_share")[0], 0.25, 0.1);
  CHECK_NEAR(result.series.at("fast_warm_share")[0], 0.75, 0.1);
  CHECK_NEAR(result.series.at("metadata_bytes")[0], 64000, 0);
  CHECK_NEAR(result.series.at("policy.answer")[0], 42, 0);
}

TEST("sim: the set-up counts toward the total only") {
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(1, 1)};
  simtest::map_and_touch(writer, 0, 1);
  for (const bool timed : {false, true, false, true}) {
    writer.parts = {{0, AccessKind::load, {0}, {1000}}};
    writer.operations()[0] = 7;
    writer.block(timed, 25000);
  }
  writer.finish();
  const RunResult result = run(stream, simtest::plain_machine(), {}, share(1));
  CHECK_NEAR(result.seconds, 2 * 25e-6, 1e-12);
  CHECK_NEAR(result.total_seconds, 4 * 25e-6, 1e-12);
  CHECK_NEAR(result.operations, 14, 0);
  CHECK_NEAR(result.metrics.at("loads_fast"), 2000, 0);
}

TEST("sim: nothing beats a fast tier that holds everything") {
  TempStream stream;
  simtest::write_zipf(stream, {.full_pages = 1 << 16, .rate = 200e6, .seconds = 1});
  const double all_fast =
      run(stream, simtest::full_machine(), {}, share(0.1), {.unbounded_fast = true}).seconds;
  CHECK(run(stream, simtest::full_machine(), {}, share(0.1)).seconds >= all_fast);
  CHECK(run(stream, simtest::full_machine(), restless(1024, 1), share(0.5)).seconds >= all_fast);
  CHECK(run(stream, simtest::full_machine(), restless(1024, 1), share(1)).seconds >= all_fast);
  CHECK_NEAR(run(stream, simtest::full_machine(), {}, share(1)).seconds, all_fast, 0);
}

TEST("sim: a policy that asks for what this run does not have is refused by name") {
  TempStream stream;
  write_even(stream, 10, 1, 1);
  const auto refused = [&](const std::function<void(Memory&)>& ask, const char* what) {
    Hooks policy;
    policy.start = ask;
    CHECK_THROWS(run(stream, simtest::plain_machine(), policy), what);
  };
  refused([](Memory& memory) { memory.reshape(Change::split, {}); }, "Memory::reshape");
  refused([](Memory& memory) { memory.set_watermarks({.wake = 1.5}); }, "watermark");
}

TEST("sim: bad options, deadlines and interruptions") {
  TempStream stream;
  write_even(stream, 10, 300, 1);
  CHECK_THROWS(run(stream, simtest::plain_machine(), {}, share(1.5)), "fast_share");
  RunOptions options;
  options.page_bytes = 8192;
  CHECK_THROWS(run(stream, simtest::plain_machine(), {}, options), "page_bytes");
  MachineProfile machine = simtest::plain_machine();
  machine.ghz = 0;
  CHECK_THROWS(run(stream, machine, {}, {}), "ghz");
  options = {};
  options.deadline_seconds = 0;
  bool late = false;
  try {
    (void)run(stream, simtest::plain_machine(), {}, options);
  } catch (const DeadlineExceeded&) {
    late = true;
  }
  CHECK(late);
}

TEST("sim: the bare loop counts first-touch misses") {
  TempStream stream;
  write_even(stream, 10, 5, 64);
  CHECK_EQ(bench::bare_lookup(stream.reader(), 0.3), 5u * 7 * 100);
}
