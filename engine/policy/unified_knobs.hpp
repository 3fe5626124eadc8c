// SPDX-License-Identifier: MIT

// The knobs of unified, and what its presets stand for.
#pragma once

#include <vector>

#include "core/seam.hpp"

namespace tt::unified {

[[nodiscard]] std::vector<KnobDecl> knobs();

/// The preset as what it stands for: values of the other knobs.
[[nodiscard]] Knobs expanded(Knobs knobs);

/// Whether pages start where a profiling run says.
[[nodiscard]] KnobCondition by_profile();

/// Preset static counts and moves nothing: what is not about placement has no effect with it.
[[nodiscard]] PolicyInfo where_pages_move(PolicyInfo info);

}  // namespace tt::unified
