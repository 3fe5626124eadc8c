// SPDX-License-Identifier: MIT

// What a Masstree's nodes look like in memory; private to its implementation.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/masstree.hpp"

namespace tt::kernels {
namespace masstree {

inline constexpr trace::Address none = TracedMemory::none;
// A leaf and an inner node take 304 and 280 bytes, both rounded to whole lines: the same size.
inline constexpr std::uint64_t node_bytes = 320;
// The original prefetches the first four lines of a node before it looks at it.
inline constexpr std::uint64_t prefetched = 256;
// Lengths of what a slot holds: 0 to 8 bytes of key; more; a layer of keys that are longer.
inline constexpr std::uint8_t longer = 9;
inline constexpr std::uint8_t layer = 10;

/// Big-endian, padded with zeros: numbers compare as keys do.
inline std::uint64_t slice_of(std::string_view key) {
  std::uint64_t slice = 0;
  for (std::size_t i = 0; i < 8; ++i)
    slice = slice << 8 | (i < key.size() ? static_cast<std::uint8_t>(key[i]) : 0);
  return slice;
}
inline std::uint64_t length_of(std::string_view key) {
  return std::min<std::uint64_t>(key.size(), longer);
}
inline void append_slice(std::string& to, std::uint64_t slice, std::uint64_t length) {
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(length, 8); ++i)
    to.push_back(static_cast<char>(slice >> (56 - 8 * i) & 0xff));
}

/// Order of a leaf's slots: count in the lowest four bits, then 15 slots, used ones first.
class Permutation {
 public:
  explicit Permutation(std::uint64_t word) : word_(word) {}
  static Permutation in_order(std::uint64_t count) {
    std::uint64_t word = count;
    for (std::uint64_t i = 0; i < Masstree::width; ++i) word |= i << (4 + 4 * i);
    return Permutation{word};
  }
  [[nodiscard]] std::uint64_t word() const { return word_; }
  [[nodiscard]] std::uint64_t count() const { return word_ & 15; }
  [[nodiscard]] std::uint64_t slot(std::uint64_t i) const { return word_ >> (4 + 4 * i) & 15; }
  /// Takes the first free slot for position `i`.
  std::uint64_t insert(std::uint64_t i) { return move(count(), i, count() + 1); }
  void remove(std::uint64_t i) { (void)move(i, Masstree::width - 1, count() - 1); }

 private:
  std::uint64_t move(std::uint64_t from, std::uint64_t to, std::uint64_t count) {
    std::array<std::uint64_t, Masstree::width> slots{};
    for (std::uint64_t i = 0; i < Masstree::width; ++i) slots[i] = slot(i);
    const std::uint64_t moved = slots[from];
    if (from > to)
      std::copy_backward(slots.begin() + to, slots.begin() + from, slots.begin() + from + 1);
    else
      std::copy(slots.begin() + from + 1, slots.begin() + to + 1, slots.begin() + from);
    slots[to] = moved;
    word_ = count;
    for (std::uint64_t i = 0; i < Masstree::width; ++i) word_ |= slots[i] << (4 + 4 * i);
    return moved;
  }
  std::uint64_t word_;
};

/// A leaf's suffixes: a header, then their bytes, appended until the block is full.
struct Suffixes {
  std::uint32_t bytes;  // of the block
  std::uint32_t used;
  std::uint16_t offset[Masstree::width];
  std::uint16_t length[Masstree::width];
};

}  // namespace masstree

// Bit 0 of the version tells leaves from inner nodes.
struct Masstree::Leaf {
  std::uint64_t version;
  std::uint64_t permutation;
  std::uint8_t length[width + 1];
  Address next;
  Address previous;
  Address parent;
  Address suffixes;
  std::uint64_t slice[width];
  std::uint64_t value[width];  // or the layer's root
};
struct Masstree::Inner {
  std::uint64_t version;
  std::uint64_t count;
  Address parent;
  std::uint64_t unused;
  std::uint64_t slice[width];
  Address child[width + 1];  // child i + 1 has the keys from slice i on
};
struct Masstree::Entry {
  std::uint64_t slice;
  std::uint8_t length;
  std::uint64_t value;
  std::string_view rest;
};
struct Masstree::Place {
  std::uint64_t position;
  bool match;  // the same 8 bytes and length
};

}  // namespace tt::kernels
