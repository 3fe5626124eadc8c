// SPDX-License-Identifier: MIT

// The B+ tree of the "Btree" benchmark: nodes whose key and pointer arrays are allocations of their
// own, records apart (mitosis-project/mitosis-workload-btree, after A. Aviram's bpt).
//
// Layout as there. A node is a struct of 56 bytes from slabs, as records are; its array of keys and
// its array of pointers come from malloc. So a level of the tree costs three dependent accesses
// (struct, keys, pointer), and a search looks at the keys one by one. Keys and values are 64-bit;
// inserting a key that is there replaces its value. Every load and store is reported.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/traced_memory.hpp"

namespace tt::kernels {

struct BtreeOptions {
  std::uint64_t order = 16;          // most children of a node; a leaf holds one pair less
  std::uint64_t record_bytes = 16;   // at least 8, a multiple of 8
  std::uint64_t array_stride = 352;  // bytes of heap that an aligned allocation of an array takes
  std::uint64_t slab_bytes = 2 << 20;
  std::uint64_t slab_align = 2 << 20;  // address space that a slab takes
  std::uint64_t grow_bytes = 2 << 20;  // by which the heap grows
};

/// Stream classes that the tree's touches belong to.
struct BtreeClasses {
  std::uint32_t dependent = 0;   // each address comes from the line before
  std::uint32_t scan = 0;        // further lines of an array
  std::uint32_t update = 0;      // stores to lines that were just read
  std::uint32_t sequential = 0;  // clearing of a new slab
};

class BtreeIndex {
 public:
  /// Throws std::invalid_argument for impossible sizes.
  BtreeIndex(const BtreeOptions& options, const BtreeClasses& classes, TracedMemory& memory);

  [[nodiscard]] std::optional<std::uint64_t> find(std::uint64_t key) const;
  /// True when the key is new; else its value is replaced.
  bool insert(std::uint64_t key, std::uint64_t value);

  /// Brings the paths to all these keys into the host's caches side by side, without a report: one
  /// insertion after the other would spend most of its time waiting for them.
  void approach(std::span<const std::uint64_t> keys) const;

  /// From now on touches belong to these.
  void set_classes(const BtreeClasses& classes) { stream_ = classes; }

  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] std::uint64_t height() const { return height_; }  // levels, leaves included
  [[nodiscard]] std::uint64_t nodes() const { return nodes_; }
  /// All pairs in order of their keys; without reports.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, std::uint64_t>> pairs() const;
  /// Checks order, fill, links and heights; returns what is wrong, empty when nothing is.
  [[nodiscard]] std::string inconsistency() const;

 private:
  using Address = trace::Address;
  struct Node {
    Address pointers;
    Address keys;
    Address parent;
    std::uint64_t leaf;
    std::uint64_t count;  // of keys
    std::uint64_t stats;  // unused, as in the original
    Address next;         // likewise
  };
  static_assert(sizeof(Node) == 56);

  /// Equal pieces of a slab, handed out from its end, as the original's free list does.
  struct Slabs {
    std::string_view site;
    std::uint64_t piece;
    Address first = 0;
    std::uint64_t left = 0;
  };

  struct Place {
    Address leaf;
    std::uint64_t at;  // of the first key that is not below
    bool found;
  };

  Address take(Slabs& slabs);
  Address array(std::uint64_t elements);
  Address make_node(bool leaf);
  [[nodiscard]] Address find_leaf(std::uint64_t key) const;
  [[nodiscard]] Place find_place(std::uint64_t key) const;
  /// Index of the first of `count` keys for which `stop` holds; reports the lines that were read.
  template <typename Stop>
  std::uint64_t scan(Address array, std::uint64_t count, Stop stop) const;
  void insert_at(Address node, std::uint64_t key_at, std::uint64_t key, std::uint64_t pointer_at,
                 Address pointer);
  void split_leaf(Address leaf, std::uint64_t at, std::uint64_t key, Address record);
  void split_inner(Address node, std::uint64_t left_at, std::uint64_t key, Address right);
  void insert_into_parent(Address left, std::uint64_t key, Address right);
  void copy_out(Address node, std::uint64_t keys, std::uint64_t pointers);

  [[nodiscard]] const Node& node(Address address) const { return memory_.peek<Node>(address); }
  void check(Address address, std::uint64_t depth, std::optional<std::uint64_t> low,
             std::optional<std::uint64_t> high, std::vector<Address>& leaves,
             std::string& wrong) const;

  BtreeOptions options_;
  BtreeClasses stream_;
  TracedMemory& memory_;
  Slabs node_slabs_{"btree.nodes", sizeof(Node)};
  Slabs record_slabs_{"btree.records", 0};
  Address heap_ = 0;
  std::uint64_t heap_left_ = 0;
  Address root_ = TracedMemory::none;
  std::uint64_t size_ = 0;
  std::uint64_t height_ = 0;
  std::uint64_t nodes_ = 0;
  std::vector<std::uint64_t> keys_;  // a splitting node's, with the new one
  std::vector<Address> pointers_;
};

}  // namespace tt::kernels
