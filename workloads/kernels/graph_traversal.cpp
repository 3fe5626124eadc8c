// SPDX-License-Identifier: MIT

#include "kernels/graph_traversal.hpp"

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/graph_parts.hpp"

namespace tt::kernels::graph {

// ------------------------------------------------------------------------------------------ BFS

namespace {

using Parents = TracedArray<std::int64_t>;

/// Top-down step; returns the sum of degrees of what it found.
std::uint64_t top_down(const Graph& graph, Parents& parent, const SlidingQueue& queue,
                       QueueBuffer& found, Work& work, const Watch& watch) {
  std::uint64_t scouted = 0;
  for (std::size_t i = queue.first(); i < queue.last(); ++i) {
    if (i % watched_vertices == 0) watch();
    const Vertex u = queue.at(i);
    const Csr::Range at = graph.out.range(gather, u);
    for (const Vertex v : graph.out.list(at)) {
      const std::int64_t current = parent.load(gather, v);
      if (current >= 0) continue;
      parent.store(update, v, u);
      found.push(v);
      scouted += static_cast<std::uint64_t>(-current);
    }
    work.add(1, at.count);
  }
  found.flush();
  return scouted;
}

/// Bottom-up step: vertices without a parent look for one in the front. Returns how many found one.
std::size_t bottom_up(const Graph& graph, Parents& parent, const Bitmap& front, Bitmap& next,
                      Work& work, const Watch& watch) {
  const Csr& in = graph.incoming();
  std::size_t awake = 0;
  next.reset();
  for_lines(graph.vertices(), watch, [&](Vertex first, std::size_t count) {
    (void)parent.load_range(stream, first, count);
    std::uint64_t seen = 0;
    for (Vertex u = first; u < first + count; ++u) {
      if (parent.peek(u) >= 0) continue;
      const Csr::Range at = in.range(stream, u);
      std::uint64_t looked = 0;
      while (looked < at.count) {
        const Vertex v = in.neighbours.peek(at.first + looked++);
        if (!front.get(gather, v)) continue;
        parent.store(stream, u, v);
        next.set(stream, u);
        ++awake;
        break;
      }
      (void)in.neighbours.load_range(stream, at.first, looked);
      seen += looked;
    }
    work.add(count, seen);
  });
  return awake;
}

}  // namespace

TracedArray<std::int64_t> bfs(const Graph& graph, Vertex source, const Watch& watch) {
  constexpr std::uint64_t alpha = 15;
  constexpr std::uint64_t beta = 18;
  trace::Recorder& recorder = graph.recorder;
  const Vertex vertices = graph.vertices();
  Work work{recorder};

  // An unreached vertex holds its degree, negative, or -1.
  Parents parent{recorder, "bfs.parent", vertices, graph.options.id_bytes};
  for_lines(vertices, watch, [&](Vertex first, std::size_t count) {
    (void)graph.out.index.load_range(stream, first, count + 1);
    const auto part = parent.store_range(stream, first, count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto degree =
          static_cast<std::int64_t>(graph.out.degree(first + static_cast<Vertex>(i)));
      part[i] = degree == 0 ? -1 : -degree;
    }
    work.add(count, 0);
  });
  parent.store(update, source, source);
  SlidingQueue queue{graph, vertices};
  queue.push(source);
  queue.slide();
  QueueBuffer found{graph, queue};
  Bitmap current{recorder, "bfs.current", vertices};
  current.reset();
  Bitmap front{recorder, "bfs.front", vertices};
  front.reset();

  std::uint64_t unchecked = graph.edges();
  std::uint64_t scouted = graph.out.degree(source);
  while (!queue.empty()) {
    if (scouted > unchecked / alpha) {
      for (std::size_t i = queue.first(); i < queue.last(); ++i) front.set(gather, queue.at(i));
      std::size_t awake = queue.size();
      std::size_t before = 0;
      queue.slide();
      do {
        before = awake;
        awake = bottom_up(graph, parent, front, current, work, watch);
        std::swap(front, current);
      } while (awake >= before || awake > vertices / beta);
      front.scan(0, vertices);
      for (Vertex v = 0; v < vertices; ++v)
        if (front.peek(v)) found.push(v);
      found.flush();
      queue.slide();
      scouted = 1;
    } else {
      unchecked -= std::min(unchecked, scouted);
      scouted = top_down(graph, parent, queue, found, work, watch);
      queue.slide();
    }
  }
  for_lines(vertices, watch, [&](Vertex first, std::size_t count) {
    (void)parent.load_range(stream, first, count);
    for (Vertex v = first; v < first + count; ++v)
      if (parent.peek(v) < -1) parent.store(stream, v, -1);
  });
  work.flush();
  queue.free();
  found.free();
  current.free();
  front.free();
  return parent;
}

// ----------------------------------------------------------------------- betweenness centrality

TracedArray<float> betweenness(const Graph& graph, std::span<const Vertex> sources,
                               const Watch& watch) {
  trace::Recorder& recorder = graph.recorder;
  const Vertex vertices = graph.vertices();
  const Csr& out = graph.out;
  Work work{recorder};
  TracedArray<float> scores{recorder, "bc.scores", vertices};
  fill(scores, 0.0F);
  TracedArray<double> paths{recorder, "bc.path_counts", vertices};
  Bitmap successors{recorder, "bc.successors", std::max<std::uint64_t>(graph.edges(), 1)};
  SlidingQueue queue{graph, vertices};
  for (const Vertex source : sources) {
    fill(paths, 0.0);
    successors.reset();
    queue.reset();
    // Forth: depths, numbers of shortest paths, and which edges they use.
    TracedArray<std::int32_t> depths{recorder, "bc.depths", vertices, graph.options.id_bytes};
    fill(depths, -1);
    QueueBuffer buffer{graph, queue};
    depths.store(update, source, 0);
    paths.store(update, source, 1);
    queue.push(source);
    queue.slide();
    std::vector<std::size_t> levels{queue.first()};
    for (std::int32_t depth = 1; !queue.empty(); ++depth) {
      for (std::size_t i = queue.first(); i < queue.last(); ++i) {
        if (i % watched_vertices == 0) watch();
        const Vertex u = queue.at(i);
        const Csr::Range at = out.range(gather, u);
        const double count = paths.load(gather, u);
        std::uint64_t edge = at.first;
        std::uint64_t atomics = 0;
        const auto visit = [&](Vertex v) {
          // Other threads write all three. What follows an edge of a shortest path waits for it.
          const std::int32_t before = depths.peek(v);
          const bool shortest = before == -1 || before == depth;
          (void)depths.load(shortest ? locked : gather, v);
          if (before == -1) {
            depths.store(update, v, depth);
            buffer.push(v);
          }
          if (shortest) {
            successors.set(locked, edge);
            paths.store(update, v, paths.load(locked, v) + count);
            atomics += before == -1 ? 3 : 2;
          }
          ++edge;
        };
        for_list(out.list(at), visit, depths, paths);
        work.add(1, at.count);
        work.add_locked(atomics);
      }
      buffer.flush();
      queue.slide();
      levels.push_back(queue.first());
    }
    buffer.free();
    depths.free();
    // Back: dependencies, level by level.
    TracedArray<float> deltas{recorder, "bc.deltas", vertices};
    fill(deltas, 0.0F);
    for (std::size_t level = levels.size() - 1; level-- > 0;) {
      for (std::size_t i = levels[level]; i < levels[level + 1]; ++i) {
        if (i % watched_vertices == 0) watch();
        const Vertex u = queue.at(i);
        const Csr::Range at = out.range(gather, u);
        successors.scan(at.first, at.count);
        const double count = paths.load(gather, u);
        float delta = 0;
        std::uint64_t edge = at.first;
        const auto visit = [&](Vertex v) {
          if (!successors.peek(edge++)) return;
          const double ratio = count / paths.load(gather, v);
          delta += static_cast<float>(ratio) * (1 + deltas.load(gather, v));
        };
        for_list(out.list(at), visit, paths, deltas);
        deltas.store(update, u, delta);
        scores.store(update, u, scores.load(gather, u) + delta);
        work.add(1, at.count);
      }
    }
    deltas.free();
  }
  const auto all = scores.load_range(stream, 0, vertices);
  const float largest = std::ranges::max(all);
  if (largest > 0)
    for (float& score : scores.store_range(stream, 0, vertices)) score /= largest;
  work.flush();
  paths.free();
  successors.free();
  queue.free();
  return scores;
}

// --------------------------------------------------------------------------------------- SSSP

namespace {

/// Vertices by distance in steps of delta. Bins are lists of page-sized pieces out of arenas, and
/// a bin that was read gives its pieces back; GAP's are growing vectors, one per thread and bin.
class Bins {
 public:
  explicit Bins(const Graph& graph)
      : graph_(graph), piece_(trace::base_page_bytes / graph.options.id_bytes) {}

  void push(std::size_t bin, Vertex v) {
    if (bin >= bins_.size()) bins_.resize(bin + 1);
    Bin& into = bins_[bin];
    if (into.size % piece_ == 0) into.pieces.push_back(take());
    const std::size_t at = into.pieces.back();
    arenas_[at / arena_pieces].store(stream, at % arena_pieces * piece_ + into.size % piece_, v);
    ++into.size;
  }
  /// Moves the first bin with entries, from `bin` on, to `frontier`; returns its number, or none's,
  /// and the number of entries.
  std::pair<std::size_t, std::size_t> pop(std::size_t bin, TracedArray<Vertex>& frontier) {
    while (bin < bins_.size() && bins_[bin].size == 0) ++bin;
    if (bin == bins_.size()) return {bin, 0};
    Bin from = std::exchange(bins_[bin], {});
    if (from.size > frontier.size()) throw std::logic_error("sssp: more entries than edges");
    for (std::size_t i = 0; i < from.pieces.size(); ++i) {
      const std::size_t at = from.pieces[i];
      const std::size_t count = std::min(piece_, from.size - i * piece_);
      const auto part =
          arenas_[at / arena_pieces].load_range(stream, at % arena_pieces * piece_, count);
      std::ranges::copy(part, frontier.store_range(stream, i * piece_, count).begin());
      unused_.push_back(at);
    }
    return {bin, from.size};
  }
  void free() {
    for (auto& arena : arenas_) arena.free();
  }

 private:
  static constexpr std::size_t arena_pieces = 256;
  struct Bin {
    std::vector<std::size_t> pieces;
    std::size_t size = 0;
  };
  std::size_t take() {
    if (unused_.empty()) {
      arenas_.emplace_back(graph_.recorder, "sssp.bins", arena_pieces * piece_,
                           graph_.options.id_bytes);
      for (std::size_t i = arena_pieces; i-- > 0;)
        unused_.push_back((arenas_.size() - 1) * arena_pieces + i);
    }
    const std::size_t piece = unused_.back();
    unused_.pop_back();
    return piece;
  }
  const Graph& graph_;
  std::size_t piece_;
  std::vector<Bin> bins_;
  std::vector<TracedArray<Vertex>> arenas_;
  std::vector<std::size_t> unused_;
};

}  // namespace

TracedArray<std::int32_t> shortest_paths(const Graph& graph, Vertex source, std::int32_t delta,
                                         const Watch& watch) {
  trace::Recorder& recorder = graph.recorder;
  Work work{recorder};
  TracedArray<std::int32_t> distance{recorder, "sssp.distance", graph.vertices()};
  fill(distance, unreachable);
  distance.store(update, source, 0);
  // GAP's frontier has room for every edge; only the used part is touched.
  TracedArray<Vertex> frontier{recorder, "sssp.frontier", std::max<std::uint64_t>(graph.edges(), 1),
                               graph.options.id_bytes};
  Bins bins{graph};
  frontier.store(stream, 0, source);
  std::size_t bin = 0;
  std::size_t count = 1;
  while (count > 0) {
    for (std::size_t i = 0; i < count; ++i) {
      if (i % watched_vertices == 0) watch();
      const Vertex u = frontier.load(stream, i);
      const std::int32_t from = distance.load(gather, u);
      if (from < delta * static_cast<std::int32_t>(bin)) continue;  // settled in an earlier bin
      const Csr::Range at = graph.out.range(gather, u);
      for (const Vertex v : graph.out.list(at)) {
        const std::int32_t through = from + graph.weight(u, v);
        if (through >= distance.load(gather, v)) continue;
        distance.store(update, v, through);
        bins.push(static_cast<std::size_t>(through / delta), v);
      }
      work.add(1, at.count);
    }
    std::tie(bin, count) = bins.pop(bin, frontier);
  }
  work.flush();
  bins.free();
  frontier.free();
  return distance;
}

}  // namespace tt::kernels::graph
