// SPDX-License-Identifier: MIT

// A policy whose every part of the seam is a hook, runs of it, and streams of Poisson pages: for
// tests of what waits for the next access to a page.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "check.hpp"
#include "sim/simulate.hpp"
#include "sim_streams.hpp"

namespace hooked {

using namespace tt;
using namespace tt::sim;
using simtest::StreamWriter;
using simtest::TempStream;

/// What a policy under test does; every hook is optional.
struct Hooks {
  std::function<void(Memory&)> start;
  std::function<void(Memory&, PageRange, std::uint32_t)> map;
  std::function<Tier(Memory&, PageRange)> placement;
  std::function<void(Memory&, Nanos)> tick;
  std::function<void(Memory&, std::span<const Fault>, Nanos)> faults;
  std::function<void(Memory&, std::span<const Probe>, Nanos)> probed;
  std::function<void(Memory&, Tier)> pressure;
  Nanos period = from_millis(10);
};
inline const Hooks* hooks = nullptr;  // of the run under way

class Hooked final : public Policy {
 public:
  explicit Hooked(const PolicyContext& context) : memory_(context.memory) {
    if (hooks->start) hooks->start(memory_);
  }
  void on_map(PageRange range, std::uint32_t site, Nanos) override {
    if (hooks->map) hooks->map(memory_, range, site);
  }
  void on_unmap(PageRange, Nanos) override {}
  Tier placement(PageRange range) const override {
    return hooks->placement ? hooks->placement(memory_, range) : Tier::fast;
  }
  void on_samples(std::span<const Sample>, Nanos) override {}
  void on_faults(std::span<const Fault> faults, Nanos now) override {
    if (hooks->faults) hooks->faults(memory_, faults, now);
  }
  void on_probed(std::span<const Probe> probes, Nanos now) override {
    if (hooks->probed) hooks->probed(memory_, probes, now);
  }
  void on_pressure(Tier tier, Nanos) override {
    if (hooks->pressure) hooks->pressure(memory_, tier);
  }
  void tick(Nanos now) override {
    if (hooks->tick) hooks->tick(memory_, now);
  }
  Nanos tick_period() const override { return hooks->period; }
  void on_migrated(std::span<const MigrationResult>, Nanos) override {}
  std::uint64_t metadata_bytes() const override { return 0; }
  void gauges(Gauges&) const override {}
  Heat heat(PageId) const override { return Heat::cold; }

 private:
  Memory& memory_;
};

inline RunResult run(TempStream& stream, const MachineProfile& machine, const Hooks& what,
                     RunOptions options = {.fast_share = 0.5},
                     Granularity placement = Granularity::range) {
  hooks = &what;
  options.coarse = true;  // what is tested here happens to a few pages
  PolicyInfo info;
  info.name = "hooked";
  info.traits.needs = Need::faults | Need::accessed_bits | Need::probes | Need::tier_counters;
  info.traits.placement = placement;
  info.make = [](const PolicyContext& context) -> std::unique_ptr<Policy> {
    return std::make_unique<Hooked>(context);
  };
  return simulate(stream.reader(), machine, info, {}, options);
}

/// Pages that are each accessed by a Poisson process of `rate` a second, in blocks of computation
/// that last `block_ms`. A page's accesses come at the same times whatever the blocks' length is.
/// With `stores`, every fourth page is stored to.
inline void write_poisson(const TempStream& file, std::uint32_t pages, double scale,
                          const std::function<double(std::uint32_t)>& rate, double seconds,
                          int block_ms = 20, bool stores = false) {
  StreamWriter writer{file, simtest::one_class(pages, scale)};
  simtest::map_and_touch(writer, 0, pages);
  writer.block(false, 1);
  Rng rng{5};
  std::vector<double> next(pages);
  for (std::uint32_t page = 0; page < pages; ++page) next[page] = rng.exponential(1 / rate(page));
  std::vector<std::uint16_t> counts(pages);
  for (int ms = block_ms; ms <= seconds * 1000; ms += block_ms) {
    simtest::Part parts[2];
    parts[1].kind = AccessKind::store;
    for (std::uint32_t page = 0; page < pages; ++page) {
      std::uint16_t count = 0;
      for (; next[page] * 1000 < ms; ++count) {
        Rng own{mix64(static_cast<std::uint64_t>(next[page] * 1e9) ^ page)};
        next[page] += own.exponential(1 / rate(page));
      }
      if (count == 0) continue;
      simtest::Part& part = parts[stores && page % 4 == 3 ? 1 : 0];
      part.pages.push_back(page);
      part.counts.push_back(count);
    }
    for (simtest::Part& part : parts)
      if (!part.pages.empty()) writer.parts.push_back(std::move(part));
    writer.compute()[0] = block_ms * 1e6 * 4 / scale;  // four threads
    writer.block(true, block_ms * 1e6);
  }
  writer.finish();
}

inline double four_a_second(std::uint32_t) { return 4; }

/// What protecting all pages of a Poisson stream every 480 ms finds.
struct Faults {
  double per_second = 0;  // of a real page
  double mean_since = 0;  // seconds
  double rate = 0;        // accesses to a page per second, in virtual time
};

inline Faults faults_of(TempStream& stream, std::uint64_t pages) {
  double count = 0;
  double since = 0;
  Hooks policy;
  policy.period = from_millis(480);
  policy.tick = [&](Memory& memory, Nanos) { (void)memory.protect({{0}, pages}, Tiers::both, {}); };
  policy.faults = [&](Memory&, std::span<const Fault> faults, Nanos) {
    for (const Fault& fault : faults) {
      count += 1;
      since += seconds(fault.since);
    }
  };
  // Only computation takes time, so that ticks fall on the same borders in all streams.
  MachineProfile machine = simtest::plain_machine();
  for (TierProfile& tier : machine.tiers) tier.latency_ns = 1e-3;
  machine.hint_fault_us = machine.pte_ns = machine.tlb_flush_us = 0;
  const RunResult result = run(stream, machine, policy);
  const double scale = stream.reader().info().scale;
  const double real = static_cast<double>(pages) * scale;
  CHECK_NEAR(result.metrics.at("hint_faults"), count * scale, 1e-6 * count * scale);
  return {
      count / static_cast<double>(pages) / result.seconds, since / count,
      (result.metrics.at("loads_fast") + result.metrics.at("loads_slow")) / real / result.seconds};
}

}  // namespace hooked
