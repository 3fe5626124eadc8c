// SPDX-License-Identifier: MIT

// GAP's connected components.
#pragma once

#include "kernels/graph_build.hpp"
#include "kernels/traced.hpp"

namespace tt::kernels::graph {

/// Afforest (Sutton, Ben-Nun, Barak, IPDPS'18): the least vertex of each vertex' component.
[[nodiscard]] TracedArray<Vertex> connected_components(const Graph& graph, const Watch& watch);

}  // namespace tt::kernels::graph
