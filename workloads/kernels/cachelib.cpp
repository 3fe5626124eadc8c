// cachelib: a look-aside cache under the published mixes of Meta's cachebench.
//
// The cache is a real one (slab_cache.hpp). What clients ask for follows cachebench's published
// workloads (facebook/CacheLib, cachebench/test_configs/hit_ratio): a table of popularity, one of
// value sizes, key lengths, and the shares of GET, lone GET (for a key that nobody asks for again;
// being look-aside, its miss inserts an item that stays cold), SET and DELETE. Popularity depends
// neither on size nor on where an item was allocated.
//
// cachebench draws from a fixed distribution; production does not. Churn exchanges objects' ranks
// at random moments so that half of the popular objects (the top tenth) are no longer popular after
// churn_half_life_s (HybridTier, ASPLOS'25, §2.2: 10 minutes); a shift makes a share of them
// unpopular all at once (ibid., §2.3.2). See Ranks in distributions.hpp.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/rng.hpp"
#include "kernels/distributions.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"
#include "kernels/slab_cache.hpp"

namespace tt::kernels {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

enum Class : std::uint32_t { value, dependent, update };
enum Kind : std::uint32_t { get, set, remove };

trace::StreamInfo record_cachelib(const RecordRequest& request) {
  const ParameterReader read{request};
  const double objects_full = read.positive("objects_m") * 1e6;
  const auto objects = static_cast<std::size_t>(objects_full / request.scale);
  read.require(objects >= 100, "objects_m",
               "fewer than 100 objects at scale " + ParameterReader::text(request.scale));
  const double cache_bytes = read.positive("cache_gib") * gib / request.scale;
  const double duration_s = read.positive("duration_s");
  const double lone_share = read.number("lone_get_share", 0, 1);
  const double set_share = read.number("set_share", 0, 1);
  const double delete_share = read.number("delete_share", 0, 1);
  read.require(set_share + delete_share <= 1, "set_share", "more than 1 with delete_share");
  const double op_ns = read.number("op_ns");
  const double client_ns = read.number("client_ns");
  const double shift_at_s = read.number("shift_at_s");
  const double shift_fraction = read.number("shift_fraction", 0, 1);
  const double half_life_s = read.number("churn_half_life_s");
  const Popularity popularity{read.list("popularity_top"), read.list("popularity_share")};
  const Sizes sizes{read.list("value_quantile"), read.list("value_bytes"),
                    read.positive("value_mean")};

  trace::StreamInfo info = describe(request);
  info.lanes = {{"clients", 1}};
  // Value: sequential bytes. The prefetchers keep a core's 10 to 12 line buffers nearly full but
  // start again at every page: 9 lines on average (estimate); summing up a line takes some 3 ns.
  // Dependent: bucket, header and chain, each address from the line before: MLP 1. Update: stores
  // to lines that were just read, buffered and drained side by side.
  info.classes = {{"value", 9, 3}, {"dependent", 1, 0}, {"update", 10, 0}};
  info.op_kinds = {{"get"}, {"set"}, {"delete"}};
  trace::Recorder recorder{request.file, info, recorder_options(request)};

  SlabCacheOptions options;
  options.slab_bytes = static_cast<std::uint64_t>(read.positive("slab_kib") * 1024);
  options.arena_bytes = static_cast<std::uint64_t>(cache_bytes);
  options.buckets = std::bit_ceil(objects);
  options.refresh_seconds = read.number("lru_refresh_s");
  SlabCache cache{options, {dependent, value, update}, recorder};

  Rng rng{request.seed};
  // Sizes of the objects in order of their first ranks follow the golden-ratio sequence, which is
  // evenly spread over every stretch of ranks: few thousand objects then have the published
  // percentiles and mean, weighted by popularity or not.
  const auto entry = [&](std::uint64_t identity, double quantile) {
    SlabCache::Entry made{mix64(identity + (request.seed << 40)), 0, 0};
    const std::uint64_t dice = mix64(made.key ^ 0x6b6579ULL);
    // Key length: 1 to 8 bytes for 30 %, 8 to 64 for 70 % (cachebench's published mixes).
    made.key_bytes = static_cast<std::uint32_t>(
        (dice & 0xffff) < 0.3 * 0x10000 ? 1 + (dice >> 16) % 8 : 8 + (dice >> 16) % 57);
    made.value_bytes = static_cast<std::uint32_t>(std::clamp(
        sizes.at(quantile), 1.0,
        static_cast<double>(cache.largest_item() - SlabCache::header_bytes - made.key_bytes)));
    return made;
  };
  std::vector<SlabCache::Entry> entries(objects);
  for (std::size_t i = 0; i < objects; ++i) {
    const double spread = 0.5 + static_cast<double>(i) * 0.61803398874989485;
    entries[i] = entry(i, spread - std::floor(spread));
  }

  Progress progress{request};
  recorder.set_timed(false);
  std::vector<std::uint32_t> order(objects);
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t left = objects; left > 1; --left)
    std::swap(order[left - 1], order[rng.below(left)]);
  for (const std::uint32_t object : order) cache.set(entries[object], recorder.total_seconds());
  recorder.set_timed(true);

  Ranks ranks{objects, half_life_s, rng.next()};
  bool shifted = shift_at_s == 0;
  std::uint64_t lone = objects;
  for (;;) {
    const double timed_s = recorder.timed_seconds();
    if (timed_s >= duration_s) break;
    progress.at(timed_s / duration_s);
    ranks.advance(timed_s);
    if (!shifted && timed_s >= shift_at_s) {
      ranks.shift(shift_fraction);
      shifted = true;
    }
    const double now_s = recorder.total_seconds();
    const double dice = rng.uniform();
    const Kind kind = dice < delete_share ? remove : dice < delete_share + set_share ? set : get;
    const SlabCache::Entry asked = kind == get && rng.uniform() < lone_share
                                       ? entry(lone++, rng.uniform())
                                       : entries[ranks.object(popularity.position(rng.uniform()))];
    recorder.begin_operation(kind);
    recorder.compute(0, op_ns);
    bool present = true;
    if (kind == get)
      present = cache.get(asked.key, asked.key_bytes, now_s);
    else if (kind == set)
      cache.set(asked, now_s);
    else
      (void)cache.remove(asked.key, asked.key_bytes);
    recorder.end_operation();
    // Look-aside: after a miss the client fetches the value elsewhere and inserts it.
    if (!present) cache.set(asked, now_s);
    recorder.compute(0, client_ns);
  }
  return recorder.finish();
}

using List = std::vector<double>;

const RegisterKernel registered{
    {"cachelib",
     "an in-memory cache (slabs, hash chains, LRU lists) under cachebench's published mixes",
     {{"objects_m", 6.6, "10^6", "objects that clients ask for again and again; inserted first"},
      {"cache_gib", 256.0, "GiB", "memory for items"},
      {"slab_kib", 4096.0, "KiB", "size of a slab, and of the largest item"},
      {"popularity_top", List{1e-4, 0.01, 0.1, 0.2, 0.5}, "share",
       "the most popular share of objects ..."},
      {"popularity_share", List{0.032, 0.139, 0.375, 0.499, 0.698}, "share",
       "... and the share of accesses that it gets"},
      {"value_quantile", List{0, 0.1, 0.5, 0.9, 0.99, 1}, "quantile", "of objects, by value size"},
      {"value_bytes", List{1, 159, 13300, 77600, 274000, 4180000}, "bytes",
       "value sizes at these quantiles"},
      {"value_mean", 33000.0, "bytes", "mean value size"},
      {"lone_get_share", 0.00884, "share", "GETs for a key that nobody asks for again"},
      {"set_share", 0.0, "share", "operations that replace an object's value"},
      {"delete_share", 0.0, "share", "operations that delete an object"},
      {"op_ns", 2100.0, "ns", "computation within an operation"},
      {"client_ns", 8600.0, "ns", "computation of a client between two operations"},
      {"duration_s", 660.0, "s", "length of the timed part if all memory were fast"},
      {"churn_half_life_s", 600.0, "s",
       "after this time half of the top tenth of objects is no longer in it; 0: never"},
      {"shift_at_s", 0.0, "s",
       "when shift_fraction of the top tenth stops being popular; 0: never"},
      {"shift_fraction", 2.0 / 3, "share", "see shift_at_s"},
      {"lru_refresh_s", 60.0, "s", "an item moves to its LRU list's head at most this often"},
      block_ms_parameter(20)},
     &record_cachelib}};

}  // namespace
}  // namespace tt::kernels
