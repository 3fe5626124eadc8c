// Where every page is: the page table of the simulated machine.
//
// It owns the address space in managed pages, a plane of one bit per page for each thing that can
// be said of a page (present, slow), and the free pages of both tiers. A page appears at its first
// touch, vanishes when its range is unmapped, and changes its tier when the mover says so. Planes
// and not records: the replay loop gathers bits of millions of pages, and policies scan their whole
// address space by words. Further planes (accessed bits, protection) belong here, too.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "core/seam.hpp"
#include "core/types.hpp"
#include "sim/address_space.hpp"
#include "sim/gather.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

inline constexpr std::uint64_t huge_page_bytes = std::uint64_t{2} << 20;
/// A managed page of so many bytes holds 2^shift base pages.
[[nodiscard]] constexpr unsigned page_shift(std::uint64_t page_bytes) {
  return static_cast<unsigned>(std::countr_zero(page_bytes / trace::base_page_bytes));
}

class PageTable {
 public:
  struct Layout {
    std::uint64_t base_pages = 0;  // of the stream's address space
    std::uint64_t page_bytes = 0;  // of a managed page
    // The most that the stream holds at a time, in base pages.
    std::uint64_t footprint = 0;
    // In managed pages. The slow tier holds everything; that is more than the footprint where
    // managed pages are touched in part only.
    std::uint64_t slow_pages = 0;
    std::uint64_t fast_pages = 0;
    std::uint64_t placed_at_once = 1;  // for how many the policy is asked at a time
  };
  explicit PageTable(const Layout& layout);

  /// Managed pages of the address space.
  [[nodiscard]] std::uint64_t size() const { return space_.pages(); }
  [[nodiscard]] unsigned shift() const { return space_.shift(); }
  [[nodiscard]] std::uint64_t page_bytes() const { return layout_.page_bytes; }
  /// In base pages.
  [[nodiscard]] std::uint64_t footprint() const { return layout_.footprint; }
  [[nodiscard]] std::uint64_t capacity(Tier tier) const {
    return tier == Tier::fast ? layout_.fast_pages : layout_.slow_pages;
  }
  /// A page in flight has its slot where it goes.
  [[nodiscard]] std::uint64_t free(Tier tier) const { return free_[index(tier)]; }

  [[nodiscard]] Residency where(std::uint64_t page) const {
    if (page >= size() || !present_.test(page)) return Residency::absent;
    return slow_.test(page) ? Residency::slow : Residency::fast;
  }
  /// Of `first` and the pages behind it.
  void residency(PageId first, std::span<Residency> out) const;
  /// Of a page that is present.
  [[nodiscard]] Tier tier_of(std::uint64_t page) const {
    return slow_.test(page) ? Tier::slow : Tier::fast;
  }
  [[nodiscard]] const PageBits& slow() const { return slow_; }

  /// The pages that a map event brings into being (none of them is present before it is touched),
  /// and those that an unmap event ends: these are to be removed.
  [[nodiscard]] PageRange map(const trace::Event& event) { return space_.map(event); }
  [[nodiscard]] PageRange unmap(const trace::Event& event) { return space_.unmap(event); }
  /// First touches of the event's pages that are not there yet, placed as the policy wants.
  void place(const trace::Event& event, const Policy& policy);
  void remove(PageRange range);

  /// The steps of a move: a slot in the tier that it goes to is taken before the first byte is
  /// copied, and the one that it leaves is free after the last.
  void reserve(Tier to) { --free_[index(to)]; }
  void vacate(Tier from) { ++free_[index(from)]; }
  /// It is there: from now on accesses find it in `to`.
  void arrive(PageId page, Tier to) {
    if (to == Tier::slow) {
      slow_.set(page.value);
    } else {
      slow_.clear(page.value);
    }
  }

 private:
  Layout layout_;
  AddressSpace space_;
  std::array<std::uint64_t, tier_count> free_;
  PageBits present_;
  PageBits slow_;
};

}  // namespace tt::sim
