// SPDX-License-Identifier: MIT

// Macroscopic cross sections on a unionised energy grid, as XSBench computes them (Tramm et al.,
// PHYSOR 2014; public source: ANL-CESAR/XSBench, openmp-threading).
//
// Every nuclide has a grid of its own: energies in ascending order, five cross sections at each.
// The unionised grid holds all nuclides' energies, sorted, and for each of them a row of the index
// grid: where in every nuclide's own grid that energy lies. So a lookup needs one binary search,
// one row, and two neighbouring grid points per nuclide of the material. The index grid is nearly
// all of the memory (4 N^2 g bytes for N nuclides of g points).
//
// Not recorded: the lists of the twelve materials and their concentrations, 46 KB that stay in the
// second-level cache and do not grow with the grid.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/traced.hpp"
#include "trace/recorder.hpp"

namespace tt::kernels {

/// Stream classes of the grid's accesses.
struct CrossSectionClasses {
  std::uint32_t search = 0;      // binary search: each address depends on the value before
  std::uint32_t index = 0;       // entries of one row
  std::uint32_t points = 0;      // pairs of grid points, independent of each other
  std::uint32_t sequential = 0;  // initialisation
};

class CrossSections {
 public:
  static constexpr std::size_t channels = 5;
  static constexpr std::size_t materials = 12;
  static constexpr std::size_t least_nuclides = 68;  // the Hoogenboom-Martin reactor, small
  static constexpr std::size_t most_nuclides = 355;  // and large

  struct Point {
    double energy;
    std::array<double, channels> sections;  // total, elastic, absorption, fission, nu-fission
  };
  static_assert(sizeof(Point) == 48);
  using Sections = std::array<double, channels>;

  /// Draws the nuclides' grids at random, sorts them, and builds the unionised grid.
  /// `points` per nuclide: at least 2.
  CrossSections(trace::Recorder& recorder, const CrossSectionClasses& classes, std::size_t nuclides,
                std::size_t points, std::uint64_t seed);

  /// Nuclides of a material. The fuel has more of them in the large reactor.
  [[nodiscard]] std::span<const std::uint32_t> nuclides_of(std::size_t material) const {
    return nuclides_of_[material];
  }
  [[nodiscard]] std::span<const double> concentrations_of(std::size_t material) const {
    return concentrations_of_[material];
  }
  /// The material for a uniform draw in [0, 1): XSBench's probabilities.
  [[nodiscard]] static std::size_t material(double uniform);

  /// The lookup: sections of the material at an energy in [0, 1).
  [[nodiscard]] Sections macroscopic(double energy, std::size_t material) const;

  [[nodiscard]] const TracedArray<Point>& nuclide_grid() const { return grid_; }
  [[nodiscard]] const TracedArray<double>& energies() const { return energies_; }
  [[nodiscard]] const TracedArray<std::int32_t>& index_grid() const { return index_; }

  /// Sections of one nuclide between two neighbouring points of its grid.
  [[nodiscard]] static Sections interpolate(const Point& low, const Point& high, double energy);

 private:
  /// Last unionised energy that is not above `energy` (the first when all are).
  [[nodiscard]] std::size_t search(double energy) const;
  void draw(std::uint64_t seed);
  void sort_nuclides();
  void unite();
  void fill_index();

  trace::Recorder& recorder_;
  CrossSectionClasses classes_;
  std::size_t nuclides_;
  std::size_t points_;
  std::array<std::vector<std::uint32_t>, materials> nuclides_of_;
  std::array<std::vector<double>, materials> concentrations_of_;
  TracedArray<Point> grid_;          // nuclide by nuclide
  TracedArray<double> energies_;     // unionised
  TracedArray<std::int32_t> index_;  // row per unionised energy
};

/// A particle's history: lookups one after the other, each depending on the result of the one
/// before. Returns XSBench's verification value: the sum of 1 + the channel that is largest.
template <typename Random, typename Lookup>
std::uint64_t follow_particle(std::uint64_t lookups, Random& random, Lookup&& lookup) {
  std::uint64_t verification = 0;
  for (std::uint64_t i = 0; i < lookups; ++i) {
    const double energy = random.uniform();
    const std::size_t material = CrossSections::material(random.uniform());
    const CrossSections::Sections sections = lookup(energy, material);
    std::size_t largest = 0;
    std::size_t skipped = 0;
    for (std::size_t channel = 0; channel < sections.size(); ++channel) {
      if (sections[channel] > sections[largest]) largest = channel;
      if (sections[channel] > 1) ++skipped;
    }
    verification += largest + 1;
    // What happens next depends on the sections: XSBench skips as many random numbers.
    for (; skipped > 0; --skipped) (void)random.next();
  }
  return verification;
}

}  // namespace tt::kernels
