// Moves pages between the tiers.
//
// It owns the queue of requests, the pages in flight, the results that the policy has yet to see,
// and its threads' time. A simulated page stands for R real ones, which move one after the other:
// each is away for a while, which the lanes feel (Interference), and all of them may take longer
// than a block. The move takes effect at the border that follows its end. Where a page is stands in
// the page table; the mover changes it there.
//
// Where page sizes are mixed, a unit of 512 pages moves as one, and its threads split and collapse
// units as well, at once and one after the other.
//
// How pages are copied is the policy's choice (Movers). A move that a faulting thread makes itself
// (Way::in_fault) takes that thread's time and none of the movers'.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/rng.hpp"
#include "core/seam.hpp"
#include "sim/gather.hpp"
#include "sim/interference.hpp"
#include "sim/ledger.hpp"
#include "sim/moves.hpp"
#include "sim/pages.hpp"
#include "sim/profile.hpp"
#include "sim/timing.hpp"

namespace tt::sim {

/// Probability that a store hits a page while it is copied, which takes `share` of the block, if
/// the page gets so many stores in the block, spread evenly.
[[nodiscard]] double abort_probability(double share, std::uint64_t stores);

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
    return queue_.pending(to) + moving_to_[0][index(to)] +
           moving_to_[1][index(to)] * PageTable::unit_pages;
  }
  /// As Memory::reshape.
  std::size_t reshape(Change to, std::span<const PageId> units);
  /// Moves a page at once, by the thread that faulted on it; returns the time that this takes all
  /// of the real pages, or 0 if it does not move.
  double move_in_fault(PageId page, Tier to);

  /// The border of two blocks: what has been copied has arrived, and the policy is told.
  void finish(double now_ns, Policy& policy);
  /// Pages that are about to vanish: those that are queued or in flight are gone.
  void forget(PageRange range);
  /// A unit that is about to be unmapped in part: it does not move any more.
  void cancel(PageRange unit);
  /// And it is split at once, in the time of whoever unmaps.
  void split_at_once(PageRange unit);
  /// Goes on with the moves under way and starts those behind them, as far as the time of a block
  /// that is expected to last so long allows. This is its threads' time (without any, what the
  /// tiering thread had left in the last block, scaled to this one) and what earlier blocks left
  /// over.
  void start(double expected_ns, double idle_share, const Load& load);
  /// So many accesses of this block go to the page, which is copied, protected or has a shadow.
  /// Returns whether they fault, because there is a shadow to let go.
  bool accessed(std::uint64_t page, AccessKind kind, std::uint64_t count);
  /// In a block that has been played: its next `part` has passed, and what has been asked for
  /// meanwhile goes on; a move takes effect when it is over. A transactional copy of a page whose
  /// stores in this block were not counted waits for the next one. `left_ns` as in settle(), until
  /// now. The application feels all of it in the next block.
  void go_on(double part, double block_ns, double left_ns, double now_ns, Policy& policy);
  /// After the block, when its length and what the tiering thread has left of it are known.
  void settle(double block_ns, double left_ns);

  [[nodiscard]] bool any_in_flight() const { return !in_flight_.empty(); }
  /// Whether copies could turn out void in this run.
  [[nodiscard]] bool transactional() const { return transactional_; }
  /// How long a real page is away on its way to the tier.
  [[nodiscard]] double away_ns(Tier to, std::size_t size = 0) const {
    return move_ns_[size][index(to)];
  }
  /// Share of the real pages behind those in flight toward the tier that move in this block.
  [[nodiscard]] double moving_share(Tier to, std::size_t size = 0) const {
    const std::uint64_t pages = moving_to_[size][index(to)];
    return pages == 0 ? 0 : moved_now_[size][index(to)] / static_cast<double>(pages);
  }
  /// Adds what this block's moves, and its work in the last one, cost the application.
  void disturb(Interference& out);

 private:
  struct InFlight {
    Move move;
    Movers how;
    bool in_fault = false;
    bool remap = false;    // to its shadow: nothing is copied
    double left = 1;       // share of its real pages that still have to move
    unsigned retries = 0;  // that are left
    [[nodiscard]] std::size_t size() const { return move.pages > 1 ? 1 : 0; }
  };
  void price(const Load& load);
  [[nodiscard]] double pages_at_a_time() const {
    return static_cast<double>(movers_.threads) / movers_.together;
  }
  void report(const Move& move, Outcome outcome);
  void reshape_units(double budget_ns);
  void tell(double now_ns, Policy& policy);
  bool begin(const Move& asked, double budget_ns);
  bool depart(PageId page, Tier to, bool in_fault);
  bool copy(InFlight& moving, double budget_ns);
  bool over(InFlight& moving, double now_ns);
  [[nodiscard]] double each_ns(const InFlight& moving) const;
  void drop_shadow(std::uint64_t page);

  PageTable& pages_;
  Ledger& ledger_;
  const MachineProfile& profile_;
  const double scale_;
  Rng rng_;
  Movers movers_;
  bool transactional_ = false;  // at any time
  MoveQueue queue_;
  std::array<PageBits, tier_count> queued_;  // toward each tier
  // By the size of what moves, a page or a unit of mixed pages, and by target.
  template <typename T>
  using BySize = std::array<std::array<T, tier_count>, 2>;
  BySize<double> move_ns_{};  // of one real page or unit in this block
  // Time of a page's last move + 1; 0: never. From calloc: most pages never move, and the operating
  // system gives memory only to the parts that are written.
  struct Free {
    void operator()(std::uint32_t* array) const { std::free(array); }
  };
  std::unique_ptr<std::uint32_t[], Free> moved_at_ms_;

  std::vector<InFlight> in_flight_;
  BySize<std::uint64_t> moving_to_{};
  BySize<double> moved_now_{};   // of these, copied in this block
  double remapped_now_ = 0;      // likewise, without a copy
  BySize<double> moved_late_{};  // after the block had been played
  double remapped_late_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> stores_;  // by page, while they are copied
  std::deque<std::pair<Change, PageId>> reshapes_;
  double reshaped_now_ = 0, collapsed_now_[tier_count] = {};  // in this block
  std::vector<MigrationResult> results_;                      // for the next border
  std::vector<MigrationResult> delivered_;                    // being read by the policy
  double credit_ns_ = 0;   // time that it has left, or is ahead by
  double used_ns_ = 0;     // for the moves of the current block
  double granted_ns_ = 0;  // for them until now, in a block that has been played
  double wasted_ns_ = 0;   // of these, while there was nothing to do
  bool idle_ = true;       // in it, for a part at least
  double worked_ns_ = 0;   // for those of the last one
  double block_ns_ = 0;    // of the last block in which time went on
};

}  // namespace tt::sim
