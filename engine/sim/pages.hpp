// SPDX-License-Identifier: MIT

// Where every page is: the page table of the simulated machine.
//
// It owns the address space in managed pages, the state of each page as planes of one bit per page,
// and the free pages of both tiers. A page appears at its first touch, vanishes when its range is
// unmapped, and changes its tier when the mover says so. The planes are separate
// from each other because the replay loop gathers single bits of millions of pages, and because
// policies scan their whole address space by words.
//
// Where page sizes are mixed (Layout::mixed), page numbers are those of base pages, and one bit for
// each 512 of them says that they are mapped as a huge page: a unit, which has one tier, one
// accessed bit and one protection. All planes still hold a bit per base page, and those of a unit
// are equal, so that the replay loop does not have to know. A unit takes the room of all its pages,
// touched or not; splitting it frees those that the application never touched.
//
// A page is armed while something waits for an access to it: a Trap, each with a plane that is
// allocated when it is first used. The loop looks at one plane, that of the trap in use, or if
// there are several of them, one of two that are derived: the pages armed for loads, and for
// stores.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "core/assert.hpp"
#include "core/seam.hpp"
#include "core/types.hpp"
#include "sim/address_space.hpp"
#include "sim/gather.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

using trace::huge_page_bytes;
/// A managed page of so many bytes holds 2^shift pages of the stream.
[[nodiscard]] constexpr unsigned page_shift(std::uint64_t page_bytes,
                                            std::uint64_t stream_page_bytes) {
  return static_cast<unsigned>(std::countr_zero(page_bytes / stream_page_bytes));
}

/// Reasons why an access to a page does not simply go through: it waits, or somebody is told.
enum class Trap : std::uint8_t {
  away,        // the page moves, and every access waits
  write_away,  // the page moves, and stores wait
  copied,      // the page moves, and a store makes the copy void
  shadowed,    // the slow tier has a copy of it, which a store makes void
  idle,        // its accessed bit is clear
  guarded,     // protect() has taken its access rights away
  probed,      // a probe wants to know of an access
};
inline constexpr std::size_t trap_count = 7;
[[nodiscard]] constexpr std::size_t index(Trap trap) { return static_cast<std::size_t>(trap); }
/// Whether an access of this kind falls into the trap.
[[nodiscard]] constexpr bool catches(Trap trap, AccessKind kind) {
  return kind == AccessKind::store || trap == Trap::away || trap >= Trap::idle;
}

class PageTable {
 public:
  struct Layout {
    std::uint64_t base_pages = 0;  // of the stream's address space, in pages of the stream
    std::uint64_t page_bytes = 0;  // of a managed page
    std::uint64_t stream_page_bytes = trace::base_page_bytes;
    // The most that the stream holds at a time, in pages of the stream.
    std::uint64_t footprint = 0;
    // In managed pages. The slow tier holds everything; that is more than the footprint where
    // managed pages are touched in part only.
    std::uint64_t slow_pages = 0;
    std::uint64_t fast_pages = 0;
    Granularity placement = Granularity::range;
    bool mixed = false;
  };
  static constexpr std::uint64_t unit_pages = trace::huge_page_bytes / trace::base_page_bytes;
  explicit PageTable(const Layout& layout);

  /// Managed pages of the address space.
  [[nodiscard]] std::uint64_t size() const { return space_.pages(); }
  [[nodiscard]] unsigned shift() const { return space_.shift(); }
  [[nodiscard]] std::uint64_t page_bytes() const { return layout_.page_bytes; }
  [[nodiscard]] std::uint64_t footprint_bytes() const {
    return layout_.footprint * layout_.stream_page_bytes;
  }
  [[nodiscard]] std::uint64_t capacity(Tier tier) const {
    return tier == Tier::fast ? layout_.fast_pages : layout_.slow_pages;
  }
  /// A page in flight takes its slot in the tier that it moves to.
  [[nodiscard]] std::uint64_t free(Tier tier) const { return free_[index(tier)]; }
  /// Slots that pages and shadows have: the rest of the fast tier is free or holds metadata.
  [[nodiscard]] std::uint64_t used(Tier tier) const {
    return capacity(tier) - free(tier) - (tier == Tier::fast ? held_ : 0);
  }
  /// Pages that accesses find there.
  [[nodiscard]] std::uint64_t present(Tier tier) const {
    const std::uint64_t in_slow = slow_.count();
    return tier == Tier::slow ? in_slow : present_.count() - in_slow;
  }

  [[nodiscard]] Residency where(std::uint64_t page) const {
    if (page >= size() || !present_.test(page)) return Residency::absent;
    return slow_.test(page) ? Residency::slow : Residency::fast;
  }
  /// Of `first` and the pages that follow it.
  void residency(PageId first, std::span<Residency> out) const;
  /// Of a page that is present.
  [[nodiscard]] Tier tier_of(std::uint64_t page) const {
    return slow_.test(page) ? Tier::slow : Tier::fast;
  }
  [[nodiscard]] const PageBits& slow() const { return slow_; }
  [[nodiscard]] bool mixed() const { return layout_.mixed; }
  /// A bit per group of 512 pages that is a unit now.
  [[nodiscard]] const PageBits& huge() const { return huge_; }
  /// Share of the present pages that are part of a unit.
  [[nodiscard]] double huge_share() const;
  /// As Memory::unit.
  [[nodiscard]] PageRange unit(std::uint64_t page) const {
    if (!layout_.mixed || page >= size() || !huge_.test(page / unit_pages))
      return {PageId{page}, 1};
    return {PageId{page / unit_pages * unit_pages}, unit_pages};
  }
  /// The part of the range that lies in the address space.
  [[nodiscard]] PageRange known(PageRange range) const {
    if (range.first.value >= size()) return {range.first, 0};
    return {range.first, std::min(range.count, size() - range.first.value)};
  }

  /// The pages that a map event creates (none of them is present before it is touched), and those
  /// that end with an unmap event, which the caller has to remove.
  /// Where page sizes are mixed, groups that the mapping covers wholly are huge from now on.
  [[nodiscard]] PageRange map(const trace::Event& event);
  [[nodiscard]] PageRange unmap(const trace::Event& event) { return space_.unmap(event); }
  /// Units of which the range covers a part only: they have to be split before it is unmapped.
  [[nodiscard]] std::array<PageRange, 2> cut_by(PageRange range) const;
  /// What first touches brought: pages by tier, and the faults that they were, one for each page or
  /// unit.
  struct Placed {
    std::array<std::uint64_t, tier_count> pages{};
    std::uint64_t faults = 0;

    void add(const std::array<std::uint64_t, tier_count>& single) {
      for (std::size_t t = 0; t < tier_count; ++t) {
        pages[t] += single[t];
        faults += single[t];
      }
    }
  };
  /// First touches of the event's pages that are not there yet, placed as the policy wants. Wakes
  /// it between them when the fast tier is short of pages.
  Placed place(const trace::Event& event, Policy& policy, Nanos now);
  void remove(PageRange range);
  /// The policy's own metadata take so many pages of the fast tier, as far as it has free ones: it
  /// runs beside the application and allocates as that does.
  void hold(std::uint64_t pages);
  /// Throws std::invalid_argument for shares outside [0, 1].
  void set_watermarks(const Watermarks& marks);
  /// Whether the fast tier has fewer free pages than the policy wants to be woken at.
  [[nodiscard]] bool short_of_fast() const {
    return static_cast<double>(free(Tier::fast)) <
           marks_.wake * static_cast<double>(capacity(Tier::fast));
  }

  /// The steps of a move: a slot in the tier that the page goes to is taken before the first byte
  /// is copied, and the one that it leaves is free after the last.
  void take(Tier to, std::uint64_t pages = 1) {
    TT_ASSERT(free(to) >= pages);
    free_[index(to)] -= pages;
  }
  void vacate(Tier from, std::uint64_t pages = 1) {
    TT_ASSERT(used(from) >= pages);
    free_[index(from)] += pages;
  }
  void depart(PageId page, Copy copy) {
    TT_ASSERT(where(page.value) != Residency::absent && !in_flight(page.value));
    constexpr std::array traps = {Trap::away, Trap::write_away, Trap::copied};
    arm(traps[static_cast<std::size_t>(copy)], page.value);
  }
  /// The move is over: from now on accesses find the page in `to`.
  void arrive(PageId page, Tier to) {
    TT_ASSERT(in_flight(page.value) && tier_of(page.value) == other(to));
    stay(page);
    const auto [first, count] = unit(page.value);
    if (to == Tier::slow) {
      slow_.set(first.value, count);
    } else {
      slow_.clear(first.value, count);
    }
  }
  /// Splits a unit. Pages that were never touched are free, and absent, as all-zero pages are that
  /// a kernel unmaps. Returns how many.
  std::uint64_t split(PageRange unit);
  /// Maps a group as a huge page: done; busy if its pages are not all in one tier, or one of them
  /// waits for something; no_space if that tier has no room for the new page beside the old ones;
  /// gone if nothing of it is there, or no mapping covers it wholly.
  Outcome collapse(PageRange group);

  /// It does not move any more.
  void stay(PageId page) {
    for (const Trap trap : {Trap::away, Trap::write_away, Trap::copied}) disarm(trap, page.value);
  }
  [[nodiscard]] bool in_flight(std::uint64_t page) const {
    return armed(Trap::away, page) || armed(Trap::write_away, page) || armed(Trap::copied, page);
  }

  /// Pages that are in flight.
  [[nodiscard]] std::uint64_t in_flight() const {
    return pages_in_[index(Trap::away)] + pages_in_[index(Trap::write_away)] +
           pages_in_[index(Trap::copied)];
  }

  [[nodiscard]] bool armed(Trap trap, std::uint64_t page) const {
    return page < size() && (used_ & bit(trap)) != 0 && planes_[index(trap)].test(page);
  }
  /// Whether an access to the page has to wait until it has arrived.
  [[nodiscard]] bool holds_up(std::uint64_t page, AccessKind kind) const {
    return armed(Trap::away, page) || (kind == AccessKind::store && armed(Trap::write_away, page));
  }
  void arm(Trap trap, std::uint64_t page) {
    if (layout_.mixed) {
      arm(trap, unit(page), Tiers::both);
      return;
    }
    if ((used_ & bit(trap)) == 0) allocate(trap);
    PageBits& plane = planes_[index(trap)];
    if (plane.test(page)) return;
    plane.set(page);
    ++pages_in_[index(trap)];
    if (!several()) return;
    for (const AccessKind kind : {AccessKind::load, AccessKind::store})
      if (catches(trap, kind)) armed_[index(kind)].set(page);
  }
  void disarm(Trap trap, std::uint64_t page) {
    if (!armed(trap, page)) return;
    if (layout_.mixed) {
      disarm(trap, unit(page));
      return;
    }
    planes_[index(trap)].clear(page);
    --pages_in_[index(trap)];
    if (!several()) return;
    for (const AccessKind kind : {AccessKind::load, AccessKind::store})
      if (catches(trap, kind) && !trapped(page, kind)) armed_[index(kind)].clear(page);
  }
  /// Arms the pages of the range that are present, in `which`, and not armed yet; returns how many.
  /// `before` and `fresh`: empty, or masks of those that were armed already, and that are now.
  std::uint64_t arm(Trap trap, PageRange range, Tiers which, PageMask before = {},
                    PageMask fresh = {});
  /// A mask of the pages of the range that are present and not armed.
  void unarmed(Trap trap, PageRange range, PageMask out) const;
  [[nodiscard]] std::uint64_t count(Trap trap, PageRange range) const;
  [[nodiscard]] std::uint64_t count(Trap trap) const { return pages_in_[index(trap)]; }
  /// What the replay loop looks at: the pages that an access of this kind trips over, if any.
  [[nodiscard]] bool any_armed(AccessKind kind) const {
    std::uint64_t pages = 0;
    for (std::size_t t = 0; t < trap_count; ++t)
      if (catches(static_cast<Trap>(t), kind)) pages += pages_in_[t];
    return pages > 0;
  }
  /// Valid only while there are some.
  [[nodiscard]] const PageBits& armed(AccessKind kind) const {
    return several() ? armed_[index(kind)] : planes_[std::countr_zero(used_)];
  }

  /// The planes agree: absent pages are in none of them, a page moves in one way at a time, shadows
  /// are of pages in the fast tier, a unit's pages are alike, and what is derived is up to date.
  /// For assertions.
  [[nodiscard]] bool consistent() const;

 private:
  Placed place_mixed(PageRange range, Policy& policy, Nanos now);
  void disarm(Trap trap, PageRange range);
  [[nodiscard]] PageRange whole_units(PageRange range) const;
  [[nodiscard]] static constexpr unsigned bit(Trap trap) { return 1U << index(trap); }
  [[nodiscard]] bool several() const { return (used_ & (used_ - 1)) != 0; }
  void allocate(Trap trap);
  [[nodiscard]] bool trapped(std::uint64_t page, AccessKind kind) const;

  Layout layout_;
  AddressSpace space_;
  std::array<std::uint64_t, tier_count> free_;
  std::uint64_t held_ = 0;  // of the fast tier, by metadata
  Watermarks marks_;
  std::uint64_t reserve_ = 0;  // of marks_, in pages
  PageBits present_;
  PageBits slow_;
  std::array<PageBits, trap_count> planes_;  // empty until first used
  unsigned used_ = 0;                        // the planes that are not, a bit each
  std::array<std::uint64_t, trap_count> pages_in_{};
  // By access kind, once several traps are in use: the pages in one of those that catch it.
  std::array<PageBits, 2> armed_;
  // Where page sizes are mixed, by group of 512 pages: those that are a unit, and those that one
  // mapping covers wholly.
  PageBits huge_, whole_;
  PageBits touched_;  // likewise, by page: the application has touched it
};

}  // namespace tt::sim
