// SPDX-License-Identifier: MIT

// Mixed page sizes: what a unit of 512 base pages is to the simulated machine.
#include <utility>

#include "check.hpp"
#include "hooked.hpp"
#include "sim/gather.hpp"
#include "watcher.hpp"

namespace {

using namespace tt;
using namespace tt::sim;
using namespace hooked;
using simtest::StreamWriter;
using simtest::TempStream;

constexpr std::uint32_t unit = 512;

/// `touched` pages of `pages` mapped ones, and ten idle blocks of a millisecond.
void write_idle(const TempStream& file, std::uint32_t pages, std::uint32_t first,
                std::uint32_t touched) {
  StreamWriter writer{file, simtest::one_class(pages, 1)};
  writer.events = {{trace::EventType::map, 0, 0, pages},
                   {trace::EventType::touch, 0, first, touched}};
  writer.block(false, 1);
  for (int b = 0; b < 10; ++b) {
    writer.compute()[0] = 4e6;
    writer.block(true, 1e6);
  }
  writer.finish();
}

RunResult run_mixed(TempStream& stream, const Hooks& what, std::uint64_t fast_pages) {
  return run(stream, simtest::plain_machine(), what,
             {.fast_bytes = fast_pages * 4096, .page_bytes = 4096, .mixed = true});
}

}  // namespace

TEST("mixed: a touched page brings its unit, which takes the room of 512 pages") {
  TempStream stream;
  write_idle(stream, 4 * unit + 100, 600, 500);  // pages 600 to 1099: the units 1 and 2
  Hooks policy;
  policy.period = Nanos{1};
  policy.tick = [&](Memory& memory, Nanos) {
    CHECK_EQ(memory.page_bytes(), 4096u);
    CHECK(memory.unit({700}) == (PageRange{{unit}, unit}));
    CHECK(memory.unit({4 * unit + 5}) == (PageRange{{4 * unit + 5}, 1}));  // not a whole group
    std::vector<Residency> where(4 * unit + 100);
    memory.residency({0}, where);
    CHECK(where[0] == Residency::absent);
    CHECK(where[unit] == Residency::fast);  // never touched itself
    // 500 touched pages are fewer than a unit has, and the fast tier holds 750 pages.
    CHECK_EQ(memory.free_pages(Tier::fast), 750u - unit);
    CHECK_EQ(memory.capacity(Tier::slow) - memory.free_pages(Tier::slow), unit);
    CHECK(where[3 * unit - 1] == Residency::slow);
  };
  const auto result = run_mixed(stream, policy, 750);
  CHECK_NEAR(result.metrics.at("huge_share"), 1, 0);
}

TEST("mixed: a unit moves as one, whichever of its pages is asked for, in the time of 2 MiB") {
  TempStream stream;
  write_idle(stream, 4 * unit, 0, 4 * unit);
  Hooks policy;
  policy.period = Nanos{1};
  bool asked = false;
  policy.tick = [&](Memory& memory, Nanos) {
    if (!std::exchange(asked, true)) {
      const std::array<PageId, 3> pages{PageId{5}, PageId{6}, PageId{7}};
      CHECK_EQ(memory.request(Tier::slow, pages, Way::background), 3u);
      CHECK_EQ(memory.pending(Tier::slow), unit);
    }
  };
  const auto result = run_mixed(stream, policy, 2 * unit);
  CHECK_NEAR(result.metrics.at("demotions"), unit, 0);
  CHECK_NEAR(result.metrics.at("migrated_bytes"), 2 << 20, 0);
  // One fixed cost, one copy.
  CHECK_NEAR(result.metrics.at("mover_cpu_seconds"), 10e-6 + (2 << 20) / 4.096e9, 1e-9);
}

TEST("mixed: a unit has one accessed bit, one protection, one fault") {
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(2 * unit, 1)};
  simtest::map_and_touch(writer, 0, 2 * unit);
  writer.block(false, 1);
  for (int b = 0; b < 6; ++b) {
    if (b == 3) writer.parts = {{0, AccessKind::load, {10, 20, 30}, {1, 1, 1}}};
    writer.compute()[0] = 4e6;
    writer.block(true, 1e6);
  }
  writer.finish();
  Hooks policy;
  policy.period = Nanos{1};
  int ticks = 0;
  std::vector<std::uint64_t> faults;
  policy.faults = [&](Memory& memory, std::span<const Fault> found, Nanos) {
    for (const Fault& fault : found) faults.push_back(fault.page.value);
    CHECK_NEAR(memory.counters().protected_pages, unit, 0);  // the other unit
  };
  policy.tick = [&](Memory& memory, Nanos) {
    std::vector<std::uint64_t> mask(2 * unit / 64);
    if (ticks++ == 0) {
      CHECK_EQ(memory.protect({{0}, 2 * unit}, Tiers::both, {}), 2 * unit);
      // A range that begins inside of a unit leaves it alone; one that ends inside takes it along.
      memory.accessed({{1}, unit}, std::span{mask}.first(mask_words(unit)), true);
      memory.accessed({{0}, 2 * unit}, mask, false);
      CHECK(in_mask(mask, 0) && in_mask(mask, unit - 1) && !in_mask(mask, unit));
      memory.accessed({{0}, 1}, std::span{mask}.first(1), true);
    }
    if (ticks > 64 * 6) return;
    memory.accessed({{0}, 2 * unit}, mask, false);
    CHECK_EQ(in_mask(mask, 0), in_mask(mask, unit - 1));
    CHECK(!in_mask(mask, 2 * unit - 1));
  };
  (void)run_mixed(stream, policy, 2 * unit);
  CHECK((faults == std::vector<std::uint64_t>{0}));
}

TEST("mixed: splitting frees what was never touched, and base pages then move by themselves") {
  TempStream stream;
  write_idle(stream, 2 * unit, 0, 300);
  Hooks policy;
  policy.period = Nanos{1};
  int ticks = 0;
  policy.tick = [&](Memory& memory, Nanos) {
    const PageId first{0}, page{7};
    if (++ticks == 1) {
      CHECK_EQ(memory.free_pages(Tier::fast), 0u);
      CHECK_EQ(memory.reshape(Change::split, {&first, 1}), 1u);
    } else if (memory.unit(first).count == 1) {
      CHECK(memory.free_pages(Tier::fast) >= unit - 300);
      Residency where{};
      memory.residency({&page, 1}, {&where, 1});
      if (where == Residency::fast) (void)memory.request(Tier::slow, {&page, 1}, Way::background);
    }
  };
  const auto result = run_mixed(stream, policy, 2 * unit);
  CHECK_NEAR(result.metrics.at("units_split"), 1, 0);
  CHECK_NEAR(result.metrics.at("demotions"), 1, 0);
  CHECK_NEAR(result.metrics.at("huge_share"), 0, 0);
  // A split, and one move of 4 KiB.
  CHECK_NEAR(result.metrics.at("mover_cpu_seconds"), 30e-6 + 11e-6, 1e-9);
}

TEST("mixed: probes of a unit that is split go on for the pages that they name, and no others") {
  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(unit, 1)};
  writer.events = {{trace::EventType::map, 0, 0, unit}, {trace::EventType::touch, 0, 0, unit}};
  writer.block(false, 1);
  for (int b = 0; b < 100; ++b) {
    // Until the second probes begin, when all rest.
    if (b >= 20 && b < 40) writer.parts = {{0, AccessKind::load, {3, 7}, {50, 50}}};
    writer.compute()[0] = 4e6;
    writer.block(true, 1e6);
  }
  writer.finish();
  Hooks policy;
  policy.period = from_millis(1);
  int ticks = 0;
  std::vector<bool> answers;
  policy.tick = [&](Memory& memory, Nanos now) {
    const auto probe = [&](std::initializer_list<std::uint64_t> pages) {
      std::vector<Probe> probes;
      for (const std::uint64_t page : pages) probes.push_back({{page}, now, from_millis(30)});
      memory.probe(probes);
    };
    const PageId first{0};
    ++ticks;
    if (ticks == 10) probe({3, 5});
    if (ticks == 12) CHECK_EQ(memory.reshape(Change::split, {&first, 1}), 1u);
    if (ticks == 50) probe({3, 7});
  };
  policy.probed = [&](Memory& memory, std::span<const Probe> probes, Nanos) {
    CHECK_EQ(memory.unit({0}).count, 1u);
    for (const Probe& each : probes) answers.push_back(each.accessed);
  };
  const auto result = run_mixed(stream, policy, 2 * unit);
  CHECK(answers == (std::vector{true, false, false, false}));
}

TEST("mixed: a group is collapsed where its pages are in one tier that has room for the new page") {
  TempStream stream;
  write_idle(stream, 4 * unit, 0, 2 * unit);
  for (const bool apart : {false, true}) {
    Hooks policy;
    policy.period = Nanos{1};
    int step = 0;
    policy.tick = [&](Memory& memory, Nanos) {
      const PageId first{0}, page{9}, other_unit{unit};
      if (step == 0) {
        (void)memory.reshape(Change::split, {&first, 1});
        (void)memory.request(Tier::slow, {&other_unit, 1}, Way::background);
      }
      if (step == 100 && apart) (void)memory.request(Tier::slow, {&page, 1}, Way::background);
      if (step == 200) (void)memory.reshape(Change::collapse, {&first, 1});
      ++step;
    };
    const auto result = run_mixed(stream, policy, 2 * unit);
    CHECK_NEAR(result.metrics.at("units_collapsed"), apart ? 0 : 1, 0);
    CHECK_NEAR(result.metrics.at("huge_share"), apart ? 0.5 : 1, 0);
  }
}

TEST("mixed: accesses to huge pages are found by their group, and save translation") {
  const std::vector<std::uint32_t> pages{0, 511, 512, 1023, 1024, 1500};
  const std::vector<std::uint16_t> counts{1, 2, 4, 8, 16, 32};
  PageBits slow{2048}, huge{4};
  slow.set(512, 512);
  huge.set(1);
  huge.set(2);
  const auto found = gather_huge(pages, counts, 9, slow.words(), huge.words());
  CHECK_EQ(found[0], 48u);
  CHECK_EQ(found[1], 12u);

  TempStream stream;
  StreamWriter writer{stream, simtest::one_class(2 * unit, 1)};
  simtest::map_and_touch(writer, 0, 2 * unit);
  writer.block(false, 1);
  for (int b = 0; b < 10; ++b) {
    writer.parts = {{0, AccessKind::load, {0, 600}, {5000, 5000}}};
    writer.block(true, 1e6);
  }
  writer.finish();
  auto machine = simtest::plain_machine();
  machine.huge_page_gain = 0.1;
  const Hooks policy;
  const auto seconds = [&](std::uint64_t page_bytes, bool mixed) {
    return run(stream, machine, policy, {.fast_share = 1, .page_bytes = page_bytes, .mixed = mixed})
        .seconds;
  };
  const double base = seconds(4096, false);
  CHECK_NEAR(seconds(4096, true), seconds(2 << 20, false), 1e-12);
  CHECK_NEAR(seconds(4096, true), 0.9 * base, 1e-9);
}

TEST("mixed: a policy that needs every part of the seam runs, and the same way twice") {
  TempStream stream;
  simtest::write_zipf(stream, {.full_pages = 1 << 17, .scale = 16, .seconds = 2});
  const auto once = [&] {
    RunOptions options{.fast_share = 0.3, .coarse = true};
    return simulate(stream.reader(), simtest::full_machine(), test::watcher(true), {}, options);
  };
  const RunResult a = once(), b = once();
  CHECK(a.rows == b.rows);
  CHECK(a.metrics == b.metrics);
  CHECK(a.metrics.at("units_split") > 0);
  CHECK(a.metrics.at("promotions") > 0);
}
