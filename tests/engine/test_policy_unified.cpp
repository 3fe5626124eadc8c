// SPDX-License-Identifier: MIT

#include <algorithm>
#include <bit>
#include <string>

#include "check.hpp"
#include "fake_memory.hpp"
#include "filter_effects.hpp"
#include "kernels/kernel.hpp"
#include "knob_effects.hpp"
#include "profiling_effects.hpp"
#include "regulate/harm_gate.hpp"
#include "regulate/latency_gain.hpp"
#include "scratch.hpp"
#include "sim/simulate.hpp"
#include "sim_streams.hpp"
#include "trace/reader.hpp"

using namespace tt;
using test::Entry;
using test::gauge_after;
using test::joined;
using test::metadata;
using test::Rig;
using test::sampling_after;
using test::span_of;
using test::Then;
using test::whole;
using test::with;
using Pages = std::vector<std::uint64_t>;

namespace {

KnobValue text(const char* value) { return std::string{value}; }

// --- Knob effects --------------------------------------------------------------------------------

/// So many windows of five seconds with ten promotions each, and this hit ratio.
void windows(Rig& r, unsigned count, double ratio, std::uint64_t promotions = 10) {
  for (; count > 0; --count) {
    std::vector<MigrationResult> results(promotions);
    r.policy->on_migrated(results, r.now);
    r.memory.now.loads[0] += 1000 * ratio;
    r.memory.now.loads[1] += 1000 * (1 - ratio);
    r.run(5);
  }
}
/// Closed, for so many of the next ten windows.
auto closed(double ratio, double later, std::uint64_t promotions = 10) {
  return [=](Rig& r) {
    double sum = 0;
    windows(r, 1, ratio, promotions);
    for (int n = 0; n < 16; ++n) {
      windows(r, 1, n < 6 ? ratio : later, promotions);
      sum += r.gauge("gate_closed");
    }
    return sum;
  };
}
/// Ten pages are hot, and many more than fit are less so. Whether a neighbour of the hot ones,
/// which was never sampled before, is promoted at its first sample; `later`: rounds of the others
/// since.
auto comes_at_first_sample(unsigned later) {
  return [=](Rig& r) {
    r.sample(span_of(20, 9), 12);
    r.sample(span_of(40, 60), later);
    r.sample({29});
    return static_cast<double>(std::ranges::count(r.memory.queued(Tier::fast), 29U));
  };
}

/// HybridTier's parts, and the gate: what the tests then change.
const KnobMap base = with(test::hybridtier_base(), {{"filters", text("both")},
                                                    {"intensity", text("fixed")},
                                                    {"gate", true},
                                                    {"neighbours", false}});

std::vector<Entry> entries() {
  const KnobMap full{{"promote_watermark", 0.1}, {"demote_watermark", 0.9}};
  const KnobMap soon{{"adaptation_period", 10.0}};
  const KnobMap beside{
      {"adaptation_period", 10.0}, {"neighbourhoods", 2.0}, {"neighbour_cooling_period", 100.0}};
  const KnobMap neighbours = with(beside, {{"neighbours", true}});
  std::vector<Entry> own{
      {"preset", text("ours"), text("freqtier"), Then::less, metadata},
      {"preset", text("hybridtier"), text("freqtier"), Then::less, metadata},
      {"preset", text("freqtier"), text("static"), Then::less, metadata},
      {"filters", text("both"), text("frequency"), Then::less, metadata},
      {"filters", text("both"), text("momentum"), Then::less, metadata},
      {"threshold", text("fill"), text("step"), Then::differs,
       gauge_after("frequency_threshold", 3, 40),
       with(soon, {{"frequency_threshold_floor", whole(1)}})},
      {"threshold", text("step"), text("fixed"), Then::more,
       gauge_after("frequency_threshold", 3, 40), soon},
      {"sampling_by", text("period"), text("frequency"), Then::differs,
       [](Rig& r) {
         r.memory.now.loads[0] += 1000;
         r.run(1);
         return static_cast<double>(r.memory.sampling.back().loads.mode);
       }},
      {"intensity", text("fixed"), text("ladder"), Then::less, sampling_after(0.7, 0.7)},
      {"second_chance", false, true, Then::differs,
       [](Rig& r) {
         r.sample(span_of(0, 20), 8);
         r.map(0, 20);
         r.run(1);
         Gauges gauges;
         r.policy->gauges(gauges);
         return gauges["second_chance_pages"];
       },
       full, 4096, false},
      {"gate", false, true, Then::less,
       [](Rig& r) {
         windows(r, 5, 0.5);
         r.sample(span_of(20, 10), 12);
         return test::promotions(r);
       }},
      {"neighbours", false, true, Then::more, comes_at_first_sample(1), beside},
      {"neighbourhoods", 2.0, 20.0, Then::less, comes_at_first_sample(1), neighbours},
      {"neighbour_cooling_period", 0.5, 100.0, Then::more, comes_at_first_sample(4), neighbours},
      {"rate_margin", 1.0, 10.0, Then::less, comes_at_first_sample(1), neighbours},
      {"preset_frequency_cooling_period",
       1.0,
       3.0,
       Then::less,
       gauge_after("frequency_coolings", 3, 100),
       {{"preset", text("hybridtier")}}},
      {"preset_sampling_frequency",
       1000.0,
       3000.0,
       Then::more,
       [](Rig& r) { return r.memory.sampling.back().loads.value; },
       {{"preset", text("freqtier")}}},
      {"preset_stable_band",
       0.01,
       0.1,
       Then::less,
       sampling_after(0.7, 0.75),
       {{"preset", text("freqtier")}}},
      // Without a placement it is a profiling run, which samples misses by their number.
      {"placement", text("first-touch"), text("profile"), Then::differs,
       [](Rig& r) { return static_cast<double>(r.memory.sampling.back().loads.mode); }},
      {"gate_window", 5000.0, 10000.0, Then::less, closed(0.5, 0.5)},
      {"gate_band", 0.005, 0.2, Then::more, closed(0.5, 0.4)},
      {"gate_patience", whole(2), whole(5), Then::less, closed(0.5, 0.5)},
      {"gate_promotions", 0.1, 0.9, Then::less, closed(0.5, 0.5)},
      {"gate_pause", 5000.0, 60000.0, Then::more, closed(0.5, 0.5)},
  };
  return joined(
      std::move(own),
      test::ladder_entries({{"intensity", text("ladder")}, {"frequency_cooling_period", 0.6}}),
      test::hybridtier_entries(),
      test::profiling_entries("profile_sampling_period", {{"placement", text("profile")}}));
}

const test::RegisterEffects effects{"unified", base, entries()};

// --- Bit by bit ----------------------------------------------------------------------------------

/// A published system's name of what is called otherwise in ours.
std::string renamed(const std::string& name, const std::string& policy) {
  if (name == "stable_band") return "preset_stable_band";
  if (name == "sampling_frequency") return "preset_sampling_frequency";
  if (name == "frequency_cooling_period") return "preset_frequency_cooling_period";
  if (policy == "freqtier" && name == "hot_threshold") return "frequency_threshold";
  if (policy == "freqtier" && name == "coolings") return "frequency_coolings";
  if (policy == "freqtier" && name == "cooling_period") return "preset_frequency_cooling_period";
  return name;
}

/// What is not the same to the last bit.
std::string difference(const sim::RunResult& published, const sim::RunResult& preset,
                       const std::string& policy) {
  const auto same = [](double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  };
  if (!same(published.seconds, preset.seconds)) return "seconds";
  if (!same(published.total_seconds, preset.total_seconds)) return "total_seconds";
  if (!same(published.operations, preset.operations)) return "operations";
  const auto same_sums = [&](const auto& some, const auto& others) {
    return std::ranges::equal(some, others, [&](const auto& one, const auto& other) {
      return one.first == other.first && same(one.second, other.second);
    });
  };
  if (!same_sums(published.metrics, preset.metrics)) return "metrics";
  if (!same_sums(published.breakdown, preset.breakdown)) return "breakdown";
  if (published.latency.size() != preset.latency.size()) return "number of latencies";
  for (const auto& [name, latency] : published.latency) {
    const auto& other = preset.latency.at(name);
    if (!same(latency.mean, other.mean) || !same(latency.p999, other.p999)) return name;
  }
  if (published.series.size() != preset.series.size()) return "number of columns";
  for (const auto& [name, column] : published.series) {
    const std::string prefix = name.starts_with("policy.") ? "policy." : "";
    const auto found = preset.series.find(prefix + renamed(name.substr(prefix.size()), policy));
    if (found == preset.series.end()) return "no column " + name;
    if (!std::ranges::equal(column, found->second, same)) return "column " + name;
  }
  return {};
}

/// Both systems against their presets, with those of the knobs that each has.
void compare(const trace::Reader& reader, const sim::RunOptions& options, const KnobMap& knobs) {
  const auto machine = simtest::full_machine();
  for (const std::string policy : {"hybridtier", "freqtier"})
    for (const bool aol : {false, true}) {
      KnobMap published{{"aol.enabled", aol}}, preset{{"aol.enabled", aol}, {"preset", policy}};
      for (const KnobDecl& knob : tt::policy(policy).knobs) {
        const std::string name = renamed(knob.name, policy);
        if (const auto at = knobs.find(name); at != knobs.end())
          published[knob.name] = preset[name] = at->second;
      }
      const auto original = sim::simulate(reader, machine, tt::policy(policy), published, options);
      const auto result = sim::simulate(reader, machine, tt::policy("unified"), preset, options);
      const std::string what = difference(original, result, policy);
      if (!what.empty())
        check::fail(__FILE__, __LINE__, policy + (aol ? " with AOL" : "") + ": " + what);
      CHECK(original.metrics.at("promotions") > 0);  // else this would prove little
    }
}

/// Under which much happens within seconds.
const KnobMap busy{{"sample_batch", 2000.0},
                   {"adaptation_period", 5000.0},
                   {"preset_frequency_cooling_period", 2.0},
                   {"momentum_cooling_period", 0.2},
                   {"promote_watermark", 0.1},
                   {"demote_watermark", 0.2},
                   {"second_chance_revisit", 2000.0},
                   {"window", 2.0},
                   {"scan_chunk", 64.0}};

Rig unified(const KnobMap& given, std::uint64_t fast = 20) {
  Rig rig("unified", {}, with(base, given), fast, 4000);
  rig.map(0, 100);
  return rig;
}

}  // namespace

TEST("unified: the presets are the published systems, bit by bit, on drawn pages") {
  for (const double drift : {0.0, 10.0}) {
    simtest::TempStream stream;
    simtest::write_zipf(stream, {.full_pages = 1 << 16,
                                 .scale = 64,
                                 .exponent = 0.9,
                                 .rate = 100e6,
                                 .seconds = 6,
                                 .drift_seconds = drift,
                                 .seed = 7});
    sim::RunOptions options;
    options.coarse = true;
    const trace::Reader& reader = stream.reader();
    compare(reader, options, {});
    compare(reader, options, busy);
  }
}

TEST("unified: the presets are the published systems, bit by bit, on a kernel's stream") {
  const check::Scratch scratch;
  kernels::RecordRequest request;
  request.input = "test";
  request.parameters = {{"generator", std::string{"default"}}, {"duration_s", 5.0}};
  request.scale = 8192;
  request.threads = 12;
  request.llc_bytes = 18.0 * (1 << 20);
  request.file = scratch.file("cachelib.tts");
  (void)kernels::record("cachelib", request);
  const trace::Reader reader{request.file};
  sim::RunOptions options;
  options.coarse = true;
  compare(reader, options, busy);
}

TEST("unified: a part that is off samples, counts, charges and shows nothing") {
  auto frequency = unified({{"filters", text("frequency")}, {"gate", false}});
  frequency.sample(span_of(20, 10));
  CHECK_EQ(frequency.memory.work(Work::tracker_update), 10U);
  CHECK_THROWS(frequency.gauge("momentum_threshold"), "no gauge");
  CHECK_THROWS(frequency.gauge("second_chance_pages"), "no gauge");
  CHECK_THROWS(frequency.gauge("gate_closed"), "no gauge");
  CHECK_EQ(frequency.memory.sampling.size(), 1U);
  CHECK(frequency.memory.sampling.back().stores == SamplingRequest::Event{});
  auto momentum = unified({{"filters", text("momentum")}, {"momentum_hot_threshold", whole(3)}});
  momentum.sample(Pages{30}, 3);
  CHECK((momentum.memory.queued(Tier::fast) == Pages{30}));
  CHECK_THROWS(momentum.gauge("frequency_threshold"), "no gauge");
  auto both = unified({});
  both.sample(span_of(20, 10));
  CHECK_EQ(both.memory.work(Work::tracker_update), 20U);
}

TEST("unified: huge pages are counted further, and forgotten after as many samples of 4 KiB") {
  const KnobMap given = with(base, {{"frequency_cooling_period", 5.0}});  // 100 samples
  for (const std::uint64_t page_bytes : {4096ULL, 2ULL << 20}) {
    Rig rig("unified", {}, given, 20, 100, page_bytes);
    rig.map(0, 100);
    rig.sample(Pages{30}, static_cast<unsigned>(100 * page_bytes / 4096 - 1));
    CHECK_EQ(rig.gauge("frequency_coolings"), 0.0);
    rig.sample(Pages{30}, 1);
    CHECK_EQ(rig.gauge("frequency_coolings"), 1.0);
  }
  const KnobMap above{{"frequency_hot_threshold", whole(16)}, {"filters", text("frequency")}};
  Rig huge("unified", {}, with(base, above), 20, 100, 2 << 20);
  huge.map(0, 100);
  huge.sample(Pages{30}, 15);
  CHECK(huge.memory.queued(Tier::fast).empty());
  huge.sample(Pages{30}, 1);
  CHECK((huge.memory.queued(Tier::fast) == Pages{30}));
  CHECK_THROWS(unified(above), "allowed up to 15");
}

TEST("unified: goes on sampling until its counters have been halved once") {
  for (const bool halved : {false, true}) {
    const double samples = halved ? 5 : 6;  // for each fast page; a hundred are counted
    auto rig = unified({{"filters", text("frequency")},
                        {"gate", false},
                        {"intensity", text("ladder")},
                        {"window", 1.0},
                        {"frequency_cooling_period", samples}});
    rig.sample(Pages{30}, 100);
    for (int second = 0; second < 10; ++second) {  // in which nothing is promoted
      rig.memory.now.loads[0] += 1000;
      rig.run(1);
    }
    CHECK_EQ(rig.gauge("frequency_coolings"), halved ? 1.0 : 0.0);
    CHECK_EQ(rig.gauge("monitoring"), halved ? 1.0 : 0.0);
    CHECK_EQ(rig.gauge("sampling_level"), halved ? 0.0 : 2.0);
  }
}

TEST("unified: with a placement pages start where it says, and hot ones still move") {
  test::FakeMemory memory(20, 1000);
  const Placement placement{{{"arena", 9, 10, 0}, {"", 5, 40, 1}}};
  const auto& unified = policy("unified");
  Knobs knobs = resolve(unified.knobs, {});
  for (const auto& [name, value] : with(base, {{"placement", text("profile")}, {"gate", false}}))
    knobs.set(name, value);
  const auto running = unified.make({memory, knobs, nullptr, 1, &placement});
  running->on_map({{100}, 40}, 2, {});
  running->on_map({{0}, 10}, 1, {});
  CHECK(running->placement({{109}, 1}) == Tier::fast);  // what the better object leaves
  CHECK(running->placement({{110}, 1}) == Tier::slow);
  CHECK(running->placement({{9}, 1}) == Tier::fast);
  running->on_unmap({{0}, 10}, {});
  CHECK(running->placement({{9}, 1}) == Tier::slow);
  memory.touch({120}, Tier::slow);
  running->on_samples(std::vector<Sample>(40, Sample{.page = {120}, .tier = Tier::slow}), {});
  CHECK((memory.queued(Tier::fast) == Pages{120}));
}

TEST("unified: a placement is made and used only with the knob, and of no preset") {
  simtest::TempStream file;
  simtest::write_chase_and_sweep(file);
  const auto machine = simtest::full_machine();
  sim::RunOptions options{.fast_share = 0.5, .coarse = true};
  const auto& unified = policy("unified");
  const KnobMap profiled{{"placement", text("profile")}};
  const auto seconds = [&](const KnobMap& knobs) {
    return sim::simulate(file.reader(), machine, unified, knobs, options).seconds;
  };
  const double alone = seconds({});
  const double with_profile = seconds(profiled);
  CHECK(with_profile < alone);
  options.placement = sim::profile(file.reader(), machine, unified, profiled, options).placement;
  CHECK_EQ(options.placement->at(0).site, "chased");
  CHECK_EQ(seconds(profiled), with_profile);
  CHECK_EQ(seconds({}), alone);
  options.placement.reset();
  CHECK_THROWS(sim::profile(file.reader(), machine, unified, {}, options), "nothing to profile");
  for (const char* preset : {"hybridtier", "freqtier"})
    CHECK_EQ(seconds(with(profiled, {{"preset", text(preset)}})),
             seconds({{"preset", text(preset)}}));
}

TEST("unified: preset static is first-touch, or Soar with a profile, bit by bit") {
  simtest::TempStream file;
  simtest::write_chase_and_sweep(file);
  const auto machine = simtest::full_machine();
  const sim::RunOptions options{.fast_share = 0.5, .coarse = true};
  const auto run = [&](const char* name, const KnobMap& knobs) {
    return sim::simulate(file.reader(), machine, tt::policy(name), knobs, options);
  };
  // What would move pages, if anything did.
  const KnobMap other{{"gate", true}, {"neighbours", true}, {"sampling_frequency", 1e6}};
  const KnobMap still = with(other, {{"preset", text("static")}});
  const KnobMap placed = with(still, {{"placement", text("profile")}});
  CHECK_EQ(difference(run("first-touch", {}), run("unified", still), "first-touch"), "");
  CHECK_EQ(difference(run("soar", {}), run("unified", placed), "soar"), "");
  CHECK(run("unified", placed).seconds < run("unified", still).seconds);
}

TEST("unified: as many samples by period as by frequency take the program far less time") {
  simtest::TempStream stream;
  simtest::write_zipf(stream, {.full_pages = 1 << 16,
                               .scale = 64,
                               .exponent = 0.9,
                               .rate = 100e6,
                               .seconds = 6,
                               .drift_seconds = 0,
                               .seed = 7});
  const sim::RunOptions options{.coarse = true};
  const auto run = [&](const char* by) {
    return sim::simulate(stream.reader(), simtest::full_machine(), policy("unified"),
                         {{"sampling_by", text(by)}}, options);
  };
  const auto period = run("period"), frequency = run("frequency");
  CHECK(period.metrics.at("samples") > 0.8 * frequency.metrics.at("samples"));
  CHECK(period.metrics.at("samples") < 1.2 * frequency.metrics.at("samples"));
  // The first second is by frequency in any case.
  CHECK(period.breakdown.at("sampling") < 0.5 * frequency.breakdown.at("sampling"));
}

TEST("gate: closes when promotions do not raise the hit ratio, and says so") {
  auto rig = unified({});
  windows(rig, 1, 0.5);
  windows(rig, 2, 0.5);
  CHECK_EQ(rig.gauge("gate_closed"), 0.0);
  windows(rig, 1, 0.502);
  CHECK_EQ(rig.gauge("gate_closed"), 1.0);
  rig.sample(span_of(20, 10), 12);
  CHECK(rig.memory.queue.empty());
}

TEST("gate: stays open while the ratio rises, or little is promoted") {
  auto rig = unified({});
  for (int n = 0; n < 20; ++n) {
    windows(rig, 1, 0.1 + 0.02 * n);
    CHECK_EQ(rig.gauge("gate_closed"), 0.0);
  }
  auto quiet = unified({}, 400);
  windows(quiet, 20, 0.5, 2);  // half a percent of the fast tier
  CHECK_EQ(quiet.gauge("gate_closed"), 0.0);
}

TEST("gate: opens when the ratio falls, and for a try after pauses that double") {
  auto rig = unified({});
  windows(rig, 5, 0.5);
  CHECK_EQ(rig.gauge("gate_closed"), 1.0);
  windows(rig, 1, 0.4);
  CHECK_EQ(rig.gauge("gate_closed"), 0.0);
  regulate::HarmGate gate({.window = from_seconds(1),
                           .band = 0.01,
                           .patience = 2,
                           .promotions = 0,
                           .pause = from_seconds(4)});
  Counters counters;
  std::string seen;
  for (int n = 1; n <= 30; ++n) {
    counters.loads[0] += 60;
    counters.loads[1] += 40;
    gate.promoted(1);
    gate.tick(from_seconds(n), counters);
    seen += gate.closed() ? '#' : '.';
  }
  CHECK_EQ(seen,
           ".."
           "####"
           ".."
           "########"
           ".."
           "############");
}

TEST("latency gain: by Little's law, and kept where nothing was read") {
  regulate::LatencyGain gain;
  Counters counters;
  CHECK_EQ(gain.ns(), 0.0);
  counters.tier[0] = {.reads = 10, .occupancy_ns = 1000};
  counters.tier[1] = {.reads = 20, .occupancy_ns = 6000};
  gain.update(counters);
  CHECK_EQ(gain.ns(), 200.0);
  counters.tier[0].reads += 10;
  counters.tier[0].occupancy_ns += 2000;
  gain.update(counters);
  CHECK_EQ(gain.ns(), 100.0);
}
