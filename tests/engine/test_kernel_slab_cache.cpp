// SPDX-License-Identifier: MIT

// cachelib's cache: its structures, and what each operation touches.
#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "check.hpp"
#include "core/rng.hpp"
#include "kernels/slab_cache.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::kernels;
using namespace tt::trace;
using check::Scratch;

namespace {

constexpr SlabCacheClasses classes{.dependent = 0, .value = 1, .update = 2};

StreamInfo description() {
  StreamInfo info;
  info.lanes = {{"all", 1}};
  info.classes = {{"dependent", 1, 0, 0}, {"value", 8, 0, 0}, {"update", 8, 0, 0}};
  return info;
}

SlabCacheOptions small_cache() {
  SlabCacheOptions options;
  options.arena_bytes = 2 << 20;
  options.slab_bytes = 1 << 15;
  options.buckets = 1024;
  options.locks = 64;
  return options;
}

/// Lines that `touch` adds to each class, as loads and as stores, when nothing is in the cache.
struct Touched {
  double loads[3] = {};
  double stores[3] = {};
};
template <typename Touch>
Touched touched_by(const SlabCacheOptions& options, const SlabCache::Entry& present, Touch touch) {
  const Scratch scratch;
  {
    Recorder recorder{scratch.file("a.tts"), description(), {}};
    recorder.set_timed(false);
    SlabCache cache{options, classes, recorder};
    CHECK(cache.set(present, 0));
    // Push it out of the cache filter: many times its size.
    const Address flush = recorder.map("flush", 64 << 20);
    recorder.load(1, flush, 64 << 20);
    recorder.set_timed(true);
    touch(cache);
    (void)recorder.finish();
  }
  const Reader reader{scratch.file("a.tts")};
  Block block;
  Touched touched;
  for (std::uint64_t i = 0; i < reader.info().blocks; ++i) {
    reader.read(i, block);
    if (!block.timed) continue;
    for (const Segment& segment : block.segments)
      (segment.kind == AccessKind::load ? touched.loads : touched.stores)[segment.stream_class] +=
          static_cast<double>(segment.sum);
  }
  return touched;
}

}  // namespace

TEST("slab cache: behaves as a map that forgets the least recently used") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), {}};
  SlabCache cache{small_cache(), classes, recorder};
  Rng rng{1};
  std::unordered_map<std::uint64_t, SlabCache::Entry> known;
  for (int i = 0; i < 60000; ++i) {
    const std::uint64_t key = rng.below(6000);
    const auto dice = rng.below(10);
    const auto key_bytes = static_cast<std::uint32_t>(1 + key % 64);
    if (dice < 3) {
      const SlabCache::Entry entry{key, key_bytes,
                                   static_cast<std::uint32_t>(1 + rng.below(rng.below(3000) + 1))};
      CHECK(cache.set(entry, i * 0.01));
      known[key] = entry;
      CHECK(cache.contains(key));  // what was just set is there
    } else if (dice == 3) {
      const bool had = cache.contains(key);
      CHECK_EQ(cache.remove(key, key_bytes), had);
      CHECK(!cache.contains(key));
      known.erase(key);
    } else {
      const bool found = cache.get(key, key_bytes, i * 0.01, true);
      CHECK(!found || known.contains(key));  // never finds what was not set, or was removed
    }
    if (i % 5000 == 0) CHECK_EQ(cache.inconsistency(), "");
  }
  CHECK_EQ(cache.inconsistency(), "");
  CHECK(cache.evictions() > 1000);
  CHECK(cache.items() > 500);
}

TEST("slab cache: the tail goes first, a refreshed item stays") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), {}};
  SlabCache cache{small_cache(), classes, recorder};
  const auto entry = [](std::uint64_t key) { return SlabCache::Entry{key, 8, 1000}; };
  std::uint64_t capacity = 0;
  while (cache.evictions() == 0) CHECK(cache.set(entry(capacity++), 0));
  CHECK(cache.full());
  --capacity;  // the last one evicted the first
  CHECK(!cache.contains(0));
  CHECK(cache.contains(1) && cache.contains(2));
  CHECK(cache.get(1, 8, 59, false));  // read, but not due for a refresh
  CHECK(cache.set(entry(100000), 60));
  CHECK(!cache.contains(1));
  CHECK(cache.get(2, 8, 60, false));  // due: moves to the head
  CHECK(cache.set(entry(100001), 61));
  CHECK(cache.contains(2));
  CHECK(!cache.contains(3));
  CHECK_EQ(cache.items(), capacity);
  CHECK_EQ(cache.inconsistency(), "");
}

TEST("slab cache: classes are CacheLib's; what they cannot hold is not inserted") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), {}};
  SlabCache cache{small_cache(), classes, recorder};
  const auto sizes = cache.class_sizes();
  CHECK_EQ(sizes.front(), 64u);
  CHECK_EQ(sizes.back(), 1u << 20);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    CHECK_EQ(sizes[i] % 8, 0u);
    if (i == 0) continue;
    CHECK(sizes[i] > sizes[i - 1]);
    CHECK(static_cast<double>(sizes[i]) < 2 * static_cast<double>(sizes[i - 1]));
    // No larger class has as many items per slab of 4 MiB.
    if (i + 1 < sizes.size()) CHECK((4u << 20) / (sizes[i] + 8) < (4u << 20) / sizes[i]);
  }
  CHECK(!cache.set({1, 8, 1 << 20}, 0));  // with header and key above 1 MiB
  CHECK(!cache.contains(1));
  std::uint64_t key = 10;
  while (!cache.full()) CHECK(cache.set({key++, 8, 100}, 0));
  CHECK(!cache.set({2, 8, 20000}, 0));  // its class has neither memory nor an item to evict
  CHECK(!cache.contains(2));
  CHECK(cache.set({3, 8, 100}, 0));
  CHECK_EQ(cache.inconsistency(), "");
}

TEST("slab cache: chains are as long as the load factor says") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), {}};
  for (const double load : {0.25, 1.0, 3.0}) {
    SlabCacheOptions options = small_cache();
    options.arena_bytes = 64 << 20;
    constexpr std::uint64_t items = 30000;
    options.buckets = static_cast<std::uint64_t>(items / load);  // any number, not a power of two
    SlabCache cache{options, classes, recorder};
    for (std::uint64_t key = 0; key < items; ++key) CHECK(cache.set({key, 8, 40}, 0));
    const std::uint64_t headers = cache.headers_read();
    const std::uint64_t lookups = cache.lookups();
    for (std::uint64_t key = 0; key < items; ++key) CHECK(cache.get(key, 8, 0, false));
    CHECK_EQ(cache.lookups() - lookups, items);
    // The item itself, and half of the others that hash to its bucket.
    CHECK_NEAR(static_cast<double>(cache.headers_read() - headers) / items, 1 + load / 2, 0.02);
  }
}

TEST("slab cache: an operation touches what the structures say") {
  const SlabCache::Entry entry{1, 8, 4096};
  // Header and key of 40 bytes and a value of 4,096 from byte 40 of a slot at a page's start.
  const auto get = [&](bool read_value) {
    return touched_by(small_cache(), entry,
                      [&](SlabCache& cache) { CHECK(cache.get(1, 8, 30, read_value)); });
  };
  const Touched looked_up = get(false);
  CHECK_EQ(looked_up.loads[0], 3.0);   // lock, bucket; header and key in one line
  CHECK_EQ(looked_up.loads[1], 0.0);   // touch_value off
  CHECK_EQ(looked_up.stores[2], 2.0);  // lock, and the header's reference count
  const Touched read = get(true);
  CHECK_EQ(read.loads[0], 3.0);
  CHECK_EQ(read.loads[1], 64.0);  // the first of 65 lines is the header's
  CHECK_EQ(read.stores[2], 2.0);

  const auto set = [&](bool populate) {
    SlabCacheOptions options = small_cache();
    options.populate = populate;
    return touched_by(options, entry, [](SlabCache& cache) { CHECK(cache.set({2, 8, 4096}, 30)); });
  };
  const Touched populated = set(true);
  const Touched allocated = set(false);
  CHECK(populated.stores[1] >= 63 && populated.stores[1] <= 65);
  CHECK_EQ(allocated.stores[1], 0.0);
  CHECK_EQ(populated.loads[0], allocated.loads[0]);
}
