// SPDX-License-Identifier: MIT

// Thresholds: which counts of a hotness histogram fill the fast tier (MEMTIS, SOSP'23, §4.2.1).
#pragma once

#include "core/histogram.hpp"

namespace tt::classify {

/// Bin indices, as in the paper: bins >= hot belong in the fast tier, bins <= cold into the slow
/// one, between them pages stay where they are. hot == bins() means that not even the top bin fits;
/// warm and cold may be -1 or less: no page is that cold.
struct Thresholds {
  int hot = 0;
  int warm = 0;
  int cold = 0;
};

/// Algorithm 1: the lowest hot threshold whose pages fit `fast_pages`; a warm band below it if they
/// fill no more than the share `alpha`.
[[nodiscard]] Thresholds fit_thresholds(const Histogram& histogram, double fast_pages,
                                        double alpha);

}  // namespace tt::classify
