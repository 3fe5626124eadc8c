// SPDX-License-Identifier: MIT

// xgboost: training on rows like those of Criteo's click logs; see xgboost.hpp for the algorithm.
#include "kernels/xgboost.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/math.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"
#include "kernels/portable_exp.hpp"

namespace tt::kernels {
namespace {

constexpr std::size_t piece = 256;  // rows of a set that are read at a time
constexpr double least_gain = 1e-6;

double logistic(double margin) { return 1 / (1 + portable_exp(-margin)); }

}  // namespace

BoostedTrees::BoostedTrees(trace::Recorder& recorder, std::size_t rows, std::size_t columns,
                           const Options& options, const RowSource& source)
    : recorder_(recorder),
      rows_(rows),
      columns_(columns),
      options_(options),
      rng_(mix64(options.seed)),
      cuts_(columns),
      entries_(recorder, "xgboost.page.data", rows * columns),
      offsets_(recorder, "xgboost.page.offset", rows + 1),
      labels_(recorder, "xgboost.info.labels", rows),
      by_row_(recorder, "xgboost.gradient_index", rows * columns),
      by_column_(recorder, "xgboost.column_matrix", rows * columns),
      margins_(recorder, "xgboost.predictions", rows),
      pairs_(recorder, "xgboost.gpair", rows),
      sampled_(columns) {
  std::iota(sampled_.begin(), sampled_.end(), 0u);
  read(source);
  bin_columns();
  for (std::size_t i = 0; i < rows_; ++i) margins_.store(stream, i, 0);
}

void BoostedTrees::read(const RowSource& source) {
  std::vector<float> values;
  for (std::size_t i = 0; i < rows_; ++i) {
    bool positive = false;
    source(i, values, positive);
    const std::span<Entry> to = entries_.store_range(stream, i * columns_, columns_);
    for (std::size_t c = 0; c < columns_; ++c) to[c] = {static_cast<std::uint32_t>(c), values[c]};
    offsets_.store(stream, i, i * columns_);
    labels_.store(stream, i, positive ? 1 : 0);
  }
  offsets_.store(stream, rows_, rows_ * columns_);
}

void BoostedTrees::bin_columns() {
  // Quantiles of at most this many rows, evenly spaced: the place of XGBoost's sketch.
  constexpr std::size_t sketch = 1 << 15;
  const std::size_t stride = (rows_ + sketch - 1) / sketch;
  std::vector<std::vector<float>> values(columns_);
  for (std::size_t i = 0; i < rows_; i += stride)
    for (const Entry& entry : entries_.load_range(stream, i * columns_, columns_))
      values[entry.column].push_back(entry.value);
  for (std::size_t c = 0; c < columns_; ++c) {
    std::ranges::sort(values[c]);
    for (std::size_t b = 1; b < options_.bins; ++b) {
      const float cut = values[c][b * values[c].size() / options_.bins];
      if (cut > values[c].front() && (cuts_[c].empty() || cut > cuts_[c].back()))
        cuts_[c].push_back(cut);
    }
  }
  const auto bin_of = [&](const Entry& entry) {
    const std::vector<float>& cuts = cuts_[entry.column];
    return static_cast<std::uint8_t>(std::ranges::upper_bound(cuts, entry.value) - cuts.begin());
  };
  for (std::size_t i = 0; i < rows_; ++i) {
    const std::span<const Entry> from = entries_.load_range(stream, i * columns_, columns_);
    const std::span<std::uint8_t> to = by_row_.store_range(stream, i * columns_, columns_);
    for (std::size_t c = 0; c < columns_; ++c) to[c] = bin_of(from[c]);
  }
  // Row blocks, so that a line of each column is filled before it leaves the cache.
  for (std::size_t first = 0; first < rows_; first += trace::base_page_bytes) {
    const std::size_t count = std::min<std::size_t>(trace::base_page_bytes, rows_ - first);
    (void)by_row_.load_range(stream, first * columns_, count * columns_);
    for (std::size_t c = 0; c < columns_; ++c) {
      const std::span<std::uint8_t> to = by_column_.store_range(stream, c * rows_ + first, count);
      for (std::size_t i = 0; i < count; ++i) to[i] = by_row_.peek((first + i) * columns_ + c);
    }
  }
}

void BoostedTrees::update_gradients() {
  for (std::size_t first = 0; first < rows_; first += piece) {
    const std::size_t count = std::min(piece, rows_ - first);
    const auto margins = margins_.load_range(stream, first, count);
    const auto labels = labels_.load_range(stream, first, count);
    const auto pairs = pairs_.store_range(stream, first, count);
    for (std::size_t i = 0; i < count; ++i) {
      const double p = logistic(margins[i]);
      pairs[i] = {static_cast<float>(p - labels[i]),
                  static_cast<float>(std::max(p * (1 - p), 1e-16))};
    }
  }
  recorder_.compute(0, options_.row_ns * static_cast<double>(rows_));
}

BoostedTrees::Histogram BoostedTrees::build(const Node& node,
                                            const TracedArray<std::uint64_t>& set) const {
  Histogram histogram(columns_ * most_bins);
  for (std::size_t first = node.first; first < node.first + node.count; first += piece) {
    const std::size_t count = std::min(piece, node.first + node.count - first);
    for (const std::uint64_t row : set.load_range(stream, first, count)) {
      const GradientPair pair = pairs_.load(prefetched, row);
      const std::uint8_t* const bins =
          by_row_.load_range(prefetched, row * columns_, columns_).data();
      HistogramBin* bin = histogram.data();
      for (std::size_t c = 0; c < columns_; ++c, bin += most_bins) {
        bin[bins[c]].gradient += pair.gradient;
        bin[bins[c]].hessian += pair.hessian;
      }
    }
    recorder_.compute(0, options_.bin_ns * static_cast<double>(count * columns_));
  }
  return histogram;
}

void BoostedTrees::find_split(Node& node, const Histogram& histogram) const {
  const auto score = [&](double gradient, double hessian) {
    return gradient * gradient / (hessian + options_.lambda);
  };
  const double whole = score(node.gradient, node.hessian);
  for (const std::uint32_t column : sampled_) {
    double gradient = 0;
    double hessian = 0;
    for (unsigned b = 0; b < cuts_[column].size(); ++b) {
      gradient += histogram[column * most_bins + b].gradient;
      hessian += histogram[column * most_bins + b].hessian;
      if (hessian < options_.least_hessian) continue;
      if (node.hessian - hessian < options_.least_hessian) break;
      const double gain = score(gradient, hessian) +
                          score(node.gradient - gradient, node.hessian - hessian) - whole;
      if (gain > std::max(node.gain, least_gain)) {
        node.gain = gain;
        node.column = static_cast<int>(column);
        node.last_bin = b;
      }
    }
  }
}

std::size_t BoostedTrees::partition(const Node& node, TracedArray<std::uint64_t>& set,
                                    TracedArray<std::uint64_t>& buffer) {
  const std::size_t column = static_cast<std::size_t>(node.column) * rows_;
  // The buffer has room for left rows and, behind them, for right ones.
  std::array<std::size_t, 2> count{};
  for (std::size_t first = node.first; first < node.first + node.count; first += piece)
    for (const std::uint64_t row :
         set.load_range(stream, first, std::min(piece, node.first + node.count - first))) {
      const std::size_t side = by_column_.load(gather, column + row) <= node.last_bin ? 0 : 1;
      buffer.store(stream, side * rows_ + node.first + count[side]++, row);
    }
  for (std::size_t side = 0; side < 2; ++side)
    for (std::size_t done = 0; done < count[side]; done += piece) {
      const std::size_t part = std::min(piece, count[side] - done);
      // Two statements: which of a call's arguments is evaluated first is up to the compiler.
      const auto to = set.store_range(stream, node.first + side * count[0] + done, part);
      std::ranges::copy(buffer.load_range(stream, side * rows_ + node.first + done, part),
                        to.begin());
    }
  return count[0];
}

void BoostedTrees::finish_leaf(Node& node, const TracedArray<std::uint64_t>& set) {
  node.value = -options_.eta * node.gradient / (node.hessian + options_.lambda);
  for (std::size_t first = node.first; first < node.first + node.count; first += piece) {
    const std::size_t count = std::min(piece, node.first + node.count - first);
    for (const std::uint64_t row : set.load_range(stream, first, count))
      margins_.store(gather, row, margins_.load(gather, row) + static_cast<float>(node.value));
  }
}

const std::vector<BoostedTrees::Node>& BoostedTrees::round() {
  update_gradients();
  TracedArray<std::uint64_t> set{recorder_, "xgboost.row_set", rows_};
  TracedArray<std::uint64_t> buffer{recorder_, "xgboost.partition_buffer", 2 * rows_};
  if (options_.columns_per_tree < 1) {
    const auto wanted = std::max<std::size_t>(
        1, static_cast<std::size_t>(options_.columns_per_tree * static_cast<double>(columns_)));
    sampled_.resize(columns_);
    std::iota(sampled_.begin(), sampled_.end(), 0u);
    for (std::size_t i = 0; i < wanted; ++i)
      std::swap(sampled_[i], sampled_[i + rng_.below(columns_ - i)]);
    sampled_.resize(wanted);
    std::ranges::sort(sampled_);
  }
  Node root;
  for (std::size_t first = 0; first < rows_; first += piece) {
    const std::size_t count = std::min(piece, rows_ - first);
    const auto from = pairs_.load_range(stream, first, count);
    for (std::size_t i = 0; i < count; ++i) {
      if (options_.rows_per_tree < 1 && rng_.uniform() >= options_.rows_per_tree) continue;
      root.gradient += from[i].gradient;
      root.hessian += from[i].hessian;
      set.store(stream, root.count++, first + i);
    }
  }

  // One level after the other; `level` has the histograms of nodes_[begin ...].
  nodes_.assign(1, root);
  std::vector<Histogram> level;
  level.push_back(build(root, set));
  std::size_t begin = 0;
  for (unsigned depth = 0;; ++depth) {
    const std::size_t end = nodes_.size();
    std::vector<Histogram> next;
    for (std::size_t n = begin; n < end; ++n) {
      if (depth < options_.depth) find_split(nodes_[n], level[n - begin]);
      if (nodes_[n].column < 0) {
        finish_leaf(nodes_[n], set);
        continue;
      }
      const Node parent = nodes_[n];
      Node left;
      Node right;
      left.first = parent.first;
      left.count = partition(parent, set, buffer);
      right.first = parent.first + left.count;
      right.count = parent.count - left.count;
      const HistogramBin* const bins =
          &level[n - begin][static_cast<std::size_t>(parent.column) * most_bins];
      for (unsigned b = 0; b <= parent.last_bin; ++b) {
        left.gradient += bins[b].gradient;
        left.hessian += bins[b].hessian;
      }
      right.gradient = parent.gradient - left.gradient;
      right.hessian = parent.hessian - left.hessian;
      nodes_[n].left = nodes_.size();
      nodes_[n].right = nodes_.size() + 1;
      nodes_.push_back(left);
      nodes_.push_back(right);
      if (depth + 1 == options_.depth) continue;  // leaves need no histogram
      // The smaller child's from its rows, the other's by subtraction.
      Histogram smaller = build(left.count <= right.count ? left : right, set);
      Histogram larger = std::move(level[n - begin]);
      for (std::size_t i = 0; i < larger.size(); ++i) {
        larger[i].gradient -= smaller[i].gradient;
        larger[i].hessian -= smaller[i].hessian;
      }
      const bool left_is_smaller = left.count <= right.count;
      next.push_back(left_is_smaller ? std::move(smaller) : std::move(larger));
      next.push_back(left_is_smaller ? std::move(larger) : std::move(smaller));
    }
    if (end == nodes_.size()) break;
    begin = end;
    level = std::move(next);
  }
  set.free();
  buffer.free();
  return nodes_;
}

double BoostedTrees::loss() const {
  double sum = 0;
  for (std::size_t i = 0; i < rows_; ++i) {
    const double margin = margins_.peek(i);
    sum += math::log1p(math::exp(labels_.peek(i) > 0 ? -margin : margin));
  }
  return sum / static_cast<double>(rows_);
}

namespace {

/// Rows of numbers with long tails and of category codes with a power law, clicked or not.
///
/// A column has 64 kinds of values, each with its own effect on the click; how strong a column's
/// effects are falls as a power of a rank that is drawn for it.
class ClickLog {
 public:
  ClickLog(std::size_t numeric, std::size_t categorical, double click_rate, std::uint64_t seed)
      : rng_(mix64(seed ^ 0x636c69636bULL)), numeric_(numeric), effect_(numeric + categorical) {
    std::vector<std::size_t> rank(effect_.size());
    std::iota(rank.begin(), rank.end(), std::size_t{1});
    for (std::size_t i = rank.size(); i > 1; --i) std::swap(rank[i - 1], rank[rng_.below(i)]);
    for (std::size_t c = 0; c < effect_.size(); ++c)
      for (double& effect : effect_[c])
        effect = 3 * (rng_.uniform() - 0.5) / std::sqrt(static_cast<double>(rank[c]));
    base_ = math::log(click_rate / (1 - click_rate));
  }

  void row(std::vector<float>& values, bool& positive) {
    values.resize(effect_.size());
    double logit = base_;
    for (std::size_t c = 0; c < effect_.size(); ++c) {
      const double u = rng_.uniform();
      // Counts with a tail of the second power; codes with a tenth of them in half of the rows.
      values[c] = static_cast<float>(c < numeric_ ? std::floor(1 / std::sqrt(1 - u))
                                                  : std::floor(u * u * u * 1e4));
      logit += effect_[c][static_cast<std::size_t>(
          c < numeric_ ? std::min(63.0, static_cast<double>(values[c]) - 1) : values[c] * 64e-4)];
    }
    positive = rng_.uniform() < logistic(logit);
  }

 private:
  Rng rng_;
  std::size_t numeric_;
  std::vector<std::array<double, 64>> effect_;
  double base_ = 0;
};

trace::StreamInfo record_xgboost(const RecordRequest& request) {
  const ParameterReader read{request};
  const auto whole = [&](const char* name, double least, double most) {
    return static_cast<std::size_t>(read.number(name, least, most));
  };
  const std::size_t numeric = whole("numeric_columns", 0, 1000);
  const std::size_t categorical = whole("categorical_columns", 1, 1000);
  const auto rows =
      static_cast<std::size_t>(std::ceil(read.positive("rows_m") * 1e6 / request.scale));
  const std::size_t rounds = whole("rounds", 1, 1e6);
  BoostedTrees::Options options;
  options.bins = whole("bins", 2, BoostedTrees::most_bins);
  options.depth = static_cast<unsigned>(whole("depth", 1, 16));
  options.eta = read.positive("eta");
  options.lambda = read.number("lambda");
  // Hessians are sums over rows, of which the miniature has fewer.
  options.least_hessian = read.number("min_child_weight") / request.scale;
  options.columns_per_tree = read.number("columns_per_tree", 0.001, 1);
  options.rows_per_tree = read.number("rows_per_tree", 0.001, 1);
  options.seed = request.seed;
  ClickLog log{numeric, categorical, read.number("click_rate", 1e-6, 0.5), request.seed};

  trace::StreamInfo info = describe(request);
  info.lanes = {{"training", 1}};
  // In order: 9 of a core's 10 to 12 line buffers. XGBoost prefetches a node's rows and gradients
  // some ten rows ahead when it builds a histogram: 8. Partitions and predictions gather without
  // prefetching, from addresses that are known early: 5.
  info.classes = {{"stream", 9, 2},
                  {.name = "prefetched", .mlp = 8, .issue_ns = 2, .prefetched = 1},
                  {"gather", 5, 2}};
  trace::Recorder recorder{request.file, info, recorder_options(request)};

  recorder.set_timed(false);
  BoostedTrees trees{
      recorder, rows, numeric + categorical, options,
      [&](std::size_t, std::vector<float>& values, bool& positive) { log.row(values, positive); }};
  recorder.set_timed(true);
  Progress progress{request};
  for (std::size_t i = 0; i < rounds; ++i) {
    progress.at(static_cast<double>(i) / static_cast<double>(rounds));
    (void)trees.round();
  }
  return recorder.finish();
}

const RegisterKernel registered{
    {"xgboost",
     "gradient-boosted trees by histograms over binned columns",
     {{"rows_m", 566.0, "10^6", "rows"},
      {"numeric_columns", 13.0, "count", "columns of numbers"},
      {"categorical_columns", 26.0, "count", "columns of category codes"},
      {"rounds", 100.0, "count", "trees"},
      {"bins", 256.0, "count", "bins per column, at most"},
      {"depth", 6.0, "count", "levels of splits in a tree"},
      {"eta", 0.3, "ratio", "learning rate"},
      {"lambda", 1.0, "weight", "L2 regularisation of leaf values"},
      {"min_child_weight", 1.0, "hessian", "of a child, at least"},
      {"columns_per_tree", 1.0, "share", "columns of which a tree may split (colsample_bytree)"},
      {"rows_per_tree", 1.0, "share", "rows from which a tree is grown (subsample)"},
      {"click_rate", 0.03, "share", "rows that are positive, before any column's effect"},
      block_ms_parameter(50)},
     &record_xgboost}};

}  // namespace
}  // namespace tt::kernels
