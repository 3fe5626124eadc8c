// SPDX-License-Identifier: MIT

// Moves: how pages are moved, split and collapsed, and what becomes of such a request.
#pragma once

#include <cstdint>

#include "core/types.hpp"

namespace tt {

enum class Outcome : std::uint8_t {
  done,      // the page is in the requested tier now
  no_space,  // the target tier was full when its turn came
  busy,      // pinned, locked, or dirtied under the copy: may be asked again
  gone,      // unmapped before or while it moved
};

/// What a migration result is about: a request() moves pages, a reshape() splits or collapses them.
enum class Change : std::uint8_t { move, split, collapse };

/// A result stands for the whole unit of its page.
struct MigrationResult {
  PageId page;
  Tier to = Tier::fast;
  Outcome outcome = Outcome::done;
  Change change = Change::move;
  Nanos cost{};  // the mover's time for each page of the unit; 0 where it is not measured
};

/// How urgent a move is.
enum class Way : std::uint8_t {
  background,  // queued; movers get to it
  in_fault,    // inside on_faults() and for its pages only: the faulting thread moves them
};

/// What happens to a page while it is copied.
enum class Copy : std::uint8_t {
  blocking,         // every access to it waits
  write_protected,  // stores wait (HeMem, SOSP'21, §3.2)
  transactional,    // nothing waits; a store makes the copy void (Nomad, OSDI'24)
};

/// How this policy's pages move: a standing request, which may change at any time. What a substrate
/// grants has the same form, and says how it really moves them: fewer threads, without shadows, or
/// blocking. A policy that cannot do with blocking copies has Need::copies.
struct Movers {
  unsigned threads = 1;   // 0: the tiering thread itself
  unsigned together = 1;  // so many threads copy one page, each a part of it
  Copy copy = Copy::blocking;
  unsigned retries = 0;  // transactional: further attempts after a store made a copy void
  bool shadows = false;  // a promoted page keeps its old copy until it is written (Need::shadows)
  friend bool operator==(const Movers&, const Movers&) = default;
};

/// Limits on the fast tier's free pages, as shares of its capacity; 0: none. Below `wake` the
/// policy gets on_pressure() as soon as it is seen, and again every quantum while it lasts. Below
/// `reserve` first touches go to the slow tier, as far as the substrate can place them.
struct Watermarks {
  double reserve = 0, wake = 0;
  friend bool operator==(const Watermarks&, const Watermarks&) = default;
};

}  // namespace tt
