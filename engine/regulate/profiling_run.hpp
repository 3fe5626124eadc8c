// SPDX-License-Identifier: MIT

// A run on fast memory alone, whose result is a Placement.
//
// Soar: Liu et al., "Tiered Memory Management Beyond Hotness", OSDI'25, §4.1, §4.2. Load misses are
// sampled, and every second each object gets a score from its share of the samples, AOL and the
// predicted slowdown (regulate/object_profile.hpp has Algorithm 1).
#pragma once

#include <memory>
#include <vector>

#include "core/seam.hpp"

namespace tt::regulate {

/// Policy::profile() has the result.
[[nodiscard]] std::unique_ptr<Policy> make_profiling_run(Memory& memory, const Knobs& knobs,
                                                         const char* sampling_period);
/// profile_period, r_min, r_max, overlap_aol, factor, predictor_a, predictor_b; and the sampling
/// period, by this name.
[[nodiscard]] std::vector<KnobDecl> profiling_knobs(const char* sampling_period);

}  // namespace tt::regulate
