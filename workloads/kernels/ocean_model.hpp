// SPDX-License-Identifier: MIT

// OceanModel: hydrostatic flow on a terrain-following grid, split into fast two-dimensional and
// slow three-dimensional steps.
//
// A stand-in for SPEC CPU 2017's 654.roms, whose source is licensed; built from the published
// description of ROMS (Shchepetkin and McWilliams, "The regional oceanic modeling system", Ocean
// Modelling 9, 2005) and named after its parts. A channel, periodic in x, with walls in y, on an
// Arakawa C grid: u on western, v on southern faces, everything else in the middle. A step:
//
//   set_depth     layers' depths and thicknesses from bathymetry and surface
//   rho_eos       density from temperature and salinity
//   lmd_vmix      vertical mixing from stratification and shear
//   rhs3d         pressure gradient, Coriolis force, advection of momentum
//   step2d        `fast` forward-backward sub-steps of surface and depth-mean flow, whose
//                 transports are averaged
//   step3d_uv     momentum: forcing, implicit vertical viscosity; its depth mean becomes that of
//                 the averaged transports
//   omega         vertical velocity from continuity
//   step3d_t      temperature and salinity: upwind fluxes, implicit vertical diffusion
//
// The averaged transports move the surface by exactly what the sub-steps moved it, and layers
// exchange what continuity says: volume and tracers are conserved to rounding, and a constant
// tracer stays constant.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/stencil.hpp"
#include "kernels/traced.hpp"

namespace tt::kernels {

class OceanModel {
 public:
  enum Class : std::uint32_t { sweep, classes };

  struct Options {
    std::uint64_t fast = 20;  // sub-steps of step2d per step
    double depth_m = 4000;
    double hills = 0.3;  // height of those on the floor, share of the depth
    double cell_m = 10e3;
    double courant = 0.5;     // of the surface wave in a sub-step
    double coriolis = -1e-4;  // 1/s
    double wind = 1e-4;       // m^2/s^2, along the channel
    double bump_m = 0.5;      // on the surface at the start
    double warmth = 10;       // degrees between floor and surface
  };
  using Field = TracedArray<double>;

  OceanModel(trace::Recorder& recorder, const Grid& grid, const Options& options,
             std::uint64_t seed);

  void step();

  [[nodiscard]] const Grid& grid() const { return grid_; }
  /// Length of a sub-step, s.
  [[nodiscard]] double fast_dt() const { return fast_dt_; }
  // What a check looks at, without being recorded.
  [[nodiscard]] std::span<const double> depth() const { return h_.peek_all(); }
  [[nodiscard]] std::span<const double> surface() const { return zeta_.peek_all(); }
  [[nodiscard]] std::span<const double> thickness() const { return hz_.peek_all(); }
  [[nodiscard]] std::span<const double> temperature() const { return t_[0].peek_all(); }
  [[nodiscard]] std::span<const double> salinity() const { return t_[1].peek_all(); }
  [[nodiscard]] std::span<const double> u() const { return u_.peek_all(); }
  [[nodiscard]] std::span<const double> vertical() const { return w_.peek_all(); }

 private:
  using Row = std::span<const double>;
  /// A value per layer (or interface) and x, of the row that is worked on: a tile's private array,
  /// which stays in the cache and is not reported.
  struct Slab {
    std::size_t nx;
    std::vector<double> data;
    Slab(std::size_t layers, std::size_t width) : nx(width), data(layers * width) {}
    [[nodiscard]] double* operator[](std::size_t k) { return &data[k * nx]; }
  };

  void initialise(std::uint64_t seed);
  void set_depth();
  void rho_eos();
  void lmd_vmix();
  void rhs3d();
  void step2d();
  void step3d_uv();
  void omega();
  void step3d_t(std::size_t tracer);
  /// Implicit vertical mixing: `content`, quantity times thickness, becomes the quantity.
  void mix(Slab& content, Slab& thickness, Slab& mixing);
  /// step3d_uv for one of the two directions and one row of faces.
  void momentum(std::size_t y, bool along_x);

  [[nodiscard]] Row in(const Field& field, std::size_t y, std::size_t z = 0) const {
    return field.load_range(sweep, grid_.row(y, z), grid_.nx);
  }
  /// As in(), for what is 0 on the northern wall.
  [[nodiscard]] Row within(const Field& field, std::size_t y, std::size_t z = 0) const {
    return y < grid_.ny ? in(field, y, z) : Row(wall_);
  }
  [[nodiscard]] std::span<double> out(Field& field, std::size_t y, std::size_t z = 0) {
    return field.store_range(sweep, grid_.row(y, z), grid_.nx);
  }

  Grid grid_;  // nz is the number of layers, from the floor up
  Options options_;
  double fast_dt_;
  double dt_;
  std::vector<double> share_;  // of a column's depth, per layer
  std::vector<double> wall_;   // zeros

  // Three-dimensional. Those at interfaces have one plane more.
  Field z_r_, z_w_;         // depth of middles and interfaces
  Field hz_, hz_new_;       // thickness
  Field u_, v_, ru_, rv_;   // velocity and its right-hand side
  Field huon_, hvom_;       // transport through faces, m^2/s
  Field w_;                 // vertical velocity at interfaces
  Field rho_;               // deviation over the mean
  Field akv_, akt_;         // mixing of momentum and tracers at interfaces
  std::array<Field, 2> t_;  // temperature, salinity
  std::array<Field, 2> t_new_;

  // Two-dimensional.
  Field h_, zeta_, ubar_, vbar_;
  Field rufrc_, rvfrc_;    // what the three-dimensional part does to the depth mean
  Field du_, dv_;          // transports of a sub-step
  Field du_avg_, dv_avg_;  // their mean over all of them
  Field stress_;           // of the wind
};

}  // namespace tt::kernels
