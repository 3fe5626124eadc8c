// An in-memory cache as CacheLib and memcached build it: slabs, size classes, a chained hash table
// and an LRU list per class (Berg et al., OSDI'20, §3).
//
// Everything that decides an address is real: slots, chains, list links, keys' lengths. Keys are
// 64-bit identities (their bytes are not kept; two are equal when the identities are), and value
// bytes are not materialised. Each operation reports what it touches to a recorder, at simulated
// addresses: a bucket (8 bytes), item headers (32 bytes: hash link, LRU links and refresh time,
// reference count, sizes), keys behind them, values behind the keys.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/recorder.hpp"

namespace tt::kernels {

struct SlabCacheOptions {
  std::uint64_t arena_bytes = 0;       // for slabs
  std::uint64_t slab_bytes = 4 << 20;  // CacheLib's slab
  std::uint64_t smallest_class = 64;
  double class_factor = 1.25;   // of neighbouring classes' sizes
  std::uint64_t buckets = 0;    // power of two
  double refresh_seconds = 60;  // an item moves to its list's head at most so often (CacheLib)
};

/// Stream classes that the cache's touches belong to.
struct SlabCacheClasses {
  std::uint32_t dependent = 0;  // each address comes from the line before
  std::uint32_t value = 0;      // sequential bytes
  std::uint32_t update = 0;     // stores to headers and buckets: buffered
};

class SlabCache {
 public:
  static constexpr std::uint64_t header_bytes = 32;

  struct Entry {
    std::uint64_t key;
    std::uint32_t key_bytes;
    std::uint32_t value_bytes;
  };

  /// Maps arena and hash table in the recorder. Throws std::invalid_argument for impossible sizes.
  SlabCache(const SlabCacheOptions& options, const SlabCacheClasses& classes,
            trace::Recorder& recorder);

  /// Looks the key up and reads its value; refreshes the item's place in the list when due.
  bool get(std::uint64_t key, std::uint32_t key_bytes, double now_seconds);
  /// Inserts or replaces. Evicts the tail of the class's list when there is no free slot and no
  /// slab left; a class without items takes a slab from the class that has the most.
  void set(const Entry& entry, double now_seconds);
  /// Removes the key; false when it is not there.
  bool remove(std::uint64_t key, std::uint32_t key_bytes);

  [[nodiscard]] bool contains(std::uint64_t key) const;
  [[nodiscard]] std::uint64_t items() const { return items_in_use_; }
  [[nodiscard]] std::uint64_t evictions() const { return evictions_; }
  [[nodiscard]] std::uint64_t slabs_moved() const { return slabs_moved_; }
  [[nodiscard]] std::size_t class_count() const { return classes_.size(); }
  /// Largest item (header, key, value) that fits.
  [[nodiscard]] std::uint64_t largest_item() const { return classes_.back().item_bytes; }

  /// Checks that chains, lists, slots and slabs agree; returns what does not, empty when all does.
  [[nodiscard]] std::string inconsistency() const;

 private:
  static constexpr std::uint32_t none = 0xffffffff;

  struct Item {
    std::uint64_t key = 0;
    trace::Address address = 0;
    std::uint32_t hash_next = none;
    std::uint32_t newer = none;  // LRU links; `newer` also links free slots
    std::uint32_t older = none;
    std::uint32_t key_bytes = 0;
    std::uint32_t value_bytes = 0;
    float refreshed = 0;
    std::uint32_t slab = 0;
    bool in_use = false;
  };
  struct Class {
    std::uint64_t item_bytes = 0;
    std::uint32_t head = none;  // most recent
    std::uint32_t tail = none;
    std::uint32_t free = none;
    std::vector<std::uint32_t> slabs;
  };
  struct Slab {
    trace::Address address = 0;
    std::uint32_t of_class = none;
    std::vector<std::uint32_t> slots;  // items carved from it
  };

  [[nodiscard]] std::size_t bucket_of(std::uint64_t key) const;
  [[nodiscard]] std::uint32_t class_of(std::uint64_t bytes) const;
  void load_header(std::uint32_t item, std::uint32_t key_bytes);
  void store_header(std::uint32_t item);
  /// Walks the chain; `previous` is the item before the found one, or none.
  std::uint32_t find(std::uint64_t key, std::uint32_t key_bytes, std::uint32_t& previous);
  void unlink_hash(std::uint32_t item, std::uint32_t previous);
  void unlink_lru(Class& list, std::uint32_t item);
  void push_head(Class& list, std::uint32_t item);
  void free_item(std::uint32_t item);
  void evict(std::uint32_t item);
  std::uint32_t allocate(std::uint32_t number);
  void give_slab(std::uint32_t slab, std::uint32_t number);
  void take_slab(std::uint32_t number);

  SlabCacheOptions options_;
  SlabCacheClasses stream_;
  trace::Recorder& recorder_;
  trace::Address table_ = 0;
  std::vector<std::uint32_t> buckets_;
  std::vector<Class> classes_;
  std::vector<Slab> slabs_;
  std::vector<Item> items_;
  std::vector<std::uint32_t> unused_;  // item numbers of slots that a moved slab had
  std::uint32_t slabs_given_ = 0;
  std::uint64_t items_in_use_ = 0;
  std::uint64_t evictions_ = 0;
  std::uint64_t slabs_moved_ = 0;
};

}  // namespace tt::kernels
