// SPDX-License-Identifier: MIT

// Streams of huge pages of which the kernel holds a part, and trials that are repeated: against
// streams in which everything was made.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "kernels/graph_components.hpp"
#include "kernels/graph_page_rank.hpp"
#include "kernels/graph_traversal.hpp"
#include "kernels/kernel.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"
#include "trace/recorder.hpp"

using namespace tt;
using namespace tt::trace;
using check::Scratch;

namespace {

constexpr std::uint64_t parts = huge_page_bytes / base_page_bytes;

/// What a stream says of each huge page of its objects.
struct PerPage {
  StreamInfo info;
  std::vector<std::vector<double>> counts;  // by object and huge page, timed
  double compute_ns = 0;
  double touched = 0;  // pages of the stream, the same one twice counts twice
  double freed = 0;

  explicit PerPage(const std::filesystem::path& file) {
    const Reader reader{file};
    reader.verify();
    info = reader.info();
    const std::uint64_t each = huge_page_bytes / info.page_bytes;
    for (const Object& object : info.objects) {
      auto& pages = counts.emplace_back((object.pages + each - 1) / each);
      for (std::uint64_t page = 0; page < object.pages; ++page)
        pages[page / each] += static_cast<double>(reader.page_totals()[object.first_page + page]);
    }
    Block block;
    for (std::uint64_t b = 0; b < info.blocks; ++b) {
      reader.read(b, block);
      if (block.timed) compute_ns += block.compute_ns[0];
      for (const Event& event : block.events) {
        if (event.type == EventType::touch) touched += event.count;
        if (event.type == EventType::unmap) freed += event.count;
      }
    }
  }
};

/// Pages one by one, but the last of an object, which is filled in part only; and objects of one
/// such page by themselves.
void check_alike(const PerPage& found, const PerPage& expected, double per_page, double mean) {
  CHECK_EQ(found.info.objects.size(), expected.info.objects.size());
  CHECK_NEAR(found.info.nominal_seconds / expected.info.nominal_seconds, 1, mean);
  CHECK_NEAR(found.compute_ns / expected.compute_ns, 1, mean);
  for (std::size_t i = 0; i < found.counts.size(); ++i) {
    CHECK_EQ(found.info.objects[i].site, expected.info.objects[i].site);
    const std::size_t whole = std::min(found.counts[i].size(), expected.counts[i].size()) - 1;
    double sum = 0;
    double expected_sum = 0;
    for (std::size_t page = 0; page < whole; ++page) {
      const double golden = expected.counts[i][page];
      CHECK_NEAR(found.counts[i][page], golden, per_page * golden + 600);
      sum += found.counts[i][page];
      expected_sum += golden;
    }
    CHECK_NEAR(sum, expected_sum, mean * expected_sum + 600);
  }
}

StreamInfo description(std::uint64_t page_bytes) {
  StreamInfo info;
  info.workload = "test";
  info.page_bytes = page_bytes;
  info.lanes = {{"all", 1}};
  info.classes = {{"gather", 4, 0}, {"read", 2, 0}};
  return info;
}

RecorderOptions options(double scale, std::uint32_t thinning = 1) {
  RecorderOptions given;
  given.scale = scale;
  given.thinning = thinning;
  given.llc_bytes = 4 << 20;
  given.threads = 1;
  return given;
}

}  // namespace

TEST("recorder: a thinned page has the accesses of its part, as often as that is in it") {
  const Scratch scratch;
  constexpr std::uint32_t thinning = 8;
  constexpr std::uint64_t part = huge_page_bytes / thinning;
  constexpr std::uint64_t pages = 20;
  // The same accesses, of a miniature of 8 times the scale: in base pages, and as parts.
  const auto record = [&](const char* name, std::uint64_t page_bytes, const RecorderOptions& how) {
    Recorder recorder{scratch.file(name), description(page_bytes), how};
    const Address first = recorder.map("first", pages * part);
    const Address second = recorder.map("second", part / 2);
    CHECK_EQ(second, pages * part);
    Rng rng{3};
    for (int i = 0; i < 300000; ++i) {
      recorder.load(0, first + rng.below(pages * part / 100) * 100, 100);
      recorder.store(0, first + rng.below(part) / 64 * 64, 8);
      if (i % 1000 == 0) recorder.load(1, second, 4096);
      recorder.compute(0, 3);
    }
    recorder.unmap(second);
    recorder.finish();
    return PerPage{scratch.file(name)};
  };
  const PerPage base = record("base.tts", base_page_bytes, options(128));
  const PerPage thinned = record("thinned.tts", huge_page_bytes, options(16, thinning));
  CHECK_EQ(thinned.info.pages, pages + 1);
  CHECK_NEAR(thinned.info.scale, 16, 0);
  CHECK_NEAR(thinned.info.nominal_seconds, base.info.nominal_seconds, 1e-9);
  CHECK_NEAR(thinned.compute_ns, thinning * base.compute_ns, 1e-6 * thinned.compute_ns);
  CHECK_NEAR(thinned.info.classes[0].prefetched, base.info.classes[0].prefetched, 1e-12);
  CHECK_NEAR(thinned.info.classes[0].store_events, base.info.classes[0].store_events, 1e-12);
  // 64 base pages of the miniature are a huge page.
  const Reader reader{scratch.file("base.tts")};
  for (std::uint64_t page = 0; page < pages; ++page) {
    double sum = 0;
    for (std::uint64_t i = 0; i < parts / thinning; ++i)
      sum += static_cast<double>(reader.page_totals()[page * (parts / thinning) + i]);
    CHECK_EQ(thinned.counts[0][page], thinning * sum);
  }
  CHECK_NEAR(thinned.freed, 1, 0);
}

TEST("recorder: what cannot be thinned is refused") {
  const Scratch scratch;
  const auto make = [&](StreamInfo info, std::uint32_t thinning) {
    Recorder recorder{scratch.file("a.tts"), std::move(info), options(1, thinning)};
  };
  CHECK_THROWS(make(description(huge_page_bytes), 3), "a power of two");
  CHECK_THROWS(make(description(huge_page_bytes), 0), "a power of two");
  CHECK_THROWS(make(description(huge_page_bytes), 1024), "leaves a base page");
  CHECK_THROWS(make(description(base_page_bytes), 2), "leaves a base page");
  StreamInfo operations = description(huge_page_bytes);
  operations.op_kinds = {{"get"}};
  CHECK_THROWS(make(operations, 2), "operations are whole");
}

TEST("recorder: a repeated trial maps, touches and frees its own pages, as one that was made") {
  const Scratch scratch;
  constexpr std::uint64_t bytes = 6 * huge_page_bytes;
  const auto record = [&](const char* name, int made, int repeated) {
    Recorder recorder{scratch.file(name), description(huge_page_bytes), options(64)};
    const Address table = recorder.map("table", bytes);
    recorder.store(1, table, bytes / 2);  // the other half is touched by the first trial
    Address kept = 0;
    const auto trial = [&] {
      Rng rng{7};
      kept = recorder.map("kept", 2 * huge_page_bytes);
      const Address freed = recorder.map("freed", huge_page_bytes);
      for (int i = 0; i < 20000; ++i) {
        recorder.load(0, table + rng.below(bytes), 1);
        recorder.store(0, kept + rng.below(2 * huge_page_bytes), 1);
        recorder.load(1, freed + rng.below(huge_page_bytes), 1);
        recorder.compute(0, 5);
      }
      recorder.unmap(freed);
    };
    for (int i = 0; i < made - 1; ++i) trial();
    recorder.begin_pattern();
    trial();
    recorder.end_pattern();
    recorder.repeat_pattern(static_cast<std::uint64_t>(repeated));
    // The numbers go on behind, and the recorder knows what is touched there.
    const Address last = recorder.map("last", 1);
    CHECK_EQ(last, (6 + 3 * 3) * huge_page_bytes);
    recorder.store(1, last, 1);
    if (repeated > 0)
      CHECK_THROWS(recorder.load(0, last - huge_page_bytes, 1), "not mapped");  // a freed one
    recorder.store(1, last - 3 * huge_page_bytes, 1);
    recorder.finish();
    return PerPage{scratch.file(name)};
  };
  const PerPage made = record("made.tts", 3, 0);
  const PerPage repeated = record("repeated.tts", 1, 2);
  CHECK_EQ(made.info.objects.size(), 8u);
  CHECK_EQ(repeated.touched, made.touched);
  CHECK_EQ(repeated.freed, made.freed);
  CHECK_EQ(repeated.info.pages, made.info.pages);
  // Trials that were made find some lines in the cache.
  check_alike(repeated, made, 0.01, 0.01);
  CHECK_NEAR(repeated.counts[2][0] / made.counts[2][0], 1, 0.01);  // "freed", of one page
  CHECK_NEAR(repeated.counts[6][0] / made.counts[6][0], 1, 0.01);
  CHECK_NEAR(repeated.info.classes[0].store_events, made.info.classes[0].store_events, 0.01);
}

namespace {

using kernels::graph::Graph;

/// A kernel on a graph of 2^20 vertices, or on a part of it.
template <typename Run>
PerPage on_graph(const std::filesystem::path& file, kernels::graph::Kind kind, double scale,
                 std::uint32_t thinning, Run run) {
  StreamInfo info = description(huge_page_bytes);
  info.classes = kernels::graph::stream_classes();
  RecorderOptions how = options(scale, thinning);
  how.block_ms = 50;
  how.threads = 12;
  how.llc_bytes = 18 << 20;
  Recorder recorder{file, info, how};
  recorder.set_timed(false);
  kernels::graph::EdgeGenerator generator{kind, (1u << 20) / thinning,
                                          static_cast<double>(thinning), 5};
  kernels::graph::Options built;
  built.buffer_ids = 4096 / thinning;
  const std::uint64_t edges = 8 * std::uint64_t{generator.vertices()};
  const Graph graph = Graph::load(recorder, std::move(generator), edges, built, [] {});
  recorder.set_timed(true);
  run(graph);
  recorder.finish();
  return PerPage{file};
}

/// A sixteenth of a graph against the whole. What remains of the cache is 72 KiB.
template <typename Run>
void compare_graphs(kernels::graph::Kind kind, Run run) {
  const Scratch scratch;
  check_alike(on_graph(scratch.file("thinned.tts"), kind, 16, 16, run),
              on_graph(scratch.file("whole.tts"), kind, 16, 1, run), 0.05, 0.04);
}

const auto one_page_rank = [](const Graph& graph) {
  kernels::graph::page_rank(graph, 2, 0, [] {}).free();
};

}  // namespace

TEST("thinned pr: page by page as the whole graph, uniform") {
  compare_graphs(kernels::graph::Kind::uniform, one_page_rank);
}
TEST("thinned pr: page by page as the whole graph, Kronecker") {
  compare_graphs(kernels::graph::Kind::kronecker, one_page_rank);
}
TEST("thinned cc: page by page as the whole graph") {
  compare_graphs(kernels::graph::Kind::uniform, [](const Graph& graph) {
    kernels::graph::connected_components(graph, [] {}).free();
  });
}
TEST("thinned bc: page by page as the whole graph") {
  compare_graphs(kernels::graph::Kind::uniform, [](const Graph& graph) {
    Rng rng{1};
    const std::vector<kernels::graph::Vertex> sources{graph.pick_source(rng)};
    kernels::graph::betweenness(graph, sources, [] {}).free();
  });
}

namespace {

/// A workload's stream of huge pages, of just more vertices than are made whole, against that of
/// base pages, in which all is made.
void compare_workload(const char* kernel, const kernels::Parameters& parameters, double per_page,
                      double mean) {
  const Scratch scratch;
  kernels::RecordRequest request;
  request.input = "test";
  request.threads = 12;
  request.llc_bytes = 1 << 20;
  request.seed = 3;
  request.parameters = parameters;
  const auto record = [&](const char* name, std::uint64_t page_bytes) {
    request.file = scratch.file(name);
    request.page_bytes = page_bytes;
    (void)kernels::record(kernel, request);
    return PerPage{request.file};
  };
  const PerPage huge = record("huge.tts", huge_page_bytes);
  CHECK(huge.info.accesses > 0);
  check_alike(huge, record("base.tts", base_page_bytes), per_page, mean);
}

using Int = std::int64_t;

}  // namespace

TEST("cc: a stream of huge pages has the counts of one of base pages, trial by trial") {
  compare_workload(
      "cc",
      {{"graph", std::string{"uniform"}}, {"vertices_m", 4.5}, {"degree", 1.0}, {"trials", Int{2}}},
      0.05, 0.02);
}
TEST("graph500: a stream of huge pages has the counts of one of base pages") {
  // The list of those that were found ends elsewhere in its last page.
  compare_workload("graph500", {{"log2_vertices", Int{21}}, {"edge_factor", 2.0}, {"keys", Int{1}}},
                   0.3, 0.08);
}

TEST("graph workloads: a graph is thinned as far as it must be, in streams of huge pages only") {
  using kernels::graph::thinning;
  CHECK_EQ(thinning(huge_page_bytes, 0x1p22, 0x1p22), 1u);
  CHECK_EQ(thinning(huge_page_bytes, 0x1p22 + 1, 0x1p22), 2u);
  CHECK_EQ(thinning(huge_page_bytes, 0x1p26, 0x1p22), 16u);
  CHECK_EQ(thinning(huge_page_bytes, 0x1p40, 0x1p22), 64u);
  CHECK_EQ(thinning(base_page_bytes, 0x1p26, 0x1p22), 1u);
}
