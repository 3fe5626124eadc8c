// SPDX-License-Identifier: MIT

// Chains: lists of small numbers (page_index.hpp), each number on at most one of them, linked in
// flat arrays: every move is O(1).
#pragma once

#include <cstdint>
#include <vector>

#include "core/assert.hpp"
#include "track/page_index.hpp"

namespace tt::track {

class Chains {
 public:
  static constexpr std::uint32_t none = PageIndex::none;
  static constexpr std::uint8_t off = 0xff;  // the chain of a number that is on none

  /// Fewer than 255 chains.
  explicit Chains(std::size_t chains) : ends_(chains) {}
  /// Room for all numbers below.
  void resize(std::uint32_t numbers) {
    links_.resize(numbers);
    chain_.resize(numbers, off);
  }

  [[nodiscard]] std::uint8_t chain(std::uint32_t i) const { return chain_[i]; }
  [[nodiscard]] std::uint32_t head(std::size_t chain) const { return ends_[chain].head; }
  [[nodiscard]] std::uint32_t tail(std::size_t chain) const { return ends_[chain].tail; }
  [[nodiscard]] std::uint64_t size(std::size_t chain) const { return ends_[chain].size; }
  /// The next one toward the head.
  [[nodiscard]] std::uint32_t before(std::uint32_t i) const { return links_[i].before; }

  /// To the head or the tail of a chain, off the one where it was.
  void to_head(std::uint32_t i, std::uint8_t chain) {
    TT_ASSERT(i < chain_.size() && chain < ends_.size());
    take_off(i);
    Ends& to = ends_[chain];
    links_[i] = {none, to.head};
    (to.head == none ? to.tail : links_[to.head].before) = i;
    to.head = i;
    ++to.size;
    chain_[i] = chain;
  }
  void to_tail(std::uint32_t i, std::uint8_t chain) {
    TT_ASSERT(i < chain_.size() && chain < ends_.size());
    take_off(i);
    Ends& to = ends_[chain];
    links_[i] = {to.tail, none};
    (to.tail == none ? to.head : links_[to.tail].after) = i;
    to.tail = i;
    ++to.size;
    chain_[i] = chain;
  }
  void take_off(std::uint32_t i) {
    if (chain_[i] == off) return;
    Ends& from = ends_[chain_[i]];
    const auto [before, after] = links_[i];
    TT_ASSERT(from.size > 0);
    TT_ASSERT((before == none ? from.head : links_[before].after) == i);
    TT_ASSERT((after == none ? from.tail : links_[after].before) == i);
    (before == none ? from.head : links_[before].after) = after;
    (after == none ? from.tail : links_[after].before) = before;
    --from.size;
    chain_[i] = off;
  }

  /// Whether every chain has as many numbers as it says, all of them its own, linked both ways.
  [[nodiscard]] bool consistent() const {
    std::uint64_t linked = 0;
    for (std::size_t chain = 0; chain < ends_.size(); ++chain) {
      std::uint64_t size = 0;
      std::uint32_t before = none;
      for (std::uint32_t i = ends_[chain].head; i != none; i = links_[i].after) {
        if (chain_[i] != chain || links_[i].before != before || ++size > ends_[chain].size)
          return false;
        before = i;
      }
      if (size != ends_[chain].size || ends_[chain].tail != before) return false;
      linked += size;
    }
    std::uint64_t on = 0;
    for (const std::uint8_t chain : chain_) on += chain != off;
    return on == linked;
  }

 private:
  struct Ends {
    std::uint32_t head = none, tail = none;
    std::uint64_t size = 0;
  };
  struct Links {
    std::uint32_t before = none, after = none;
  };
  std::vector<Links> links_;
  std::vector<std::uint8_t> chain_;
  std::vector<Ends> ends_;
};

}  // namespace tt::track
