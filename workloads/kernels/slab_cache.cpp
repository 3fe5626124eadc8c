// SPDX-License-Identifier: MIT

#include "kernels/slab_cache.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/types.hpp"

namespace tt::kernels {

SlabCache::SlabCache(const SlabCacheOptions& options, const SlabCacheClasses& classes,
                     trace::Recorder& recorder)
    : options_(options), stream_(classes), recorder_(recorder) {
  if (options.buckets == 0 || options.buckets > none || options.locks == 0 ||
      options.locks > none || options.arena_bytes < largest_item)
    throw std::invalid_argument(
        "slab cache: needs buckets, locks, and memory for an item of 1 MiB at least");
  // A class is as large as the number of its items per slab allows.
  for (std::uint64_t bytes = smallest_item;
       full_slab_bytes / bytes > full_slab_bytes / largest_item;
       bytes = full_slab_bytes / (full_slab_bytes / bytes) / 8 * 8) {
    classes_.push_back({.item_bytes = bytes});
    bytes = (static_cast<std::uint64_t>(static_cast<double>(bytes) * class_factor) + 7) / 8 * 8;
  }
  classes_.push_back({.item_bytes = largest_item});
  buckets_.assign(options.buckets, none);
  locks_ = recorder.map("cachelib.locks", options.locks * lock_bytes);
  table_ = recorder.map("cachelib.hash_table", options.buckets * bucket_bytes);
  arena_ = recorder.map("cachelib.arena", options.arena_bytes);
  recorder.store(stream_.value, locks_, options.locks * lock_bytes);
  recorder.store(stream_.value, table_, options.buckets * bucket_bytes);
}

std::vector<std::uint64_t> SlabCache::class_sizes() const {
  std::vector<std::uint64_t> sizes;
  for (const Class& list : classes_) sizes.push_back(list.item_bytes);
  return sizes;
}

// Multiply and shift: the number of buckets, a power of two in the full system, is any in a
// miniature, so that chains are as long.
std::size_t SlabCache::bucket_of(std::uint64_t key) const {
  return ((mix64(key + 0x9e3779b97f4a7c15ULL) >> 32) * options_.buckets) >> 32;
}

/// An atomic instruction on the bucket's lock: it waits for the line, and dirties it.
void SlabCache::take_lock(std::size_t bucket) {
  const std::uint64_t lock = ((mix64(bucket) >> 32) * options_.locks) >> 32;
  recorder_.load(stream_.dependent, locks_ + lock * lock_bytes, lock_bytes);
  recorder_.store(stream_.update, locks_ + lock * lock_bytes, lock_bytes);
}

void SlabCache::load_header(std::uint32_t item, std::uint32_t key_bytes) {
  recorder_.load(stream_.dependent, items_[item].address, header_bytes + key_bytes);
}
void SlabCache::store_header(std::uint32_t item) {
  recorder_.store(stream_.update, items_[item].address, header_bytes);
}

std::uint32_t SlabCache::find(std::uint64_t key, std::uint32_t key_bytes, std::uint32_t& previous) {
  const std::size_t bucket = bucket_of(key);
  take_lock(bucket);
  recorder_.load(stream_.dependent, table_ + bucket * bucket_bytes, bucket_bytes);
  ++lookups_;
  previous = none;
  for (std::uint32_t item = buckets_[bucket]; item != none; item = items_[item].hash_next) {
    // A comparison reads the whole key when it is the one, else stops in its first bytes.
    const bool found = items_[item].key == key;
    load_header(item, found ? key_bytes : std::min(items_[item].key_bytes, 8u));
    ++headers_read_;
    if (found) return item;
    previous = item;
  }
  return none;
}

bool SlabCache::contains(std::uint64_t key) const {
  for (std::uint32_t item = buckets_[bucket_of(key)]; item != none; item = items_[item].hash_next)
    if (items_[item].key == key) return true;
  return false;
}

bool SlabCache::get(std::uint64_t key, std::uint32_t key_bytes, double now_seconds,
                    bool read_value) {
  std::uint32_t previous = none;
  const std::uint32_t found = find(key, key_bytes, previous);
  if (found == none) return false;
  Item& item = items_[found];
  store_header(found);  // the reference count: up, and down again after use
  if (now_seconds - static_cast<double>(item.refreshed) >= options_.refresh_seconds) {
    item.refreshed = static_cast<float>(now_seconds);
    unlink_lru(found);
    push_head(found);
  }
  if (read_value)
    recorder_.load(stream_.value, item.address + header_bytes + item.key_bytes, item.value_bytes);
  return true;
}

bool SlabCache::set(const Entry& entry, double now_seconds) {
  const auto at = std::ranges::lower_bound(classes_, entry.item_bytes(), {}, &Class::item_bytes);
  if (at == classes_.end()) return false;
  // The new item is written before the old one is replaced, as readers may hold that.
  const std::uint32_t fresh = allocate(static_cast<std::uint32_t>(at - classes_.begin()));
  if (fresh == none) return false;
  Item& item = items_[fresh];
  item.key = entry.key;
  item.key_bytes = entry.key_bytes;
  item.value_bytes = entry.value_bytes;
  item.refreshed = static_cast<float>(now_seconds);
  item.in_use = true;
  ++items_in_use_;
  recorder_.store(stream_.update, item.address, header_bytes + entry.key_bytes);
  if (options_.populate)
    recorder_.store(stream_.value, item.address + header_bytes + entry.key_bytes,
                    entry.value_bytes);

  std::uint32_t previous = none;
  const std::uint32_t old = find(entry.key, entry.key_bytes, previous);
  if (old != none) {
    unlink_hash(old, previous);
    unlink_lru(old);
    free_item(old);
  }
  const std::size_t bucket = bucket_of(entry.key);
  item.hash_next = buckets_[bucket];
  buckets_[bucket] = fresh;
  recorder_.store(stream_.update, table_ + bucket * bucket_bytes, bucket_bytes);
  push_head(fresh);
  return true;
}

bool SlabCache::remove(std::uint64_t key, std::uint32_t key_bytes) {
  std::uint32_t previous = none;
  const std::uint32_t found = find(key, key_bytes, previous);
  if (found == none) return false;
  unlink_hash(found, previous);
  unlink_lru(found);
  free_item(found);
  return true;
}

void SlabCache::unlink_hash(std::uint32_t item, std::uint32_t previous) {
  const std::uint32_t next = items_[item].hash_next;
  if (previous == none) {
    const std::size_t bucket = bucket_of(items_[item].key);
    buckets_[bucket] = next;
    recorder_.store(stream_.update, table_ + bucket * bucket_bytes, bucket_bytes);
  } else {
    items_[previous].hash_next = next;
    store_header(previous);
  }
  items_[item].hash_next = none;
}

void SlabCache::unlink_lru(std::uint32_t number) {
  Item& item = items_[number];
  Class& list = classes_[item.of_class];
  if (item.newer == none) {
    list.head = item.older;
  } else {
    items_[item.newer].older = item.older;
    store_header(item.newer);
  }
  if (item.older == none) {
    list.tail = item.newer;
  } else {
    items_[item.older].newer = item.newer;
    store_header(item.older);
  }
  item.newer = item.older = none;
  store_header(number);
}

void SlabCache::push_head(std::uint32_t number) {
  Item& item = items_[number];
  Class& list = classes_[item.of_class];
  item.newer = none;
  item.older = list.head;
  if (list.head == none) {
    list.tail = number;
  } else {
    items_[list.head].newer = number;
    store_header(list.head);
  }
  list.head = number;
  store_header(number);
}

void SlabCache::free_item(std::uint32_t number) {
  Item& item = items_[number];
  Class& list = classes_[item.of_class];
  item.in_use = false;
  item.newer = list.free;
  list.free = number;
  --items_in_use_;
  store_header(number);
}

void SlabCache::evict(std::uint32_t number) {
  // The hash chain is found through the item's own key.
  load_header(number, items_[number].key_bytes);
  std::uint32_t previous = none;
  const std::uint32_t found = find(items_[number].key, items_[number].key_bytes, previous);
  unlink_hash(found, previous);
  unlink_lru(found);
  free_item(found);
  ++evictions_;
}

std::uint32_t SlabCache::allocate(std::uint32_t number) {
  Class& list = classes_[number];
  if (list.free == none && !give_slab(number)) {
    if (list.tail == none) return none;
    evict(list.tail);
  }
  const std::uint32_t slot = list.free;
  list.free = items_[slot].newer;
  items_[slot].newer = none;
  return slot;
}

bool SlabCache::give_slab(std::uint32_t number) {
  Class& list = classes_[number];
  const std::uint64_t left = (options_.arena_bytes - arena_used_) / list.item_bytes;
  if (left == 0) {
    full_ = true;
    return false;
  }
  const std::uint64_t slots =
      std::min(left, std::max<std::uint64_t>(1, options_.slab_bytes / list.item_bytes));
  const std::size_t first = items_.size();
  for (std::uint64_t i = 0; i < slots; ++i)
    items_.push_back({.address = arena_ + arena_used_ + i * list.item_bytes, .of_class = number});
  arena_used_ += slots * list.item_bytes;
  // Pushed in reverse, so that slots are handed out in the order of their addresses.
  for (std::size_t item = items_.size(); item-- > first;) {
    items_[item].newer = list.free;
    list.free = static_cast<std::uint32_t>(item);
  }
  return true;
}

std::string SlabCache::inconsistency() const {
  std::vector<std::uint32_t> chained(items_.size());
  std::vector<std::uint32_t> listed(items_.size());
  std::vector<std::uint32_t> freed(items_.size());
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (std::uint32_t item = buckets_[b]; item != none; item = items_[item].hash_next) {
      if (++chained[item] > 1) return "an item is chained twice";
      if (bucket_of(items_[item].key) != b) return "an item is in another key's chain";
    }
  std::uint64_t in_lists = 0;
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    std::uint32_t newer = none;
    for (std::uint32_t item = classes_[c].head; item != none; item = items_[item].older) {
      if (++listed[item] > 1) return "an item is listed twice";
      if (items_[item].newer != newer) return "list links disagree";
      if (items_[item].of_class != c) return "an item is in another class's list";
      if (header_bytes + items_[item].key_bytes + std::uint64_t{items_[item].value_bytes} >
          classes_[c].item_bytes)
        return "an item exceeds its slot";
      newer = item;
      ++in_lists;
    }
    if (classes_[c].tail != newer) return "a tail is not the last item";
    for (std::uint32_t item = classes_[c].free; item != none; item = items_[item].newer) {
      if (++freed[item] > 1) return "a slot is freed twice";
      if (items_[item].of_class != c) return "a slot is in another class's free list";
    }
  }
  if (in_lists != items_in_use_) return "lists and item count disagree";
  trace::Address next = arena_;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const Item& slot = items_[i];
    if (slot.address != next) return "slots overlap, or leave a gap";
    next += classes_[slot.of_class].item_bytes;
    if (slot.in_use ? chained[i] != 1 || listed[i] != 1 || freed[i] != 0
                    : chained[i] != 0 || listed[i] != 0 || freed[i] != 1)
      return "a slot is neither in use nor free";
  }
  if (next != arena_ + arena_used_ || arena_used_ > options_.arena_bytes)
    return "slots exceed their memory";
  return {};
}

}  // namespace tt::kernels
