// SPDX-License-Identifier: MIT

// graph500: generates a Kronecker edge list, makes a graph of it (the benchmark's kernel 1), and
// searches it breadth-first from 64 keys (kernel 2).
//
// After the reference code's shared-memory version (graph500 2.1.4, omp-csr): edges are pairs of
// 8-byte numbers and stay until the end, rows have two 8-byte offsets, neighbours are 8 bytes. With
// scale 26 and edge factor 16 that is 34 GiB, as From Good to Great (2025, Table 4) reports; scale
// 27 and 15 give the 66 GB of MEMTIS (SOSP'23, Table 2). Kernel 1 and kernel 2 are timed, as the
// benchmark does and From Good to Great (§4.1: "graph construction/traversal"); generation is not.
// The search is the reference's, top-down without changes of direction, each into arrays of its
// own. Its validation, which reads the edge list once per key, is left out: MEMTIS (§6.2.1) sees a
// small part of memory used while searching.
#include "kernels/graph500.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "kernels/graph_parts.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"

namespace tt::kernels {
namespace graph {
namespace {
// The reference's types: 64-bit vertices, pairs of them as edges.
constexpr std::size_t vertex_bytes = 8;
constexpr std::size_t edge_bytes = 16;
constexpr std::size_t least_row = 2;  // MINVECT_SIZE
constexpr Vertex unused = ~Vertex{0};

// Estimates. A level of the generator is a handful of random bits and two comparisons; qsort calls
// its comparison through a pointer and mispredicts half of the results.
constexpr double level_ns = 6;
constexpr double compare_ns = 5;

constexpr std::size_t batch = 1024;

/// All edges in order.
template <typename Visit>
void for_edges(const TracedArray<Edge>& edges, trace::Recorder& recorder, const Watch& watch,
               Visit visit) {
  for (std::size_t first = 0; first < edges.size(); first += batch) {
    if (first % (64 * batch) == 0) watch();
    const auto part = edges.load_range(stream, first, std::min(batch, edges.size() - first));
    for (const Edge& edge : part) visit(edge.from, edge.to);
    recorder.compute(0, edge_ns * static_cast<double>(part.size()));
  }
}

}  // namespace

Graph500::Graph500(trace::Recorder& recorder, EdgeGenerator generator, std::size_t edges,
                   const Watch& watch)
    : recorder_(recorder),
      vertices_(generator.vertices()),
      watch_(watch),
      edges_(recorder, "graph500.edges", edges, edge_bytes),
      offsets_(recorder, "graph500.offsets", 2 * std::size_t{vertices_} + 2),
      neighbours_(recorder, "graph500.neighbours", 2 * edges + least_row * vertices_,
                  vertex_bytes) {
  const std::vector<Vertex> names = generator.permutation();
  const double generate_ns = level_ns * std::bit_width(vertices_);
  for (std::size_t first = 0; first < edges; first += batch) {
    if (first % (64 * batch) == 0) watch_();
    const auto part = edges_.store_range(stream, first, std::min(batch, edges - first));
    for (Edge& edge : part) {
      edge = generator.next();
      edge = {names[edge.from], names[edge.to]};
    }
    recorder_.compute(0, generate_ns * static_cast<double>(part.size()));
  }
}

void Graph500::count(Vertex row) {
  const std::size_t at = begin(row);
  offsets_.store(update, at, offsets_.load(gather, at) + 1);
}

void Graph500::scatter(Vertex row, Vertex entry) {
  const std::size_t end = begin(row) + 1;
  const std::uint64_t at = offsets_.load(gather, end);
  offsets_.store(update, end, at + 1);
  neighbours_.store(update, at, entry);
}

void Graph500::construct() {
  std::ranges::fill(offsets_.store_range(stream, 0, offsets_.size()), 0);
  for_edges(edges_, recorder_, watch_, [&](Vertex from, Vertex to) {
    count(from);
    count(to);
  });
  std::uint64_t sum = 0;
  for (Vertex v = 0; v <= vertices_; ++v) {
    const std::uint64_t degree =
        v < vertices_ ? std::max<std::uint64_t>(offsets_.load(stream, begin(v)), least_row) : 0;
    std::ranges::fill(offsets_.store_range(stream, begin(v), 2), sum);
    sum += degree;
  }
  std::ranges::fill(neighbours_.store_range(stream, 0, sum), unused);
  for_edges(edges_, recorder_, watch_, [&](Vertex from, Vertex to) {
    scatter(from, to);
    scatter(to, from);
  });
  for (Vertex v = 0; v < vertices_; ++v) {
    if (v % 65536 == 0) watch_();
    const auto ends = offsets_.load_range(stream, begin(v), 2);
    const std::size_t size = ends[1] - ends[0];
    if (size < 2) continue;
    (void)neighbours_.load_range(stream, ends[0], size);
    const auto row = neighbours_.store_range(stream, ends[0], size);
    sort_row(row);
    offsets_.store(stream, begin(v) + 1, ends[1]);
    recorder_.compute(0, compare_ns * static_cast<double>(size) * std::bit_width(size));
  }
}

TracedArray<std::int64_t> Graph500::search(Vertex key) {
  TracedArray<std::int64_t> tree{recorder_, "graph500.tree", vertices_};
  std::ranges::fill(tree.store_range(stream, 0, vertices_), -1);
  TracedArray<Vertex> list{recorder_, "graph500.visited", vertices_, vertex_bytes};
  tree.store(update, key, key);
  list.store(stream, 0, key);
  std::size_t done = 0;
  std::size_t found = 1;
  while (done < found) {
    if (done % 4096 == 0) watch_();
    const Vertex v = list.load(stream, done++);
    const auto ends = offsets_.load_range(gather, begin(v), 2);
    const std::size_t size = ends[1] - ends[0];
    // Short rows are single misses, prefetchers see those of more than four lines.
    const auto visit = [&](Vertex next) {
      if (tree.load(gather, next) != -1) return;
      tree.store(update, next, v);
      list.store(stream, found++, next);
    };
    for_list(neighbours_.load_range(size > 32 ? stream : gather, ends[0], size), visit, tree);
    recorder_.compute(0, edge_ns * static_cast<double>(size + 2));
  }
  list.free();
  return tree;
}

}  // namespace graph

namespace {

trace::StreamInfo record_graph500(const RecordRequest& request) {
  const ParameterReader read{request};
  const double full = std::ldexp(1, static_cast<int>(read.number("log2_vertices", 1, 48)));
  // 64 searches: a quarter of the graph that GAP's kernels take (graph.cpp).
  constexpr double most_vertices = 0x1p20;
  trace::RecorderOptions options = recorder_options(request);
  options.thinning = graph::thinning(request.page_bytes, full / request.scale, most_vertices);
  const double vertices = full / (request.scale * options.thinning);
  read.require(
      vertices >= 16 && vertices <= 0x1p31, "log2_vertices",
      "16 to 2^31 simulated vertices are possible, these are " + ParameterReader::text(vertices));
  const auto keys = static_cast<std::size_t>(read.number("keys", 1, 1e6));
  trace::StreamInfo info = describe(request);
  info.lanes = {{"threads", 1}};
  info.classes = graph::stream_classes();
  trace::Recorder recorder{request.file, info, options};
  graph::EdgeGenerator generator{graph::Kind::kronecker, static_cast<std::uint64_t>(vertices),
                                 request.scale * options.thinning, request.seed};
  const auto edges = static_cast<std::size_t>(read.positive("edge_factor") * generator.vertices());
  read.require(edges > 0, "edge_factor", "no edge");

  // Told progress: a tenth each for generation and construction, in steps of 65536 edges or rows.
  Progress progress{request};
  const double steps = static_cast<double>(edges) / 65536 + 1;
  double limit = 0.1;
  double made = 0;
  const graph::Watch watch = [&] { progress.at(made = std::min(limit, made + 0.1 / steps / 3)); };
  recorder.set_timed(false);
  graph::Graph500 bench{recorder, std::move(generator), edges, watch};
  recorder.set_timed(true);
  limit = 0.2;
  bench.construct();
  limit = 1;
  Rng rng{mix64(request.seed) ^ 0x6b657973ULL};
  std::set<graph::Vertex> used;
  for (std::size_t key = 0; key < keys; ++key) {
    made = 0.2 + 0.8 * static_cast<double>(key) / static_cast<double>(keys);
    limit = made;
    // Keys are distinct and have neighbours, as long as there are any such left.
    graph::Vertex root = 0;
    for (int tries = 0; tries < 1000; ++tries) {
      root = static_cast<graph::Vertex>(rng.below(bench.vertices()));
      if (!bench.neighbours(root).empty() && used.insert(root).second) break;
    }
    bench.search(root).free();
  }
  return recorder.finish();
}

const RegisterKernel graph500{
    {"graph500",
     "Graph500: Kronecker generation, construction, and breadth-first searches",
     {{"log2_vertices", std::int64_t{26}, "", "the benchmark's scale"},
      {"edge_factor", 16.0, "count", "edges per vertex"},
      {"keys", std::int64_t{64}, "count", "searches"},
      block_ms_parameter(50)},
     &record_graph500}};

}  // namespace
}  // namespace tt::kernels
