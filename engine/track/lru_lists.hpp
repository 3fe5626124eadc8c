// SPDX-License-Identifier: MIT

// LruLists: the page lists of a kernel, for each tier an inactive, an active and, if wanted, a
// promote list. Accessed bits move pages along them.
//
// A page enters at the head of its tier's inactive list when it is found to be there. It is aged
// at the tail: its accessed bit is read and cleared, and it goes to the head of some list. The
// kernel's rule is that of two touches (mm/swap.c, mark_page_accessed; mm/vmscan.c,
// folio_check_references):
//
//     inactive, unreferenced  --accessed-->  inactive, referenced  --accessed-->  active
//     inactive, not accessed  -->  a victim of reclaim
//     active, at the tail     -->  inactive, accessed or not
//
// A policy tells of mapped and unmapped ranges, and of pages that have moved:
//
//     LruLists lists(memory, mebibytes);         // see the constructor
//     lists.map(range); lists.unmap(range);      // in on_map(), on_unmap()
//     lists.find_new();                          // now and then: pages touched since
//     lists.moved(page, to);                     // in on_migrated(), for Outcome::done
//     lists.mark_accessed(page);                 // seen by other means, as in a hint fault
//     lists.scan(tier, List::active, 1000, [&](PageId page, bool accessed) { return List::...; });
//     lists.age_inactive(tier, budget, wanted, victims); lists.age_active(tier, budget);
//     if (lists.is_low(inactive, active)) lists.deactivate(tier, 32);
//
// Moves are O(1): lists are linked by numbers in flat arrays. Looking at a page's accessed bit is
// charged as Work::lru_step. Kernels have the lists in struct page, so this is no metadata of a
// system.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/seam.hpp"
#include "track/chains.hpp"
#include "track/found_pages.hpp"

namespace tt::track {

class LruLists {
 public:
  enum class List : std::uint8_t { inactive, active, promote };
  static constexpr std::size_t list_count = 3;

  /// The kernel keeps sqrt(10 * GiB on both lists) active pages for each inactive one, 1 below one
  /// GiB (inactive_is_low). `gib_in_mebibytes` is that GiB: a knob, 1024 times the share of the
  /// system that is simulated.
  LruLists(Memory& memory, double gib_in_mebibytes);

  void map(PageRange range);
  void unmap(PageRange range);
  [[nodiscard]] bool contains(PageId page) const { return index().contains(page); }
  /// Looks for pages that were touched since they were mapped, in the whole of what is mapped, or a
  /// part of about `share` of it; they go to the heads of the inactive lists in order of addresses.
  /// Not charged: a kernel knows.
  void find_new(double share = 1);

  /// The page is there, as a fault tells: it enters, unless it has before.
  void found(PageId page, Tier tier);

  // What is known of a page.
  [[nodiscard]] bool on(List list, PageId page) const;
  [[nodiscard]] bool referenced(PageId page) const;
  [[nodiscard]] std::uint64_t size(Tier tier, List list) const {
    return chains_.size(chain_of(tier, list));
  }
  /// Oldest of the list.
  [[nodiscard]] std::optional<PageId> tail(Tier tier, List list) const;

  // Moves. Of a page that is not mapped, or has not been seen yet: nothing. A page that goes to
  // another list is unreferenced there.
  /// An access that the caller knows of: the rule of two touches. Active pages become referenced.
  void mark_accessed(PageId page);
  /// To the head of a list of its tier.
  void put(PageId page, List list);
  /// The page is in that tier now: at the head of the list of the same kind.
  void moved(PageId page, Tier to);

  /// Looks at pages from the tail of the list on, at most so many, and at none twice; the substrate
  /// is asked for batches of them. `judge`, which leaves the lists alone and asks for nothing, is
  /// told whether the page has been accessed since its bit was last cleared, which it is now, and
  /// returns the list to whose head it goes, perhaps its own. Idle pages that are gone, or have
  /// moved unseen, are put right on the way. Returns the number of pages looked at.
  template <typename Judge>
  std::uint64_t scan(Tier tier, List list, std::uint64_t most, Judge judge) {
    std::uint64_t left = std::min(most, size(tier, list));
    std::uint64_t looked = 0;
    while (left > 0) {
      left -= look_at(chain_of(tier, list), left);
      for (std::size_t n = 0; n < pages_.size(); ++n) {
        const bool accessed = in_mask(accessed_, n);
        // An absent page is not accessed; of the others nearly all are where they are listed.
        if (!accessed && !settle(numbers_[n], tier, idle_where_[n])) continue;
        ++looked;
        link(numbers_[n], tier, judge(pages_[n], accessed));
      }
    }
    memory_.charge(Work::lru_step, looked);
    return looked;
  }
  /// The tail of the inactive list by the rule of two touches, until `wanted` pages were found that
  /// have not been accessed: they are added to `victims`, and go to the head, so that one that does
  /// not leave has its next turn last. Looks at `most` pages. Returns how many it looked at.
  std::uint64_t age_inactive(Tier tier, std::uint64_t most, std::uint64_t wanted,
                             std::vector<PageId>& victims);
  /// The tail of the active list goes to the inactive one, as many pages as that lacks for the
  /// ratio, and no more than `most`; returns how many.
  std::uint64_t age_active(Tier tier, std::uint64_t most);
  /// So many pages of the tail of the active list go to the inactive one; returns how many.
  std::uint64_t deactivate(Tier tier, std::uint64_t most);
  /// Whether lists of these sizes have too few inactive pages for the ratio (inactive_is_low).
  [[nodiscard]] bool is_low(std::uint64_t inactive, std::uint64_t active) const;

 private:
  static constexpr std::uint32_t none = FoundPages::none;

  static std::uint8_t chain_of(Tier tier, List list) {
    return static_cast<std::uint8_t>(tt::index(tier) * list_count + static_cast<std::size_t>(list));
  }
  /// Whether the page is on a list, as each is that has been found.
  [[nodiscard]] bool seen(std::uint32_t i) const { return found_.has(i); }
  [[nodiscard]] const PageIndex& index() const { return found_.index(); }
  [[nodiscard]] Tier tier(std::uint32_t i) const {
    return chains_.chain(i) < list_count ? Tier::fast : Tier::slow;
  }
  [[nodiscard]] List list(std::uint32_t i) const {
    return static_cast<List>(chains_.chain(i) % list_count);
  }
  void link(std::uint32_t i, Tier tier, List list);  // at the head, off where it was
  /// Active pages that the kernel keeps for each inactive one.
  [[nodiscard]] double ratio(std::uint64_t pages) const;
  /// Reads and clears the accessed bits of the next pages from the tail of the chain, at most so
  /// many, and asks where those are that were idle. Returns how many pages it looked at.
  std::size_t look_at(std::uint8_t chain, std::uint64_t most);
  bool settle(std::uint32_t i, Tier tier, Residency where);

  Memory& memory_;
  double ratio_pages_;  // a tenth of the kernel's GiB
  FoundPages found_;
  Chains chains_{tier_count * list_count};
  std::vector<bool> referenced_;
  std::vector<Residency> where_;  // scratch
  // Of look_at(): the pages, by number and name; whether each was accessed; where it is, if not.
  std::vector<std::uint32_t> numbers_;
  std::vector<PageId> pages_, idle_;
  std::vector<std::uint64_t> accessed_;
  std::vector<Residency> idle_where_;
};

}  // namespace tt::track
