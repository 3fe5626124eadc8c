// The six kernels of the GAP benchmark suite; see graph_algorithms.hpp.
//
// Vertices of a whole-graph pass are visited a cache line of 4-byte values at a time, so that one
// report serves sixteen of them.
#include "kernels/graph_algorithms.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace tt::kernels::graph {
namespace {

// Computation per edge and per vertex beside the misses, and what threads lose by waiting for each
// other. Chosen so that BFS and CC take what FreqTier (2024, Table IV) measured with all memory
// fast, on a Kronecker graph of 2^31 vertices and 2^33 edges: 6.6 and 10.9 s per trial.
constexpr double edge_ns = 1.5;
constexpr double vertex_ns = 3.1;
// A step of a merge of two sorted lists: its branch is mispredicted about every third time, at some
// 15 cycles, and nothing is outstanding meanwhile (estimate).
constexpr double merge_ns = 2;

constexpr std::size_t line = 16;
constexpr std::size_t watched_vertices = 4096;

template <typename Visit>
void for_lines(Vertex vertices, const Watch& watch, Visit visit) {
  for (Vertex first = 0; first < vertices; first += line) {
    if (first % watched_vertices == 0) watch();
    visit(first, std::min<std::size_t>(line, vertices - first));
  }
}

template <typename T>
void fill(TracedArray<T>& array, T value) {
  std::ranges::fill(array.store_range(stream, 0, array.size()), value);
}

class Bitmap {
 public:
  Bitmap(trace::Recorder& recorder, std::string_view site, std::size_t bits)
      : words_(recorder, site, (bits + 63) / 64) {}

  void reset() { fill(words_, std::uint64_t{0}); }
  [[nodiscard]] bool get(Class how, std::size_t i) const {
    return (words_.load(how, i / 64) >> i % 64 & 1) != 0;
  }
  void set(Class how, std::size_t i) {
    const std::uint64_t word = words_.load(how, i / 64);
    words_.store(how == stream ? stream : update, i / 64, word | std::uint64_t{1} << i % 64);
  }
  /// Reads the words of bits [first, first + count).
  void scan(std::size_t first, std::size_t count) const {
    if (count > 0)
      (void)words_.load_range(stream, first / 64, (first + count - 1) / 64 - first / 64 + 1);
  }
  [[nodiscard]] bool peek(std::size_t i) const { return (words_.peek(i / 64) >> i % 64 & 1) != 0; }
  void free() { words_.free(); }

 private:
  TracedArray<std::uint64_t> words_;
};

/// GAP's SlidingQueue: who is appended becomes visible when the window slides.
class SlidingQueue {
 public:
  SlidingQueue(const Graph& graph, std::size_t capacity)
      : items_(graph.recorder, "queue", capacity, graph.options.id_bytes) {}

  void push(Vertex v) { items_.store(stream, tail_++, v); }
  void push(std::span<const Vertex> vertices) {
    std::ranges::copy(vertices, items_.store_range(stream, tail_, vertices.size()).begin());
    tail_ += vertices.size();
  }
  void slide() {
    first_ = last_;
    last_ = tail_;
  }
  void reset() { first_ = last_ = tail_ = 0; }
  [[nodiscard]] bool empty() const { return first_ == last_; }
  [[nodiscard]] std::size_t size() const { return last_ - first_; }
  [[nodiscard]] std::size_t first() const { return first_; }
  [[nodiscard]] std::size_t last() const { return last_; }
  [[nodiscard]] Vertex at(std::size_t i) const { return items_.load(stream, i); }
  void free() { items_.free(); }

 private:
  TracedArray<Vertex> items_;
  std::size_t first_ = 0, last_ = 0, tail_ = 0;
};

/// What GAP's threads append to first; it goes to the queue when it is full and after a step.
class QueueBuffer {
 public:
  QueueBuffer(const Graph& graph, SlidingQueue& queue)
      : queue_(queue),
        items_(graph.recorder, "queue.buffer", graph.options.buffer_ids, graph.options.id_bytes) {}

  void push(Vertex v) {
    items_.store(stream, size_++, v);
    if (size_ == items_.size()) flush();
  }
  void flush() { queue_.push(items_.load_range(stream, 0, std::exchange(size_, 0))); }
  void free() { items_.free(); }

 private:
  SlidingQueue& queue_;
  TracedArray<Vertex> items_;
  std::size_t size_ = 0;
};

/// Reports computation of a pass, now and then.
class Work {
 public:
  explicit Work(trace::Recorder& recorder) : recorder_(recorder) {}
  ~Work() = default;
  void add(std::uint64_t vertices, std::uint64_t edges) {
    ns_ += vertex_ns * static_cast<double>(vertices) + edge_ns * static_cast<double>(edges);
    if (ns_ > 2000) flush();
  }
  void flush() { recorder_.compute(0, std::exchange(ns_, 0)); }

 private:
  trace::Recorder& recorder_;
  double ns_ = 0;
};

}  // namespace

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

/// Bottom-up step: who has no parent looks for one in the front. Returns how many found one.
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

// ------------------------------------------------------------------------------------- PageRank

TracedArray<float> page_rank(const Graph& graph, unsigned iterations, double tolerance,
                             const Watch& watch) {
  constexpr float damping = 0.85F;
  trace::Recorder& recorder = graph.recorder;
  const Vertex vertices = graph.vertices();
  const float initial = 1.0F / static_cast<float>(vertices);
  const float base = (1.0F - damping) / static_cast<float>(vertices);
  const auto share = [&](float score, Vertex v) {
    // A vertex without an edge out is nobody's neighbour: its contribution is never read.
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
        for (const Vertex v : in.neighbours.load_range(stream, in.index.peek(u), degree))
          sum += contribution.load(gather, v);
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

// ------------------------------------------------------------------------- connected components

namespace {

using Components = TracedArray<Vertex>;

/// Joins the trees of u and v, the higher root under the lower.
void link(Components& component, Vertex u, Vertex v) {
  Vertex p1 = component.load(stream, u);
  Vertex p2 = component.load(gather, v);
  while (p1 != p2) {
    const Vertex high = std::max(p1, p2);
    const Vertex low = std::min(p1, p2);
    const Vertex above = component.load(chase, high);
    if (above == low) break;
    if (above == high) {
      component.store(update, high, low);
      break;
    }
    p1 = component.load(chase, component.load(chase, high));
    p2 = component.load(chase, low);
  }
}

void compress(Components& component, Vertex vertices, const Watch& watch) {
  for_lines(vertices, watch, [&](Vertex first, std::size_t count) {
    (void)component.load_range(stream, first, count);
    for (Vertex v = first; v < first + count; ++v) {
      Vertex root = component.peek(v);
      for (Class how = gather;; how = chase) {
        const Vertex next = component.load(how, root);
        if (next == root) break;
        root = next;
        component.store(stream, v, root);
      }
    }
  });
}

/// The most frequent component among some vertices drawn at random; the least of equals.
Vertex frequent_component(const Components& component) {
  constexpr int samples = 1024;
  Rng rng{27491095};
  std::map<Vertex, int> counts;
  for (int i = 0; i < samples; ++i) ++counts[component.load(gather, rng.below(component.size()))];
  return std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; })
      ->first;
}

}  // namespace

TracedArray<Vertex> connected_components(const Graph& graph, const Watch& watch) {
  constexpr std::uint64_t rounds = 2;
  trace::Recorder& recorder = graph.recorder;
  const Vertex vertices = graph.vertices();
  Work work{recorder};
  Components component{recorder, "cc.component", vertices, graph.options.id_bytes};
  for_lines(vertices, watch, [&](Vertex first, std::size_t count) {
    const auto part = component.store_range(stream, first, count);
    for (std::size_t i = 0; i < count; ++i) part[i] = first + static_cast<Vertex>(i);
  });
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for_lines(vertices, watch, [&](Vertex first, std::size_t count) {
      (void)graph.out.index.load_range(stream, first, count + 1);
      for (Vertex u = first; u < first + count; ++u)
        if (round < graph.out.degree(u))
          link(component, u, graph.out.neighbours.load(stream, graph.out.index.peek(u) + round));
      work.add(count, count);
    });
    compress(component, vertices, watch);
    work.add(vertices, 0);
  }
  const Vertex largest = frequent_component(component);
  for_lines(vertices, watch, [&](Vertex first, std::size_t count) {
    (void)component.load_range(stream, first, count);
    std::uint64_t edges = 0;
    for (Vertex u = first; u < first + count; ++u) {
      if (component.peek(u) == largest) continue;
      const Csr::Range out = graph.out.range(stream, u);
      const std::uint64_t done = std::min(rounds, out.count);
      for (const Vertex v : graph.out.list({out.first + done, out.count - done}))
        link(component, u, v);
      edges += out.count;
      if (!graph.in) continue;
      const Csr::Range in = graph.in->range(stream, u);
      for (const Vertex v : graph.in->list(in)) link(component, u, v);
      edges += in.count;
    }
    work.add(count, edges);
  });
  compress(component, vertices, watch);
  work.add(vertices, 0);
  work.flush();
  return component;
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
        for (const Vertex v : out.list(at)) {
          std::int32_t its = depths.load(gather, v);
          if (its == -1) {
            depths.store(update, v, its = depth);
            buffer.push(v);
          }
          if (its == depth) {
            successors.set(gather, edge);
            paths.store(update, v, paths.load(gather, v) + count);
          }
          ++edge;
        }
        work.add(1, at.count);
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
        for (const Vertex v : out.list(at)) {
          if (!successors.peek(edge++)) continue;
          const double ratio = count / paths.load(gather, v);
          delta += static_cast<float>(ratio) * (1 + deltas.load(gather, v));
        }
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
  // GAP's frontier has room for every edge; only as much is touched as is used.
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

// -------------------------------------------------------------------------------------- triangles

namespace {

/// Neighbours of the relabelled graph: vertex 0 has the highest degree.
Csr relabelled(const Graph& graph, const Watch& watch) {
  trace::Recorder& recorder = graph.recorder;
  const Vertex vertices = graph.vertices();
  const std::size_t id = graph.options.id_bytes;
  using Pair = std::pair<std::uint64_t, Vertex>;  // degree and vertex: 16 bytes
  TracedArray<Pair> pairs{recorder, "tc.degree_pairs", vertices};
  for_lines(vertices, watch, [&](Vertex first, std::size_t count) {
    (void)graph.out.index.load_range(stream, first, count + 1);
    const auto part = pairs.store_range(stream, first, count);
    for (std::size_t i = 0; i < count; ++i) {
      const Vertex v = first + static_cast<Vertex>(i);
      part[i] = {graph.out.degree(v), v};
    }
  });
  // std::sort partitions the whole array, its halves, and so on: passes over all of it until the
  // parts fit a cache. Half of the array is below the median at each.
  for (std::size_t part = vertices; part > 4096; part /= 2) {
    watch();
    (void)pairs.load_range(stream, 0, vertices);
    (void)pairs.store_range(stream, 0, vertices);
    recorder.compute(0, merge_ns * vertices);
  }
  {
    std::vector<Pair> sorted(pairs.peek_all().begin(), pairs.peek_all().end());
    std::ranges::sort(sorted, std::greater{});
    for (Vertex v = 0; v < vertices; ++v) pairs.poke(v) = sorted[v];
  }
  TracedArray<Vertex> degrees{recorder, "tc.degrees", vertices, id};
  TracedArray<Vertex> names{recorder, "tc.names", vertices, id};
  for_lines(vertices, watch, [&](Vertex first, std::size_t count) {
    const auto part = pairs.load_range(stream, first, count);
    const auto to = degrees.store_range(stream, first, count);
    for (std::size_t i = 0; i < count; ++i) {
      to[i] = static_cast<Vertex>(part[i].first);
      names.store(update, part[i].second, first + static_cast<Vertex>(i));
    }
  });
  TracedArray<std::uint64_t> offsets{recorder, "tc.offsets", std::size_t{vertices} + 1};
  std::uint64_t sum = 0;
  for (Vertex v = 0; v < vertices; ++v) {
    offsets.poke(v) = sum;
    sum += degrees.peek(v);
  }
  offsets.poke(vertices) = sum;
  (void)degrees.load_range(stream, 0, vertices);
  (void)offsets.store_range(stream, 0, offsets.size());
  TracedArray<Vertex> neighbours{recorder, "tc.neighbours", std::max<std::uint64_t>(sum, 1), id};
  Csr csr{{recorder, "tc.index", std::size_t{vertices} + 1}, std::move(neighbours)};
  (void)offsets.load_range(stream, 0, offsets.size());
  std::ranges::copy(offsets.peek_all(), csr.index.store_range(stream, 0, csr.index.size()).begin());
  for (Vertex u = 0; u < vertices; ++u) {
    if (u % watched_vertices == 0) watch();
    const auto from = graph.out.scan(u);
    const Vertex name = names.load(stream, u);
    const auto to = csr.neighbours.store_range(from.size() > Csr::short_list ? stream : update,
                                               csr.range(gather, name).first, from.size());
    offsets.store(update, name, offsets.load(gather, name) + from.size());
    for (std::size_t i = 0; i < from.size(); ++i) to[i] = names.load(gather, from[i]);
    std::ranges::sort(to);
    recorder.compute(
        0, vertex_ns + static_cast<double>(from.size()) * merge_ns * std::bit_width(from.size()));
  }
  pairs.free();
  degrees.free();
  names.free();
  offsets.free();
  return csr;
}

/// GAP's test on a sample of degrees: few vertices with many edges make relabelling worth it.
bool skewed(const Graph& graph) {
  const std::uint64_t mean = graph.edges() / graph.vertices();
  if (mean < 10) return false;
  Rng rng{27491095};
  const std::size_t samples = std::min<std::size_t>(1000, graph.vertices());
  std::vector<std::uint64_t> degrees;
  double total = 0;
  for (std::size_t i = 0; i < samples; ++i) {
    degrees.push_back(graph.out.range(gather, graph.pick_source(rng)).count);
    total += static_cast<double>(degrees.back());
  }
  std::ranges::sort(degrees);
  return total / static_cast<double>(samples) / 1.3 > static_cast<double>(degrees[samples / 2]);
}

}  // namespace

std::uint64_t count_triangles(const Graph& graph, const Watch& watch) {
  std::optional<Csr> sorted;
  if (skewed(graph)) sorted = relabelled(graph, watch);
  const Csr& csr = sorted ? *sorted : graph.out;
  const Vertex vertices = graph.vertices();
  std::uint64_t total = 0;
  std::uint64_t since_watch = 0;
  for (Vertex u = 0; u < vertices; ++u) {
    const auto mine = csr.scan(u);
    std::uint64_t steps = 0;
    for (const Vertex v : mine) {
      if (v > u) break;
      const Csr::Range at = csr.range(gather, v);
      const auto theirs = csr.neighbours.peek_all().subspan(at.first, at.count);
      auto next = mine.begin();
      std::size_t read = 0;
      for (const Vertex w : theirs) {
        ++read;
        if (w > v) break;
        while (*next < w) {
          ++next;
          ++steps;
        }
        if (*next == w) ++total;
      }
      steps += read;
      (void)csr.list({at.first, read});
    }
    graph.recorder.compute(0, vertex_ns + merge_ns * static_cast<double>(steps));
    since_watch += steps;
    if (since_watch > 1u << 18) {
      watch();
      since_watch = 0;
    }
  }
  if (sorted) {
    sorted->neighbours.free();
    sorted->index.free();
  }
  return total;
}

}  // namespace tt::kernels::graph
