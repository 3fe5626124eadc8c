// SPDX-License-Identifier: MIT

// Splits and collapses of huge pages, where page sizes are mixed.
//
// They wait in a queue of their own and are done by the movers' threads, at once and one after the
// other, as far as there is time: a split changes mappings alone, a collapse copies what is there
// into a new huge page.
#pragma once

#include <array>
#include <deque>
#include <span>
#include <utility>

#include "core/seam.hpp"
#include "sim/ledger.hpp"
#include "sim/move_results.hpp"
#include "sim/mover_time.hpp"
#include "sim/pages.hpp"
#include "sim/profile.hpp"

namespace tt::sim {

class Reshapes {
 public:
  Reshapes(PageTable& pages, Ledger& ledger, MoveResults& results, const MachineProfile& profile,
           double scale)
      : pages_(pages), ledger_(ledger), results_(results), profile_(profile), scale_(scale) {}

  [[nodiscard]] bool empty() const { return waiting_.empty(); }
  void ask(Change change, std::span<const PageId> units) {
    for (const PageId page : units) waiting_.emplace_back(change, page);
  }
  void work(MoverTime& time);
  /// In the time of whoever wants it.
  void split_at_once(PageRange unit);

  // In this block: units that were split or collapsed, and those that a collapse copied.
  [[nodiscard]] double changed() const { return changed_; }
  [[nodiscard]] double collapsed(Tier in) const { return collapsed_[index(in)]; }
  void next_block() {
    changed_ = 0;
    collapsed_ = {};
  }

 private:
  double split(PageId page, MigrationResult& result);
  double collapse(PageId page, MigrationResult& result);

  PageTable& pages_;
  Ledger& ledger_;
  MoveResults& results_;
  const MachineProfile& profile_;
  const double scale_;
  std::deque<std::pair<Change, PageId>> waiting_;
  double changed_ = 0;
  std::array<double, tier_count> collapsed_{};
};

}  // namespace tt::sim
