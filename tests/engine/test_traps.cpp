// What waits for the next access to a page: hint faults, accessed bits and probes, against closed
// forms, and their independence of the miniature's scale, of the blocks' length and of the
// processor.
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "check.hpp"
#include "fake_memory.hpp"
#include "isas.hpp"
#include "sim/gather.hpp"
#include "sim/pages.hpp"
#include "sim/simulate.hpp"
#include "sim/traps.hpp"
#include "sim_streams.hpp"
#include "watcher.hpp"

namespace {

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
const Hooks* hooks = nullptr;  // of the run under way

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

RunResult run(TempStream& stream, const MachineProfile& machine, const Hooks& what,
              RunOptions options = {.fast_share = 0.5},
              Granularity placement = Granularity::range) {
  hooks = &what;
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
void write_poisson(const TempStream& file, std::uint32_t pages, double scale,
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

double four_a_second(std::uint32_t) { return 4; }

/// What protecting all pages of a Poisson stream every 480 ms finds.
struct Faults {
  double per_second = 0;  // of a real page
  double mean_since = 0;  // seconds
  double rate = 0;        // accesses to a page per second, in virtual time
};

Faults faults_of(TempStream& stream, std::uint64_t pages) {
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

}  // namespace

TEST("traps: the first of n accesses is uniform for one and early for many") {
  // P(later than x) = (1 - x)^n; mean 1 / (n + 1).
  constexpr int draws = 200000;
  for (const std::uint64_t n : {1, 2, 5, 64}) {
    double sum = 0;
    std::map<double, int> later{{0.05, 0}, {0.3, 0}, {0.9, 0}};
    for (int i = 0; i < draws; ++i) {
      const double place = first_access(n, (i + 0.5) / draws);
      CHECK(place >= 0 && place < 1);
      sum += place;
      for (auto& [x, count] : later) count += place > x ? 1 : 0;
    }
    CHECK_NEAR(sum / draws, 1 / (static_cast<double>(n) + 1), 1e-4);
    for (const auto& [x, count] : later)
      CHECK_NEAR(static_cast<double>(count) / draws, std::pow(1 - x, static_cast<double>(n)), 1e-4);
  }
}

TEST("traps: the accesses within a share of the block are binomial") {
  constexpr int draws = 100000;
  for (const std::uint32_t n : {1U, 7U, 90U})
    for (const double x : {0.01, 0.25, 0.9, 1.0}) {
      double sum = 0;
      double squares = 0;
      int none = 0;
      for (int i = 0; i < draws; ++i) {
        const double k = accesses_within(n, x, (i + 0.5) / draws);
        CHECK(k <= n);
        sum += k;
        squares += k * k;
        none += k == 0 ? 1 : 0;
      }
      const double mean = sum / draws;
      CHECK_NEAR(mean, n * x, 1e-3 * n);
      CHECK_NEAR(squares / draws - mean * mean, n * x * (1 - x), 0.01 * n * x * (1 - x) + 1e-3);
      CHECK_NEAR(static_cast<double>(none) / draws, std::pow(1 - x, n), 1e-4);
    }
  CHECK_EQ(accesses_within(60000, 0.5, 0.5), 30000u);  // where (1 - x)^n is 0
}

TEST("traps: the planes of the page table are what single pages say") {
  constexpr std::uint64_t size = 300;
  PageTable table({.base_pages = size, .page_bytes = 4096, .footprint = size, .fast_pages = 100});
  const Hooks none;
  hooks = &none;
  test::FakeMemory memory(1, 1);
  const Knobs knobs;
  Hooked policy({memory, knobs, nullptr, 0});
  Rng rng{9};
  std::vector<std::set<std::uint64_t>> expected(trap_count);
  std::set<std::uint64_t> present;
  const auto touch = [&](std::uint32_t first, std::uint32_t count) {
    table.place({trace::EventType::touch, 0, first, count}, policy, {});
    for (std::uint64_t page = first; page < first + count; ++page) present.insert(page);
  };
  touch(0, size);
  for (int step = 0; step < 4000; ++step) {
    const auto trap = static_cast<Trap>(rng.below(trap_count));
    auto& set = expected[index(trap)];
    const PageRange range{PageId{rng.below(size + 20)}, 1 + rng.below(150)};
    const std::uint64_t page = rng.below(size);
    switch (rng.below(6)) {
      case 0:
        table.arm(trap, page);
        set.insert(page);
        break;
      case 1:
      case 2:
        table.disarm(trap, page);
        set.erase(page);
        break;
      case 3: {
        const Tiers which = static_cast<Tiers>(1 + rng.below(3));
        std::vector<std::uint64_t> before(mask_words(range.count), ~0ULL);
        std::vector<std::uint64_t> fresh(mask_words(range.count), ~0ULL);
        std::uint64_t armed = 0;
        std::vector<bool> had(range.count), got(range.count);
        for (std::uint64_t i = 0; i < range.count; ++i) {
          const std::uint64_t each = range.first.value + i;
          if (!present.contains(each) || !includes(which, table.tier_of(each))) continue;
          had[i] = set.contains(each);
          got[i] = !had[i];
          set.insert(each);
          armed += got[i] ? 1 : 0;
        }
        CHECK_EQ(table.arm(trap, range, which, before, fresh), armed);
        for (std::uint64_t i = 0; i < range.count; ++i) {
          CHECK_EQ(in_mask(before, i), had[i]);
          CHECK_EQ(in_mask(fresh, i), got[i]);
        }
        break;
      }
      case 4: {
        std::vector<std::uint64_t> mask(mask_words(range.count), ~0ULL);
        table.unarmed(trap, range, mask);
        for (std::uint64_t i = 0; i < range.count; ++i) {
          const std::uint64_t each = range.first.value + i;
          CHECK_EQ(in_mask(mask, i), present.contains(each) && !set.contains(each));
        }
        break;
      }
      default: {
        const PageRange part{PageId{page}, std::min<std::uint64_t>(7, size - page)};
        table.remove(part);
        for (std::uint64_t each = page; each < part.end().value; ++each) {
          present.erase(each);
          for (auto& one : expected) one.erase(each);
        }
        touch(static_cast<std::uint32_t>(page), static_cast<std::uint32_t>(part.count));
      }
    }
    for (const AccessKind kind : {AccessKind::load, AccessKind::store}) {
      bool any = false;
      for (std::uint64_t each = 0; each < size; ++each) {
        bool caught = false;
        for (std::size_t t = 0; t < trap_count; ++t)
          caught = caught || (catches(static_cast<Trap>(t), kind) && expected[t].contains(each));
        any = any || caught;
        if (table.any_armed(kind)) CHECK_EQ(table.armed(kind).test(each), caught);
      }
      CHECK_EQ(table.any_armed(kind), any);
    }
  }
}

TEST("traps: hint faults of a Poisson page come at its rate, after its exponential time") {
  TempStream stream;
  constexpr std::uint32_t pages = 4096;
  write_poisson(stream, pages, 64, four_a_second, 12);
  const Faults found = faults_of(stream, pages);
  // The page is protected anew at the first multiple of P after its fault: the time between two
  // faults is a whole number of P, of mean P / (1 - e^(-rate P)).
  constexpr double period = 0.48;
  constexpr double length = 12;
  CHECK_NEAR(found.rate, 4, 0.05);
  CHECK_NEAR(found.per_second * length / (length - period) * period,
             1 - std::exp(-found.rate * period), 0.01);
  CHECK_NEAR(found.mean_since * found.rate, 1, 0.02);
}

TEST("traps: fault rate and latency agree at R, R/4 and 4R, and for half and double blocks") {
  TempStream base, quarter, four, half, twice;
  write_poisson(base, 8192, 64, four_a_second, 12);
  write_poisson(quarter, 32768, 16, four_a_second, 12);
  write_poisson(four, 2048, 256, four_a_second, 12);
  write_poisson(half, 8192, 64, four_a_second, 12, 10);
  write_poisson(twice, 8192, 64, four_a_second, 12, 40);
  const Faults expected = faults_of(base, 8192);
  const auto compare = [&](const Faults& found, double tolerance) {
    CHECK_NEAR(found.per_second / expected.per_second, 1, tolerance);
    CHECK_NEAR(found.mean_since / expected.mean_since, 1, tolerance);
  };
  compare(faults_of(quarter, 32768), 0.03);
  compare(faults_of(four, 2048), 0.03);
  compare(faults_of(half, 8192), 0.01);
  compare(faults_of(twice, 8192), 0.01);
}

TEST("traps: what faults and protecting cost is paid by the application") {
  // 100 pages, each touched in each of 40 blocks of 10 ms on 4 threads, R = 16; protected once.
  TempStream stream;
  constexpr double scale = 16;
  StreamWriter writer{stream, simtest::one_class(100, scale)};
  simtest::map_and_touch(writer, 0, 100);
  writer.block(false, 1);
  for (int b = 0; b < 40; ++b) {
    simtest::Part part;
    for (std::uint32_t page = 0; page < 100; ++page) {
      part.pages.push_back(page);
      part.counts.push_back(3);
    }
    writer.parts = {part};
    writer.compute()[0] = 10e6 * 4 / scale;
    writer.block(true, 10e6);
  }
  writer.finish();
  MachineProfile machine = simtest::plain_machine();
  machine.hint_fault_us = 2;
  machine.pte_ns = 30;
  machine.tlb_flush_us = 5;
  const auto faults = [&](const std::function<void(Memory&)>& once) {
    bool done = false;
    Hooks policy;
    policy.period = from_millis(1);
    policy.tick = [&](Memory& memory, Nanos) {
      if (!std::exchange(done, true)) once(memory);
    };
    const RunResult result = run(stream, machine, policy);
    double sum = 0;
    for (const auto& [name, value] : result.breakdown) sum += value;
    CHECK_NEAR(sum, result.seconds, 1e-9 * result.seconds);
    return result.breakdown.at("faults") * 1e9;
  };
  CHECK_NEAR(faults([](Memory&) {}), 0, 0);
  // (2) and (4): two calls that find something, one that does not; on four threads.
  const double pte = scale * 100 * 30;
  const double flush = 2 * 4 * 5000;
  const double fault = scale * 100 * 2000;
  CHECK_NEAR(faults([](Memory& memory) {
               CHECK_EQ(memory.protect({{0}, 60}, Tiers::both, {}), 60u);
               CHECK_EQ(memory.protect({{0}, 60}, Tiers::both, {}), 0u);
               CHECK_EQ(memory.protect({{0}, 100}, Tiers::both, {}), 40u);
             }),
             (pte + flush + fault) / 4, 1e-3);
  // Work in the application's time: no tiering thread does it.
  machine.work_ns[static_cast<std::size_t>(Work::lru_step)] = 100;
  CHECK_NEAR(faults([](Memory& memory) { memory.charge(Work::lru_step, 50, Payer::application); }),
             scale * 50 * 100 / 4, 1e-3);
}

TEST("traps: a fault names the page, its tier, the kind of access and how long it was protected") {
  // Page 0 is loaded from; page 2 is stored to, in the slow tier; page 1 has an entry of no
  // accesses. Blocks of 10 ms.
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(4, 1)};
  simtest::map_and_touch(writer, 0, 4);
  writer.block(false, 1);
  for (int b = 0; b < 10; ++b) {
    if (b == 7) writer.events.push_back({trace::EventType::unmap, 0, 3, 1});
    if (b == 6) {
      writer.parts = {{0, AccessKind::load, {0, 1}, {1, 0}}, {0, AccessKind::store, {2}, {1}}};
    }
    writer.compute()[0] = 10e6 * 4;
    writer.block(true, 10e6);
  }
  writer.finish();
  std::vector<Fault> seen;
  std::vector<std::uint64_t> mask(1);
  Hooks policy;
  policy.period = from_millis(9);
  int ticks = 0;
  Nanos protected_at{};
  policy.tick = [&](Memory& memory, Nanos now) {
    ++ticks;
    if (ticks == 2) {
      CHECK_NEAR(seconds(memory.quantum()), 0.01, 0.001);
      protected_at = now;
      CHECK_EQ(memory.protect({{0}, 50}, Tiers::both, {}), 4u);
      CHECK_NEAR(memory.counters().protected_pages, 4, 0);
    }
    if (ticks == 7) {
      // Pages 1 and 3 have not been touched; the range reaches beyond the address space.
      CHECK_EQ(memory.protect({{1}, 50}, Tiers::slow, mask), 1u);  // page 2 again
      CHECK_EQ(mask[0], 4u);  // page 3 is untouched; page 1 is fast and was not asked for
    }
    if (ticks == 9) {  // page 3 has gone
      CHECK_NEAR(memory.counters().protected_pages, 2, 0);
      CHECK_EQ(memory.protect({{3}, 1}, Tiers::both, {}), 0u);
      CHECK_EQ(memory.protect({{1000}, 5}, Tiers::both, {}), 0u);
    }
  };
  policy.faults = [&](Memory& memory, std::span<const Fault> faults, Nanos now) {
    seen.assign(faults.begin(), faults.end());
    // The seventh timed block, after the set-up's.
    for (const Fault& fault : faults) {
      CHECK(protected_at + fault.since <= now + from_millis(1));
      CHECK(protected_at + fault.since >= now - from_millis(11));
    }
    CHECK_NEAR(memory.counters().hint_faults, 2, 0);
  };
  const RunResult result = run(stream, simtest::plain_machine(), policy);
  CHECK(ticks >= 9);
  CHECK_EQ(seen.size(), 2u);
  if (seen.size() != 2) return;
  CHECK(seen[0].page == PageId{0} && seen[0].tier == Tier::fast &&
        seen[0].kind == AccessKind::load);
  CHECK(seen[1].page == PageId{2} && seen[1].tier == Tier::slow &&
        seen[1].kind == AccessKind::store);
  CHECK_NEAR(result.metrics.at("hint_faults"), 2, 0);
  CHECK_NEAR(result.metrics.at("pages_protected"), 5, 0);
}

TEST("traps: the kind of a first access is drawn in proportion") {
  TempStream stream;
  constexpr std::uint32_t pages = 20000;
  StreamWriter writer{stream, simtest::one_class(pages, 1)};
  simtest::map_and_touch(writer, 0, pages);
  writer.block(false, 1e6);
  for (int b = 0; b < 2; ++b) {
    simtest::Part loads, stores;
    stores.kind = AccessKind::store;
    for (std::uint32_t page = 0; page < pages; ++page) {
      for (auto* part : {&loads, &stores}) part->pages.push_back(page);
      loads.counts.push_back(3);
      stores.counts.push_back(1);
    }
    writer.parts = {loads, stores, loads};
    writer.block(true, 10e6);
  }
  writer.finish();
  Hooks policy;
  policy.period = Nanos{1};
  policy.tick = [&](Memory& memory, Nanos) { (void)memory.protect({{0}, pages}, Tiers::both, {}); };
  double all = 0, stores = 0;
  std::set<std::uint64_t> named;
  policy.faults = [&](Memory&, std::span<const Fault> faults, Nanos) {
    for (const Fault& fault : faults) {
      all += 1;
      stores += fault.kind == AccessKind::store ? 1 : 0;
      named.insert(fault.page.value);
    }
    CHECK(std::ranges::is_sorted(faults, {}, &Fault::page));
  };
  (void)run(stream, simtest::plain_machine(), policy);
  CHECK_EQ(named.size(), pages);
  CHECK(all >= pages);
  CHECK_NEAR(stores / all, 1.0 / 7, 0.01);
}

TEST("traps: accessed bits say what was touched since they were cleared") {
  // Page p is touched in block b if p % 7 == b % 7.
  TempStream stream;
  constexpr std::uint32_t pages = 700;
  StreamWriter writer{stream, simtest::one_class(pages, 4)};
  writer.events.push_back({trace::EventType::map, 0, 0, pages});
  writer.events.push_back({trace::EventType::touch, 0, 0, pages - 100});  // the rest never appears
  writer.compute()[0] = 10e6;
  writer.block(false, 1);
  for (std::uint32_t b = 0; b < 12; ++b) {
    simtest::Part part;
    for (std::uint32_t page = b % 7; page < pages - 100; page += 7) {
      part.pages.push_back(page);
      part.counts.push_back(1);
    }
    part.kind = b % 2 == 0 ? AccessKind::load : AccessKind::store;
    writer.parts = {part};
    writer.compute()[0] = 10e6;
    writer.block(true, 10e6);
  }
  writer.finish();
  int ticks = 0;
  std::vector<bool> touched(pages);  // since the last clear
  for (std::uint32_t page = 0; page < pages - 100; ++page) touched[page] = true;
  Hooks policy;
  policy.period = from_millis(10);            // a block
  const PageRange odd{PageId{3}, pages - 3};  // not aligned to any word
  policy.tick = [&](Memory& memory, Nanos) {
    std::vector<std::uint64_t> mask(mask_words(odd.count));
    // Ticks: one after each block, the set-up's included. Cleared at some of them.
    if (ticks > 0)
      for (std::uint32_t page = static_cast<std::uint32_t>(ticks - 1) % 7; page < pages - 100;
           page += 7)
        touched[page] = true;
    const bool clear = ticks == 0 || ticks == 3 || ticks == 8;
    memory.accessed(odd, mask, clear);
    for (std::uint64_t i = 0; i < odd.count; ++i) {
      const std::uint64_t page = odd.first.value + i;
      CHECK_EQ(in_mask(mask, i), touched[page]);
      if (clear) touched[page] = false;
    }
    ++ticks;
  };
  (void)run(stream, simtest::plain_machine(), policy);
  CHECK_EQ(ticks, 13);
}

TEST("traps: the accessed share of a Zipf footprint agrees at R, R/4 and 4R") {
  const auto share = [](double scale) {
    TempStream stream;
    simtest::write_zipf(
        stream,
        {.full_pages = 1 << 20, .scale = scale, .exponent = 0.7, .rate = 40e6, .seconds = 3});
    const std::uint64_t pages = stream.reader().info().pages;
    double found = 0;
    double scans = 0;
    Hooks policy;
    policy.period = from_millis(20);
    policy.tick = [&](Memory& memory, Nanos) {
      std::vector<std::uint64_t> mask(mask_words(pages));
      memory.accessed({{0}, pages}, mask, true);
      if (scans++ == 0) return;  // before it nothing is kept
      for (const std::uint64_t word : mask) found += std::popcount(word);
    };
    (void)run(stream, simtest::plain_machine(), policy);
    CHECK(scans > 20);
    return found / (scans - 1) / static_cast<double>(pages);
  };
  const double expected = share(256);
  CHECK(expected > 0.1 && expected < 0.9);
  CHECK_NEAR(share(64) / expected, 1, 0.03);
  CHECK_NEAR(share(1024) / expected, 1, 0.03);
}

TEST("traps: probes find each page as often as DAMON would") {
  // Twenty probes of 5 ms, one after the other: their number of hits is binomial in the probability
  // p = 1 - e^(-rate * 5 ms), in blocks that are shorter and longer than a probe.
  for (const double p : {0.1, 0.5, 0.9}) {
    const double rate = -std::log(1 - p) / 0.005;
    for (const int block_ms : {2, 20, 50}) {
      TempStream stream;
      constexpr std::uint32_t pages = 64;
      write_poisson(stream, pages, 1, [&](std::uint32_t) { return rate; }, 6, block_ms);
      double sum = 0, squares = 0, regions = 0;
      Hooks policy;
      const auto ask = [](Memory& memory, Nanos now) {
        std::vector<Probe> probes;
        for (int round = 0; round < 20; ++round)
          for (std::uint64_t page = 0; page < pages; ++page)
            probes.push_back({{page}, now + round * from_millis(5), from_millis(5)});
        memory.probe(probes);
      };
      bool asked = false;
      policy.tick = [&](Memory& memory, Nanos now) {
        if (!std::exchange(asked, true)) ask(memory, now);
      };
      policy.probed = [&](Memory& memory, std::span<const Probe> probes, Nanos now) {
        ask(memory, now);
        CHECK_EQ(probes.size(), 20 * pages);
        CHECK(now >= probes.back().from + probes.back().length);
        std::vector<double> hits(pages);
        for (const Probe& probe : probes) hits[probe.page.value] += probe.accessed ? 1 : 0;
        for (const double hit : hits) {
          sum += hit;
          squares += hit * hit;
          regions += 1;
        }
      };
      (void)run(stream, simtest::plain_machine(), policy);
      CHECK(regions > 2000);
      const double mean = sum / regions;
      const double variance = 20 * p * (1 - p);
      CHECK_NEAR(mean, 20 * p, 5 * std::sqrt(variance / regions) + 0.02);
      CHECK_NEAR((squares / regions - mean * mean) / variance, 1, 0.15);
    }
  }
}

TEST("traps: a probe of a page that is absent, unknown or gone answers no") {
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(20, 1)};
  simtest::map_and_touch(writer, 0, 20);
  writer.block(false, 1);
  for (int b = 0; b < 10; ++b) {
    if (b == 2) writer.events.push_back({trace::EventType::unmap, 0, 5, 1});
    simtest::Part part;
    for (std::uint32_t page = 0; page < 20; ++page) {
      if (page == 5 || page == 6) continue;
      part.pages.push_back(page);
      part.counts.push_back(50);
    }
    writer.parts = {part};
    writer.compute()[0] = 40e6;
    writer.block(true, 10e6);
  }
  writer.finish();
  std::map<std::uint64_t, bool> answers;
  Hooks policy;
  policy.period = Nanos{1};
  bool asked = false;
  policy.tick = [&](Memory& memory, Nanos now) {
    if (std::exchange(asked, true)) return;
    std::vector<Probe> probes;
    for (const std::uint64_t page : {0, 5, 6, 7, 19, 20, 1000000})
      probes.push_back({{page}, now + from_millis(15), from_millis(30)});
    probes.push_back({{8}, Nanos{0}, now});  // all of it is past
    probes[0].accessed = true;               // what the caller left there does not count
    probes[0].length = Nanos{0};
    memory.probe(probes);
    memory.probe({});
  };
  policy.probed = [&](Memory&, std::span<const Probe> probes, Nanos) {
    for (const Probe& probe : probes) answers[probe.page.value] = probe.accessed;
  };
  (void)run(stream, simtest::plain_machine(), policy);
  const std::map<std::uint64_t, bool> expected{{0, false},  {5, false},      {6, false},
                                               {7, true},   {8, false},      {19, true},
                                               {20, false}, {1000000, false}};
  CHECK(answers == expected);
}

TEST("traps: tier counters tell latency and parallelism, at any R") {
  // Half of each block is computation. 4 threads at MLP 2: N loads of L ns, L / 2 of thread time
  // each.
  for (const double scale : {1.0, 16.0, 256.0}) {
    TempStream stream;
    StreamWriter writer{stream, simtest::one_class(10, scale, 2)};
    simtest::map_and_touch(writer, 0, 10);
    writer.block(false, 1);
    for (int b = 0; b < 10; ++b) {
      writer.parts = {{0, AccessKind::load, {0, 9}, {1000, 1000}}};
      writer.compute()[0] = 1000 * 100 / 2 + 1000 * 300 / 2;
      writer.block(true, 1e6);
    }
    writer.finish();
    Counters last;
    double seconds_passed = 0;
    Hooks policy;
    policy.period = Nanos{1};
    policy.tick = [&](Memory& memory, Nanos now) {
      last = memory.counters();
      seconds_passed = seconds(now);
    };
    (void)run(stream, simtest::plain_machine(), policy);
    for (const Tier tier : {Tier::fast, Tier::slow}) {
      const TierCounters& found = last.tier[index(tier)];
      const double latency = tier == Tier::fast ? 100 : 300;
      CHECK_NEAR(found.occupancy_ns / found.reads, latency, 1e-9 * latency);
      // Share of a thread's time with a read of this tier outstanding.
      const double share = latency / 2 / (2 * (50 + 150));
      CHECK_NEAR(found.occupancy_ns / found.busy_ns, 2 * 4 * share / (1 - std::pow(1 - share, 4)),
                 1e-6);
      CHECK_NEAR(found.read_bytes / found.reads, 64, 1e-9);
      CHECK_NEAR(found.written_bytes, 0, 0);
    }
    CHECK(seconds_passed > 0);
  }
  CHECK_NEAR(busy_ns(8e6, 4, 1e6), 1e6, 0);  // more than there is: all of it
  CHECK_NEAR(busy_ns(0, 4, 1e6), 0, 0);
  CHECK_NEAR(busy_ns(3e5, 1.5, 1e6), 1e6 * (1 - std::pow(0.8, 1.5)), 1e-6);
}

TEST("traps: page moves count as bytes of both tiers") {
  TempStream stream;
  constexpr double scale = 4;
  StreamWriter writer{stream, simtest::one_class(10, scale)};
  simtest::map_and_touch(writer, 0, 10);
  writer.block(false, 1);
  for (int b = 0; b < 10; ++b) {
    writer.compute()[0] = 1e6;
    writer.block(true, 1e6);
  }
  writer.finish();
  Hooks policy;
  policy.period = Nanos{1};
  bool asked = false;
  Counters last;
  policy.tick = [&](Memory& memory, Nanos) {
    last = memory.counters();
    const PageId page{0};
    if (!std::exchange(asked, true)) (void)memory.request(Tier::slow, {&page, 1});
  };
  (void)run(stream, simtest::plain_machine(), policy);
  CHECK_NEAR(last.tier[0].read_bytes, 4096, 0);  // of the miniature
  CHECK_NEAR(last.tier[1].written_bytes, 4096, 0);
  CHECK_NEAR(last.tier[0].written_bytes + last.tier[1].read_bytes, 0, 0);
}

TEST("traps: the reserve is kept from first touches, and the policy is woken between them") {
  TempStream stream;
  constexpr std::uint32_t pages = 8192;
  StreamWriter writer{stream, simtest::one_class(pages, 1)};
  simtest::map_and_touch(writer, 0, pages);
  writer.block(false, 1);
  for (int b = 0; b < 3; ++b) {
    writer.compute()[0] = 1e6;
    writer.block(true, 1e6);
  }
  writer.finish();
  std::vector<std::uint64_t> free;  // when woken
  Hooks policy;
  policy.start = [](Memory& memory) { memory.set_watermarks({.reserve = 0.125, .wake = 0.5}); };
  policy.pressure = [&](Memory& memory, Tier tier) {
    CHECK(tier == Tier::fast);
    free.push_back(memory.free_pages(Tier::fast));
    // Served in the same block: the mover has not started yet.
    if (free.size() == 1) {
      const PageId page{0};
      (void)memory.request(Tier::slow, {&page, 1});
    }
  };
  // 4096 fast pages: woken below 2048 of them, before each run of 512; 512 are kept.
  const RunResult result = run(stream, simtest::plain_machine(), policy);
  CHECK(free.size() > 10);
  CHECK_EQ(free.front(), 1536u);
  CHECK_EQ(free[2], 512u);
  CHECK_EQ(free[9], 512u);
  CHECK_EQ(free.back(), 513u);
  CHECK_NEAR(result.metrics.at("footprint_bytes"), 4096.0 * pages, 0);
}

TEST("traps: a policy is told of sites, and asked for as much as it wants at a time") {
  trace::StreamInfo info = simtest::one_class(4096, 1);
  info.objects = {{"heap", 0, 1024}, {"arena", 1024, 1024}, {"heap", 2048, 2048}};
  for (const Granularity placement : {Granularity::range, Granularity::page, Granularity::object}) {
    TempStream stream;
    StreamWriter writer{stream, info};
    for (std::uint32_t object = 0; object < 3; ++object)
      for (const auto type : {trace::EventType::map, trace::EventType::touch})
        writer.events.push_back({type, object, 1024 * object, object == 2 ? 2048U : 1024U});
    writer.block(false, 1);
    writer.compute()[0] = 1e6;
    writer.block(true, 1e6);
    writer.finish();
    std::vector<std::uint32_t> sites;
    std::vector<std::uint64_t> asked;
    Hooks policy;
    policy.map = [&](Memory& memory, PageRange range, std::uint32_t site) {
      sites.push_back(site);
      CHECK_EQ(memory.site(site), range.first.value == 1024 ? "arena" : "heap");
      CHECK_EQ(memory.site(1000), "");
      CHECK(memory.unit(range.first) == (PageRange{range.first, 1}));
    };
    policy.placement = [&](Memory&, PageRange range) {
      asked.push_back(range.count);
      return Tier::fast;
    };
    (void)run(stream, simtest::plain_machine(), policy, {.fast_share = 1}, placement);
    CHECK(sites.size() == 3 && sites[0] == sites[2] && sites[0] != sites[1]);
    std::vector<std::uint64_t> expected(8, 512);
    if (placement == Granularity::page) expected.assign(4096, 1);
    if (placement == Granularity::object) expected = {1024, 1024, 2048};
    CHECK(asked == expected);
  }
}

TEST("traps: a policy that uses all of them gets the same on every processor, and again") {
  TempStream stream;
  const auto rate = [](std::uint32_t page) {
    return page % 10 == 0 ? 50.0 : page % 2 == 0 ? 2.0 : 0.1;
  };
  write_poisson(stream, 1024, 16, rate, 6, 20, true);
  const PolicyInfo watcher = test::watcher();
  RunResult expected;
  check::on_each_isa([&] {
    const RunResult result =
        simulate(stream.reader(), simtest::full_machine(), watcher, {}, {.fast_share = 0.2});
    if (expected.rows.empty()) expected = result;
    CHECK(result.rows == expected.rows);
    CHECK(result.metrics == expected.metrics);
    CHECK(result.breakdown == expected.breakdown);
    CHECK(result.series == expected.series);
  });
  CHECK_EQ(expected.rows.size(), 1u);
  const auto& cells = expected.rows.at(0).cells;
  for (const char* what : {"faults", "probes", "probed_yes", "woken", "idle", "untouched"})
    if (!(std::get<double>(cells.at(what)) > 20)) check::fail(__FILE__, __LINE__, what);
  CHECK(std::get<double>(cells.at("probed_yes")) < std::get<double>(cells.at("probes")));
  CHECK(expected.metrics.at("promotions") > 100 && expected.metrics.at("demotions") > 100);
  CHECK(expected.series.contains("hint_faults"));
  // Another seed, another result.
  const RunResult other = simulate(stream.reader(), simtest::full_machine(), watcher, {},
                                   {.fast_share = 0.2, .seed = 1});
  CHECK(other.rows != expected.rows);
}
