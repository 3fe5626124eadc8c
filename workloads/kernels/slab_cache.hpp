// SPDX-License-Identifier: MIT

// An in-memory cache as CacheLib builds it: a chained hash table, size classes that are fed with
// slabs, and an LRU list per class (Berg et al., OSDI'20, §3; facebook/CacheLib, allocator/).
//
// Everything that decides an address is real: slots, chains, list links, keys' lengths. Keys are
// 64-bit identities (their bytes are not kept; two are equal when the identities are), and value
// bytes are not materialised. Each operation reports what it touches to a recorder, at simulated
// addresses:
//  - a bucket: a compressed pointer of 4 bytes, and the lock of 4 bytes that guards it;
//  - an item: a header of 32 bytes (hash link, two LRU links and the time of the last refresh,
//    reference count with flags, creation and expiry time, sizes), the key, the value. All links
//    are compressed pointers. A look-up walks the chain header by header, so it reads the items'
//    pages; the handle that it returns holds a reference: the header's line gets dirty.
//
// Size classes are CacheLib's whatever the scale. Slabs shrink with the scale, to one item at
// least, so that a miniature divides its memory among classes as the full system does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/recorder.hpp"

namespace tt::kernels {

struct SlabCacheOptions {
  std::uint64_t arena_bytes = 0;       // for items
  std::uint64_t slab_bytes = 4 << 20;  // what a class takes at once; at least one item
  std::uint64_t buckets = 0;
  std::uint64_t locks = 1;
  double refresh_seconds = 60;  // an item moves to its list's head at most so often
  bool populate = true;         // set() writes the value; false: header and key only
};

/// Stream classes that the cache's touches belong to.
struct SlabCacheClasses {
  std::uint32_t dependent = 0;  // each address comes from the line before
  std::uint32_t value = 0;      // sequential bytes
  std::uint32_t update = 0;     // stores to headers, locks and buckets: buffered
};

class SlabCache {
 public:
  static constexpr std::uint64_t header_bytes = 32;
  static constexpr std::uint64_t bucket_bytes = 4;
  static constexpr std::uint64_t lock_bytes = 4;  // folly::SharedMutex
  // cachebench's allocation sizes (util/CacheConfig.h), of slabs of 4 MiB (allocator/memory/Slab.h)
  static constexpr std::uint64_t smallest_item = 64;
  static constexpr std::uint64_t largest_item = 1 << 20;
  static constexpr double class_factor = 1.5;
  static constexpr std::uint64_t full_slab_bytes = 4 << 20;

  struct Entry {
    std::uint64_t key;
    std::uint32_t key_bytes;
    std::uint32_t value_bytes;
    [[nodiscard]] std::uint64_t item_bytes() const {
      return header_bytes + key_bytes + std::uint64_t{value_bytes};
    }
  };

  /// Maps locks, hash table and arena in the recorder, and clears the first two. Throws
  /// std::invalid_argument for impossible sizes.
  SlabCache(const SlabCacheOptions& options, const SlabCacheClasses& classes,
            trace::Recorder& recorder);

  /// Looks the key up; refreshes the item's place in the list when due; reads the whole value if
  /// asked to.
  bool get(std::uint64_t key, std::uint32_t key_bytes, double now_seconds, bool read_value);
  /// Inserts or replaces. Where its class has no free slot and no memory is left, the tail of the
  /// class's list is evicted. False when that is empty, too, or the item exceeds largest_item:
  /// nothing is inserted.
  bool set(const Entry& entry, double now_seconds);
  /// Removes the key; false when it is not there.
  bool remove(std::uint64_t key, std::uint32_t key_bytes);

  [[nodiscard]] bool contains(std::uint64_t key) const;
  /// A class has asked for memory in vain: from now on items are evicted.
  [[nodiscard]] bool full() const { return full_; }
  [[nodiscard]] std::uint64_t items() const { return items_in_use_; }
  [[nodiscard]] std::uint64_t evictions() const { return evictions_; }
  /// Headers that look-ups have read, and look-ups: their ratio is the length of chains walked.
  [[nodiscard]] std::uint64_t headers_read() const { return headers_read_; }
  [[nodiscard]] std::uint64_t lookups() const { return lookups_; }
  [[nodiscard]] std::vector<std::uint64_t> class_sizes() const;

  /// Checks that chains, lists and slots agree; returns what does not, empty when all does.
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
    std::uint32_t of_class = 0;
    bool in_use = false;
  };
  struct Class {
    std::uint64_t item_bytes = 0;
    std::uint32_t head = none;  // most recent
    std::uint32_t tail = none;
    std::uint32_t free = none;
  };

  [[nodiscard]] std::size_t bucket_of(std::uint64_t key) const;
  void take_lock(std::size_t bucket);
  void load_header(std::uint32_t item, std::uint32_t key_bytes);
  void store_header(std::uint32_t item);
  /// Walks the chain; `previous` is the item before the found one, or none.
  std::uint32_t find(std::uint64_t key, std::uint32_t key_bytes, std::uint32_t& previous);
  void unlink_hash(std::uint32_t item, std::uint32_t previous);
  void unlink_lru(std::uint32_t item);
  void push_head(std::uint32_t item);
  void free_item(std::uint32_t item);
  void evict(std::uint32_t item);
  /// A slot of the class, or none.
  std::uint32_t allocate(std::uint32_t number);
  bool give_slab(std::uint32_t number);

  SlabCacheOptions options_;
  SlabCacheClasses stream_;
  trace::Recorder& recorder_;
  trace::Address locks_ = 0;
  trace::Address table_ = 0;
  trace::Address arena_ = 0;
  std::uint64_t arena_used_ = 0;
  std::vector<std::uint32_t> buckets_;
  std::vector<Class> classes_;
  std::vector<Item> items_;  // in order of address
  bool full_ = false;
  std::uint64_t items_in_use_ = 0;
  std::uint64_t evictions_ = 0;
  std::uint64_t headers_read_ = 0;
  std::uint64_t lookups_ = 0;
};

}  // namespace tt::kernels
