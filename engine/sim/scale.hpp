// SPDX-License-Identifier: MIT

// Applies full-scale knob values to a miniature: one simulated page stands for `scale` real pages.
//
// A miniature keeps 1/R of the pages and every access to them, in full-scale time. What belongs to
// one page or to time (counts per page, milliseconds, events per sample, ratios) is therefore
// unchanged; what adds up over the system (pages, samples, bytes per second, samples per second) is
// divided by R. A trigger on the *hottest* page is neither: see extreme_threshold().
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/knob.hpp"

namespace tt::sim {

/// A fast tier of fewer simulated pages than this is too coarse to tell policies apart: a single
/// decision moves a percent of it, and a 2 % watermark is a page or two. Such a run is refused.
inline constexpr std::uint64_t least_fast_pages = 256;

/// `knobs` must be complete (tt::resolve). `fast_pages` is the fast tier's size in managed pages at
/// full scale: the population among which the hottest page is found.
[[nodiscard]] Knobs scale_knobs(std::span<const KnobDecl> declared, const Knobs& knobs,
                                double scale, double fast_pages);

/// A rule "when any page's count reaches T" fires on a maximum over all hot pages, and a maximum
/// over N/R pages is lower than one over N: unscaled, a miniature would fire later. This returns
/// the threshold T' for which the rule fires at the same mean count. Sampled counts of equally hot
/// pages are Poisson; the maximum of N of them reaches T with even odds when
///     N * P(Poisson(m) >= T) = ln 2,
/// which gives the mean m at which the full system fires, and T' solves the same equation for N/R
/// pages at that m. It holds for equally hot pages; where a few pages stand out, the miniature's
/// hottest page depends on which of them it kept, and the trigger stays rarer. T' is real: the tail
/// is interpolated between integers (on a logarithmic scale).
[[nodiscard]] double extreme_threshold(double threshold, double pages, double scale);

/// Why a run is refused whose fast tier holds `pages` simulated pages of `page_bytes`, fewer than
/// least_fast_pages, and what would help. `fast_bytes` and `footprint_bytes` are the miniature's.
[[nodiscard]] std::string too_coarse(std::uint64_t pages, std::uint64_t page_bytes, double scale,
                                     double fast_bytes, double footprint_bytes);

/// P(Poisson(mean) >= count) for integer counts.
[[nodiscard]] double poisson_tail(double mean, double count);

}  // namespace tt::sim
