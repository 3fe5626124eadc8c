// SPDX-License-Identifier: MIT

// L1Logistic: L1-regularised logistic regression, as `liblinear-train -s 6` solves it.
//
//   minimise f(w) = |w|_1 + C sum over rows of log(1 + exp(-y_i w.x_i))
//
// newGLMNET (Yuan, Ho, Lin, "An Improved GLMNET for L1-regularized Logistic Regression", JMLR 2012;
// LIBLINEAR is BSD-licensed): outer Newton iterations build a quadratic model of the loss; it is
// minimised by coordinate descent, column after column in random order, with columns that stay at
// zero left out ("shrinking") on both levels; a backtracking line search takes the step. The solver
// needs columns, so that rows are transposed first, and both copies stay in memory.
//
// Memory is laid out as in LIBLINEAR: nodes of 16 bytes (index, value), a terminating node after
// each row and column, arrays of pointers to rows and columns, vectors over rows and features.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/rng.hpp"
#include "kernels/traced.hpp"

namespace tt::kernels {

struct FeatureNode {
  std::int32_t index = 0;  // -1 ends a row or column
  double value = 0;
};
static_assert(sizeof(FeatureNode) == 16);

struct LabelledRow {
  std::vector<FeatureNode> nodes;
  bool positive = false;
};

class L1Logistic {
 public:
  enum Class : std::uint32_t { column, row_gather, weight_gather, vector, classes };

  struct Options {
    double cost = 1;          // C
    double tolerance = 0.01;  // of the subgradient's 1-norm, relative to the start
    std::uint64_t newton_limit = 100;
    double sweeps = 0;  // it ends after as many nodes as so many passes have; 0: no limit
    std::uint64_t seed = 0;
    double row_ns = 40;  // thread time of the exponential and divisions for a row in a line search
  };
  struct Shape {
    std::size_t rows = 0, features = 0, nodes = 0;
  };

  struct Newton {
    double violation = 0;        // 1-norm of the subgradient at the start
    std::uint64_t passes = 0;    // of coordinate descent; 0: the start was good enough
    std::size_t active = 0;      // columns that were not left out
    std::uint64_t halvings = 0;  // of the line search
  };

  /// Reads all rows (`row(i, out)` fills row i) and transposes them.
  L1Logistic(trace::Recorder& recorder, const Shape& shape, const Options& options,
             const std::function<void(std::size_t, LabelledRow&)>& row);

  /// One outer iteration.
  Newton step();
  /// Whether the last step found nothing more to do.
  [[nodiscard]] bool done() const { return done_; }
  /// Violation over that of the start: falls to `tolerance`.
  [[nodiscard]] double relative_violation() const { return relative_; }

  /// Share of Options::sweeps that is done; 0 without a limit.
  [[nodiscard]] double sweeps_done() const {
    return options_.sweeps > 0 ? static_cast<double>(visited_) /
                                     (options_.sweeps * static_cast<double>(column_nodes_.size()))
                               : 0;
  }

  /// f(w), without being recorded.
  [[nodiscard]] double objective() const;
  [[nodiscard]] std::span<const double> weights() const { return w_.peek_all(); }

 private:
  [[nodiscard]] bool exhausted() const { return sweeps_done() >= 1; }
  void transpose();
  /// Gradient and diagonal of the Hessian of the loss; returns the violation.
  double linearise();
  std::uint64_t descend(double violation_start);
  std::uint64_t line_search();
  /// Nodes of a column, with one report for all, the terminating one included.
  [[nodiscard]] std::span<const FeatureNode> load_column(std::size_t j);

  trace::Recorder& recorder_;
  Shape shape_;
  Options options_;
  Rng rng_;

  // The problem, by rows.
  TracedArray<FeatureNode> nodes_;
  TracedArray<std::uint64_t> rows_;
  TracedArray<double> labels_;
  // Its transpose.
  TracedArray<FeatureNode> column_nodes_;
  TracedArray<std::uint64_t> columns_;
  TracedArray<double> column_labels_;
  // Per feature.
  TracedArray<double> w_;
  TracedArray<std::int32_t> order_;    // active ones first
  TracedArray<std::int8_t> positive_;  // per row
  TracedArray<double> hessian_;
  TracedArray<double> gradient_;
  TracedArray<double> candidate_;     // w plus the direction
  TracedArray<double> negative_sum_;  // of a column's values in negative rows, times C
  // Per row: x.d, exp(w.x), the next one, and C p(-), C p(+) p(-) with p the predicted probability.
  TracedArray<double> along_;
  TracedArray<double> exp_;
  TracedArray<double> exp_next_;
  TracedArray<double> tau_;
  TracedArray<double> curvature_;

  std::size_t active_ = 0;
  std::uint64_t newton_ = 0;
  std::uint64_t visited_ = 0;  // nodes of columns
  double norm_ = 0;            // |w|_1
  double start_ = -1;
  double inner_tolerance_ = 1;
  double shrink_below_;  // the outer level's margin, from the largest violation of the last pass
  double relative_ = 1;
  bool done_ = false;
};

}  // namespace tt::kernels
