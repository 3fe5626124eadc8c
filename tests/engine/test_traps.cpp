// SPDX-License-Identifier: MIT

// What waits for the next access to a page, and hint faults: against closed forms, and independent
// of the miniature's scale and of the blocks' length.
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "check.hpp"
#include "fake_memory.hpp"
#include "hooked.hpp"
#include "sim/pages.hpp"
#include "sim/traps.hpp"

namespace {

using namespace tt;
using namespace tt::sim;
using namespace hooked;
using simtest::StreamWriter;
using simtest::TempStream;

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

TEST("pages: where a range is, is where each of its pages is") {
  constexpr std::uint64_t size = 200;
  PageTable table({.base_pages = size,
                   .page_bytes = 4096,
                   .footprint = size,
                   .slow_pages = size,
                   .fast_pages = 60});
  const Hooks none;
  hooks = &none;
  test::FakeMemory memory(1, 1);
  const Knobs knobs;
  Hooked policy({memory, knobs, nullptr, 0});
  Rng rng{5};
  std::set<Residency> seen;
  for (int step = 0; step < 60; ++step) {
    const auto first = static_cast<std::uint32_t>(rng.below(size));
    const auto count = static_cast<std::uint32_t>(1 + rng.below(size - first));
    if (rng.below(3) == 0) {
      table.remove({PageId{first}, count});
    } else {
      table.place({trace::EventType::touch, 0, first, 1 + count / 4}, policy, {});
    }
    for (std::uint64_t from = 0; from < size; from += 1 + rng.below(40)) {
      std::vector<Residency> found(1 + rng.below(size + 20 - from));
      table.residency(PageId{from}, found);
      for (std::size_t i = 0; i < found.size(); ++i) {
        CHECK(found[i] == table.where(from + i));
        seen.insert(found[i]);
      }
    }
  }
  CHECK_EQ(seen.size(), 3u);
}

TEST("traps: the planes of the page table are what single pages say") {
  constexpr std::uint64_t size = 300;
  PageTable table({.base_pages = size,
                   .page_bytes = 4096,
                   .footprint = size,
                   .slow_pages = size,
                   .fast_pages = 100});
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
  using OnFaults = decltype(Hooks::faults);
  const auto faults = [&](const std::function<void(Memory&)>& once, const OnFaults& each = {}) {
    bool done = false;
    Hooks policy;
    policy.faults = each;
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
  // Pages that have moved are left without access rights for nothing, and their first accesses
  // fault as others do; a thread that does not get through faults again.
  std::vector<PageId> ten;
  for (std::uint64_t page = 0; page < 10; ++page) ten.push_back({page});
  const auto leave = [&](Memory& memory) { memory.leave_protected(ten); };
  double counted = 0;
  CHECK_NEAR(faults(leave), fault / 10 / 4, 1e-3);
  CHECK_NEAR(faults(leave,
                    [&](Memory& memory, std::span<const Fault> some, Nanos) {
                      for (const Fault& each : some) memory.fault_again(each.page, 29);
                      counted = memory.counters().hint_faults;
                    }),
             30 * fault / 10 / 4, 1e-3);
  CHECK_NEAR(counted, 10 * 30, 0);
  CHECK_THROWS(faults([](Memory& memory) { memory.fault_again({0}, 1); }), "has not just faulted");
  // Work in the application's time: no tiering thread does it.
  machine.work_ns[Work::lru_step] = 100;
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
    if (b == 8) writer.events.push_back({trace::EventType::unmap, 0, 3, 1});
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
    if (ticks == 8) {
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
    seen.insert(seen.end(), faults.begin(), faults.end());
    // The seventh timed block, after the set-up's.
    for (const Fault& fault : faults) {
      CHECK(protected_at + fault.since <= now + from_millis(1));
      CHECK(protected_at + fault.since >= now - from_millis(11));
    }
    CHECK_NEAR(memory.counters().hint_faults, static_cast<double>(seen.size()), 0);
  };
  const RunResult result = run(stream, simtest::plain_machine(), policy);
  CHECK(ticks >= 9);
  CHECK_EQ(seen.size(), 2u);
  if (seen.size() != 2) return;
  std::ranges::sort(seen, {}, &Fault::page);
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
    CHECK(std::ranges::is_sorted(faults, {}, &Fault::since));  // they come in order of time
  };
  (void)run(stream, simtest::plain_machine(), policy);
  CHECK_EQ(named.size(), pages);
  CHECK(all >= pages);
  CHECK_NEAR(stores / all, 1.0 / 7, 0.01);
}

TEST("traps: a scan takes its pages one after the other, and its thread accesses none meanwhile") {
  constexpr std::uint32_t pages = 64, often = 1000;
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(pages, 1)};
  simtest::map_and_touch(writer, 0, pages);
  writer.block(false, 1e6);
  simtest::Part part;
  for (std::uint32_t page = 0; page < pages; ++page) {
    part.pages.push_back(page);
    part.counts.push_back(often);
  }
  for (int b = 0; b < 3; ++b) {
    writer.parts = {part};
    writer.block(true, 10e6);
  }
  writer.finish();
  MachineProfile machine = simtest::plain_machine();
  machine.threads = 1;
  machine.pte_ns = 1e6;
  machine.tlb_flush_us = machine.hint_fault_us = 0;
  bool done = false;
  std::size_t found = 0;
  Hooks policy;
  policy.period = from_millis(1);
  policy.tick = [&](Memory& memory, Nanos) {
    if (std::exchange(done, true)) return;
    CHECK_EQ(memory.protect({{0}, 40}, Tiers::both, {}), 40u);
    CHECK_EQ(memory.protect({{40}, 24}, Tiers::both, {}), 24u);
  };
  policy.faults = [&](Memory&, std::span<const Fault> faults, Nanos) {
    for (const Fault& fault : faults)
      CHECK_NEAR(1e3 * seconds(fault.since), pages - static_cast<double>(fault.page.value), 1);
    found += faults.size();
  };
  (void)run(stream, machine, policy);
  CHECK_EQ(found, pages);
}

TEST("traps: accessed bits that were cleared within a block are set again by what follows in it") {
  constexpr std::uint32_t pages = 64, often = 1000, seldom = 10;
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(pages, 1, 1000)};
  simtest::map_and_touch(writer, 0, pages);
  writer.block(false, 1e6);
  simtest::Part part;
  for (std::uint32_t page = 0; page < pages / 2; ++page) {
    part.pages.push_back(page);
    part.counts.push_back(static_cast<std::uint16_t>(page % 2 == 0 ? often : seldom));
  }
  writer.parts = {part};
  writer.compute()[0] = 1600e6;  // 400 ms of four threads
  writer.block(true, 400e6);
  writer.finish();
  Hooks policy;
  policy.period = from_millis(10);
  int looks = 0, at_often = 0, at_seldom = 0, at_none = 0;
  policy.tick = [&](Memory& memory, Nanos) {
    std::uint64_t accessed = 0;
    memory.accessed({PageId{0}, pages}, {&accessed, 1}, true);
    if (looks++ == 0) return;  // of the set-up, and of all of the block
    for (std::uint32_t page = 0; page < pages; ++page) {
      const int bit = static_cast<int>(accessed >> page & 1);
      (page >= pages / 2 ? at_none : page % 2 == 0 ? at_often : at_seldom) += bit;
    }
  };
  (void)run(stream, simtest::plain_machine(), policy);
  CHECK(looks >= 39);
  const double of = (looks - 1) * pages / 4.0;
  CHECK_NEAR(at_often / of, 1, 1e-9);
  CHECK_NEAR(at_seldom / of, 1 - std::pow(1 - 1 / 40.0, seldom), 0.05);
  CHECK_EQ(at_none, 0);
}
