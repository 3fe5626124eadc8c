// The queue of page moves: first in, first out, both directions in one order, bounded.
#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "core/types.hpp"

namespace tt::sim {

struct Move {
  PageId page;  // the first of a unit
  Tier to = Tier::fast;
  std::uint64_t pages = 1;  // of the unit, when it was asked for
};

class MoveQueue {
 public:
  explicit MoveQueue(std::uint64_t limit) : limit_(limit) {}
  [[nodiscard]] bool empty() const { return moves_.empty(); }
  [[nodiscard]] bool full() const { return moves_.size() >= limit_; }
  [[nodiscard]] std::uint64_t pending(Tier to) const { return pending_[index(to)]; }
  [[nodiscard]] const Move& front() const { return moves_.front(); }
  void push(Move move) {
    moves_.push_back(move);
    pending_[index(move.to)] += move.pages;
  }
  void pop() {
    pending_[index(moves_.front().to)] -= moves_.front().pages;
    moves_.pop_front();
  }
  /// Takes out the moves for which `gone` says so, in order.
  template <typename Gone>
  void remove_if(Gone gone) {
    std::erase_if(moves_, [&](const Move& move) {
      if (!gone(move)) return false;
      pending_[index(move.to)] -= move.pages;
      return true;
    });
  }

 private:
  std::uint64_t limit_;
  std::deque<Move> moves_;
  std::array<std::uint64_t, tier_count> pending_{};
};

}  // namespace tt::sim
