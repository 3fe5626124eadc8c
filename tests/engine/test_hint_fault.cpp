// SPDX-License-Identifier: MIT

// What the hint-fault sampler makes of faults (record/preload/heat.hpp), and its book of the
// program's memory. The sampler itself is tested in real programs, by tests/tuner.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "record/preload/address_map.hpp"
#include "record/preload/changes.hpp"
#include "record/preload/heat.hpp"

using namespace tt::record;

namespace {

/// Takes each page of a leaf away `times` times; pages have the given rates, the window is 0.5 s.
void sample(Leaf& leaf, tt::Rng& rng, const std::vector<double>& rates, int times,
            const Rates& prior) {
  for (int round = 0; round < times; ++round)
    for (unsigned page = 0; page < leaf_pages; ++page) {
      const double wait = rng.exponential(1 / rates[page]);
      leaf.observe(std::uint64_t{1} << page, std::min(wait, 0.5), wait < 0.5 ? page : leaf_pages,
                   prior);
    }
}
std::unique_ptr<Leaf> full_leaf() {
  auto leaf = std::make_unique<Leaf>();
  leaf->present = ~std::uint64_t{0};
  return leaf;
}
double total(const Leaf& leaf, const Rates& prior) {
  double sum = 0;
  for (unsigned page = 0; page < leaf_pages; ++page) sum += leaf.rate(page, prior);
  return sum;
}

}  // namespace

TEST("heat: exponential decay") {
  for (const double x : {0.0, 0.1, 1.0, 5.0, 59.0, 1e6}) CHECK_NEAR(decay(x), std::exp(-x), 1e-4);
}

TEST("heat: a leaf without evidence has the rate of what is around") {
  const auto leaf = full_leaf();
  CHECK_EQ(leaf->rate(3, Rates::unknown()), Rates::unknown().mean());
  CHECK_EQ(leaf->evidence(), 0.0);
}

TEST("heat: the mean of many pages within a factor of two, whatever they are") {
  struct Mix {
    double hot_share, hot, cold;
  };
  for (const Mix mix :
       {Mix{1, 500, 500}, Mix{0.5, 1000, 10}, Mix{0.1, 1000, 1}, Mix{0.05, 1000, 0.1}}) {
    tt::Rng rng{1};
    Level level;
    double mean = 0;
    for (int i = 0; i < 3000; ++i) {
      const double wait = rng.exponential(1 / (rng.uniform() < mix.hot_share ? mix.hot : mix.cold));
      level.observe(std::min(wait, 0.5), wait < 0.5, Rates::unknown(), 64);
      if (i >= 1000) mean += level.rates.mean() / 2000;
    }
    const double truth = mix.hot_share * mix.hot + (1 - mix.hot_share) * mix.cold;
    CHECK(mean > truth / 2);
    CHECK(mean < truth * 2);
  }
}

TEST("heat: a mean that rises a thousandfold is followed within two windows") {
  Level level;
  for (int i = 0; i < 200; ++i) level.observe(0.5, false, Rates::unknown(), 64);
  CHECK(level.rates.mean() < 1);
  for (int i = 0; i < 128; ++i) level.observe(1e-3, true, Rates::unknown(), 64);
  CHECK(level.rates.mean() > 500);
  for (int i = 0; i < 256; ++i) level.observe(0.5, false, Rates::unknown(), 64);
  CHECK(level.rates.mean() < 30);
}

TEST("heat: the total of a leaf is estimated within a half, and who is hot") {
  for (const unsigned hot : {64U, 16U, 4U}) {
    tt::Rng rng{1};
    std::vector<double> rates(leaf_pages, 2.0);
    double truth = 0;
    for (unsigned page = 0; page < leaf_pages; ++page) {
      if (page % (64 / hot) == 0) rates[page] = 1000;
      truth += rates[page];
    }
    const auto leaf = full_leaf();
    sample(*leaf, rng, rates, 6, Rates::unknown());
    CHECK_NEAR(total(*leaf, Rates::unknown()) / truth, 1.0, 0.5);
    double of_hot = 0;
    double of_cold = 0;
    for (unsigned page = 0; page < leaf_pages; ++page)
      (rates[page] > 10 ? of_hot : of_cold) += leaf->rate(page, Rates::unknown());
    if (hot < 64) CHECK(of_hot / hot > 30 * (of_cold / (64 - hot)));
  }
}

TEST("heat: a hot set that moves is found again") {
  tt::Rng rng{2};
  std::vector<double> rates(leaf_pages, 1.0);
  for (unsigned page = 0; page < 8; ++page) rates[page] = 2000;
  const auto leaf = full_leaf();
  sample(*leaf, rng, rates, 6, Rates::unknown());
  CHECK(leaf->rate(0, Rates::unknown()) > 100 * leaf->rate(60, Rates::unknown()));
  for (unsigned page = 0; page < leaf_pages; ++page) rates[page] = page >= 56 ? 2000 : 1;
  sample(*leaf, rng, rates, 4, Rates::unknown());
  CHECK(leaf->rate(60, Rates::unknown()) > 100 * leaf->rate(0, Rates::unknown()));
}

TEST("heat: pages of a huge page are exposed together, and one of them ends it") {
  const Rates prior = Rates::unknown();
  const auto leaf = full_leaf();
  for (int i = 0; i < 20; ++i) leaf->observe(~std::uint64_t{0}, 1e-3, i % 4 == 0 ? 9 : 7, prior);
  CHECK(leaf->rate(7, prior) > leaf->rate(9, prior));
  CHECK(leaf->rate(9, prior) > 2 * leaf->rate(8, prior));
  // A thousand touches per second, of all pages together.
  CHECK_NEAR(total(*leaf, prior), 1000, 700);
}

TEST("heat: evidence is forgotten in time") {
  tt::Rng rng{3};
  const auto leaf = full_leaf();
  sample(*leaf, rng, std::vector<double>(leaf_pages, 100.0), 4, Rates::unknown());
  CHECK(leaf->evidence() > 64);
  leaf->forget(rng, 0.5);
  CHECK(leaf->evidence() > 20);
  CHECK(leaf->evidence() < 140);
  leaf->forget(rng, 1);
  CHECK_EQ(leaf->evidence(), 0.0);
}

TEST("heat: sweeps are told from chance") {
  CHECK_EQ(Pair::swept(-1, -1), Pair::unknown);
  CHECK_EQ(Pair::swept(1e-3, 1.1e-3), Pair::unknown);  // too soon to tell
  CHECK_EQ(Pair::swept(0.1, 0.1001), 1.0);
  CHECK_EQ(Pair::swept(0.1001, 0.1), 1.0);
  CHECK_EQ(Pair::swept(0.1, 0.2), 0.0);
  CHECK_EQ(Pair::swept(0.1, -1), 0.0);
  // Independent pages come to no sweeps on average.
  tt::Rng rng{5};
  Share sweeps;
  double sum = 0;
  int counted = 0;
  for (int i = 0; i < 20'000; ++i) {
    const double answer = Pair::swept(rng.exponential(0.02), rng.exponential(0.02));
    if (answer == Pair::unknown) continue;
    sum += answer;
    ++counted;
    sweeps.add(answer);
  }
  CHECK_NEAR(sum / counted, 0.0, 0.01);
  CHECK(sweeps.value(0) < Pair::chance);
  Share swept;
  for (int i = 0; i < 20; ++i) swept.add(1);
  CHECK(swept.value(0) > 0.8);
}

TEST("heat: the cache keeps what is touched often, and no more than fits") {
  // 64 hot pages of 50,000 touches per second and 4,096 warm ones of 100, 1 MiB of cache.
  Cache cache{1 << 20};
  Misses hot;
  Misses warm;
  double resident = 0;
  for (int round = 0; round < 200; ++round) {
    resident = 0;
    for (int i = 0; i < 64; ++i) hot = cache.miss(50'000, 0);
    for (int i = 0; i < 4096; ++i) warm = cache.miss(100, 0);
    resident = 64 * 64 * (1 - hot.random / 50'000) + 4096 * 64 * (1 - warm.random / 100);
    cache.round();
  }
  CHECK(hot.random < 0.05 * 50'000);
  CHECK(warm.random > 0.9 * 100);
  CHECK_NEAR(resident, 16'384, 4'000);
  // A sweep misses every line of a page that was not kept.
  CHECK_NEAR(cache.miss(0.01, 1).sequential, 0.64, 0.1);
  CHECK_EQ(cache.miss(0.01, 1).random, 0.0);
}

TEST("address map: lines of /proc/self/maps") {
  Mapping m;
  std::string text;
  const auto parse = [&](const std::string& line) {
    text = line;
    return parse_mapping(text.data(), text.data() + text.size(), m);
  };
  CHECK(parse("7f00a000-7f00c000 rw-p 00000000 00:00 0 "));
  CHECK_EQ(m.start, 0x7f00a000U);
  CHECK_EQ(m.end, 0x7f00c000U);
  CHECK_EQ(m.file, 0U);
  CHECK_EQ(m.name_length, 0U);
  CHECK(parse("55e0-55f0 r-xp 00001000 fe:01 123456                     /usr/lib/lib c.so.6"));
  CHECK(m.file != 0);
  CHECK(m.named("/usr/lib/lib c.so.6"));
  CHECK(parse("1000-2000 rw-p 00000000 00:00 0                          [heap]"));
  CHECK(m.named("[heap]"));
  for (const char* bad :
       {"", "x", "1000-2000", "1000 2000 rw-p 0 00:00 0", "1000-20g0 rw-p 0 0:0 0"})
    CHECK(!parse(bad));
}

TEST("address map: what can be sampled, and what must be left alone") {
  const auto own = std::make_unique<kernel::OwnMemory>();
  own->note(reinterpret_cast<void*>(0x900000), 0x1000);
  const std::uint64_t avoid[3] = {0x201500, 0, 0};
  Selection selection{*own, avoid};
  const auto take = [&](const std::string& line) {
    Mapping m;
    CHECK(parse_mapping(line.data(), line.data() + line.size(), m));
    return selection.take(m);
  };
  CHECK(!take("100000-101000 rw-p 00000000 fe:01 11 /bin/program"));
  CHECK(take("101000-140000 rw-p 00000000 00:00 0 "));  // its uninitialised data
  CHECK(take("150000-160000 rw-p 00000000 00:00 0 [heap]"));
  CHECK(!take("201000-202000 r-xp 00000000 fe:01 12 /lib/libc.so"));
  CHECK(!take("202000-203000 rw-p 00000000 fe:01 12 /lib/libc.so"));
  CHECK(!take("203000-210000 rw-p 00000000 00:00 0 "));  // the C library's
  CHECK(!take("300000-301000 ---p 00000000 00:00 0 "));
  CHECK(!take("301000-b01000 rw-p 00000000 00:00 0 "));  // a stack above its guard
  CHECK(!take("bff000-c00000 ---p 00000000 00:00 0 "));
  CHECK(take("c00000-d00000 rw-p 00000000 00:00 0 ") == false);
  CHECK(take("e00000-e10000 rw-p 00000000 00:00 0 "));
  CHECK(!take("e20000-e30000 rw-s 00000000 00:00 0 "));
  CHECK(!take("e30000-e40000 r--p 00000000 00:00 0 "));
  CHECK(!take("3fff000-4000000 ---p 00000000 00:00 0 "));
  CHECK(take("4000000-4021000 rw-p 00000000 00:00 0 "));  // an arena
  CHECK(!take("7fff0000-7fff8000 rw-p 00000000 00:00 0 [stack]"));
}

TEST("address map: the sampler's own memory is left alone") {
  const auto own = std::make_unique<kernel::OwnMemory>();
  void* const at = own->take(8192);
  const auto start = reinterpret_cast<std::uint64_t>(at);
  CHECK(own->overlaps(start + 4096, start + 4097));
  CHECK(!own->overlaps(start + 8192, start + 8193));
  own->give(at, 8192);
  CHECK(!own->overlaps(start, start + 8192));
}

TEST("address map: regions are cut, replaced and found") {
  const auto own = std::make_unique<kernel::OwnMemory>();
  Regions regions{*own};
  regions.add(0x1000, 0x9000, false);
  regions.remove(0x3000, 0x4000);
  CHECK_EQ(regions.size(), 2U);
  CHECK(regions.find(0x2fff) != nullptr);
  CHECK(regions.find(0x3000) == nullptr);
  CHECK_EQ(regions.find(0x4000)->end, 0x9000U);
  regions.add(0x2000, 0x5000, true);
  CHECK_EQ(regions.size(), 3U);
  CHECK(regions.find(0x3000)->allocation);
  CHECK_EQ(regions.find(0x5000)->start, 0x5000U);
  regions.remove(0, 0x100000);
  CHECK_EQ(regions.size(), 0U);
}

TEST("address map: leaves keep what they learnt from look to look") {
  const auto own = std::make_unique<kernel::OwnMemory>();
  const auto leaves = std::make_unique<Leaves>(*own);
  bool made = false;
  leaves->begin();
  for (std::uint64_t key = 10; key < 2000; ++key) leaves->visit(key, made)->present = 3;
  leaves->end();
  CHECK_EQ(leaves->pages(), 2 * 1990U);
  leaves->find(500ull << leaf_shift)->k[1] = 5;
  leaves->find(600ull << leaf_shift)->away = 1;
  leaves->begin();
  CHECK_EQ(leaves->visit(500, made)->k[1], 5.0F);
  CHECK(!made);
  leaves->visit(5000, made)->present = 1;
  CHECK(made);
  leaves->end();
  CHECK_EQ(leaves->size(), 3U);  // with the one that has a page away
  CHECK(leaves->find(11ull << leaf_shift) == nullptr);
  leaves->forget((500ull << leaf_shift) + 4096, (500ull << leaf_shift) + 8192);
  CHECK_EQ(leaves->find(500ull << leaf_shift)->present, 1U);
  CHECK_EQ(leaves->find(500ull << leaf_shift)->k[1], 0.0F);
}

TEST("changes: a full queue drops, an emptied one goes on") {
  const auto changes = std::make_unique<Changes>();
  std::uint64_t pushed = 0;
  while (changes->push({.address = pushed})) ++pushed;
  CHECK_EQ(pushed, 4096U);
  Change change;
  for (std::uint64_t i = 0; i < pushed; ++i) {
    CHECK(changes->pop(change));
    CHECK_EQ(change.address, i);
  }
  CHECK(!changes->pop(change));
  CHECK(changes->push({.address = 7}));
  CHECK(changes->pop(change));
  CHECK_EQ(change.address, 7U);
}
