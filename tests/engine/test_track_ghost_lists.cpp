// SPDX-License-Identifier: MIT

#include "check.hpp"
#include "core/assert.hpp"
#include "core/page_map.hpp"
#include "core/rng.hpp"
#include "track/ghost_lists.hpp"

#include <list>
#include <map>
#include <vector>

using namespace tt;

TEST("page map: values of pages far apart, kept while it grows; unmapped ones are initial again") {
  PageMap<int> map;
  CHECK(map.find({5}) == nullptr);
  CHECK_EQ(map.get({5}), 0);
  std::map<std::uint64_t, int> expected;
  Rng rng(1);
  for (int n = 1; n < 3000; ++n) {
    const std::uint64_t page = rng.below(2) == 0 ? rng.below(100000) : rng.next() >> 12;
    map[{page}] = n;
    expected[page] = n;
  }
  for (const auto& [page, value] : expected) CHECK_EQ(map.get({page}), value);
  map.erase({{1000}, 5000});
  for (const auto& [page, value] : expected)
    CHECK_EQ(map.get({page}), page >= 1000 && page < 6000 ? 0 : value);
}

TEST("page map: a range is visited in order of pages, in runs with values") {
  PageMap<int> map;
  map[{510}] = 1;
  map[{1030}] = 2;  // the leaf between the two was written to by nobody
  map[{600}] = 3;
  std::vector<std::uint64_t> seen;
  std::uint64_t pages = 0;
  map.each_leaf({{500}, 600}, [&](PageId first, std::span<int> values) {
    pages += values.size();
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i] != 0) seen.push_back(first.value + i);
  });
  CHECK((seen == std::vector<std::uint64_t>{510, 600, 1030}));
  CHECK_EQ(pages, 600u);
  CHECK(map.bytes() >= 3 * 512 * sizeof(int));
}

TEST("ghost lists: against plain lists, whatever is done to them") {
  constexpr unsigned lists = 3;
  track::GhostLists<lists> tested;
  std::array<std::list<std::uint64_t>, lists> plain;  // newest in front
  Rng rng(2);
  const auto drop = [&](std::uint64_t page) {
    for (auto& list : plain) list.remove(page);
  };
  for (int n = 0; n < 4000; ++n) {
    const std::uint64_t page = rng.below(60) * 100;
    switch (rng.below(8)) {
      case 0:
        tested.remove(PageId{page});
        drop(page);
        break;
      case 1: {
        if (rng.below(4) > 0) break;
        const PageRange range{{page}, 1 + rng.below(1000)};
        tested.remove(range);
        for (std::uint64_t i = 0; i < range.count; ++i) drop(page + i);
        break;
      }
      default: {
        const auto list = static_cast<unsigned>(rng.below(lists));
        tested.put(list, {page});
        drop(page);
        plain[list].push_front(page);
      }
    }
    for (unsigned list = 0; list < lists; ++list) {
      CHECK_EQ(tested.size(list), plain[list].size());
      if (plain[list].empty()) continue;
      CHECK_EQ(tested.oldest(list).value, plain[list].back());
      CHECK_EQ(tested.where({plain[list].front()}), list);
    }
  }
  const auto bytes = tested.bytes();
  for (std::uint64_t page = 0; page < 60; ++page) tested.put(0, {page * 100});
  tested.remove(PageRange{{0}, 6000});
  for (unsigned list = 0; list < lists; ++list) CHECK_EQ(tested.size(list), 0u);
  CHECK_EQ(tested.where({100}), tested.none);
  CHECK(tested.bytes() < bytes + 60 * 32);  // places are used again
}

TEST("ghost lists: an empty list has no oldest page, and there is no other list") {
  if constexpr (assert_level >= 1) {
    track::GhostLists<2> lists;
    lists.put(0, {7});
    CHECK_BREAKS((void)lists.oldest(1), "size_[list] > 0");
    CHECK_BREAKS(lists.put(2, {7}), "list < Lists");
  }
}
