// SPDX-License-Identifier: MIT

// bwaves: the scheme against a dense solution of a plainly written one, what is conserved, and
// which memory lives how long.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "check.hpp"
#include "kernels/bwaves.hpp"
#include "kernels/kernel.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::trace;
using check::Scratch;
using kernels::BlastWave;
using kernels::Grid;

namespace {

using Cells = std::vector<BlastWave::Cell>;

struct Solver {
  explicit Solver(const Grid& grid, const BlastWave::Options& options, std::uint64_t seed = 1)
      : recorder(scratch.file("b.tts"), info(), {}), wave(recorder, grid, options, seed) {}
  static StreamInfo info() {
    StreamInfo out;
    out.lanes = {{"solver", 1}};
    out.classes = {{"sweep", 9, 3}};
    return out;
  }
  [[nodiscard]] Cells state() const {
    const auto all = wave.state().peek_all();
    return {all.begin(), all.end()};
  }
  Scratch scratch;
  Recorder recorder;
  BlastWave wave;
};

/// -R(q): flux differences and dissipation, cell by cell, every neighbour looked up by itself.
Cells right_side(const Grid& grid, const Cells& q, double dissipation) {
  const double h = 1 / static_cast<double>(grid.nz);
  const auto flux = [](const BlastWave::Cell& c, std::size_t d) {
    const double p = 0.4 * (c[4] - (c[1] * c[1] + c[2] * c[2] + c[3] * c[3]) / (2 * c[0]));
    const double u = c[1 + d] / c[0];
    BlastWave::Cell f = {c[0] * u, c[1] * u, c[2] * u, c[3] * u, (c[4] + p) * u};
    f[1 + d] += p;
    return f;
  };
  Cells out(q.size());
  const std::array<std::size_t, 3> n = {grid.nx, grid.ny, grid.nz};
  const std::array<std::size_t, 3> stride = {1, grid.nx, grid.plane()};
  for (std::size_t i = 0; i < q.size(); ++i)
    for (std::size_t d = 0; d < 3; ++d) {
      const std::size_t at = i / stride[d] % n[d];
      const std::size_t start = i - at * stride[d];
      const auto& plus = q[start + (at + 1) % n[d] * stride[d]];
      const auto& minus = q[start + (at + n[d] - 1) % n[d] * stride[d]];
      const auto after = flux(plus, d);
      const auto before = flux(minus, d);
      for (std::size_t k = 0; k < 5; ++k)
        out[i][k] +=
            (before[k] - after[k]) / (2 * h) + dissipation * (plus[k] + minus[k] - 2 * q[i][k]);
    }
  return out;
}

/// Gaussian elimination with partial pivoting; `a` by rows.
std::vector<double> dense(std::vector<double> a, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t pivot = k;
    for (std::size_t i = k; i < n; ++i)
      if (std::abs(a[i * n + k]) > std::abs(a[pivot * n + k])) pivot = i;
    std::swap(b[k], b[pivot]);
    for (std::size_t j = 0; j < n; ++j) std::swap(a[k * n + j], a[pivot * n + j]);
    for (std::size_t i = k + 1; i < n; ++i) {
      const double factor = a[i * n + k] / a[k * n + k];
      if (factor == 0) continue;
      for (std::size_t j = k; j < n; ++j) a[i * n + j] -= factor * a[k * n + j];
      b[i] -= factor * b[k];
    }
  }
  for (std::size_t k = n; k-- > 0;) {
    for (std::size_t j = k + 1; j < n; ++j) b[k] -= a[k * n + j] * b[j];
    b[k] /= a[k * n + k];
  }
  return b;
}

BlastWave::Cell totals(const Cells& q) {
  BlastWave::Cell sum{};
  for (const auto& cell : q)
    for (std::size_t k = 0; k < 5; ++k) sum[k] += cell[k];
  return sum;
}

kernels::RecordRequest small(const std::filesystem::path& file) {
  kernels::RecordRequest request;
  request.workload = "bwaves";
  request.input = "test";
  request.scale = 16384;
  request.seed = 3;
  request.file = file;
  request.parameters["cells_per_edge"] = 400.0;  // 3 x 3 columns
  request.parameters["steps"] = 3.0;
  request.parameters["tolerance"] = 1e-3;
  return request;
}

}  // namespace

TEST("bwaves: a step is the dense solution of the linearised scheme") {
  BlastWave::Options options;
  options.tolerance = 1e-12;
  options.reynolds = 50;
  const Grid grid{3, 4, 4};
  Solver solver{grid, options};
  (void)solver.wave.step();  // so that everything moves
  const Cells q = solver.state();
  const auto solved = solver.wave.step();
  const Cells next = solver.state();
  CHECK(solved.iterations > 2 && solved.residual <= 1e-12);

  // (1 / dt + dR/dq) dq = -R(q), with the derivative by differences.
  const std::size_t n = q.size() * 5;
  std::vector<double> a(n * n);
  const double step = 1e-6;
  for (std::size_t column = 0; column < n; ++column) {
    Cells plus = q;
    Cells minus = q;
    plus[column / 5][column % 5] += step;
    minus[column / 5][column % 5] -= step;
    const Cells up = right_side(grid, plus, solved.dissipation);
    const Cells down = right_side(grid, minus, solved.dissipation);
    for (std::size_t row = 0; row < n; ++row)
      a[row * n + column] = -(up[row / 5][row % 5] - down[row / 5][row % 5]) / (2 * step) +
                            (row == column ? 1 / solved.dt : 0);
  }
  const Cells r = right_side(grid, q, solved.dissipation);
  std::vector<double> b(n);
  for (std::size_t row = 0; row < n; ++row) b[row] = r[row / 5][row % 5];
  const std::vector<double> change = dense(std::move(a), b);
  double largest = 0;
  for (std::size_t row = 0; row < n; ++row) {
    CHECK_NEAR(next[row / 5][row % 5] - q[row / 5][row % 5], change[row], 1e-7);
    largest = std::max(largest, std::abs(change[row]));
  }
  CHECK(largest > 1e-2);
}

TEST("bwaves: mass, momentum and energy stay, and the blast spreads") {
  BlastWave::Options options;
  options.tolerance = 1e-10;
  Solver solver{Grid{8, 8, 8}, options};
  const auto highest = [](const Cells& q) {
    double p = 0;
    for (const auto& cell : q) p = std::max(p, BlastWave::pressure(cell));
    return p;
  };
  const Cells first = solver.state();
  for (int i = 0; i < 6; ++i) CHECK(solver.wave.step().residual <= 1e-10);
  const Cells last = solver.state();
  for (std::size_t k = 0; k < 5; ++k)
    CHECK_NEAR(totals(last)[k], totals(first)[k], 1e-7 * totals(first)[4]);
  CHECK(highest(last) < 0.8 * highest(first));
  for (const auto& cell : last) CHECK(BlastWave::pressure(cell) > 0);
}

TEST("bwaves: the solver's vectors live for one step, blocks for the run") {
  const Scratch scratch;
  const StreamInfo info = kernels::record("bwaves", small(scratch.file("b.tts")));
  const Reader reader{scratch.file("b.tts")};
  reader.verify();
  std::map<std::string, int> mapped;
  std::set<std::uint32_t> freed;
  Block block;
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    for (const Event& event : block.events) {
      if (event.type == EventType::map) ++mapped[info.objects[event.object].site];
      if (event.type == EventType::unmap) freed.insert(event.object);
    }
  }
  double short_lived = 0;
  double blocks = 0;
  for (std::size_t i = 0; i < info.objects.size(); ++i) {
    const Object& object = info.objects[i];
    const bool solvers = object.site.starts_with("bwaves.solver.");
    CHECK_EQ(mapped[object.site], solvers ? 3 : 1);
    CHECK_EQ(freed.contains(static_cast<std::uint32_t>(i)), solvers);
    (solvers ? short_lived : blocks) += static_cast<double>(object.pages) / (solvers ? 3 : 1);
  }
  CHECK_NEAR(short_lived / (short_lived + blocks), 0.119, 0.005);
}

TEST("bwaves: blocks are hot alike, and sweeps are all there is") {
  const Scratch scratch;
  const StreamInfo info = kernels::record("bwaves", small(scratch.file("b.tts")));
  const Reader reader{scratch.file("b.tts")};
  double lowest = 1e300;
  double highest = 0;
  double blocks = 0;
  double all = 0;
  for (const Object& object : info.objects) {
    double object_sum = 0;
    for (std::uint64_t page = object.first_page; page < object.first_page + object.pages; ++page)
      object_sum += static_cast<double>(reader.page_totals()[page]);
    all += object_sum;
    if (!object.site.starts_with("bwaves.a")) continue;
    blocks += object_sum;
    for (std::uint64_t page = object.first_page; page + 1 < object.first_page + object.pages;
         ++page) {
      const auto total = static_cast<double>(reader.page_totals()[page]);
      lowest = std::min(lowest, total);
      highest = std::max(highest, total);
    }
  }
  CHECK(highest <= 1.1 * lowest);
  CHECK(blocks > 0.6 * all);
}

TEST("bwaves: parameters and smoke input") {
  const Scratch scratch;
  const auto with = [&](const char* name, double value) {
    auto request = small(scratch.file("b.tts"));
    request.parameters[name] = value;
    return kernels::record("bwaves", request);
  };
  const StreamInfo plain = with("steps", 3);
  CHECK(with("steps", 2).accesses < plain.accesses);
  CHECK(with("cells_per_edge", 300).pages < plain.pages);
  CHECK(with("cfl", 4).accesses > plain.accesses);
  CHECK(with("tolerance", 1e-6).accesses > plain.accesses);
  CHECK(with("iterations_limit", 2).accesses < plain.accesses);
  CHECK(with("block_ms", 400).blocks < plain.blocks);
  CHECK_THROWS(with("tolerance", 1), "tolerance: found 1, allowed 1e-14 to 0.5");

  auto smoke = small(scratch.file("s.tts"));  // as in bwaves.yaml
  smoke.scale = 8192;
  smoke.parameters = {{"steps", 4.0}, {"tolerance", 1e-3}, {"block_ms", 200.0}};
  const StreamInfo info = kernels::record("bwaves", smoke);
  CHECK(info.pages > 4000 && info.pages <= 8192);
  CHECK_NEAR(info.nominal_seconds, 100, 50);
}
