// SPDX-License-Identifier: MIT

// Graph kernels: generators, construction, and every algorithm against a plain one.
#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <numeric>
#include <queue>
#include <set>

#include "check.hpp"
#include "kernels/graph_build.hpp"
#include "kernels/graph_components.hpp"
#include "kernels/graph_page_rank.hpp"
#include "kernels/graph_traversal.hpp"
#include "kernels/graph_triangles.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"
#include "trace/stream.hpp"

using namespace tt;
using namespace tt::kernels;
using namespace tt::kernels::graph;
using check::Scratch;

namespace {

constexpr Kind kinds[] = {Kind::kronecker, Kind::uniform, Kind::twitter};
const Watch nothing = [] {};

/// A recorder whose stream nobody reads.
struct Bench {
  Scratch scratch;
  trace::Recorder recorder{scratch.file("g.tts"), description(), options()};

  static trace::StreamInfo description() {
    trace::StreamInfo info;
    info.lanes = {{"threads", 1}};
    info.classes = stream_classes();
    return info;
  }
  static trace::RecorderOptions options() {
    trace::RecorderOptions given;
    given.llc_bytes = 1 << 16;
    return given;
  }
  Graph graph(Kind kind, bool directed = false, std::uint64_t vertices = 1024, double degree = 8,
              double scale = 1, bool simple = false) {
    Options chosen;
    chosen.simple = simple;
    chosen.directed = directed;
    chosen.buffer_ids = 64;
    EdgeGenerator generator{kind, vertices, scale, 3};
    return Graph::load(recorder, generator,
                       static_cast<std::uint64_t>(degree * generator.vertices()), chosen, nothing);
  }
};

std::vector<Vertex> neighbours(const Csr& csr, Vertex v) {
  const auto all = csr.neighbours.peek_all().subspan(csr.index.peek(v), csr.degree(v));
  return {all.begin(), all.end()};
}

/// In order, what occurs n times in the first n of several rounds.
std::vector<Vertex> spread(std::multiset<Vertex> values) {
  std::vector<Vertex> row;
  while (!values.empty()) {
    const std::set<Vertex> round(values.begin(), values.end());
    for (const Vertex v : round) {
      row.push_back(v);
      values.erase(values.find(v));
    }
  }
  return row;
}

/// Depths by a queue; -1: not reached.
std::vector<int> plain_depths(const Graph& graph, Vertex source) {
  std::vector<int> depth(graph.vertices(), -1);
  std::deque<Vertex> queue{source};
  depth[source] = 0;
  while (!queue.empty()) {
    const Vertex u = queue.front();
    queue.pop_front();
    for (const Vertex v : neighbours(graph.out, u))
      if (depth[v] < 0) {
        depth[v] = depth[u] + 1;
        queue.push_back(v);
      }
  }
  return depth;
}

/// Calls `body` on a graph of every kind, undirected and directed.
void on_all(const std::function<void(const Graph&, Bench&)>& body) {
  for (const Kind kind : kinds)
    for (const bool directed : {false, true}) {
      Bench bench;
      const Graph graph = bench.graph(kind, directed);
      body(graph, bench);
    }
}

/// Share of all edge ends that the top x of vertices have.
double share_of_top(const Graph& graph, double x) {
  std::vector<std::uint64_t> degrees;
  for (Vertex v = 0; v < graph.vertices(); ++v) degrees.push_back(graph.out.degree(v));
  std::ranges::sort(degrees, std::greater{});
  const auto top = static_cast<std::ptrdiff_t>(x * graph.vertices());
  return static_cast<double>(
             std::accumulate(degrees.begin(), degrees.begin() + top, std::uint64_t{0})) /
         static_cast<double>(graph.edges());
}

}  // namespace

TEST("graph: built and loaded are the same graph, sorted, with or without duplicates and loops") {
  for (const Kind kind : kinds)
    for (const bool directed : {false, true}) {
      Bench bench;
      Options options;
      options.directed = directed;
      options.simple = directed == (kind == Kind::kronecker);
      const EdgeGenerator generator{kind, 1000, 1, 5};
      const std::uint64_t edges = 6 * generator.vertices();
      const Graph loaded = Graph::load(bench.recorder, generator, edges, options, nothing);
      const Graph built = Graph::build(bench.recorder, generator, edges, options, nothing);
      // A plain reference: sorted neighbours.
      EdgeGenerator again = generator;
      const std::vector<Vertex> names = again.permutation();
      std::vector<std::multiset<Vertex>> out(again.vertices());
      std::vector<std::multiset<Vertex>> in(again.vertices());
      for (std::uint64_t i = 0; i < edges; ++i) {
        Edge edge = again.next();
        if (!names.empty()) edge = {names[edge.from], names[edge.to]};
        if (options.simple && (edge.from == edge.to || out[edge.from].contains(edge.to))) continue;
        out[edge.from].insert(edge.to);
        in[edge.to].insert(edge.from);
        if (directed) continue;
        out[edge.to].insert(edge.from);
      }
      if (!directed) in = out;
      for (const Graph* graph : {&loaded, &built}) {
        CHECK_EQ(graph->vertices(), again.vertices());
        CHECK_EQ(graph->in.has_value(), directed);
        bool same = true;
        for (Vertex v = 0; v < graph->vertices(); ++v)
          same = same && neighbours(graph->out, v) == spread(out[v]) &&
                 neighbours(graph->incoming(), v) == spread(in[v]);
        CHECK(same);
      }
    }
}

TEST("graph: a Kronecker graph is skewed, a uniform one is not, Twitter's popular are together") {
  Bench bench;
  const Graph kronecker = bench.graph(Kind::kronecker, false, 1 << 14, 16);
  const Graph uniform = bench.graph(Kind::uniform, false, 1 << 14, 16);
  const Graph twitter = bench.graph(Kind::twitter, true, 1 << 14, 24);
  CHECK_EQ(kronecker.vertices(), 1u << 14);
  CHECK(share_of_top(kronecker, 0.01) > 0.15);
  CHECK_NEAR(share_of_top(uniform, 0.01), 0.01, 0.01);
  CHECK(share_of_top(twitter, 0.01) > 0.15);
  // Many vertices of a Kronecker graph have no edge at all.
  std::size_t isolated = 0;
  for (Vertex v = 0; v < kronecker.vertices(); ++v) isolated += kronecker.out.degree(v) == 0;
  CHECK(isolated > kronecker.vertices() / 5);
  // Share of edge ends of the first tenth of vertex numbers: more than half where the popular are
  // together, a tenth where vertices were renamed at random.
  const auto first_tenth = [](const Graph& graph) {
    return static_cast<double>(graph.out.index.peek(graph.vertices() / 10)) /
           static_cast<double>(graph.edges());
  };
  CHECK(first_tenth(twitter) > 0.45);
  CHECK_NEAR(first_tenth(kronecker), 0.1, 0.03);
  CHECK_NEAR(first_tenth(uniform), 0.1, 0.01);
}

TEST("graph: a miniature has the degrees of the graph that it stands for") {
  for (const Kind kind : kinds) {
    Bench bench;
    const bool directed = kind == Kind::twitter;
    const Graph full = bench.graph(kind, directed, 1 << 18, 8);
    const Graph mini = bench.graph(kind, directed, 1 << 14, 8, 16);
    for (const double top : {0.001, 0.01, 0.1, 0.3}) {
      const double expected = share_of_top(full, top);
      CHECK_NEAR(share_of_top(mini, top), expected, 0.03 * expected + 0.002);
    }
  }
  CHECK_EQ((EdgeGenerator{Kind::kronecker, 1000, 1, 1}.vertices()), 1000u);
  CHECK_THROWS((EdgeGenerator{Kind::uniform, 1, 1, 1}), "2 to 2^31 simulated vertices, found 1");
}

TEST("graph: a Kronecker graph has the degrees of R-MAT") {
  constexpr unsigned levels = 14;
  constexpr std::size_t edges = 16 << levels;
  Bench bench;
  const Graph graph = bench.graph(Kind::kronecker, false, 1 << levels, 16);
  // The recursion itself.
  std::vector<std::uint64_t> degrees(1 << levels);
  Rng rng{11};
  for (std::size_t i = 0; i < edges; ++i) {
    std::size_t from = 0;
    std::size_t to = 0;
    for (unsigned level = 0; level < levels; ++level) {
      const double draw = rng.uniform();
      from = 2 * from + (draw >= 0.76 ? 1 : 0);
      to = 2 * to + ((draw >= 0.57 && draw < 0.76) || draw >= 0.95 ? 1 : 0);
    }
    ++degrees[from];
    ++degrees[to];
  }
  std::ranges::sort(degrees, std::greater{});
  for (const double top : {0.001, 0.01, 0.1, 0.3}) {
    const auto end = degrees.begin() + static_cast<std::ptrdiff_t>(top * (1 << levels));
    const auto ends = static_cast<double>(std::accumulate(degrees.begin(), end, std::uint64_t{0}));
    CHECK_NEAR(share_of_top(graph, top), ends / (2 * edges), 0.03 * ends / (2 * edges));
  }
}

TEST("bfs: parents are one level up, and reach exactly what a plain search reaches") {
  on_all([](const Graph& graph, Bench&) {
    Rng rng{1};
    for (int trial = 0; trial < 3; ++trial) {
      const Vertex source = graph.pick_source(rng);
      const auto depth = plain_depths(graph, source);
      auto parent = bfs(graph, source, nothing);
      bool right = parent.peek(source) == source;
      for (Vertex v = 0; v < graph.vertices(); ++v) {
        const std::int64_t p = parent.peek(v);
        if (depth[v] < 0 || v == source) {
          right = right && (v == source || p == -1);
          continue;
        }
        right = right && p >= 0 && depth[static_cast<std::size_t>(p)] == depth[v] - 1 &&
                std::ranges::count(neighbours(graph.out, static_cast<Vertex>(p)), v) > 0;
      }
      CHECK(right);
      parent.free();
    }
  });
}

TEST("pr: scores are those of plain power iteration") {
  on_all([](const Graph& graph, Bench&) {
    const std::size_t n = graph.vertices();
    auto scores = page_rank(graph, 200, 1e-6, nothing);
    std::vector<double> rank(n, 1.0 / static_cast<double>(n));
    for (int iteration = 0; iteration < 200; ++iteration) {
      std::vector<double> next(n, 0.15 / static_cast<double>(n));
      for (Vertex u = 0; u < n; ++u)
        for (const Vertex v : neighbours(graph.out, u))
          next[v] += 0.85 * rank[u] / static_cast<double>(graph.out.degree(u));
      rank = next;
    }
    double difference = 0;
    for (std::size_t v = 0; v < n; ++v) difference += std::abs(rank[v] - scores.peek(v));
    CHECK_NEAR(difference, 0, 1e-4);
  });
}

TEST("cc: components are those of union-find, named by their least vertex") {
  on_all([](const Graph& graph, Bench&) {
    std::vector<Vertex> root(graph.vertices());
    std::iota(root.begin(), root.end(), 0u);
    const auto find = [&](Vertex v) {
      while (root[v] != v) v = root[v] = root[root[v]];
      return v;
    };
    for (Vertex u = 0; u < graph.vertices(); ++u)
      for (const Vertex v : neighbours(graph.out, u)) {
        const Vertex a = find(u);
        const Vertex b = find(v);
        root[std::max(a, b)] = std::min(a, b);
      }
    auto component = connected_components(graph, nothing);
    bool same = true;
    for (Vertex v = 0; v < graph.vertices(); ++v) same = same && component.peek(v) == find(v);
    CHECK(same);
  });
}

TEST("bc: scores are those of textbook Brandes") {
  on_all([](const Graph& graph, Bench&) {
    Rng rng{7};
    std::vector<Vertex> sources(3);
    for (Vertex& source : sources) source = graph.pick_source(rng);
    std::vector<double> expected(graph.vertices());
    for (const Vertex source : sources) {
      const auto depth = plain_depths(graph, source);
      std::vector<Vertex> order;
      for (Vertex v = 0; v < graph.vertices(); ++v)
        if (depth[v] >= 0) order.push_back(v);
      std::ranges::stable_sort(order, {}, [&](Vertex v) { return depth[v]; });
      std::vector<double> paths(graph.vertices());
      std::vector<double> delta(graph.vertices());
      paths[source] = 1;
      for (const Vertex u : order)
        for (const Vertex v : neighbours(graph.out, u))
          if (depth[v] == depth[u] + 1) paths[v] += paths[u];
      for (std::size_t i = order.size(); i-- > 0;) {
        const Vertex u = order[i];
        for (const Vertex v : neighbours(graph.out, u))
          if (depth[v] == depth[u] + 1) delta[u] += paths[u] / paths[v] * (1 + delta[v]);
        expected[u] += delta[u];
      }
    }
    const double largest = std::ranges::max(expected);
    auto scores = betweenness(graph, sources, nothing);
    double worst = 0;
    for (Vertex v = 0; v < graph.vertices(); ++v)
      worst = std::max(worst, std::abs(scores.peek(v) - expected[v] / largest));
    CHECK_NEAR(worst, 0, 1e-4);
  });
}

TEST("sssp: distances are Dijkstra's, whatever the width of bins") {
  on_all([](const Graph& graph, Bench&) {
    Rng rng{9};
    const Vertex source = graph.pick_source(rng);
    std::vector<std::int32_t> expected(graph.vertices(), unreachable);
    using Entry = std::pair<std::int32_t, Vertex>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    queue.push({0, source});
    expected[source] = 0;
    while (!queue.empty()) {
      const auto [distance, u] = queue.top();
      queue.pop();
      if (distance > expected[u]) continue;
      for (const Vertex v : neighbours(graph.out, u)) {
        const std::int32_t through = distance + graph.weight(u, v);
        if (through >= expected[v]) continue;
        expected[v] = through;
        queue.push({through, v});
      }
    }
    CHECK(std::ranges::count(expected, unreachable) < graph.vertices());
    for (const std::int32_t delta : {1, 2, 50, 100000}) {
      auto distance = shortest_paths(graph, source, delta, nothing);
      CHECK(std::ranges::equal(distance.peek_all(), expected));
      distance.free();
    }
  });
}

TEST("sssp: weights are 1 to 255, the same both ways") {
  Bench bench;
  const Graph graph = bench.graph(Kind::uniform);
  std::int32_t least = 1000;
  std::int32_t most = 0;
  for (Vertex u = 0; u < graph.vertices(); ++u)
    for (const Vertex v : neighbours(graph.out, u)) {
      CHECK_EQ(graph.weight(u, v), graph.weight(v, u));
      least = std::min(least, graph.weight(u, v));
      most = std::max(most, graph.weight(u, v));
    }
  CHECK_EQ(least, 1);
  CHECK_EQ(most, 255);
}

TEST("tc: as many triangles as a look at all triples finds, relabelled or not") {
  for (const Kind kind : kinds)
    for (const double degree : {4.0, 16.0}) {  // below a mean of 10, nothing is relabelled
      Bench bench;
      const Graph graph = bench.graph(kind, false, 512, degree, 1, true);
      std::uint64_t expected = 0;
      for (Vertex u = 0; u < graph.vertices(); ++u) {
        const auto mine = neighbours(graph.out, u);
        for (const Vertex v : mine)
          for (const Vertex w : neighbours(graph.out, v))
            expected += u < v && v < w && std::ranges::binary_search(mine, w);
      }
      CHECK(expected > 0);
      CHECK_EQ(count_triangles(graph, nothing), expected);
    }
}

TEST("graph: a kernel frees all that it allocated but its result") {
  const Scratch scratch;
  const auto file = scratch.file("g.tts");
  {
    trace::Recorder recorder{file, Bench::description(), Bench::options()};
    EdgeGenerator generator{Kind::kronecker, 1024, 1, 3};
    const Graph graph = Graph::build(recorder, generator, 16384, Options{}, nothing);
    for (int trial = 0; trial < 2; ++trial) {
      const std::vector<Vertex> sources{graph.out.neighbours.peek(0)};
      bfs(graph, sources[0], nothing).free();
      page_rank(graph, 3, 0, nothing).free();
      connected_components(graph, nothing).free();
      betweenness(graph, sources, nothing).free();
      shortest_paths(graph, sources[0], 2, nothing).free();
      (void)count_triangles(graph, nothing);
    }
    (void)recorder.finish();
  }
  const trace::Reader reader{file};
  reader.verify();
  std::set<std::uint32_t> live;
  trace::Block block;
  for (std::uint64_t i = 0; i < reader.info().blocks; ++i) {
    reader.read(i, block);
    for (const trace::Event& event : block.events) {
      if (event.type == trace::EventType::map) live.insert(event.object);
      if (event.type == trace::EventType::unmap) live.erase(event.object);
    }
  }
  std::set<std::string> sites;
  for (const std::uint32_t object : live) sites.insert(reader.info().objects[object].site);
  CHECK((sites == std::set<std::string>{"graph.index", "graph.neighbours"}));
  CHECK_EQ(live.size(), 2u);
}
