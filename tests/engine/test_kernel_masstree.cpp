// SPDX-License-Identifier: MIT

// Masstree: the trie against a map, its layers, and its fill.
#include <algorithm>
#include <map>
#include <string>

#include "check.hpp"
#include "core/rng.hpp"
#include "kernels/masstree.hpp"
#include "scratch.hpp"

using namespace tt;
using namespace tt::kernels;
using namespace tt::trace;
using check::Scratch;

namespace {

StreamInfo description() {
  StreamInfo info;
  info.lanes = {{"all", 1}};
  info.classes = {{"node", 3, 0, 0}, {"record", 2, 0, 0}, {"update", 8, 0, 0}};
  return info;
}

/// Keys that share prefixes of many lengths, zeros included.
std::string random_key(Rng& rng) {
  std::string key(rng.below(20), '\0');
  for (char& byte : key) byte = static_cast<char>(rng.below(2) * (1 + rng.below(2) * 200));
  return key;
}

}  // namespace

TEST("masstree: behaves as a map under random insertions, removals, lookups and scans") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), {}};
  TracedMemory memory{recorder, 4096};
  SiloArena arena{memory, {0, 1, 2}};
  Masstree tree{arena};
  std::map<std::string, std::uint64_t> known;
  Rng rng{3};
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const bool growing = i / 5000 % 2 == 0;
    const std::string key = random_key(rng);
    if ((rng.below(3) > 0) == growing) {
      const auto inserted = tree.insert(key, i);
      CHECK_EQ(inserted.done, known.emplace(key, i).second);
    } else {
      const auto there = known.find(key);
      const auto removed = tree.remove(key);
      CHECK(there == known.end() ? !removed : removed == there->second);
      if (there != known.end()) known.erase(there);
    }
    const std::string asked = random_key(rng);
    const auto there = known.find(asked);
    const auto found = tree.find(asked).value;
    CHECK(there == known.end() ? !found : found == there->second);
    if (i % 16 == 0) {
      auto expected = known.lower_bound(asked);
      int left = 20;
      tree.scan(asked, [&](std::string_view at, std::uint64_t value) {
        CHECK(expected != known.end() && at == expected->first && value == expected->second);
        ++expected;
        return --left > 0;
      });
      CHECK(left == 0 || expected == known.end());
    }
    if (i % 1000 == 0) {
      CHECK_EQ(tree.inconsistency(), "");
      arena.reclaim();
    }
  }
  CHECK_EQ(tree.inconsistency(), "");
  CHECK_EQ(tree.size(), known.size());
  CHECK(tree.layers() > 100);
}

TEST("masstree: ascending insertions fill the leaves, random ones two thirds of them") {
  const Scratch scratch;
  const auto keys_per_node = [&](bool ascending) {
    Recorder recorder{scratch.file("a.tts"), description(), {}};
    TracedMemory memory{recorder, 4096};
    SiloArena arena{memory, {0, 1, 2}};
    Masstree tree{arena};
    Rng rng{1};
    for (std::uint64_t i = 0; i < 30000; ++i) {
      const std::uint64_t number = ascending ? i : rng.next();
      std::string key;
      for (int shift = 56; shift >= 0; shift -= 8)
        key.push_back(static_cast<char>(number >> shift));
      CHECK(tree.insert(key, i).done);
    }
    CHECK_EQ(tree.inconsistency(), "");
    CHECK_EQ(tree.layers(), 1u);
    return 30000.0 / static_cast<double>(tree.nodes());
  };
  CHECK_NEAR(keys_per_node(true), 15 * 15 / 16.0, 0.2);
  CHECK_NEAR(keys_per_node(false), 9.4, 0.6);
}

TEST("masstree: a leaf's version changes when a key enters or leaves it") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), {}};
  TracedMemory memory{recorder, 4096};
  SiloArena arena{memory, {0, 1, 2}};
  Masstree tree{arena};
  (void)tree.insert("b", 1);
  const auto missed = tree.find("a").seen;
  CHECK_EQ(tree.find("b").seen.version, missed.version);  // the same leaf, unchanged
  const auto inserted = tree.insert("a", 2);
  CHECK_EQ(inserted.before.version, missed.version);
  CHECK_EQ(inserted.after.front().version, tree.version(missed.leaf));
  CHECK(tree.version(missed.leaf) != missed.version);
  const auto before = tree.version(missed.leaf);
  CHECK(!tree.remove("c"));
  CHECK_EQ(tree.version(missed.leaf), before);
  CHECK(tree.remove("a") == 2u);
  CHECK(tree.version(missed.leaf) != before);
}

TEST("masstree: a queue does not grow: empty leaves go") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), {}};
  TracedMemory memory{recorder, 4096};
  SiloArena arena{memory, {0, 1, 2}};
  Masstree tree{arena};
  const auto key = [](std::uint64_t number) {
    std::string text = "district";
    for (int shift = 24; shift >= 0; shift -= 8) text.push_back(static_cast<char>(number >> shift));
    return text;
  };
  for (std::uint64_t i = 0; i < 20000; ++i) {
    CHECK(tree.insert(key(i), i).done);
    if (i >= 300) CHECK(tree.remove(key(i - 300)) == i - 300);
    arena.reclaim();
  }
  CHECK_EQ(tree.size(), 300u);
  CHECK(tree.nodes() < 60);
  CHECK_EQ(tree.inconsistency(), "");
}
