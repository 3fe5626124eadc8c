// SPDX-License-Identifier: MIT

// Masstree: a trie with fan-out 2^64 whose nodes are B+ trees (Mao, Kohler and Morris, EuroSys'12).
//
// Each layer of the trie indexes 8 bytes of the key. Its B+ tree has nodes of up to 15 keys; a leaf
// keeps them in slots, and a 64-bit permutation tells their order, so that an insertion moves no
// key. A key longer than its layer's 8 bytes keeps the rest in the leaf's block of suffixes, until
// a second key with the same 8 bytes turns it into a layer of its own. Layout and policies (split
// points, full nodes under ascending insertions, removal of empty leaves but the leftmost of a
// layer) are the original's; locks and lazily updated roots are not needed by one thread. Every
// load and store is reported.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/silo_arena.hpp"

namespace tt::kernels {

class Masstree {
 public:
  using Address = trace::Address;
  static constexpr std::uint64_t width = 15;

  /// A leaf and its version, which changes whenever a key enters or leaves it.
  struct Seen {
    Address leaf;
    std::uint64_t version;
  };
  struct Found {
    std::optional<std::uint64_t> value;
    Seen seen;  // the leaf where the key is or would be
  };
  struct Inserted {
    bool done;  // false: the key is there
    Seen before;
    std::vector<Seen> after;  // the leaf that took the key, or both halves of it
  };

  explicit Masstree(SiloArena& arena);
  Masstree(Masstree&&) = default;

  [[nodiscard]] Found find(std::string_view key) const;
  Inserted insert(std::string_view key, std::uint64_t value);
  /// The removed value.
  std::optional<std::uint64_t> remove(std::string_view key);
  /// Keys from `from` on in ascending order, until `visit` returns false. `pass` gets every leaf
  /// that was looked at.
  void scan(std::string_view from,
            const std::function<bool(std::string_view, std::uint64_t)>& visit,
            const std::function<void(Seen)>& pass = {}) const;
  /// Current version of a leaf that was seen.
  [[nodiscard]] std::uint64_t version(Address leaf) const;

  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] std::uint64_t nodes() const { return nodes_; }
  [[nodiscard]] std::uint64_t layers() const { return layers_; }
  /// Checks order, links and versions; returns what is wrong, empty when nothing is.
  [[nodiscard]] std::string inconsistency() const;

 private:
  struct Leaf;
  struct Inner;
  struct Entry;
  struct Place;
  /// What points to a layer's root: a slot of a leaf of the layer above, or nothing (the first
  /// layer).
  struct Holder {
    Address leaf = TracedMemory::none;
    std::uint64_t slot = 0;
  };

  Address make_leaf();
  [[nodiscard]] const Leaf& leaf(Address at) const;
  Leaf& poke_leaf(Address at);
  Inner& poke_inner(Address at);
  [[nodiscard]] bool is_leaf(Address at) const;
  void set_parent(Address child, Address parent);
  void visit_node(Address at) const;
  [[nodiscard]] Address descend(Address root, std::uint64_t slice) const;
  [[nodiscard]] Place search(const Leaf& in, std::uint64_t slice, std::uint64_t length) const;
  [[nodiscard]] std::string_view suffix(const Leaf& in, std::uint64_t slot, bool report) const;
  void set_suffix(Leaf& in, std::uint64_t slot, std::string_view rest);
  void put(Leaf& in, Address at, std::uint64_t slot, const Entry& entry);
  void touch_version(Address at);
  void insert_entry(Address at, std::uint64_t position, const Entry& entry, Holder holder,
                    std::vector<Seen>& after);
  void insert_above(Address left, std::uint64_t slice, Address right, Holder holder,
                    bool ascending);
  void drop_leaf(Address at);
  bool scan_layer(Address root, std::string& prefix, std::string_view from,
                  const std::function<bool(std::string_view, std::uint64_t)>& visit,
                  const std::function<void(Seen)>& pass) const;
  void check(Address at, Address parent, std::optional<std::uint64_t> low,
             std::optional<std::uint64_t> high, std::vector<Address>& leaves,
             std::string& wrong) const;
  void check_layer(Address root, std::string& wrong) const;

  SiloArena* arena_;
  Address root_;
  std::uint64_t stamp_ = 0;  // versions are never used twice
  std::uint64_t size_ = 0;
  std::uint64_t nodes_ = 0;
  std::uint64_t layers_ = 1;
};

}  // namespace tt::kernels
