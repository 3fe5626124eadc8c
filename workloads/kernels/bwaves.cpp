// SPDX-License-Identifier: MIT

// bwaves: a stand-in for SPEC CPU 2017's 603.bwaves; see bwaves.hpp for what is computed.
#include "kernels/bwaves.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/rng.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"

namespace tt::kernels {
namespace {

using Cell = BlastWave::Cell;
using Block = BlastWave::Block;
constexpr std::size_t unknowns = BlastWave::unknowns;

double dot(const Cell& a, const Cell& b) {
  double sum = 0;
  for (std::size_t i = 0; i < unknowns; ++i) sum += a[i] * b[i];
  return sum;
}

/// y += block x
void multiply_add(const Block& block, const Cell& x, Cell& y) {
  for (std::size_t column = 0; column < unknowns; ++column)
    for (std::size_t i = 0; i < unknowns; ++i) y[i] += block[column * unknowns + i] * x[column];
}

/// Calls visit(first cell of the row, y, z) for all rows in memory order.
template <typename Visit>
void rows(const Grid& grid, Visit visit) {
  for (std::size_t z = 0; z < grid.nz; ++z)
    for (std::size_t y = 0; y < grid.ny; ++y) visit(grid.row(y, z), y, z);
}

}  // namespace

double BlastWave::pressure(const Cell& q) {
  return (gamma - 1) * (q[4] - 0.5 * (q[1] * q[1] + q[2] * q[2] + q[3] * q[3]) / q[0]);
}

Cell BlastWave::flux(std::size_t direction, const Cell& q) {
  const double speed = q[1 + direction] / q[0];
  const double p = pressure(q);
  Cell f;
  for (std::size_t i = 0; i < unknowns; ++i) f[i] = speed * q[i];
  f[1 + direction] += p;
  f[4] += speed * p;
  return f;
}

Block BlastWave::jacobian(std::size_t direction, const Cell& q) {
  const std::array<double, 3> u = {q[1] / q[0], q[2] / q[0], q[3] / q[0]};
  const double speed = u[direction];
  const double kinetic = 0.5 * (u[0] * u[0] + u[1] * u[1] + u[2] * u[2]);
  const double enthalpy = (q[4] + pressure(q)) / q[0];
  // Derivatives of the pressure.
  const Cell dp = {(gamma - 1) * kinetic, -(gamma - 1) * u[0], -(gamma - 1) * u[1],
                   -(gamma - 1) * u[2], gamma - 1};
  // Flux is speed * q, plus the pressure in the momentum of this direction, plus speed * pressure
  // in the energy; the speed's derivatives are (-speed, unit vector) / density.
  Block a;
  for (std::size_t column = 0; column < unknowns; ++column) {
    const double d_speed = column == 0               ? -speed
                           : column == 1 + direction ? 1.0
                                                     : 0.0;  // times the density
    double* const of = &a[column * unknowns];
    of[0] = d_speed + (column == 0 ? speed : 0);
    for (std::size_t i = 0; i < 3; ++i) of[1 + i] = u[i] * d_speed + (column == 1 + i ? speed : 0);
    of[1 + direction] += dp[column];
    of[4] = enthalpy * d_speed + speed * dp[column] + (column == 4 ? speed : 0);
  }
  return a;
}

BlastWave::BlastWave(trace::Recorder& recorder, const Grid& grid, const Options& options,
                     std::uint64_t seed)
    : recorder_(recorder),
      grid_(grid),
      options_(options),
      h_(1 / static_cast<double>(grid.nz)),
      q_(recorder, "bwaves.q", grid.cells()),
      dq_(recorder, "bwaves.dq", grid.cells()) {
  for (const char* site : {"bwaves.a", "bwaves.axm", "bwaves.axp", "bwaves.aym", "bwaves.ayp",
                           "bwaves.azm", "bwaves.azp"})
    blocks_.emplace_back(recorder, site, grid.cells());
  initialise(seed);
}

void BlastWave::initialise(std::uint64_t seed) {
  Rng rng{seed};
  // The blast is near the centre, and nothing is perfectly even.
  std::array<double, 3> centre;
  for (double& c : centre) c = 0.45 + 0.1 * rng.uniform();
  const auto away = [](std::size_t i, std::size_t n, double middle) {
    const double distance =
        std::abs((static_cast<double>(i) + 0.5) / static_cast<double>(n) - middle);
    return std::min(distance, 1 - distance);  // the box is periodic
  };
  rows(grid_, [&](std::size_t first, std::size_t y, std::size_t z) {
    const std::span<Cell> row = q_.store_range(sweep, first, grid_.nx);
    for (std::size_t x = 0; x < grid_.nx; ++x) {
      const std::array<double, 3> d = {away(x, grid_.nx, centre[0]), away(y, grid_.ny, centre[1]),
                                       away(z, grid_.nz, centre[2])};
      const double square = d[0] * d[0] + d[1] * d[1] + d[2] * d[2];
      const double blast = 1 / (1 + square * square * 400);  // 1 in the centre, half at 0.22
      const double density = 1 + 2 * blast + 0.01 * rng.uniform();
      const double p = 1 + 4 * blast;
      row[x] = {density, 0, 0, 0, p / (gamma - 1)};
    }
  });
  // Zeroed, as an allocation's first sweep.
  rows(grid_, [&](std::size_t first, std::size_t, std::size_t) {
    std::ranges::fill(dq_.store_range(sweep, first, grid_.nx), Cell{});
  });
  for (TracedArray<Block>& blocks : blocks_)
    rows(grid_, [&](std::size_t first, std::size_t, std::size_t) {
      std::ranges::fill(blocks.store_range(sweep, first, grid_.nx), Block{});
    });
}

std::array<std::size_t, 5> BlastWave::around(std::size_t y, std::size_t z) const {
  return {grid_.row(y, z), grid_.row(before(y, grid_.ny), z), grid_.row(after(y, grid_.ny), z),
          grid_.row(y, before(z, grid_.nz)), grid_.row(y, after(z, grid_.nz))};
}

double BlastWave::fastest_wave() {
  double fastest = 0;
  rows(grid_, [&](std::size_t first, std::size_t, std::size_t) {
    for (const Cell& q : q_.load_range(sweep, first, grid_.nx)) {
      const double sound = std::sqrt(gamma * pressure(q) / q[0]);
      const double speed = std::max({std::abs(q[1]), std::abs(q[2]), std::abs(q[3])}) / q[0];
      fastest = std::max(fastest, speed + sound);
    }
  });
  return fastest;
}

void BlastWave::residual(Vector& r, double dissipation) {
  const double half = 0.5 / h_;
  rows(grid_, [&](std::size_t, std::size_t y, std::size_t z) {
    std::array<std::span<const Cell>, 5> q;
    const auto at = around(y, z);
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = q_.load_range(sweep, at[i], grid_.nx);
    const std::span<Cell> out = r.store_range(sweep, at[0], grid_.nx);
    for (std::size_t x = 0; x < grid_.nx; ++x) {
      const std::array<const Cell*, 6> near = {&q[0][before(x, grid_.nx)],
                                               &q[0][after(x, grid_.nx)],
                                               &q[1][x],
                                               &q[2][x],
                                               &q[3][x],
                                               &q[4][x]};
      Cell sum{};
      for (std::size_t d = 0; d < 3; ++d) {
        const Cell minus = flux(d, *near[2 * d]);
        const Cell plus = flux(d, *near[2 * d + 1]);
        for (std::size_t i = 0; i < unknowns; ++i)
          sum[i] += half * (minus[i] - plus[i]) +
                    dissipation * ((*near[2 * d])[i] - 2 * q[0][x][i] + (*near[2 * d + 1])[i]);
      }
      out[x] = sum;
    }
  });
}

void BlastWave::assemble(double dt, double dissipation) {
  const double half = 0.5 / h_;
  rows(grid_, [&](std::size_t, std::size_t y, std::size_t z) {
    std::array<std::span<const Cell>, 5> q;
    const auto at = around(y, z);
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = q_.load_range(sweep, at[i], grid_.nx);
    const auto fill = [&](std::size_t which, auto neighbour, double sign) {
      const std::span<Block> out = blocks_[which].store_range(sweep, at[0], grid_.nx);
      for (std::size_t x = 0; x < grid_.nx; ++x) {
        out[x] = jacobian((which - 1) / 2, neighbour(x));
        for (double& value : out[x]) value *= sign * half;
        for (std::size_t i = 0; i < unknowns; ++i) out[x][i * (unknowns + 1)] -= dissipation;
      }
    };
    fill(1, [&](std::size_t x) { return q[0][before(x, grid_.nx)]; }, -1);
    fill(2, [&](std::size_t x) { return q[0][after(x, grid_.nx)]; }, 1);
    for (std::size_t i = 1; i < 5; ++i)
      fill(2 + i, [&](std::size_t x) { return q[i][x]; }, i % 2 == 1 ? -1 : 1);
    Block centre{};
    for (std::size_t i = 0; i < unknowns; ++i)
      centre[i * (unknowns + 1)] = 1 / dt + 6 * dissipation;
    std::ranges::fill(blocks_[0].store_range(sweep, at[0], grid_.nx), centre);
  });
}

std::array<double, 2> BlastWave::multiply(const Vector& x, Vector& y, const Vector& w) {
  std::array<double, 2> products{};
  rows(grid_, [&](std::size_t, std::size_t row, std::size_t plane) {
    const auto at = around(row, plane);
    std::array<std::span<const Cell>, 5> near;
    for (std::size_t i = 0; i < near.size(); ++i) near[i] = x.load_range(sweep, at[i], grid_.nx);
    std::array<const Block*, stencil> a;
    for (std::size_t i = 0; i < stencil; ++i)
      a[i] = blocks_[i].load_range(sweep, at[0], grid_.nx).data();
    const std::span<const Cell> with = w.load_range(sweep, at[0], grid_.nx);
    const std::span<Cell> out = y.store_range(sweep, at[0], grid_.nx);
    for (std::size_t i = 0; i < grid_.nx; ++i) {
      Cell sum{};
      multiply_add(a[0][i], near[0][i], sum);
      multiply_add(a[1][i], near[0][before(i, grid_.nx)], sum);
      multiply_add(a[2][i], near[0][after(i, grid_.nx)], sum);
      for (std::size_t k = 1; k < 5; ++k) multiply_add(a[2 + k][i], near[k][i], sum);
      out[i] = sum;
      products[0] += dot(with[i], sum);
      products[1] += dot(sum, sum);
    }
  });
  return products;
}

std::uint64_t BlastWave::solve(Vector& r, double& relative) {
  const std::size_t n = grid_.nx;
  Vector shadow{recorder_, "bwaves.solver.r0", grid_.cells()};
  Vector p{recorder_, "bwaves.solver.p", grid_.cells()};
  Vector v{recorder_, "bwaves.solver.v", grid_.cells()};
  Vector t{recorder_, "bwaves.solver.t", grid_.cells()};

  double rho = 0;
  rows(grid_, [&](std::size_t first, std::size_t, std::size_t) {
    const auto from = r.load_range(sweep, first, n);
    std::ranges::copy(from, shadow.store_range(sweep, first, n).begin());
    std::ranges::copy(from, p.store_range(sweep, first, n).begin());
    std::ranges::fill(dq_.store_range(sweep, first, n), Cell{});
    for (const Cell& cell : from) rho += dot(cell, cell);
  });
  const double start = rho;
  relative = 1;
  std::uint64_t iterations = 0;
  while (start > 0 && relative > options_.tolerance && iterations < options_.limit) {
    const double along = multiply(p, v, shadow)[0];
    if (along == 0) break;  // no further direction
    const double alpha = rho / along;
    rows(grid_, [&](std::size_t first, std::size_t, std::size_t) {
      const auto subtract = v.load_range(sweep, first, n);
      (void)r.load_range(sweep, first, n);
      const auto to = r.store_range(sweep, first, n);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t c = 0; c < unknowns; ++c) to[i][c] -= alpha * subtract[i][c];
    });
    const auto [ts, tt] = multiply(r, t, r);
    const double omega = tt > 0 ? ts / tt : 0;
    double square = 0;
    double rho_next = 0;
    rows(grid_, [&](std::size_t first, std::size_t, std::size_t) {
      const auto direction = p.load_range(sweep, first, n);
      const auto stabilise = t.load_range(sweep, first, n);
      const auto fixed = shadow.load_range(sweep, first, n);
      (void)r.load_range(sweep, first, n);
      (void)dq_.load_range(sweep, first, n);
      const auto solution = dq_.store_range(sweep, first, n);
      const auto rest = r.store_range(sweep, first, n);
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t c = 0; c < unknowns; ++c) {
          solution[i][c] += alpha * direction[i][c] + omega * rest[i][c];
          rest[i][c] -= omega * stabilise[i][c];
        }
        square += dot(rest[i], rest[i]);
        rho_next += dot(fixed[i], rest[i]);
      }
    });
    ++iterations;
    relative = std::sqrt(square / start);
    if (relative <= options_.tolerance || omega == 0) break;
    const double beta = rho_next / rho * (alpha / omega);
    rho = rho_next;
    rows(grid_, [&](std::size_t first, std::size_t, std::size_t) {
      const auto rest = r.load_range(sweep, first, n);
      const auto before_last = v.load_range(sweep, first, n);
      (void)p.load_range(sweep, first, n);
      const auto direction = p.store_range(sweep, first, n);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t c = 0; c < unknowns; ++c)
          direction[i][c] = rest[i][c] + beta * (direction[i][c] - omega * before_last[i][c]);
    });
  }
  for (Vector* const vector : {&shadow, &p, &v, &t}) vector->free();
  return iterations;
}

BlastWave::Solve BlastWave::step() {
  Solve solved;
  const double wave = fastest_wave();
  solved.dt = options_.cfl * h_ / wave;
  solved.dissipation = 0.5 * wave / h_ + 1 / (options_.reynolds * h_ * h_);
  Vector r{recorder_, "bwaves.solver.r", grid_.cells()};
  residual(r, solved.dissipation);
  assemble(solved.dt, solved.dissipation);
  solved.iterations = solve(r, solved.residual);
  r.free();
  rows(grid_, [&](std::size_t first, std::size_t, std::size_t) {
    const auto change = dq_.load_range(sweep, first, grid_.nx);
    (void)q_.load_range(sweep, first, grid_.nx);
    const auto to = q_.store_range(sweep, first, grid_.nx);
    for (std::size_t i = 0; i < grid_.nx; ++i)
      for (std::size_t c = 0; c < unknowns; ++c) to[i][c] += change[i][c];
  });
  return solved;
}

namespace {

trace::StreamInfo record_bwaves(const RecordRequest& request) {
  const ParameterReader read{request};
  const double edge = read.number("cells_per_edge", 3, 1e5);
  const Grid grid = Grid::miniature(edge, edge, edge, request.scale, 3);
  const auto steps = static_cast<std::uint64_t>(read.number("steps", 1, 1e6));
  BlastWave::Options options;
  options.cfl = read.positive("cfl");
  options.tolerance = read.number("tolerance", 1e-14, 0.5);
  options.limit = static_cast<std::uint64_t>(read.number("iterations_limit", 1, 1e6));

  trace::StreamInfo info = describe(request);
  info.lanes = {{"solver", 1}};
  // Sweeps in memory order: the prefetchers keep most of the 10 to 12 line buffers of a core busy.
  // A cell's two products with its 24 lines take some 350 floating-point operations, about 3 ns per
  // line with short vectors; they overlap.
  info.classes = {{"sweep", 9, 3}};
  trace::Recorder recorder{request.file, info, recorder_options(request)};

  recorder.set_timed(false);
  BlastWave wave{recorder, grid, options, request.seed};
  recorder.set_timed(true);
  Progress progress{request};
  for (std::uint64_t i = 0; i < steps; ++i) {
    progress.at(static_cast<double>(i) / static_cast<double>(steps));
    (void)wave.step();
  }
  return recorder.finish();
}

const RegisterKernel registered{
    {"bwaves",
     "an implicit solver for a blast wave: five unknowns per cell, 5 x 5 blocks, Bi-CGstab",
     {{"cells_per_edge", 447.0, "cells", "edge of the cubic grid"},
      {"steps", 20.0, "count", "time steps"},
      {"cfl", 2.0, "ratio", "time step over the time in which a wave crosses a cell"},
      {"tolerance", 1e-5, "ratio", "residual at which a step's solution is taken"},
      {"iterations_limit", 100.0, "count", "Bi-CGstab iterations of a step, at most"},
      block_ms_parameter(50)},
     &record_bwaves}};

}  // namespace
}  // namespace tt::kernels
