// SPDX-License-Identifier: MIT

// What the simulated machine must hold as a whole: results that do not depend on the miniature's
// scale nor on the block length, and a published measurement.
#include <filesystem>
#include <map>
#include <string_view>

#include "check.hpp"
#include "kernels/kernel.hpp"
#include "sim/simulate.hpp"
#include "sim_streams.hpp"

namespace {

using namespace tt;
using namespace tt::sim;
using simtest::TempStream;

/// 64 GiB with a popularity of exponent 0.9, of which half moves on within 40 s: at 1:8 every
/// policy migrates all the time.
simtest::ZipfOptions drifting(double scale, double block_ms) {
  return {.full_pages = 1 << 24,
          .scale = scale,
          .exponent = 0.6,
          .rate = 40e6,
          .seconds = 8,
          .block_ms = block_ms,
          .drift_seconds = 40,
          .seed = 3};
}

KnobMap active_knobs(const PolicyInfo& policy) {
  // A run of seconds instead of an hour needs more samples to act upon.
  if (policy.name == "hemem")
    return {{"sampling_period", std::int64_t{100}},
            {"write_sampling_period", std::int64_t{1000}},
            {"cooling_threshold", std::int64_t{8}},
            {"read_hot_threshold", std::int64_t{2}}};
  // It promotes into the room between two watermarks, a thousandth of the fast tier: the coarsest
  // miniature would have one page there.
  if (policy.name == "nbt") return {{"watermark_scale", 0.01}};
  return {};
}

RunResult run(TempStream& stream, const PolicyInfo& policy) {
  MachineProfile machine = simtest::full_machine();
  machine.sample_queue = 4e5;
  RunOptions options;
  options.threads = 4;
  options.page_bytes = 4096;
  options.coarse = true;  // at the larger of two scales
  options.seed = 1;
  return simulate(stream.reader(), machine, policy, active_knobs(policy), options);
}

/// skx of Soar/Alto (OSDI'25, §6.1, §6.9), as in engine/machines/skx.yaml.
MachineProfile skx() {
  MachineProfile machine = simtest::plain_machine();
  machine.name = "skx";
  machine.ghz = 2.2;
  machine.tiers[0] = {90, 49, 29.4, 49, {{0, 1}, {0.5, 1.12}, {0.81, 1.56}, {0.98, 2}, {1, 2.1}},
                      0.3};
  machine.tiers[1] = {190, 17, 15, 25.5, {{0, 1}, {0.5, 1.15}, {0.8, 1.6}, {0.95, 2.1}, {1, 2.4}},
                      0.3};
  return machine;
}

/// Puts the ranges mapped first (the sequential buffer) or last (the chase) into the fast tier.
template <int Wanted>
class ByObject final : public Policy {
 public:
  explicit ByObject(const PolicyContext&) {}
  void on_map(PageRange range, std::uint32_t, Nanos) override { ranges_.push_back(range); }
  void on_unmap(PageRange, Nanos) override {}
  [[nodiscard]] Tier placement(PageRange range) const override {
    return ranges_.at(Wanted).contains(range.first) ? Tier::fast : Tier::slow;
  }
  void on_samples(std::span<const Sample>, Nanos) override {}
  void tick(Nanos) override {}
  [[nodiscard]] Nanos tick_period() const override { return from_seconds(1); }
  void on_migrated(std::span<const MigrationResult>, Nanos) override {}
  [[nodiscard]] std::uint64_t metadata_bytes() const override { return 0; }
  void gauges(Gauges&) const override {}
  [[nodiscard]] Heat heat(PageId) const override { return Heat::cold; }

 private:
  std::vector<PageRange> ranges_;
};

template <int Wanted>
PolicyInfo by_object() {
  PolicyInfo info;
  info.name = "by-object";
  info.make = [](const PolicyContext& context) -> std::unique_ptr<Policy> {
    return std::make_unique<ByObject<Wanted>>(context);
  };
  return info;
}

/// Policies that miss the bound of 3 %, and what they come within. The fast tier has room for 256
/// neighbourhoods of unified whatever the scale: the finest miniature has 16 times as many pages in
/// each as the coarsest, and its run is 3.5 % shorter than that of the one between.
const std::map<std::string_view, double> by_scale{{"unified", 0.04}};

}  // namespace

TEST("sim: R, R/4 and 4R agree within 3 % for every policy, but for those that are named") {
  TempStream quarter;
  TempStream base;
  TempStream four;
  simtest::write_zipf(quarter, drifting(128, 10));
  simtest::write_zipf(base, drifting(512, 10));
  simtest::write_zipf(four, drifting(2048, 10));
  for (const PolicyInfo& policy : policies()) {
    const RunResult expected = run(base, policy);
    for (TempStream* other : {&quarter, &four}) {
      const RunResult result = run(*other, policy);
      const double ratio = result.seconds / expected.seconds;
      const auto missed = by_scale.find(policy.name);
      const double bound = missed == by_scale.end() ? 0.03 : missed->second;
      if (std::abs(ratio - 1) > bound)
        std::cerr << policy.name << " at R = " << other->reader().info().scale << ":\n";
      CHECK_NEAR(ratio, 1, bound);
      CHECK_NEAR(result.metrics.at("fast_hit_ratio"), expected.metrics.at("fast_hit_ratio"), 0.03);
    }
  }
}

TEST("sim: half and double the block length agree within 2 % for every policy") {
  TempStream half;
  TempStream base;
  TempStream twice;
  simtest::write_zipf(half, drifting(512, 5));
  simtest::write_zipf(base, drifting(512, 10));
  simtest::write_zipf(twice, drifting(512, 20));
  for (const PolicyInfo& policy : policies()) {
    const double expected = run(base, policy).seconds;
    for (TempStream* other : {&half, &twice}) {
      const double ratio = run(*other, policy).seconds / expected;
      if (std::abs(ratio - 1) > 0.02) std::cerr << policy.name << ":\n";
      CHECK_NEAR(ratio, 1, 0.02);
    }
  }
}

TEST("sim: no policy beats all-fast or loses accesses") {
  TempStream stream;
  simtest::write_zipf(stream, drifting(2048, 10));
  const double all_fast = run(stream, policy("all-fast")).seconds;
  const double all_slow = run(stream, policy("all-slow")).seconds;
  CHECK(all_slow > 1.5 * all_fast);
  for (const PolicyInfo& policy : policies()) {
    const RunResult result = run(stream, policy);
    CHECK(result.seconds >= all_fast * (1 - 1e-12));
    CHECK_NEAR(result.metrics.at("loads_fast") + result.metrics.at("loads_slow") +
                   result.metrics.at("stores_fast") + result.metrics.at("stores_slow"),
               static_cast<double>(stream.reader().info().accesses) * 2048, 1);
  }
}

TEST("sim: Figure 1 of Soar/Alto, sequential and chase buffers on skx") {
  // The paper's figure is the run time of both threads together, relative to all in the fast tier:
  // sequential on fast 52.4 %, chase on fast 1.34 times that, all slow 47.4 %. What remains: the
  // chase is purely latency-bound here (190 / 90 = 2.11), while the paper's loses 1.91 when alone
  // on the slow tier, so some of its steps hit caches or overlap.
  TempStream stream;
  kernels::RecordRequest request;
  request.workload = "microbench";
  request.input = "test";
  request.scale = 8192;
  request.threads = 2;
  request.llc_bytes = 13.75 * (1 << 20);
  request.file = stream.path();
  (void)kernels::record("microbench", request);
  const auto seconds = [&](const PolicyInfo& policy, double fast_share) {
    RunOptions options;
    options.fast_share = fast_share;
    options.page_bytes = 4096;
    options.coarse = true;  // half of 128 pages
    return simulate(stream.reader(), skx(), policy, {}, options).seconds;
  };
  const double all_fast = seconds(policy("all-fast"), 1);
  const double hot = all_fast / seconds(by_object<0>(), 0.5);
  const double cold = all_fast / seconds(by_object<1>(), 0.5);
  const double all_slow = all_fast / seconds(policy("all-slow"), 0.5);
  std::cout << "  sequential on fast " << 100 * hot << " %, chase on fast " << 100 * cold << " % ("
            << cold / hot << "x), all slow " << 100 * all_slow << " %\n";
  CHECK_NEAR(hot, 0.524, 0.10);
  CHECK_NEAR(cold, 0.524 * 1.34, 0.10);
  CHECK_NEAR(all_slow, 0.474, 0.10);
}
