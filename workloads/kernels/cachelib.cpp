// SPDX-License-Identifier: MIT

// cachelib: a look-aside cache as cachebench runs it (facebook/CacheLib, cachebench/).
//
// Clients draw a key number, ask for the key and insert it after a miss. The cache is a real one
// (slab_cache.hpp), and what the generator of requests reads is part of the workload
// (cachelib_generator.hpp). An operation is what cachebench measures the latency of: the look-up
// and, with touch_value, the sum over all bytes of the value. Drawing the request and inserting
// after a miss are the client's own time.
//
// Popularity is that of cachebench's published tables (test_configs/hit_ratio), or a normal
// distribution over key numbers around the middle one, as cachebench uses without a table. A lone
// GET asks for a key that nobody asks for again: being look-aside, it inserts an item that stays
// cold, with the size of the key that was drawn. Items above 1 MiB are never inserted.
//
// cachebench draws from a fixed distribution; production does not. Churn exchanges objects' ranks
// at random moments so that half of the popular objects (the top tenth) are no longer popular after
// churn_half_life_s (HybridTier, ASPLOS'25, §2.2: 10 minutes); a shift makes a share of the top
// ones unpopular all at once (ibid., §2.3.2; FreqTier, §VII-D). See Ranks in distributions.hpp.
//
// The miniature: keys, buckets, locks, memory and tables are divided by the scale, so chains are as
// long, and each table misses the cache as often, as in the full system. What one operation touches
// is not scaled. cachebench copies values from one string of 4 MiB, whose first pages are always in
// the cache; that reading is left out, as a string that does not shrink would miss in a miniature.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/rng.hpp"
#include "kernels/cachelib_generator.hpp"
#include "kernels/distributions.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"
#include "kernels/slab_cache.hpp"

namespace tt::kernels {
namespace {

enum Class : std::uint32_t { value, dependent, update };
enum Kind : std::uint32_t { get, set, remove };

// Value: sequential bytes. The prefetchers keep a core's 10 to 12 line buffers nearly full but
// start again at every page: 9 lines on average (estimate); summing up a line takes some 3 ns.
// Dependent: tables, lock, bucket, headers, each address from the line before: MLP 1. Update:
// stores to lines that were just read, buffered and drained side by side.
std::vector<trace::StreamClass> stream_classes() {
  return {{"value", 9, 3}, {"dependent", 1, 0}, {"update", 10, 0}};
}

/// Evenly spread over [0, 1) in every stretch of numbers (golden-ratio sequence), so that few
/// thousand neighbours in popularity have the published percentiles and mean.
double spread(std::uint64_t number) {
  const double at = 0.5 + static_cast<double>(number) * 0.61803398874989485;
  return at - std::floor(at);
}

class Clients {
 public:
  explicit Clients(const RecordRequest& request)
      : read_(request),
        keys_(keys(request)),
        sizes_(read_.list("value_quantile"), read_.list("value_bytes"),
               read_.positive("value_mean")),
        progress_(request),
        recorder_(request.file, info(request), options(request)),
        generator_(generator_options(request), {dependent, value, update}, untimed(recorder_)),
        cache_(cache_options(request), {dependent, value, update}, recorder_),
        rng_(request.seed),
        ranks_(keys_, read_.number("churn_half_life_s"), rng_.next()),
        position_(position()),
        seed_(request.seed) {
    read_.require(set_share_ + delete_share_ <= 1, "set_share", "more than 1 with delete_share");
  }

  trace::StreamInfo run() {
    const double duration_s = read_.positive("duration_s");
    const double warm_up_s = read_.number("warm_up_s");
    const double shift_at_s = read_.number("shift_at_s");
    if (read_.flag("preload")) preload();
    const double from_s = recorder_.total_seconds();
    while (!cache_.full() && recorder_.total_seconds() - from_s < warm_up_s) ask();
    recorder_.set_timed(true);
    bool shifted = shift_at_s == 0;
    for (;;) {
      const double timed_s = recorder_.timed_seconds();
      if (timed_s >= duration_s) break;
      progress_.at(timed_s / duration_s);
      ranks_.advance(timed_s);
      if (!shifted && timed_s >= shift_at_s) {
        ranks_.shift(shift_top_, shift_fraction_);
        shifted = true;
      }
      ask();
    }
    return recorder_.finish();
  }

 private:
  std::uint64_t keys(const RecordRequest& request) const {
    const auto keys = static_cast<std::uint64_t>(read_.positive("keys_m") * 1e6 / request.scale);
    read_.require(keys >= 100, "keys_m",
                  "fewer than 100 keys at scale " + ParameterReader::text(request.scale));
    read_.require(keys < 0xffffffff, "keys_m",
                  "more than 2^32 keys at scale " + ParameterReader::text(request.scale));
    return keys;
  }

  static trace::StreamInfo info(const RecordRequest& request) {
    trace::StreamInfo info = describe(request);
    info.lanes = {{"clients", 1}};
    info.classes = stream_classes();
    info.op_kinds = {{"get"}, {"set"}, {"delete"}};
    return info;
  }

  /// As many operations are kept whole at every scale: many values have sizes near the median, so
  /// that few operations would leave its latency to chance.
  static trace::RecorderOptions options(const RecordRequest& request) {
    trace::RecorderOptions options = recorder_options(request);
    options.op_sample_probability = std::min(1.0, 1e-4 * request.scale);
    return options;
  }

  static trace::Recorder& untimed(trace::Recorder& recorder) {
    recorder.set_timed(false);
    return recorder;
  }

  GeneratorOptions generator_options(const RecordRequest& request) {
    const std::string& name = read_.text_value("generator");
    read_.require(name == "online" || name == "default", "generator",
                  "found '" + name + "', allowed online, default");
    return {.online = name == "online",
            .scale = request.scale,
            .index_entries = read_.positive("index_entries_g") * 1e9,
            .keys = keys_,
            .object = [this](double uniform) { return ranks_.object(position_(uniform)); },
            .key_number = [this](std::uint64_t object) { return key_number(object); },
            .key_bytes = [this](std::uint64_t object) { return key_bytes(object); }};
  }

  SlabCacheOptions cache_options(const RecordRequest& request) const {
    const auto scaled = [&](double full) {
      return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(full / request.scale));
    };
    SlabCacheOptions options;
    options.arena_bytes = scaled(read_.positive("cache_mb") * (1 << 20));
    read_.require(
        options.arena_bytes >= SlabCache::largest_item, "cache_mb",
        "less than the largest item, 1 MiB, at scale " + ParameterReader::text(request.scale));
    options.slab_bytes = scaled(SlabCache::full_slab_bytes);
    options.buckets = scaled(power_of_two("bucket_power"));
    options.locks = scaled(power_of_two("lock_power"));
    options.refresh_seconds = read_.number("lru_refresh_s");
    options.populate = read_.flag("populate");
    return options;
  }

  [[nodiscard]] double power_of_two(std::string_view name) const {
    return std::ldexp(1.0, static_cast<int>(read_.number(name, 0, 40)));
  }

  /// The rank's position for a uniform draw.
  std::function<double(double)> position() const {
    const double active = read_.number("active_share", 0, 1);
    const std::string& name = read_.text_value("popularity");
    read_.require(name == "normal" || name == "table", "popularity",
                  "found '" + name + "', allowed normal, table");
    if (name == "normal")
      return [active, normal = NormalPopularity{read_.positive("popularity_sigma_m") /
                                                read_.positive("keys_m")}](double uniform) {
        return active * normal.position(uniform);
      };
    return
        [active, table = Popularity{read_.list("popularity_top"), read_.list("popularity_share")}](
            double uniform) { return active * table.position(uniform); };
  }

  /// By a table, key numbers rise with the first ranks; a normal distribution's middle is the
  /// middle key.
  [[nodiscard]] std::uint64_t key_number(std::uint64_t object) const {
    if (!middle_out_) return object;
    const std::uint64_t away = (object + 1) / 2;
    const std::uint64_t middle = keys_ / 2;
    return object % 2 == 0 ? std::min(middle + away, keys_ - 1) : middle - away;
  }

  [[nodiscard]] std::uint64_t identity(std::uint64_t number) const {
    return mix64(number + (seed_ << 40));
  }
  /// 1 to 8 bytes for 30 %, 8 to 64 for 70 % (cachebench's published mixes). The online generator
  /// makes the shorter ones 8 bytes long, to hold the key's number. The default one drops
  /// duplicates, of which nearly all keys below 4 letters are.
  [[nodiscard]] std::uint32_t key_bytes(std::uint64_t object) const {
    const std::uint64_t dice = mix64(identity(object) ^ 0x6b6579ULL);
    return static_cast<std::uint32_t>((dice & 0xffff) >= 0.3 * 0x10000 ? 8 + (dice >> 16) % 56
                                      : online_                        ? 8
                                                                       : 4 + (dice >> 16) % 4);
  }
  [[nodiscard]] std::uint32_t value_bytes(std::uint64_t object) const {
    return static_cast<std::uint32_t>(sizes_.at(spread(object)));
  }
  [[nodiscard]] SlabCache::Entry entry(std::uint64_t object) const {
    return {identity(object), key_bytes(object), value_bytes(object)};
  }

  void preload() {
    std::vector<std::uint32_t> order(keys_);
    std::iota(order.begin(), order.end(), 0u);
    for (std::size_t left = keys_; left > 1; --left)
      std::swap(order[left - 1], order[rng_.below(left)]);
    for (const std::uint32_t object : order) cache_.set(entry(object), recorder_.total_seconds());
  }

  void ask() {
    const double now_s = recorder_.total_seconds();
    const std::uint64_t object = generator_.draw(rng_);
    const double dice = rng_.uniform();
    const Kind kind = dice < delete_share_ ? remove : dice < delete_share_ + set_share_ ? set : get;
    SlabCache::Entry asked = entry(object);
    if (kind == get && rng_.uniform() < lone_share_) {
      asked.key = identity(keys_ + lone_++);
      asked.key_bytes = 19;  // a clock's nanoseconds in decimal (Request::getUniqueKey)
    }
    recorder_.begin_operation(kind);
    recorder_.compute(0, op_ns_);
    bool insert = false;
    if (kind == get)
      insert = !cache_.get(asked.key, asked.key_bytes, now_s, touch_value_);
    else if (kind == set)
      cache_.set(asked, now_s);
    else
      (void)cache_.remove(asked.key, asked.key_bytes);
    recorder_.end_operation();
    if (insert) {
      generator_.read_size(object);
      cache_.set(asked, now_s);
    }
    recorder_.compute(0, client_ns_);
  }

  ParameterReader read_;
  std::uint64_t keys_;
  Sizes sizes_;
  Progress progress_;
  trace::Recorder recorder_;
  Generator generator_;
  SlabCache cache_;
  Rng rng_;
  Ranks ranks_;
  std::function<double(double)> position_;
  std::uint64_t seed_;
  std::uint64_t lone_ = 0;
  bool online_ = read_.text_value("generator") == "online";
  bool middle_out_ = read_.text_value("popularity") == "normal";
  bool touch_value_ = read_.flag("touch_value");
  double lone_share_ = read_.number("lone_get_share", 0, 1);
  double set_share_ = read_.number("set_share", 0, 1);
  double delete_share_ = read_.number("delete_share", 0, 1);
  double op_ns_ = read_.number("op_ns");
  double client_ns_ = read_.number("client_ns");
  double shift_top_ = read_.number("shift_top", 0, 0.5);
  double shift_fraction_ = read_.number("shift_fraction", 0, 1);
};

trace::StreamInfo record_cachelib(const RecordRequest& request) { return Clients{request}.run(); }

using List = std::vector<double>;

const RegisterKernel registered{
    {"cachelib",
     "a look-aside cache (hash chains, slabs, LRU lists) as CacheLib's cachebench runs it",
     {{"keys_m", 40.0, "10^6", "keys that clients ask for again and again"},
      {"cache_mb", 200000.0, "MiB", "memory for items (cacheSizeMB)"},
      {"bucket_power", 24.0, "log2", "buckets of the hash table (htBucketPower)"},
      {"lock_power", 20.0, "log2", "locks of the hash table (htLockPower)"},
      {"generator", std::string{"online"}, "",
       "how requests are made: online, or default, which has drawn them all before"},
      {"index_entries_g", 4.294967295, "10^9",
       "requests that the default generator has drawn (numOps x numThreads, below 2^32)"},
      {"touch_value", true, "", "a GET reads all bytes of the value (touchValue)"},
      {"populate", true, "", "an insertion writes all bytes of the value (populateItem)"},
      {"preload", false, "", "insert all keys first, in random order"},
      {"popularity", std::string{"normal"}, "",
       "normal: distribution over key numbers, or table: popularity_top and popularity_share"},
      {"popularity_sigma_m", 2.0, "10^6", "standard deviation of the normal distribution, keys"},
      {"popularity_top", List{1e-4, 0.01, 0.1, 0.2, 0.5}, "share",
       "the most popular share of objects ..."},
      {"popularity_share", List{0.032, 0.139, 0.375, 0.499, 0.698}, "share",
       "... and the share of accesses that it gets"},
      {"active_share", 1.0, "share",
       "of the keys, the most popular ones; others are not asked for"},
      {"value_quantile", List{0, 0.1, 0.5, 0.9, 0.99, 1}, "quantile", "of objects, by value size"},
      {"value_bytes", List{1, 159, 13300, 77600, 274000, 4180000}, "bytes",
       "value sizes at these quantiles"},
      {"value_mean", 33000.0, "bytes", "mean value size"},
      {"lone_get_share", 0.00884, "share", "GETs for a key that nobody asks for again"},
      {"set_share", 0.0, "share", "operations that replace an object's value"},
      {"delete_share", 0.0, "share", "operations that delete an object"},
      {"op_ns", 2100.0, "ns", "computation within an operation"},
      {"client_ns", 8600.0, "ns", "computation of a client between two operations"},
      {"warm_up_s", 1800.0, "s", "length of the untimed part, unless the cache is full before"},
      {"duration_s", 660.0, "s", "length of the timed part if all memory were fast"},
      {"churn_half_life_s", 0.0, "s",
       "after this time half of the top tenth of objects is no longer in it; 0: never"},
      {"shift_at_s", 0.0, "s",
       "when shift_fraction of the shift_top objects stops being popular; 0: never"},
      {"shift_top", 0.1, "share", "the most popular share of objects, at most one half"},
      {"shift_fraction", 2.0 / 3, "share", "see shift_at_s"},
      {"lru_refresh_s", 60.0, "s", "an item moves to its LRU list's head at most this often"},
      block_ms_parameter(20)},
     &record_cachelib}};

}  // namespace
}  // namespace tt::kernels
