// SPDX-License-Identifier: MIT

#include "kernels/requests.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/types.hpp"
#include "kernels/kernel.hpp"
#include "kernels/redis_store.hpp"
#include "kernels/slab_cache.hpp"

namespace tt::kernels {
namespace {

// As in cachelib.cpp, which says why.
enum StoreClass : std::uint32_t { value_lines, dependent_lines, update_lines };
enum StoreKind : std::uint32_t { get_kind, set_kind, delete_kind };
constexpr SlabCacheClasses store_classes{
    .dependent = dependent_lines, .value = value_lines, .update = update_lines};

constexpr double buckets_per_item = 1.6;          // CacheLib's advice, rounded up to a power of two
constexpr double most_locks = 1 << 20;            // cachebench's default htLockPower
constexpr double least_operations_kept = 20'000;  // whole, for percentiles up to the 99.9th

trace::RecorderOptions recorder_options_of(const ReplayOptions& options, double operations) {
  trace::RecorderOptions out;
  out.scale = options.scale;
  out.llc_bytes = options.llc_bytes;
  out.block_ms = options.block_ms;
  out.threads = options.threads;
  out.nominal_latency_ns = options.nominal_latency_ns;
  out.op_sample_probability =
      std::min(1.0, std::max(1e-4 * options.scale, least_operations_kept / operations));
  out.seed = options.seed;
  return out;
}

/// As cachelib.cpp and redis.cpp have them, which say why.
trace::StreamInfo described(const ReplayOptions& options) {
  trace::StreamInfo info = options.info;
  info.scale = options.scale;
  const bool redis = options.store == AnsweringStore::redis;
  info.lanes = {{redis ? "instances" : "clients", 1}};
  info.classes = {
      {"value", 9, redis ? 2.0 : 3.0}, {redis ? "chain" : "dependent", 1, 0}, {"update", 10, 0}};
  info.op_kinds = {{"get"}, {"set"}, {"delete"}};
  return info;
}

/// A store, as far as requests go.
class Answers {
 public:
  virtual ~Answers() = default;
  /// Whether the key is there. `read_value`: all of its value is read.
  virtual bool get(const StoreRequest& request, bool read_value) = 0;
  /// False: it could not be stored.
  virtual bool set(const StoreRequest& request) = 0;
  virtual bool remove(const StoreRequest& request) = 0;
  /// Outside of operations.
  virtual void between() {}
  [[nodiscard]] virtual std::uint64_t evictions() const { return 0; }
};

class CacheLib final : public Answers {
 public:
  CacheLib(const SlabCacheOptions& options, trace::Recorder& recorder)
      : cache_(options, store_classes, recorder) {}
  bool get(const StoreRequest& request, bool read_value) override {
    return cache_.get(request.key, request.key_bytes, request.seconds, read_value);
  }
  bool set(const StoreRequest& request) override {
    return cache_.set({request.key, request.key_bytes, request.value_bytes}, request.seconds);
  }
  bool remove(const StoreRequest& request) override {
    return cache_.remove(request.key, request.key_bytes);
  }
  [[nodiscard]] std::uint64_t evictions() const override { return cache_.evictions(); }

 private:
  SlabCache cache_;
};

/// Instances without a limit of memory, Redis' default. A key belongs to one of them.
class Redis final : public Answers {
 public:
  Redis(const ReplayOptions& options, trace::Recorder& recorder)
      : recorder_(recorder), memory_(recorder), scale_(options.scale) {
    const auto instances = std::max<std::size_t>(1, static_cast<std::size_t>(options.threads));
    for (std::size_t i = 0; i < instances; ++i)
      stores_.push_back(std::make_unique<RedisStore>(
          memory_, RedisClasses{value_lines, dependent_lines, update_lines},
          mix64(options.seed) + 2 * i));
  }
  bool get(const StoreRequest& request, bool) override {
    return store_of(request).get(key_of(request)).has_value();
  }
  bool set(const StoreRequest& request) override {
    if (content_.size() < request.value_bytes) content_.resize(request.value_bytes);
    (void)store_of(request).set(key_of(request), std::span(content_).first(request.value_bytes));
    return true;
  }
  bool remove(const StoreRequest& request) override {
    return store_of(request).remove(key_of(request));
  }
  /// As redis.cpp's timer.
  void between() override {
    if (last_ != nullptr) last_->release();
    if (recorder_.total_seconds() < next_cron_s_) return;
    next_cron_s_ += cron_period_s;
    const auto share = static_cast<std::uint64_t>(std::ceil(cron_buckets / scale_));
    for (const auto& store : stores_) {
      recorder_.compute(0, static_cast<double>(store->cron(share)) * cron_bucket_ns);
      store->release();
    }
  }

 private:
  static constexpr double cron_period_s = 0.1;
  static constexpr double cron_buckets = 1e6 / 150;
  static constexpr double cron_bucket_ns = 150;

  RedisStore& store_of(const StoreRequest& request) {
    last_ = stores_[mix64(request.key) % stores_.size()].get();
    return *last_;
  }
  /// A text of the key's length that no other key has: of at least its number's eight bytes.
  std::string_view key_of(const StoreRequest& request) {
    key_.assign(std::max<std::size_t>(sizeof(request.key), request.key_bytes), 'k');
    std::memcpy(key_.data(), &request.key, sizeof(request.key));
    return key_;
  }

  trace::Recorder& recorder_;
  RedisMemory memory_;
  double scale_;
  std::vector<std::unique_ptr<RedisStore>> stores_;
  RedisStore* last_ = nullptr;  // the one that was asked
  double next_cron_s_ = cron_period_s;
  std::string key_;
  std::vector<std::byte> content_;
};

class Store {
 public:
  Store(const std::vector<StoreRequest>& requests, const ReplayOptions& options,
        ReplaySummary& summary)
      : requests_(requests),
        options_(options),
        summary_(summary),
        recorder_(options.file, described(options),
                  recorder_options_of(options, static_cast<double>(summary.requests))) {
    recorder_.set_timed(false);
    if (options.store == AnsweringStore::redis)
      answers_ = std::make_unique<Redis>(options, recorder_);
    else
      answers_ = std::make_unique<CacheLib>(cache_options(), recorder_);
  }

  trace::StreamInfo run() {
    recorder_.set_timed(true);
    std::uint64_t done = 0;
    double next = 0;
    for (const StoreRequest& request : requests_)
      for (std::uint32_t i = 0; i < request.count; ++i, ++done) {
        const double fraction = static_cast<double>(done) / static_cast<double>(summary_.requests);
        if (fraction >= next) {
          next = fraction + 0.005;
          if (options_.progress && !options_.progress(fraction)) throw StreamInterrupted{};
        }
        ask(request);
      }
    summary_.evicted = answers_->evictions();
    return recorder_.finish();
  }

 private:
  SlabCacheOptions cache_options() {
    std::unordered_map<std::uint64_t, double> items;  // by key, the largest
    for (const StoreRequest& request : requests_) {
      double& bytes = items[request.key];
      bytes = std::max(bytes, static_cast<double>(SlabCache::header_bytes + request.key_bytes) +
                                  request.value_bytes);
    }
    double all = 0;
    for (const auto& [key, bytes] : items) all += bytes;
    const double keys = static_cast<double>(items.size()) * options_.scale;
    const double held =
        std::min(keys, options_.cache_bytes / (all / static_cast<double>(items.size())));
    summary_.buckets =
        std::bit_ceil(static_cast<std::uint64_t>(std::max(1024.0, buckets_per_item * held)));
    const auto buckets = static_cast<double>(summary_.buckets);
    const auto scaled = [&](double full) {
      return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(full / options_.scale));
    };
    SlabCacheOptions out;
    out.arena_bytes = scaled(options_.cache_bytes);
    out.slab_bytes = scaled(SlabCache::full_slab_bytes);
    out.buckets = scaled(buckets);
    out.locks = scaled(std::min(most_locks, buckets));
    out.refresh_seconds = options_.refresh_seconds;
    out.populate = options_.populate;
    return out;
  }

  void ask(const StoreRequest& request) {
    const StoreOperation operation = request.operation;
    recorder_.begin_operation(operation == StoreOperation::get      ? get_kind
                              : operation == StoreOperation::remove ? delete_kind
                                                                    : set_kind);
    recorder_.compute(0, options_.op_ns);
    expire(request);
    bool insert = false;
    switch (operation) {
      case StoreOperation::get: {
        ++summary_.gets;
        const bool hit = answers_->get(request, options_.touch_value);
        summary_.hits += hit ? 1 : 0;
        insert = !hit && summary_.look_aside;
        break;
      }
      case StoreOperation::set:
        ++summary_.sets;
        write(request);
        break;
      case StoreOperation::add:
        ++summary_.adds;
        if (!answers_->get(request, false)) write(request);
        break;
      case StoreOperation::update:
        ++summary_.updates;
        if (answers_->get(request, false)) write(request);
        break;
      case StoreOperation::remove:
        ++summary_.removes;
        summary_.removed += answers_->remove(request) ? 1 : 0;
        expiry_.erase(request.key);
        break;
    }
    recorder_.end_operation();
    if (insert) {
      if (request.value_bytes == 0)
        ++summary_.unsized;
      else
        write(request);
    }
    answers_->between();
    recorder_.compute(0, options_.client_ns);
  }

  void expire(const StoreRequest& request) {
    const auto found = expiry_.find(request.key);
    if (found == expiry_.end() || request.seconds < found->second) return;
    expiry_.erase(found);
    summary_.expired += answers_->remove(request) ? 1 : 0;
  }

  void write(const StoreRequest& request) {
    if (!answers_->set(request)) {
      const SlabCache::Entry entry{request.key, request.key_bytes, request.value_bytes};
      ++(entry.item_bytes() > SlabCache::largest_item ? summary_.too_large : summary_.no_room);
      return;
    }
    ++summary_.inserted;
    if (request.ttl > 0)
      expiry_[request.key] = std::uint64_t{request.seconds} + request.ttl;
    else if (!expiry_.empty())
      expiry_.erase(request.key);
  }

  const std::vector<StoreRequest>& requests_;
  const ReplayOptions& options_;
  ReplaySummary& summary_;
  trace::Recorder recorder_;
  std::unique_ptr<Answers> answers_;
  std::unordered_map<std::uint64_t, std::uint64_t> expiry_;  // second from which it is gone
};

/// A look-up that missed in production has no size: what another request says of the key's object
/// is its size.
void find_sizes(std::vector<StoreRequest>& requests, ReplaySummary& summary) {
  std::unordered_map<std::uint64_t, std::uint32_t> sizes;
  const auto lacks = [](const StoreRequest& request) {
    return request.operation == StoreOperation::get && request.value_bytes == 0;
  };
  for (const StoreRequest& request : requests)
    if (lacks(request)) sizes.emplace(request.key, 0);
  if (sizes.empty()) return;
  for (const StoreRequest& request : requests)
    if (const auto found = sizes.find(request.key); found != sizes.end() && request.value_bytes > 0)
      found->second = request.value_bytes;
  for (StoreRequest& request : requests)
    if (lacks(request)) {
      request.value_bytes = sizes[request.key];
      summary.sized += request.value_bytes > 0 ? request.count : 0;
    }
}

}  // namespace

trace::StreamInfo replay(std::vector<StoreRequest>& requests, const ReplayOptions& options,
                         ReplaySummary& summary) {
  summary = {};
  if (options.scale > 1)
    std::erase_if(requests, [&](const StoreRequest& request) {
      return static_cast<double>(mix64(request.key ^ 0x7370616365ULL) >> 11) * 0x1.0p-53 *
                 options.scale >=
             1;
    });
  if (requests.empty())
    throw std::invalid_argument("no key is left in a miniature of so large a scale");
  bool inserts = false;
  for (const StoreRequest& request : requests) {
    summary.requests += request.count;
    inserts |= request.operation == StoreOperation::set || request.operation == StoreOperation::add;
  }
  summary.look_aside = options.look_aside.value_or(!inserts);
  if (summary.look_aside) find_sizes(requests, summary);
  std::unordered_set<std::uint64_t> keys;
  for (const StoreRequest& request : requests) keys.insert(request.key);
  summary.keys = keys.size();
  if (options.store == AnsweringStore::cachelib &&
      options.cache_bytes / options.scale < static_cast<double>(SlabCache::largest_item))
    throw std::invalid_argument("the cache is smaller than its largest item, 1 MiB");
  return Store{requests, options, summary}.run();
}

}  // namespace tt::kernels
