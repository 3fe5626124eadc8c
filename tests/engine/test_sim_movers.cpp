// SPDX-License-Identifier: MIT

// How pages move: transactional copies, shadows, and moves by the thread that faults.
#include <cmath>
#include <set>

#include "check.hpp"
#include "scripted.hpp"
#include "sim/mover.hpp"

namespace {

using namespace tt;
using namespace tt::sim;
using simtest::Hooks;
using simtest::run;
using simtest::share;
using simtest::StreamWriter;
using simtest::TempStream;

constexpr std::uint32_t pages = 400;
constexpr double scale = 16;

/// Blocks of 1 ms of computation; in each of them every page gets so many loads, or stores.
void write_blocks(const TempStream& file, int blocks, std::uint16_t accesses, AccessKind kind) {
  StreamWriter writer{file, simtest::one_class(pages, scale, 1000)};
  simtest::map_and_touch(writer, 0, pages);
  writer.block(false, 1);
  for (int b = 0; b < blocks; ++b) {
    simtest::Part part;
    part.kind = kind;
    for (std::uint32_t page = 0; accesses > 0 && page < pages; ++page) {
      part.pages.push_back(page);
      part.counts.push_back(accesses);
    }
    if (accesses > 0) writer.parts = {part};
    writer.compute()[0] = 4e6 / scale;
    writer.block(true, 1e6);
  }
  writer.finish();
}

/// All pages start in the slow tier and are promoted once, at the first tick.
struct Promotion {
  double done = 0, busy = 0, voided = 0, mover_ns = 0, migration_ns = 0;
};
Promotion promote(std::uint16_t accesses, AccessKind kind, const Movers& movers) {
  TempStream stream;
  write_blocks(stream, 200, accesses, kind);
  Hooks policy;
  policy.start = [&](Memory& memory) { memory.set_movers(movers); };
  policy.placement = [](PageRange) { return Tier::slow; };
  bool asked = false;
  policy.period = from_millis(1);
  policy.tick = [&](Memory& memory, Nanos) {
    if (std::exchange(asked, true)) return;
    std::vector<PageId> all;
    for (std::uint64_t page = 0; page < pages; ++page) all.push_back(PageId{page});
    CHECK_EQ(memory.request(Tier::fast, all), pages);
  };
  Promotion found;
  policy.migrated = [&](Memory& memory, std::span<const MigrationResult> results, Nanos) {
    for (const MigrationResult& result : results) {
      Residency where{};
      memory.residency(result.page, {&where, 1});
      if (result.outcome == Outcome::done) {
        found.done += 1;
        CHECK(where == Residency::fast);
        CHECK(result.cost >= Nanos{10000});
      } else {
        CHECK(result.outcome == Outcome::busy && where == Residency::slow);
        found.busy += 1;
      }
    }
    const std::uint64_t used = memory.capacity(Tier::fast) - memory.free_pages(Tier::fast);
    CHECK_NEAR(static_cast<double>(used),
               found.done + static_cast<double>(memory.pending(Tier::fast)), pages);
  };
  const RunResult result = run(stream, simtest::plain_machine(), policy, share(1));
  if (movers.copy == Copy::transactional) found.voided = result.metrics.at("copies_voided") / scale;
  found.mover_ns = result.metrics.at("mover_cpu_seconds") * 1e9;
  found.migration_ns = result.breakdown.at("migration") * 1e9;
  return found;
}

}  // namespace

TEST("movers: a copy is void if a store hits the page under it") {
  // P = 1 - (1 - d/T)^w.
  CHECK_NEAR(abort_probability(0.25, 0), 0, 0);
  CHECK_NEAR(abort_probability(0.25, 1), 0.25, 1e-15);
  CHECK_NEAR(abort_probability(0.25, 3), 1 - 0.75 * 0.75 * 0.75, 1e-15);
  CHECK_NEAR(abort_probability(1, 1), 1, 0);
}

TEST("movers: transactional copies hold nobody up, and fail as often as stores hit them") {
  constexpr double page_ns = 11e3;  // 10 us + 4 KiB at 4.096 GB/s
  const Promotion loads = promote(50, AccessKind::load, {.copy = Copy::transactional});
  CHECK_NEAR(loads.done, pages, 0);
  CHECK_NEAR(loads.voided + loads.migration_ns, 0, 0);
  CHECK_NEAR(loads.mover_ns, pages * scale * page_ns, 1e-3 * pages * scale * page_ns);
  CHECK(promote(50, AccessKind::load, {.copy = Copy::blocking}).migration_ns > 0);
  // Ten stores a block of 1 ms: 10.5 % of the copies are void, and nobody tries again.
  const double p = abort_probability(page_ns / 1e6, 10);
  const Promotion once = promote(10, AccessKind::store, {.copy = Copy::transactional});
  CHECK_NEAR(once.busy / pages, p, 4 * std::sqrt(p / pages));
  CHECK_NEAR(once.done + once.busy, pages, 0);
  CHECK_NEAR(once.voided, once.busy, 0);
  CHECK_NEAR(once.mover_ns, pages * scale * page_ns, 1);
  // Two more attempts: next to none is left, and each attempt costs a copy.
  const Promotion thrice =
      promote(10, AccessKind::store, {.copy = Copy::transactional, .retries = 2});
  CHECK(thrice.busy <= 3);
  CHECK_NEAR(thrice.voided, pages * (p + p * p), 4 * std::sqrt(pages * p));
  CHECK_NEAR(thrice.mover_ns, (thrice.done + thrice.voided) * scale * page_ns, scale * page_ns);
}

TEST("movers: a shadow takes a slot, makes demotion cheap, and goes with the first store") {
  constexpr double fixed_ns = 10e3;
  for (const AccessKind kind : {AccessKind::load, AccessKind::store}) {
    TempStream stream;
    write_blocks(stream, 300, 1, kind);
    Hooks policy;
    policy.start = [](Memory& memory) {
      memory.set_movers({.copy = Copy::transactional, .retries = 1000, .shadows = true});
    };
    policy.placement = [](PageRange) { return Tier::slow; };
    const auto all = [] {
      std::vector<PageId> every;
      for (std::uint64_t page = 0; page < pages; ++page) every.push_back(PageId{page});
      return every;
    }();
    const bool loads = kind == AccessKind::load;
    double up_ns = 0;
    int ticks = 0;
    policy.period = from_millis(1);
    policy.tick = [&](Memory& memory, Nanos) {
      ++ticks;
      if (ticks == 1) (void)memory.request(Tier::fast, all);
      if (ticks == 140) {
        CHECK_EQ(memory.capacity(Tier::fast) - memory.free_pages(Tier::fast), pages);
        // Stores have let all of the shadows go, and with them their slots.
        CHECK_NEAR(memory.counters().shadow_pages, loads ? pages : 0, 0);
        CHECK_EQ(memory.free_pages(Tier::slow), loads ? 0 : pages);
        (void)memory.request(Tier::slow, all);
      }
      if (ticks == 290) {
        CHECK_EQ(memory.free_pages(Tier::fast), pages);
        CHECK_EQ(memory.free_pages(Tier::slow), 0u);
        CHECK_NEAR(memory.counters().shadow_pages, 0, 0);
      }
    };
    const RunResult result = run(stream, simtest::plain_machine(), policy, share(1));
    CHECK_NEAR(result.metrics.at("demotions"), pages * scale, 0);
    up_ns = (pages + result.metrics.at("copies_voided") / scale) * scale * 11e3;
    const double down_ns = result.metrics.at("mover_cpu_seconds") * 1e9 - up_ns;
    // A quarter of the fixed cost and no copy; a copy where there is no shadow.
    if (loads) CHECK_NEAR(down_ns, pages * scale * fixed_ns / 4, 1);
    CHECK_NEAR(result.metrics.at("migrated_bytes"), (loads ? 1 : 2) * pages * scale * 4096, 0);
    // The store that lets a shadow go faults.
    if (loads) {
      CHECK(!result.breakdown.contains("faults"));
    } else {
      CHECK_NEAR(down_ns, pages * scale * 11e3, 0.2 * pages * scale * 11e3);
      CHECK(result.breakdown.at("faults") > 0);
    }
  }
}

namespace {

/// A fault takes 2 us, protecting nothing.
MachineProfile faulting_machine() {
  MachineProfile machine = simtest::plain_machine();
  machine.hint_fault_us = 2;
  machine.pte_ns = machine.tlb_flush_us = 0;
  return machine;
}

/// All pages are slow, and protected by the first tick.
Hooks protecting() {
  Hooks policy;
  policy.placement = [](PageRange) { return Tier::slow; };
  policy.period = from_millis(1);
  policy.tick = [asked = false](Memory& memory, Nanos) mutable {
    if (!std::exchange(asked, true))
      CHECK_EQ(memory.protect({PageId{0}, pages}, Tiers::slow, {}), pages);
  };
  return policy;
}

}  // namespace

TEST("movers: a page moved in its fault costs the thread that faults, not the movers") {
  TempStream stream;
  write_blocks(stream, 20, 1, AccessKind::load);
  const MachineProfile machine = faulting_machine();
  const PolicyTraits traits{.needs = Need::faults};
  const auto play = [&](bool in_fault) {
    Hooks policy = protecting();
    policy.faults = [=](Memory& memory, std::span<const Fault> faults, Nanos) {
      std::vector<PageId> hot;
      for (const Fault& fault : faults) hot.push_back(fault.page);
      if (in_fault) CHECK_EQ(memory.request(Tier::fast, hot, Way::in_fault), hot.size());
    };
    return run(stream, machine, policy, share(0.5), traits);
  };
  const RunResult stays = play(false);
  const RunResult moves = play(true);
  CHECK_NEAR(stays.metrics.at("hint_faults"), pages * scale, 0);
  CHECK_NEAR(stays.breakdown.at("faults"), pages * scale * 2e-6 / 4, 1e-9);
  // Half of them find room, and their threads wait for the moves.
  CHECK_NEAR(moves.metrics.at("promotions"), pages / 2 * scale, 0);
  CHECK_NEAR(moves.metrics.at("promotions_no_space"), pages / 2 * scale, 0);
  CHECK_NEAR(moves.breakdown.at("faults") - stays.breakdown.at("faults"),
             pages / 2 * scale * 11e-6 / 4, 1e-9);
  CHECK_NEAR(moves.metrics.at("mover_cpu_seconds"), 0, 0);
  CHECK(moves.metrics.at("fast_hit_ratio") > 0.4);
  // Of other pages, and at other times, there is no thread that could.
  Hooks policy;
  policy.tick = [](Memory& memory, Nanos) {
    const PageId page{0};
    (void)memory.request(Tier::slow, {&page, 1}, Way::in_fault);
  };
  policy.period = from_millis(1);
  CHECK_THROWS(run(stream, machine, policy, share(0.5), traits), "in_fault");
}

TEST("movers: a thread goes on when its fault is over") {
  TempStream stream;
  write_blocks(stream, 2, 1, AccessKind::load);
  const MachineProfile machine = faulting_machine();
  Hooks policy = protecting();
  std::vector<Nanos> at;
  Nanos since{};
  policy.faults = [&](Memory& memory, std::span<const Fault> faults, Nanos now) {
    CHECK_EQ(faults.size(), 1u);
    CHECK(faults[0].since > since);
    since = faults[0].since;
    at.push_back(now);
    (void)memory.request(Tier::fast, {&faults[0].page, 1}, Way::in_fault);
  };
  const RunResult result = run(stream, machine, policy, share(1), {.needs = Need::faults});
  CHECK_EQ(at.size(), pages);
  // On one of four threads, 2 us for a fault and 11 for a move, of all pages that it stands for.
  const Nanos least = from_seconds(scale * 13e-6 / 4);
  for (std::size_t i = 1; i < at.size(); ++i) CHECK(at[i] - at[i - 1] >= least - Nanos{1});
  CHECK(seconds(at.back()) <= result.total_seconds);
  CHECK_NEAR(result.breakdown.at("faults"), pages * scale * 13e-6 / 4, 1e-9);
}

TEST("movers: a page that is not accessible when it moves needs no shootdown") {
  MachineProfile machine = simtest::plain_machine();
  machine.migration_shootdown_us = 2;
  machine.pte_ns = machine.tlb_flush_us = 0;
  enum class By { fault, daemon };
  // All pages are promoted: by threads that fault on them, or by a daemon while nobody looks.
  const auto shootdowns = [&](By by, bool protects, bool maps_first) {
    TempStream stream;
    write_blocks(stream, 100, by == By::fault ? 1 : 0, AccessKind::load);
    Hooks policy;
    policy.start = [](Memory& memory) { memory.set_movers({.copy = Copy::transactional}); };
    policy.placement = [](PageRange) { return Tier::slow; };
    policy.period = from_millis(1);
    bool asked = false;
    policy.tick = [&](Memory& memory, Nanos) {
      if (std::exchange(asked, true)) return;
      if (protects) CHECK_EQ(memory.protect({PageId{0}, pages}, Tiers::slow, {}), pages);
      std::vector<PageId> all;
      for (std::uint64_t page = 0; page < pages; ++page) all.push_back(PageId{page});
      if (by == By::daemon) CHECK_EQ(memory.request(Tier::fast, all), pages);
    };
    policy.faults = [](Memory& memory, std::span<const Fault> faults, Nanos) {
      for (const Fault& fault : faults)
        (void)memory.request(Tier::fast, {&fault.page, 1}, Way::in_fault);
    };
    const PolicyTraits traits{.needs = Need::faults | Need::copies, .maps_first = maps_first};
    const RunResult result = run(stream, machine, policy, share(1), traits);
    CHECK_NEAR(result.metrics.at("promotions"), pages * scale, 0);
    return result.breakdown.at("migration") / 2e-6;
  };
  CHECK_NEAR(shootdowns(By::fault, true, false), 0, 1e-6);
  CHECK_NEAR(shootdowns(By::fault, true, true), pages * scale, 1e-6 * pages * scale);
  CHECK_NEAR(shootdowns(By::daemon, true, false), 0, 1e-6);
  CHECK_NEAR(shootdowns(By::daemon, false, false), pages * scale, 1e-6 * pages * scale);
}

TEST("movers: room made within a block is there for the faults that follow in it") {
  MachineProfile machine = simtest::plain_machine();
  machine.pte_ns = machine.tlb_flush_us = 0;
  // After the set-up, 400 ms in which each page is loaded from once, cut into so many blocks.
  const auto play = [&](int blocks) {
    TempStream stream;
    StreamWriter writer{stream, simtest::one_class(pages, scale, 1000)};
    simtest::map_and_touch(writer, 0, pages);
    writer.block(false, 1e6);
    writer.compute()[0] = 8e6 / scale;
    writer.block(true, 2e6);
    for (int b = 0; b < blocks; ++b) {
      simtest::Part part;
      for (auto page = static_cast<std::uint32_t>(b); page < pages;
           page += static_cast<std::uint32_t>(blocks)) {
        part.pages.push_back(page);
        part.counts.push_back(1);
      }
      writer.parts = {part};
      writer.compute()[0] = 1600e6 / scale / blocks;
      writer.block(true, 400e6 / blocks);
    }
    writer.finish();
    Hooks policy;
    policy.start = [](Memory& memory) { memory.set_movers({.threads = 0}); };
    policy.period = from_millis(1);
    bool asked = false;
    policy.tick = [&](Memory& memory, Nanos) {
      if (!std::exchange(asked, true))
        CHECK_EQ(memory.protect({PageId{0}, pages}, Tiers::slow, {}), pages * 9 / 10);
    };
    std::uint64_t next = 0;
    policy.faults = [&](Memory& memory, std::span<const Fault> faults, Nanos) {
      for (const Fault& fault : faults)
        if (memory.free_pages(Tier::fast) > 0)
          (void)memory.request(Tier::fast, {&fault.page, 1}, Way::in_fault);
      for (; memory.free_pages(Tier::fast) + memory.pending(Tier::slow) < 20 && next < 40; ++next) {
        const PageId victim{next};
        (void)memory.request(Tier::slow, {&victim, 1});
      }
    };
    return run(stream, machine, policy, share(0.1), PolicyTraits{.needs = Need::faults});
  };
  const RunResult one = play(1);
  const RunResult forty = play(40);
  // 40 pages are demoted in all, and as many promoted in their stead.
  CHECK_NEAR(forty.metrics.at("promotions"), 40 * scale, 0);
  CHECK_NEAR(one.metrics.at("promotions"), 40 * scale, 0);
  CHECK_NEAR(one.metrics.at("demotions"), 40 * scale, 0);
  CHECK_NEAR(one.metrics.at("mover_cpu_seconds"), forty.metrics.at("mover_cpu_seconds"), 1e-9);
}

TEST("movers: pages that vanish under a copy or with a shadow leave all of their slots") {
  for (const bool shadows : {false, true}) {
    TempStream stream;
    StreamWriter writer{stream, simtest::one_class(pages, scale)};
    simtest::map_and_touch(writer, 0, pages);
    writer.block(false, 1);
    for (int b = 0; b < 200; ++b) {
      if (b % 10 == 5) writer.events.push_back({trace::EventType::unmap, 0, 0, pages / 2});
      if (b % 10 == 9) simtest::map_and_touch(writer, 0, pages / 2);
      writer.parts = {{0, AccessKind::store, {pages - 1 - b % 50}, {1}}};
      writer.compute()[0] = 4e6 / scale;
      writer.block(true, 1e6);
    }
    writer.finish();
    Hooks policy;
    policy.start = [=](Memory& memory) {
      memory.set_movers({.copy = Copy::transactional, .retries = 1, .shadows = shadows});
    };
    policy.placement = [](PageRange) { return Tier::slow; };
    std::set<std::uint64_t> there;
    policy.range = [&](PageRange range, bool mapped) {
      for (std::uint64_t page = range.first.value; page < range.end().value; ++page)
        mapped ? (void)there.insert(page) : (void)there.erase(page);
    };
    int ticks = 0;
    policy.period = from_millis(1);
    policy.tick = [&](Memory& memory, Nanos) {
      std::vector<PageId> some;
      for (std::uint64_t page = ticks % 7; page < pages; page += 7) some.push_back(PageId{page});
      (void)memory.request(++ticks % 3 == 0 ? Tier::slow : Tier::fast, some);
      const double held =
          static_cast<double>(there.size()) + memory.counters().shadow_pages +
          static_cast<double>(memory.pending(Tier::fast) + memory.pending(Tier::slow));
      double used = 0;
      for (const Tier tier : {Tier::fast, Tier::slow}) {
        CHECK(memory.free_pages(tier) <= memory.capacity(tier));
        used += static_cast<double>(memory.capacity(tier) - memory.free_pages(tier));
      }
      CHECK(used >= static_cast<double>(there.size()) && used <= held);
      CHECK(shadows || memory.counters().shadow_pages == 0);
    };
    const RunResult result = run(stream, simtest::plain_machine(), policy, share(0.5));
    CHECK(result.metrics.at("promotions") > 0 && result.metrics.at("demotions") > 0);
    CHECK(result.metrics.at("promotions_gone") > 0);
  }
}

TEST("movers: threads that copy a page together move one at a time, in a fraction of the time") {
  const sim::MachineProfile machine = simtest::plain_machine();
  // 2 MiB at four times the 4.096 GB/s of one thread, and no faster than the slow tier's writes.
  CHECK_NEAR(move_ns(machine, Tier::slow, 2097152, 4, {}, 4), 10000 + 2097152 / 10.0, 1e-6);
  CHECK_NEAR(move_ns(machine, Tier::fast, 2097152, 4, {}, 4), 10000 + 2097152 / 16.384, 1e-6);
  CHECK_NEAR(move_ns(machine, Tier::fast, 2097152, 4, {}, 2), 10000 + 2097152 / 8.192, 1e-6);
  constexpr double fixed_ns = 10e3, copy_ns = 1e3;  // of 4 KiB, by one thread
  const Promotion apart = promote(0, AccessKind::load, {.threads = 4});
  const Promotion together = promote(0, AccessKind::load, {.threads = 4, .together = 4});
  CHECK_NEAR(apart.done, pages, 0);
  CHECK_NEAR(together.done, pages, 0);
  // All four are busy with a page while it moves.
  CHECK_NEAR(apart.mover_ns, pages * scale * (fixed_ns + copy_ns), 1);
  CHECK_NEAR(together.mover_ns, 4 * pages * scale * (fixed_ns + copy_ns / 4), 1);
}

TEST("movers: no more threads than there are can copy a page together") {
  CHECK_THROWS(promote(0, AccessKind::load, {.threads = 2, .together = 3}), "together");
  CHECK_THROWS(promote(0, AccessKind::load, {.threads = 2, .together = 0}), "together");
}
