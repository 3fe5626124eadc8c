// cachelib: the published distributions, the cache's structures, and what comes out of both.
#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "check.hpp"
#include "core/rng.hpp"
#include "kernels/distributions.hpp"
#include "kernels/kernel.hpp"
#include "kernels/slab_cache.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::kernels;
using namespace tt::trace;
using check::Scratch;

namespace {

constexpr std::array top = {1e-4, 0.01, 0.1, 0.2, 0.5};
constexpr std::array cdn_share = {0.032, 0.139, 0.375, 0.499, 0.698};
constexpr std::array graph_share = {0.214, 0.327, 0.553, 0.674, 0.860};
constexpr std::array quantile = {0.0, 0.1, 0.5, 0.9, 0.99, 1.0};
constexpr std::array cdn_bytes = {1.0, 159.0, 13300.0, 77600.0, 274000.0, 4180000.0};
constexpr std::array graph_bytes = {1.0, 31.0, 63.0, 895.0, 25000.0, 2600000.0};

StreamInfo description() {
  StreamInfo info;
  info.lanes = {{"all", 1}};
  info.classes = {{"dependent", 1, 0, 0}, {"value", 8, 0, 0}, {"update", 8, 0, 0}};
  return info;
}

SlabCacheOptions small_cache() {
  SlabCacheOptions options;
  options.arena_bytes = 1 << 20;
  options.slab_bytes = 1 << 15;
  options.buckets = 1024;
  options.refresh_seconds = 60;
  return options;
}

RecordRequest small(const std::filesystem::path& file) {
  RecordRequest request;
  request.input = "test";
  request.scale = 8192;
  request.threads = 16;
  request.llc_bytes = 24 << 20;
  request.seed = 5;
  request.file = file;
  using List = std::vector<double>;
  request.parameters = {{"objects_m", 160.0},
                        {"slab_kib", 256.0},
                        {"popularity_top", List{0.01, 0.1, 0.2, 0.5}},
                        {"popularity_share", List{0.327, 0.553, 0.674, 0.86}},
                        {"value_bytes", List{1, 31, 63, 895, 25000, 250000}},
                        {"value_mean", 1420.0},
                        {"lone_get_share", 0.11589},
                        {"op_ns", 475.0},
                        {"client_ns", 1820.0},
                        {"duration_s", 20.0}};
  return request;
}

}  // namespace

TEST("popularity: every published share is met, and none rises with rank") {
  for (const auto& shares : {cdn_share, graph_share}) {
    const Popularity popularity{top, shares};
    for (std::size_t i = 0; i < top.size(); ++i)
      CHECK_NEAR(popularity.share(top[i]), shares[i], 1e-9);
    constexpr int steps = 10000;
    double previous = 2;
    for (int i = 0; i < steps; ++i) {
      const double share =
          popularity.share((i + 1.0) / steps) - popularity.share(double(i) / steps);
      CHECK(share <= previous * (1 + 1e-6));
      previous = share;
    }
    // Draws: the shares of a million within a fraction of a point.
    Rng rng{1};
    constexpr int draws = 1000000;
    std::array<int, top.size()> hits{};
    for (int i = 0; i < draws; ++i) {
      const double position = popularity.position(rng.uniform());
      CHECK(position >= 0 && position < 1);
      for (std::size_t k = 0; k < top.size(); ++k) hits[k] += position < top[k];
    }
    for (std::size_t k = 0; k < top.size(); ++k)
      CHECK_NEAR(hits[k] / double(draws), shares[k], 0.002);
  }
  const std::array<double, 2> rising = {0.001, 0.9};
  const std::array<double, 2> positions = {0.1, 0.2};
  CHECK_THROWS((Popularity{positions, rising}), "must not");
}

TEST("sizes: every published percentile and the mean are met") {
  const auto mean_of = [](const Sizes& sizes) {
    double sum = 0;
    constexpr int steps = 1000000;
    for (int i = 0; i < steps; ++i) sum += sizes.at((i + 0.5) / steps);
    return sum / steps;
  };
  const Sizes cdn{quantile, cdn_bytes, 33000};
  const Sizes graph{quantile, graph_bytes, 1420};
  for (std::size_t i = 0; i < quantile.size(); ++i) {
    CHECK_NEAR(cdn.at(quantile[i]) / cdn_bytes[i], 1, 1e-9);
    CHECK_NEAR(graph.at(quantile[i]) / graph_bytes[i], 1, 1e-9);
  }
  CHECK_NEAR(mean_of(cdn) / 33000, 1, 0.002);
  CHECK_NEAR(mean_of(graph) / 1420, 1, 0.002);
  CHECK_THROWS((Sizes{quantile, cdn_bytes, 1e7}), "no curve");
}

TEST("popularity: requests for a miniature's objects have the published shares") {
  const Popularity popularity{top, cdn_share};
  constexpr std::size_t objects = 25781;
  const Ranks ranks{objects, 0, 1};
  std::vector<int> requests(objects);
  Rng rng{2};
  constexpr int draws = 2600000;
  for (int i = 0; i < draws; ++i) ++requests[ranks.object(popularity.position(rng.uniform()))];
  for (std::size_t k = 0; k < top.size(); ++k) {
    const auto count = static_cast<std::ptrdiff_t>(std::lround(top[k] * objects));
    const double share =
        std::accumulate(requests.begin(), requests.begin() + count, 0.0) / double(draws);
    CHECK_NEAR(share, cdn_share[k], 0.01);
  }
}

TEST("churn: half of the popular objects are gone after the half-life") {
  constexpr std::uint32_t objects = 100000;
  const auto popular_now = [](const Ranks& ranks) {
    std::unordered_set<std::uint32_t> set;
    for (int i = 0; i < 10000; ++i) set.insert(ranks.object((i + 0.5) / objects));
    return set;
  };
  const auto staying = [&](const Ranks& ranks) {
    int stays = 0;
    for (const std::uint32_t object : popular_now(ranks)) stays += object < 10000;
    return stays / 10000.0;
  };
  Ranks ranks{objects, 600, 1};
  for (int i = 0; i <= 300; ++i) ranks.advance(i);
  const double halfway = staying(ranks);
  ranks.advance(600);
  CHECK_NEAR(staying(ranks), 0.5, 0.02);
  CHECK(halfway > 0.65 && halfway < 0.75);      // gradual
  CHECK_EQ(popular_now(ranks).size(), 10000u);  // still each object once

  Ranks fixed{objects, 0, 1};
  fixed.advance(1e6);
  CHECK_EQ(staying(fixed), 1.0);
  fixed.shift(2.0 / 3);
  CHECK_NEAR(staying(fixed), 1.0 / 3, 0.02);
}

TEST("slab cache: behaves as a map that forgets the least recently used") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), {}};
  SlabCache cache{small_cache(), {0, 1, 2}, recorder};
  Rng rng{1};
  std::unordered_map<std::uint64_t, SlabCache::Entry> known;
  for (int i = 0; i < 60000; ++i) {
    const std::uint64_t key = rng.below(3000);
    const auto dice = rng.below(10);
    const auto key_bytes = static_cast<std::uint32_t>(1 + key % 64);
    if (dice < 3) {
      const SlabCache::Entry entry{key, key_bytes,
                                   static_cast<std::uint32_t>(1 + rng.below(rng.below(3000) + 1))};
      cache.set(entry, i * 0.01);
      known[key] = entry;
      CHECK(cache.contains(key));  // what was just set is there
    } else if (dice == 3) {
      const bool had = cache.contains(key);
      CHECK_EQ(cache.remove(key, key_bytes), had);
      CHECK(!cache.contains(key));
      known.erase(key);
    } else {
      const bool found = cache.get(key, key_bytes, i * 0.01);
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
  SlabCacheOptions options = small_cache();
  options.arena_bytes = options.slab_bytes;  // one slab
  SlabCache cache{options, {0, 1, 2}, recorder};
  const auto entry = [](std::uint64_t key) { return SlabCache::Entry{key, 8, 1000}; };
  std::uint64_t capacity = 0;
  while (cache.evictions() == 0) cache.set(entry(capacity++), 0);
  --capacity;  // the last one evicted the first
  CHECK(!cache.contains(0));
  CHECK(cache.contains(1) && cache.contains(2));
  CHECK(cache.get(1, 8, 59));  // read, but not due for a refresh
  cache.set(entry(100000), 60);
  CHECK(!cache.contains(1));
  CHECK(cache.get(2, 8, 60));  // due: moves to the head
  cache.set(entry(100001), 61);
  CHECK(cache.contains(2));
  CHECK(!cache.contains(3));
  CHECK_EQ(cache.items(), capacity);
  CHECK_EQ(cache.inconsistency(), "");
}

TEST("slab cache: a class without memory takes a slab from the class that has most") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), {}};
  SlabCache cache{small_cache(), {0, 1, 2}, recorder};
  std::uint64_t key = 0;
  while (cache.evictions() == 0) cache.set({key++, 8, 100}, 0);
  CHECK_EQ(cache.slabs_moved(), 0u);
  cache.set({key, 8, 20000}, 0);
  CHECK_EQ(cache.slabs_moved(), 1u);
  CHECK(cache.contains(key));
  CHECK_EQ(cache.inconsistency(), "");
  CHECK_THROWS(cache.set({1, 8, 40000}, 0), "exceeds a slab");
}

TEST("slab cache: an operation touches what the structures say") {
  const Scratch scratch;
  {
    Recorder recorder{scratch.file("a.tts"), description(), {}};
    SlabCacheOptions options = small_cache();
    options.smallest_class = 8192;  // slots start at pages, so that lines can be counted
    SlabCache cache{options, {0, 1, 2}, recorder};
    recorder.set_timed(false);
    cache.set({1, 8, 4096}, 0);
    // Push it out of the cache filter: many times its size.
    const Address flush = recorder.map("flush", 64 << 20);
    recorder.load(1, flush, 64 << 20);
    recorder.set_timed(true);
    CHECK(cache.get(1, 8, 30));
    (void)recorder.finish();
  }
  const Reader reader{scratch.file("a.tts")};
  Block block;
  reader.read(reader.info().blocks - 1, block);
  CHECK(block.timed);
  CHECK_EQ(block.segments.size(), 3u);
  CHECK_EQ(block.segments[0].stream_class, 0u);  // bucket; header and key in one line
  CHECK_EQ(block.segments[0].sum, 2u);
  CHECK_EQ(block.segments[1].stream_class, 1u);  // 4,096 bytes from byte 40 on: 64 lines more
  CHECK_EQ(block.segments[1].sum, 64u);
  CHECK(block.segments[2].kind == AccessKind::store);  // the reference count
  CHECK_EQ(block.segments[2].sum, 1u);
}

TEST("cachelib: the smoke input runs as long as it should and fills its memory") {
  const Scratch scratch;
  const StreamInfo info = record("cachelib", small(scratch.file("a.tts")));
  const Reader reader{scratch.file("a.tts")};
  reader.verify();
  CHECK_NEAR(info.nominal_seconds, 20, 0.1);
  CHECK_EQ(info.op_kinds[0].name, "get");
  CHECK_EQ(info.objects.size(), 2u);
  CHECK_EQ(info.objects[1].pages, 8192u);
  Block block;
  std::uint64_t touched = 0;
  std::uint64_t set_up_operations = 0;
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    for (const Event& event : block.events)
      if (event.type == EventType::touch) touched += event.count;
    if (!block.timed) set_up_operations += block.operations[0];
  }
  CHECK(touched > info.pages * 8 / 10);
  CHECK_EQ(set_up_operations, 0u);
  CHECK(info.operations > 10000);
}

TEST("cachelib: set and delete shares are met") {
  const Scratch scratch;
  auto request = small(scratch.file("a.tts"));
  request.parameters["set_share"] = 0.2;
  request.parameters["delete_share"] = 0.1;
  const StreamInfo info = record("cachelib", request);
  const Reader reader{scratch.file("a.tts")};
  std::array<double, 3> kinds{};
  Block block;
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    for (std::size_t k = 0; k < 3; ++k) kinds[k] += static_cast<double>(block.operations[k]);
  }
  CHECK_NEAR(kinds[0] / static_cast<double>(info.operations), 0.7, 0.015);
  CHECK_NEAR(kinds[1] / static_cast<double>(info.operations), 0.2, 0.015);
  CHECK_NEAR(kinds[2] / static_cast<double>(info.operations), 0.1, 0.015);
  request.parameters["set_share"] = 0.95;
  CHECK_THROWS(record("cachelib", request), "more than 1 with delete_share");
}

TEST("cachelib: what is hot moves at a shift and by churn, and stays without") {
  const Scratch scratch;
  // Values of several pages, so that a page belongs to one object.
  const auto overlap = [&](double half_life_s, double shift_at_s) {
    auto request = small(scratch.file("a.tts"));
    request.parameters["objects_m"] = 8.0;
    request.parameters["value_bytes"] =
        std::vector<double>{20000, 20000, 20000, 20000, 20000, 20000};
    request.parameters["value_mean"] = 20000.0;
    request.parameters["lone_get_share"] = 0.0;
    request.parameters["duration_s"] = 120.0;
    request.parameters["churn_half_life_s"] = half_life_s;
    request.parameters["shift_at_s"] = shift_at_s;
    const StreamInfo info = record("cachelib", request);
    const Reader reader{scratch.file("a.tts")};
    std::array<std::vector<std::pair<double, std::uint32_t>>, 2> heat;
    for (auto& half : heat)
      for (std::uint32_t p = 0; p < info.pages; ++p) half.emplace_back(0, p);
    Block block;
    double time = 0;
    for (std::uint64_t i = 0; i < info.blocks; ++i) {
      reader.read(i, block);
      if (!block.timed) continue;
      for (const Segment& segment : block.segments)
        for (std::size_t e = 0; e < segment.pages.size(); ++e)
          heat[time < 60e9 ? 0 : 1][segment.pages[e]].first += segment.counts[e];
      time += block.nominal_ns;
    }
    std::unordered_set<std::uint32_t> early;
    double both = 0;
    const std::size_t hottest = info.pages / 10;
    for (auto& half : heat) std::ranges::sort(half, std::greater{});
    for (std::size_t i = 0; i < hottest; ++i) early.insert(heat[0][i].second);
    for (std::size_t i = 0; i < hottest; ++i) both += early.contains(heat[1][i].second);
    return both / static_cast<double>(hottest);
  };
  const double steady = overlap(0, 0);
  const double churning = overlap(30, 0);
  const double shifted = overlap(0, 60);
  CHECK(steady > 0.8);
  CHECK(churning < steady - 0.2);
  CHECK(shifted < steady - 0.3);
}
