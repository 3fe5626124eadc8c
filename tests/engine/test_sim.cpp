// SPDX-License-Identifier: MIT

// The equations of the simulated machine against cases worked out by hand.
#include <numbers>

#include "check.hpp"
#include "core/rng.hpp"
#include "isas.hpp"
#include "sim/address_space.hpp"
#include "sim/gather.hpp"
#include "sim/moves.hpp"
#include "sim/report.hpp"
#include "sim/scale.hpp"
#include "sim/timing.hpp"
#include "sim_streams.hpp"

namespace {

using namespace tt;
using namespace tt::sim;

std::array<TierProfile, tier_count> plain_tiers() { return simtest::plain_machine().tiers; }

}  // namespace

TEST("sim: loaded latency is piecewise linear and flat beyond the last point") {
  const LoadedLatency loaded = {{0, 1}, {0.5, 1.2}, {1, 2.2}};
  for (const double reads : {0.0, 0.4, 1.0}) {
    CHECK_NEAR(loaded.at(reads).factor(0), 1, 0);
    CHECK_NEAR(loaded.at(reads).factor(0.25), 1.1, 1e-12);
    CHECK_NEAR(loaded.at(reads).factor(0.75), 1.7, 1e-12);
    CHECK_NEAR(loaded.at(reads).factor(3), 2.2, 0);
    CHECK_NEAR(loaded.at(reads).peak(), 1, 0);
  }
  CHECK_NEAR(LoadedLatency{}.at(1).factor(0.9), 1, 0);
}

TEST("sim: writes bend the loaded latency, and leave less bandwidth") {
  TierProfile tier;
  tier.total_gbps = 100;
  tier.loaded = LoadedLatency{
      std::vector<LoadedCurve>{{0.5, 0.8, {{0, 1}, {1, 5}}}, {1, 1, {{0, 1}, {1, 2}}}}};
  CHECK_NEAR(tier.loaded.at(1).factor(0.5), 1.5, 1e-12);
  CHECK_NEAR(tier.loaded.at(0.5).factor(0.5), 3, 1e-12);
  CHECK_NEAR(tier.loaded.at(0.75).factor(0.5), 2.25, 1e-12);  // between them
  CHECK_NEAR(tier.loaded.at(0.2).factor(0.5), 3, 1e-12);      // beyond them
  CHECK_NEAR(tier.loaded.at(0.75).peak(), 0.9, 1e-12);
  CHECK_NEAR(transfer_ns(tier, {1000, 0}), 10, 1e-12);
  CHECK_NEAR(transfer_ns(tier, {500, 500}), 12.5, 1e-12);
  // The solver takes the block's own mix: 1 GB in 100 ms are a tenth of what reads alone can do,
  // and an eighth of what half writes can.
  const auto factor = [&](double read, double written) {
    LaneWork work;
    work.compute_ns = 100e6;
    work.traffic[0] = {read, written};
    return solve(work, {tier, tier}).factor[0];
  };
  CHECK_NEAR(factor(1e9, 0), 1.1, 1e-9);
  CHECK_NEAR(factor(5e8, 5e8), 1.5, 1e-9);
}

TEST("sim: curves that do not ascend are refused") {
  using Curves = std::vector<LoadedCurve>;
  CHECK_THROWS((LoadedLatency{Curves{{1, 1, {{0, 1}}}, {0.5, 1, {{0, 1}}}}}), "must ascend");
  CHECK_THROWS((LoadedLatency{Curves{{1, 1.5, {{0, 1}}}}}), "must be a share");
  CHECK_THROWS((LoadedLatency{Curves{{1, 1, {{0, 1}, {0.5, 0.9}}}}}), "must rise");
  CHECK_THROWS((LoadedLatency{Curves{{1, 1, {}}}}), "must rise");
}

TEST("sim: a device with large granules moves whole ones for lines alone") {
  TierProfile optane;
  optane.granule_bytes = 256;
  trace::StreamClass lines{.name = "lines"};
  CHECK_NEAR(moved(optane, lines, {64, 128}).read, 256, 0);
  CHECK_NEAR(moved(optane, lines, {64, 128}).written, 512, 0);
  lines.prefetched = 1;  // a sweep
  CHECK_NEAR(moved(optane, lines, {64, 128}).read, 64, 0);
  lines.prefetched = 0.5;
  CHECK_NEAR(moved(optane, lines, {64, 128}).read, 160, 0);
  CHECK_NEAR(moved(TierProfile{}, lines, {64, 128}).written, 128, 0);
}

TEST("sim: transfer time is that of the tightest limit") {
  TierProfile tier;
  tier.read_gbps = 10;
  tier.write_gbps = 5;
  CHECK_NEAR(transfer_ns(tier, {1000, 100}), 100, 1e-12);   // reads
  CHECK_NEAR(transfer_ns(tier, {1000, 1000}), 200, 1e-12);  // writes
  tier.total_gbps = 8;
  CHECK_NEAR(transfer_ns(tier, {1000, 1000}), 250, 1e-12);  // both together
}

TEST("sim: stall is latency over MLP beyond the overlapped computation") {
  // 1000 loads at 100 ns, MLP 4, 10 ns of computation between them, 2 threads:
  // computation 1000 * 10 / 2 = 5000; stall 1000 * (100 / 4 - 10) / 2 = 7500.
  // 100 of the slow tier at 300 ns, MLP 4: 100 * 10 / 2 = 500 and 100 * (75 - 10) / 2 = 3250.
  LaneWork work;
  work.threads = 2;
  work.compute_ns = 600;
  work.terms = {{1000, 10, 25, Tier::fast}, {100, 10, 75, Tier::slow}};
  const LaneTime time = solve(work, plain_tiers());
  CHECK_NEAR(time.compute, 5000 + 500 + 300, 1e-9);
  CHECK_NEAR(time.stall[0], 7500, 1e-9);
  CHECK_NEAR(time.stall[1], 3250, 1e-9);
  CHECK_NEAR(time.bandwidth, 0, 1e-9);
  CHECK_NEAR(time.total, 16550, 1e-9);
}

TEST("sim: misses that computation hides cost nothing more") {
  LaneWork work;
  work.terms = {{1000, 40, 25, Tier::fast}};
  const LaneTime time = solve(work, plain_tiers());
  CHECK_NEAR(time.total, 40000, 1e-9);
  CHECK_NEAR(time.stall[0], 0, 0);
}

TEST("sim: a block cannot be shorter than its transfers") {
  // 1000 loads at MLP 100: 1 ns each on one thread; 64,000 bytes at 20 GB/s take 3200 ns.
  LaneWork work;
  work.terms = {{1000, 0, 3, Tier::slow}};
  work.traffic[1] = {64000, 0};
  const LaneTime time = solve(work, plain_tiers());
  CHECK_NEAR(time.total, 3200, 1e-6);
  CHECK_NEAR(time.stall[1], 3000, 1e-6);
  CHECK_NEAR(time.bandwidth, 200, 1e-6);
  CHECK(time.limiting == Tier::slow);
  // Another lane that takes half of the tier's bandwidth doubles it.
  work.background[1] = 0.5;
  CHECK_NEAR(solve(work, plain_tiers()).total, 6400, 1e-6);
}

TEST("sim: time and utilisation are solved together") {
  // f(T) = 1000 * 100 * (1 + u), u = 64000 / 100 / T = 640 / T on a curve from 1 to 2:
  // T = 100000 + 6.4e7 / T, so T = (100000 + sqrt(1e10 + 4 * 6.4e7)) / 2 = 100635.9529...
  auto tiers = plain_tiers();
  tiers[0].loaded = {{0, 1}, {1, 2}};
  LaneWork work;
  work.terms = {{1000, 0, 100, Tier::fast}};
  work.traffic[0] = {64000, 0};
  const double expected = (100000 + std::sqrt(1e10 + 4 * 6.4e7)) / 2;
  const LaneTime time = solve(work, tiers);
  CHECK_NEAR(time.total, expected, 1e-4);
  CHECK_NEAR(time.factor[0], 1 + 640 / expected, 1e-9);
  CHECK_NEAR(time.stall[0], time.total, 1e-6);
  // Background traffic of 20 % of the tier adds to the utilisation: u = 640 / T + 0.2.
  work.background[0] = 0.2;
  const double busier = (120000 + std::sqrt(1.44e10 + 4 * 6.4e7)) / 2;
  CHECK_NEAR(solve(work, tiers).total, busier, 1e-4);
}

TEST("sim: the solver holds its equation for any load") {
  auto tiers = simtest::full_machine().tiers;
  Rng rng{7};
  for (int round = 0; round < 2000; ++round) {
    LaneWork work;
    work.threads = 1 + static_cast<double>(rng.below(32));
    work.compute_ns = rng.uniform() * 1e6;
    for (const Tier tier : {Tier::fast, Tier::slow}) {
      const double accesses = std::floor(rng.exponential(1e5));
      work.terms.push_back({accesses, rng.uniform() * 30, 5 + rng.uniform() * 300, tier});
      work.traffic[index(tier)] = {accesses * 64, rng.uniform() * accesses * 64};
    }
    work.in_flight_ns2 = rng.uniform() < 0.5 ? rng.exponential(1e10) : 0;
    work.in_flight_limit_ns = 1e6;
    const LaneTime time = solve(work, tiers);
    for (const double guess : {0.01, 0.9, 1.1, 100.0})
      CHECK_NEAR(solve(work, tiers, guess * time.total).total, time.total, 1e-8 * time.total);
    double stall[2] = {0, 0};
    for (const Term& term : work.terms) {
      const std::size_t t = index(term.tier);
      const double used = transfer_ns(tiers[t], work.traffic[t]) / time.total;
      CHECK(used <= 1 + 1e-9);
      stall[t] +=
          term.accesses *
          std::max(0.0, term.wait_ns * tiers[t].loaded.at(work.traffic[t].reads()).factor(used) -
                            term.issue_ns) /
          work.threads;
    }
    CHECK_NEAR(time.stall[0], stall[0], 1e-6 * time.total);
    CHECK_NEAR(time.stall[1], stall[1], 1e-6 * time.total);
    CHECK_NEAR(time.migration,
               std::min(work.in_flight_ns2 / time.total, work.in_flight_limit_ns) / work.threads,
               1e-6 * time.total);
    CHECK_NEAR(time.total,
               time.compute + time.stall[0] + time.stall[1] + time.bandwidth + time.migration,
               1e-9 * time.total);
  }
}

TEST("sim: accesses to a page in flight wait for half of its move, if they meet it") {
  // 8 accesses in a block of 1 ms to a page that is away for 10 us: 0.08 of them meet it and wait
  // 5 us: 400 ns of thread time. sum d * d / 2 = 8 * 10000 * 10000 / 2 = 4e8; / 1e6 = 400.
  LaneWork work;
  work.threads = 4;
  work.compute_ns = 4 * 1e6;
  work.in_flight_ns2 = 4e8;
  work.in_flight_limit_ns = 1e9;
  const LaneTime time = solve(work, plain_tiers());
  CHECK_NEAR(time.migration, 400.0 / 4, 0.02);
  CHECK_NEAR(time.total, 1e6 + 100, 0.02);
  // At most all threads wait.
  work.in_flight_limit_ns = 40;
  CHECK_NEAR(solve(work, plain_tiers()).migration, 10, 1e-9);
}

TEST("sim: a move takes its fixed cost and the slowest of mover, source and target") {
  const MachineProfile machine = simtest::plain_machine();
  CHECK_NEAR(move_ns(machine, Tier::fast, 4096, 1, {}), 10000 + 1000,
             1e-9);  // the mover, 4.096 GB/s
  // Eight movers share the slow tier's 10 GB/s of writes: 1.25 GB/s each.
  CHECK_NEAR(move_ns(machine, Tier::slow, 4096, 8, {}), 10000 + 4096 / 1.25, 1e-9);
  CHECK_NEAR(move_ns(machine, Tier::fast, 4096, 8, {}), 10000 + 4096 / 2.5, 1e-9);
}

TEST("sim: outstanding time per read") {
  CHECK_NEAR(outstanding_ns(100, 4, 0), 25, 0);     // overlapped misses share it
  CHECK_NEAR(outstanding_ns(100, 4, 40), 40, 0);    // no gap: a new one every 40 ns
  CHECK_NEAR(outstanding_ns(100, 4, 150), 100, 0);  // alone, then nothing outstanding
}

TEST("sim: every variant of the gather finds what a plain loop finds, for any length") {
  Rng rng{3};
  constexpr std::uint64_t pages = 5000;
  PageBits slow{pages};
  PageBits armed{pages};
  for (std::uint64_t page = 0; page < pages; ++page) {
    if (rng.uniform() < 0.6) slow.set(page);
    if (rng.uniform() < 0.2) armed.set(page);
  }
  for (const std::size_t size : {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 100, 4097}) {
    for (const unsigned shift : {0U, 9U}) {
      std::vector<std::uint32_t> page(size);
      std::vector<std::uint16_t> count(size);
      std::uint64_t in_slow = 0;
      std::vector<std::uint32_t> expected;
      for (std::size_t i = 0; i < size; ++i) {
        page[i] = static_cast<std::uint32_t>(rng.below(pages << shift));
        count[i] = static_cast<std::uint16_t>(rng.below(65536));
        if (slow.test(page[i] >> shift)) in_slow += count[i];
        if (armed.test(page[i] >> shift)) expected.push_back(static_cast<std::uint32_t>(i));
      }
      check::on_each_isa([&] {
        CHECK_EQ(gather<false>(page, count, shift, slow.words()).slow, in_slow);
        std::vector<std::uint32_t> tripped(size + 1, 7);  // one more, which must stay as it is
        const Gathered all =
            gather<true>(page, count, shift, slow.words(), armed.words(), tripped.data());
        CHECK_EQ(all.slow, in_slow);
        CHECK_EQ(tripped.back(), 7u);
        tripped.resize(all.tripped);
        CHECK(tripped == expected);
      });
    }
  }
}

TEST("sim: the gather does not overflow with the largest counts") {
  PageBits slow{64};
  slow.set(5);
  const std::size_t size = (std::size_t{16} << 16) + 100;
  const std::vector<std::uint32_t> page(size, 5);
  const std::vector<std::uint16_t> count(size, 65535);
  check::on_each_isa(
      [&] { CHECK_EQ(gather<false>(page, count, 0, slow.words()).slow, size * 65535); });
}

TEST("sim: knobs are scaled by their unit") {
  const std::vector<KnobDecl> declared = {
      {.name = "pages", .unit = Unit::pages},
      {.name = "samples", .unit = Unit::samples},
      {.name = "size", .unit = Unit::mebibytes},
      {.name = "rate", .unit = Unit::gib_per_second},
      {.name = "hertz", .unit = Unit::hertz},
      {.name = "ms", .unit = Unit::milliseconds},
      {.name = "count", .unit = Unit::count_per_page},
      {.name = "period", .unit = Unit::events_per_sample},
      {.name = "share", .unit = Unit::ratio},
      {.name = "per_page", .unit = Unit::samples_per_page},
      {.name = "top", .unit = Unit::extreme_per_page},
  };
  Knobs knobs;
  for (const KnobDecl& knob : declared) knobs.set(knob.name, std::int64_t{32});
  const Knobs scaled = scale_knobs(declared, knobs, 64, 1e6);
  for (const char* name : {"pages", "samples", "size", "rate", "hertz"})
    CHECK_NEAR(scaled.real(name), 0.5, 0);
  for (const char* name : {"ms", "count", "period", "share", "per_page"})
    CHECK_NEAR(scaled.real(name), 32, 0);
  CHECK(scaled.real("top") < 32 && scaled.real("top") > 16);
}

TEST("sim: Poisson tails") {
  CHECK_NEAR(poisson_tail(1, 1), 1 - std::exp(-1.0), 1e-12);
  CHECK_NEAR(poisson_tail(2, 3), 1 - std::exp(-2.0) * (1 + 2 + 2), 1e-12);
  CHECK_NEAR(poisson_tail(5, 0), 1, 0);
}

TEST("sim: a trigger on the hottest page fires at the same mean count in a miniature") {
  CHECK_NEAR(extreme_threshold(18, 1e6, 1), 18, 0);
  CHECK(extreme_threshold(18, 1e6, 64) < 18);
  CHECK(extreme_threshold(18, 1e6, 256) < extreme_threshold(18, 1e6, 64));
  // Simulated: counts of N pages grow by Poisson steps until one reaches T; mean count then.
  const auto fires_at = [](std::uint32_t pages, double threshold, std::uint64_t seed) {
    Rng rng{seed};
    double total = 0;
    const int rounds = 60;
    for (int round = 0; round < rounds; ++round) {
      std::vector<std::uint32_t> count(pages);
      std::uint64_t events = 0;
      // A real threshold between two integers is honoured in proportion.
      const double whole = std::floor(threshold);
      const auto limit =
          static_cast<std::uint32_t>(whole + (rng.uniform() < threshold - whole ? 1 : 0));
      while (true) {
        ++events;
        if (++count[rng.below(pages)] >= limit) break;
      }
      total += static_cast<double>(events) / pages;
    }
    return total / rounds;
  };
  const double full = fires_at(65536, 18, 1);
  const double corrected = fires_at(65536 / 64, extreme_threshold(18, 65536, 64), 2);
  const double unscaled = fires_at(65536 / 64, 18, 3);
  CHECK_NEAR(corrected / full, 1, 0.06);
  CHECK(unscaled / full > 1.3);
}

TEST("sim: managed pages appear and vanish with their base pages") {
  AddressSpace space{2048, 9};
  CHECK_EQ(space.pages(), 4u);
  const auto event = [](std::uint32_t first, std::uint32_t count) {
    return trace::Event{trace::EventType::map, 0, first, count};
  };
  CHECK(space.map(event(0, 600)) == (PageRange{PageId{0}, 2}));
  CHECK(space.map(event(600, 1000)) == (PageRange{PageId{2}, 2}));  // page 1 is there already
  CHECK(space.unmap(event(0, 600)) == (PageRange{PageId{0}, 1}));   // page 1 is still needed
  CHECK(space.unmap(event(600, 1000)) == (PageRange{PageId{1}, 3}));
  AddressSpace base{2048, 0};
  CHECK(base.map(event(3, 5)) == (PageRange{PageId{3}, 5}));
  CHECK(base.unmap(event(3, 5)) == (PageRange{PageId{3}, 5}));
}

TEST("sim: quantiles are by nearest rank") {
  std::vector<float> values = {5, 1, 4, 2, 3};
  CHECK_EQ(quantile(values, 0.5), 3.0F);
  CHECK_EQ(quantile(values, 0.99), 5.0F);
  CHECK_EQ(quantile(values, 0.2), 1.0F);
  CHECK_EQ(quantile(values, 0.21), 2.0F);
  CHECK_EQ(quantile({}, 0.5), 0.0F);
}
