// SPDX-License-Identifier: MIT

// GAP's triangle counting.
#pragma once

#include <cstdint>

#include "kernels/graph_build.hpp"

namespace tt::kernels::graph {

/// Triangles of an undirected graph, each counted once; relabels by degree where that is worth it.
[[nodiscard]] std::uint64_t count_triangles(const Graph& graph, const Watch& watch);

}  // namespace tt::kernels::graph
