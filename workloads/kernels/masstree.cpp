// SPDX-License-Identifier: MIT

#include "kernels/masstree.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/masstree_layout.hpp"

namespace tt::kernels {

using namespace masstree;

Masstree::Masstree(SiloArena& arena) : arena_(&arena), root_(make_leaf()) {
  static_assert(sizeof(Leaf) <= node_bytes && sizeof(Inner) <= node_bytes);
}

Masstree::Address Masstree::make_leaf() {
  const Address made = arena_->allocate(node_bytes);
  Leaf& fresh = arena_->memory().poke<Leaf>(made);
  fresh = {};
  fresh.version = ++stamp_ << 1 | 1;
  fresh.permutation = Permutation::in_order(0).word();
  fresh.next = fresh.previous = fresh.parent = fresh.suffixes = none;
  arena_->memory().stores(arena_->classes().update, made, 64);
  ++nodes_;
  return made;
}

const Masstree::Leaf& Masstree::leaf(Address at) const { return arena_->memory().peek<Leaf>(at); }
Masstree::Leaf& Masstree::poke_leaf(Address at) { return arena_->memory().poke<Leaf>(at); }
Masstree::Inner& Masstree::poke_inner(Address at) { return arena_->memory().poke<Inner>(at); }
bool Masstree::is_leaf(Address at) const {
  return (arena_->memory().peek<std::uint64_t>(at) & 1) != 0;
}
void Masstree::set_parent(Address child, Address parent) {
  if (is_leaf(child)) {
    poke_leaf(child).parent = parent;
    arena_->memory().stores(arena_->classes().update, child + offsetof(Leaf, parent), 8);
  } else {
    poke_inner(child).parent = parent;
    arena_->memory().stores(arena_->classes().update, child + offsetof(Inner, parent), 8);
  }
}
void Masstree::visit_node(Address at) const {
  arena_->memory().loads(arena_->classes().node, at, prefetched);
}
void Masstree::touch_version(Address at) {
  poke_leaf(at).version = ++stamp_ << 1 | 1;
  arena_->memory().stores(arena_->classes().update, at, 16);  // with the permutation
}
std::uint64_t Masstree::version(Address at) const {
  return arena_->memory().load<std::uint64_t>(arena_->classes().node, at);
}

// ---------------------------------------------------------------------------------------- search

Masstree::Address Masstree::descend(Address at, std::uint64_t slice) const {
  for (;;) {
    visit_node(at);
    if (is_leaf(at)) return at;
    const Inner& inner = arena_->memory().peek<Inner>(at);
    std::uint64_t i = 0;
    while (i < inner.count && slice >= inner.slice[i]) ++i;
    at =
        arena_->memory().load<Address>(arena_->classes().node, at + offsetof(Inner, child) + i * 8);
  }
}

Masstree::Place Masstree::search(const Leaf& in, std::uint64_t slice, std::uint64_t length) const {
  const Permutation order{in.permutation};
  for (std::uint64_t i = 0; i < order.count(); ++i) {
    const std::uint64_t slot = order.slot(i);
    const std::uint64_t there = std::min(in.length[slot], longer);
    if (in.slice[slot] > slice || (in.slice[slot] == slice && there >= length))
      return {i, in.slice[slot] == slice && there == length};
  }
  return {order.count(), false};
}

std::string_view Masstree::suffix(const Leaf& in, std::uint64_t slot, bool report) const {
  const TracedMemory& memory = arena_->memory();
  const auto& block = memory.peek<Suffixes>(in.suffixes);
  const std::uint64_t at = sizeof(Suffixes) + block.offset[slot];
  if (report) {
    memory.loads(arena_->classes().record, in.suffixes, sizeof(Suffixes));
    memory.loads(arena_->classes().record, in.suffixes + at, block.length[slot]);
  }
  const auto bytes = memory.bytes(in.suffixes + at, block.length[slot]);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Masstree::Found Masstree::find(std::string_view key) const {
  Address root = root_;
  for (;;) {
    const std::uint64_t slice = slice_of(key);
    const Address at = descend(root, slice);
    const Leaf& in = leaf(at);
    const Place place = search(in, slice, length_of(key));
    const Found missing{std::nullopt, {at, in.version}};
    if (!place.match) return missing;
    const std::uint64_t slot = Permutation{in.permutation}.slot(place.position);
    const auto value = arena_->memory().load<std::uint64_t>(arena_->classes().node,
                                                            at + offsetof(Leaf, value) + slot * 8);
    if (in.length[slot] == layer) {
      root = value;
      key.remove_prefix(8);
      continue;
    }
    if (in.length[slot] == longer && suffix(in, slot, true) != key.substr(8)) return missing;
    return {value, {at, in.version}};
  }
}

// ---------------------------------------------------------------------------------------- insert

void Masstree::set_suffix(Leaf& in, std::uint64_t slot, std::string_view rest) {
  TracedMemory& memory = arena_->memory();
  if (in.suffixes == none ||
      memory.peek<Suffixes>(in.suffixes).used + rest.size() + sizeof(Suffixes) >
          memory.peek<Suffixes>(in.suffixes).bytes) {
    // A new block with what is still in use, and room for as much as a full leaf would need.
    std::array<std::string, width> kept;
    std::size_t sum = rest.size();
    std::size_t count = 1;
    if (in.suffixes != none) {
      const Permutation order{in.permutation};
      for (std::uint64_t i = 0; i < order.count(); ++i) {
        const std::uint64_t other = order.slot(i);
        if (in.length[other] != longer || other == slot) continue;
        kept[other] = suffix(in, other, true);
        sum += kept[other].size();
        ++count;
      }
      arena_->retire(in.suffixes, memory.peek<Suffixes>(in.suffixes).bytes);
    }
    const std::size_t room = std::min<std::size_t>(sum * 2, sum / count * width + rest.size());
    const auto bytes =
        static_cast<std::uint32_t>((sizeof(Suffixes) + std::max(room, sum) + 63) / 64 * 64);
    in.suffixes = arena_->allocate(bytes);
    memory.poke<Suffixes>(in.suffixes) = {bytes, 0, {}, {}};
    for (std::uint64_t other = 0; other < width; ++other)
      if (!kept[other].empty()) set_suffix(in, other, kept[other]);
  }
  auto& block = memory.poke<Suffixes>(in.suffixes);
  block.offset[slot] = static_cast<std::uint16_t>(block.used);
  block.length[slot] = static_cast<std::uint16_t>(rest.size());
  const Address to = in.suffixes + sizeof(Suffixes) + block.used;
  std::memcpy(memory.bytes(to, rest.size()).data(), rest.data(), rest.size());
  block.used += static_cast<std::uint32_t>(rest.size());
  memory.stores(arena_->classes().update, in.suffixes, sizeof(Suffixes));
  memory.stores(arena_->classes().update, to, rest.size());
}

void Masstree::put(Leaf& in, Address at, std::uint64_t slot, const Entry& entry) {
  TracedMemory& memory = arena_->memory();
  in.slice[slot] = entry.slice;
  in.value[slot] = entry.value;
  in.length[slot] = entry.length;
  memory.stores(arena_->classes().update, at + offsetof(Leaf, length) + slot, 1);
  memory.stores(arena_->classes().update, at + offsetof(Leaf, slice) + slot * 8, 8);
  memory.stores(arena_->classes().update, at + offsetof(Leaf, value) + slot * 8, 8);
  if (entry.length == longer) set_suffix(in, slot, entry.rest);
}

Masstree::Inserted Masstree::insert(std::string_view key, std::uint64_t value) {
  Address root = root_;
  Holder holder;
  for (;;) {
    const std::uint64_t slice = slice_of(key);
    const Address at = descend(root, slice);
    Leaf& in = poke_leaf(at);
    const Seen before{at, in.version};
    const Place place = search(in, slice, length_of(key));
    if (!place.match) {
      Inserted result{true, before, {}};
      const Entry entry{slice, static_cast<std::uint8_t>(length_of(key)), value,
                        key.size() > 8 ? key.substr(8) : std::string_view{}};
      insert_entry(at, place.position, entry, holder, result.after);
      ++size_;
      return result;
    }
    const std::uint64_t slot = Permutation{in.permutation}.slot(place.position);
    if (in.length[slot] < longer) return {false, before, {}};
    if (in.length[slot] == longer) {
      const std::string there{suffix(in, slot, true)};
      if (there == key.substr(8)) return {false, before, {}};
      // Two keys share their 8 bytes: a layer of its own, in which the first is alone for now.
      const Address made = make_leaf();
      Leaf& fresh = poke_leaf(made);
      put(fresh, made, 0,
          {slice_of(there), static_cast<std::uint8_t>(length_of(there)), in.value[slot],
           there.size() > 8 ? std::string_view{there}.substr(8) : std::string_view{}});
      fresh.permutation = Permutation::in_order(1).word();
      in.length[slot] = layer;
      in.value[slot] = made;
      touch_version(at);
      ++layers_;
    }
    holder = {at, slot};
    root = in.value[slot];
    key.remove_prefix(8);
  }
}

void Masstree::insert_entry(Address at, std::uint64_t position, const Entry& entry, Holder holder,
                            std::vector<Seen>& after) {
  Leaf& in = poke_leaf(at);
  Permutation order{in.permutation};
  if (order.count() < width) {
    put(in, at, order.insert(position), entry);
    in.permutation = order.word();
    touch_version(at);
    after = {{at, in.version}};
    return;
  }
  // Split: the smaller half stays. Ascending insertions at the end of the layer leave full leaves,
  // descending ones at its start likewise.
  const auto slice_at = [&](std::uint64_t i) {
    return i == position ? entry.slice : in.slice[order.slot(i < position ? i : i - 1)];
  };
  const bool ascending = position == width && in.next == none;
  std::uint64_t middle = ascending                              ? width
                         : position == 0 && in.previous == none ? 1
                                                                : width / 2 + 1;
  // Keys of the same 8 bytes stay together: the inner nodes do not know more.
  const auto divides = [&](std::uint64_t i) {
    return i > 0 && i <= width && slice_at(i - 1) != slice_at(i);
  };
  for (std::uint64_t off = 0; !divides(middle); ++off) {
    if (divides(middle + off))
      middle += off;
    else if (off < middle && divides(middle - off))
      middle -= off;
  }

  const Address made = make_leaf();
  Leaf& right = poke_leaf(made);
  std::uint64_t filled = 0;
  arena_->memory().loads(arena_->classes().node, at, sizeof(Leaf));
  for (std::uint64_t i = middle; i <= width; ++i, ++filled) {
    if (i == position) {
      put(right, made, filled, entry);
    } else {
      const std::uint64_t slot = order.slot(i < position ? i : i - 1);
      put(right, made, filled,
          {in.slice[slot], in.length[slot], in.value[slot],
           in.length[slot] == longer ? suffix(in, slot, true) : std::string_view{}});
    }
    right.permutation = Permutation::in_order(filled + 1).word();  // what set_suffix() keeps
  }
  const std::uint64_t slice = right.slice[0];
  const std::uint64_t stay = position < middle ? middle - 1 : middle;
  while (order.count() > stay) order.remove(order.count() - 1);
  in.permutation = order.word();
  if (position < middle) {
    put(in, at, order.insert(position), entry);
    in.permutation = order.word();
  }
  right.next = in.next;
  right.previous = at;
  if (in.next != none) {
    poke_leaf(in.next).previous = made;
    arena_->memory().stores(arena_->classes().update, in.next + offsetof(Leaf, previous), 8);
  }
  in.next = made;
  touch_version(at);
  after = {{at, in.version}, {made, right.version}};
  insert_above(at, slice, made, holder, ascending);
}

void Masstree::insert_above(Address left, std::uint64_t slice, Address right, Holder holder,
                            bool ascending) {
  TracedMemory& memory = arena_->memory();
  const auto make_inner = [&] {
    const Address made = arena_->allocate(node_bytes);
    memory.poke<Inner>(made) = {};
    memory.poke<Inner>(made).version = ++stamp_ << 1;
    memory.poke<Inner>(made).parent = none;
    ++nodes_;
    return made;
  };
  const Address parent = is_leaf(left) ? leaf(left).parent : memory.peek<Inner>(left).parent;
  if (parent == none) {
    const Address root = make_inner();
    Inner& made = poke_inner(root);
    made.count = 1;
    made.slice[0] = slice;
    made.child[0] = left;
    made.child[1] = right;
    memory.stores(arena_->classes().update, root, sizeof(Inner));
    set_parent(left, root);
    set_parent(right, root);
    if (holder.leaf == none) {
      root_ = root;
    } else {
      poke_leaf(holder.leaf).value[holder.slot] = root;
      memory.stores(arena_->classes().update, holder.leaf + offsetof(Leaf, value) + holder.slot * 8,
                    8);
    }
    return;
  }
  visit_node(parent);
  Inner& above = poke_inner(parent);
  std::uint64_t at = 0;
  while (above.child[at] != left) ++at;
  if (above.count < width) {
    std::copy_backward(above.slice + at, above.slice + above.count, above.slice + above.count + 1);
    std::copy_backward(above.child + at + 1, above.child + above.count + 1,
                       above.child + above.count + 2);
    above.slice[at] = slice;
    above.child[at + 1] = right;
    ++above.count;
    memory.stores(arena_->classes().update, parent, 16);
    memory.stores(arena_->classes().update, parent + offsetof(Inner, slice) + at * 8,
                  (above.count - at) * 8);
    memory.stores(arena_->classes().update, parent + offsetof(Inner, child) + (at + 1) * 8,
                  (above.count - at) * 8);
    set_parent(right, parent);
    return;
  }
  std::array<std::uint64_t, width + 1> slices{};
  std::array<Address, width + 2> children{};
  std::copy(above.slice, above.slice + at, slices.begin());
  slices[at] = slice;
  std::copy(above.slice + at, above.slice + width, slices.begin() + at + 1);
  std::copy(above.child, above.child + at + 1, children.begin());
  children[at + 1] = right;
  std::copy(above.child + at + 1, above.child + width + 1, children.begin() + at + 2);
  const bool at_end = ascending && at == width;
  const std::uint64_t middle = at_end ? width : (width + 1) / 2;  // this slice goes up
  const Address made = make_inner();
  Inner& second = poke_inner(made);
  second.count = width - middle;
  std::copy(slices.begin() + middle + 1, slices.end(), second.slice);
  std::copy(children.begin() + middle + 1, children.end(), second.child);
  above.count = middle;
  std::copy(slices.begin(), slices.begin() + middle, above.slice);
  std::copy(children.begin(), children.begin() + middle + 1, above.child);
  second.parent = above.parent;
  memory.stores(arena_->classes().update, parent, sizeof(Inner));
  memory.stores(arena_->classes().update, made, sizeof(Inner));
  for (std::uint64_t i = 0; i <= second.count; ++i) set_parent(second.child[i], made);
  if (at + 1 <= middle) set_parent(right, parent);
  insert_above(parent, slices[middle], made, holder, at_end);
}

// ---------------------------------------------------------------------------------------- remove

std::optional<std::uint64_t> Masstree::remove(std::string_view key) {
  Address root = root_;
  for (;;) {
    const std::uint64_t slice = slice_of(key);
    const Address at = descend(root, slice);
    Leaf& in = poke_leaf(at);
    const Place place = search(in, slice, length_of(key));
    if (!place.match) return std::nullopt;
    Permutation order{in.permutation};
    const std::uint64_t slot = order.slot(place.position);
    if (in.length[slot] == layer) {
      root = in.value[slot];
      key.remove_prefix(8);
      continue;
    }
    if (in.length[slot] == longer && suffix(in, slot, true) != key.substr(8)) return std::nullopt;
    const std::uint64_t value = in.value[slot];
    order.remove(place.position);
    in.permutation = order.word();
    touch_version(at);
    --size_;
    if (order.count() == 0 && in.previous != none) drop_leaf(at);
    return value;
  }
}

/// Takes an empty leaf out of its layer. The leftmost one stays, so that the root does.
void Masstree::drop_leaf(Address at) {
  TracedMemory& memory = arena_->memory();
  const SiloClasses& stream = arena_->classes();
  const Leaf& in = leaf(at);
  poke_leaf(in.previous).next = in.next;
  memory.stores(stream.update, in.previous + offsetof(Leaf, next), 8);
  if (in.next != none) {
    poke_leaf(in.next).previous = in.previous;
    memory.stores(stream.update, in.next + offsetof(Leaf, previous), 8);
  }
  if (in.suffixes != none) arena_->retire(in.suffixes, memory.peek<Suffixes>(in.suffixes).bytes);
  Address child = at;
  Address parent = in.parent;
  for (;;) {
    arena_->retire(child, node_bytes);
    --nodes_;
    visit_node(parent);
    Inner& above = poke_inner(parent);
    if (above.count > 0) {
      std::uint64_t i = 0;
      while (above.child[i] != child) ++i;
      const std::uint64_t gone = i > 0 ? i - 1 : 0;  // the neighbour takes over the range
      std::copy(above.slice + gone + 1, above.slice + above.count, above.slice + gone);
      std::copy(above.child + i + 1, above.child + above.count + 1, above.child + i);
      --above.count;
      memory.stores(stream.update, parent, sizeof(Inner));
      return;
    }
    child = parent;
    parent = above.parent;
  }
}

// ------------------------------------------------------------------------------------------ scan

void Masstree::scan(std::string_view from,
                    const std::function<bool(std::string_view, std::uint64_t)>& visit,
                    const std::function<void(Seen)>& pass) const {
  std::string prefix;
  (void)scan_layer(root_, prefix, from, visit, pass);
}

bool Masstree::scan_layer(Address root, std::string& prefix, std::string_view from,
                          const std::function<bool(std::string_view, std::uint64_t)>& visit,
                          const std::function<void(Seen)>& pass) const {
  const std::uint64_t first = slice_of(from);
  const std::size_t above = prefix.size();
  for (Address at = descend(root, first); at != none; at = leaf(at).next) {
    const Leaf& in = leaf(at);
    visit_node(at);
    if (pass) pass({at, in.version});
    const Permutation order{in.permutation};
    for (std::uint64_t i = 0; i < order.count(); ++i) {
      const std::uint64_t slot = order.slot(i);
      if (in.slice[slot] < first) continue;
      const bool same = in.slice[slot] == first;
      append_slice(prefix, in.slice[slot], in.length[slot]);
      bool go_on = true;
      arena_->memory().loads(arena_->classes().node, at + offsetof(Leaf, value) + slot * 8, 8);
      if (in.length[slot] == layer) {
        go_on =
            scan_layer(in.value[slot], prefix,
                       same && from.size() > 8 ? from.substr(8) : std::string_view{}, visit, pass);
      } else {
        if (in.length[slot] == longer) prefix += suffix(in, slot, true);
        if (!same || std::string_view{prefix}.substr(above) >= from)
          go_on = visit(prefix, in.value[slot]);
      }
      prefix.resize(above);
      if (!go_on) return false;
    }
  }
  return true;
}

}  // namespace tt::kernels
