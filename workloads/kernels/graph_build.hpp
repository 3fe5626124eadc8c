// SPDX-License-Identifier: MIT

// Graphs in compressed sparse rows as the GAP benchmark suite keeps them (Beamer, Asanović,
// Patterson, arXiv:1508.03619; sbeamer/gapbs), read from a file or built in memory from an edge
// list.
//
// Everything is computed for real on traced arrays, whose loads and stores go to a recorder. The
// data structures, their sizes, the order of their allocations and when they are freed are those of
// GAP's reference code: 8-byte index entries, 4-byte vertex numbers (8 for graphs of 2^31 vertices
// and more). What several threads do at the same time there is done here in turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/rng.hpp"
#include "kernels/graph_generate.hpp"
#include "kernels/traced.hpp"
#include "trace/recorder.hpp"

namespace tt::kernels::graph {

/// How memory is accessed; the stream classes of every graph workload (see stream_classes()).
enum Class : std::uint32_t { stream, gather, chase, update, locked, pull };
[[nodiscard]] std::vector<trace::StreamClass> stream_classes();

/// Called every ten thousand edges or so; throws to stop.
using Watch = std::function<void()>;

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
  bool directed = false;  // else each edge leads both ways
  bool weighted = false;  // a weight beside each neighbour
  // Drops duplicates and loops. A vertex of the miniature stands for many: most edges that have the
  // same ends here would have different ones in the full graph, 2 % of which are duplicates and
  // loops (GAP, Table 3: 2111.6 of 2147.5 million edges are left of Kron).
  bool simple = false;
  std::size_t buffer_ids = 16384;  // of all threads' queue buffers
};

/// Sorts a row of neighbours. What occurs several times, for vertices that a miniature does not
/// tell apart, comes again only after all others: next to itself it would be found in the cache.
void sort_row(std::span<Vertex> row);

class Graph {
 public:
  /// Reads a serialised graph, as `gapbs -f graph.sg` does: offsets, neighbours, index. The graph
  /// itself is made aside and nothing of that recorded.
  [[nodiscard]] static Graph load(trace::Recorder& recorder, EdgeGenerator generator,
                                  std::uint64_t edges, const Options& options, const Watch& watch);
  /// Generates an edge list, makes a graph of it, and frees the list; then sorts the neighbours,
  /// copies them into a second graph, and frees the first: as `gapbs -g` does.
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

}  // namespace tt::kernels::graph
