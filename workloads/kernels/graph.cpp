// SPDX-License-Identifier: MIT

// bfs, pr, cc, bc, sssp, tc: the GAP benchmark suite's kernels, trial after trial.
//
// As GAP's benchmark driver does: a graph is read or built (not timed), then the kernel runs a
// given number of times, allocating new arrays each time; BFS, BC and SSSP draw a new source for
// every trial. Graphs: Kronecker, uniform, and one with the degrees of Twitter's follower graph;
// see graph_generate.hpp.

#include <cmath>
#include <map>

#include "kernels/graph_build.hpp"
#include "kernels/graph_components.hpp"
#include "kernels/graph_page_rank.hpp"
#include "kernels/graph_traversal.hpp"
#include "kernels/graph_triangles.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"

namespace tt::kernels {
namespace {

using graph::Graph;
using graph::Watch;

/// What a trial gets.
struct Trial {
  const Graph& graph;
  const ParameterReader& read;
  Rng& rng;
  const Watch& watch;
};

/// The entry of a table that a text parameter names.
template <typename T>
T choice(const ParameterReader& read, std::string_view name,
         const std::map<std::string, T, std::less<>>& table) {
  const auto found = table.find(read.text_value(name));
  std::string known;
  for (const auto& [key, value] : table) known += (known.empty() ? "" : ", ") + key;
  read.require(found != table.end(), name,
               "found '" + read.text_value(name) + "', allowed " + known);
  return found->second;
}

/// What the kernels differ in, besides the kernel.
struct Traits {
  bool weighted = false;
  bool undirected_only = false;
  bool alike = false;        // all trials do the same, on arrays of their own
  double most_vertices = 0;  // in a stream of huge pages, see graph::thinning()
};

trace::StreamInfo record_trials(const RecordRequest& request, const Traits& traits,
                                void (*run)(const Trial&)) {
  const ParameterReader read{request};
  const auto kind = choice<graph::Kind>(read, "graph",
                                        {{"kronecker", graph::Kind::kronecker},
                                         {"uniform", graph::Kind::uniform},
                                         {"twitter", graph::Kind::twitter}});
  const bool build = choice<bool>(read, "source", {{"build", true}, {"load", false}});
  trace::RecorderOptions recording = recorder_options(request);
  const double full = read.positive("vertices_m") * 1e6;
  recording.thinning =
      graph::thinning(request.page_bytes, full / request.scale, traits.most_vertices);
  const double scale = request.scale * recording.thinning;
  const double vertices = std::floor(full / scale);
  read.require(
      vertices >= 16 && vertices <= 0x1p31, "vertices_m",
      "16 to 2^31 simulated vertices are possible, these are " + ParameterReader::text(vertices));
  graph::Options options;
  options.directed = read.flag("directed");
  read.require(!options.directed || !traits.undirected_only, "directed",
               "triangles are of undirected graphs");
  options.weighted = traits.weighted;
  options.simple = traits.undirected_only;
  options.id_bytes = read.number("id_bytes") == 4 ? 4 : 8;
  read.require(read.number("id_bytes") == static_cast<double>(options.id_bytes), "id_bytes",
               "allowed are 4 and 8");
  // GAP's QueueBuffer: 16,384 vertices per thread.
  options.buffer_ids =
      std::max<std::size_t>(16, static_cast<std::size_t>(16384 * request.threads / scale));
  const auto trials = static_cast<unsigned>(read.number("trials", 1, 1e6));
  const double degree = read.positive("degree");

  trace::StreamInfo info = describe(request);
  info.lanes = {{"threads", 1}};
  info.classes = graph::stream_classes();
  trace::Recorder recorder{request.file, info, recording};
  Progress progress{request};

  graph::EdgeGenerator generator{kind, static_cast<std::uint64_t>(vertices), scale, request.seed};
  const auto edges = static_cast<std::uint64_t>(degree * generator.vertices());
  read.require(edges > 0, "degree", "no edge");
  recorder.set_timed(false);
  // Making the graph is reported as up to a fifth of the whole: a step per some 65536 edges and
  // pass.
  constexpr double graph_share = 0.2;
  const double step = graph_share * 65536 / (static_cast<double>(edges) * (build ? 8 : 2) + 65536);
  double made = 0;
  const Watch building = [&] { progress.at(made = std::min(made + step, graph_share)); };
  const Graph graph = (build ? Graph::build : Graph::load)(recorder, std::move(generator), edges,
                                                           options, building);
  read.require(graph.edges() > 0, "degree", "no edge is left without loops");
  recorder.set_timed(true);

  Rng rng{mix64(request.seed) ^ 0x736f7572636573ULL};
  unsigned done = 0;
  double started_s = 0;
  const Watch running = [&] {
    // How long a trial takes is not known before it is over.
    const double part = 1 - 1 / (1 + recorder.timed_seconds() - started_s);
    progress.at(graph_share + (1 - graph_share) * (done + part) / trials);
  };
  // Where not even the graph is made whole, trials that are alike are not all made either.
  const bool repeats = recording.thinning > 1 && traits.alike;
  if (repeats) recorder.begin_pattern();
  for (; done < (repeats ? 1 : trials); ++done) {
    started_s = recorder.timed_seconds();
    running();
    run({graph, read, rng, running});
  }
  if (repeats) {
    recorder.end_pattern();
    recorder.repeat_pattern(trials - 1);
  }
  return recorder.finish();
}

std::vector<ParameterDecl> with_common(std::vector<ParameterDecl> own) {
  std::vector<ParameterDecl> all = {
      {"graph", std::string{"kronecker"}, "name",
       "kronecker, uniform or twitter (power law, popular vertices together)"},
      {"vertices_m", 536.870912, "10^6", "vertices; a power of two in a Kronecker graph"},
      {"degree", 16.0, "count", "edges drawn per vertex"},
      {"directed", false, "flag", "edges lead one way; else both"},
      {"id_bytes", std::int64_t{4}, "bytes", "width of a vertex number, 4 or 8"},
      {"source", std::string{"load"}, "name",
       "load: a serialised graph is read; build: one is generated and built in memory"},
      {"trials", std::int64_t{16}, "count",
       "how often the kernel runs; a number and not a time, so that it is the same at every scale"},
      block_ms_parameter(50)};
  all.insert(all.begin() + 6, own.begin(), own.end());
  return all;
}

template <Traits traits, auto run>
trace::StreamInfo record_as(const RecordRequest& request) {
  return record_trials(request, traits, +run);
}

// A stream of huge pages then takes a core one to one and a half minutes.
constexpr double most_vertices = 0x1p22;
constexpr Traits own_source{.most_vertices = most_vertices};
constexpr Traits whole_graph{.alike = true, .most_vertices = most_vertices};

constexpr auto run_bfs = [](const Trial& trial) {
  graph::bfs(trial.graph, trial.graph.pick_source(trial.rng), trial.watch).free();
};
constexpr auto run_pr = [](const Trial& trial) {
  graph::page_rank(trial.graph, static_cast<unsigned>(trial.read.number("iterations", 1, 1e6)),
                   trial.read.number("tolerance"), trial.watch)
      .free();
};
constexpr auto run_cc = [](const Trial& trial) {
  graph::connected_components(trial.graph, trial.watch).free();
};
constexpr auto run_bc = [](const Trial& trial) {
  std::vector<graph::Vertex> sources(
      static_cast<std::size_t>(trial.read.number("sources", 1, 1e6)));
  for (graph::Vertex& source : sources) source = trial.graph.pick_source(trial.rng);
  graph::betweenness(trial.graph, sources, trial.watch).free();
};
constexpr auto run_sssp = [](const Trial& trial) {
  graph::shortest_paths(trial.graph, trial.graph.pick_source(trial.rng),
                        static_cast<std::int32_t>(trial.read.number("delta", 1, 1e6)), trial.watch)
      .free();
};
constexpr auto run_tc = [](const Trial& trial) {
  (void)graph::count_triangles(trial.graph, trial.watch);
};

const RegisterKernel bfs{{"bfs",
                          "GAP: direction-optimising breadth-first search, a new source per trial",
                          with_common({}), &record_as<own_source, run_bfs>}};
const RegisterKernel pr{
    {"pr", "GAP: PageRank by pulling, arrays allocated anew for every trial",
     with_common({{"iterations", std::int64_t{20}, "count", "most iterations of a trial"},
                  {"tolerance", 0.0, "",
                   "a trial ends when all scores change by less, in sum; that depends on the "
                   "number of vertices, and so on the scale"}}),
     &record_as<whole_graph, run_pr>}};
const RegisterKernel cc{{"cc", "GAP: connected components (Afforest)", with_common({}),
                         &record_as<whole_graph, run_cc>}};
const RegisterKernel bc{{"bc", "GAP: betweenness centrality (Brandes) from new sources every trial",
                         with_common({{"sources", std::int64_t{4}, "count", "sources of a trial"}}),
                         &record_as<Traits{.most_vertices = most_vertices / 2}, run_bc>}};
const RegisterKernel sssp{
    {"sssp", "GAP: shortest paths by delta-stepping, a new source per trial",
     with_common({{"delta", std::int64_t{2}, "distance", "width of a bin; weights are 1 to 255"}}),
     &record_as<Traits{.weighted = true, .most_vertices = most_vertices}, run_sssp>}};
const RegisterKernel tc{
    {"tc", "GAP: triangles of an undirected graph, relabelled by degree where it pays",
     with_common({}),
     &record_as<Traits{.undirected_only = true, .alike = true, .most_vertices = most_vertices},
                run_tc>}};

}  // namespace
}  // namespace tt::kernels
