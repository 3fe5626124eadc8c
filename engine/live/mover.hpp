// SPDX-License-Identifier: MIT

// Mover: the queue of moves that the policy has asked for, and move_pages(2), which carries them
// out in batches. What Linux does with a batch, and so what is done here:
//
//  - A page costs ever less the more of them one call moves, and much more when a call's targets
//    alternate: calls are of one target, and of all that can be had up to a limit.
//  - A huge page moves whole by any one of its addresses: it is named once. A page that is in its
//    tier already is left out.
//  - Small pages become a huge one at any time: right before they go up, it is asked whether they
//    have, and they wait for the next look then.
//  - A huge page of which a process maps parts alone moves whole with any of them: room is kept for
//    all of its block, and it is asked what has moved.
//  - A page that is pinned ends the reporting: the call returns how many it did not tell of, and
//    leaves the statuses behind that page unwritten while it moves their pages. So statuses are
//    filled with a value that the kernel never writes, and after anything but success it is asked
//    again where the pages are.
//  - A full node ends the call with ENOMEM, or is made room on by demoting the pages of strangers:
//    nothing is sent where there is no room, and after ENOMEM the tier counts as full for a while,
//    each time twice as long.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/moves.hpp"
#include "core/types.hpp"
#include "live/blocks.hpp"
#include "live/kernel_calls.hpp"
#include "live/nodes.hpp"

namespace tt::live {

/// The kernel refuses what a live engine cannot do without. Says what, and what would allow it.
class NotAllowed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct MoveCounts {
  std::uint64_t calls = 0;                        // of move_pages that moved, or were meant to
  std::uint64_t queries = 0;                      // that asked where pages are
  std::array<std::uint64_t, tier_count> moved{};  // pages, by the tier that they went to
  std::map<int, std::uint64_t> failed;            // pages, by errno; EBUSY where it is not told
  std::uint64_t no_room = 0;                      // pages that were not tried
  std::uint64_t held = 0;                         // pages not tried: refused lately, or huge now
  std::uint64_t gone = 0;
  std::uint64_t unreported = 0;  // statuses that the kernel left unwritten
  Nanos busy{};                  // inside these calls
  Nanos longest{};               // call

  MoveCounts& operator+=(const MoveCounts& other);
};

class Mover {
 public:
  struct Options {
    std::size_t most_queued = 1 << 20;  // units
    std::size_t batch = 4096;           // pages in a call; 512 and more are about as cheap
    double spare = 0.01;                // of a node, which stays free
    Nanos first_wait = from_millis(10), longest_wait = from_millis(1000);  // after ENOMEM
    // A page that is pinned, or that strangers share, stays so for a while: it is not tried again.
    Nanos first_hold = from_millis(500), longest_hold = from_seconds(60);
  };

  /// Between two tiers: the fast one is of this level, the slow one of the next.
  Mover(KernelCalls& kernel, const Nodes& nodes, Level fast, Blocks& blocks,
        const Options& options);

  /// Where a page of this level is, of these two tiers: absent if it is in another.
  [[nodiscard]] Residency residency(Level level) const {
    const auto below = static_cast<std::size_t>(level) - fast_;
    return level != nowhere && below < tier_count ? static_cast<Residency>(below)
                                                  : Residency::absent;
  }
  [[nodiscard]] Level level(Tier tier) const { return static_cast<Level>(fast_ + index(tier)); }
  /// Pages of a node that may be taken: what is spared is not free for anybody.
  [[nodiscard]] std::uint64_t usable(const NodePages& pages) const;

  /// As Memory::request and Memory::pending.
  std::size_t request(Tier to, std::span<const PageId> pages);
  [[nodiscard]] std::uint64_t pending(Tier to) const { return pending_[index(to)]; }
  /// Blocks that are not known any more: what waits for their pages is never reported.
  void forget(std::span<const PageRange> blocks);

  /// Moves the pages at the front of the queue that go one way, a batch of them at most, as far as
  /// `room` pages of that tier allow; results join `out`. Returns whether anything waited.
  /// NotAllowed when there is no use in going on.
  bool step(Nanos now, const std::function<std::uint64_t(Tier)>& room,
            std::vector<MigrationResult>& out);
  /// Asks where these known pages are. Those of which nothing can be said stay where they were.
  /// Returns an errno; ESRCH when their process has ended.
  int locate(std::span<const PageId> pages);
  /// Asks again for pages of which a move's outcome is not known because the kernel did not answer:
  /// they count as fast until then, so that no budget is exceeded by them.
  void settle_doubtful();

  [[nodiscard]] const MoveCounts& counts() const { return counts_; }
  /// A value that no kernel writes as a status.
  static constexpr int unwritten = -100000;

 private:
  struct Ask {
    PageId page;  // the first of a unit
    Tier to = Tier::fast;
    std::uint64_t pages = 1;  // of the unit, when it was asked for
  };
  /// What one call moves.
  struct Call {
    int pid = 0;
    std::vector<PageId> pages;
    std::vector<std::uint64_t> addresses;
    std::vector<int> statuses, answers;  // of the move; of the question after it, if there was one
    std::uint64_t amount = 0;            // pages in all units
    long result = 0;
  };

  void took(const Ask& ask);
  [[nodiscard]] std::vector<Call> take(Tier to, std::uint64_t room, Nanos now,
                                       std::vector<MigrationResult>& out);
  [[nodiscard]] std::vector<PageId> populated(PageId block) const;
  void leave_out_grown(Call& call, Tier to, std::vector<MigrationResult>& out);
  void look_at_parts(const Call& call, Tier to);
  void hold(PageId page, Nanos now);
  struct Target {
    int node = -1;
    std::uint64_t room = 0;  // pages
  };
  [[nodiscard]] Target target(Tier to, std::uint64_t amount);
  void leave_out_last(Call& call, Tier to, std::uint64_t room, std::vector<MigrationResult>& out);
  void make(Call& call, Tier to, Nanos now, std::vector<MigrationResult>& out);
  [[nodiscard]] Outcome outcome(const Call& call, std::size_t at, Tier to, Nanos now);
  void failed(int error, std::uint64_t pages) { counts_.failed[error] += pages; }

  [[nodiscard]] Residency at(PageId page) const { return residency(blocks_.at(page)); }

  KernelCalls& kernel_;
  const Nodes& nodes_;
  const Level fast_;
  Blocks& blocks_;
  const Options options_;
  std::deque<Ask> queue_;
  std::array<std::unordered_set<PageId>, tier_count> asked_;  // what waits to go to each tier
  std::array<std::uint64_t, tier_count> pending_{};
  std::vector<PageId> doubtful_;
  struct Hold {
    Nanos until{}, wait{};
  };
  std::unordered_map<PageId, Hold> held_;
  std::array<Nanos, tier_count> full_until_{}, wait_{};
  MoveCounts counts_;
};

}  // namespace tt::live
