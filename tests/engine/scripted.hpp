// SPDX-License-Identifier: MIT

// A policy that does what a test tells it, and runs of it on the simulated machine.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "check.hpp"
#include "sim/simulate.hpp"
#include "sim_streams.hpp"

namespace simtest {

/// What a test policy does; every hook is optional.
struct Hooks {
  std::function<Tier(PageRange)> placement;
  std::function<void(Memory&)> start;
  std::function<void(Memory&, Nanos)> tick;
  std::function<void(Memory&, std::span<const Sample>, Nanos)> samples;
  std::function<void(Memory&, std::span<const MigrationResult>, Nanos)> migrated;
  std::function<void(Memory&, std::span<const Fault>, Nanos)> faults;
  std::function<void(PageRange, bool)> range;  // true: mapped
  std::function<Heat(PageId)> heat;
  std::function<void(const Knobs&)> knobs;
  std::uint64_t metadata_bytes = 1000;
  Nanos period = from_millis(10);
};
inline const Hooks* hooks = nullptr;  // of the run under way; tests run one after the other

class Scripted final : public Policy {
 public:
  explicit Scripted(const PolicyContext& context) : memory_(context.memory) {
    if (hooks->knobs) hooks->knobs(context.knobs);
    if (hooks->start) hooks->start(memory_);
  }
  void on_map(PageRange range, std::uint32_t, Nanos) override {
    if (hooks->range) hooks->range(range, true);
  }
  void on_unmap(PageRange range, Nanos) override {
    if (hooks->range) hooks->range(range, false);
  }
  [[nodiscard]] Tier placement(PageRange range) const override {
    return hooks->placement ? hooks->placement(range) : Tier::fast;
  }
  void on_samples(std::span<const Sample> samples, Nanos now) override {
    if (hooks->samples) hooks->samples(memory_, samples, now);
  }
  void on_faults(std::span<const Fault> faults, Nanos now) override {
    if (hooks->faults) hooks->faults(memory_, faults, now);
  }
  void tick(Nanos now) override {
    if (hooks->tick) hooks->tick(memory_, now);
  }
  [[nodiscard]] Nanos tick_period() const override { return hooks->period; }
  void on_migrated(std::span<const MigrationResult> results, Nanos now) override {
    if (hooks->migrated) hooks->migrated(memory_, results, now);
  }
  [[nodiscard]] std::uint64_t metadata_bytes() const override { return hooks->metadata_bytes; }
  void gauges(Gauges& out) const override { out["answer"] = 42; }
  [[nodiscard]] Heat heat(PageId page) const override {
    return hooks->heat ? hooks->heat(page) : Heat::cold;
  }

 private:
  Memory& memory_;
};

inline PolicyInfo scripted(PolicyTraits traits = {}, std::vector<KnobDecl> knobs = {}) {
  PolicyInfo info;
  info.name = "scripted";
  info.family = "test";
  info.knobs = std::move(knobs);
  info.traits = traits;
  info.make = [](const PolicyContext& context) -> std::unique_ptr<Policy> {
    return std::make_unique<Scripted>(context);
  };
  return info;
}

inline sim::RunResult run(TempStream& stream, const sim::MachineProfile& machine, const Hooks& what,
                          sim::RunOptions options = {}, PolicyTraits traits = {}) {
  hooks = &what;
  options.coarse = true;  // what is tested here happens to a few pages
  return sim::simulate(stream.reader(), machine, scripted(traits), {}, options);
}

inline sim::RunOptions share(double fast_share) {
  sim::RunOptions options;
  options.fast_share = fast_share;
  return options;
}

/// `blocks` timed blocks, each 100 loads of every page.
inline void write_even(const TempStream& file, std::uint32_t pages, int blocks, double scale = 1,
                       AccessKind kind = AccessKind::load, double store_fill = 1) {
  trace::StreamInfo info = simtest::one_class(pages, scale, 2);
  info.classes[0].store_fill = store_fill;
  StreamWriter writer{file, info};
  simtest::map_and_touch(writer, 0, pages);
  writer.block(false, 1000);
  for (int b = 0; b < blocks; ++b) {
    simtest::Part part;
    part.kind = kind;
    for (std::uint32_t page = 0; page < pages; ++page) {
      part.pages.push_back(page);
      part.counts.push_back(100);
    }
    writer.parts = {part};
    writer.block(true, 100.0 * pages * scale * 100 / 2 / 4);
  }
  writer.finish();
}

inline void check_breakdown(const sim::RunResult& result) {
  double sum = 0;
  for (const auto& [name, seconds] : result.breakdown) {
    CHECK(seconds >= 0);
    sum += seconds;
  }
  CHECK_NEAR(sum, result.seconds, 1e-9 * result.seconds);
}

}  // namespace simtest
