// SPDX-License-Identifier: MIT

// GAP's PageRank.
#pragma once

#include "kernels/graph_build.hpp"
#include "kernels/traced.hpp"

namespace tt::kernels::graph {

/// PageRank by pulling, updates in place (Gauss-Seidel); ends when the scores' total change is
/// below `tolerance` or after `iterations`.
[[nodiscard]] TracedArray<float> page_rank(const Graph& graph, unsigned iterations,
                                           double tolerance, const Watch& watch);

}  // namespace tt::kernels::graph
