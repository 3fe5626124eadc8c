// SPDX-License-Identifier: MIT

// Grid: the miniature of a three-dimensional grid that is swept in order.
//
// A stencil reads a point again a row later and a plane later, so what the cache keeps of it
// depends on how large rows and planes are beside the cache. The miniature keeps the number of
// planes, and as far as it can that of rows, and makes each of them (like the cache) 1/R as large.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tt::kernels {

struct Grid {
  std::size_t nx = 1, ny = 1, nz = 1;

  /// Rows become shorter, down to 16 points; then fewer. Neither count is below `least`.
  [[nodiscard]] static Grid miniature(double nx, double ny, double nz, double scale,
                                      std::size_t least) {
    const auto count = [least](double value) {
      return std::max(least, static_cast<std::size_t>(std::round(value)));
    };
    const double plane = nx * ny / scale;
    const std::size_t width = count(std::max(nx / scale, std::min(16.0, std::sqrt(plane))));
    return {width, count(plane / static_cast<double>(width)), count(nz)};
  }

  [[nodiscard]] std::size_t plane() const { return nx * ny; }
  [[nodiscard]] std::size_t cells() const { return nx * ny * nz; }
  /// First cell of the row of points (0 ... nx - 1, y, z).
  [[nodiscard]] std::size_t row(std::size_t y, std::size_t z) const { return (z * ny + y) * nx; }
};

/// Neighbours on a ring of n places.
[[nodiscard]] inline std::size_t after(std::size_t i, std::size_t n) {
  return i + 1 == n ? 0 : i + 1;
}
[[nodiscard]] inline std::size_t before(std::size_t i, std::size_t n) {
  return i == 0 ? n - 1 : i - 1;
}

}  // namespace tt::kernels
