// SPDX-License-Identifier: MIT

// The kernel's multi-generational LRU, by its rules (Linux 6.12, mm/vmscan.c).
#include <vector>

#include "check.hpp"
#include "fake_memory.hpp"
#include "track/generations.hpp"

using namespace tt;
using track::Generations;
using Numbers = std::vector<std::uint64_t>;

namespace {

constexpr std::uint64_t all_pages = UINT32_MAX;

/// Fast pages 0..fast-1, the others slow, all of them found, their accessed bits clear.
struct Aged {
  test::FakeMemory memory;
  Generations pages;
  std::uint64_t count;
  explicit Aged(std::uint64_t fast, double batch = 1, std::uint64_t slow = 100)
      : memory(fast, slow + 1000), pages(memory, batch), count(fast + slow) {
    pages.map({{0}, count});
    for (std::uint64_t p = 0; p < count; ++p) memory.touch({p}, p < fast ? Tier::fast : Tier::slow);
    pages.find_new();
    memory.accessed({{0}, count}, {}, true);
  }
  void access(const Numbers& which) {
    for (const auto p : which) (void)memory.access({p}, AccessKind::load, {});
  }
  Numbers evict(std::uint64_t wanted, double aim = 1, std::uint64_t budget = all_pages) {
    std::vector<PageId> found;
    looked = pages.evict(aim, wanted, budget, found);
    Numbers out;
    for (const PageId page : found) out.push_back(page.value);
    return out;
  }
  std::uint64_t looked = 0;
};

Numbers span(std::uint64_t first, std::uint64_t count) {
  Numbers out;
  for (std::uint64_t i = 0; i < count; ++i) out.push_back(first + i);
  return out;
}

}  // namespace

TEST(
    "generations: what is touched first is of the youngest, and nothing of the slow tier is "
    "listed") {
  const Aged r(20);
  CHECK_EQ(r.pages.active(), 20u);
  CHECK_EQ(r.pages.inactive(), 0u);
  CHECK_EQ(r.pages.age({3}), 0u);
  CHECK_EQ(r.pages.age({20}), Generations::most);
  CHECK_EQ(r.pages.age({5000}), Generations::most);
  CHECK_EQ(r.pages.generations(), Generations::most);
}

TEST("generations: idle pages leave in the order in which they came, after two agings") {
  Aged r(4096);
  CHECK((r.evict(3) == Numbers{0, 1, 2}));
  CHECK_EQ(r.pages.agings(), 2u);
  CHECK_EQ(r.pages.generations(), 3u);
  CHECK_EQ(r.pages.age({0}), Generations::most);  // on its way out
  CHECK_EQ(r.pages.age({3}), 2u);
  CHECK_EQ(r.pages.inactive(), 4093u);
  CHECK((r.evict(2) == Numbers{3, 4}));
  CHECK_EQ(r.pages.agings(), 2u);
}

TEST("generations: what was accessed before the aging is protected, and what was after it, too") {
  Aged r(64);
  r.access(span(0, 8));
  CHECK((r.evict(2) == Numbers{8, 9}));
  CHECK_EQ(r.pages.age({0}), 2u);  // of the first aging's youngest, as all were
  r.access({10, 12});
  CHECK((r.evict(2) == Numbers{11, 13}));
  CHECK_EQ(r.pages.age({10}), 0u);
  CHECK_EQ(r.pages.age({12}), 0u);
}

TEST("generations: neighbours of an accessed page are looked at within a batch of addresses") {
  Aged r(4096, 64);
  CHECK_EQ(r.evict(1).size(), 64u);  // 0 to 63
  r.access({64, 120, 130});
  // The batch is 64 to 127; 64 is looked around from 32 to 95, 120 from 88 to 151.
  const Numbers victims = r.evict(1);
  CHECK_EQ(victims.size(), 62u);
  CHECK_EQ(r.pages.age({64}), 0u);
  CHECK_EQ(r.pages.age({120}), 0u);
  CHECK_EQ(r.pages.age({130}), 0u);
  CHECK_EQ(r.pages.age({131}), 2u);
}

TEST("generations: the window does not leave the page table") {
  Aged r(4096, 64);
  while (r.pages.inactive() > 4096 - 512 || r.pages.inactive() == 0) CHECK(!r.evict(1).empty());
  r.access({490, 512, 570, 580});
  (void)r.evict(1);  // 512 to 575, which is what is looked at around 512, and so not around 570
  CHECK_EQ(r.pages.age({490}), Generations::most);  // gone before
  CHECK_EQ(r.pages.age({512}), 0u);
  CHECK_EQ(r.pages.age({570}), 0u);
  CHECK_EQ(r.pages.age({580}), 2u);
}

TEST("generations: page tables with less than an eighth accessed are not walked again") {
  const auto read = [](std::uint64_t accessed) {
    Aged r(2048, 64);
    r.access(span(0, accessed));
    (void)r.evict(1);  // walks all tables once, then those that were dense
    return r.memory.work(Work::pte_scan);
  };
  const std::uint64_t all = 2048 + 100;
  CHECK_EQ(read(63), all);
  CHECK_EQ(read(64), all + 512);
}

TEST("generations: a page table in which an eviction finds an eighth accessed is walked next") {
  const auto read = [](std::uint64_t accessed) {
    Aged r(1024, 64, 0);
    (void)r.evict(1);
    r.access(span(64, accessed));
    (void)r.evict(1);  // looks around 64
    const std::uint64_t before = r.memory.work(Work::pte_scan);
    for (const auto agings = r.pages.agings(); r.pages.agings() == agings;) (void)r.evict(64);
    return r.memory.work(Work::pte_scan) - before;
  };
  CHECK_EQ(read(7), 0u);
  CHECK_EQ(read(8), 512u);
}

TEST("generations: nothing is evicted of the two youngest, and all that is accessed stays") {
  Aged r(256);
  for (int n = 0; n < 20; ++n) {
    r.access(span(0, 256));
    CHECK(r.evict(10).size() <= 10);
  }
  Aged idle(256);
  Numbers all;
  for (int n = 0; n < 300; ++n)
    for (const auto page : idle.evict(1)) all.push_back(page);
  CHECK((all == span(0, 256)));  // of idle memory everything goes, in order
}

TEST("generations: a budget ends a pass, and what it looked at counts") {
  Aged r(4096);
  r.access(span(0, 4096));
  CHECK(r.evict(10, 1, 5).size() <= 10);
  CHECK(r.looked >= 5);
  Aged small(4096);
  (void)small.evict(1);
  CHECK(small.evict(1000, 1, 50).size() <= 51);
}

TEST("generations: pages that went, moved unseen, or came back are put right") {
  Aged r(64);
  r.memory.free({{0}, 4});
  r.memory.move_unasked({4});
  CHECK((r.evict(2) == Numbers{5, 6}));
  CHECK_EQ(r.pages.age({4}), Generations::most);
  r.pages.stayed({5});
  CHECK_EQ(r.pages.age({5}), 0u);
  r.pages.stayed({30});  // was not asked to leave
  CHECK_EQ(r.pages.age({30}), 2u);
  r.pages.moved({6}, Tier::slow);
  CHECK_EQ(r.pages.age({6}), Generations::most);
  r.pages.moved({6}, Tier::fast);
  CHECK_EQ(r.pages.age({6}), 0u);
  r.pages.unmap({{5}, 10});
  CHECK_EQ(r.pages.age({5}), Generations::most);
  r.memory.touch({0}, Tier::fast);
  r.pages.find_new();
  CHECK_EQ(r.pages.age({0}), 0u);
  r.pages.moved({5}, Tier::fast);  // not mapped any more
  CHECK_EQ(r.pages.age({5}), Generations::most);
}
