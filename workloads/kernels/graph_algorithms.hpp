// The six kernels of the GAP benchmark suite (Beamer, Asanović, Patterson, arXiv:1508.03619;
// sbeamer/gapbs) on traced graphs, with GAP's data structures: a sliding queue with per-thread
// buffers, bitmaps of 64-bit words.
//
// Each allocates what GAP's does, frees its temporaries, and returns the result, which the caller
// frees.
#pragma once

#include <cstdint>
#include <span>

#include "core/rng.hpp"
#include "kernels/graph_build.hpp"
#include "kernels/traced.hpp"

namespace tt::kernels::graph {

/// Direction-optimising breadth-first search. Parent of each vertex, the source's is itself; -1:
/// not reached.
[[nodiscard]] TracedArray<std::int64_t> bfs(const Graph& graph, Vertex source, const Watch& watch);

/// PageRank by pulling, updates in place (Gauss-Seidel); ends when the scores' total change is
/// below `tolerance` or after `iterations`.
[[nodiscard]] TracedArray<float> page_rank(const Graph& graph, unsigned iterations,
                                           double tolerance, const Watch& watch);

/// Afforest (Sutton, Ben-Nun, Barak, IPDPS'18): the least vertex of each vertex' component.
[[nodiscard]] TracedArray<Vertex> connected_components(const Graph& graph, const Watch& watch);

/// Brandes' betweenness over shortest paths from `sources`, with a bitmap of successors;
/// scaled to a maximum of 1.
[[nodiscard]] TracedArray<float> betweenness(const Graph& graph, std::span<const Vertex> sources,
                                             const Watch& watch);

inline constexpr std::int32_t unreachable = 0x3fffffff;
/// Delta-stepping. Distance of each vertex.
[[nodiscard]] TracedArray<std::int32_t> shortest_paths(const Graph& graph, Vertex source,
                                                       std::int32_t delta, const Watch& watch);

/// Triangles of an undirected graph, each counted once; relabels by degree where that is worth it.
[[nodiscard]] std::uint64_t count_triangles(const Graph& graph, const Watch& watch);

}  // namespace tt::kernels::graph
