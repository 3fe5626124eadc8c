// SPDX-License-Identifier: MIT

#include <set>
#include <string>

#include "check.hpp"
#include "fake_memory.hpp"
#include "regulate/aol.hpp"
#include "regulate/hit_ratio.hpp"
#include "regulate/intensity.hpp"
#include "regulate/thrift.hpp"

using namespace tt;
using regulate::AolRegulator;
using regulate::IntensityLadder;
using test::FakeMemory;

TEST("AOL: the published steps at the published thresholds") {
  const AolRegulator r(40, 100);
  struct {
    double aol;
    unsigned tenths;
  } cases[] = {{0, 0},  {40, 0},   {40.1, 1}, {50, 1},   {60, 1},   {60.1, 3},
               {80, 3}, {80.1, 5}, {99.9, 5}, {100, 10}, {1000, 10}};
  for (const auto& c : cases) CHECK_EQ(r.tenths(c.aol), c.tenths);
}

TEST("AOL: the steps stretch with low and high") {
  const AolRegulator r(10, 130);
  CHECK_EQ(r.tenths(10), 0u);
  CHECK_EQ(r.tenths(50), 1u);
  CHECK_EQ(r.tenths(51), 3u);
  CHECK_EQ(r.tenths(91), 5u);
  CHECK_EQ(r.tenths(130), 10u);
  CHECK_EQ(r.sixteenths(10), 0u);
  CHECK_EQ(r.sixteenths(30), 1u);
  CHECK_EQ(r.sixteenths(50), 2u);
  CHECK_EQ(r.sixteenths(51), 4u);
  CHECK_EQ(r.sixteenths(91), 8u);
  CHECK_EQ(r.sixteenths(130), 16u);
  const AolRegulator same(50, 50);
  CHECK_EQ(same.tenths(50), 0u);
  CHECK_EQ(same.tenths(51), 10u);
  CHECK_THROWS(AolRegulator(50, 49), "aol.high: found 49");
}

TEST("AOL: measured over each interval; without demand reads the share stays") {
  AolRegulator r(40, 100);
  CHECK_EQ(r.tenths(), 10u);
  Counters c;
  c.a1_cycles = 7000;
  c.a3_reads = 100;
  r.update(c);
  CHECK_EQ(r.tenths(), 3u);
  CHECK_NEAR(r.aol(), 70, 1e-12);
  r.update(c);
  CHECK_EQ(r.tenths(), 3u);
  c.a1_cycles += 2000;
  c.a3_reads += 100;  // 20 in this interval, 45 overall
  r.update(c);
  CHECK_EQ(r.tenths(), 0u);
}

namespace {

/// Asks for the same promotions every tick, and one demotion.
class Asker final : public Policy {
 public:
  explicit Asker(const PolicyContext& c) : memory(c.memory) {}
  void on_map(PageRange range, std::uint32_t, Nanos) override { mapped += range.count; }
  void on_unmap(PageRange range, Nanos) override { mapped -= range.count; }
  Tier placement(PageRange) const override { return Tier::slow; }
  void on_samples(std::span<const Sample>, Nanos) override {}
  void tick(Nanos) override {
    ++ticks;
    std::vector<PageId> pages;
    for (std::uint64_t p = 0; p < 10; ++p) pages.push_back({p});
    taken = memory.request(Tier::fast, pages);
    const PageId fast{50};
    memory.request(Tier::slow, std::span{&fast, 1});
  }
  Nanos tick_period() const override { return from_millis(250); }
  void on_migrated(std::span<const MigrationResult>, Nanos) override {}
  std::uint64_t metadata_bytes() const override { return 7; }
  void gauges(Gauges& out) const override {
    out["ticks"] = ticks;
    out["taken"] = static_cast<double>(taken);
    out["mapped"] = static_cast<double>(mapped);
  }
  Heat heat(PageId) const override { return Heat::warm; }

 private:
  Memory& memory;
  int ticks = 0;
  std::size_t taken = 0;
  std::uint64_t mapped = 0;
};

std::unique_ptr<Policy> make_asker(const PolicyContext& c) { return std::make_unique<Asker>(c); }

struct Regulated {
  FakeMemory memory{300, 300};
  std::unique_ptr<Policy> policy;
  Nanos now{};
  explicit Regulated(const KnobMap& given, regulate::MakePolicy make = make_asker,
                     regulate::Thins thins = regulate::Thins::requests) {
    for (std::uint64_t p = 0; p < 10; ++p) memory.touch({p}, Tier::slow);
    memory.touch({50}, Tier::fast);
    const Knobs knobs = resolve(regulate::aol_knobs(), given);
    policy = regulate::make_aol_regulated(make, {memory, knobs, nullptr, 0}, thins);
  }
  /// Lets an interval pass at this AOL, then returns the promotions of each of `ticks` ticks.
  std::vector<std::size_t> run(double aol, int ticks) {
    memory.now.a3_reads += 1000;
    memory.now.a1_cycles += aol * 1000;
    std::vector<std::size_t> promotions;
    for (int n = 0; n < ticks; ++n) {
      now += policy->tick_period();
      memory.queue.clear();
      policy->tick(now);
      promotions.push_back(memory.queued(Tier::fast).size());
    }
    return promotions;
  }
  double gauge(const std::string& name) {
    Gauges out;
    policy->gauges(out);
    return out.contains(name) ? out.at(name) : -1;
  }
};

const KnobMap on{{"aol.enabled", true}, {"aol.interval", 1000.0}};

}  // namespace

TEST("AOL: a policy that knows nothing of it promotes k of every ten candidates") {
  using Counts = std::vector<std::size_t>;
  Regulated r(on);
  CHECK((r.run(70, 3) == Counts{10, 10, 10}));  // the first interval is not over
  CHECK((r.run(70, 4) == Counts{3, 3, 3, 3}));
  CHECK_EQ(r.gauge("aol_promotion_share"), 0.3);
  CHECK_NEAR(r.gauge("aol_cycles"), 70, 1e-9);
  CHECK((r.run(30, 1) == Counts{0}));
  CHECK_EQ(r.memory.queued(Tier::slow).size(), 1u);  // demotions are not regulated
  r.run(30, 3);
  CHECK((r.run(170, 1) == Counts{10}));  // 30 and 170 in one interval: 100
}

TEST("AOL: what was not admitted counts as taken; a full queue is told in the caller's terms") {
  Regulated r(on);
  r.run(70, 4);
  CHECK_EQ(r.gauge("taken"), 10.0);
  r.memory.queue_limit = 1;  // the second admitted page no longer fits: it is the seventh asked
  CHECK_EQ(r.run(70, 1).front(), 1u);
  CHECK_EQ(r.gauge("taken"), 6.0);
}

TEST("AOL: switched off, the policy is the plain one") {
  Regulated r({{"aol.enabled", false}});
  CHECK_EQ(r.run(1, 8).back(), 10u);
  CHECK_EQ(r.gauge("aol_cycles"), -1.0);
}

namespace {

/// Protects the same window of 160 pages every tick, and promotes what it is told to.
class Scanner final : public Policy {
 public:
  explicit Scanner(const PolicyContext& c) : memory(c.memory) {}
  void on_map(PageRange, std::uint32_t, Nanos) override {}
  void on_unmap(PageRange, Nanos) override {}
  Tier placement(PageRange) const override { return Tier::slow; }
  void on_samples(std::span<const Sample>, Nanos) override {}
  void tick(Nanos) override {
    protected_pages = memory.protect({{60}, 160}, Tiers::slow, untouched);
    std::vector<PageId> pages;
    for (std::uint64_t p = 0; p < 10; ++p) pages.push_back({p});
    memory.request(Tier::fast, pages);
  }
  Nanos tick_period() const override { return from_millis(250); }
  void on_migrated(std::span<const MigrationResult>, Nanos) override {}
  std::uint64_t metadata_bytes() const override { return 0; }
  void gauges(Gauges& out) const override {
    out["protected"] = static_cast<double>(protected_pages);
    for (std::uint64_t p = 0; p < 160; ++p)
      if (in_mask(untouched, p)) out["untouched " + std::to_string(p + 60)] = 1;
  }
  Heat heat(PageId) const override { return Heat::cold; }

 private:
  Memory& memory;
  std::uint64_t protected_pages = 0;
  std::vector<std::uint64_t> untouched = std::vector<std::uint64_t>(mask_words(160));
};

}  // namespace

TEST("AOL: of a window 0, 1, 2, 4, 8 or 16 sixteenths are protected, anywhere in it") {
  const auto scanner = [](const PolicyContext& c) -> std::unique_ptr<Policy> {
    return std::make_unique<Scanner>(c);
  };
  struct {
    double aol;
    std::uint64_t pages;
  } const cases[] = {{40, 0}, {50, 10}, {60, 20}, {80, 40}, {99, 80}, {100, 160}};
  for (const auto& each : cases) {
    Regulated r(on, scanner, regulate::Thins::windows);
    for (std::uint64_t p = 0; p < 230; ++p) r.memory.touch({p}, Tier::slow);
    r.run(each.aol, 4);  // the first interval, in which all passes, ends
    std::set<std::uint64_t> reached;
    for (int n = 0; n < 200; ++n) {
      // Every other time all of the window is protected already, and must be found untouched.
      for (std::uint64_t p = 0; p < 230; ++p) (void)r.memory.access({p}, AccessKind::load, r.now);
      const bool untouched = n % 2 == 1;
      if (untouched) (void)r.memory.protect({{60}, 160}, Tiers::slow, {});
      // What faults has been chosen already: its promotions all pass.
      CHECK((r.run(each.aol, 1) == std::vector<std::size_t>{10}));
      CHECK_EQ(r.gauge("protected"), untouched ? 0.0 : static_cast<double>(each.pages));
      std::vector<std::uint64_t> part;
      for (std::uint64_t p = 0; p < 230; ++p)
        if (untouched ? r.gauge("untouched " + std::to_string(p)) == 1 : r.memory.is_protected({p}))
          part.push_back(p);
      CHECK_EQ(part.size(), each.pages);
      if (part.empty()) continue;
      CHECK(part.front() >= 60 && part.back() < 220 &&
            part.back() - part.front() + 1 == part.size());
      reached.insert(part.begin(), part.end());
    }
    CHECK_EQ(reached.size(), each.pages == 0 ? 0u : 160u);
  }
}

TEST("AOL: a policy that protects may have its requests thinned out instead") {
  Regulated r(on, [](const PolicyContext& c) -> std::unique_ptr<Policy> {
    return std::make_unique<Scanner>(c);
  });
  for (std::uint64_t p = 60; p < 220; ++p) r.memory.touch({p}, Tier::slow);
  CHECK((r.run(70, 4) == std::vector<std::size_t>{10, 10, 10, 3}));
  for (std::uint64_t p = 60; p < 220; ++p) (void)r.memory.access({p}, AccessKind::load, r.now);
  CHECK((r.run(70, 1) == std::vector<std::size_t>{3}));
  CHECK_EQ(r.gauge("protected"), 160.0);
}

TEST("AOL: each side keeps its own period; the rest of the seam passes through") {
  Regulated slow({{"aol.enabled", true}, {"aol.interval", 5000.0}});
  CHECK(slow.policy->tick_period() == from_millis(250));
  Regulated fast({{"aol.enabled", true}, {"aol.interval", 50.0}});
  CHECK(fast.policy->tick_period() == from_millis(50));
  fast.run(70, 20);  // one second
  CHECK_EQ(fast.gauge("ticks"), 4.0);
  fast.policy->on_map({{0}, 5}, 0, {});
  fast.policy->on_unmap({{0}, 2}, {});
  CHECK_EQ(fast.gauge("mapped"), 3.0);
  CHECK(fast.policy->placement({{0}, 1}) == Tier::slow);
  CHECK(fast.policy->heat({0}) == Heat::warm);
  CHECK_EQ(fast.policy->metadata_bytes(), 7u);
}

TEST("hit ratio: of the window, not of the run; a window without loads goes on") {
  regulate::HitRatioWindow w(from_seconds(60));
  Counters c;
  CHECK(!w.update(from_seconds(60), c));
  c.loads = {30, 10};
  CHECK(!w.update(from_seconds(59), c));
  CHECK_NEAR(*w.update(from_seconds(61), c), 0.75, 1e-12);
  c.loads = {40, 100};
  CHECK(!w.update(from_seconds(120), c));
  CHECK_NEAR(*w.update(from_seconds(121), c), 0.1, 1e-12);
}

namespace {

/// The counters advance by a window of a thousand loads, so many of them in the fast tier.
void load(FakeMemory& memory, double ratio) {
  memory.now.loads[0] += 1000 * ratio;
  memory.now.loads[1] += 1000 * (1 - ratio);
}
/// Samples per second asked for last; 0: none.
double sampled(const FakeMemory& memory) {
  const auto& loads = memory.sampling.back().loads;
  return loads.mode == SamplingRequest::Mode::off ? 0 : loads.value;
}

struct Ladder {
  FakeMemory memory{10, 10};
  IntensityLadder ladder{
      memory, IntensityLadder::Options{
                  .levels = {100, 10, 1}, .window = from_seconds(60), .stable_band = 0.005}};
  Nanos now{};
  /// Whether the sampling was changed.
  bool window(double ratio, std::uint64_t promoted = 5, bool settled = true) {
    now += from_seconds(60);
    load(memory, ratio);
    ladder.promoted(promoted);
    const auto requests = memory.sampling.size();
    ladder.tick(now, settled);
    return memory.sampling.size() > requests;
  }
};

}  // namespace

TEST("ladder: stable windows lead down level by level and into monitoring") {
  Ladder l;
  CHECK_EQ(sampled(l.memory), 100.0);
  CHECK(!l.window(0.7));  // nothing to compare with
  CHECK(l.window(0.704));
  CHECK_EQ(sampled(l.memory), 10.0);
  CHECK(l.window(0.7));
  CHECK_EQ(sampled(l.memory), 1.0);
  CHECK_EQ(l.ladder.frequency(), 1.0);
  CHECK(!l.ladder.monitoring());
  CHECK(l.window(0.7));
  CHECK(l.ladder.monitoring());
  CHECK_EQ(l.ladder.frequency(), 0.0);
  CHECK_EQ(sampled(l.memory), 0.0);
}

TEST("ladder: unstable windows lead up, but not above the top") {
  Ladder l;
  l.window(0.7);
  l.window(0.7);
  l.window(0.7);
  CHECK_EQ(l.ladder.level(), 2u);
  CHECK(l.window(0.71));
  CHECK_EQ(l.ladder.level(), 1u);
  CHECK(l.window(0.72));
  CHECK(!l.window(0.73));
  CHECK_EQ(l.ladder.level(), 0u);
}

TEST("ladder: a window without promotions is a plateau, stable or not") {
  Ladder l;
  l.window(0.5);
  CHECK(l.window(0.8, 0));
  CHECK(l.ladder.monitoring());
}

TEST("ladder: samples less, but does not stop, before things have settled") {
  Ladder l;
  l.window(0.7, 5, false);
  CHECK(l.window(0.7, 5, false));
  CHECK(l.window(0.9, 0, false));
  CHECK_EQ(l.ladder.level(), 2u);
  CHECK(!l.window(0.9, 5, false));
  CHECK(!l.window(0.7, 0, false));
  CHECK(!l.ladder.monitoring());
  CHECK(l.window(0.9, 5, false));
  CHECK_EQ(l.ladder.level(), 1u);
  CHECK(l.window(0.9, 0, true));
  CHECK(l.ladder.monitoring());
}

TEST("ladder: monitoring ends at the highest level when the ratio moves, drift included") {
  Ladder l;
  for (int n = 0; n < 4; ++n) l.window(0.7);
  CHECK(l.ladder.monitoring());
  CHECK(!l.window(0.703, 0));
  CHECK(!l.window(0.704, 0));
  CHECK(l.window(0.706, 0));
  CHECK(!l.ladder.monitoring());
  CHECK_EQ(sampled(l.memory), 100.0);
}

TEST("ladder: an empty demotion scan enters monitoring; the next window is the reference") {
  Ladder l;
  l.window(0.5);
  l.ladder.empty_scan(l.now);
  CHECK(l.ladder.monitoring());
  CHECK_EQ(sampled(l.memory), 0.0);
  l.ladder.empty_scan(l.now);
  CHECK_EQ(l.memory.sampling.size(), 2u);  // the first level, and off: not asked for again
  CHECK(!l.window(0.9, 0));                // not compared to 0.5
  CHECK(!l.window(0.9, 0));
  CHECK(l.window(0.8, 0));
  CHECK_EQ(l.ladder.level(), 0u);
}

TEST("ladder: one look per window") {
  Ladder l;
  l.window(0.7);
  l.memory.now.loads[0] += 10;
  l.ladder.tick(l.now + from_seconds(59));
  CHECK_EQ(l.memory.sampling.size(), 1u);
}

TEST("ladder: levels, window and band come from its knobs") {
  FakeMemory memory(10, 10);
  IntensityLadder ladder(memory,
                         resolve(regulate::ladder_knobs("a"), {{"sampling_frequency", 8000.0},
                                                               {"sampling_levels", 2.0},
                                                               {"sampling_step", 4.0},
                                                               {"window", 10.0},
                                                               {"stable_band", 0.1}}));
  CHECK_EQ(sampled(memory), 8000.0);
  for (const double second : {10.0, 20.0}) {
    load(memory, 0.5 + second / 200);  // within the band
    ladder.promoted(1);
    ladder.tick(from_seconds(second));
  }
  CHECK_EQ(sampled(memory), 2000.0);
  load(memory, 0.6);
  ladder.promoted(1);
  ladder.tick(from_seconds(30));
  CHECK(ladder.monitoring());  // there are two levels only
}

TEST("plateau: told once per window of batches with few promotions, after the first batches") {
  regulate::PromotionPlateau plateau(2, 20);
  const auto window = [&](std::uint64_t promoted) {
    int plateaus = 0;
    plateau.promoted(promoted);
    for (int n = 0; n < 20; ++n) plateaus += plateau.end_batch();
    return plateaus;
  };
  CHECK_EQ(window(0), 0);  // too early
  CHECK_EQ(window(3), 0);
  CHECK_EQ(window(2), 1);
}

namespace {

struct Monitored {
  FakeMemory memory{10, 10};
  regulate::Monitoring monitoring{memory, -0.01};
  Nanos now{};
  /// A minute with this hit ratio. Returns whether the monitoring ended.
  bool minute(double ratio) {
    now += from_seconds(60);
    load(memory, ratio);
    return monitoring.tick(now);
  }
};

}  // namespace

TEST("monitoring: samples nothing until the hit ratio falls for minutes") {
  Monitored m;
  CHECK(!m.minute(0.9));
  CHECK(m.memory.sampling.empty());
  m.monitoring.begin(m.now);
  CHECK_EQ(sampled(m.memory), 0.0);
  CHECK(!m.minute(0.1));  // the ratio settles for two minutes
  CHECK(!m.minute(0.1));
  for (int n = 0; n < 8; ++n) CHECK(!m.minute(0.8 + 0.02 * n));  // rises
  CHECK(!m.minute(0.94));                                        // one minute of less
  CHECK(m.monitoring.active());
  CHECK(!m.minute(0.94));
  CHECK(m.minute(0.8));  // 0.92, 0.94, 0.94, 0.94, 0.8: -0.024 a minute
  CHECK(!m.monitoring.active());
}

TEST("monitoring: a slow fall does not end it; five minutes are looked at, after a sixth") {
  Monitored m;
  m.monitoring.begin(m.now);
  m.minute(1);
  m.minute(1);
  for (int n = 0; n < 10; ++n) CHECK(!m.minute(0.9 - 0.009 * n));
  Monitored fast;
  fast.monitoring.begin(fast.now);
  fast.minute(1);
  fast.minute(1);
  for (int n = 0; n < 5; ++n) CHECK(!fast.minute(0.9 - 0.011 * n));
  CHECK(fast.minute(0.9 - 0.011 * 5));
}

TEST("sweeps: two barren ones in a row, or ten with a good one after each, are enough") {
  regulate::BarrenSweeps sweeps;
  CHECK(!sweeps.ended(true));
  CHECK(sweeps.ended(true));
  CHECK(!sweeps.ended(true));  // counted from the start again
  CHECK(!sweeps.ended(false));
  for (int n = 0; n < 8; ++n) CHECK(!sweeps.ended(true) && !sweeps.ended(false));
  CHECK(!sweeps.ended(true));
  CHECK(sweeps.ended(false));
  CHECK(!sweeps.ended(false));
}

TEST("intensity ladder: levels that make no difference to what is granted are passed over") {
  FakeMemory memory{10, 10};
  memory.grant = [](const SamplingRequest& asked) {  // 10 samples a second at most
    SamplingRequest granted = asked;
    granted.loads.value = std::min(10.0, asked.loads.value);
    return granted;
  };
  IntensityLadder ladder{
      memory, IntensityLadder::Options{
                  .levels = {1000, 100, 10, 1}, .window = from_seconds(60), .stable_band = 0.005}};
  CHECK_EQ(ladder.frequency(), 10.0);
  Nanos now{};
  const auto stable = [&] {
    now += from_seconds(60);
    load(memory, 0.5);
    ladder.promoted(5);
    ladder.tick(now);
  };
  stable();
  stable();
  CHECK_EQ(ladder.level(), 3u);
  CHECK_EQ(ladder.frequency(), 1.0);
  stable();
  CHECK(ladder.monitoring());
  CHECK_EQ(ladder.frequency(), 0.0);
}

TEST("local sampling: one that cannot be thinned is not asked for again") {
  FakeMemory memory(10, 10);
  memory.grant = [](SamplingRequest asked) {
    asked.loads.value /= 2;
    asked.fast_share = 1;
    return asked;
  };
  regulate::LocalSampling local(memory, {SamplingRequest::Mode::frequency, 1000});
  const std::vector<PageId> pages{{1}};
  const std::vector<PageCount> counts{{{1}, 100}};
  const std::vector<std::uint32_t> full{15};
  for (int batch = 0; batch < 3; ++batch) {
    local.counted({pages, counts, full, full}, 15);
    local.end_batch();
  }
  CHECK_EQ(memory.sampling.size(), 2u);
  CHECK_EQ(local.fast_share(), 1.0);
  CHECK_EQ(local.hz(), 500.0);
}

TEST("local sampling: halved twice while four fifths of the samples meet full counters") {
  FakeMemory memory(10, 10);
  regulate::LocalSampling local(memory, {SamplingRequest::Mode::frequency, 1000});
  CHECK_EQ(memory.sampling.back().fast_share, 1.0);
  const std::vector<PageCount> counts{{{1}, 4}, {{2}, 1}};
  const std::vector<std::uint32_t> full{15, 3}, emptier{14, 15};
  const auto batch = [&](const std::vector<std::uint32_t>& before, unsigned more) {
    local.counted({{}, counts, before, before}, 15);
    const std::vector<PageCount> again{{{1}, more}};
    if (more > 0) local.counted({{}, again, full, full}, 15);
    local.end_batch();
    return memory.sampling.back().fast_share;
  };
  CHECK_EQ(batch(full, 0), 1.0);  // four of five: not more
  CHECK_EQ(batch(emptier, 4), 1.0);
  CHECK_EQ(batch(full, 1), 0.5);
  CHECK_EQ(batch(full, 1), 0.25);
  CHECK_EQ(batch(full, 1), 0.25);
  CHECK_EQ(memory.sampling.back().loads.value, 1000.0);
  local.restart();
  CHECK_EQ(memory.sampling.back().fast_share, 1.0);
}

TEST("thrift: its knobs are active where the system says") {
  for (const auto& knob : regulate::thrift_knobs("variant", "artifact")) {
    CHECK_EQ(knob.condition->parent, "variant");
    CHECK(knob.condition->values == std::vector<KnobValue>{std::string{"artifact"}});
  }
}
