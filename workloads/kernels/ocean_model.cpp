// SPDX-License-Identifier: MIT

#include "kernels/ocean_model.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "core/rng.hpp"

namespace tt::kernels {
namespace {

constexpr double gravity = 9.81;
constexpr double expansion = 2e-4;    // of density per degree
constexpr double contraction = 8e-4;  // per unit of salinity
constexpr double mean_salinity = 35;
constexpr double drag = 3e-4;  // m/s, on the floor

double square(double x) { return x * x; }

}  // namespace

OceanModel::OceanModel(trace::Recorder& recorder, const Grid& grid, const Options& options,
                       std::uint64_t seed)
    : grid_(grid),
      options_(options),
      // A surface wave crosses `courant` of a cell in a sub-step, along the diagonal.
      fast_dt_(options.courant * options.cell_m / std::sqrt(2 * gravity * options.depth_m)),
      dt_(fast_dt_ * static_cast<double>(options.fast)),
      wall_(grid.nx),
      z_r_(recorder, "roms.grid.z_r", grid.cells()),
      z_w_(recorder, "roms.grid.z_w", grid.cells() + grid.plane()),
      hz_(recorder, "roms.grid.Hz", grid.cells()),
      hz_new_(recorder, "roms.grid.Hz_new", grid.cells()),
      u_(recorder, "roms.ocean.u", grid.cells()),
      v_(recorder, "roms.ocean.v", grid.cells()),
      ru_(recorder, "roms.ocean.ru", grid.cells()),
      rv_(recorder, "roms.ocean.rv", grid.cells()),
      huon_(recorder, "roms.ocean.Huon", grid.cells()),
      hvom_(recorder, "roms.ocean.Hvom", grid.cells()),
      w_(recorder, "roms.ocean.W", grid.cells() + grid.plane()),
      rho_(recorder, "roms.ocean.rho", grid.cells()),
      akv_(recorder, "roms.mixing.Akv", grid.cells() + grid.plane()),
      akt_(recorder, "roms.mixing.Akt", grid.cells() + grid.plane()),
      t_{Field(recorder, "roms.ocean.temp", grid.cells()),
         Field(recorder, "roms.ocean.salt", grid.cells())},
      t_new_{Field(recorder, "roms.ocean.temp_new", grid.cells()),
             Field(recorder, "roms.ocean.salt_new", grid.cells())},
      h_(recorder, "roms.2d.h", grid.plane()),
      zeta_(recorder, "roms.2d.zeta", grid.plane()),
      ubar_(recorder, "roms.2d.ubar", grid.plane()),
      vbar_(recorder, "roms.2d.vbar", grid.plane()),
      rufrc_(recorder, "roms.2d.rufrc", grid.plane()),
      rvfrc_(recorder, "roms.2d.rvfrc", grid.plane()),
      du_(recorder, "roms.2d.DU", grid.plane()),
      dv_(recorder, "roms.2d.DV", grid.plane()),
      du_avg_(recorder, "roms.2d.DU_avg", grid.plane()),
      dv_avg_(recorder, "roms.2d.DV_avg", grid.plane()),
      stress_(recorder, "roms.2d.sustr", grid.plane()) {
  // Layers become thinner towards the surface, the lowest three times the highest.
  const auto layers = static_cast<double>(grid.nz);
  for (std::size_t k = 0; k < grid.nz; ++k)
    share_.push_back((3 - 2 * (static_cast<double>(k) + 0.5) / layers) / (2 * layers));
  initialise(seed);
}

void OceanModel::initialise(std::uint64_t seed) {
  Rng rng{seed};
  const double phase = rng.uniform();
  const auto bell = [](double x) { return 1 / (1 + square(8 * x)); };
  for (std::size_t y = 0; y < grid_.ny; ++y) {
    const auto h = out(h_, y);
    const auto zeta = out(zeta_, y);
    const auto stress = out(stress_, y);
    const double across = (static_cast<double>(y) + 0.5) / static_cast<double>(grid_.ny) - 0.5;
    for (std::size_t x = 0; x < grid_.nx; ++x) {
      const double along = static_cast<double>(x) / static_cast<double>(grid_.nx);
      const double hill = bell(std::remainder(along - phase, 1.0)) * bell(across);
      h[x] = options_.depth_m * (1 - options_.hills * hill);
      zeta[x] = options_.bump_m * (bell(std::remainder(along - 0.5, 1.0)) * bell(across) +
                                   0.02 * (rng.uniform() - 0.5));
      stress[x] = options_.wind * (1 - square(2 * across));
    }
    for (Field* const field : {&ubar_, &vbar_, &rufrc_, &rvfrc_, &du_, &dv_, &du_avg_, &dv_avg_})
      std::ranges::fill(out(*field, y), 0.0);
  }
  for (std::size_t k = 0; k <= grid_.nz; ++k)
    for (std::size_t y = 0; y < grid_.ny; ++y)
      for (Field* const field : {&z_w_, &w_, &akv_, &akt_})
        std::ranges::fill(out(*field, y, k), 0.0);
  for (std::size_t k = 0; k < grid_.nz; ++k)
    for (std::size_t y = 0; y < grid_.ny; ++y) {
      for (Field* const field :
           {&z_r_, &hz_new_, &u_, &v_, &ru_, &rv_, &huon_, &hvom_, &rho_, &t_new_[0], &t_new_[1]})
        std::ranges::fill(out(*field, y, k), 0.0);
      const Row h = in(h_, y);
      const Row zeta = in(zeta_, y);
      const auto hz = out(hz_, y, k);
      const auto warm = out(t_[0], y, k);
      const double height = (static_cast<double>(k) + 0.5) / static_cast<double>(grid_.nz);
      for (std::size_t x = 0; x < grid_.nx; ++x) {
        hz[x] = (h[x] + zeta[x]) * share_[k];
        warm[x] = options_.warmth * (height + 0.01 * (rng.uniform() - 0.5));
      }
      std::ranges::fill(out(t_[1], y, k), mean_salinity);
    }
}

void OceanModel::set_depth() {
  for (std::size_t y = 0; y < grid_.ny; ++y) {
    const Row h = in(h_, y);
    auto floor = out(z_w_, y, 0);
    for (std::size_t x = 0; x < grid_.nx; ++x) floor[x] = -h[x];
    for (std::size_t k = 0; k < grid_.nz; ++k) {
      const Row hz = in(hz_, y, k);
      const auto middle = out(z_r_, y, k);
      const auto above = out(z_w_, y, k + 1);
      for (std::size_t x = 0; x < grid_.nx; ++x) {
        middle[x] = floor[x] + 0.5 * hz[x];
        above[x] = floor[x] + hz[x];
      }
      floor = above;
    }
  }
}

void OceanModel::rho_eos() {
  for (std::size_t y = 0; y < grid_.ny; ++y)
    for (std::size_t k = 0; k < grid_.nz; ++k) {
      const Row warm = in(t_[0], y, k);
      const Row salt = in(t_[1], y, k);
      const auto rho = out(rho_, y, k);
      for (std::size_t x = 0; x < grid_.nx; ++x)
        rho[x] = contraction * (salt[x] - mean_salinity) - expansion * warm[x];
    }
}

void OceanModel::lmd_vmix() {
  for (std::size_t y = 0; y < grid_.ny; ++y)
    for (std::size_t k = 1; k < grid_.nz; ++k) {
      std::array<Row, 2> z, rho, u, v;
      for (std::size_t i = 0; i < 2; ++i) {
        z[i] = in(z_r_, y, k - 1 + i);
        rho[i] = in(rho_, y, k - 1 + i);
        u[i] = in(u_, y, k - 1 + i);
        v[i] = in(v_, y, k - 1 + i);
      }
      const auto viscosity = out(akv_, y, k);
      const auto diffusion = out(akt_, y, k);
      for (std::size_t x = 0; x < grid_.nx; ++x) {
        // Pacanowski and Philander (1981), by the Richardson number; strong where it is negative.
        const double dz = z[1][x] - z[0][x];
        const double buoyancy = -gravity * (rho[1][x] - rho[0][x]) * dz;
        const double shear = square(u[1][x] - u[0][x]) + square(v[1][x] - v[0][x]) + 1e-10;
        const double damping = 1 + 5 * buoyancy / shear;
        const bool stable = buoyancy >= 0;
        viscosity[x] = stable ? 1e-4 + 1e-2 / square(damping) : 0.1;
        diffusion[x] = stable ? 1e-5 + viscosity[x] / damping : 0.1;
      }
    }
}

void OceanModel::rhs3d() {
  const std::size_t nx = grid_.nx;
  const double per_cell = 1 / options_.cell_m;
  Slab pressure{grid_.nz, nx};
  Slab pressure_south{grid_.nz, nx};
  std::vector<double> sum_u(nx), sum_v(nx), depth_u(nx), depth_v(nx), column(nx);
  for (std::size_t y = 0; y < grid_.ny; ++y) {
    std::swap(pressure, pressure_south);
    for (auto* const sum : {&sum_u, &sum_v, &depth_u, &depth_v, &column})
      std::ranges::fill(*sum, 0.0);
    const bool wall = y == 0;
    const std::size_t south = wall ? y : y - 1;
    const Row stress = in(stress_, y);
    for (std::size_t k = grid_.nz; k-- > 0;) {
      const Row rho = in(rho_, y, k);
      const Row hz = in(hz_, y, k);
      const Row z = in(z_r_, y, k);
      const Row rho_south = in(rho_, south, k);
      const Row hz_south = in(hz_, south, k);
      const Row z_south = in(z_r_, south, k);
      const Row u = in(u_, y, k);
      const Row u_south = in(u_, south, k);
      const Row u_north = in(u_, std::min(y + 1, grid_.ny - 1), k);
      const Row v = in(v_, y, k);
      const Row v_south = in(v_, south, k);
      const Row v_north = within(v_, y + 1, k);
      double* const p = pressure[k];
      const double* const p_south = wall ? p : pressure_south[k];
      for (std::size_t x = 0; x < nx; ++x) {
        const double weight = gravity * rho[x] * hz[x];
        p[x] = column[x] + 0.5 * weight;
        column[x] += weight;
      }
      const auto ru = out(ru_, y, k);
      const auto rv = out(rv_, y, k);
      const bool top = k + 1 == grid_.nz;
      const bool bottom = k == 0;
      for (std::size_t x = 0; x < nx; ++x) {
        const std::size_t west = before(x, nx);
        const std::size_t east = after(x, nx);
        const double thick_u = 0.5 * (hz[west] + hz[x]);
        const double thick_v = 0.5 * (hz_south[x] + hz[x]);
        // Pressure gradient along the layer, and back to the horizontal.
        double force_u =
            -per_cell * (p[x] - p[west] + gravity * 0.5 * (rho[x] + rho[west]) * (z[x] - z[west]));
        double force_v =
            -per_cell *
            (p[x] - p_south[x] + gravity * 0.5 * (rho[x] + rho_south[x]) * (z[x] - z_south[x]));
        const double v_here = 0.25 * (v[west] + v[x] + v_north[west] + v_north[x]);
        const double u_here = 0.25 * (u[x] + u[east] + u_south[x] + u_south[east]);
        // Advection, from upstream.
        force_u -= per_cell * (u[x] * (u[x] > 0 ? u[x] - u[west] : u[east] - u[x]) +
                               v_here * (v_here > 0 ? u[x] - u_south[x] : u_north[x] - u[x]));
        force_v -= per_cell * (u_here * (u_here > 0 ? v[x] - v[west] : v[east] - v[x]) +
                               v[x] * (v[x] > 0 ? v[x] - v_south[x] : v_north[x] - v[x]));
        if (top) force_u += stress[x] / thick_u;
        if (bottom) {
          force_u -= drag * u[x] / thick_u;
          force_v -= drag * v[x] / thick_v;
        }
        sum_u[x] += force_u * thick_u;
        sum_v[x] += force_v * thick_v;
        depth_u[x] += thick_u;
        depth_v[x] += thick_v;
        ru[x] = force_u + options_.coriolis * v_here;
        rv[x] = wall ? 0 : force_v - options_.coriolis * u_here;
      }
    }
    // step2d has a Coriolis force of its own.
    const auto mean_u = out(rufrc_, y);
    const auto mean_v = out(rvfrc_, y);
    for (std::size_t x = 0; x < nx; ++x) {
      mean_u[x] = sum_u[x] / depth_u[x];
      mean_v[x] = wall ? 0 : sum_v[x] / depth_v[x];
    }
  }
}

void OceanModel::step2d() {
  const std::size_t nx = grid_.nx;
  const double step = fast_dt_ / options_.cell_m;
  const double share = 1 / static_cast<double>(options_.fast);
  for (std::uint64_t m = 0; m < options_.fast; ++m) {
    for (std::size_t y = 0; y < grid_.ny; ++y) {
      const std::size_t south = y == 0 ? y : y - 1;
      const Row h = in(h_, y);
      const Row zeta = in(zeta_, y);
      const Row h_south = in(h_, south);
      const Row zeta_south = in(zeta_, south);
      const Row ubar = in(ubar_, y);
      const Row vbar = in(vbar_, y);
      const auto du = out(du_, y);
      const auto dv = out(dv_, y);
      if (m > 0) {
        (void)in(du_avg_, y);
        (void)in(dv_avg_, y);
      }
      const auto du_avg = out(du_avg_, y);
      const auto dv_avg = out(dv_avg_, y);
      for (std::size_t x = 0; x < nx; ++x) {
        const std::size_t west = before(x, nx);
        const double depth = h[x] + zeta[x];
        du[x] = 0.5 * (depth + h[west] + zeta[west]) * ubar[x];
        dv[x] = 0.5 * (depth + h_south[x] + zeta_south[x]) * vbar[x];  // vbar is 0 on the wall
        du_avg[x] = (m > 0 ? du_avg[x] : 0) + share * du[x];
        dv_avg[x] = (m > 0 ? dv_avg[x] : 0) + share * dv[x];
      }
    }
    for (std::size_t y = 0; y < grid_.ny; ++y) {
      const Row du = in(du_, y);
      const Row dv = in(dv_, y);
      const Row dv_north = within(dv_, y + 1);
      (void)in(zeta_, y);
      const auto zeta = out(zeta_, y);
      for (std::size_t x = 0; x < nx; ++x)
        zeta[x] -= step * (du[after(x, nx)] - du[x] + dv_north[x] - dv[x]);
    }
    // Forward-backward: the new surface drives the flow, and the new u turns v. A row's v comes
    // after the u of this row and the one before.
    for (std::size_t y = 0; y < grid_.ny; ++y) {
      const std::size_t south = y == 0 ? y : y - 1;
      const Row zeta = in(zeta_, y);
      const Row zeta_south = in(zeta_, south);
      const Row force_u = in(rufrc_, y);
      const Row force_v = in(rvfrc_, y);
      const Row v_north = within(vbar_, y + 1);
      (void)in(ubar_, y);
      (void)in(vbar_, y);
      const Row u_south = in(ubar_, south);
      const auto u = out(ubar_, y);
      const auto v = out(vbar_, y);
      for (std::size_t x = 0; x < nx; ++x) {
        const std::size_t west = before(x, nx);
        u[x] += fast_dt_ * (force_u[x] + 0.25 * options_.coriolis *
                                             (v[west] + v[x] + v_north[west] + v_north[x])) -
                gravity * step * (zeta[x] - zeta[west]);
      }
      if (y == 0) continue;
      for (std::size_t x = 0; x < nx; ++x) {
        const std::size_t east = after(x, nx);
        v[x] += fast_dt_ * (force_v[x] - 0.25 * options_.coriolis *
                                             (u[x] + u[east] + u_south[x] + u_south[east])) -
                gravity * step * (zeta[x] - zeta_south[x]);
      }
    }
  }
}

void OceanModel::mix(Slab& content, Slab& thickness, Slab& mixing) {
  // Thomas' algorithm, all columns of the row side by side; `mixing` becomes the upper diagonal.
  const std::size_t layers = grid_.nz;
  const std::size_t nx = grid_.nx;
  // From here on mixing[k] is the exchange between layers k - 1 and k in a step.
  for (std::size_t k = 1; k < layers; ++k)
    for (std::size_t x = 0; x < nx; ++x)
      mixing[k][x] *= 2 * dt_ / (thickness[k - 1][x] + thickness[k][x]);
  for (std::size_t k = 0; k < layers; ++k)
    for (std::size_t x = 0; x < nx; ++x) {
      const double below = k > 0 ? mixing[k][x] : 0;
      const double above = k + 1 < layers ? mixing[k + 1][x] : 0;
      double diagonal = thickness[k][x] + below + above;
      if (k > 0) {
        const double factor = below / thickness[k - 1][x];  // by the diagonal of the layer below
        diagonal -= factor * below;
        content[k][x] += factor * content[k - 1][x];
      }
      thickness[k][x] = diagonal;
    }
  for (std::size_t k = layers; k-- > 0;)
    for (std::size_t x = 0; x < nx; ++x)
      content[k][x] =
          (content[k][x] + (k + 1 < layers ? mixing[k + 1][x] * content[k + 1][x] : 0)) /
          thickness[k][x];
}

void OceanModel::momentum(std::size_t y, bool along_x) {
  const std::size_t nx = grid_.nx;
  Field& velocity = along_x ? u_ : v_;
  const Field& force = along_x ? ru_ : rv_;
  Field& transport = along_x ? huon_ : hvom_;
  const std::size_t south = along_x || y == 0 ? y : y - 1;
  Slab content{grid_.nz, nx};
  Slab thickness{grid_.nz, nx};
  Slab mixing{grid_.nz, nx};
  for (std::size_t k = 0; k < grid_.nz; ++k) {
    const Row hz = in(hz_, y, k);
    const Row akv = in(akv_, y, k);
    const Row hz_other = in(hz_, south, k);
    const Row akv_other = in(akv_, south, k);
    const Row speed = in(velocity, y, k);
    const Row change = in(force, y, k);
    for (std::size_t x = 0; x < nx; ++x) {
      const std::size_t other = along_x ? before(x, nx) : x;
      thickness[k][x] = 0.5 * (hz[x] + hz_other[other]);
      mixing[k][x] = 0.5 * (akv[x] + akv_other[other]);
      content[k][x] = thickness[k][x] * (speed[x] + dt_ * change[x]);
    }
  }
  Slab diagonal = thickness;
  mix(content, diagonal, mixing);
  // The depth mean is the business of step2d.
  std::vector<double> excess(nx);
  std::vector<double> depth(nx);
  for (std::size_t k = 0; k < grid_.nz; ++k)
    for (std::size_t x = 0; x < nx; ++x) {
      excess[x] += thickness[k][x] * content[k][x];
      depth[x] += thickness[k][x];
    }
  const Row mean = in(along_x ? du_avg_ : dv_avg_, y);
  for (std::size_t x = 0; x < nx; ++x) excess[x] = (excess[x] - mean[x]) / depth[x];
  for (std::size_t k = 0; k < grid_.nz; ++k) {
    const auto to = out(velocity, y, k);
    const auto through = out(transport, y, k);
    for (std::size_t x = 0; x < nx; ++x) {
      to[x] = content[k][x] - excess[x];
      through[x] = thickness[k][x] * to[x];
    }
  }
}

void OceanModel::step3d_uv() {
  for (std::size_t y = 0; y < grid_.ny; ++y) {
    momentum(y, true);
    if (y > 0) momentum(y, false);  // nothing flows through the southern wall
  }
}

void OceanModel::omega() {
  const std::size_t nx = grid_.nx;
  const double per_cell = 1 / options_.cell_m;
  for (std::size_t y = 0; y < grid_.ny; ++y) {
    const Row h = in(h_, y);
    const Row zeta = in(zeta_, y);
    auto below = out(w_, y, 0);
    std::ranges::fill(below, 0.0);
    for (std::size_t k = 0; k < grid_.nz; ++k) {
      const Row hz = in(hz_, y, k);
      const Row east = in(huon_, y, k);
      const Row south = in(hvom_, y, k);
      const Row north = within(hvom_, y + 1, k);
      const auto next = out(hz_new_, y, k);
      const auto above = out(w_, y, k + 1);
      for (std::size_t x = 0; x < nx; ++x) {
        next[x] = (h[x] + zeta[x]) * share_[k];
        above[x] = below[x] - (next[x] - hz[x]) / dt_ -
                   per_cell * (east[after(x, nx)] - east[x] + north[x] - south[x]);
      }
      below = above;
    }
  }
}

void OceanModel::step3d_t(std::size_t tracer) {
  const std::size_t nx = grid_.nx;
  const double step = dt_ / options_.cell_m;
  const Field& from = t_[tracer];
  Slab content{grid_.nz, nx};
  Slab thickness{grid_.nz, nx};
  Slab mixing{grid_.nz, nx};
  for (std::size_t y = 0; y < grid_.ny; ++y) {
    const std::size_t south = y == 0 ? y : y - 1;
    const std::size_t north = std::min(y + 1, grid_.ny - 1);
    Row beneath;  // the tracer in the layer below
    for (std::size_t k = 0; k < grid_.nz; ++k) {
      const Row t = in(from, y, k);
      const Row t_south = in(from, south, k);
      const Row t_north = in(from, north, k);
      const Row huon = in(huon_, y, k);
      const Row hvom = in(hvom_, y, k);
      const Row hvom_north = within(hvom_, y + 1, k);
      const Row hz = in(hz_, y, k);
      const Row hz_new = in(hz_new_, y, k);
      const Row akt = in(akt_, y, k);
      const Row w = in(w_, y, k);
      for (std::size_t x = 0; x < nx; ++x) {
        const std::size_t west = before(x, nx);
        const std::size_t east = after(x, nx);
        const double in_west = huon[x] * (huon[x] > 0 ? t[west] : t[x]);
        const double out_east = huon[east] * (huon[east] > 0 ? t[x] : t[east]);
        const double in_south = hvom[x] * (hvom[x] > 0 ? t_south[x] : t[x]);
        const double out_north = hvom_north[x] * (hvom_north[x] > 0 ? t[x] : t_north[x]);
        content[k][x] = hz[x] * t[x] - step * (out_east - in_west + out_north - in_south);
        thickness[k][x] = hz_new[x];
        mixing[k][x] = akt[x];
        if (k == 0) continue;
        const double up = dt_ * w[x] * (w[x] > 0 ? beneath[x] : t[x]);
        content[k][x] += up;
        content[k - 1][x] -= up;
      }
      beneath = t;
    }
    mix(content, thickness, mixing);
    for (std::size_t k = 0; k < grid_.nz; ++k)
      std::copy_n(content[k], nx, out(t_new_[tracer], y, k).begin());
  }
  std::swap(t_[tracer], t_new_[tracer]);
}

void OceanModel::step() {
  set_depth();
  rho_eos();
  lmd_vmix();
  rhs3d();
  step2d();
  step3d_uv();
  omega();
  for (std::size_t tracer = 0; tracer < t_.size(); ++tracer) step3d_t(tracer);
  std::swap(hz_, hz_new_);
}

}  // namespace tt::kernels
