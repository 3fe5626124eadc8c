// SPDX-License-Identifier: MIT

// Accessed bits and probes, against closed forms.
#include <cmath>
#include <map>
#include <utility>

#include "check.hpp"
#include "hooked.hpp"

namespace {

using namespace tt;
using namespace tt::sim;
using namespace hooked;
using simtest::StreamWriter;
using simtest::TempStream;

}  // namespace

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
