// SPDX-License-Identifier: MIT

// Moves under way, from the slot that is taken for a page to its arrival.
//
// A simulated page stands for R real ones, which move one after the other: each is away for a
// while, and all of them may take longer than a block. The move takes effect at the border that
// follows its end. Where a page is stands in the page table; flights change it there. They keep
// what their copies need to know of the block: what a move costs, and the stores under
// transactional copies. The shadows that promotions leave behind are theirs, too.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/rng.hpp"
#include "core/seam.hpp"
#include "sim/last_moves.hpp"
#include "sim/ledger.hpp"
#include "sim/move_results.hpp"
#include "sim/mover_time.hpp"
#include "sim/moves.hpp"
#include "sim/pages.hpp"
#include "sim/profile.hpp"
#include "sim/timing.hpp"

namespace tt::sim {

/// Probability that a store hits a page while it is copied, which takes `share` of the block, if
/// the page gets so many stores in the block, spread evenly.
[[nodiscard]] double abort_probability(double share, std::uint64_t stores);

/// How much has moved, in simulated pages or units: what is under way counts in part.
struct Moved {
  ByMove<double> copied;
  double remapped = 0;  // to their shadows, without a copy
  double flushed = 0;   // of either, with a shootdown
  Moved& operator+=(const Moved& more);
};

struct Flight {
  Move move;
  Movers how;
  bool in_fault = false;
  bool remap = false;    // to its shadow: nothing is copied
  bool flush = true;     // processors may hold its translation: a shootdown is due
  double left = 1;       // share of its real pages that still have to move
  unsigned retries = 0;  // that are left
  /// A copy that may turn out void, or will stay behind as a shadow, keeps its slot until the end.
  [[nodiscard]] bool keeps_slot() const {
    return how.copy == Copy::transactional || (move.to == Tier::fast && how.shadows);
  }
};

class Flights {
 public:
  /// `scale` real pages move for each simulated one.
  Flights(PageTable& pages, Ledger& ledger, MoveResults& results, const MachineProfile& profile,
          double scale, std::uint64_t seed);

  [[nodiscard]] bool empty() const { return flights_.empty(); }
  /// Pages under way to the tier.
  [[nodiscard]] std::uint64_t pending(Tier to) const {
    return toward_.of(MoveSize::page, to) + toward_.of(MoveSize::unit, to) * PageTable::unit_pages;
  }
  /// Pages or units.
  [[nodiscard]] std::uint64_t toward(MoveSize size, Tier to) const { return toward_.of(size, to); }
  /// How long a real page or unit is away on its way to the tier.
  [[nodiscard]] double away_ns(MoveSize size, Tier to) const { return move_ns_.of(size, to); }
  /// What a move costs in this block, also one in a fault after it.
  void price(const Load& load, const Movers& movers);

  /// Puts a page into flight if there is room where it goes, which is reported if not. Valid until
  /// the next call. A page whose access rights have been taken away needs no shootdown: that was
  /// done with them, and Linux leaves it out (mm/pgtable-generic.c: ptep_clear_flush, for an entry
  /// that is not pte_accessible).
  Flight* depart(PageId page, Tier to, const Movers& movers, bool in_fault);
  /// What the move takes of all real pages behind the simulated one.
  [[nodiscard]] double all_ns(const Flight& flight) const;
  /// Moves as many of the real pages as there is time for, which are added to `moved`; says whether
  /// all of them have moved.
  bool copy(Flight& flight, MoverTime& time, Moved& moved);
  /// All flights that have not ended; in a block that has been `played`, without those that wait.
  bool copy(MoverTime& time, Moved& moved, bool played);
  /// In a block that has been played: a transactional copy of a page whose stores in it were not
  /// counted waits for the next one.
  [[nodiscard]] bool waits(PageId page, const Movers& how) const {
    return how.copy == Copy::transactional && !stores_.contains(page.value);
  }
  /// What has been copied whole arrives, unless a store has made it void; what waits does so in a
  /// block that has been `played` only.
  void land(double now_ns, bool played);

  /// So many stores of this block go to the page; whether it will be copied is not known yet.
  void count_stores(std::uint64_t page, std::uint64_t stores) { stores_[page] += stores; }
  /// A page is written to; says whether it had a shadow to let go.
  bool let_go_of_shadow(std::uint64_t page);
  /// The block that they belong to, and its stores, are over.
  void next_block() { stores_.clear(); }
  void last_block(double block_ns) {
    if (block_ns > 0) block_ns_ = block_ns;
  }

  /// Pages that are about to vanish.
  void forget(PageRange range);
  /// A unit that is about to be unmapped in part stays where it is.
  void cancel(PageRange unit);

  /// Counts are those of the flights, whose pages are armed as such in the page table, and the
  /// slots that they have make up, with those of the other pages and of shadows, what the tiers
  /// have in use. For assertions.
  [[nodiscard]] bool consistent() const;

 private:
  bool over(Flight& flight, double now_ns);
  bool voided(Flight& flight);
  void arrive(const Flight& flight, double now_ns);
  void ended(const Flight& flight);

  PageTable& pages_;
  Ledger& ledger_;
  MoveResults& results_;
  const MachineProfile& profile_;
  const double scale_;
  Rng rng_;
  LastMoves last_moves_;
  std::vector<Flight> flights_;
  ByMove<std::uint64_t> toward_;
  ByMove<double> move_ns_;  // of one real page or unit in this block
  std::unordered_map<std::uint64_t, std::uint64_t> stores_;  // by page, in this block
  double block_ns_ = 0;  // of the last block in which time went on
};

}  // namespace tt::sim
