// SPDX-License-Identifier: MIT

// liblinear: training on rows like those of KDD Cup 2012, track 2; see liblinear.hpp for the
// solver.
#include "kernels/liblinear.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/math.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"
#include "kernels/portable_exp.hpp"

namespace tt::kernels {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double ridge = 1e-12;  // keeps the quadratic model's curvature above zero
constexpr double armijo = 0.01;  // share of the predicted decrease that a step must bring
constexpr std::uint64_t pass_limit = 1000;
constexpr std::uint64_t halving_limit = 20;
constexpr double largest_move = 10;  // of one weight in one update

/// How far 0 is from the subgradient of |w| + loss in one coordinate.
double violation_of(double w, double gradient) {
  if (w > 0) return std::abs(gradient + 1);
  if (w < 0) return std::abs(gradient - 1);
  return std::max({0.0, -(gradient + 1), gradient - 1});
}

/// Whether a weight of zero is far enough inside the subgradient to be left out.
bool settled(double gradient, double margin) {
  return gradient + 1 > margin && gradient - 1 < -margin;
}

/// Sum of the logarithms of many positive factors, with one logarithm.
class LogProduct {
 public:
  void multiply(double factor) {
    product_ *= factor;
    if (product_ > 0x1p-400 && product_ < 0x1p400) return;
    int power = 0;
    product_ = std::frexp(product_, &power);
    powers_ += power;
  }
  [[nodiscard]] double log() const {
    return math::log(product_) + static_cast<double>(powers_) * 0x1.62e42fefa39efp-1;
  }

 private:
  double product_ = 1;
  std::int64_t powers_ = 0;
};

}  // namespace

L1Logistic::L1Logistic(trace::Recorder& recorder, const Shape& shape, const Options& options,
                       const std::function<void(std::size_t, LabelledRow&)>& row)
    : recorder_(recorder),
      shape_(shape),
      options_(options),
      rng_(mix64(options.seed)),
      nodes_(recorder, "liblinear.x_space", shape.nodes + shape.rows),
      rows_(recorder, "liblinear.x", shape.rows),
      labels_(recorder, "liblinear.y", shape.rows),
      column_nodes_(recorder, "liblinear.transposed.x_space", shape.nodes + shape.features),
      columns_(recorder, "liblinear.transposed.x", shape.features),
      column_labels_(recorder, "liblinear.transposed.y", shape.rows),
      w_(recorder, "liblinear.w", shape.features),
      order_(recorder, "liblinear.index", shape.features),
      positive_(recorder, "liblinear.sign", shape.rows),
      hessian_(recorder, "liblinear.Hdiag", shape.features),
      gradient_(recorder, "liblinear.Grad", shape.features),
      candidate_(recorder, "liblinear.wpd", shape.features),
      negative_sum_(recorder, "liblinear.xjneg_sum", shape.features),
      along_(recorder, "liblinear.xTd", shape.rows),
      exp_(recorder, "liblinear.exp_wTx", shape.rows),
      exp_next_(recorder, "liblinear.exp_wTx_new", shape.rows),
      tau_(recorder, "liblinear.tau", shape.rows),
      curvature_(recorder, "liblinear.D", shape.rows),
      active_(shape.features),
      shrink_below_(infinity) {
  LabelledRow read;
  std::size_t at = 0;
  for (std::size_t i = 0; i < shape.rows; ++i) {
    row(i, read);
    rows_.store(vector, i, at);
    labels_.store(vector, i, read.positive ? 1 : -1);
    const auto to = nodes_.store_range(vector, at, read.nodes.size() + 1);
    std::ranges::copy(read.nodes, to.begin());
    to.back() = {-1, 0};
    at += read.nodes.size() + 1;
  }
  transpose();

  // w = 0: every row is as likely positive as negative.
  const double c = options_.cost;
  for (std::size_t i = 0; i < shape.rows; ++i) {
    const bool positive = column_labels_.load(vector, i) > 0;
    positive_.store(vector, i, static_cast<std::int8_t>(positive ? 1 : -1));
    exp_.store(vector, i, 1);
    tau_.store(vector, i, 0.5 * c);
    curvature_.store(vector, i, 0.25 * c);
  }
  for (std::size_t j = 0; j < shape.features; ++j) {
    w_.store(vector, j, 0);
    candidate_.store(vector, j, 0);
    order_.store(vector, j, static_cast<std::int32_t>(j));
    double sum = 0;
    for (const FeatureNode& node : load_column(j))
      if (positive_.load(row_gather, static_cast<std::size_t>(node.index)) < 0)
        sum += c * node.value;
    negative_sum_.store(vector, j, sum);
  }
}

void L1Logistic::transpose() {
  // As LIBLINEAR: count, add up, fill; `ends` walks through each column.
  TracedArray<std::uint64_t> ends{recorder_, "liblinear.transpose.col_ptr", shape_.features + 1};
  for (std::size_t i = 0; i < shape_.rows; ++i) {
    column_labels_.store(vector, i, labels_.load(vector, i));
    for (std::size_t k = rows_.load(vector, i);; ++k) {
      const FeatureNode node = nodes_.load(vector, k);
      if (node.index < 0) break;
      const auto j = static_cast<std::size_t>(node.index) + 1;
      ends.store(weight_gather, j, ends.load(weight_gather, j) + 1);
    }
  }
  std::uint64_t start = 0;
  for (std::size_t j = 0; j < shape_.features; ++j) {
    start += ends.load(vector, j) + (j > 0 ? 1 : 0);  // one more for the node that ends a column
    ends.store(vector, j, start);
    columns_.store(vector, j, start);
  }
  for (std::size_t i = 0; i < shape_.rows; ++i)
    for (std::size_t k = rows_.load(vector, i);; ++k) {
      const FeatureNode node = nodes_.load(vector, k);
      if (node.index < 0) break;
      const auto j = static_cast<std::size_t>(node.index);
      const std::uint64_t to = ends.load(weight_gather, j);
      column_nodes_.store(column, to, {static_cast<std::int32_t>(i), node.value});
      ends.store(weight_gather, j, to + 1);
    }
  for (std::size_t j = 0; j < shape_.features; ++j)
    column_nodes_.store(column, ends.load(vector, j), {-1, 0});
  ends.free();
}

std::span<const FeatureNode> L1Logistic::load_column(std::size_t j) {
  // The solver walks up to the terminating node; where that is need not be loaded.
  const std::size_t first = columns_.load(weight_gather, j);
  const std::size_t end = j + 1 < shape_.features ? columns_.peek(j + 1) : column_nodes_.size();
  visited_ += end - first;
  return column_nodes_.load_range(column, first, end - first).first(end - first - 1);
}

double L1Logistic::linearise() {
  const double margin = shrink_below_ / static_cast<double>(shape_.rows);
  double largest = 0;
  double sum = 0;
  active_ = shape_.features;
  for (std::size_t s = 0; s < active_;) {
    const std::int32_t feature = order_.load(vector, s);
    const auto j = static_cast<std::size_t>(feature);
    double hessian = ridge;
    double falling = 0;
    for (const FeatureNode& node : load_column(j)) {
      const auto i = static_cast<std::size_t>(node.index);
      hessian += node.value * node.value * curvature_.load(row_gather, i);
      falling += node.value * tau_.load(row_gather, i);
    }
    const double gradient = negative_sum_.load(weight_gather, j) - falling;
    hessian_.store(weight_gather, j, hessian);
    gradient_.store(weight_gather, j, gradient);
    const double w = w_.load(weight_gather, j);
    if (w == 0 && settled(gradient, margin)) {
      --active_;
      order_.store(vector, s, order_.load(vector, active_));
      order_.store(vector, active_, feature);
      continue;
    }
    const double violation = violation_of(w, gradient);
    largest = std::max(largest, violation);
    sum += violation;
    ++s;
  }
  shrink_below_ = largest;
  return sum;
}

std::uint64_t L1Logistic::descend(double violation_start) {
  std::ranges::fill(along_.store_range(vector, 0, shape_.rows), 0.0);
  std::uint64_t passes = 0;
  std::size_t active = active_;
  double margin = infinity;
  while (passes < pass_limit && !exhausted()) {
    for (std::size_t s = 0; s < active; ++s) {
      const std::size_t other = s + rng_.below(active - s);
      const std::int32_t feature = order_.load(vector, s);
      order_.store(vector, s, order_.load(weight_gather, other));
      order_.store(weight_gather, other, feature);
    }
    double largest = 0;
    double sum = 0;
    for (std::size_t s = 0; s < active;) {
      const std::int32_t feature = order_.load(vector, s);
      const auto j = static_cast<std::size_t>(feature);
      const std::span<const FeatureNode> nodes = load_column(j);
      const double hessian = hessian_.load(weight_gather, j);
      const double z = candidate_.load(weight_gather, j);
      double gradient = gradient_.load(weight_gather, j) + (z - w_.load(weight_gather, j)) * ridge;
      for (const FeatureNode& node : nodes) {
        const auto i = static_cast<std::size_t>(node.index);
        gradient += node.value * curvature_.load(row_gather, i) * along_.load(row_gather, i);
      }
      if (z == 0 && settled(gradient, margin)) {
        --active;
        order_.store(vector, s, order_.load(vector, active));
        order_.store(vector, active, feature);
        continue;
      }
      const double violation = violation_of(z, gradient);
      largest = std::max(largest, violation);
      sum += violation;
      ++s;
      // The minimum of the one-variable model: soft thresholding.
      double move = -z;
      if (gradient + 1 <= hessian * z)
        move = -(gradient + 1) / hessian;
      else if (gradient - 1 >= hessian * z)
        move = -(gradient - 1) / hessian;
      if (std::abs(move) < ridge) continue;
      move = std::clamp(move, -largest_move, largest_move);
      candidate_.store(weight_gather, j, z + move);
      (void)load_column(j);
      for (const FeatureNode& node : nodes) {
        const auto i = static_cast<std::size_t>(node.index);
        along_.store(row_gather, i, along_.load(row_gather, i) + node.value * move);
      }
    }
    ++passes;
    if (sum <= inner_tolerance_ * violation_start) {
      if (active == active_) break;
      active = active_;  // once more with those that were left out
      margin = infinity;
    } else {
      margin = largest / static_cast<double>(shape_.rows);
    }
  }
  return passes;
}

std::uint64_t L1Logistic::line_search() {
  const double c = options_.cost;
  double decrease = 0;  // predicted, negative
  double norm = 0;
  for (std::size_t s = 0; s < active_; ++s) {
    const auto j = static_cast<std::size_t>(order_.load(vector, s));
    const double z = candidate_.load(weight_gather, j);
    decrease += gradient_.load(weight_gather, j) * (z - w_.load(weight_gather, j));
    norm += std::abs(z);
  }
  decrease += norm - norm_;
  double negative = 0;
  for (std::size_t i = 0; i < shape_.rows; ++i)
    if (positive_.load(vector, i) < 0) negative += c * along_.load(vector, i);

  std::uint64_t halvings = 0;
  for (;; ++halvings) {
    LogProduct product;
    for (std::size_t i = 0; i < shape_.rows; ++i) {
      const double factor = portable_exp(along_.load(vector, i));
      const double next = exp_.load(vector, i) * factor;
      exp_next_.store(vector, i, next);
      product.multiply((1 + next) / (factor + next));
    }
    recorder_.compute(0, options_.row_ns * static_cast<double>(shape_.rows));
    if (norm - norm_ + negative + c * product.log() <= armijo * decrease ||
        halvings == halving_limit)
      break;
    norm = 0;
    for (std::size_t s = 0; s < active_; ++s) {
      const auto j = static_cast<std::size_t>(order_.load(vector, s));
      const double z = 0.5 * (w_.load(weight_gather, j) + candidate_.load(weight_gather, j));
      candidate_.store(weight_gather, j, z);
      norm += std::abs(z);
    }
    decrease *= 0.5;
    negative *= 0.5;
    for (std::size_t i = 0; i < shape_.rows; ++i)
      along_.store(vector, i, 0.5 * along_.load(vector, i));
  }
  norm_ = norm;
  for (std::size_t s = 0; s < active_; ++s) {
    const auto j = static_cast<std::size_t>(order_.load(vector, s));
    w_.store(weight_gather, j, candidate_.load(weight_gather, j));
  }
  for (std::size_t i = 0; i < shape_.rows; ++i) {
    const double e = exp_next_.load(vector, i);
    const double against = 1 / (1 + e);
    exp_.store(vector, i, e);
    tau_.store(vector, i, c * against);
    curvature_.store(vector, i, c * e * against * against);
  }
  return halvings;
}

L1Logistic::Newton L1Logistic::step() {
  Newton newton;
  newton.violation = linearise();
  newton.active = active_;
  if (start_ < 0) start_ = newton.violation;
  relative_ = start_ > 0 ? newton.violation / start_ : 0;
  done_ = relative_ <= options_.tolerance || newton_ == options_.newton_limit || exhausted();
  if (done_) return newton;
  ++newton_;
  newton.passes = descend(start_);
  newton.halvings = line_search();
  if (newton.passes == 1) inner_tolerance_ *= 0.25;
  return newton;
}

double L1Logistic::objective() const {
  double sum = 0;
  for (const double w : w_.peek_all()) sum += std::abs(w);
  for (std::size_t i = 0; i < shape_.rows; ++i) {
    double product = 0;
    for (std::size_t k = rows_.peek(i); nodes_.peek(k).index >= 0; ++k)
      product += nodes_.peek(k).value * w_.peek(static_cast<std::size_t>(nodes_.peek(k).index));
    sum += options_.cost * math::log1p(math::exp(labels_.peek(i) > 0 ? -product : product));
  }
  return sum;
}

namespace {

/// Rows of one feature out of each field, clicked or not.
///
/// Within a field the most popular x of the values have a share of x^(1 - skew) of the rows, which
/// is a power law that does not change with the number of values. Half of the values bear on
/// the click.
class Clicks {
 public:
  Clicks(const std::vector<double>& values, const std::vector<double>& skew, double scale,
         double click_rate, std::uint64_t seed)
      : rng_(seed), value_(1 / std::sqrt(static_cast<double>(values.size()))) {
    constexpr double whole = 16;  // a field of a few values stays one
    for (std::size_t f = 0; f < values.size(); ++f) {
      const double count = std::min(values[f], std::max(whole, std::round(values[f] / scale)));
      fields_.push_back({features_, static_cast<std::size_t>(count), 1 / (1 - skew[f])});
      features_ += static_cast<std::size_t>(count);
    }
    // A value's number says nothing about its popularity.
    number_.resize(features_);
    for (const Field& field : fields_)
      for (std::size_t i = 0; i < field.count; ++i) {
        const std::size_t other = rng_.below(i + 1);
        number_[field.first + i] = number_[field.first + other];
        number_[field.first + other] = static_cast<std::int32_t>(field.first + i);
      }
    for (std::size_t i = 0; i < features_; ++i)
      effect_.push_back(rng_.uniform() < 0.5 ? 3 * (rng_.uniform() - 0.5) : 0);
    base_ = math::log(click_rate / (1 - click_rate));
  }

  [[nodiscard]] std::size_t features() const { return features_; }
  void row(LabelledRow& out) {
    out.nodes.clear();
    double logit = base_;
    for (const Field& field : fields_) {
      const double position = math::pow(rng_.uniform(), field.power);
      const auto place = static_cast<std::size_t>(position * static_cast<double>(field.count));
      const std::int32_t feature = number_[field.first + std::min(place, field.count - 1)];
      out.nodes.push_back({feature, value_});
      logit += effect_[static_cast<std::size_t>(feature)];
    }
    out.positive = rng_.uniform() * (1 + portable_exp(-logit)) < 1;
  }

 private:
  struct Field {
    std::size_t first, count;
    double power;
  };
  Rng rng_;
  double value_;  // rows have length 1
  std::size_t features_ = 0;
  std::vector<Field> fields_;
  std::vector<std::int32_t> number_;
  std::vector<double> effect_;
  double base_ = 0;
};

trace::StreamInfo record_liblinear(const RecordRequest& request) {
  const ParameterReader read{request};
  const std::vector<double>& values = read.list("field_values");
  const std::vector<double>& skew = read.list("field_skew");
  read.require(!values.empty() && std::ranges::all_of(values, [](double v) { return v >= 1; }),
               "field_values", "at least one field, each of at least one value");
  read.require(skew.size() == values.size() &&
                   std::ranges::all_of(skew, [](double s) { return s >= 0 && s < 1; }),
               "field_skew", "as many as field_values, each at least 0 and below 1");
  L1Logistic::Options options;
  options.cost = read.positive("cost");
  options.tolerance = read.number("tolerance", 1e-9, 1);
  options.newton_limit = static_cast<std::uint64_t>(read.number("newton_limit", 1, 1e6));
  options.sweeps = read.number("sweeps");
  options.seed = request.seed;

  Clicks clicks{values, skew, request.scale, read.number("click_rate", 1e-6, 0.5), request.seed};
  L1Logistic::Shape shape;
  shape.rows = static_cast<std::size_t>(std::ceil(read.positive("rows_m") * 1e6 / request.scale));
  shape.features = clicks.features();
  shape.nodes = shape.rows * values.size();

  trace::StreamInfo info = describe(request);
  // Estimate: coordinate descent over columns shares out the longer ones only; 20 threads do the
  // work of 8 (Zhuang et al., CIKM 2018, find speed-ups of that order).
  info.lanes = {{"training", 0.4}};
  // Columns and vectors are read in order; a column of some thirty nodes is eight lines long, so
  // that a prefetcher runs dry at its end: 7 instead of 9 outstanding misses. A column's rows are
  // known from its nodes and independent of each other; each brings two misses and a handful of
  // instructions: 5, as for other gathers. What belongs to the next feature is behind the sum over
  // the present one: 3.
  info.classes = {
      {"column", 7, 2}, {"row_gather", 5, 2}, {"weight_gather", 3, 2}, {"vector", 9, 2}};
  trace::Recorder recorder{request.file, info, recorder_options(request)};

  recorder.set_timed(false);
  L1Logistic solver{recorder, shape, options,
                    [&](std::size_t, LabelledRow& out) { clicks.row(out); }};
  recorder.set_timed(true);
  Progress progress{request};
  while (!solver.done()) {
    (void)solver.step();
    progress.at(std::max(
        solver.sweeps_done(),
        math::log(std::max(solver.relative_violation(), 1e-300)) / math::log(options.tolerance)));
  }
  return recorder.finish();
}

const RegisterKernel registered{
    {"liblinear",
     "L1-regularised logistic regression by coordinate descent over the columns of sparse rows",
     {{"rows_m", 149.639105, "10^6", "rows"},
      {"field_values",
       std::vector<double>{24122076, 22023547, 3735796, 2934101, 1188089, 641707, 26273, 14847, 6,
                           3, 3},
       "count", "values of each categorical field; a row has one of each"},
      {"field_skew", std::vector<double>{.8, .8, .8, .8, .8, .8, .8, .8, .3, .3, .3}, "exponent",
       "of the power law of popularity in each field, below 1"},
      {"click_rate", 0.045, "share", "rows that are positive, before any feature's effect"},
      {"cost", 1.0, "C", "weight of the loss beside the 1-norm of the weights"},
      {"tolerance", 0.01, "ratio", "of the subgradient's 1-norm to that of the start"},
      {"newton_limit", 100.0, "count", "outer iterations, at most"},
      {"sweeps", 0.0, "count",
       "training ends when as many non-zeros were read as so many passes over all of them read, "
       "so that the work does not depend on the scale; 0: by the tolerance alone"},
      block_ms_parameter(50)},
     &record_liblinear}};

}  // namespace
}  // namespace tt::kernels
