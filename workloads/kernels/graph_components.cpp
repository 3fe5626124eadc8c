// SPDX-License-Identifier: MIT

#include "kernels/graph_components.hpp"

#include <algorithm>
#include <map>

#include "core/rng.hpp"
#include "kernels/graph_parts.hpp"

namespace tt::kernels::graph {
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

}  // namespace tt::kernels::graph
