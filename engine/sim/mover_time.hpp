// SPDX-License-Identifier: MIT

// The movers' time in a block: how much they have, what they have used, and what they carry over.
//
// A block's moves start before its length is known: they use the time that it is expected to have.
// When it is known, the difference is a credit, or a debt, of the next block. Time in which there
// was nothing to move is nobody's credit.
#pragma once

#include <algorithm>

#include "core/assert.hpp"

namespace tt::sim {

class MoverTime {
 public:
  /// A block begins in which they will have so much, beside what they carry over.
  void start(double expected_ns) {
    used_ns_ = 0;
    granted_ns_ = credit_ns_;
    budget_ns_ = credit_ns_ + expected_ns;
    idle_ = true;
  }
  /// A part of it has passed, in which they had so much.
  void go_on(double ns) {
    granted_ns_ += ns;
    budget_ns_ = granted_ns_ - wasted_ns_;
  }
  [[nodiscard]] bool any_left() const { return used_ns_ < budget_ns_; }
  [[nodiscard]] double left_ns() const { return std::max(0.0, budget_ns_ - used_ns_); }
  void use(double ns) {
    TT_ASSERT(ns >= 0);
    used_ns_ += ns;
  }
  /// What could be done until now has been done, all of it (`finished`) or as far as there was
  /// time.
  void pause(bool finished) { idle_ = finished && any_left(); }
  /// Likewise, and the time that is left has passed.
  void waste(bool finished) {
    pause(finished);
    if (idle_) wasted_ns_ += budget_ns_ - used_ns_;
  }
  /// The block has ended, and they had so much in it; `together` of them work on one page.
  void settle(double had_ns, unsigned together) {
    credit_ns_ += had_ns - used_ns_ - wasted_ns_;
    wasted_ns_ = 0;
    // A block that lasted longer than expected is made up for in the next one, unless the mover was
    // idle.
    if (idle_) credit_ns_ = std::min(credit_ns_, 0.0);
    worked_ns_ = used_ns_ * together;
  }
  /// Processor time that the last block's moves have taken.
  [[nodiscard]] double worked_ns() const { return worked_ns_; }

 private:
  double credit_ns_ = 0;   // time that it has left, or is ahead by
  double used_ns_ = 0;     // for the moves of the current block
  double granted_ns_ = 0;  // for them until now, in a block that has been played
  double wasted_ns_ = 0;   // of these, while there was nothing to do
  double budget_ns_ = 0;   // until now
  bool idle_ = true;       // in it, for a part at least
  double worked_ns_ = 0;   // for those of the last one
};

}  // namespace tt::sim
