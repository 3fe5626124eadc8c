// SPDX-License-Identifier: MIT

// How alike a recording is over time: which parts of it are one steady phase.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/reader.hpp"

namespace tt::record {

/// A part of the timed blocks, about as long as each of the others.
struct Window {
  std::uint64_t from = 0;  // first block
  std::uint64_t to = 0;    // one past the last
  double begin_s = 0;      // nominal seconds of the timed part before it
  double end_s = 0;
  std::uint64_t accesses = 0;  // simulated
};

struct Windows {
  std::vector<Window> windows;
  /// Row after row, for each two windows how alike the shares of accesses are that their pages get:
  /// the affinity of two distributions p and q, Σ √(p q) (Bhattacharyya, Bulletin of the Calcutta
  /// Mathematical Society 35, 1943), free of chance. Of equally hot pages it is the share of those
  /// that are the same.
  ///
  /// Two windows of the same law differ by chance, the more the fewer accesses a page has. By how
  /// much is seen inside of each, between its even and its odd blocks: with these, a and b of one
  /// window, c and d of the other,
  ///
  ///   alike = (affinity(a, d) + affinity(b, c)) / 2 / √(affinity(a, b) · affinity(c, d))
  ///
  /// and at most 1 (correction for attenuation: Spearman, The Proof and Measurement of Association
  /// between Two Things, American Journal of Psychology 15, 1904). 0 where nothing can be told: a
  /// window has set-up inside, or its own blocks have hardly any page in common.
  std::vector<double> alike;
};

/// The timed part in `count` windows, fewer where there are not two blocks for each. Of more than
/// `most_pages` pages a random part of so many is looked at.
Windows windows(const trace::Reader& reader, std::size_t count,
                std::uint64_t most_pages = std::uint64_t{1} << 20);

}  // namespace tt::record
