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

/// A random life against the policy. Returns everything that it asked for.
struct Life {
  std::vector<std::pair<PageId, Tier>> requested;
  std::vector<SamplingRequest> sampling;
  std::uint64_t done = 0;
  std::uint64_t faults = 0, answers = 0, reshapes = 0;  // that it was told of
};

Life live(const PolicyInfo& info, const KnobMap& given, const KnobMap& raw, std::uint64_t seed,
          std::uint64_t page_bytes) {
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
    switch (rng.below(14)) {
      case 0:
        policy->on_map(range, static_cast<std::uint32_t>(rng.below(3)), now);
        for (std::uint64_t i = 0; i < range.count; ++i) {
          const PageId page{range.first.value + i};
          mapped.insert(page.value);
          // A mapped page need not be resident yet.
          if (rng.below(4) > 0) memory.touch(page, policy->placement({page, 1}));
        }
        break;
      case 1:  // with requests pending, as a live process does
        memory.free(range);
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
      case 5: {  // a page moves on its own (reclaim, another tenant), and the policy is not told
        const PageId page{rng.below(pages)};
        const auto at = memory.where(page);
        if (at != Residency::absent) {
          memory.free({page, 1});
          memory.touch(page, at == Residency::fast ? Tier::slow : Tier::fast);
        }
        break;
      }
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
          samples.push_back({{skewed},
                             rng.below(10) == 0 ? other(tier) : tier,  // late: it has moved since
                             rng.below(3) == 0 ? AccessKind::store : AccessKind::load});
        }
        policy->on_samples(samples, now);
      }
    }
    check_requests();
    if (step % 100 == 0) {
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
