// SPDX-License-Identifier: MIT

// Which pages belong in the fast tier, epoch by epoch, when the future is known.
//
// Maximises the value of the pages in the fast tier less the cost of their moves, with at most
// `capacity` pages there and at most moves[e] moves at the border before epoch e. Both limits are
// relaxed with prices, lambda_e of a place and mu_e of a move (Lagrange). Then each page decides
// alone, between two states in each epoch, and all that it needs to know of the future is by how
// much it is better to be fast than slow from an epoch on:
//
//     c_e = move_cost + mu_e
//     D_e = value_e - lambda_e + clip(D_(e+1), -c_(e+1), c_(e+1))
//
// A page goes fast where D_e > c_e, goes slow where D_e < -c_e, and stays where it is between.
// Where a page is born it is placed for nothing: fast where D_e > 0.
//
// The sum over the pages and what the limits earn at these prices is an upper bound of every
// schedule's gain, whatever the prices (weak duality); subgradient steps lower it. The schedule is
// a greedy repair at the last prices: in each epoch the pages with the largest advantage, as far as
// places and moves go. The best set that never changes is another candidate.
#pragma once

#include <cstdint>
#include <vector>

namespace tt::classify {

struct ScheduleProblem {
  std::uint64_t pages = 0;
  std::uint64_t epochs = 0;
  std::uint64_t capacity = 0;
  /// What a page in the fast tier saves in an epoch: value[epoch * pages + page]; 0 while it is not
  /// there.
  std::vector<float> value;
  /// Epochs [born, gone) in which a page is there.
  std::vector<std::uint32_t> born, gone;
  double move_cost = 0;       // of a page, in the same unit
  std::vector<double> moves;  // the most at the border before each epoch; empty: any number
};

/// The pages with the largest sums over all epochs, as many as fit; none without value.
[[nodiscard]] std::vector<bool> best_static(const ScheduleProblem& problem);

class Schedule {
 public:
  /// Memory: as much again as problem.value, for the repair.
  Schedule(const ScheduleProblem& problem, unsigned steps);

  [[nodiscard]] bool fast(std::uint64_t page, std::uint64_t epoch) const {
    return (rows_[epoch * words_ + page / 64] >> (page % 64) & 1U) != 0;
  }
  /// Upper bound of every schedule's gain over all pages slow.
  [[nodiscard]] double bound() const { return bound_; }
  /// Of this schedule, and of the best set that never changes.
  [[nodiscard]] double gain() const { return gain_; }
  [[nodiscard]] double static_gain() const { return static_gain_; }
  /// Of this schedule, over all borders.
  [[nodiscard]] std::uint64_t moves() const { return moves_; }

 private:
  struct Prices {
    std::vector<double> place, move;  // lambda, mu
  };
  /// What the pages do at these prices.
  struct Demand {
    double bound = 0;
    std::vector<double> places, moves;  // that they take in each epoch
  };
  [[nodiscard]] Demand ask(const ScheduleProblem& problem, const Prices& prices) const;
  [[nodiscard]] Prices by_epoch(const ScheduleProblem& problem) const;
  [[nodiscard]] Prices forever(const ScheduleProblem& problem) const;
  [[nodiscard]] Prices descend(const ScheduleProblem& problem, unsigned steps);
  void repair(const ScheduleProblem& problem, const Prices& prices);
  void keep(const ScheduleProblem& problem, const std::vector<bool>& set);
  void put(std::uint64_t page, std::uint64_t epoch) {
    rows_[epoch * words_ + page / 64] |= std::uint64_t{1} << (page % 64);
  }

  std::uint64_t words_;
  std::vector<std::uint64_t> rows_;  // a bit per page, a row per epoch
  double bound_ = 0, gain_ = 0, static_gain_ = 0;
  std::uint64_t moves_ = 0;
};

}  // namespace tt::classify
