// SPDX-License-Identifier: MIT

// BlastWave: compressible viscous flow in a periodic box, one implicit time step after the other.
//
// A stand-in for SPEC CPU 2017's 603.bwaves, whose source is licensed; built from its public
// description (spec.org, 603.bwaves_s): a blast wave of high pressure and density in the centre of
// a periodic cubic cell, solved by an unfactored implicit scheme with Bi-CGstab. Here: backward
// Euler, linearised once per step, on central fluxes with scalar dissipation (Lax-Friedrichs) and
// the viscous terms as a Laplacian:
//
//   dq / dt + sum over d of [A(q+) dq+ - A(q-) dq-] / 2h - e (dq+ - 2 dq + dq-) = -R(q)
//
// with the five conserved quantities per cell, seven 5 x 5 blocks per cell (centre and six
// neighbours), and van der Vorst's Bi-CGstab (1992) without a preconditioner. As in the original
// the blocks live for the whole run, and the solver's vectors for one solve.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/stencil.hpp"
#include "kernels/traced.hpp"

namespace tt::kernels {

class BlastWave {
 public:
  static constexpr std::size_t unknowns = 5;  // density, momentum (3), energy
  using Cell = std::array<double, unknowns>;
  using Block = std::array<double, unknowns * unknowns>;  // column by column
  static constexpr double gamma = 1.4;

  struct Options {
    double cfl = 2;             // time step over the time in which a wave crosses a cell
    double tolerance = 1e-5;    // of the residual, relative
    std::uint64_t limit = 100;  // Bi-CGstab iterations per step
    double reynolds = 1e5;      // at the sound speed and length of the box
  };
  /// Streams of one access class: every sweep is in memory order.
  enum Class : std::uint32_t { sweep, classes };

  struct Solve {
    std::uint64_t iterations = 0;
    double residual = 0;  // relative, at the end
    double dt = 0;
    double dissipation = 0;  // e of the scheme, for each of the five
  };

  /// Allocates what lives for the whole run and sets the blast up.
  BlastWave(trace::Recorder& recorder, const Grid& grid, const Options& options,
            std::uint64_t seed);

  Solve step();

  [[nodiscard]] const Grid& grid() const { return grid_; }
  [[nodiscard]] const TracedArray<Cell>& state() const { return q_; }
  [[nodiscard]] static double pressure(const Cell& q);
  [[nodiscard]] static Cell flux(std::size_t direction, const Cell& q);
  [[nodiscard]] static Block jacobian(std::size_t direction, const Cell& q);

 private:
  static constexpr std::size_t stencil = 7;  // centre, then - and + of each direction
  using Vector = TracedArray<Cell>;

  void initialise(std::uint64_t seed);
  [[nodiscard]] double fastest_wave();
  void assemble(double dt, double dissipation);
  void residual(Vector& r, double dissipation);
  std::uint64_t solve(Vector& r, double& relative);
  /// y = A x; returns the products w.y and y.y that the solver needs next.
  std::array<double, 2> multiply(const Vector& x, Vector& y, const Vector& w);

  /// Rows of the stencil around row (y, z): itself, y - 1, y + 1, z - 1, z + 1.
  [[nodiscard]] std::array<std::size_t, 5> around(std::size_t y, std::size_t z) const;

  trace::Recorder& recorder_;
  Grid grid_;
  Options options_;
  double h_;  // width of a cell; the box has a height of 1 in z
  Vector q_;
  Vector dq_;
  std::vector<TracedArray<Block>> blocks_;
};

}  // namespace tt::kernels
