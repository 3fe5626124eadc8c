// SPDX-License-Identifier: MIT

// Moves pages between the tiers, in the time that its threads have.
//
// It takes what waits in the queue (MoveQueue) into flight (Flights) as far as there is time for it
// (MoverTime), has huge pages split and collapsed before that (Reshapes), and tells the policy what
// has become of it all (MoveResults).
//
// How pages are copied is the policy's choice (Movers). A move that a faulting thread makes itself
// (Way::in_fault) takes that thread's time and none of the movers'.
#pragma once

#include <cstdint>
#include <span>

#include "core/seam.hpp"
#include "sim/flights.hpp"
#include "sim/interference.hpp"
#include "sim/ledger.hpp"
#include "sim/move_results.hpp"
#include "sim/mover_time.hpp"
#include "sim/moves.hpp"
#include "sim/pages.hpp"
#include "sim/profile.hpp"
#include "sim/reshapes.hpp"
#include "sim/timing.hpp"

namespace tt::sim {

class Mover {
 public:
  /// `scale` real pages move for each simulated one.
  Mover(PageTable& pages, Ledger& ledger, const MachineProfile& profile, double scale,
        std::uint64_t seed);

  /// As Memory::set_movers, for the moves that start from now on.
  void set(const Movers& movers);
  /// As Memory::request and Memory::pending.
  std::size_t request(Tier to, std::span<const PageId> pages);
  [[nodiscard]] std::uint64_t pending(Tier to) const {
    return queue_.pending(to) + flights_.pending(to);
  }
  /// As Memory::reshape.
  std::size_t reshape(Change to, std::span<const PageId> units);
  /// Moves a page at once, by the thread that faulted on it; returns the time that this takes all
  /// of the real pages, or 0 if it does not move. No processor holds the translation of a page that
  /// has been protected, unless the fault makes it accessible before it moves: `mapped_first`.
  double move_in_fault(PageId page, Tier to, bool mapped_first);

  /// The border of two blocks: what has been copied has arrived, and the policy is told.
  void finish(double now_ns, Policy& policy);
  /// Pages that are about to vanish: those that are queued or in flight are gone.
  void forget(PageRange range);
  /// A unit that is about to be unmapped in part: it does not move any more, and is split at once,
  /// in the time of whoever unmaps.
  void cut(PageRange unit);
  /// Goes on with the moves under way and starts those behind them, as far as the time of a block
  /// that is expected to last so long allows. This is its threads' time (without any, what the
  /// tiering thread had left in the last block, scaled to this one) and what earlier blocks left
  /// over.
  void start(double expected_ns, double idle_share, const Load& load);
  /// So many accesses of this block go to the page, which is copied, protected or has a shadow.
  /// Returns whether they fault, because there is a shadow to let go.
  bool touch(std::uint64_t page, AccessKind kind, std::uint64_t count);
  /// In a block that has been played: its next `part` has passed, and what has been asked for
  /// meanwhile goes on; a move takes effect when it is over. A transactional copy of a page whose
  /// stores in this block were not counted waits for the next one. `left_ns` as in settle(), until
  /// now. The application feels all of it in the next block.
  void go_on(double part, double block_ns, double left_ns, double now_ns, Policy& policy);
  /// After the block, when its length and what the tiering thread has left of it are known.
  void settle(double block_ns, double left_ns);

  [[nodiscard]] bool any_in_flight() const { return !flights_.empty(); }
  /// Whether copies could turn out void in this run.
  [[nodiscard]] bool transactional() const { return transactional_; }
  /// How long a real page or unit is away on its way to the tier.
  [[nodiscard]] double away_ns(MoveSize size, Tier to) const { return flights_.away_ns(size, to); }
  /// Share of the real pages behind those in flight toward the tier that move in this block.
  [[nodiscard]] double moving_share(MoveSize size, Tier to) const {
    const std::uint64_t flights = flights_.toward(size, to);
    return flights == 0 ? 0 : moved_.copied.of(size, to) / static_cast<double>(flights);
  }
  /// Adds what this block's moves, and its work in the last one, cost the application.
  void disturb(Interference& out);

  /// For assertions.
  [[nodiscard]] bool consistent() const { return queue_.consistent() && flights_.consistent(); }

 private:
  [[nodiscard]] double pages_at_a_time() const {
    return static_cast<double>(movers_.threads) / movers_.together;
  }
  bool begin(const Move& asked, Moved& moved);

  PageTable& pages_;
  Ledger& ledger_;
  const double scale_;
  Movers movers_;
  bool transactional_ = false;  // at any time
  MoveResults results_;
  MoveQueue queue_;
  Flights flights_;
  Reshapes reshapes_;
  MoverTime time_;
  Moved moved_;       // in this block, which is played with it
  Moved moved_late_;  // after the last one had been played
};

}  // namespace tt::sim
