// SPDX-License-Identifier: MIT

// MoveCost: what it costs to move a page, as measured, and whether a move pays (ARMS, 2025).
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "core/seam.hpp"

namespace tt::migrate {

/// Moving averages of the time that a page takes, by direction. It is averaged over rounds: in a
/// large system, a round has more moves than in a small one.
class MoveCost {
 public:
  struct Options {
    double weight = 0;    // of the latest round in the average
    double decay = 1;     // a round without moves divides the cost by it, so that they are tried
    double least_ns = 0;  // but it is never less than this
  };
  explicit MoveCost(const Options& options)
      : options_(options), cost_ns_{options.least_ns, options.least_ns} {}

  void moved(std::span<const MigrationResult> results) {
    for (const MigrationResult& result : results) {
      if (result.outcome != Outcome::done || result.change != Change::move) continue;
      sum_ns_[index(result.to)] += static_cast<double>(result.cost.count());
      ++moves_[index(result.to)];
    }
  }
  void end_round() {
    for (const Tier to : {Tier::fast, Tier::slow}) {
      double& cost = cost_ns_[index(to)];
      double& moves = moves_[index(to)];
      double& sum = sum_ns_[index(to)];
      cost = moves > 0 ? cost + options_.weight * (sum / moves - cost) : cost / options_.decay;
      cost = std::max(cost, options_.least_ns);
      moves = sum = 0;
    }
  }
  [[nodiscard]] double promotion_ns() const { return cost_ns_[index(Tier::fast)]; }
  [[nodiscard]] double demotion_ns() const { return cost_ns_[index(Tier::slow)]; }
  /// Of a page that takes another's place.
  [[nodiscard]] double exchange_ns() const { return promotion_ns() + demotion_ns(); }

 private:
  Options options_;
  std::array<double, tier_count> cost_ns_{}, sum_ns_{}, moves_{};
};

}  // namespace tt::migrate
