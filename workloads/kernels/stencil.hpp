// Grid: the miniature of a three-dimensional grid whose planes are swept in order.
//
// A stencil reads a point again from the next plane and the one after, so what the cache keeps of
// it depends on how large a plane is beside the cache. The miniature therefore keeps the number of
// planes and makes each of them (like the cache) 1/R as large.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace tt::kernels {

struct Grid {
  std::size_t nx = 1, ny = 1, nz = 1;

  /// nx and ny keep their proportion as far as whole numbers allow; neither is below `least`.
  [[nodiscard]] static Grid miniature(double nx, double ny, double nz, double scale,
                                      std::size_t least) {
    const auto floor = static_cast<double>(least);
    const double rows = std::max(floor, std::round(ny / std::sqrt(scale)));
    const double columns = std::max(floor, std::round(nx * ny / scale / rows));
    return {static_cast<std::size_t>(columns), static_cast<std::size_t>(rows),
            static_cast<std::size_t>(std::max(floor, std::round(nz)))};
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
