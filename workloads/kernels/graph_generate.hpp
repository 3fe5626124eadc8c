// SPDX-License-Identifier: MIT

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

/// Which part of a graph is made where a stream of huge pages asks for more than `most` vertices:
/// one in so many (trace/recorder.hpp). Vertices are named at random, so that base pages of one
/// huge page follow one law; eight of them are left at least.
[[nodiscard]] std::uint32_t thinning(std::uint64_t page_bytes, double vertices, double most);

enum class Kind { kronecker, uniform, twitter };

/// Draws edges of a miniature: one vertex of so many of a large graph, with that graph's degrees.
/// They come from the large graph's law and not from a smaller graph of the same kind, whose skew
/// would be another.
///
///  - kronecker: the degrees of R-MAT with A, B, C = .57, .19, .19 (Graph500, GAP); ends are drawn
///    independently of each other, which R-MAT's nearly are: A = .57, (A + B)^2 = .5776. Vertices
///    are renamed at random;
///  - uniform: both ends uniform (Erdős-Rényi);
///  - twitter: ends drawn from power laws with the exponents and maxima of the follower graph of
///    2010 (Kwak et al., WWW'10). An edge leads from a user to a follower. The few users that many
///    follow are together on few pages: see permutation().
class EdgeGenerator {
 public:
  /// `vertices` of the miniature; each stands for `scale` of the large graph's.
  EdgeGenerator(Kind kind, std::uint64_t vertices, double scale, std::uint64_t seed);

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
  std::uint64_t seed_;
  Rng rng_;
  // Ranks by degree at quantiles of the edges, by their first and their second end.
  std::vector<double> from_, to_;
};

}  // namespace tt::kernels::graph
