// SPDX-License-Identifier: MIT

// Counting Bloom filters: approximate per-page sample counts in a few bits per page.
//
// A page maps to k counters; its count is the least of them, so a filter over-counts when all k are
// shared, and never under-counts below its saturation point. Two layouts: *standard* spreads the k
// counters over the whole array, *blocked* keeps them in one 64-byte line, so that an access costs
// one cache miss (HybridTier, ASPLOS'25, §4.2; FreqTier, 2024, §V). In both, each of the k counters
// has a disjoint slice of its own (of the array, of the line): a page never collides with itself.
#pragma once

#include <cstdint>
#include <memory>

#include "track/tracker.hpp"

namespace tt::track {

struct CbfOptions {
  /// Distinct pages that the filter is sized for, > 0.
  std::uint64_t pages = 0;
  /// False-positive rate of the standard layout when it holds `pages` pages, in (0, 1).
  double error = 0.001;
  /// Counters per page, k: 1 to 8.
  unsigned hashes = 4;
  /// Width of a counter: 4, 8 or 16 bits; counts saturate at 2^width - 1.
  unsigned counter_bits = 4;
  /// The k counters of a page share one 64-byte line.
  bool blocked = true;
  /// Increment raises only the smallest counters (the HybridTier paper's rule); false: all k (its
  /// artifact's rule), which over-counts more.
  bool conservative = true;
  /// Lower limit of the number of counters, whatever `pages` and `error` ask for.
  std::uint64_t min_counters = 0;
  /// Chooses the hash function.
  std::uint64_t seed = 0;
};

/// Counters that n pages need for error p with k hashes: m = ceil(n r), r = -k / ln(1 - p^(1/k))
/// (HybridTier, ASPLOS'25, §4.2). Throws std::invalid_argument outside the ranges of CbfOptions.
[[nodiscard]] std::uint64_t cbf_counters(std::uint64_t pages, double error, unsigned hashes);

/// Theory: probability that a page which was never incremented has a count above zero when the
/// filter of `options` holds `held` distinct pages. Standard: (1 - e^(-held k / m))^k. Blocked: the
/// expectation of (1 - (1 - 1/s)^j)^k over the Poisson number j of pages that share a line, s the
/// counters per slice (Putze, Sanders and Singler, 2007); it exceeds the standard rate at equal
/// size.
[[nodiscard]] double cbf_false_positive_rate(const CbfOptions& options, std::uint64_t held);

/// A filter rounded up to whole 64-byte lines, all counters zero. Throws std::invalid_argument for
/// options outside their ranges.
[[nodiscard]] std::unique_ptr<Tracker> make_cbf(const CbfOptions& options);

}  // namespace tt::track
