// Graphs in compressed sparse rows, how they are made, and the six kernels of the GAP benchmark
// suite on them (Beamer, Asanović, Patterson, arXiv:1508.03619; sbeamer/gapbs).
//
// Everything is computed for real on traced arrays, whose loads and stores go to a recorder. The
// data structures, their sizes, the order of their allocations and when they are freed are those of
// GAP's reference code: 8-byte index entries, 4-byte vertex numbers (8 for graphs of 2^31 vertices
// and more), a sliding queue with per-thread buffers, bitmaps of 64-bit words. What several threads
// do at a time there is done here by one after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/rng.hpp"
#include "kernels/traced.hpp"
#include "trace/recorder.hpp"

namespace tt::kernels::graph {

using Vertex = std::uint32_t;

struct Edge {
  Vertex from;
  Vertex to;
};

/// How memory is accessed; the stream classes of every graph workload (see stream_classes()).
enum Class : std::uint32_t { stream, gather, chase, update };
[[nodiscard]] std::vector<trace::StreamClass> stream_classes();

/// Called every ten thousand edges or so; throws to stop.
using Watch = std::function<void()>;

// ---------------------------------------------------------------------------------- generation

enum class Kind { kronecker, uniform, twitter };

/// Draws edges.
///
///  - kronecker: R-MAT with A, B, C = .57, .19, .19 (Graph500, GAP); vertices are renamed at
///  random;
///  - uniform: both ends uniform (Erdős-Rényi);
///  - twitter: ends drawn from power laws with the exponents and maxima of the follower graph of
///    2010 (Kwak et al., WWW'10). An edge leads from a user to a follower. The few users that many
///    follow are together on few pages: see permutation().
class EdgeGenerator {
 public:
  /// Kronecker graphs have the power of two next to `vertices`.
  EdgeGenerator(Kind kind, std::uint64_t vertices, std::uint64_t seed);

  [[nodiscard]] Vertex vertices() const { return vertices_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  /// The next edge, before vertices are renamed.
  [[nodiscard]] Edge next();
  /// The name that each vertex gets; empty when all keep theirs.
  [[nodiscard]] std::vector<Vertex> permutation() const;

 private:
  [[nodiscard]] Vertex rank(const std::vector<double>& quantiles);

  Kind kind_;
  Vertex vertices_;
  unsigned levels_ = 0;  // kronecker: log2 of vertices
  std::uint64_t seed_;
  Rng rng_;
  std::vector<double> followed_;  // twitter: rank at quantiles of edges, by users followed
  std::vector<double> following_;
};

// --------------------------------------------------------------------------------------- graph

struct Csr {
  TracedArray<std::uint64_t> index;  // of each vertex' first neighbour; one more than vertices
  TracedArray<Vertex> neighbours;    // with its weight, in a weighted graph

  [[nodiscard]] std::uint64_t degree(Vertex v) const { return index.peek(v + 1) - index.peek(v); }
  /// Reads both index entries; returns where the list begins and its length.
  struct Range {
    std::uint64_t first;
    std::uint64_t count;
  };
  [[nodiscard]] Range range(Class how, Vertex v) const {
    const auto ends = index.load_range(how, v, 2);
    return {ends[0], ends[1] - ends[0]};
  }
  /// Index and list of a vertex in a scan of all.
  [[nodiscard]] std::span<const Vertex> scan(Vertex v) const {
    const Range list = range(stream, v);
    return neighbours.load_range(stream, list.first, list.count);
  }
  /// Neighbours [first, first + count) of some vertex: short lists are single misses, prefetchers
  /// see long ones.
  [[nodiscard]] std::span<const Vertex> list(const Range& at) const {
    return neighbours.load_range(at.count > short_list ? stream : gather, at.first, at.count);
  }
  static constexpr std::uint64_t short_list = 64;  // four lines of 4-byte neighbours
};

struct Options {
  std::size_t id_bytes = 4;
  bool directed = false;           // else each edge leads both ways
  bool weighted = false;           // a weight beside each neighbour
  std::size_t buffer_ids = 16384;  // of all threads' queue buffers
};

class Graph {
 public:
  /// Reads a serialised graph, as `gapbs -f graph.sg` does: offsets, neighbours, index. The graph
  /// itself is made aside and nothing of that recorded.
  [[nodiscard]] static Graph load(trace::Recorder& recorder, EdgeGenerator generator,
                                  std::uint64_t edges, const Options& options, const Watch& watch);
  /// Generates an edge list, makes a graph of it, and frees the list; then sorts the neighbours,
  /// drops duplicates and loops into a second graph, and frees the first: as `gapbs -g` does.
  [[nodiscard]] static Graph build(trace::Recorder& recorder, EdgeGenerator generator,
                                   std::uint64_t edges, const Options& options, const Watch& watch);

  [[nodiscard]] Vertex vertices() const { return static_cast<Vertex>(out.index.size() - 1); }
  [[nodiscard]] std::uint64_t edges() const { return out.neighbours.size(); }  // directed
  [[nodiscard]] const Csr& incoming() const { return in ? *in : out; }
  /// Weight of an edge, 1 to 255, the same both ways and with the same bytes as its neighbour
  /// entry: so reading that has read it.
  [[nodiscard]] std::int32_t weight(Vertex from, Vertex to) const;
  /// A vertex with neighbours, for a trial's source.
  [[nodiscard]] Vertex pick_source(Rng& rng) const;

  trace::Recorder& recorder;
  Options options;
  std::uint64_t seed;  // of the weights
  Csr out;
  std::optional<Csr> in;  // directed graphs
};

// ----------------------------------------------------------------------------------- algorithms
//
// Each allocates what GAP's does, frees its temporaries, and returns the result, which the caller
// frees.

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
