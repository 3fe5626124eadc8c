// SPDX-License-Identifier: MIT

// Page numbers in flat arrays, and the kernel-like lists on them.
#include <set>

#include "check.hpp"
#include "core/rng.hpp"
#include "fake_memory.hpp"
#include "track/lru_lists.hpp"
#include "track/page_index.hpp"

using namespace tt;
using track::LruLists;
using track::PageIndex;
using enum track::LruLists::List;
using Pages = std::vector<PageId>;

namespace {

PageRange range(std::uint64_t first, std::uint64_t count) { return {{first}, count}; }

/// Pages 0..9 fast, 10..19 slow, all of them found, their accessed bits clear.
struct Lists {
  test::FakeMemory memory{10, 100};
  LruLists lists{memory, 1024};
  Lists() {
    lists.map(range(0, 20));
    for (std::uint64_t p = 0; p < 20; ++p) memory.touch({p}, p < 10 ? Tier::fast : Tier::slow);
    lists.find_new();
    memory.accessed(range(0, 20), {}, true);
  }
  void access(std::initializer_list<std::uint64_t> pages) {
    for (const auto p : pages) (void)memory.access({p}, AccessKind::load, {});
  }
  Pages victims(std::uint64_t most, std::uint64_t wanted) {
    Pages found;
    lists.age_inactive(Tier::fast, most, wanted, found);
    return found;
  }
};

}  // namespace

TEST("page index: numbers are dense for distant ranges, and given again") {
  PageIndex index;
  const std::uint64_t far = 0x7f0000000ULL;
  index.map(range(10, 5));
  index.map(range(far, 1000));
  CHECK_EQ(index.pages(), 1005u);
  CHECK(index.size() <= 4 * PageIndex::group_pages);
  std::set<std::uint32_t> numbers;
  for (const std::uint64_t page : {10ULL, 14ULL, 0x7f0000000ULL, 0x7f00003e7ULL}) {
    const std::uint32_t i = index.find({page});
    CHECK(i < index.size() && numbers.insert(i).second);
    CHECK_EQ(index.page(i).value, page);
  }
  for (const std::uint64_t page : {9ULL, 15ULL, 0x7effffffULL, 0x7f00003e8ULL})
    CHECK_EQ(index.find({page}), PageIndex::none);
  const std::uint32_t size = index.size();
  std::uint64_t left = 0;
  index.unmap(range(0, far + 500), [&](std::uint32_t) { ++left; });
  CHECK_EQ(left, 505u);
  CHECK_EQ(index.pages(), 500u);
  CHECK(!index.contains({10}) && !index.contains({far}) && index.contains({far + 500}));
  index.map(range(5120, 512));
  CHECK_EQ(index.size(), size);
}

TEST("page index: mapped twice, unmapped in part, as a set is") {
  PageIndex index;
  std::set<std::uint64_t> known;
  Rng rng(5);
  for (int n = 0; n < 2000; ++n) {
    const PageRange part{{rng.below(4000)}, rng.below(600)};
    const bool in = rng.below(2) == 0;
    std::uint64_t told = 0, due = 0;
    for (std::uint64_t p = part.first.value; p < part.end().value; ++p)
      due += in ? known.insert(p).second : known.erase(p);
    if (in) {
      index.map(part, [&](std::uint32_t) { ++told; });
    } else {
      index.unmap(part, [&](std::uint32_t) { ++told; });
    }
    CHECK_EQ(told, due);
    CHECK_EQ(index.pages(), known.size());
    const std::uint64_t page = rng.below(5000);
    CHECK_EQ(index.contains({page}), known.contains(page));
    if (known.contains(page)) CHECK_EQ(index.page(index.find({page})).value, page);
  }
}

TEST("lists: a page enters when it is found to be there, inactive, in its tier") {
  test::FakeMemory memory(10, 100);
  LruLists lists(memory, 1024);
  lists.map(range(0, 20));
  CHECK_EQ(lists.size(Tier::fast, inactive), 0u);
  memory.touch({3}, Tier::fast);
  memory.touch({7}, Tier::slow);
  CHECK(!lists.on(inactive, {3}));
  lists.find_new();
  CHECK_EQ(lists.size(Tier::fast, inactive), 1u);
  CHECK_EQ(lists.size(Tier::slow, inactive), 1u);
  CHECK(lists.on(inactive, {3}) && lists.on(inactive, {7}) && !lists.on(inactive, {4}));
  lists.found({8}, Tier::slow);  // a fault has told of it
  lists.found({7}, Tier::fast);  // known already
  CHECK_EQ(lists.size(Tier::slow, inactive), 2u);
  lists.unmap(range(0, 5));
  CHECK_EQ(lists.size(Tier::fast, inactive), 0u);
  CHECK(!lists.contains({3}));
}

TEST("lists: parts of the memory are looked through in turn") {
  test::FakeMemory memory(100, 10000);
  LruLists lists(memory, 1024);
  lists.map(range(0, 10 * 512));
  for (std::uint64_t p = 0; p < 10 * 512; ++p) memory.touch({p}, Tier::slow);
  for (int n = 1; n <= 5; ++n) {
    lists.find_new(0.2);
    CHECK_EQ(lists.size(Tier::slow, inactive), static_cast<std::uint64_t>(n) * 1024);
  }
}

TEST("lists: two touches activate, one only defers; what was not accessed is a victim") {
  Lists l;
  l.access({0, 1});
  CHECK((l.victims(3, 10) == Pages{{2}}));
  CHECK(l.lists.referenced({0}) && l.lists.on(inactive, {0}));
  l.access({0});
  CHECK((l.victims(10, 10) == Pages{{3}, {4}, {5}, {6}, {7}, {8}, {9}, {1}, {2}}));
  CHECK(l.lists.on(active, {0}) && !l.lists.referenced({0}));
  CHECK(!l.lists.referenced({1}));  // an access is forgotten after a turn without one
  CHECK_EQ(l.memory.work(Work::lru_step), 13u);
}

TEST("lists: aging ends with enough victims, or with the pages it may look at") {
  Lists l;
  CHECK((l.victims(10, 2) == Pages{{0}, {1}}));
  CHECK((l.victims(1, 2) == Pages{{2}}));
  CHECK_EQ(l.victims(100, 100).size(), 10u);  // each once
}

TEST("lists: mark_accessed follows the same rule") {
  Lists l;
  l.lists.mark_accessed({12});
  CHECK(l.lists.referenced({12}) && l.lists.on(inactive, {12}));
  l.lists.mark_accessed({12});
  CHECK(l.lists.on(active, {12}) && !l.lists.referenced({12}));
  l.lists.mark_accessed({12});
  CHECK(l.lists.on(active, {12}) && l.lists.referenced({12}));
  l.lists.mark_accessed({99});  // not mapped
  CHECK_EQ(l.lists.size(Tier::slow, active), 1u);
}

TEST("lists: a page that moves keeps its kind of list and its mark") {
  Lists l;
  l.lists.put({12}, active);
  l.lists.mark_accessed({12});
  l.lists.moved({12}, Tier::fast);
  CHECK(l.lists.on(active, {12}) && l.lists.referenced({12}));
  CHECK_EQ(l.lists.size(Tier::fast, active), 1u);
  CHECK_EQ(l.lists.size(Tier::slow, inactive), 9u);
}

TEST("lists: as many active pages turn inactive as the kernel's ratio asks") {
  // Ten pages of 4 KiB are far less than a GiB: one to one.
  Lists l;
  for (std::uint64_t p = 0; p < 10; ++p) l.lists.put({p}, active);
  CHECK_EQ(l.lists.age_active(Tier::fast, 2), 2u);
  CHECK_EQ(l.lists.age_active(Tier::fast, 100), 3u);
  CHECK_EQ(l.lists.age_active(Tier::fast, 100), 0u);
  CHECK(l.lists.on(inactive, {0}) && l.lists.on(active, {5}));
  // Ten pages for a GiB's worth of one: sqrt(10 * 10), ten active pages for each inactive one.
  test::FakeMemory memory(10, 10);
  LruLists large(memory, 4.0 / 1024);
  large.map(range(0, 10));
  for (std::uint64_t p = 0; p < 10; ++p) memory.touch({p}, Tier::fast);
  large.find_new();
  for (std::uint64_t p = 0; p < 10; ++p) large.put({p}, active);
  CHECK_EQ(large.age_active(Tier::fast, 100), 1u);
}

TEST("lists: idle pages that have gone or moved unseen are put right by a scan") {
  Lists l;
  l.memory.free(range(0, 1));
  l.memory.free(range(1, 1));
  l.memory.touch({1}, Tier::slow);
  l.memory.accessed(range(1, 1), {}, true);
  std::vector<std::uint64_t> seen;
  const auto looked = l.lists.scan(Tier::fast, inactive, 3, [&](PageId page, bool) {
    seen.push_back(page.value);
    return promote;
  });
  CHECK((seen == std::vector<std::uint64_t>{2}));
  CHECK_EQ(looked, 1u);
  CHECK(l.lists.on(promote, {2}));
  CHECK_EQ(l.lists.size(Tier::fast, inactive), 7u);
  CHECK_EQ(l.lists.size(Tier::slow, inactive), 11u);
  l.memory.touch({0}, Tier::fast);
  l.lists.find_new();
  CHECK(l.lists.on(inactive, {0}));
}

TEST("lists: a scan asks for batches of pages, not for each") {
  test::FakeMemory memory(2000, 10);
  LruLists lists(memory, 1024);
  lists.map(range(0, 2000));
  for (std::uint64_t p = 0; p < 2000; ++p) memory.touch({p}, Tier::fast);
  lists.find_new();
  memory.accessed(range(0, 1000), {}, true);  // the others look accessed
  const auto asked = memory.residency_calls + memory.accessed_calls;
  std::uint64_t seen = 0;
  lists.scan(Tier::fast, inactive, 2000, [&](PageId page, bool accessed) {
    CHECK_EQ(accessed, page.value >= 1000);
    CHECK_EQ(page.value, seen++);  // oldest first
    return accessed ? active : inactive;
  });
  CHECK_EQ(lists.size(Tier::fast, active), 1000u);
  CHECK(memory.residency_calls + memory.accessed_calls - asked <= 8);
}

TEST("lists: every page is on one list, whatever happens") {
  test::FakeMemory memory(200, 600);
  LruLists lists(memory, 1024);
  std::set<std::uint64_t> mapped;
  Rng rng(3);
  for (int n = 0; n < 3000; ++n) {
    const PageRange part{{rng.below(2000)}, 1 + rng.below(60)};
    const PageId page{rng.below(2000)};
    const Tier tier = rng.below(2) == 0 ? Tier::fast : Tier::slow;
    switch (rng.below(8)) {
      case 0:
        lists.map(part);
        for (std::uint64_t p = part.first.value; p < part.end().value; ++p) {
          mapped.insert(p);
          if (mapped.size() < 500) memory.touch({p}, tier);
        }
        break;
      case 1:
        lists.unmap(part);
        memory.free(part);
        for (std::uint64_t p = part.first.value; p < part.end().value; ++p) mapped.erase(p);
        break;
      case 2:
        lists.find_new(rng.uniform());
        break;
      case 3:
        lists.moved(page, tier);
        break;
      case 4:
        lists.mark_accessed(page);
        break;
      case 5: {
        Pages victims;
        lists.age_inactive(tier, rng.below(50), rng.below(20), victims);
        break;
      }
      case 6:
        lists.put(page, promote);
        break;
      default:
        lists.age_active(tier, 20);
    }
    std::uint64_t listed = 0, on_lists = 0;
    for (const auto t : {Tier::fast, Tier::slow})
      for (const auto kind : {inactive, active, promote}) on_lists += lists.size(t, kind);
    for (std::uint64_t p = 0; p < 2100; ++p)
      listed += lists.on(inactive, {p}) + lists.on(active, {p}) + lists.on(promote, {p});
    CHECK_EQ(listed, on_lists);
    CHECK(listed <= mapped.size());
  }
}

TEST("chains: whatever is put where, each number is on one chain and linked both ways") {
  track::Chains chains(3);
  chains.resize(200);
  CHECK(chains.consistent());
  Rng rng(4);
  for (int step = 0; step < 3000; ++step) {
    const auto i = static_cast<std::uint32_t>(rng.below(200));
    const auto chain = static_cast<std::uint8_t>(rng.below(3));
    switch (rng.below(3)) {
      case 0:
        chains.to_head(i, chain);
        break;
      case 1:
        chains.to_tail(i, chain);
        break;
      default:
        chains.take_off(i);
    }
    if (step % 100 == 0) CHECK(chains.consistent());
  }
  CHECK(chains.consistent());
  CHECK(chains.size(0) + chains.size(1) + chains.size(2) <= 200);
  if constexpr (assert_level >= 1) CHECK_BREAKS(chains.to_head(200, 0), "i < chain_.size()");
}
