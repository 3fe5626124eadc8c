// SPDX-License-Identifier: MIT

// liblinear: the solver against proximal gradient steps, and which of its memory is hot.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "check.hpp"
#include "core/rng.hpp"
#include "kernels/kernel.hpp"
#include "kernels/liblinear.hpp"
#include "kernels/portable_exp.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::trace;
using check::Scratch;
using kernels::L1Logistic;
using kernels::LabelledRow;

namespace {

StreamInfo solver_info() {
  StreamInfo info;
  info.lanes = {{"training", 1}};
  info.classes = {{"column", 7, 2}, {"row", 5, 2}, {"weight", 3, 2}, {"vector", 9, 2}};
  return info;
}

/// Four values out of 40 features, the first of them much more popular; some features never occur.
std::vector<LabelledRow> problem(std::size_t rows, std::uint64_t seed) {
  Rng rng{seed};
  std::vector<LabelledRow> out(rows);
  for (LabelledRow& row : out) {
    double logit = -0.5;
    for (int field = 0; field < 4; ++field) {
      const double u = rng.uniform();
      const auto feature = static_cast<std::int32_t>(field * 10 + u * u * 9);
      const double value = 0.5 + rng.uniform();
      row.nodes.push_back({feature, value});
      logit += value * (feature % 3 == 0 ? 2 : feature % 7 == 0 ? -2 : 0);
    }
    row.positive = rng.uniform() < 1 / (1 + std::exp(-logit));
  }
  return out;
}

double objective(const std::vector<LabelledRow>& rows, const std::vector<double>& w, double c) {
  double sum = 0;
  for (const double x : w) sum += std::abs(x);
  for (const LabelledRow& row : rows) {
    double product = 0;
    for (const auto& node : row.nodes)
      product += node.value * w[static_cast<std::size_t>(node.index)];
    sum += c * std::log1p(std::exp(row.positive ? -product : product));
  }
  return sum;
}

/// Accelerated proximal gradient (FISTA) on dense vectors.
std::vector<double> reference(const std::vector<LabelledRow>& rows, std::size_t features,
                              double c) {
  double bound = 0;  // of the loss's curvature
  for (const LabelledRow& row : rows)
    for (const auto& node : row.nodes) bound += c * 0.25 * node.value * node.value;
  std::vector<double> w(features);
  std::vector<double> ahead(features);
  double t = 1;
  for (int iteration = 0; iteration < 6000; ++iteration) {
    std::vector<double> gradient(features);
    for (const LabelledRow& row : rows) {
      double product = 0;
      for (const auto& node : row.nodes)
        product += node.value * ahead[static_cast<std::size_t>(node.index)];
      const double error = 1 / (1 + std::exp(-product)) - (row.positive ? 1 : 0);
      for (const auto& node : row.nodes)
        gradient[static_cast<std::size_t>(node.index)] += c * error * node.value;
    }
    const double next_t = (1 + std::sqrt(1 + 4 * t * t)) / 2;
    for (std::size_t j = 0; j < features; ++j) {
      const double moved = ahead[j] - gradient[j] / bound;
      const double next = std::copysign(std::max(0.0, std::abs(moved) - 1 / bound), moved);
      ahead[j] = next + (t - 1) / next_t * (next - w[j]);
      w[j] = next;
    }
    t = next_t;
  }
  return w;
}

kernels::RecordRequest small(const std::filesystem::path& file) {
  kernels::RecordRequest request;
  request.workload = "liblinear";
  request.input = "test";
  request.scale = 8192;  // 2,070 pages
  request.threads = 20;
  request.llc_bytes = 27 << 20;
  request.seed = 3;
  request.file = file;
  return request;
}

}  // namespace

TEST("portable_exp: as the library's, but for the last bits") {
  for (double x = -50; x <= 50; x += 0.137)
    CHECK_NEAR(kernels::portable_exp(x) / std::exp(x), 1, 0x1p-50);
  CHECK_EQ(kernels::portable_exp(0.0), 1.0);
  CHECK(kernels::portable_exp(-1e4) > 0 && std::isfinite(kernels::portable_exp(1e4)));
}

TEST("liblinear: the objective falls to that of a plain solver") {
  const auto rows = problem(300, 5);
  for (const double cost : {0.3, 2.0}) {
    const Scratch scratch;
    Recorder recorder{scratch.file("l.tts"), solver_info(), {}};
    L1Logistic::Options options;
    options.cost = cost;
    options.tolerance = 1e-6;
    L1Logistic solver{recorder,
                      {rows.size(), 40, rows.size() * 4},
                      options,
                      [&](std::size_t i, LabelledRow& out) { out = rows[i]; }};
    double last = solver.objective();
    CHECK_NEAR(last, cost * 300 * std::log(2.0), 1e-9);
    std::size_t fewest = 40;
    while (!solver.done()) {
      const auto newton = solver.step();
      fewest = std::min(fewest, newton.active);
      const double now = solver.objective();
      CHECK(now <= last + 1e-12 * last);
      last = now;
    }
    CHECK(solver.relative_violation() <= 1e-6);
    CHECK(fewest < 40);  // columns were left out
    const std::vector<double> w(solver.weights().begin(), solver.weights().end());
    CHECK_NEAR(objective(rows, w, cost), last, 1e-9 * last);
    const std::vector<double> best = reference(rows, 40, cost);
    CHECK_NEAR(last, objective(rows, best, cost), 1e-6 * last);
    for (std::size_t j = 0; j < 40; ++j) CHECK_NEAR(w[j], best[j], 2e-3);
    CHECK(std::ranges::count(w, 0.0) > 5);  // sparse, as the norm wants it
    CHECK(std::ranges::count(w, 0.0) < 38);
  }
}

TEST("liblinear: vectors over the rows are a few percent of the pages, hot and used throughout") {
  const Scratch scratch;
  const StreamInfo info = kernels::record("liblinear", small(scratch.file("l.tts")));
  const Reader reader{scratch.file("l.tts")};
  reader.verify();
  CHECK_NEAR(static_cast<double>(info.pages) * 4096 * info.scale, 68.4e9, 1e9);  // 67.9 GB
  std::map<std::string, std::pair<double, double>> objects;                      // pages, accesses
  double all = 0;
  for (const Object& object : info.objects) {
    double sum = 0;
    for (std::uint64_t page = object.first_page; page < object.first_page + object.pages; ++page)
      sum += static_cast<double>(reader.page_totals()[page]);
    objects[object.site] = {static_cast<double>(object.pages), sum};
    all += sum;
  }
  double hot = 0;
  for (const char* site : {"liblinear.D", "liblinear.xTd", "liblinear.tau"}) {
    hot += objects[site].second;
    // Every page of a hot vector is about as hot as the others, so that huge pages are used well.
    const auto object = std::ranges::find(info.objects, site, &Object::site);
    const auto totals = reader.page_totals().subspan(object->first_page, object->pages - 1);
    CHECK(static_cast<double>(std::ranges::min(totals)) >
          0.5 * static_cast<double>(std::ranges::max(totals)));
  }
  CHECK(hot > 0.7 * all);  // in 5 % of the pages
  CHECK_NEAR((objects["liblinear.D"].first * 3) / static_cast<double>(info.pages), 0.052, 0.003);
  // Columns stream; the rows that they were made from are not read again.
  const auto columns = objects["liblinear.transposed.x_space"];
  CHECK(columns.second > 0.1 * all && columns.second < 0.25 * all);
  CHECK_EQ(objects["liblinear.x_space"].second, 0.0);
}

TEST("liblinear: parameters and smoke input") {
  const Scratch scratch;
  const auto with = [&](const char* name, kernels::Value value) {
    auto request = small(scratch.file("b.tts"));
    request.scale = 32768;
    request.parameters[name] = std::move(value);
    return kernels::record("liblinear", request);
  };
  const StreamInfo plain = with("rows_m", 149.639105);
  CHECK(with("rows_m", 75.0).pages < plain.pages);
  CHECK(with("newton_limit", 2.0).accesses < plain.accesses);
  CHECK(with("tolerance", 0.1).accesses < plain.accesses);
  const auto sweeps = [&](double count) {
    auto request = small(scratch.file("b.tts"));
    request.scale = 32768;
    request.parameters = {{"sweeps", count}, {"tolerance", 1e-9}};
    return kernels::record("liblinear", request).nominal_seconds;
  };
  CHECK_NEAR(sweeps(40) / sweeps(20), 2, 0.3);
  CHECK(with("cost", 0.1).accesses != plain.accesses);
  CHECK(with("click_rate", 0.3).accesses != plain.accesses);
  CHECK(with("block_ms", 400.0).blocks < plain.blocks);
  std::vector<double> skew(11, 0.0);
  CHECK(with("field_skew", skew).accesses != plain.accesses);
  skew.pop_back();
  CHECK_THROWS(with("field_skew", skew), "field_skew: as many as field_values");
  CHECK_THROWS(with("field_values", std::vector<double>{}), "field_values: at least one");

  auto smoke = small(scratch.file("s.tts"));  // as in liblinear.yaml
  smoke.scale = 4096;
  smoke.parameters = {{"tolerance", 0.01}, {"block_ms", 100.0}};
  const StreamInfo info = kernels::record("liblinear", smoke);
  CHECK(info.pages > 4000 && info.pages <= 8192);
  CHECK(info.nominal_seconds > 30);
}
