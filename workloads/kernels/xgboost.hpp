// SPDX-License-Identifier: MIT

// BoostedTrees: gradient-boosted trees by histograms, as XGBoost trains them with tree_method=hist.
//
// Chen and Guestrin, "XGBoost: A Scalable Tree Boosting System", KDD 2016, for logistic loss:
// every column is cut into bins at quantiles once; a round computes a gradient and a Hessian per
// row, then grows one tree level by level. A node's histogram (sums of gradient and Hessian per bin
// of every column) is built from its own rows if it is the smaller of two siblings, and else is its
// parent's less its sibling's. A split maximises
//
//   G_l^2 / (H_l + lambda) + G_r^2 / (H_r + lambda) - G^2 / (H + lambda)
//
// Its rows are then partitioned, reading the split's column alone; a leaf is worth
// -eta G / (H + lambda), which is added to the predictions of its rows through the partition.
//
// Memory is laid out as in XGBoost (Apache-licensed, dmlc/xgboost, src/common and src/tree): the
// raw columns' entries of 8 bytes by rows, used for binning only; bins of one byte by rows
// (GHistIndexMatrix) for histograms and again by columns (ColumnMatrix) for partitions; gradient
// pairs of two floats; row sets of 8-byte indices, ascending within each node. Row sets and the
// buffers that partitions go through belong to a partitioner, which is made again for each tree.
// Cuts and histograms (160 KB per node) do not grow with the rows and stay in the caches of a core:
// they are not reported, as a cache that is scaled down would not hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/rng.hpp"
#include "kernels/traced.hpp"

namespace tt::kernels {

/// An entry of the raw matrix.
struct Entry {
  std::uint32_t column = 0;
  float value = 0;
};
struct GradientPair {
  float gradient = 0;
  float hessian = 0;
};
struct HistogramBin {
  double gradient = 0;
  double hessian = 0;
};

class BoostedTrees {
 public:
  enum Class : std::uint32_t { stream, prefetched, gather, classes };
  static constexpr std::size_t most_bins = 256;

  struct Options {
    std::size_t bins = 256;  // per column, at most
    unsigned depth = 6;
    double eta = 0.3;
    double lambda = 1;
    double least_hessian = 1;     // min_child_weight
    double columns_per_tree = 1;  // colsample_bytree
    double rows_per_tree = 1;     // subsample
    std::uint64_t seed = 0;
    double row_ns = 15;   // thread time of the exponential, per row and round
    double bin_ns = 0.8;  // thread time of adding a pair to a bin, which hides under no miss
  };
  /// Values of one row, one per column, and its label.
  using RowSource = std::function<void(std::size_t, std::vector<float>&, bool&)>;

  struct Node {
    std::size_t first = 0, count = 0;  // of its rows in the row set
    double gradient = 0, hessian = 0;
    int column = -1;        // split; -1: a leaf
    unsigned last_bin = 0;  // bins up to this one go left
    double gain = 0;
    double value = 0;  // of a leaf
    std::size_t left = 0, right = 0;
  };

  BoostedTrees(trace::Recorder& recorder, std::size_t rows, std::size_t columns,
               const Options& options, const RowSource& source);

  /// Adds a tree; its nodes are valid until the next round.
  const std::vector<Node>& round();

  /// Mean logistic loss of the predictions so far, without being recorded.
  [[nodiscard]] double loss() const;
  [[nodiscard]] std::span<const float> margins() const { return margins_.peek_all(); }
  [[nodiscard]] std::span<const float> labels() const { return labels_.peek_all(); }
  [[nodiscard]] unsigned bin(std::size_t row, std::size_t column) const {
    return by_row_.peek(row * columns_ + column);
  }
  [[nodiscard]] std::span<const std::uint32_t> sampled_columns() const { return sampled_; }

 private:
  using Histogram = std::vector<HistogramBin>;

  void read(const RowSource& source);
  void bin_columns();
  void update_gradients();
  [[nodiscard]] Histogram build(const Node& node, const TracedArray<std::uint64_t>& set) const;
  void find_split(Node& node, const Histogram& histogram) const;
  /// Left rows first, each side in order; returns how many go left.
  std::size_t partition(const Node& node, TracedArray<std::uint64_t>& set,
                        TracedArray<std::uint64_t>& buffer);
  void finish_leaf(Node& node, const TracedArray<std::uint64_t>& set);

  trace::Recorder& recorder_;
  std::size_t rows_;
  std::size_t columns_;
  Options options_;
  Rng rng_;
  std::vector<std::vector<float>> cuts_;  // per column, ascending; small, stays in the cache
  TracedArray<Entry> entries_;
  TracedArray<std::uint64_t> offsets_;
  TracedArray<float> labels_;
  TracedArray<std::uint8_t> by_row_;
  TracedArray<std::uint8_t> by_column_;
  TracedArray<float> margins_;
  TracedArray<GradientPair> pairs_;
  std::vector<std::uint32_t> sampled_;
  std::vector<Node> nodes_;
};

}  // namespace tt::kernels
