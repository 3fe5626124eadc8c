// SPDX-License-Identifier: MIT

// What has become of moves: counted as it happens, told to the policy at the border.
#pragma once

#include <vector>

#include "core/seam.hpp"
#include "sim/ledger.hpp"
#include "sim/moves.hpp"

namespace tt::sim {

class MoveResults {
 public:
  MoveResults(Ledger& ledger, double scale) : ledger_(ledger), scale_(scale) {}

  /// `took_ns`: the mover's time, of a move that is done.
  void report(const Move& move, Outcome outcome, double took_ns = 0);
  /// Of a reshape, which counts for itself.
  void report(const MigrationResult& result) { results_.push_back(result); }
  void deliver(double now_ns, Policy& policy);

 private:
  Ledger& ledger_;
  const double scale_;
  std::vector<MigrationResult> results_;    // for the next delivery
  std::vector<MigrationResult> delivered_;  // being read by the policy
};

}  // namespace tt::sim
