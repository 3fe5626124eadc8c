// SPDX-License-Identifier: MIT

// DAMON's schemes as a policy: a monitor of the physical addresses of each node, which moves cold
// pages of a fast node down and hot ones of a slow node up (Linux,
// Documentation/admin-guide/mm/damon/usage.rst; migrate_cold and migrate_hot, 6.11).
#pragma once

#include "live/kernel_plan.hpp"
#include "live/nodes.hpp"

namespace tt::live {

/// Of damon-goal and hmsdk, by the units and rounding of the simulated policies. NotAllowed when
/// somebody uses DAMON, or a node's addresses are not known.
void plan_damon_goal(KernelPlanner& plan, const Nodes& nodes);
void plan_hmsdk(KernelPlanner& plan, const Nodes& nodes);

}  // namespace tt::live
