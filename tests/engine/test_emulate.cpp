// SPDX-License-Identifier: MIT

// The emulated machine's memory model and sampler, without the emulator.
#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "emulate/markers.hpp"
#include "emulate/memory_model.hpp"
#include "emulate/ring.hpp"
#include "emulate/sampler.hpp"

namespace {

using namespace tt::emulate;
using Outcome = MemoryModel::Outcome;

constexpr std::uint64_t mib = 1 << 20, line = 64;
constexpr std::uint64_t slow_from = 512 * mib;

MemoryOptions two_tiers() {
  MemoryOptions out;
  out.slow_from = slow_from;
  out.end = 1024 * mib;
  out.tiers[0].latency = 90'000;
  out.tiers[1].latency = 250'000;
  return out;
}

/// One instruction after the other, with the same address in both spaces.
class Core {
 public:
  explicit Core(const MemoryOptions& options = two_tiers()) : model(options) {}

  MemoryModel::Cost load(std::uint64_t address, std::uint64_t value = 1) {
    return access(address, false, value);
  }
  MemoryModel::Cost store(std::uint64_t address) { return access(address, true, 0); }
  /// Of all accesses since it was asked last, in ps.
  Picos took() {
    const Picos out = total_ - told_;
    told_ = total_;
    return out;
  }

  MemoryModel model;
  MemoryModel::Site site;
  std::uint64_t instructions = 0;
  std::uint64_t gap = 1000;  // instructions between two accesses

 private:
  MemoryModel::Cost access(std::uint64_t address, bool store, std::uint64_t value) {
    instructions += gap;
    if (!model.passes_filter(address)) return {Outcome::device, 0, 0};
    const MemoryModel::Cost cost = model.access({.address = address,
                                                 .physical = address,
                                                 .instructions = instructions,
                                                 .value = value,
                                                 .has_value = true,
                                                 .store = store},
                                                site);
    total_ += cost.picos;
    model.passed(total_);
    return cost;
  }
  Picos total_ = 0, told_ = 0;
};

/// Pages of random lines, so that no stride is seen.
std::uint64_t random_line(tt::Rng& rng, std::uint64_t from, std::uint64_t bytes) {
  return from + rng.below(bytes / line) * line;
}

}  // namespace

TEST("emulated memory: a miss costs its node's latency, and what was fetched is near") {
  Core core;
  const auto fast = core.load(64 * mib);
  CHECK(fast.outcome == Outcome::miss && fast.tier == 0 && fast.picos == 90'000);
  const auto slow = core.load(700 * mib);
  CHECK(slow.outcome == Outcome::miss && slow.tier == 1 && slow.picos == 250'000);
  CHECK(core.load(700 * mib + 8).picos == 0);  // the filter has it
  core.model.clear_filter();
  const auto again = core.load(700 * mib + 8);
  CHECK(again.outcome == Outcome::l2 && again.picos == two_tiers().l2_hit);
  CHECK(core.model.counters().misses == (std::array<std::uint64_t, 2>{1, 1}));
  CHECK(core.load(2000 * mib).outcome == Outcome::device);
}

TEST("emulated memory: the last level has what the second has lost, by its size") {
  Core core;
  tt::Rng rng{1};
  const auto pass = [&](std::uint64_t bytes) {  // lines in a random order, twice
    std::vector<std::uint64_t> lines;
    for (std::uint64_t at = 0; at < bytes; at += line) lines.push_back(at);
    for (std::size_t left = lines.size(); left > 1; --left)
      std::swap(lines[left - 1], lines[rng.below(left)]);
    for (const std::uint64_t at : lines) core.load(at);
    core.model.clear_counters();
    for (const std::uint64_t at : lines) core.load(at);
    return core.model.counters();
  };
  const auto small = pass(1 * mib);  // of 2
  CHECK(small.misses[0] == 0 && small.llc_hits > small.l2_hits);
  const auto large = pass(16 * mib);
  CHECK(large.misses[0] > 10 * large.llc_hits);
}

TEST("emulated memory: lines in a row are prefetched, in either direction, by one instruction") {
  for (const std::int64_t step : {64, -64, 128}) {
    Core core;
    std::uint64_t at = 800 * mib;
    for (int i = 0; i < 1000; ++i, at += static_cast<std::uint64_t>(step)) core.load(at);
    CHECK(core.model.counters().prefetched[1] >= 995);
    CHECK(core.took() <= 5 * 250'000 + 995 * 25'000);
  }
  Core far;
  for (std::uint64_t i = 0; i < 1000; ++i) far.load(600 * mib + i * 4096);
  CHECK(far.model.counters().prefetched[1] == 0);
}

TEST("emulated memory: independent misses overlap within a window, dependent ones do not") {
  tt::Rng rng{2};
  const auto run = [&](bool chase, std::uint64_t gap) {
    Core core;
    core.gap = gap;
    std::uint64_t at = 600 * mib;
    for (int i = 0; i < 10'000; ++i) {
      const std::uint64_t next = random_line(rng, 600 * mib, 256 * mib);
      core.load(at, chase ? next : 1);
      at = next;
    }
    return core.took() / 10'000;
  };
  CHECK(run(true, 1) > 245'000);
  CHECK(run(false, 1000) > 245'000);                         // none within 192 instructions
  CHECK(run(false, 1) < 60'000 && run(false, 1) >= 25'000);  // ten at a time
  CHECK(run(false, 50) > run(false, 1));                     // four at a time
}

TEST("emulated memory: a store waits for its share of the latency") {
  MemoryOptions some = two_tiers();
  some.tiers[1].store_stall = 0.3;
  Core core(some);
  CHECK(core.store(700 * mib).picos == 75'000);
  CHECK(core.model.counters().stores[1] == 1);
}

TEST("emulated memory: load raises the latency of the next window") {
  MemoryOptions busy = two_tiers();
  busy.tiers[1].gbps = 1;
  busy.tiers[1].loaded = {{0, 1}, {0.5, 1}, {1, 3}};
  Core core(busy);
  core.gap = 1;
  tt::Rng rng{3};
  CHECK(core.model.latency(1) == 250'000);
  for (int i = 0; i < 20'000; ++i) core.load(random_line(rng, 600 * mib, 256 * mib));
  CHECK(core.model.latency(1) > 260'000);  // 64 bytes each 25 ns were 2.6 GB/s
  CHECK(core.model.latency(0) == 90'000);
  core.gap = 1000;
  for (int i = 0; i < 2000; ++i) core.load(random_line(rng, 600 * mib, 256 * mib));
  CHECK(core.model.latency(1) == 250'000);  // a quarter of 1 GB/s
}

TEST("emulated memory: impossible machines are refused") {
  const auto refused = [](auto change) {
    MemoryOptions wrong = two_tiers();
    change(wrong);
    try {
      MemoryModel model(wrong);
      return false;
    } catch (const std::invalid_argument&) {
      return true;
    }
  };
  CHECK(!refused([](MemoryOptions&) {}));
  CHECK(refused([](MemoryOptions& o) { o.end = slow_from - 1; }));
  CHECK(refused([](MemoryOptions& o) { o.tiers[0].latency = 0; }));
  CHECK(refused([](MemoryOptions& o) { o.tiers[1].gbps = -1; }));
  CHECK(refused([](MemoryOptions& o) { o.tiers[1].loaded = {{0, 1}, {0, 2}}; }));
  CHECK(refused([](MemoryOptions& o) { o.buffers = 0; }));
}

namespace {

struct Ring {
  alignas(8) std::array<char, ring_bytes> memory{};
  SampleRing& head() { return *reinterpret_cast<SampleRing*>(memory.data()); }
  const SampleRecord& record(std::size_t i) {
    return reinterpret_cast<const SampleRecord*>(memory.data() + ring_header_bytes)[i];
  }
};

std::uint64_t feed(Sampler& sampler, std::uint64_t count, bool store = false,
                   bool by_time = false) {
  std::uint64_t taken = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Sampler::Miss miss{i * 100, i * line, i * line, store, i % 2 == 1};
    const Sampler::Wants wants = sampler.wants(miss);
    if (wants == Sampler::Wants::nothing) continue;
    CHECK((wants == Sampler::Wants::by_time) == by_time);
    sampler.take(miss, 7, 8);
    ++taken;
  }
  return taken;
}

}  // namespace

TEST("emulated sampler: a period counts misses of a kind, and no reader means no samples") {
  static Ring ring;
  Sampler sampler(ring.memory.data());
  CHECK(ring.head().magic == ring_magic && ring.head().version == ring_version);
  CHECK(ring.head().records == ring_records);
  CHECK(feed(sampler, 1000) == 0);
  ring.head().period[0] = 10;
  CHECK(feed(sampler, 1000) == 100);
  CHECK(feed(sampler, 1000, true) == 0);
  ring.head().period[1] = 3;
  CHECK(feed(sampler, 999, true) == 333);
  CHECK(ring.head().head == 433);
  CHECK(ring.head().misses[0][0] == 1000 && ring.head().misses[0][1] == 1000);
  CHECK(ring.head().misses[1][0] + ring.head().misses[1][1] == 1999);
  const SampleRecord& last = ring.record(432);
  CHECK(last.pid == 7 && last.tid == 8 && last.kind == 1);
  CHECK(last.address == 64 * (last.time_ns / 100) && last.tier == last.time_ns / 100 % 2);
}

TEST("emulated sampler: a shorter period holds at once, and time may be what counts") {
  static Ring ring;
  Sampler sampler(ring.memory.data());
  ring.head().period[0] = 1'000'000;
  CHECK(feed(sampler, 10) == 1);  // the first one, and then a million later
  ring.head().period[0] = 5;
  CHECK(feed(sampler, 50) >= 9);
  ring.head().period[0] = 0;
  ring.head().interval_ns[0] = 1000;
  const std::uint64_t taken = feed(sampler, 100'000, false, true);  // 100 ns each
  CHECK(taken >= 9900 && taken <= 10'200);
}

TEST("emulated sampler: by time there are as many samples where misses come in short bursts") {
  const auto of_bursts = [](std::uint64_t burst) {
    static Ring ring;
    Sampler sampler(ring.memory.data());
    ring.head().interval_ns[0] = 10'000;
    std::uint64_t taken = 0;
    for (std::uint64_t i = 0; i < 500'000; ++i) {  // 10 M misses a second
      const std::uint64_t time = i / burst * burst * 100 + i % burst * 10;
      taken += sampler.wants({time, 0, 0, false, 0}) == Sampler::Wants::by_time;
    }
    return taken;
  };
  for (const std::uint64_t burst : {1u, 10u, 50u})
    CHECK(of_bursts(burst) >= 4950 && of_bursts(burst) <= 5150);
  // Within a burst of many samples the period follows the burst's own rate, as in Linux.
  CHECK(of_bursts(5000) < 1000);
}

TEST("emulated sampler: by time it follows a rate that changes, and misses rarer than it asks") {
  static Ring ring;
  Sampler sampler(ring.memory.data());
  ring.head().interval_ns[1] = 10'000;
  std::uint64_t time = 0;
  const auto second = [&](std::uint64_t gap) {
    std::uint64_t taken = 0;
    for (const std::uint64_t end = time + 1'000'000'000; time < end; time += gap)
      taken += sampler.wants({time, 0, 0, true, 1}) == Sampler::Wants::by_time;
    return taken;
  };
  for (const std::uint64_t gap : {20u, 2000u, 50u}) {
    second(gap);
    const std::uint64_t taken = second(gap);
    CHECK(taken >= 98'000 && taken <= 102'000);
  }
  second(1'000'000);
  CHECK_EQ(second(1'000'000), 1000u);  // each of them
}

TEST("emulated sampler: what the reader has not read is kept, and what has no room is lost") {
  static Ring ring;
  Sampler sampler(ring.memory.data());
  ring.head().period[0] = 1;
  feed(sampler, ring_records + 50);
  CHECK(ring.head().head == ring_records && sampler.lost() == 50);
  CHECK(ring.record(0).address == 0);
  ring.head().tail = 10;
  feed(sampler, 20);
  CHECK(ring.head().head == ring_records + 10 && sampler.lost() == 60);
  CHECK(ring.record(9).time_ns == 900 && ring.record(10).time_ns == 1000);
}

TEST("emulated machine: markers are instructions that do nothing, and are told from others") {
  const auto* const code = reinterpret_cast<const std::uint8_t*>(
      "\x0f\x1f\x80\x04\x00\x54\x54\x0f\x1f\x80\x04\x00\x54\x55");
  CHECK(marker_of(code, 7) == static_cast<std::uint8_t>(Marker::end));
  CHECK(marker_of(code + 7, 7) == 0);
  CHECK(marker_of(code, 6) == 0);
  mark<Marker::begin>();
  mark<Marker::own_processor>();
}
