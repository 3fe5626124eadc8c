// SPDX-License-Identifier: MIT

// xsbench: Monte Carlo neutron transport's cross-section lookups (see xsbench.hpp).
//
// History-based: particles are followed one after the other, 34 lookups each (XSBench's default).
// The miniature has 1/R of the points of every nuclide's grid and 1/R of the particles, but all
// nuclides: a lookup is the same as at full scale, except for log2(R) levels less of the binary
// search, and these are the uppermost, which are in the cache at any scale.
#include "kernels/xsbench.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/rng.hpp"
#include "kernels/draws.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"

namespace tt::kernels {
namespace {

// Nuclides by material, XSBench's Materials.c. The large reactor adds all from 68 on to the fuel.
const std::array<std::vector<std::uint32_t>, CrossSections::materials>& small_reactor() {
  static const std::vector<std::uint32_t> reflector{24, 41, 4,  5,  19, 20, 21, 22, 35, 36, 37,
                                                    38, 39, 25, 49, 50, 51, 11, 12, 13, 14};
  static const std::vector<std::uint32_t> assemblies{24, 41, 4, 5, 63, 64, 65, 66, 67};
  static const std::array<std::vector<std::uint32_t>, CrossSections::materials> lists{
      {{58, 59, 60, 61, 40, 42, 43, 44, 45, 46, 1,  2,  3,  7,  8,  9,  10,
        29, 57, 47, 48, 0,  62, 15, 33, 34, 52, 53, 54, 55, 56, 18, 23, 41},  // fuel
       {63, 64, 65, 66, 67},                                                  // cladding
       {24, 41, 4, 5},                                                        // cold borated water
       {24, 41, 4, 5},                                                        // hot borated water
       {19, 20, 21, 22, 35, 36, 37, 38, 39, 25, 27, 28, 29, 30,
        31, 32, 26, 49, 50, 51, 11, 12, 13, 14, 6,  16, 17},  // pressure vessel
       reflector,
       reflector,
       reflector,
       reflector,
       reflector,
       assemblies,
       assemblies}};
  return lists;
}

// XSBench's pick_mat. The fuel, first in the published list with .140, gets what the others leave.
constexpr std::array<double, CrossSections::materials - 1> probability_of_others{
    0.052, 0.275, 0.134, 0.154, 0.064, 0.066, 0.055, 0.008, 0.015, 0.025, 0.013};

/// Merge sort of [first, first + count) with a buffer of as many elements, as the C library's qsort
/// does it. Parts of a page or less are sorted in place: they are in the cache.
template <typename T, typename Less>
void merge_sort(TracedArray<T>& data, TracedArray<T>& buffer, std::uint32_t stream_class,
                std::size_t first, std::size_t count, Less less) {
  if (count * sizeof(T) <= trace::base_page_bytes) {
    (void)data.load_range(stream_class, first, count);
    std::ranges::sort(data.store_range(stream_class, first, count), less);
    return;
  }
  const std::size_t half = count / 2;
  merge_sort(data, buffer, stream_class, first, half, less);
  merge_sort(data, buffer, stream_class, first + half, count - half, less);
  const auto both = data.load_range(stream_class, first, count);
  std::ranges::merge(both.first(half), both.subspan(half),
                     buffer.store_range(stream_class, 0, count).begin(), less);
  // Two statements: which of a call's arguments is evaluated first is up to the compiler.
  const auto to = data.store_range(stream_class, first, count);
  std::ranges::copy(buffer.load_range(stream_class, 0, count), to.begin());
}

}  // namespace

CrossSections::CrossSections(trace::Recorder& recorder, const CrossSectionClasses& classes,
                             std::size_t nuclides, std::size_t points, std::uint64_t seed)
    : recorder_(recorder),
      classes_(classes),
      nuclides_(nuclides),
      points_(points),
      nuclides_of_(small_reactor()),
      grid_(recorder, "xsbench.nuclide_grid", nuclides * points),
      energies_(recorder, "xsbench.energy_grid", nuclides * points),
      index_(recorder, "xsbench.index_grid", nuclides * nuclides * points) {
  for (auto added = static_cast<std::uint32_t>(least_nuclides); added < nuclides; ++added)
    nuclides_of_[0].push_back(added);
  draw(seed);
  sort_nuclides();
  unite();
  fill_index();
}

void CrossSections::draw(std::uint64_t seed) {
  Rng rng{seed};
  for (std::size_t nuclide = 0; nuclide < nuclides_; ++nuclide)
    for (Point& point : grid_.store_range(classes_.sequential, nuclide * points_, points_)) {
      point.energy = rng.uniform();
      for (double& section : point.sections) section = rng.uniform();
    }
  for (std::size_t material = 0; material < materials; ++material)
    for (std::size_t i = 0; i < nuclides_of_[material].size(); ++i)
      concentrations_of_[material].push_back(rng.uniform());
}

void CrossSections::sort_nuclides() {
  TracedArray<Point> buffer{recorder_, "qsort.buffer", points_};
  for (std::size_t nuclide = 0; nuclide < nuclides_; ++nuclide)
    merge_sort(grid_, buffer, classes_.sequential, nuclide * points_, points_,
               [](const Point& a, const Point& b) { return a.energy < b.energy; });
  buffer.free();
}

void CrossSections::unite() {
  for (std::size_t nuclide = 0; nuclide < nuclides_; ++nuclide) {
    const auto from = grid_.load_range(classes_.sequential, nuclide * points_, points_);
    std::ranges::transform(
        from, energies_.store_range(classes_.sequential, nuclide * points_, points_).begin(),
        &Point::energy);
  }
  TracedArray<double> buffer{recorder_, "qsort.buffer", energies_.size()};
  merge_sort(energies_, buffer, classes_.sequential, 0, energies_.size(), std::less{});
  buffer.free();
}

void CrossSections::fill_index() {
  // Per nuclide: the point below the current energy, and the energy of the one above it. A few
  // kilobytes that stay in the first-level cache.
  std::vector<std::int32_t> low(nuclides_, 0);
  std::vector<double> above(nuclides_);
  const auto last = static_cast<std::int32_t>(points_) - 2;
  const auto load_above = [&](std::size_t nuclide) {
    const std::size_t next = nuclide * points_ + static_cast<std::size_t>(low[nuclide]) + 1;
    above[nuclide] = grid_.load(classes_.sequential, next).energy;
  };
  for (std::size_t nuclide = 0; nuclide < nuclides_; ++nuclide) load_above(nuclide);
  for (std::size_t e = 0; e < energies_.size(); ++e) {
    const double energy = energies_.load(classes_.sequential, e);
    const auto row = index_.store_range(classes_.sequential, e * nuclides_, nuclides_);
    for (std::size_t nuclide = 0; nuclide < nuclides_; ++nuclide) {
      if (energy >= above[nuclide] && low[nuclide] < last) {
        ++low[nuclide];
        load_above(nuclide);
      }
      row[nuclide] = low[nuclide];
    }
  }
}

std::size_t CrossSections::material(double uniform) {
  double sum = 0;
  for (std::size_t i = 0; i < probability_of_others.size(); ++i)
    if (uniform < (sum += probability_of_others[i])) return i + 1;
  return 0;
}

std::size_t CrossSections::search(double energy) const {
  std::size_t lower = 0;
  std::size_t length = energies_.size() - 1;
  while (length > 1) {
    const std::size_t middle = lower + length / 2;
    const bool above = energies_.load(classes_.search, middle) > energy;
    length = above ? length / 2 : length - length / 2;
    if (!above) lower = middle;
  }
  return lower;
}

CrossSections::Sections CrossSections::interpolate(const Point& low, const Point& high,
                                                   double energy) {
  const double f = (high.energy - energy) / (high.energy - low.energy);
  Sections sections{};
  for (std::size_t i = 0; i < channels; ++i)
    sections[i] = high.sections[i] - f * (high.sections[i] - low.sections[i]);
  return sections;
}

CrossSections::Sections CrossSections::macroscopic(double energy, std::size_t material) const {
  Sections sum{};
  const std::size_t row = search(energy) * nuclides_;
  const auto& nuclides = nuclides_of_[material];
  for (std::size_t i = 0; i < nuclides.size(); ++i) {
    const auto low = static_cast<std::size_t>(index_.load(classes_.index, row + nuclides[i]));
    const auto pair = grid_.load_range(classes_.points, nuclides[i] * points_ + low, 2);
    const Sections microscopic = interpolate(pair[0], pair[1], energy);
    for (std::size_t k = 0; k < channels; ++k)
      sum[k] += microscopic[k] * concentrations_of_[material][i];
  }
  return sum;
}

namespace {

enum Class : std::uint32_t { search, index_row, points, sequential };

trace::StreamInfo record_xsbench(const RecordRequest& request) {
  const ParameterReader read{request};
  const auto nuclides = static_cast<std::size_t>(
      read.number("nuclides", CrossSections::least_nuclides, CrossSections::most_nuclides));
  const auto grid_points = static_cast<std::size_t>(read.positive("gridpoints") / request.scale);
  read.require(grid_points >= 2, "gridpoints",
               "fewer than 2 per nuclide at scale " + ParameterReader::text(request.scale));
  const double particles = std::ceil(read.positive("particles_m") * 1e6 / request.scale);
  const auto lookups = static_cast<std::uint64_t>(read.number("lookups_per_particle", 1));

  trace::StreamInfo info = describe(request);
  info.lanes = {{"particles", 1}};
  // Search: the next address depends on a comparison, which the branch predictor guesses right half
  // of the time: 1.5 lines in flight. Index and points: the loop over nuclides has no dependence
  // between its turns of some 70 instructions, so that a window of 350 to 500 instructions holds
  // five to seven of them (estimate: 6 lines). Interpolating five sections takes some 10 ns per
  // nuclide, hidden under the two to three lines of a pair.
  info.classes = {{"search", 1.5, 0}, {"index", 6, 0}, {"points", 6, 4}, {"sequential", 10, 2}};
  info.op_kinds = {{"lookup"}};
  trace::Recorder recorder{request.file, info, recorder_options(request)};

  recorder.set_timed(false);
  const CrossSections table{
      recorder, {search, index_row, points, sequential}, nuclides, grid_points, request.seed};
  recorder.set_timed(true);

  Rng rng{mix64(request.seed) ^ 0x7061727469636c65ULL};
  Progress progress{request};
  const double bytes = sizeof(std::int32_t) * static_cast<double>(nuclides) *
                       static_cast<double>(nuclides) * static_cast<double>(grid_points);
  // Energies and materials are drawn anew for every lookup: particles are independent draws.
  const auto follow = [&](std::uint64_t particle) {
    progress.at(static_cast<double>(particle) / particles);
    (void)follow_particle(lookups, rng, [&](double energy, std::size_t material) {
      recorder.begin_operation(0);
      // Random numbers, choice of material, clearing and comparing the sections (estimate).
      recorder.compute(0, 50);
      const CrossSections::Sections sections = table.macroscopic(energy, material);
      recorder.end_operation();
      return sections;
    });
  };
  // A lookup reads a row of the index for each of 56 nuclides on average.
  independent_operations(recorder, request, static_cast<std::uint64_t>(particles),
                         56 * static_cast<double>(lookups), bytes, follow);
  return recorder.finish();
}

const RegisterKernel registered{
    {"xsbench",
     "cross-section lookups on a unionised energy grid: a small hot grid, a large uniform index",
     {{"nuclides", std::int64_t{355}, "count", "68: the small reactor; 355: the large one"},
      {"gridpoints", 130000.0, "count", "energies per nuclide"},
      {"particles_m", 30.0, "10^6", "particles that are followed"},
      {"lookups_per_particle", std::int64_t{34}, "count", "lookups of one particle"},
      block_ms_parameter(50)},
     &record_xsbench}};

}  // namespace
}  // namespace tt::kernels
