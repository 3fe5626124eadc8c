// SPDX-License-Identifier: MIT

// roms: what an ocean model must conserve, its fast part against a plainly written one, and which
// fields are hot.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "check.hpp"
#include "kernels/kernel.hpp"
#include "kernels/ocean_model.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::trace;
using check::Scratch;
using kernels::Grid;
using kernels::OceanModel;

namespace {

constexpr Grid grid{12, 9, 6};

struct Ocean {
  explicit Ocean(const OceanModel::Options& options)
      : recorder(scratch.file("r.tts"), info(), {}), model(recorder, grid, options, 3) {}
  static StreamInfo info() {
    StreamInfo out;
    out.lanes = {{"ocean", 1}};
    out.classes = {{"sweep", 9, 4}};
    return out;
  }
  [[nodiscard]] double volume() const {
    const auto hz = model.thickness();
    return std::accumulate(hz.begin(), hz.end(), 0.0);
  }
  [[nodiscard]] double heat() const {
    double sum = 0;
    for (std::size_t i = 0; i < grid.cells(); ++i)
      sum += model.thickness()[i] * model.temperature()[i];
    return sum;
  }
  Scratch scratch;
  Recorder recorder;
  OceanModel model;
};

kernels::RecordRequest small(const std::filesystem::path& file) {
  kernels::RecordRequest request;
  request.workload = "roms";
  request.input = "test";
  request.scale = 16384;
  request.seed = 3;
  request.file = file;
  request.parameters["steps"] = 4.0;
  return request;
}

}  // namespace

TEST("roms: volume, heat and a constant tracer are conserved while the water moves") {
  Ocean ocean{{}};
  const double volume = ocean.volume();
  const double heat = ocean.heat();
  const std::vector<double> start(ocean.model.temperature().begin(),
                                  ocean.model.temperature().end());
  for (int i = 0; i < 20; ++i) ocean.model.step();
  CHECK_NEAR(ocean.volume() / volume, 1, 1e-12);
  CHECK_NEAR(ocean.heat() / heat, 1, 1e-12);
  double fastest = 0;
  double changed = 0;
  for (std::size_t i = 0; i < grid.cells(); ++i) {
    CHECK_NEAR(ocean.model.salinity()[i], 35, 1e-9);
    fastest = std::max(fastest, std::abs(ocean.model.u()[i]));
    changed = std::max(changed, std::abs(ocean.model.temperature()[i] - start[i]));
  }
  CHECK(fastest > 1e-3 && fastest < 5);
  CHECK(changed > 1e-3);
  // No water leaves through the surface, and layers fill the column.
  for (std::size_t i = 0; i < grid.plane(); ++i) {
    CHECK_NEAR(ocean.model.vertical()[grid.cells() + i], 0, 1e-12);
    double column = 0;
    for (std::size_t k = 0; k < grid.nz; ++k)
      column += ocean.model.thickness()[k * grid.plane() + i];
    CHECK_NEAR(column, ocean.model.depth()[i] + ocean.model.surface()[i], 1e-9);
  }
}

TEST("roms: water of one density at rest is moved by the wind alone") {
  OceanModel::Options options;
  options.bump_m = 0;
  options.warmth = 0;
  options.wind = 0;
  const auto fastest = [](const Ocean& ocean) {
    double most = 0;
    for (const double u : ocean.model.u()) most = std::max(most, std::abs(u));
    return most;
  };
  Ocean still{options};
  for (int i = 0; i < 3; ++i) still.model.step();
  CHECK(fastest(still) < 1e-12);
  options.wind = 1e-4;
  Ocean windy{options};
  for (int i = 0; i < 3; ++i) windy.model.step();
  CHECK(fastest(windy) > 1e-4);
}

TEST("roms: a step's surface is that of plain shallow water") {
  // At rest and of one density the three-dimensional part does nothing in the first step.
  OceanModel::Options options;
  options.warmth = 0;
  options.wind = 0;
  Ocean ocean{options};
  std::vector<double> zeta(ocean.model.surface().begin(), ocean.model.surface().end());
  const auto h = ocean.model.depth();
  const double dt = ocean.model.fast_dt();
  const double dx = options.cell_m;
  const double f = options.coriolis;
  const auto at = [](std::size_t x, std::size_t y) { return y * grid.nx + x % grid.nx; };
  std::vector<double> u(grid.plane());
  std::vector<double> v(grid.plane() + grid.nx);  // with the northern wall
  for (std::uint64_t m = 0; m < options.fast; ++m) {
    const auto depth = [&](std::size_t i) { return h[i] + zeta[i]; };
    std::vector<double> du(grid.plane());
    std::vector<double> dv(grid.plane() + grid.nx);
    for (std::size_t y = 0; y < grid.ny; ++y)
      for (std::size_t x = 0; x < grid.nx; ++x) {
        du[at(x, y)] = (depth(at(x, y)) + depth(at(x + grid.nx - 1, y))) / 2 * u[at(x, y)];
        if (y > 0) dv[at(x, y)] = (depth(at(x, y)) + depth(at(x, y - 1))) / 2 * v[at(x, y)];
      }
    for (std::size_t y = 0; y < grid.ny; ++y)
      for (std::size_t x = 0; x < grid.nx; ++x)
        zeta[at(x, y)] -=
            dt / dx * (du[at(x + 1, y)] - du[at(x, y)] + dv[at(x, y + 1)] - dv[at(x, y)]);
    for (std::size_t y = 0; y < grid.ny; ++y)
      for (std::size_t x = 0; x < grid.nx; ++x) {
        const std::size_t w = x + grid.nx - 1;
        const double around = v[at(x, y)] + v[at(w, y)] + v[at(x, y + 1)] + v[at(w, y + 1)];
        u[at(x, y)] += dt * (f * around / 4 - 9.81 / dx * (zeta[at(x, y)] - zeta[at(w, y)]));
      }
    for (std::size_t y = 1; y < grid.ny; ++y)
      for (std::size_t x = 0; x < grid.nx; ++x) {
        const double around = u[at(x, y)] + u[at(x + 1, y)] + u[at(x, y - 1)] + u[at(x + 1, y - 1)];
        v[at(x, y)] -= dt * (f * around / 4 + 9.81 / dx * (zeta[at(x, y)] - zeta[at(x, y - 1)]));
      }
  }
  const double before = ocean.model.surface()[at(6, 4)];
  ocean.model.step();
  for (std::size_t i = 0; i < grid.plane(); ++i)
    CHECK_NEAR(ocean.model.surface()[i], zeta[i], 1e-12);
  CHECK(std::abs(ocean.model.surface()[at(6, 4)] - before) > 0.01);
}

TEST("roms: three-dimensional fields are swept evenly, two-dimensional ones are hotter") {
  const Scratch scratch;
  const StreamInfo info = kernels::record("roms", small(scratch.file("r.tts")));
  const Reader reader{scratch.file("r.tts")};
  reader.verify();
  CHECK_NEAR(static_cast<double>(info.pages) * 4096 * info.scale, 150e9, 3e9);
  double flat_pages = 0;
  double flat = 0;
  double deep_pages = 0;
  double deep = 0;
  for (const Object& object : info.objects) {
    const auto totals = reader.page_totals().subspan(object.first_page, object.pages);
    const auto sum =
        static_cast<double>(std::accumulate(totals.begin(), totals.end(), std::uint64_t{0}));
    const bool two = object.site.starts_with("roms.2d.");
    (two ? flat : deep) += sum;
    (two ? flat_pages : deep_pages) += static_cast<double>(object.pages);
    if (object.site == "roms.ocean.u" || object.site == "roms.grid.Hz") {
      const auto inner = totals.subspan(1, totals.size() - 2);
      CHECK(static_cast<double>(std::ranges::min(inner)) >
            0.6 * static_cast<double>(std::ranges::max(inner)));
    }
  }
  CHECK_NEAR(flat_pages / static_cast<double>(info.pages), 0.022, 0.01);
  CHECK(flat / flat_pages > 4 * deep / deep_pages);
  Block block;
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    for (const Event& event : block.events) CHECK(event.type != EventType::unmap);
  }
}

TEST("roms: parameters and smoke input") {
  const Scratch scratch;
  const auto with = [&](const char* name, double value) {
    auto request = small(scratch.file("b.tts"));
    request.parameters["steps"] = 2.0;
    request.parameters[name] = value;
    return kernels::record("roms", request);
  };
  const StreamInfo plain = with("steps", 2);
  CHECK(with("cells_x", 8000).pages < plain.pages);
  CHECK(with("cells_y", 1000).pages < plain.pages);
  CHECK(with("layers", 20).pages < plain.pages);
  CHECK(with("steps", 1).accesses < plain.accesses);
  CHECK(with("fast_steps", 40).accesses > plain.accesses);
  CHECK(with("block_ms", 400).blocks < plain.blocks);
  CHECK_THROWS(with("layers", 3), "layers: found 3, allowed 4 to 10000");

  auto smoke = small(scratch.file("s.tts"));  // as in roms.yaml
  smoke.scale = 8192;
  smoke.parameters = {{"steps", 6.0}, {"block_ms", 200.0}};
  const StreamInfo info = kernels::record("roms", smoke);
  CHECK(info.pages > 4000 && info.pages <= 8192);
}
