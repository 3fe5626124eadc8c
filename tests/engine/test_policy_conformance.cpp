// SPDX-License-Identifier: MIT

// The policy's side of the seam, for every policy that is linked in and for the tests' own watcher:
// whatever a live substrate may do, a policy keeps to pages that are mapped, stays deterministic,
// and goes on.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "check.hpp"
#include "core/rng.hpp"
#include "fake_memory.hpp"
#include "watcher.hpp"

using namespace tt;
using test::FakeMemory;
using test::Rig;

namespace {

/// Knob sets under which migrations happen soon: as declared but with small batches, and the same
/// regulated by AOL.
std::vector<std::pair<KnobMap, KnobMap>> settings(const PolicyInfo& info) {
  KnobMap raw;
  const std::map<std::string, double> small{{"sample_batch", 8},
                                            {"adaptation_period", 50},
                                            {"momentum_cooling_period", 7},
                                            {"artifact_momentum_cooling_period", 300},
                                            {"second_chance_revisit", 5000},
                                            {"frequency_cooling_period", 4},
                                            {"cooling_period", 4},
                                            {"promote_watermark", 0.1},
                                            {"demote_watermark", 0.3},
                                            {"scan_chunk", 4},
                                            {"lru_batch", 1},
                                            {"least_cost", 1e-4},
                                            {"initial_width", 1e-3},
                                            {"demotion_margin", 3}};
  for (const auto& knob : info.knobs) {
    if (small.contains(knob.name)) raw[knob.name] = small.at(knob.name);
  }
  std::vector<std::pair<KnobMap, KnobMap>> all{{{}, raw}};
  for (const auto& knob : info.knobs) {
    if (knob.name == "aol.enabled") all.push_back({{{"aol.enabled", true}}, raw});
    if (knob.name == "variant") all.push_back({{{"variant", std::string{"artifact"}}}, raw});
  }
  return all;
}

std::vector<PolicyInfo> all() {
  std::vector<PolicyInfo> infos(policies().begin(), policies().end());
  infos.push_back(test::watcher());
  infos.push_back(test::watcher(true));
  return infos;
}

/// How much a substrate asks of a policy.
enum class Substrate : std::uint8_t {
  kind,  // tells of whole ranges before they are touched, grants everything
  // Tells of what is populated, block by block and late; places first touches as a kernel does; has
  // units that come and go; samples less than was asked for; changes the budget.
  live,
};

/// What a live substrate grants at worst: loads alone, seldom, wherever they are.
SamplingRequest less(const SamplingRequest& asked) {
  using Mode = SamplingRequest::Mode;
  SamplingRequest granted;
  if (asked.loads.mode == Mode::off) return granted;
  const double value = asked.loads.value;
  granted.loads = {asked.loads.mode, asked.loads.mode == Mode::period ? 7 * value : value / 7};
  return granted;
}

/// What the program has touched, and the policy has perhaps not been told of.
class Populated {
 public:
  static constexpr std::uint64_t block_pages = 16;

  void touch(PageId page) {
    pages_.insert(page.value);
    blocks_.insert(page.value / block_pages);
  }
  void free(PageRange range) {
    pages_.erase(pages_.lower_bound(range.first.value), pages_.lower_bound(range.end().value));
  }
  /// The populated runs of a block that has filled further; none if there is no such block.
  std::vector<PageRange> next(Rng& rng) {
    std::vector<PageRange> runs;
    if (blocks_.empty()) return runs;
    const auto at =
        std::next(blocks_.begin(), static_cast<std::ptrdiff_t>(rng.below(blocks_.size())));
    const std::uint64_t first = *at * block_pages;
    blocks_.erase(at);
    for (std::uint64_t page = first; page < first + block_pages; ++page) {
      if (!pages_.contains(page)) continue;
      if (runs.empty() || runs.back().end() != PageId{page}) runs.push_back({{page}, 0});
      ++runs.back().count;
    }
    return runs;
  }

 private:
  std::set<std::uint64_t> pages_, blocks_;
};

/// A random life against the policy. Returns everything that it asked for.
struct Life {
  std::vector<std::pair<PageId, Tier>> requested;
  std::vector<SamplingRequest> sampling;
  std::uint64_t done = 0;
  std::uint64_t faults = 0, answers = 0, reshapes = 0;  // that it was told of
};

Life live(const PolicyInfo& info, const KnobMap& given, const KnobMap& raw, std::uint64_t seed,
          std::uint64_t page_bytes, Substrate substrate = Substrate::kind) {
  Rng rng(seed);
  constexpr std::uint64_t pages = 300;
  Rng ahead(seed + 1000);
  test::FakeFuture future(pages, 200);
  future.accesses.assign(pages, 1);
  for (auto& block : future.saved)
    for (float& page : block) page = static_cast<float>(1e6 * ahead.uniform());
  const Oracle oracle = future.oracle();
  test::FakeMemory memory(40, pages, page_bytes);
  memory.unit_pages = 4;    // small, so that all pages of a unit are there now and then
  std::vector<Fault> late;  // reported later than they happened
  const bool tough = substrate == Substrate::live;
  const bool places = !tough || includes(info.traits.needs, Need::placement);
  if (tough) {
    memory.grant = less;
    if (!includes(info.traits.needs, Need::copies))
      memory.grant_movers = [](const Movers&) { return Movers{}; };
  }
  Populated populated;
  const Knobs knobs = Rig::scaled(info, given, raw);
  const auto policy = info.make({memory, knobs, &oracle, 7});
  std::set<std::uint64_t> mapped;
  Nanos now{};
  Life result;

  std::size_t checked = 0;
  const auto check_requests = [&] {
    for (; checked < memory.requested.size(); ++checked) {
      CHECK(mapped.contains(memory.requested[checked].first.value));
    }
  };
  for (int step = 0; step < 1500; ++step) {
    const PageRange range{{rng.below(pages)}, 1 + rng.below(20)};
    memory.clock = now;
    switch (rng.below(tough ? 17 : 14)) {
      case 0:
        if (!tough) policy->on_map(range, static_cast<std::uint32_t>(rng.below(3)), now);
        for (std::uint64_t i = 0; i < range.count; ++i) {
          const PageId page{range.first.value + i};
          if (!tough) mapped.insert(page.value);
          // A mapped page need not be resident yet.
          if (rng.below(4) == 0) continue;
          memory.touch(page, places ? policy->placement({page, 1}) : Tier::fast);
          populated.touch(page);
        }
        break;
      case 14:
        for (const PageRange& run : populated.next(rng)) {
          policy->on_map(run, static_cast<std::uint32_t>(rng.below(3)), now);
          for (std::uint64_t i = 0; i < run.count; ++i) mapped.insert(run.first.value + i);
        }
        break;
      case 15:  // an operator changes the budget, down to nothing at times
        if (rng.below(4) > 0) break;
        memory.set_capacity(Tier::fast, rng.below(60));
        policy->on_capacity(Tier::fast, now);
        break;
      case 16:  // the kernel builds or breaks up a huge page
        if (rng.below(2) == 0) {
          memory.make_huge(range.first);
        } else {
          memory.make_small(range.first);
        }
        break;
      case 1:  // with requests pending, as a live process does
        memory.free(range);
        populated.free(range);
        policy->on_unmap(range, now);
        for (std::uint64_t i = 0; i < range.count; ++i) mapped.erase(range.first.value + i);
        break;
      case 2: {  // late, never early
        const double late = rng.below(20) == 0 ? 3600 : rng.uniform();
        now += policy->tick_period() + from_seconds(late);
        future.next_block += ahead.below(4);
        memory.now.loads[0] += 1000 * rng.uniform();
        memory.now.loads[1] += 100;
        memory.now.a3_reads += 100;
        memory.now.a1_cycles += 100 * 150 * rng.uniform();
        for (const Tier tier : {Tier::fast, Tier::slow}) {
          TierCounters& counters = memory.now.tier[index(tier)];
          counters.reads += 100;
          counters.occupancy_ns += tier == Tier::fast ? 1e4 : 3e4;
          counters.busy_ns += 1e4;
        }
        policy->tick(now);
        break;
      }
      case 3: {
        const auto results = memory.complete(rng.below(20), [&](PageId, Tier) {
          return rng.below(4) == 0 ? Outcome::busy : Outcome::done;
        });
        for (const auto& r : results) result.done += r.outcome == Outcome::done;
        policy->on_migrated(results, now);  // may be empty
        break;
      }
      case 4:
        memory.queue_limit = rng.below(3) == 0 ? rng.below(4) : SIZE_MAX;
        break;
      case 5:  // a page moves on its own (reclaim, another tenant), and the policy is not told
        memory.move_unasked({rng.below(pages)});
        break;
      case 6: {  // protected pages are touched; faults are told now or late, stale ones too
        std::vector<Fault> faults = std::exchange(late, {});
        for (auto n = rng.below(60); n > 0; --n) {
          const auto kind = rng.below(3) == 0 ? AccessKind::store : AccessKind::load;
          const auto fault = memory.access({rng.below(pages)}, kind, now);
          if (fault) (rng.below(3) == 0 ? late : faults).push_back(*fault);
        }
        if (rng.below(5) == 0)  // of a page that never was there
          faults.push_back(
              {{pages + rng.below(50)}, Tier::slow, AccessKind::load, from_seconds(9)});
        std::ranges::sort(faults, {}, &Fault::page);
        result.faults += faults.size();
        policy->on_faults(faults, now);  // may be empty
        break;
      }
      case 7:  // some of the pages have gone since they were asked for
        if (memory.rounds.empty()) break;
        policy->on_probed(memory.answer([&](PageId) { return rng.below(2) == 0; }), now);
        ++result.answers;
        break;
      case 8:
        policy->on_pressure(rng.below(10) == 0 ? Tier::slow : Tier::fast, now);
        break;
      case 9: {  // units of which a part has been freed
        const auto results = memory.complete_reshapes();
        result.reshapes += results.size();
        policy->on_migrated(results, now);
        break;
      }
      default: {
        std::vector<Sample> samples;
        for (auto n = rng.below(40); n > 0; --n) {  // may be empty; may name unknown pages
          const std::uint64_t skewed = rng.below(1 + rng.below(pages + 50));
          const Tier tier = memory.where({skewed}) == Residency::slow ? Tier::slow : Tier::fast;
          const bool store = rng.below(3) == 0;
          if (tough && store) continue;  // no such samples were granted
          samples.push_back({{skewed},
                             rng.below(10) == 0 ? other(tier) : tier,  // late: it has moved since
                             store ? AccessKind::store : AccessKind::load});
        }
        policy->on_samples(samples, now);
      }
    }
    check_requests();
    if (step % 100 == 0) {
      CHECK(memory.units_are_whole());
      CHECK(memory.free_pages(Tier::fast) == 0 || memory.excess_pages(Tier::fast) == 0);
      Gauges gauges;
      policy->gauges(gauges);
      for (const auto& [name, value] : gauges) CHECK(std::isfinite(value));
      CHECK(policy->metadata_bytes() < (1 << 20));
      CHECK(policy->tick_period() > Nanos{0});
      (void)policy->heat({rng.below(2 * pages)});
    }
  }
  result.requested = memory.requested;
  result.sampling = memory.sampling;
  return result;
}

/// A program that goes on, on a machine whose fast tier holds 64 of its 200 pages: the lower a
/// page, the oftener it is accessed, and not at all from 60 on.
class Steady {
 public:
  explicit Steady(const PolicyInfo& info, const KnobMap& given, const KnobMap& raw)
      : rig_(info.name, given, raw, 64, 400, info.traits.page_bytes) {
    rig_.map(0, 200);
  }
  FakeMemory& memory() { return rig_.memory; }
  /// As many rounds as the policy's slowest parts need.
  void go_on() {
    const Nanos until = rig_.now + from_seconds(60);
    for (int n = 0; n < 6000 && (n < 300 || rig_.now < until); ++n) round();
  }
  void budget(std::uint64_t pages) {
    memory().set_capacity(Tier::fast, pages);
    rig_.policy->on_capacity(Tier::fast, rig_.now);
  }

 private:
  void round() {
    ++rounds_;
    rig_.run(seconds(rig_.policy->tick_period()));
    std::vector<std::uint64_t> pages;
    for (std::uint64_t page = 0; page < 60; ++page)
      if (rounds_ % (1 + page / 4) == 0) pages.push_back(page);
    std::vector<Fault> faults;
    for (const std::uint64_t page : pages) {
      const auto fault = memory().access({page}, AccessKind::load, rig_.now);
      if (fault) faults.push_back(*fault);
      memory().now.loads[memory().where({page}) == Residency::fast ? 0 : 1] += 100;
    }
    for (const Tier tier : {Tier::fast, Tier::slow}) {
      TierCounters& counters = memory().now.tier[index(tier)];
      counters.reads += 100;
      counters.occupancy_ns += tier == Tier::fast ? 1e4 : 3e4;
      counters.busy_ns += 1e4;
    }
    if (!faults.empty()) rig_.policy->on_faults(faults, rig_.now);
    if (includes(rig_.info.traits.needs, Need::samples)) rig_.sample(pages);
    while (!memory().rounds.empty())
      rig_.policy->on_probed(memory().answer([](PageId page) { return page.value < 16; }),
                             rig_.now);
    const double free = static_cast<double>(memory().free_pages(Tier::fast));
    if (free < memory().marks.wake * static_cast<double>(memory().capacity(Tier::fast)))
      rig_.policy->on_pressure(Tier::fast, rig_.now);
    rig_.settle();
  }

  Rig rig_;
  std::uint64_t rounds_ = 0;
};

}  // namespace

TEST("seam: every policy survives a live process, and only asks for mapped pages") {
  for (const auto& info : all()) {
    for (const auto& [given, raw] : settings(info)) {
      std::uint64_t asked = 0, done = 0, faults = 0, answers = 0, reshapes = 0;
      for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        const auto life = live(info, given, raw, seed, info.traits.page_bytes);
        asked += life.requested.size();
        done += life.done;
        faults += life.faults;
        answers += life.answers;
        reshapes += life.reshapes;
      }
      const bool migrates = info.traits.migrates;
      CHECK_EQ(asked > 100, migrates);  // else this test would prove little
      CHECK_EQ(done > 5, migrates);     // HybridTier's artifact soon finds nothing to win
      // What was not asked for does not come, but for stale faults.
      CHECK_EQ(faults > 500, includes(info.traits.needs, Need::faults));
      CHECK_EQ(answers > 100, includes(info.traits.needs, Need::probes));
      CHECK_EQ(reshapes > 100, includes(info.traits.needs, Need::mixed_pages));
      if ((asked > 100) != migrates || (done > 50) != migrates) {
        std::cerr << "  policy " << info.name << ": " << asked << " asked, " << done << " done\n";
      }
    }
  }
}

TEST("seam: a live substrate's blocks, budgets, units and grants are survived, and made use of") {
  for (const auto& info : all()) {
    if (includes(info.traits.needs, Need::future)) continue;  // no process knows its own
    for (const auto& [given, raw] : settings(info)) {
      std::uint64_t asked = 0;
      for (std::uint64_t seed = 1; seed <= 3; ++seed)
        asked +=
            live(info, given, raw, seed, info.traits.page_bytes, Substrate::live).requested.size();
      CHECK_EQ(asked > 10, info.traits.migrates);
      if ((asked > 10) != info.traits.migrates)
        std::cerr << "  policy " << info.name << ": " << asked << " asked\n";
    }
  }
}

TEST("seam: who demotes gets below a budget that has shrunk") {
  for (const auto& info : policies()) {
    if (!info.traits.migrates || includes(info.traits.needs, Need::future)) continue;
    // autonuma never demotes. The others stay above it where nothing that they hold turns cold, or
    // while they sample nothing.
    const std::set<std::string> stay{"autonuma", "autotiering", "damon-goal",
                                     "freqtier", "hmsdk",       "hybridtier"};
    if (stay.contains(info.name)) continue;
    for (const auto& [given, raw] : settings(info)) {
      if (given.contains("aol.enabled")) continue;
      Steady program(info, given, raw);
      program.go_on();
      for (const std::uint64_t budget : {24, 5}) {
        program.budget(budget);
        program.go_on();
        CHECK_EQ(program.memory().excess_pages(Tier::fast), 0u);
        if (program.memory().excess_pages(Tier::fast) > 0)
          std::cerr << "  policy " << info.name << " holds " << program.memory().used(Tier::fast)
                    << " of " << budget << "\n";
      }
    }
  }
}

TEST("seam: the other page size is survived too") {
  for (const auto& info : all()) {
    const std::uint64_t other_size = info.traits.page_bytes == 4096 ? 2 << 20 : 4096;
    for (const auto& [given, raw] : settings(info)) live(info, given, raw, 3, other_size);
  }
}

TEST("seam: the same events lead to the same requests") {
  for (const auto& info : all()) {
    for (const auto& [given, raw] : settings(info)) {
      const auto a = live(info, given, raw, 11, info.traits.page_bytes);
      const auto b = live(info, given, raw, 11, info.traits.page_bytes);
      CHECK(a.requested == b.requested);
      CHECK(a.sampling == b.sampling);
    }
  }
}

TEST("seam: a fast tier without a single page, and nothing mapped at all") {
  for (const auto& info : policies()) {
    Rig rig(info.name, {}, 0, 100, info.traits.page_bytes, std::vector<std::uint64_t>(50, 1));
    rig.run(std::max(5.0, 3 * seconds(rig.policy->tick_period())));
    rig.map(0, 50);
    for (int n = 0; n < 20; ++n) {
      rig.sample({1, 2, 3, 60}, 10);
      rig.run(seconds(rig.policy->tick_period()));
      rig.settle();
    }
    CHECK_EQ(rig.memory.free_pages(Tier::fast), 0u);
    CHECK(rig.memory.where({1}) == Residency::slow);
  }
}

TEST("seam: every policy describes itself, its knobs and where they are from") {
  std::set<std::string> names;
  for (const auto& info : policies()) {
    CHECK(names.insert(info.name).second);
    CHECK(!info.family.empty() && !info.summary.empty() && !info.citation.empty());
    std::set<std::string> knobs;
    for (const auto& knob : info.knobs) {
      CHECK(knobs.insert(knob.name).second);
      CHECK(!knob.meaning.empty() && !knob.source.empty());
      if (knob.log) CHECK(knob.min > 0);
      if (knob.condition) CHECK(knobs.contains(knob.condition->parent));  // declared before
      // The default is a value that may be given.
      CHECK_EQ(to_string(resolve(info.knobs, {{knob.name, knob.initial}}).values().at(knob.name)),
               to_string(knob.initial));
    }
  }
  for (const char* name :
       {"first-touch", "all-fast", "all-slow", "static-hot", "hybridtier", "freqtier", "hemem"}) {
    CHECK(names.contains(name));
  }
}
