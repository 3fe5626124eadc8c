// SPDX-License-Identifier: MIT

// Checks of a Masstree's order, links and versions, for tests: they are no part of any stream.
#include "kernels/masstree.hpp"

#include <optional>
#include <string>
#include <vector>

#include "kernels/masstree_layout.hpp"

namespace tt::kernels {

using namespace masstree;

void Masstree::check(Address at, Address parent, std::optional<std::uint64_t> low,
                     std::optional<std::uint64_t> high, std::vector<Address>& leaves,
                     std::string& wrong) const {
  const auto in_range = [&](std::uint64_t slice) {
    return (!low || slice >= *low) && (!high || slice < *high);
  };
  if (is_leaf(at)) {
    const Leaf& in = leaf(at);
    leaves.push_back(at);
    if (in.parent != parent) wrong += "leaf's parent; ";
    const Permutation order{in.permutation};
    std::uint64_t used = 0;
    for (std::uint64_t i = 0; i < width; ++i) used |= 1u << order.slot(i);
    if (used != 0x7fff) wrong += "permutation; ";
    for (std::uint64_t i = 0; i < order.count(); ++i) {
      const std::uint64_t slot = order.slot(i);
      if (!in_range(in.slice[slot])) wrong += "slice out of its range; ";
      if (in.length[slot] == layer) check_layer(in.value[slot], wrong);
    }
    return;
  }
  const Inner& inner = arena_->memory().peek<Inner>(at);
  if (inner.parent != parent) wrong += "inner's parent; ";
  for (std::uint64_t i = 0; i <= inner.count; ++i) {
    if (i < inner.count && !in_range(inner.slice[i])) wrong += "inner slice; ";
    check(inner.child[i], at, i > 0 ? std::optional{inner.slice[i - 1]} : low,
          i < inner.count ? std::optional{inner.slice[i]} : high, leaves, wrong);
  }
}

void Masstree::check_layer(Address root, std::string& wrong) const {
  std::vector<Address> leaves;
  check(root, none, std::nullopt, std::nullopt, leaves, wrong);
  for (std::size_t i = 0; i < leaves.size(); ++i)
    if (leaf(leaves[i]).previous != (i > 0 ? leaves[i - 1] : none) ||
        leaf(leaves[i]).next != (i + 1 < leaves.size() ? leaves[i + 1] : none))
      wrong += "chain of leaves; ";
}

std::string Masstree::inconsistency() const {
  std::string wrong;
  check_layer(root_, wrong);
  std::string last;
  std::uint64_t count = 0;
  scan("", [&](std::string_view key, std::uint64_t) {
    if (count++ > 0 && key <= last) wrong += "order of keys; ";
    last = key;
    return true;
  });
  if (count != size_) wrong += "size; ";
  return wrong;
}

}  // namespace tt::kernels
