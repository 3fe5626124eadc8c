#include "kernels/slab_cache.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "core/types.hpp"

namespace tt::kernels {

namespace {
constexpr std::uint64_t bucket_bytes = 8;
}  // namespace

SlabCache::SlabCache(const SlabCacheOptions& options, const SlabCacheClasses& classes,
                     trace::Recorder& recorder)
    : options_(options), stream_(classes), recorder_(recorder) {
  if (!std::has_single_bit(options.buckets) || options.class_factor <= 1 ||
      options.smallest_class < header_bytes + 8 || options.slab_bytes < options.smallest_class ||
      options.arena_bytes < options.slab_bytes)
    throw std::invalid_argument(
        "slab cache: needs a slab, a class factor above 1 and a power of two of buckets");
  // Sizes in multiples of 8 bytes; the last class is a whole slab.
  for (auto bytes = static_cast<double>(options.smallest_class);
       bytes < static_cast<double>(options.slab_bytes); bytes *= options.class_factor) {
    const std::uint64_t rounded = (static_cast<std::uint64_t>(bytes) + 7) / 8 * 8;
    if (rounded >= options.slab_bytes) break;
    if (classes_.empty() || classes_.back().item_bytes < rounded)
      classes_.push_back({.item_bytes = rounded, .slabs = {}});
  }
  classes_.push_back({.item_bytes = options.slab_bytes, .slabs = {}});
  buckets_.assign(options.buckets, none);
  table_ = recorder.map("cachelib.hash_table", options.buckets * bucket_bytes);
  slabs_.resize(options.arena_bytes / options.slab_bytes);
  const trace::Address arena = recorder.map("cachelib.arena", slabs_.size() * options.slab_bytes);
  for (std::size_t i = 0; i < slabs_.size(); ++i)
    slabs_[i].address = arena + i * options.slab_bytes;
}

std::size_t SlabCache::bucket_of(std::uint64_t key) const {
  return mix64(key + 0x9e3779b97f4a7c15ULL) & (options_.buckets - 1);
}

std::uint32_t SlabCache::class_of(std::uint64_t bytes) const {
  const auto at = std::ranges::lower_bound(classes_, bytes, {}, &Class::item_bytes);
  if (at == classes_.end())
    throw std::invalid_argument("slab cache: an item of " + std::to_string(bytes) +
                                " bytes exceeds a slab");
  return static_cast<std::uint32_t>(at - classes_.begin());
}

void SlabCache::load_header(std::uint32_t item, std::uint32_t key_bytes) {
  recorder_.load(stream_.dependent, items_[item].address, header_bytes + key_bytes);
}
void SlabCache::store_header(std::uint32_t item) {
  recorder_.store(stream_.update, items_[item].address, 8);
}

std::uint32_t SlabCache::find(std::uint64_t key, std::uint32_t key_bytes, std::uint32_t& previous) {
  const std::size_t bucket = bucket_of(key);
  recorder_.load(stream_.dependent, table_ + bucket * bucket_bytes, bucket_bytes);
  previous = none;
  for (std::uint32_t item = buckets_[bucket]; item != none; item = items_[item].hash_next) {
    // A comparison reads the whole key when it is the one, else stops in its first bytes.
    const bool found = items_[item].key == key;
    load_header(item, found ? key_bytes : std::min(items_[item].key_bytes, 8u));
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

bool SlabCache::get(std::uint64_t key, std::uint32_t key_bytes, double now_seconds) {
  std::uint32_t previous = none;
  const std::uint32_t found = find(key, key_bytes, previous);
  if (found == none) return false;
  Item& item = items_[found];
  store_header(found);  // the reference count, held while the value is read
  if (now_seconds - static_cast<double>(item.refreshed) >= options_.refresh_seconds) {
    Class& list = classes_[slabs_[item.slab].of_class];
    item.refreshed = static_cast<float>(now_seconds);
    unlink_lru(list, found);
    push_head(list, found);
  }
  recorder_.load(stream_.value, item.address + header_bytes + item.key_bytes, item.value_bytes);
  return true;
}

void SlabCache::set(const Entry& entry, double now_seconds) {
  const std::uint32_t number =
      class_of(header_bytes + entry.key_bytes + std::uint64_t{entry.value_bytes});
  // The new item is written before the old one is replaced, as readers may hold that.
  const std::uint32_t fresh = allocate(number);
  Item& item = items_[fresh];
  item.key = entry.key;
  item.key_bytes = entry.key_bytes;
  item.value_bytes = entry.value_bytes;
  item.refreshed = static_cast<float>(now_seconds);
  item.in_use = true;
  ++items_in_use_;
  recorder_.store(stream_.value, item.address,
                  header_bytes + entry.key_bytes + std::uint64_t{entry.value_bytes});

  std::uint32_t previous = none;
  const std::uint32_t old = find(entry.key, entry.key_bytes, previous);
  if (old != none) {
    unlink_hash(old, previous);
    unlink_lru(classes_[slabs_[items_[old].slab].of_class], old);
    free_item(old);
  }
  const std::size_t bucket = bucket_of(entry.key);
  item.hash_next = buckets_[bucket];
  buckets_[bucket] = fresh;
  recorder_.store(stream_.update, table_ + bucket * bucket_bytes, bucket_bytes);
  push_head(classes_[number], fresh);
}

bool SlabCache::remove(std::uint64_t key, std::uint32_t key_bytes) {
  std::uint32_t previous = none;
  const std::uint32_t found = find(key, key_bytes, previous);
  if (found == none) return false;
  unlink_hash(found, previous);
  unlink_lru(classes_[slabs_[items_[found].slab].of_class], found);
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

void SlabCache::unlink_lru(Class& list, std::uint32_t number) {
  Item& item = items_[number];
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

void SlabCache::push_head(Class& list, std::uint32_t number) {
  Item& item = items_[number];
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
  Class& list = classes_[slabs_[item.slab].of_class];
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
  unlink_lru(classes_[slabs_[items_[found].slab].of_class], found);
  free_item(found);
  ++evictions_;
}

std::uint32_t SlabCache::allocate(std::uint32_t number) {
  Class& list = classes_[number];
  if (list.free == none) {
    if (slabs_given_ < slabs_.size())
      give_slab(slabs_given_++, number);
    else if (list.tail != none)
      evict(list.tail);
    else
      take_slab(number);
  }
  const std::uint32_t slot = list.free;
  list.free = items_[slot].newer;
  items_[slot].newer = none;
  return slot;
}

void SlabCache::give_slab(std::uint32_t slab, std::uint32_t number) {
  Class& list = classes_[number];
  slabs_[slab].of_class = number;
  list.slabs.push_back(slab);
  const std::uint64_t slots = options_.slab_bytes / list.item_bytes;
  slabs_[slab].slots.clear();
  // Pushed in reverse, so that slots are handed out in the order of their addresses.
  for (std::uint64_t i = slots; i-- > 0;) {
    std::uint32_t item = 0;
    if (unused_.empty()) {
      item = static_cast<std::uint32_t>(items_.size());
      items_.emplace_back();
    } else {
      item = unused_.back();
      unused_.pop_back();
    }
    items_[item] = {.address = slabs_[slab].address + i * list.item_bytes, .slab = slab};
    items_[item].newer = list.free;
    list.free = item;
    slabs_[slab].slots.push_back(item);
  }
}

void SlabCache::take_slab(std::uint32_t number) {
  const auto donor =
      std::ranges::max_element(classes_, {}, [](const Class& list) { return list.slabs.size(); });
  // The slab that holds the least recently used item, or the last one when all slots are free.
  const std::uint32_t slab = donor->tail != none ? items_[donor->tail].slab : donor->slabs.back();
  for (const std::uint32_t item : slabs_[slab].slots)
    if (items_[item].in_use) evict(item);
  std::uint32_t* link = &donor->free;  // its slots leave the donor's free list
  while (*link != none) {
    if (items_[*link].slab == slab)
      *link = items_[*link].newer;
    else
      link = &items_[*link].newer;
  }
  unused_.insert(unused_.end(), slabs_[slab].slots.begin(), slabs_[slab].slots.end());
  std::erase(donor->slabs, slab);
  ++slabs_moved_;
  give_slab(slab, number);
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
      if (slabs_[items_[item].slab].of_class != c) return "an item is in another class's list";
      if (header_bytes + items_[item].key_bytes + std::uint64_t{items_[item].value_bytes} >
          classes_[c].item_bytes)
        return "an item exceeds its slot";
      newer = item;
      ++in_lists;
    }
    if (classes_[c].tail != newer) return "a tail is not the last item";
    for (std::uint32_t item = classes_[c].free; item != none; item = items_[item].newer) {
      if (++freed[item] > 1) return "a slot is freed twice";
      if (slabs_[items_[item].slab].of_class != c) return "a slot is in another class's free list";
    }
  }
  if (in_lists != items_in_use_) return "lists and item count disagree";
  std::uint64_t slots = 0;
  for (std::size_t s = 0; s < slabs_given_; ++s)
    for (const std::uint32_t item : slabs_[s].slots) {
      ++slots;
      const Item& slot = items_[item];
      if (slot.slab != s || slot.address < slabs_[s].address ||
          slot.address + classes_[slabs_[s].of_class].item_bytes >
              slabs_[s].address + options_.slab_bytes)
        return "a slot lies outside its slab";
      if (slot.in_use ? chained[item] != 1 || listed[item] != 1 || freed[item] != 0
                      : chained[item] != 0 || listed[item] != 0 || freed[item] != 1)
        return "a slot is neither in use nor free";
    }
  if (slots + unused_.size() != items_.size()) return "slots are lost";
  return {};
}

}  // namespace tt::kernels
