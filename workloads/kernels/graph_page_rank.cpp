// SPDX-License-Identifier: MIT

#include "kernels/graph_page_rank.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/graph_parts.hpp"

namespace tt::kernels::graph {

TracedArray<float> page_rank(const Graph& graph, unsigned iterations, double tolerance,
                             const Watch& watch) {
  constexpr float damping = 0.85F;
  trace::Recorder& recorder = graph.recorder;
  const Vertex vertices = graph.vertices();
  const float initial = 1.0F / static_cast<float>(vertices);
  const float base = (1.0F - damping) / static_cast<float>(vertices);
  const auto share = [&](float score, Vertex v) {
    // A vertex without outgoing edges is no one's neighbour: its contribution is never read.
    return score / static_cast<float>(std::max<std::uint64_t>(graph.out.degree(v), 1));
  };
  Work work{recorder};
  TracedArray<float> scores{recorder, "pr.scores", vertices};
  fill(scores, initial);
  TracedArray<float> contribution{recorder, "pr.contribution", vertices};
  for_lines(vertices, watch, [&](Vertex first, std::size_t count) {
    (void)graph.out.index.load_range(stream, first, count + 1);
    const auto part = contribution.store_range(stream, first, count);
    for (std::size_t i = 0; i < count; ++i)
      part[i] = share(initial, first + static_cast<Vertex>(i));
    work.add(count, 0);
  });
  const Csr& in = graph.incoming();
  for (unsigned iteration = 0; iteration < iterations; ++iteration) {
    double change = 0;
    for_lines(vertices, watch, [&](Vertex first, std::size_t count) {
      std::uint64_t edges = 0;
      (void)in.index.load_range(stream, first, count + 1);
      if (graph.in) (void)graph.out.index.load_range(stream, first, count + 1);
      (void)scores.load_range(stream, first, count);
      for (Vertex u = first; u < first + count; ++u) {
        const std::uint64_t degree = in.degree(u);
        float sum = 0;
        for_list(
            in.neighbours.load_range(stream, in.index.peek(u), degree),
            [&](Vertex v) { sum += contribution.load(pull, v); }, contribution);
        const float score = base + damping * sum;
        change += std::abs(static_cast<double>(score) - scores.peek(u));
        scores.poke(u) = score;
        contribution.poke(u) = share(score, u);
        edges += degree;
      }
      (void)scores.store_range(stream, first, count);
      (void)contribution.store_range(stream, first, count);
      work.add(count, edges);
    });
    if (change < tolerance) break;
  }
  work.flush();
  contribution.free();
  return scores;
}

}  // namespace tt::kernels::graph
