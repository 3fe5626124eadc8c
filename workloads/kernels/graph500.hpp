// SPDX-License-Identifier: MIT

// Graph500's graph: construction from an edge list and breadth-first search, as the reference code
// does both (2.1.4, omp-csr): edges are pairs of 8-byte numbers that stay until the end, rows have
// two 8-byte offsets, neighbours are 8 bytes. See graph500.cpp for the benchmark around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/graph_build.hpp"

namespace tt::kernels::graph {

class Graph500 {
 public:
  /// Generates the edges.
  Graph500(trace::Recorder& recorder, EdgeGenerator generator, std::size_t edges,
           const Watch& watch);

  /// Kernel 1: rows of neighbours, both ways, sorted. Duplicates and loops stay (Options::simple).
  void construct();

  /// Kernel 2: the parent of each vertex in a search from `key`, its own the key's; -1: not
  /// reached. The caller frees it.
  [[nodiscard]] TracedArray<std::int64_t> search(Vertex key);

  [[nodiscard]] Vertex vertices() const { return vertices_; }
  [[nodiscard]] std::span<const Edge> edges() const { return edges_.peek_all(); }
  [[nodiscard]] std::span<const Vertex> neighbours(Vertex v) const {
    return neighbours_.peek_all().subspan(offsets_.peek(begin(v)),
                                          offsets_.peek(begin(v) + 1) - offsets_.peek(begin(v)));
  }

 private:
  /// Where a row's pair of offsets lies.
  static std::size_t begin(Vertex v) { return 2 * std::size_t{v}; }
  void count(Vertex row);
  void scatter(Vertex row, Vertex entry);

  trace::Recorder& recorder_;
  Vertex vertices_;
  const Watch& watch_;
  TracedArray<Edge> edges_;
  TracedArray<std::uint64_t> offsets_;  // begin and end of each row
  TracedArray<Vertex> neighbours_;
};

}  // namespace tt::kernels::graph
