// SPDX-License-Identifier: MIT

// From an edge list to compressed sparse rows; see graph_build.hpp.
#include "kernels/graph_build.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tt::kernels::graph {
namespace {

constexpr std::size_t batch = 1024;  // elements per report of a sequential pass
// A generated edge: some ten random numbers and their comparisons (estimate).
constexpr double generate_ns = 150;
constexpr std::size_t watched_edges = 65536;  // between two calls of Watch

/// 0 when it is time to call Watch.
constexpr std::uint64_t since_watch(std::uint64_t i) { return i % watched_edges; }

/// Of a sorted row, all values once, then all that occur twice once more, and so on.
void spread(std::span<Vertex> row) {
  thread_local std::vector<Vertex> again;
  while (!row.empty()) {
    again.clear();
    std::size_t kept = 0;
    for (const Vertex v : row) {
      if (kept > 0 && row[kept - 1] == v) {
        again.push_back(v);
      } else {
        row[kept++] = v;
      }
    }
    std::ranges::copy(again, row.subspan(kept).begin());
    row = row.subspan(kept);
  }
}

// ------------------------------------------------------------------------- aside, not recorded

struct PlainCsr {
  std::vector<std::uint64_t> index;
  std::vector<Vertex> neighbours;
};

/// Rows from pairs: `each(sink)` calls sink(row, entry) for all of them, twice over in all.
template <typename Each>
PlainCsr rows(Vertex vertices, Each each) {
  PlainCsr csr;
  csr.index.resize(std::size_t{vertices} + 1);
  each([&](Vertex row, Vertex) { ++csr.index[row + std::size_t{1}]; });
  std::partial_sum(csr.index.begin(), csr.index.end(), csr.index.begin());
  csr.neighbours.resize(csr.index.back());
  std::vector<std::uint64_t> at(csr.index.begin(), csr.index.end() - 1);
  each([&](Vertex row, Vertex entry) { csr.neighbours[at[row]++] = entry; });
  return csr;
}

/// Entries of the transposed matrix come out in ascending order.
PlainCsr transposed(const PlainCsr& csr) {
  const auto vertices = static_cast<Vertex>(csr.index.size() - 1);
  return rows(vertices, [&](auto sink) {
    for (Vertex v = 0; v < vertices; ++v)
      for (std::uint64_t e = csr.index[v]; e < csr.index[v + 1]; ++e) sink(csr.neighbours[e], v);
  });
}

/// As sort_row(), of rows that are sorted.
void spread(PlainCsr& csr) {
  for (std::size_t v = 0; v + 1 < csr.index.size(); ++v)
    spread(std::span(csr.neighbours).subspan(csr.index[v], csr.index[v + 1] - csr.index[v]));
}

/// Drops duplicates and loops of sorted rows (Options::simple).
void squish(PlainCsr& csr) {
  std::uint64_t kept = 0;
  std::uint64_t first = 0;
  for (Vertex v = 0; v + std::size_t{1} < csr.index.size(); ++v) {
    const std::uint64_t end = csr.index[v + 1];
    csr.index[v] = kept;
    for (; first < end; ++first) {
      const Vertex to = csr.neighbours[first];
      if (to == v || (kept > csr.index[v] && csr.neighbours[kept - 1] == to)) continue;
      csr.neighbours[kept++] = to;
    }
  }
  csr.index.back() = kept;
  csr.neighbours.resize(kept);
}

// ------------------------------------------------------------------------------------- recorded

/// Elements that are written in order, by a function of their number.
template <typename T, typename Make>
void fill(TracedArray<T>& array, Make make) {
  for (std::size_t first = 0; first < array.size(); first += batch) {
    const auto part = array.store_range(stream, first, std::min(batch, array.size() - first));
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = make(first + i);
  }
}

/// One more in a counter whose address comes from data, as threads share it.
template <typename T>
T add_one(TracedArray<T>& counters, std::size_t i) {
  const T before = counters.load(locked, i);
  counters.store(update, i, before + 1);
  return before;
}

class Builder {
 public:
  Builder(trace::Recorder& recorder, const Options& options, const Watch& watch)
      : recorder_(recorder), options_(options), watch_(watch) {}

  /// A neighbour with its weight is one element.
  [[nodiscard]] std::size_t neighbour_bytes() const {
    return options_.weighted ? 2 * options_.id_bytes : options_.id_bytes;
  }
  [[nodiscard]] TracedArray<Vertex> map_neighbours(std::string_view site, std::size_t count) {
    return {recorder_, site, std::max<std::size_t>(count, 1), neighbour_bytes()};
  }

  TracedArray<Edge> edge_list(EdgeGenerator& generator, std::uint64_t edges) {
    TracedArray<Edge> list{recorder_, "builder.edge_list", edges,
                           options_.id_bytes + neighbour_bytes()};
    fill(list, [&](std::size_t i) {
      if (since_watch(i) == 0) watch_();
      if (i % batch == 0) recorder_.compute(0, generate_ns * batch);
      return generator.next();
    });
    const std::vector<Vertex> names = generator.permutation();
    if (names.empty()) return list;
    TracedArray<Vertex> permutation{recorder_, "generator.permutation", names.size(),
                                    options_.id_bytes};
    fill(permutation, [](std::size_t i) { return static_cast<Vertex>(i); });
    for (std::size_t i = 0; i < names.size(); ++i) {
      // A step of the shuffle: two elements change places, one of them anywhere.
      (void)permutation.load(gather, names[i]);
      permutation.store(update, names[i], permutation.peek(names[i]));
      permutation.store(stream, i, names[i]);
    }
    for (std::size_t i = 0; i < names.size(); ++i) permutation.poke(i) = names[i];
    for_edges(list, [&](std::size_t i, const Edge& edge) {
      list.poke(i) = {permutation.load(gather, edge.from), permutation.load(gather, edge.to)};
      if (i % batch == batch - 1 || i + 1 == list.size())
        (void)list.store_range(stream, i / batch * batch, i % batch + 1);
    });
    permutation.free();
    return list;
  }

  /// Rows in order of the edge list, unsorted; both ways for undirected graphs.
  Csr rows_of(const TracedArray<Edge>& list, Vertex vertices, bool transpose) {
    const bool forth = !options_.directed || !transpose;
    const bool back = !options_.directed || transpose;
    TracedArray<std::uint32_t> degrees{recorder_, "builder.degrees", vertices, options_.id_bytes};
    fill(degrees, [](std::size_t) { return 0u; });
    for_edges(list, [&](std::size_t, const Edge& edge) {
      if (forth) (void)add_one(degrees, edge.from);
      if (back) (void)add_one(degrees, edge.to);
    });
    TracedArray<std::uint64_t> offsets = prefix_sum(degrees);
    TracedArray<Vertex> neighbours = map_neighbours("builder.neighbours", offsets.peek(vertices));
    Csr csr{index_of(offsets, "builder.index"), std::move(neighbours)};
    for_edges(list, [&](std::size_t, const Edge& edge) {
      if (forth) csr.neighbours.store(update, add_one(offsets, edge.from), edge.to);
      if (back) csr.neighbours.store(update, add_one(offsets, edge.to), edge.from);
    });
    degrees.free();
    offsets.free();
    return csr;
  }

  /// Sorts each row, and copies it; without duplicates and loops if Options::simple.
  Csr squished(Csr& raw) {
    const auto vertices = static_cast<Vertex>(raw.index.size() - 1);
    TracedArray<std::uint32_t> degrees{recorder_, "builder.degrees", vertices, options_.id_bytes};
    for (Vertex v = 0; v < vertices; ++v) {
      if (since_watch(v) == 0) watch_();
      const Csr::Range at = raw.range(stream, v);
      (void)raw.neighbours.load_range(stream, at.first, at.count);
      const auto row = raw.neighbours.store_range(stream, at.first, at.count);
      auto end = row.end();
      if (!options_.simple) {
        sort_row(row);
      } else {
        std::ranges::sort(row);
        end = std::remove(row.begin(), std::ranges::unique(row).begin(), v);
      }
      degrees.store(stream, v, static_cast<std::uint32_t>(end - row.begin()));
    }
    TracedArray<std::uint64_t> offsets = prefix_sum(degrees);
    TracedArray<Vertex> neighbours = map_neighbours("graph.neighbours", offsets.peek(vertices));
    Csr csr{index_of(offsets, "graph.index"), std::move(neighbours)};
    for (Vertex v = 0; v < vertices; ++v) {
      if (since_watch(v) == 0) watch_();
      const Csr::Range to = csr.range(stream, v);
      const auto from = raw.neighbours.load_range(stream, raw.range(stream, v).first, to.count);
      std::ranges::copy(from, csr.neighbours.store_range(stream, to.first, to.count).begin());
    }
    degrees.free();
    offsets.free();
    return csr;
  }

  Csr loaded(const PlainCsr& plain, TracedArray<std::uint64_t>& offsets) {
    TracedArray<Vertex> neighbours = map_neighbours("graph.neighbours", plain.neighbours.size());
    fill(offsets, [&](std::size_t i) { return plain.index[i]; });
    fill(neighbours, [&](std::size_t i) {
      if (since_watch(i) == 0) watch_();
      return plain.neighbours[i];
    });
    return {index_of(offsets, "graph.index"), std::move(neighbours)};
  }

 private:
  template <typename Visit>
  void for_edges(const TracedArray<Edge>& list, Visit visit) {
    for (std::size_t first = 0; first < list.size(); first += batch) {
      if (since_watch(first) == 0) watch_();
      const auto part = list.load_range(stream, first, std::min(batch, list.size() - first));
      for (std::size_t i = 0; i < part.size(); ++i) visit(first + i, part[i]);
    }
  }

  TracedArray<std::uint64_t> prefix_sum(const TracedArray<std::uint32_t>& degrees) {
    TracedArray<std::uint64_t> offsets{recorder_, "builder.offsets", degrees.size() + 1};
    std::uint64_t sum = 0;
    fill(offsets, [&](std::size_t i) {
      if (i % batch == 0) (void)degrees.load_range(stream, i, std::min(batch, degrees.size() - i));
      return std::exchange(sum, sum + (i < degrees.size() ? degrees.peek(i) : 0));
    });
    return offsets;
  }

  /// GAP's index holds pointers: the offsets, as addresses.
  TracedArray<std::uint64_t> index_of(const TracedArray<std::uint64_t>& offsets,
                                      std::string_view site) {
    TracedArray<std::uint64_t> index{recorder_, site, offsets.size()};
    fill(index, [&](std::size_t i) {
      if (i % batch == 0) (void)offsets.load_range(stream, i, std::min(batch, offsets.size() - i));
      return offsets.peek(i);
    });
    return index;
  }

  trace::Recorder& recorder_;
  const Options& options_;
  const Watch& watch_;
};

}  // namespace

void sort_row(std::span<Vertex> row) {
  std::ranges::sort(row);
  spread(row);
}

std::vector<trace::StreamClass> stream_classes() {
  // stream: sequential; the prefetchers keep a core's 10 to 12 line buffers nearly full but
  // start again at every page and list: 9 lines (estimate, as measured for sequential readers: 7
  // to 10). gather: loads whose addresses come from a list that is already there, and whose
  // values decide what comes next. Hits and mispredicted branches fill the window of an
  // out-of-order core before many misses do (Beamer, Asanović, Patterson, IISWC'15), and page
  // walks add to them: 2, identified from FreqTier (2024), Table IV, where BFS takes 6.6 s a
  // trial with all memory fast. pull: the same without a decision, as PageRank sums up: 5
  // (estimate). chase: each address from the load before. There are two chains at a time at
  // least, since neighbouring vertices do not depend on each other: 2. update: stores, buffered
  // and drained side by side. locked: atomic updates, and loads right before them; a locked
  // instruction waits for what came before it, and what follows waits for it, also at
  // independent addresses (Schweizer, Besta, Hoefler: Evaluating the Cost of Atomic Operations
  // on Modern Architectures, PACT'15): 1.
  return {{"stream", 9, 3},  {"gather", 2, 2}, {"chase", 2, 0},
          {"update", 10, 0}, {"locked", 1, 0}, {"pull", 5, 2}};
}

Graph Graph::load(trace::Recorder& recorder, EdgeGenerator generator, std::uint64_t edges,
                  const Options& options, const Watch& watch) {
  PlainCsr out;
  std::optional<PlainCsr> in;
  {
    std::vector<Edge> list(edges);
    const std::vector<Vertex> names = generator.permutation();
    for (std::size_t i = 0; i < edges; ++i) {
      if (since_watch(i) == 0) watch();
      list[i] = generator.next();
      if (!names.empty()) list[i] = {names[list[i].from], names[list[i].to]};
    }
    out = rows(generator.vertices(), [&](auto sink) {
      for (const Edge& edge : list) {
        sink(edge.from, edge.to);
        if (!options.directed) sink(edge.to, edge.from);
      }
    });
  }
  watch();
  if (options.directed) {
    in = transposed(out);
    if (options.simple) squish(*in);
    out = transposed(*in);
    if (!options.simple) {
      spread(*in);
      spread(out);
    }
  } else {
    out = transposed(out);  // the same matrix, with sorted rows
    options.simple ? squish(out) : spread(out);
  }
  watch();
  Builder builder{recorder, options, watch};
  TracedArray<std::uint64_t> offsets{recorder, "reader.offsets", out.index.size()};
  Graph graph{recorder, options, generator.seed(), builder.loaded(out, offsets), std::nullopt};
  if (in) graph.in = builder.loaded(*in, offsets);
  offsets.free();
  return graph;
}

Graph Graph::build(trace::Recorder& recorder, EdgeGenerator generator, std::uint64_t edges,
                   const Options& options, const Watch& watch) {
  Builder builder{recorder, options, watch};
  TracedArray<Edge> list = builder.edge_list(generator, edges);
  std::vector<Csr> raw;
  raw.push_back(builder.rows_of(list, generator.vertices(), false));
  if (options.directed) raw.push_back(builder.rows_of(list, generator.vertices(), true));
  list.free();
  Graph graph{recorder, options, generator.seed(), builder.squished(raw[0]), std::nullopt};
  if (options.directed) graph.in = builder.squished(raw[1]);
  for (Csr& csr : raw) {
    csr.neighbours.free();
    csr.index.free();
  }
  return graph;
}

std::int32_t Graph::weight(Vertex from, Vertex to) const {
  const std::uint64_t low = options.directed ? from : std::min(from, to);
  const std::uint64_t high = options.directed ? to : std::max(from, to);
  return static_cast<std::int32_t>(1 + mix64((high << 32 | low) ^ mix64(seed)) % 255);
}

Vertex Graph::pick_source(Rng& rng) const {
  for (;;) {
    const auto v = static_cast<Vertex>(rng.below(vertices()));
    if (out.degree(v) > 0) return v;
  }
}

}  // namespace tt::kernels::graph
