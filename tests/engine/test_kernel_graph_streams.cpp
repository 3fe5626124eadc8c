// SPDX-License-Identifier: MIT

// The graph workloads' streams: what is allocated, what is hot, and what each parameter does.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "check.hpp"
#include "kernels/graph500.hpp"
#include "kernels/kernel.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::trace;
using check::Scratch;
using kernels::Parameters;

namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

const Parameters kronecker{{"block_ms", 200.0}, {"trials", std::int64_t{1}}};
const Parameters two_billion{{"vertices_m", 2147.483648},   {"degree", 4.0},
                             {"id_bytes", std::int64_t{8}}, {"source", std::string{"build"}},
                             {"block_ms", 200.0},           {"trials", std::int64_t{1}}};
const Parameters twitter{{"graph", std::string{"twitter"}},
                         {"vertices_m", 61.6},
                         {"degree", 23.84},
                         {"block_ms", 200.0},
                         {"trials", std::int64_t{1}}};
const Parameters uniform{{"graph", std::string{"uniform"}},
                         {"vertices_m", 134.217728},
                         {"block_ms", 200.0},
                         {"trials", std::int64_t{1}}};

Parameters with(Parameters base, const Parameters& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

/// A recorded stream, summed up.
struct Recorded {
  Scratch scratch;
  StreamInfo info;
  std::uint64_t peak = 0;        // pages touched at a time
  std::uint64_t timed_peak = 0;  // in timed blocks
  double untimed_ns = 0;
  std::vector<std::string> order;         // sites by first touch
  std::vector<std::uint64_t> totals;      // timed accesses per page
  std::vector<std::uint64_t> per_object;  // likewise

  Recorded(const char* kernel, double scale, Parameters parameters, double threads = 12) {
    kernels::RecordRequest request;
    request.input = "test";
    request.scale = scale;
    request.threads = threads;
    request.llc_bytes = 18 << 20;
    request.seed = 3;
    request.file = scratch.file("g.tts");
    request.parameters = std::move(parameters);
    info = kernels::record(kernel, request);
    const Reader reader{request.file};
    reader.verify();
    totals.assign(reader.page_totals().begin(), reader.page_totals().end());
    std::vector<bool> present(info.pages);
    std::uint64_t now = 0;
    Block block;
    for (std::uint64_t i = 0; i < info.blocks; ++i) {
      reader.read(i, block);
      if (!block.timed) untimed_ns += block.nominal_ns;
      for (const Event& event : block.events) {
        for (std::uint64_t page = event.first; page < event.first + event.count; ++page) {
          if (event.type == EventType::touch) ++now;
          if (event.type == EventType::unmap && present[page]) --now;
          present[page] = event.type == EventType::touch;
        }
        peak = std::max(peak, now);
      }
      if (block.timed) timed_peak = std::max(timed_peak, now);
    }
    for (const Object& object : info.objects) {
      if (std::ranges::find(order, object.site) == order.end()) order.push_back(object.site);
      per_object.push_back(std::accumulate(
          totals.begin() + static_cast<std::ptrdiff_t>(object.first_page),
          totals.begin() + static_cast<std::ptrdiff_t>(object.first_page + object.pages),
          std::uint64_t{0}));
    }
  }

  [[nodiscard]] double peak_gib() const {
    return static_cast<double>(peak) * base_page_bytes * info.scale / gib;
  }
  /// Objects of a site, in order of allocation.
  [[nodiscard]] std::vector<std::size_t> objects(std::string_view site) const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < info.objects.size(); ++i)
      if (info.objects[i].site == site) found.push_back(i);
    return found;
  }
  [[nodiscard]] double size_gib(std::string_view site) const {
    return static_cast<double>(info.objects[objects(site).at(0)].pages) * base_page_bytes *
           info.scale / gib;
  }
  [[nodiscard]] double accesses(std::string_view site) const {
    double sum = 0;
    for (const std::size_t object : objects(site)) sum += static_cast<double>(per_object[object]);
    return sum;
  }
  /// Of the timed part's accesses, or set-up's, by class; those of classes that have any.
  [[nodiscard]] std::map<std::string, double> shares(bool timed = true) const {
    std::map<std::string, double> sums;
    double all = 0;
    const Reader reader{scratch.file("g.tts")};
    Block block;
    for (std::uint64_t i = 0; i < info.blocks; ++i) {
      reader.read(i, block);
      if (block.timed != timed) continue;
      for (const Segment& segment : block.segments) {
        sums[info.classes[segment.stream_class].name] += static_cast<double>(segment.sum);
        all += static_cast<double>(segment.sum);
      }
    }
    for (auto& [name, sum] : sums) sum /= all;
    return sums;
  }
  [[nodiscard]] double accesses() const {
    return static_cast<double>(std::accumulate(totals.begin(), totals.end(), std::uint64_t{0}));
  }
  /// Share of an object's accesses, or of all, that the `pages` most accessed pages get.
  [[nodiscard]] double share_of_top(std::size_t pages,
                                    std::optional<std::size_t> object = {}) const {
    auto counts = totals;
    if (object) {
      const auto first = static_cast<std::ptrdiff_t>(info.objects[*object].first_page);
      counts.assign(
          totals.begin() + first,
          totals.begin() + first + static_cast<std::ptrdiff_t>(info.objects[*object].pages));
    }
    std::ranges::sort(counts, std::greater{});
    const auto all = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
    const auto top = std::accumulate(
        counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(pages), std::uint64_t{0});
    return static_cast<double>(top) / static_cast<double>(all);
  }
};

}  // namespace

TEST("bc: objects, their sizes and their order of appearance are those of Soar's Table 2") {
  const Recorded bc{"bc", 4096, with(uniform, {{"sources", std::int64_t{1}}}), 8};
  const std::vector<std::pair<std::string, double>> published = {
      {"reader.offsets", 1073},     // O10
      {"graph.neighbours", 17000},  // O8
      {"graph.index", 1073},        // O5
      {"bc.scores", 536},           // O6
      {"bc.path_counts", 1073},     // O4
      {"bc.successors", 536},       // O2
      {"queue", 536},               // O7
      {"bc.depths", 536},           // O1
      {"queue.buffer", 0},          // O9, 327 KB: less than a page of the miniature
      {"bc.deltas", 536},           // O3
  };
  CHECK_EQ(bc.order.size(), published.size());
  for (std::size_t i = 0; i < published.size(); ++i) {
    CHECK_EQ(bc.order.at(i), published[i].first);
    const double megabytes = bc.size_gib(published[i].first) * gib / 1e6;
    CHECK_NEAR(megabytes, published[i].second, 0.03 * published[i].second + 17);
  }
  // O1 gets most accesses, O3 and O4 many; scores few, the offsets none.
  for (const auto& [site, size] : published) CHECK(bc.accesses(site) <= bc.accesses("bc.depths"));
  CHECK(bc.accesses("bc.deltas") > bc.accesses("graph.index"));
  CHECK(bc.accesses("bc.path_counts") > bc.accesses("graph.index"));
  CHECK(bc.accesses("bc.successors") < bc.accesses("bc.deltas"));
  CHECK(bc.accesses("bc.scores") < bc.accesses("graph.index"));
  CHECK_EQ(bc.accesses("reader.offsets"), 0);
}

TEST("graph workloads: atomic updates do not overlap, and sums overlap more than decisions") {
  const Recorded bc{"bc", 65536, uniform};
  for (const StreamClass& entry : bc.info.classes)
    if (entry.name == "locked") CHECK_NEAR(entry.mlp, 1, 0);
  const auto of_bc = bc.shares();
  CHECK(of_bc.at("locked") > 0.1);
  CHECK(!of_bc.contains("pull"));
  const auto of_pr =
      Recorded{"pr", 65536, with(uniform, {{"iterations", std::int64_t{1}}})}.shares();
  CHECK(of_pr.at("pull") > 0.3);
  CHECK(!of_pr.contains("locked"));
  // GAP's builder counts degrees and fills rows with atomic updates, before the timed part.
  const Recorded built{"cc", 65536, with(uniform, {{"source", std::string{"build"}}})};
  CHECK(!built.shares().contains("locked"));
  CHECK(built.shares(false).at("locked") > 0.05);
}

TEST("graph workloads: footprints are the published ones") {
  const auto directed = with(twitter, {{"directed", true}});
  // From Good to Great, Table 4.
  CHECK_NEAR((Recorded{"pr", 1024, with(directed, {{"iterations", std::int64_t{1}}})}.peak_gib()),
             12.32, 0.04 * 12.32);
  CHECK_NEAR((Recorded{"cc", 1024, directed}.peak_gib()), 12.09, 0.04 * 12.09);
  CHECK_NEAR((Recorded{"graph500", 16384, {{"keys", std::int64_t{1}}}}.peak_gib()), 34.13, 0.35);
  // HybridTier, Table 2: 335 GB. What is left when the graph has been built is about half of what
  // was allocated in all.
  const Recorded bfs{"bfs", 65536, two_billion};
  CHECK_NEAR(bfs.peak_gib() * gib / 1e9, 335, 0.05 * 335);
}

TEST("pr: a few pages get most accesses, new ones every trial") {
  // HybridTier, Figure 16: 94 % of the pages of a Kronecker graph are cold.
  const Recorded one{"pr", 65536, with(two_billion, {{"iterations", std::int64_t{8}}})};
  CHECK_EQ(one.objects("pr.contribution").size(), 1u);
  CHECK(one.share_of_top(static_cast<std::size_t>(0.06 * static_cast<double>(one.peak))) > 0.7);
  const Recorded two{
      "pr", 65536,
      with(two_billion, {{"iterations", std::int64_t{8}}, {"trials", std::int64_t{2}}})};
  const auto arrays = two.objects("pr.contribution");
  CHECK_EQ(arrays.size(), 2u);
  // Whole-graph kernels do the same in every trial, on other pages (HybridTier, §2.2, §6.1).
  const auto first = static_cast<double>(two.per_object[arrays.at(0)]);
  CHECK_NEAR(static_cast<double>(two.per_object[arrays.at(1)]) / first, 1, 0.01);
}

TEST("bfs: trials from different sources differ, where those of cc are all the same") {
  const auto lists_read = [](const char* kernel) {
    // Accesses to the neighbours after one trial, and after two.
    const Recorded one{kernel, 65536, kronecker};
    const Recorded two{kernel, 65536, with(kronecker, {{"trials", std::int64_t{2}}})};
    const char* const site = kernel[0] == 'b' ? "bfs.parent" : "cc.component";
    CHECK_EQ(one.objects(site).size(), 1u);
    CHECK_EQ(two.objects(site).size(), 2u);
    return two.accesses("graph.neighbours") / one.accesses("graph.neighbours");
  };
  CHECK_NEAR(lists_read("cc"), 2, 0.01);
  CHECK(std::abs(lists_read("bfs") - 2) > 0.01);
}

TEST(
    "pr: the popular vertices of the follower graph are on few pages, a Kronecker graph's on all") {
  // From Good to Great, §4.3.
  const auto share = [](const Parameters& parameters, double scale) {
    const Recorded pr{"pr", scale, with(parameters, {{"iterations", std::int64_t{4}}})};
    const std::size_t object = pr.objects("pr.contribution").at(0);
    return pr.share_of_top(pr.info.objects[object].pages / 8, object);
  };
  CHECK(share(with(twitter, {{"directed", true}}), 1024) > 0.35);
  CHECK(share(kronecker, 16384) < 0.25);
}

TEST("graph workloads: construction is not timed, and nothing of it stays") {
  const auto built = with(kronecker, {{"source", std::string{"build"}}});
  const Recorded recorded{"cc", 65536, built};
  CHECK(recorded.untimed_ns > 0);
  CHECK_EQ(recorded.accesses("builder.edge_list"), 0);
  CHECK_EQ(recorded.accesses("builder.neighbours"), 0);
  CHECK(recorded.timed_peak < 0.75 * static_cast<double>(recorded.peak));
  // GAP's order: the list and its renaming, a first graph, its squished copy.
  const std::vector<std::string> order(recorded.order.begin(), recorded.order.begin() + 8);
  CHECK(
      (order == std::vector<std::string>{"builder.edge_list", "generator.permutation",
                                         "builder.degrees", "builder.offsets", "builder.neighbours",
                                         "builder.index", "graph.neighbours", "graph.index"}));
  // The kernel then does the same as on a graph that was loaded.
  const Recorded loaded{"cc", 65536, kronecker};
  CHECK_NEAR(recorded.accesses() / loaded.accesses(), 1, 0.01);
}

TEST("graph workloads: every parameter shows") {
  constexpr double scale = 131072;
  const auto one = [&](const char* kernel, const Parameters& more) {
    return Recorded{kernel, scale, with(kronecker, more)};
  };
  const Recorded cc = one("cc", {});
  CHECK_NEAR(one("cc", {{"vertices_m", 1073.741824}}).size_gib("graph.index"),
             2 * cc.size_gib("graph.index"), 0.6);
  CHECK(one("cc", {{"degree", 32.0}}).size_gib("graph.neighbours") >
        1.6 * cc.size_gib("graph.neighbours"));
  CHECK_NEAR(one("cc", {{"id_bytes", std::int64_t{8}}}).size_gib("graph.neighbours"),
             2 * cc.size_gib("graph.neighbours"), 1);
  CHECK_EQ(one("cc", {{"directed", true}}).objects("graph.index").size(), 2u);
  CHECK_EQ(one("cc", {{"trials", std::int64_t{3}}}).objects("cc.component").size(),
           3 * cc.objects("cc.component").size());
  CHECK(one("cc", {{"block_ms", 10.0}}).info.blocks > 5 * cc.info.blocks);
  CHECK_NEAR(one("sssp", {}).size_gib("graph.neighbours"), 2 * cc.size_gib("graph.neighbours"), 1);
  CHECK(one("sssp", {{"delta", std::int64_t{1000}}}).accesses("sssp.distance") !=
        one("sssp", {}).accesses("sssp.distance"));
  CHECK_EQ(one("bc", {{"sources", std::int64_t{3}}}).objects("bc.depths").size(), 3u);
  const auto reads = [&](const Parameters& more) {
    return one("pr", more).accesses("graph.neighbours");
  };
  const double few = reads({{"iterations", std::int64_t{2}}, {"tolerance", 0.0}});
  CHECK_NEAR(reads({{"iterations", std::int64_t{6}}, {"tolerance", 0.0}}) / few, 3, 0.05);
  CHECK(reads({{"tolerance", 1e-2}}) < reads({{"tolerance", 1e-6}}));
  // Relabelled where degrees are skewed, not where they are alike.
  CHECK_EQ(one("tc", {{"graph", std::string{"uniform"}}}).objects("tc.neighbours").size(), 0u);
  CHECK(one("tc", {{"degree", 32.0}}).objects("tc.neighbours").size() > 0);
  const auto graph500 = [&](const Parameters& more) {
    return Recorded{"graph500", scale, with({{"keys", std::int64_t{2}}}, more)};
  };
  CHECK_EQ(graph500({}).objects("graph500.tree").size(), 2u);
  CHECK_NEAR(graph500({{"edge_factor", 8.0}}).size_gib("graph500.edges"), 8, 0.6);
  CHECK_NEAR(graph500({{"log2_vertices", std::int64_t{27}}}).size_gib("graph500.edges"), 32, 0.6);
}

TEST("graph workloads: bad requests are refused with their place") {
  const auto refused = [](const char* kernel, const Parameters& parameters, const char* message) {
    CHECK_THROWS((Recorded{kernel, 131072, parameters}), message);
  };
  refused("bfs", {{"graph", std::string{"road"}}},
          "bfs: parameter graph: found 'road', allowed kronecker, twitter, uniform");
  refused("bfs", {{"source", std::string{"disk"}}}, "source: found 'disk', allowed build, load");
  refused("bfs", {{"id_bytes", std::int64_t{5}}}, "id_bytes: allowed are 4 and 8");
  refused("bfs", {{"vertices_m", 1.0}}, "vertices_m: 16 to 2^31 simulated vertices");
  refused("bfs", {{"degree", 0.0}}, "degree");
  refused("tc", {{"directed", true}}, "directed: triangles are of undirected graphs");
  refused("pr", {{"iterations", std::int64_t{0}}}, "iterations: found 0, allowed 1 to");
  refused("graph500", {{"log2_vertices", std::int64_t{10}}}, "log2_vertices: 16 to 2^31");
}

TEST("graph500: rows are the edges both ways, and trees are breadth-first") {
  using namespace kernels::graph;
  const Scratch scratch;
  StreamInfo info;
  info.lanes = {{"threads", 1}};
  info.classes = stream_classes();
  Recorder recorder{scratch.file("g.tts"), info, {}};
  const Watch nothing = [] {};
  Graph500 graph{recorder, EdgeGenerator{Kind::kronecker, 1024, 1, 7}, 8192, nothing};
  graph.construct();
  std::vector<std::multiset<Vertex>> expected(graph.vertices());
  for (const Edge& edge : graph.edges()) {
    expected[edge.from].insert(edge.to);
    expected[edge.to].insert(edge.from);
  }
  bool same = true;
  for (Vertex v = 0; v < graph.vertices(); ++v)
    same = same && std::ranges::is_permutation(graph.neighbours(v), expected[v]);
  CHECK(same);
  const Vertex key = *expected[graph.edges()[0].from].begin();
  std::vector<int> depth(graph.vertices(), -1);
  std::vector<Vertex> queue{key};
  depth[key] = 0;
  for (std::size_t i = 0; i < queue.size(); ++i)
    for (const Vertex v : expected[queue[i]])
      if (depth[v] < 0) {
        depth[v] = depth[queue[i]] + 1;
        queue.push_back(v);
      }
  auto tree = graph.search(key);
  bool right = tree.peek(key) == key && queue.size() > 100;
  for (Vertex v = 0; v < graph.vertices(); ++v) {
    const std::int64_t parent = tree.peek(v);
    if (depth[v] < 0) right = right && parent == -1;
    if (depth[v] > 0)
      right = right && parent >= 0 && depth[static_cast<std::size_t>(parent)] == depth[v] - 1 &&
              expected[v].contains(static_cast<Vertex>(parent));
  }
  CHECK(right);
}

TEST("graph500: generation is not timed, construction and searches are") {
  const Recorded one{"graph500", 16384, {{"keys", std::int64_t{1}}}};
  const Recorded two{"graph500", 16384, {{"keys", std::int64_t{2}}}};
  CHECK(one.untimed_ns > 0);
  // Construction reads the edge list twice, 64 lines of a page each time; searches never do.
  const double edges =
      2 * 64 * static_cast<double>(one.info.objects[one.objects("graph500.edges")[0]].pages);
  CHECK_EQ(one.accesses("graph500.edges"), edges);
  CHECK_EQ(two.accesses("graph500.edges"), edges);
  CHECK(one.accesses("graph500.offsets") > 0);
  CHECK_NEAR(two.accesses("graph500.tree") / one.accesses("graph500.tree"), 2, 0.2);
}
