// SPDX-License-Identifier: MIT

// What tests of kernels add up over a stream, and which pages are hot by it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <vector>

#include "trace/reader.hpp"

namespace tt::test {

/// Loads per page of the timed blocks that begin between two shares of the operations.
[[nodiscard]] inline std::vector<double> loads(const trace::Reader& reader, double from,
                                               double to) {
  std::vector<double> sums(reader.info().pages);
  trace::Block block;
  double done = 0;
  for (std::uint64_t i = 0; i < reader.info().blocks; ++i) {
    reader.read(i, block);
    if (!block.timed) continue;
    const double share = done / static_cast<double>(reader.info().operations);
    done += static_cast<double>(block.operations[0]);
    if (share < from || share >= to) continue;
    for (const trace::Segment& segment : block.segments)
      if (segment.kind == AccessKind::load)
        for (std::size_t e = 0; e < segment.pages.size(); ++e)
          sums[segment.pages[e]] += segment.counts[e];
  }
  return sums;
}

/// Lines that the timed blocks read and write, and all lines of the others.
struct Lines {
  double read = 0, written = 0, set_up = 0;
};
[[nodiscard]] inline Lines lines(const trace::Reader& reader) {
  Lines sums;
  trace::Block block;
  for (std::uint64_t i = 0; i < reader.info().blocks; ++i) {
    reader.read(i, block);
    for (const trace::Segment& segment : block.segments) {
      double& sum = segment.kind == AccessKind::load ? sums.read : sums.written;
      (block.timed ? sum : sums.set_up) += static_cast<double>(segment.sum);
    }
  }
  return sums;
}

[[nodiscard]] inline double sum(const std::vector<double>& values, std::size_t first,
                                std::size_t count) {
  return std::accumulate(values.begin() + static_cast<std::ptrdiff_t>(first),
                         values.begin() + static_cast<std::ptrdiff_t>(first + count), 0.0);
}
[[nodiscard]] inline double sum(const std::vector<double>& values) {
  return sum(values, 0, values.size());
}

/// The pages with the most accesses, in order of their numbers.
[[nodiscard]] inline std::vector<std::size_t> hottest(const std::vector<double>& counts,
                                                      std::size_t number) {
  std::vector<std::size_t> pages(counts.size());
  std::iota(pages.begin(), pages.end(), std::size_t{0});
  std::ranges::stable_sort(pages, std::ranges::greater{}, [&](auto page) { return counts[page]; });
  pages.resize(number);
  std::ranges::sort(pages);
  return pages;
}
/// Which share of one set of pages is in the other.
[[nodiscard]] inline double common(const std::vector<std::size_t>& a,
                                   const std::vector<std::size_t>& b) {
  std::vector<std::size_t> both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  return static_cast<double>(both.size()) / static_cast<double>(a.size());
}

}  // namespace tt::test
