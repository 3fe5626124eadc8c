// SPDX-License-Identifier: MIT

#include "kernels/graph_triangles.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/rng.hpp"
#include "kernels/graph_parts.hpp"

namespace tt::kernels::graph {
namespace {

// A step of a merge of two sorted lists: its branch is mispredicted about every third time, at some
// 15 cycles, and nothing is outstanding meanwhile (estimate).
constexpr double merge_ns = 2;

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
