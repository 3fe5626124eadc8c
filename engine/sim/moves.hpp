// SPDX-License-Identifier: MIT

// Page moves that have been asked for, and the queue in which they wait.
//
// The queue is first in, first out, both directions in one order, and bounded. It knows neither the
// machine nor who moves the pages: who asks tells it where a page is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "core/assert.hpp"
#include "core/types.hpp"
#include "sim/page_bits.hpp"

namespace tt::sim {

/// What moves at a time: a page, or a huge page of mixed sizes.
enum class MoveSize : std::uint8_t { page, unit };
inline constexpr std::array move_sizes{MoveSize::page, MoveSize::unit};
[[nodiscard]] constexpr MoveSize move_size(std::uint64_t pages) {
  return pages > 1 ? MoveSize::unit : MoveSize::page;
}

struct Move {
  PageId page;  // the first of a unit
  Tier to = Tier::fast;
  std::uint64_t pages = 1;  // of the unit, when it was asked for
  [[nodiscard]] MoveSize size() const { return move_size(pages); }
};

/// A value for each kind of move: by the size of what moves, and by the tier that it goes to.
template <typename T>
class ByMove {
 public:
  [[nodiscard]] T& of(MoveSize size, Tier to) {
    return values_[static_cast<std::size_t>(size)][index(to)];
  }
  [[nodiscard]] const T& of(MoveSize size, Tier to) const {
    return values_[static_cast<std::size_t>(size)][index(to)];
  }
  [[nodiscard]] T& of(const Move& move) { return of(move.size(), move.to); }
  [[nodiscard]] const T& of(const Move& move) const { return of(move.size(), move.to); }

 private:
  std::array<std::array<T, tier_count>, move_sizes.size()> values_{};
};

class MoveQueue {
 public:
  enum class Answer : std::uint8_t {
    queued,
    dropped,  // the page will be there anyway
    full,     // it would have been queued
  };

  /// At most `limit` moves, of pages whose numbers are less than `pages`.
  MoveQueue(std::uint64_t limit, std::uint64_t pages)
      : limit_(limit), queued_{PageBits{pages}, PageBits{pages}} {}

  /// `next`: where the page is, or will be when a move that is under way has ended. What is queued
  /// for it comes after that.
  Answer ask(const Move& move, Tier next) {
    if (queued(move)) return Answer::dropped;
    if (queued_[index(other(move.to))].test(move.page.value)) next = other(move.to);
    if (next == move.to) return Answer::dropped;
    if (moves_.size() >= limit_) return Answer::full;
    moves_.push_back(move);
    pending_[index(move.to)] += move.pages;
    queued_[index(move.to)].set(move.page.value);
    return Answer::queued;
  }

  [[nodiscard]] bool empty() const { return moves_.empty(); }
  /// Pages that wait to move to the tier.
  [[nodiscard]] std::uint64_t pending(Tier to) const { return pending_[index(to)]; }
  [[nodiscard]] const Move& front() const { return moves_.front(); }
  Move pop() {
    TT_ASSERT(!moves_.empty());
    const Move first = moves_.front();
    taken(first);
    moves_.pop_front();
    return first;
  }
  /// Takes out the moves for which `gone` says so, in order.
  template <typename Gone>
  void remove_if(Gone gone) {
    std::erase_if(moves_, [&](const Move& move) {
      if (!gone(move)) return false;
      taken(move);
      return true;
    });
  }
  /// Takes out the moves of these pages, in order, and tells of each.
  template <typename Tell>
  void forget(PageRange range, Tell tell) {
    bool any = false;
    for (const PageBits& queued : queued_)
      any = any || queued.count(range.first.value, range.count) > 0;
    if (!any) return;
    remove_if([&](const Move& move) {
      if (!range.contains(move.page)) return false;
      tell(move);
      return true;
    });
  }

  /// Bits and sums are those of the moves that wait. For assertions.
  [[nodiscard]] bool consistent() const {
    std::array<std::uint64_t, tier_count> pending{}, moves{};
    for (const Move& move : moves_) {
      if (!queued(move)) return false;
      pending[index(move.to)] += move.pages;
      ++moves[index(move.to)];
    }
    for (const Tier to : {Tier::fast, Tier::slow})
      if (queued_[index(to)].count() != moves[index(to)]) return false;
    return pending == pending_ && moves_.size() <= limit_;
  }

 private:
  [[nodiscard]] bool queued(const Move& move) const {
    return queued_[index(move.to)].test(move.page.value);
  }
  void taken(const Move& move) {
    TT_ASSERT(queued(move) && pending_[index(move.to)] >= move.pages);
    pending_[index(move.to)] -= move.pages;
    queued_[index(move.to)].clear(move.page.value);
  }

  std::uint64_t limit_;
  std::deque<Move> moves_;
  std::array<PageBits, tier_count> queued_;  // toward each tier
  std::array<std::uint64_t, tier_count> pending_{};
};

}  // namespace tt::sim
