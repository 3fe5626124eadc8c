// SPDX-License-Identifier: MIT

// Policy: everything that a substrate tells a policy, and asks it.
#pragma once

#include <cstdint>
#include <span>

#include "core/events.hpp"
#include "core/gauges.hpp"
#include "core/moves.hpp"
#include "core/placement.hpp"
#include "core/types.hpp"

namespace tt {

/// A wrapper derives from ForwardingPolicy (core/forwarding.hpp), so that it cannot forget a
/// function.
class Policy {
 public:
  virtual ~Policy() = default;

  /// Pages that are the policy's from now on, or not any more. It asks for moves of no others.
  ///
  /// The simulator tells of a mapping when the program makes it. A live substrate only tells of
  /// what is populated, in blocks of 2 MiB as they fill: many small ranges, at any time, next to or
  /// between known ones, after samples of their pages were seen. A range may come again, or overlap
  /// known ones; on_unmap() may name what is not known. Pages of a mapped range may be absent. A
  /// page that processes share is told of once, and unmapped when the last of them has.
  ///
  /// `site`: where it was allocated, one number for each site (Memory::site); 0 where sites are not
  /// known.
  virtual void on_map(PageRange range, std::uint32_t site, Nanos now) = 0;
  virtual void on_unmap(PageRange range, Nanos now) = 0;
  /// Where the pages of this range should be placed when first touched: one answer for the range. A
  /// substrate that can place page by page asks as finely as PolicyTraits::placement says, else per
  /// mapping. It falls back to the other tier when this one is full. One without Need::placement
  /// does not ask: the fast tier is first, as in a kernel.
  [[nodiscard]] virtual Tier placement(PageRange range) const = 0;

  /// A sample's page may be unknown, gone, or another's; its tier is that of the access.
  virtual void on_samples(std::span<const Sample> samples, Nanos now) = 0;
  /// In the context of the faulting threads, in order of pages. A fault may name a page that has
  /// moved or gone since, or was never protected.
  virtual void on_faults(std::span<const Fault>, Nanos) {}
  /// One call of probe(), answered, in its order.
  virtual void on_probed(std::span<const Probe>, Nanos) {}
  /// The tier's free pages are below Watermarks::wake. It may come between first touches of a
  /// range.
  virtual void on_pressure(Tier, Nanos) {}
  /// An operator has changed what the tier may hold. Pages beyond it stay until the policy demotes
  /// them (Memory::excess_pages()): a policy that demotes at all makes room, as far as it finds
  /// pages that it may demote, and whatever it derived from the capacity follows.
  virtual void on_capacity(Tier, Nanos) {}
  /// Called once in each tick_period(): late if the policy's thread is busy, never early. Ticks
  /// that a busy thread missed are not made up for (core/ticker.hpp).
  virtual void tick(Nanos now) = 0;
  [[nodiscard]] virtual Nanos tick_period() const = 0;
  /// Results of requests, in the order in which they ended.
  virtual void on_migrated(std::span<const MigrationResult> results, Nanos now) = 0;

  /// Bytes of tracking metadata held now.
  [[nodiscard]] virtual std::uint64_t metadata_bytes() const = 0;
  virtual void gauges(Gauges& out) const = 0;
  [[nodiscard]] virtual Heat heat(PageId page) const = 0;
  /// Tables that it has at the end of the run.
  virtual void report(Rows&) const {}
  /// What it has learned in a profiling run (PolicyTraits::profiled).
  [[nodiscard]] virtual Placement profile() const { return {}; }
};

}  // namespace tt
