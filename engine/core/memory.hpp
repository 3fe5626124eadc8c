// SPDX-License-Identifier: MIT

// Memory: everything that a policy can ask of the substrate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/counters.hpp"
#include "core/events.hpp"
#include "core/moves.hpp"
#include "core/sampling.hpp"
#include "core/types.hpp"
#include "core/work.hpp"

namespace tt {

/// What a substrate may lack has a default, which throws std::logic_error by name: a policy that
/// gets there did not name it in its needs. A wrapper derives from ForwardingMemory
/// (core/forwarding.hpp), so that it cannot forget a function.
///
/// A page that is unknown, or gone, may be asked about like any other: it is absent, has not been
/// accessed, is a unit of its own, and does not move.
class Memory {
 public:
  virtual ~Memory() = default;

  /// Bytes of one managed page.
  [[nodiscard]] virtual std::uint64_t page_bytes() const = 0;
  /// Managed pages that the tier may hold: a budget, which only changes with Policy::on_capacity().
  [[nodiscard]] virtual std::uint64_t capacity(Tier tier) const = 0;
  /// Of these, free now (in-flight targets count as used). Others take and free them, too.
  [[nodiscard]] virtual std::uint64_t free_pages(Tier tier) const = 0;
  /// Pages in the tier beyond its capacity, which has shrunk: free_pages() is 0 until so many, and
  /// more, have left. Those that are queued to leave count until they have.
  [[nodiscard]] virtual std::uint64_t excess_pages(Tier) const { return 0; }

  /// Where each page is: as of the last look that the substrate took, which live is not older than
  /// its last call into the policy. A batch costs a live substrate little more than a page, so ask
  /// for all pages at once. `out` has the size of `pages`.
  virtual void residency(std::span<const PageId> pages, std::span<Residency> out) const = 0;
  /// The same for a contiguous range starting at `first`. `out.size()` pages.
  virtual void residency(PageId first, std::span<Residency> out) const = 0;
  /// The page itself, or the 512 base pages that it is mapped with where page sizes are mixed. A
  /// unit is in one tier or absent, has one accessed bit, and moves whole by any one of its pages.
  /// It may split or collapse without a request.
  [[nodiscard]] virtual PageRange unit(PageId page) const { return {page, 1}; }

  /// Queues pages for migration, in one order for both directions, and returns at once. The unit of
  /// a page moves with it: one page of a unit is enough. Pages that are in that tier already, or on
  /// their way to it, are dropped and never reported, and so are unknown ones. Returns how many
  /// pages from the front were taken (queued or dropped); the rest did not fit the queue.
  virtual std::size_t request(Tier to, std::span<const PageId> pages,
                              Way way = Way::background) = 0;
  /// Pages that are queued or in flight toward the tier.
  [[nodiscard]] virtual std::uint64_t pending(Tier to) const = 0;
  /// Returns how pages move from now on.
  virtual Movers set_movers(const Movers& movers) = 0;
  virtual void set_watermarks(const Watermarks& marks) = 0;
  /// Queues units to be split, or groups of base pages to be collapsed; the results arrive through
  /// on_migrated(). Returns how many from the front were taken. Need::mixed_pages.
  virtual std::size_t reshape(Change to, std::span<const PageId> units);

  /// From now on. Returns what is sampled, which may be less (see there).
  virtual SamplingRequest set_sampling(const SamplingRequest& request) = 0;
  [[nodiscard]] virtual Counters counters() const = 0;

  /// Takes access rights away from the pages of `range` that are in `which` and not protected yet,
  /// with one TLB flush: the first access to each of them is reported through on_faults(), and
  /// gives the rights back. Returns how many pages it protected. `untouched` is empty or a mask of
  /// the range, and tells which of these pages had been protected already and not been accessed
  /// since. The application pays, as for a kernel's task work. Need::faults.
  virtual std::uint64_t protect(PageRange range, Tiers which, PageMask untouched);
  /// During on_faults(), of a page that has just faulted: its thread does not get through, and
  /// faults so many times again before it goes on. The application pays. Need::faults.
  virtual void fault_again(PageId page, std::uint32_t times);
  /// During on_migrated(), of pages that have just moved: they are mapped without access rights, as
  /// if protected, which takes nothing beyond the move. Need::faults.
  virtual void leave_protected(std::span<const PageId> pages);
  /// Which pages of `range` have been accessed since their accessed bit was last cleared; with
  /// `clear` the bits are cleared. Absent pages have not. Nothing is kept before the first call
  /// with `clear`: until then every page has been accessed. A huge page has one bit, so that its
  /// base pages answer alike. The policy charges the scan (Work::pte_scan). Need::accessed_bits.
  virtual void accessed(PageRange range, PageMask out, bool clear);
  /// The same for any pages, as if for one after the other: a bit of `out` for each. Of two base
  /// pages of a huge page, the second finds the bit cleared.
  virtual void accessed(std::span<const PageId> pages, PageMask out, bool clear);
  /// The answers come through on_probed() once the last of these probes is over. A call whose first
  /// probe would have begun by now is put off as a whole, as the answers' times say. A probe of a
  /// page that is absent, or goes away, answers no. Need::probes.
  virtual void probe(std::span<const Probe> probes);

  /// About the shortest time between two callbacks: a block of the simulator, a timer on a live
  /// machine.
  [[nodiscard]] virtual Nanos quantum() const = 0;
  /// Name of an allocation site that on_map() told; empty where it has none. Need::sites.
  [[nodiscard]] virtual std::string_view site(std::uint32_t id) const;

  /// Reports work done by the policy (see Work).
  virtual void charge(Work kind, std::uint64_t times, Payer by = Payer::daemon) = 0;
};

}  // namespace tt
