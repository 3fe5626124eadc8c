// SPDX-License-Identifier: MIT

// xgboost: trees against an exhaustive search over the same bins, and what a round does to memory.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>

#include "check.hpp"
#include "core/rng.hpp"
#include "kernels/kernel.hpp"
#include "kernels/xgboost.hpp"
#include "scratch.hpp"
#include "stream_sums.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::trace;
using check::Scratch;
using kernels::BoostedTrees;

namespace {

StreamInfo training_info() {
  StreamInfo info;
  info.lanes = {{"training", 1}};
  info.classes = {{"stream", 9, 2}, {"prefetched", 8, 2}, {"gather", 5, 2}};
  return info;
}

constexpr std::size_t rows = 600;
constexpr std::size_t columns = 5;

struct Training {
  explicit Training(const BoostedTrees::Options& options)
      : recorder(scratch.file("x.tts"), training_info(), {}),
        trees(recorder, rows, columns, options,
              [this](std::size_t, std::vector<float>& values, bool& positive) {
                values.clear();
                for (std::size_t c = 0; c < columns; ++c)
                  values.push_back(static_cast<float>(std::floor(rng.uniform() * 40)));
                positive = rng.uniform() < ((values[1] > 17) != (values[3] > 30) ? 0.8 : 0.2);
              }) {}
  Scratch scratch;
  Rng rng{7};
  Recorder recorder;
  BoostedTrees trees;
};

struct Sums {
  double gradient = 0, hessian = 0;
  [[nodiscard]] double score(double lambda) const {
    return gradient * gradient / (hessian + lambda);
  }
};

/// The best gain among all columns and bins, from the rows themselves; 0 if no split is allowed.
double best_gain(const BoostedTrees& trees, const std::vector<std::size_t>& of,
                 const std::vector<Sums>& pairs, std::span<const std::uint32_t> allowed,
                 const BoostedTrees::Options& options, const BoostedTrees::Node& chosen,
                 double& gain_of_chosen) {
  double best = 0;
  for (const std::uint32_t column : allowed)
    for (unsigned bin = 0; bin < 255; ++bin) {
      Sums left;
      Sums right;
      for (const std::size_t row : of) {
        Sums& side = trees.bin(row, column) <= bin ? left : right;
        side.gradient += pairs[row].gradient;
        side.hessian += pairs[row].hessian;
      }
      if (right.hessian == 0) break;
      if (left.hessian < options.least_hessian || right.hessian < options.least_hessian) continue;
      const Sums all{left.gradient + right.gradient, left.hessian + right.hessian};
      const double gain =
          left.score(options.lambda) + right.score(options.lambda) - all.score(options.lambda);
      best = std::max(best, gain);
      if (static_cast<int>(column) == chosen.column && bin == chosen.last_bin)
        gain_of_chosen = gain;
    }
  return best;
}

kernels::RecordRequest small(const std::filesystem::path& file) {
  kernels::RecordRequest request;
  request.workload = "xgboost";
  request.input = "test";
  request.scale = 65536;  // 920 pages at a time
  request.seed = 3;
  request.file = file;
  request.parameters["rounds"] = 12.0;
  return request;
}

}  // namespace

TEST("xgboost: every split is the best of all, every prediction a sum of leaves") {
  BoostedTrees::Options options;
  options.depth = 3;
  options.bins = 32;
  options.lambda = 2;
  options.least_hessian = 3;
  Training training{options};
  BoostedTrees& trees = training.trees;
  std::vector<double> margin(rows);
  double last = trees.loss();
  CHECK_NEAR(last, std::log(2.0), 1e-9);
  for (int round = 0; round < 3; ++round) {
    std::vector<Sums> pairs(rows);
    for (std::size_t i = 0; i < rows; ++i) {
      const double p = 1 / (1 + std::exp(-margin[i]));
      pairs[i] = {p - trees.labels()[i], p * (1 - p)};
    }
    const auto& nodes = trees.round();
    std::vector<std::vector<std::size_t>> of(nodes.size());
    of[0].resize(rows);
    std::iota(of[0].begin(), of[0].end(), std::size_t{0});
    int depth_of_last = 0;
    for (std::size_t n = 0; n < nodes.size(); ++n) {
      const auto& node = nodes[n];
      CHECK_EQ(node.count, of[n].size());
      if (node.column >= 0) {
        double gain = -1;
        const double best =
            best_gain(trees, of[n], pairs, trees.sampled_columns(), options, node, gain);
        CHECK_NEAR(gain, best, 1e-4 * (1 + best));  // gradients are floats
        CHECK_NEAR(node.gain, gain, 1e-4 * (1 + best));
        for (const std::size_t row : of[n])
          of[trees.bin(row, static_cast<std::size_t>(node.column)) <= node.last_bin ? node.left
                                                                                    : node.right]
              .push_back(row);
        continue;
      }
      ++depth_of_last;
      Sums sums;
      for (const std::size_t row : of[n]) {
        sums.gradient += pairs[row].gradient;
        sums.hessian += pairs[row].hessian;
      }
      for (const std::size_t row : of[n])
        margin[row] -= options.eta * sums.gradient / (sums.hessian + options.lambda);
    }
    CHECK(nodes.size() >= 9 && nodes.size() <= 15 && depth_of_last >= 5);
    for (std::size_t i = 0; i < rows; ++i) {
      CHECK_NEAR(trees.margins()[i], margin[i], 1e-4);
      margin[i] = trees.margins()[i];
    }
    CHECK(trees.loss() < last);
    last = trees.loss();
  }
  CHECK(last < 0.6);
}

TEST("xgboost: a tree keeps to the columns and rows that were drawn for it") {
  BoostedTrees::Options options;
  options.columns_per_tree = 0.4;
  options.rows_per_tree = 0.5;
  options.depth = 4;
  Training training{options};
  std::vector<bool> used(columns);
  for (int round = 0; round < 8; ++round) {
    const auto& nodes = training.trees.round();
    const auto sampled = training.trees.sampled_columns();
    CHECK_EQ(sampled.size(), 2u);
    CHECK(nodes[0].count > 230 && nodes[0].count < 370);
    for (const auto& node : nodes)
      if (node.column >= 0) {
        CHECK(std::ranges::find(sampled, static_cast<std::uint32_t>(node.column)) != sampled.end());
        used[static_cast<std::size_t>(node.column)] = true;
      }
  }
  CHECK(std::ranges::count(used, true) >= 3);
}

TEST("xgboost: bins stream, gradients are gathered, the raw matrix is cold") {
  const Scratch scratch;
  const StreamInfo info = kernels::record("xgboost", small(scratch.file("x.tts")));
  const Reader reader{scratch.file("x.tts")};
  reader.verify();
  std::map<std::string, std::pair<double, double>> objects;  // pages, accesses
  double all = 0;
  for (const Object& object : info.objects) {
    auto& [pages, sum] = objects[object.site];
    pages += static_cast<double>(object.pages);
    for (std::uint64_t page = object.first_page; page < object.first_page + object.pages; ++page)
      sum += static_cast<double>(reader.page_totals()[page]);
  }
  for (const auto& [site, counts] : objects) all += counts.second;
  const auto share = [&](const char* site) { return objects[site].second / all; };
  CHECK_EQ(share("xgboost.page.data"), 0.0);
  CHECK(share("xgboost.gradient_index") > 0.2);
  // A round takes its own row set and buffers, and gives them back.
  CHECK_EQ(std::ranges::count(info.objects, "xgboost.row_set", &Object::site), 12);
  Block block;
  std::uint64_t live = 0;
  std::uint64_t most = 0;
  double random = 0;
  double timed = 0;
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    for (const Event& event : block.events) {
      if (event.type == EventType::touch) most = std::max(most, live += event.count);
      if (event.type == EventType::unmap) live -= event.count;
    }
    for (const Segment& segment : block.segments) {
      if (!block.timed) continue;
      timed += static_cast<double>(segment.sum);
      if (segment.stream_class != BoostedTrees::stream) random += static_cast<double>(segment.sum);
    }
  }
  CHECK_NEAR(static_cast<double>(most) * 4096 * info.scale, 248e9, 5e9);
  CHECK_NEAR(static_cast<double>(live) / static_cast<double>(most), 1 - 24.0 / 438, 0.01);
  CHECK(random > 0.5 * timed);
  // FreqTier: 5.9 s per round where fast memory nearly suffices.
  CHECK_NEAR(info.nominal_seconds / 12, 5.7, 0.7);
}

TEST("xgboost: more than half of the hot pages are gone with their tree") {
  // HybridTier, §2.2: over half of the initially hot pages are not hot five minutes later. Here hot
  // are the hottest tenth of the pages in ten seconds, two rounds; what lives for one tree is most
  // of them, and the distance in time does not matter.
  const Scratch scratch;
  const StreamInfo info = kernels::record("xgboost", small(scratch.file("x.tts")));
  const Reader reader{scratch.file("x.tts")};
  std::array<std::vector<double>, 2> counts;
  for (auto& window : counts) window.resize(info.pages);  // 924
  Block block;
  double seconds = 0;
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    if (!block.timed) continue;
    seconds += block.nominal_ns * 1e-9;
    if (seconds < 10 || (seconds >= 20 && seconds < 50) || seconds >= 60) continue;
    for (const Segment& segment : block.segments)
      for (std::size_t e = 0; e < segment.pages.size(); ++e)
        counts[seconds < 20 ? 0 : 1][segment.pages[e]] += segment.counts[e];
  }
  const double same = test::common(test::hottest(counts[0], 92), test::hottest(counts[1], 92));
  CHECK(same < 0.5);
  CHECK(same > 0.11);  // gradients and predictions stay
}

TEST("xgboost: parameters and smoke input") {
  const Scratch scratch;
  const auto with = [&](const char* name, double value) {
    auto request = small(scratch.file("b.tts"));
    request.scale = 262144;
    request.parameters["rounds"] = 4.0;
    request.parameters[name] = value;
    return kernels::record("xgboost", request);
  };
  const StreamInfo plain = with("rounds", 4);
  CHECK(with("rows_m", 300).pages < plain.pages);
  CHECK(with("numeric_columns", 6).pages < plain.pages);
  CHECK(with("categorical_columns", 13).pages < plain.pages);
  CHECK(with("rounds", 2).accesses < plain.accesses);
  CHECK(with("bins", 8).accesses != plain.accesses);
  CHECK(with("depth", 3).accesses < plain.accesses);
  CHECK(with("eta", 0.1).accesses != plain.accesses);
  CHECK(with("lambda", 50).accesses != plain.accesses);
  CHECK(with("min_child_weight", 2e7).accesses != plain.accesses);
  CHECK(with("columns_per_tree", 0.3).accesses != plain.accesses);
  CHECK(with("rows_per_tree", 0.5).accesses < plain.accesses);
  CHECK(with("click_rate", 0.3).accesses != plain.accesses);
  CHECK(with("block_ms", 400).blocks < plain.blocks);
  CHECK_THROWS(with("bins", 257), "bins: found 257, allowed 2 to 256");

  auto smoke = small(scratch.file("s.tts"));  // as in xgboost.yaml
  smoke.scale = 16384;
  smoke.parameters = {{"rounds", 10.0}, {"block_ms", 100.0}};
  const StreamInfo info = kernels::record("xgboost", smoke);
  CHECK(info.pages > 4000 && info.pages <= 8192);
}
