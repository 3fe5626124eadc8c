// SPDX-License-Identifier: MIT

// The policies that Linux has itself: NUMA balancing (autonuma), NUMA balancing with memory tiering
// (nbt, and what Linux has of tpp), DAMON's schemes (damon-goal, hmsdk). They need no daemon: their
// knobs are written once.
#pragma once

#include <optional>
#include <string_view>

#include "core/registry.hpp"
#include "live/kernel_calls.hpp"
#include "live/kernel_plan.hpp"
#include "live/nodes.hpp"

namespace tt::live {

/// Whether Linux has the policy itself.
[[nodiscard]] bool is_kernels_own(std::string_view policy);

/// What has to be written on this machine. `nodes` are those that the user has named; without them
/// they are the kernel's memory tiers. Nothing is written. std::invalid_argument for a policy that
/// no released kernel has, naming what would run it, and for knobs or nodes that cannot be had;
/// NotAllowed naming what this kernel or machine lacks.
[[nodiscard]] KernelPlan kernel_plan(KernelCalls& kernel, const PolicyInfo& policy,
                                     const KnobMap& knobs, const std::optional<Nodes>& nodes);

}  // namespace tt::live
