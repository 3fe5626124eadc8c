// Edge generators: Kronecker, uniform, and one with the degrees of Twitter's follower graph.
#pragma once

#include <cstdint>
#include <vector>

#include "core/rng.hpp"

namespace tt::kernels::graph {

using Vertex = std::uint32_t;

struct Edge {
  Vertex from;
  Vertex to;
};

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

}  // namespace tt::kernels::graph
