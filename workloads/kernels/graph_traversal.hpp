// SPDX-License-Identifier: MIT

// GAP's traversals from a source: breadth-first search, betweenness, shortest paths.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/graph_build.hpp"
#include "kernels/traced.hpp"

namespace tt::kernels::graph {

/// Direction-optimising breadth-first search. Parent of each vertex, the source's is itself; -1:
/// not reached.
[[nodiscard]] TracedArray<std::int64_t> bfs(const Graph& graph, Vertex source, const Watch& watch);

/// Brandes' betweenness over shortest paths from `sources`, with a bitmap of successors;
/// scaled to a maximum of 1.
[[nodiscard]] TracedArray<float> betweenness(const Graph& graph, std::span<const Vertex> sources,
                                             const Watch& watch);

inline constexpr std::int32_t unreachable = 0x3fffffff;
/// Delta-stepping. Distance of each vertex.
[[nodiscard]] TracedArray<std::int32_t> shortest_paths(const Graph& graph, Vertex source,
                                                       std::int32_t delta, const Watch& watch);

}  // namespace tt::kernels::graph
