// SPDX-License-Identifier: MIT

#include "kernels/btree_index.hpp"

#include <algorithm>
#include <stdexcept>

namespace tt::kernels {
namespace {

constexpr trace::Address none = TracedMemory::none;
constexpr std::uint64_t line = 64;
constexpr std::uint64_t word = 8;

}  // namespace

BtreeIndex::BtreeIndex(const BtreeOptions& options, const BtreeClasses& classes,
                       TracedMemory& memory)
    : options_(options), stream_(classes), memory_(memory) {
  if (options.order < 3 || options.order > 64)
    throw std::invalid_argument("btree: an order of 3 to 64");
  if (options.record_bytes < word || options.record_bytes % word != 0)
    throw std::invalid_argument("btree: records of a multiple of 8 bytes");
  if (options.array_stride < options.order * word + line || options.array_stride % word != 0)
    throw std::invalid_argument("btree: an array takes `order` words and a line, in whole words");
  if (options.slab_bytes < 4096 || options.slab_bytes > options.slab_align ||
      options.slab_bytes < options.record_bytes || options.grow_bytes < options.array_stride)
    throw std::invalid_argument("btree: slabs of 4 KiB up to their alignment");
  record_slabs_.piece = options.record_bytes;
  keys_.reserve(options.order);
  pointers_.reserve(options.order + 1);
}

// ---------------------------------------------------------------------------------- allocation

BtreeIndex::Address BtreeIndex::take(Slabs& slabs) {
  if (slabs.left == 0) {
    slabs.first = memory_.map(slabs.site, options_.slab_align);
    slabs.left = options_.slab_bytes / slabs.piece;
    memory_.stores(stream_.sequential, slabs.first, options_.slab_bytes);  // cleared, then linked
  }
  return slabs.first + --slabs.left * slabs.piece;
}

BtreeIndex::Address BtreeIndex::array(std::uint64_t elements) {
  if (heap_left_ < options_.array_stride) {
    heap_ = memory_.map("btree.arrays", options_.grow_bytes);
    heap_left_ = options_.grow_bytes;
  }
  const Address start = (heap_ + line - 1) / line * line;
  heap_ += options_.array_stride;
  heap_left_ -= options_.array_stride;
  memory_.stores(stream_.update, start, elements * word);  // cleared
  return start;
}

BtreeIndex::Address BtreeIndex::make_node(bool leaf) {
  const Address made = take(node_slabs_);
  const Address keys = array(options_.order - 1);
  const Address pointers = array(options_.order);
  for (std::uint64_t i = 0; i < options_.order; ++i)
    memory_.poke<Address>(pointers + i * word) = none;
  memory_.store<Node>(stream_.update, made, {pointers, keys, none, leaf, 0, 0, none});
  ++nodes_;
  return made;
}

// -------------------------------------------------------------------------------------- search

template <typename Stop>
std::uint64_t BtreeIndex::scan(Address array, std::uint64_t count, Stop stop) const {
  std::uint64_t i = 0;
  while (i < count && !stop(memory_.peek<std::uint64_t>(array + i * word))) ++i;
  const std::uint64_t bytes = std::min(i + 1, count) * word;  // arrays begin at a line
  memory_.loads(stream_.dependent, array, std::min(bytes, line));
  if (bytes > line) memory_.loads(stream_.scan, array + line, bytes - line);
  return i;
}

BtreeIndex::Address BtreeIndex::find_leaf(std::uint64_t key) const {
  Address at = root_;
  for (;;) {
    const Node& here = memory_.load<Node>(stream_.dependent, at);
    if (here.leaf != 0) return at;
    const std::uint64_t i =
        scan(here.keys, here.count, [key](std::uint64_t other) { return key < other; });
    at = memory_.load<Address>(stream_.dependent, here.pointers + i * word);
  }
}

BtreeIndex::Place BtreeIndex::find_place(std::uint64_t key) const {
  const Address leaf = find_leaf(key);
  const Node& here = node(leaf);
  const std::uint64_t at =
      scan(here.keys, here.count, [key](std::uint64_t other) { return other >= key; });
  return {leaf, at, at < here.count && memory_.peek<std::uint64_t>(here.keys + at * word) == key};
}

std::optional<std::uint64_t> BtreeIndex::find(std::uint64_t key) const {
  if (root_ == none) return std::nullopt;
  const Place place = find_place(key);
  if (!place.found) return std::nullopt;
  const Address record =
      memory_.load<Address>(stream_.dependent, node(place.leaf).pointers + place.at * word);
  memory_.loads(stream_.dependent, record, options_.record_bytes);
  return memory_.peek<std::uint64_t>(record);
}

void BtreeIndex::approach(std::span<const std::uint64_t> keys) const {
  if (root_ == none) return;
  std::vector<Address> at(keys.size(), root_);
  for (std::uint64_t level = height_; level > 0; --level) {
    for (const Address here : at)
      for (std::uint64_t i = 0; i < options_.order; i += line / word) {
        memory_.expect(node(here).keys + i * word);
        memory_.expect(node(here).pointers + i * word);
      }
    if (level == 1) return;
    for (std::size_t k = 0; k < keys.size(); ++k) {
      const Node& here = node(at[k]);
      std::uint64_t i = 0;
      while (i < here.count && keys[k] >= memory_.peek<std::uint64_t>(here.keys + i * word)) ++i;
      at[k] = memory_.peek<Address>(here.pointers + i * word);
      memory_.expect(at[k]);
    }
  }
}

// -------------------------------------------------------------------------------------- insert

bool BtreeIndex::insert(std::uint64_t key, std::uint64_t value) {
  // The original looks for the record first and walks down again for the leaf: all of the second
  // walk is in the cache, and the filter drops it.
  Place place{};
  if (root_ != none) {
    place = find_place(key);
    if (place.found) {
      const Address record =
          memory_.load<Address>(stream_.dependent, node(place.leaf).pointers + place.at * word);
      memory_.store<std::uint64_t>(stream_.update, record, value);
      return false;
    }
  }
  const Address record = take(record_slabs_);
  memory_.stores(stream_.update, record, options_.record_bytes);
  memory_.poke<std::uint64_t>(record) = value;
  ++size_;
  if (root_ == none) {
    root_ = make_node(true);
    height_ = 1;
    insert_at(root_, 0, key, 0, record);
  } else if (node(place.leaf).count < options_.order - 1) {
    insert_at(place.leaf, place.at, key, place.at, record);
  } else {
    split_leaf(place.leaf, place.at, key, record);
  }
  return true;
}

void BtreeIndex::insert_at(Address address, std::uint64_t key_at, std::uint64_t key,
                           std::uint64_t pointer_at, Address pointer) {
  Node& here = memory_.poke<Node>(address);
  const std::uint64_t pointers = here.leaf != 0 ? here.count : here.count + 1;
  const auto shift = [&](Address array, std::uint64_t at, std::uint64_t count,
                         std::uint64_t element) {
    const std::uint64_t moved = count - at;
    memory_.loads(stream_.scan, array + at * word, moved * word);
    memory_.stores(stream_.update, array + at * word, (moved + 1) * word);
    for (std::uint64_t i = count; i > at; --i)
      memory_.poke<std::uint64_t>(array + i * word) =
          memory_.peek<std::uint64_t>(array + (i - 1) * word);
    memory_.poke<std::uint64_t>(array + at * word) = element;
  };
  shift(here.keys, key_at, here.count, key);
  shift(here.pointers, pointer_at, pointers, pointer);
  ++here.count;
  memory_.stores(stream_.update, address, sizeof(Node));
}

/// Reads a node's keys and pointers into the temporary arrays of a split. (Those are from the heap
/// too, but the same memory each time, always in the cache.)
void BtreeIndex::copy_out(Address address, std::uint64_t keys, std::uint64_t pointers) {
  const Node& here = node(address);
  memory_.loads(stream_.scan, here.keys, keys * word);
  memory_.loads(stream_.scan, here.pointers, pointers * word);
  keys_.clear();
  pointers_.clear();
  for (std::uint64_t i = 0; i < keys; ++i)
    keys_.push_back(memory_.peek<std::uint64_t>(here.keys + i * word));
  for (std::uint64_t i = 0; i < pointers; ++i)
    pointers_.push_back(memory_.peek<Address>(here.pointers + i * word));
}

void BtreeIndex::split_leaf(Address left, std::uint64_t at, std::uint64_t key, Address record) {
  const Address right = make_node(true);
  const std::uint64_t last = (options_.order - 1) * word;  // the leaf's link to the next one
  copy_out(left, options_.order - 1, options_.order - 1);
  keys_.insert(keys_.begin() + static_cast<std::ptrdiff_t>(at), key);
  pointers_.insert(pointers_.begin() + static_cast<std::ptrdiff_t>(at), record);

  Node& from = memory_.poke<Node>(left);
  Node& to = memory_.poke<Node>(right);
  const std::uint64_t kept = options_.order / 2;  // the larger half of order - 1 stays
  const auto fill = [&](Address address, Node& into, std::uint64_t first, std::uint64_t end) {
    into.count = end - first;
    for (std::uint64_t i = first; i < end; ++i) {
      memory_.poke<std::uint64_t>(into.keys + (i - first) * word) = keys_[i];
      memory_.poke<Address>(into.pointers + (i - first) * word) = pointers_[i];
    }
    memory_.stores(stream_.update, into.keys, into.count * word);
    memory_.stores(stream_.update, into.pointers, options_.order * word);  // unused ones: null
    memory_.stores(stream_.update, address, sizeof(Node));
  };
  fill(left, from, 0, kept);
  fill(right, to, kept, options_.order);
  memory_.poke<Address>(to.pointers + last) =
      memory_.load<Address>(stream_.dependent, from.pointers + last);
  memory_.poke<Address>(from.pointers + last) = right;
  to.parent = from.parent;
  insert_into_parent(left, keys_[kept], right);
}

void BtreeIndex::split_inner(Address left, std::uint64_t left_at, std::uint64_t key,
                             Address right) {
  copy_out(left, options_.order - 1, options_.order);
  keys_.insert(keys_.begin() + static_cast<std::ptrdiff_t>(left_at), key);
  pointers_.insert(pointers_.begin() + static_cast<std::ptrdiff_t>(left_at + 1), right);

  const Address made = make_node(false);
  Node& from = memory_.poke<Node>(left);
  Node& to = memory_.poke<Node>(made);
  const std::uint64_t kept = (options_.order + 1) / 2;  // pointers that stay
  const auto fill = [&](Address address, Node& into, std::uint64_t first, std::uint64_t end) {
    into.count = end - first - 1;  // pointers [first, end) and the keys between them
    for (std::uint64_t i = first; i < end; ++i) {
      memory_.poke<Address>(into.pointers + (i - first) * word) = pointers_[i];
      if (i + 1 < end) memory_.poke<std::uint64_t>(into.keys + (i - first) * word) = keys_[i];
    }
    memory_.stores(stream_.update, into.keys, into.count * word);
    memory_.stores(stream_.update, into.pointers, (into.count + 1) * word);
    memory_.stores(stream_.update, address, sizeof(Node));
  };
  fill(left, from, 0, kept);
  fill(made, to, kept, options_.order + 1);
  to.parent = from.parent;
  for (std::uint64_t i = 0; i <= to.count; ++i) {
    Node& child = memory_.poke<Node>(memory_.peek<Address>(to.pointers + i * word));
    child.parent = made;
    memory_.stores(stream_.update, memory_.peek<Address>(to.pointers + i * word), sizeof(Node));
  }
  insert_into_parent(left, keys_[kept - 1], made);
}

void BtreeIndex::insert_into_parent(Address left, std::uint64_t key, Address right) {
  const Address parent = node(left).parent;
  if (parent == none) {
    const Address root = make_node(false);
    Node& made = memory_.poke<Node>(root);
    memory_.store<std::uint64_t>(stream_.update, made.keys, key);
    memory_.store<Address>(stream_.update, made.pointers, left);
    memory_.store<Address>(stream_.update, made.pointers + word, right);
    made.count = 1;
    memory_.poke<Node>(left).parent = memory_.poke<Node>(right).parent = root;
    root_ = root;
    ++height_;
    return;
  }
  const Node& above = memory_.load<Node>(stream_.dependent, parent);
  const std::uint64_t left_at =
      scan(above.pointers, above.count + 1, [left](Address other) { return other == left; });
  if (above.count < options_.order - 1)
    insert_at(parent, left_at, key, left_at + 1, right);
  else
    split_inner(parent, left_at, key, right);
}

// -------------------------------------------------------------------------------------- checks

std::vector<std::pair<std::uint64_t, std::uint64_t>> BtreeIndex::pairs() const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
  if (root_ == none) return all;
  Address at = root_;
  while (node(at).leaf == 0) at = memory_.peek<Address>(node(at).pointers);
  for (; at != none; at = memory_.peek<Address>(node(at).pointers + (options_.order - 1) * word))
    for (std::uint64_t i = 0; i < node(at).count; ++i)
      all.emplace_back(
          memory_.peek<std::uint64_t>(node(at).keys + i * word),
          memory_.peek<std::uint64_t>(memory_.peek<Address>(node(at).pointers + i * word)));
  return all;
}

void BtreeIndex::check(Address address, std::uint64_t depth, std::optional<std::uint64_t> low,
                       std::optional<std::uint64_t> high, std::vector<Address>& leaves,
                       std::string& wrong) const {
  const Node& here = node(address);
  const std::uint64_t least = address == root_ ? 1
                              : here.leaf != 0 ? options_.order / 2
                                               : (options_.order + 1) / 2 - 1;
  if (here.count < least || here.count > options_.order - 1) wrong += "fill; ";
  for (std::uint64_t i = 0; i < here.count; ++i) {
    const auto key = memory_.peek<std::uint64_t>(here.keys + i * word);
    if ((low && key < *low) || (high && key >= *high)) wrong += "key out of its range; ";
    if (i > 0 && memory_.peek<std::uint64_t>(here.keys + (i - 1) * word) >= key)
      wrong += "order of keys; ";
  }
  if (here.leaf != 0) {
    if (depth != height_) wrong += "leaves at different depths; ";
    leaves.push_back(address);
    return;
  }
  for (std::uint64_t i = 0; i <= here.count; ++i) {
    const auto child = memory_.peek<Address>(here.pointers + i * word);
    if (node(child).parent != address) wrong += "parent; ";
    const auto key = [&](std::uint64_t k) {
      return memory_.peek<std::uint64_t>(here.keys + k * word);
    };
    check(child, depth + 1, i > 0 ? std::optional{key(i - 1)} : low,
          i < here.count ? std::optional{key(i)} : high, leaves, wrong);
  }
}

std::string BtreeIndex::inconsistency() const {
  std::string wrong;
  if (root_ == none) return wrong;
  std::vector<Address> leaves;
  check(root_, 1, std::nullopt, std::nullopt, leaves, wrong);
  leaves.push_back(none);
  for (std::size_t i = 0; i + 1 < leaves.size(); ++i)
    if (memory_.peek<Address>(node(leaves[i]).pointers + (options_.order - 1) * word) !=
        leaves[i + 1])
      wrong += "chain of leaves; ";
  if (pairs().size() != size_) wrong += "size; ";
  return wrong;
}

}  // namespace tt::kernels
