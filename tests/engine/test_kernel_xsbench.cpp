// SPDX-License-Identifier: MIT

// xsbench: lookups give what a plain search in every nuclide's own grid gives, and the stream has
// the published shape: a small hot part, the rest uniform, nothing written.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "kernels/kernel.hpp"
#include "kernels/xsbench.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::trace;
using check::Scratch;
using kernels::CrossSections;

namespace {

/// Nine in ten pages are the index grid: 32 points of each of the 355 nuclides.
kernels::RecordRequest small(const std::filesystem::path& file) {
  kernels::RecordRequest request;
  request.workload = "xsbench";
  request.input = "test";
  request.scale = 4000;
  request.threads = 12;
  request.llc_bytes = 18 << 20;
  request.seed = 3;
  request.file = file;
  request.parameters["particles_m"] = 2.0;  // 500 simulated
  return request;
}

/// A reactor of 68 nuclides with 40 points each, recorded into nowhere in particular.
struct Reactor {
  explicit Reactor(std::size_t nuclides = 68, std::size_t points = 40)
      : recorder(scratch.file("r.tts"), description(), {}),
        table(recorder, {0, 0, 0, 0}, nuclides, points, 7) {}
  static StreamInfo description() {
    StreamInfo info;
    info.classes = {{"all", 1, 0}};
    info.lanes = {{"all", 1}};
    return info;
  }
  Scratch scratch;
  Recorder recorder;
  CrossSections table;
};

/// No unionised grid: every nuclide's own grid is searched from its beginning.
CrossSections::Sections plain(const CrossSections& table, std::size_t points, double energy,
                              std::size_t material) {
  CrossSections::Sections sum{};
  const auto nuclides = table.nuclides_of(material);
  for (std::size_t i = 0; i < nuclides.size(); ++i) {
    const auto grid = table.nuclide_grid().peek_all().subspan(nuclides[i] * points, points);
    std::size_t low = 0;
    while (low + 2 < points && grid[low + 1].energy <= energy) ++low;
    const double part = (grid[low + 1].energy - energy) / (grid[low + 1].energy - grid[low].energy);
    for (std::size_t k = 0; k < sum.size(); ++k) {
      const double at_high = grid[low + 1].sections[k];
      sum[k] += (at_high - part * (at_high - grid[low].sections[k])) *
                table.concentrations_of(material)[i];
    }
  }
  return sum;
}

const Object& object(const StreamInfo& info, const std::string& site) {
  return *std::ranges::find(info.objects, site, &Object::site);
}

double accesses(const Reader& reader, const std::string& site) {
  const Object& of = object(reader.info(), site);
  const auto pages = reader.page_totals().subspan(of.first_page, of.pages);
  return static_cast<double>(std::accumulate(pages.begin(), pages.end(), std::uint64_t{0}));
}

/// Timed accesses of a class and kind per operation.
double per_lookup(const Reader& reader, std::uint32_t stream_class, AccessKind kind) {
  Block block;
  double sum = 0;
  for (std::uint64_t i = 0; i < reader.info().blocks; ++i) {
    reader.read(i, block);
    for (const Segment& segment : block.segments)
      if (block.timed && segment.stream_class == stream_class && segment.kind == kind)
        sum += static_cast<double>(segment.sum);
  }
  return sum / static_cast<double>(reader.info().operations);
}

}  // namespace

TEST("xsbench: a lookup is what a plain search in every nuclide's grid gives") {
  const Reactor reactor;
  const auto& table = reactor.table;
  Rng rng{11};
  for (int i = 0; i < 3000; ++i) {
    // Below the first and above the last energy too.
    const double energy = i == 0 ? 0 : i == 1 ? 1 : rng.uniform();
    const std::size_t material = rng.below(CrossSections::materials);
    CHECK(table.macroscopic(energy, material) == plain(table, 40, energy, material));
  }
  // An energy of the grid itself, where the index of one nuclide changes.
  for (std::size_t e = 0; e < table.energies().size(); e += 37) {
    const double energy = table.energies().peek(e);
    CHECK(table.macroscopic(energy, 0) == plain(table, 40, energy, 0));
  }
}

TEST("xsbench: histories have the verification value of a plain reference") {
  const Reactor reactor;
  Rng ours{5};
  Rng theirs{5};
  std::uint64_t of_ours = 0;
  std::uint64_t of_theirs = 0;
  for (int particle = 0; particle < 50; ++particle) {
    of_ours += kernels::follow_particle(34, ours, [&](double energy, std::size_t material) {
      return reactor.table.macroscopic(energy, material);
    });
    for (int i = 0; i < 34; ++i) {
      const double energy = theirs.uniform();
      const auto sections =
          plain(reactor.table, 40, energy, CrossSections::material(theirs.uniform()));
      const auto largest = std::ranges::max_element(sections) - sections.begin();
      of_theirs += static_cast<std::uint64_t>(largest) + 1;
      for (auto skips = std::ranges::count_if(sections, [](double s) { return s > 1; }); skips > 0;
           --skips)
        (void)theirs.next();
    }
  }
  CHECK_EQ(of_ours, of_theirs);
  CHECK_EQ(ours.next(), theirs.next());
  CHECK(of_ours > 50u * 34 && of_ours < 50u * 34 * 5);
}

TEST("xsbench: the unionised grid holds all energies in order") {
  const Reactor reactor;
  const auto& table = reactor.table;
  const auto points = table.nuclide_grid().peek_all();
  std::vector<double> energies;
  for (std::size_t i = 0; i < points.size(); ++i) {
    energies.push_back(points[i].energy);
    if (i % 40 > 0) CHECK(points[i - 1].energy < points[i].energy);
  }
  std::ranges::sort(energies);
  CHECK(std::ranges::equal(energies, table.energies().peek_all()));
  CHECK_EQ(table.index_grid().size(), 68u * 68 * 40);
}

TEST("xsbench: materials and their probabilities are XSBench's") {
  const Reactor large{355, 2};
  const std::vector<std::size_t> sizes{321, 5, 4, 4, 27, 21, 21, 21, 21, 21, 9, 9};
  for (std::size_t m = 0; m < sizes.size(); ++m)
    CHECK_EQ(large.table.nuclides_of(m).size(), sizes[m]);
  CHECK_EQ(Reactor{}.table.nuclides_of(0).size(), 34u);
  const std::vector<double> published{.140, .052, .275, .134, .154, .064,
                                      .066, .055, .008, .015, .025, .013};
  std::vector<double> drawn(published.size());
  constexpr int draws = 20000;
  for (int i = 0; i < draws; ++i) drawn[CrossSections::material((i + 0.5) / draws)] += 1.0 / draws;
  // The published probabilities sum up to 1.001: the fuel gets what is left.
  for (std::size_t m = 0; m < published.size(); ++m) CHECK_NEAR(drawn[m], published[m], 0.0011);
}

TEST("xsbench: a thirtieth of the pages is hot, the index grid is read evenly, nothing written") {
  const Scratch scratch;
  const StreamInfo info = kernels::record("xsbench", small(scratch.file("x.tts")));
  const Reader reader{scratch.file("x.tts")};
  reader.verify();
  CHECK_EQ(info.operations, 500u * 34);
  // 4 N^2 g, 48 N g and 8 N g bytes.
  CHECK_EQ(object(info, "xsbench.index_grid").pages, 355u * 355 * 32 * 4 / 4096 + 1);
  CHECK_EQ(object(info, "xsbench.nuclide_grid").pages, 355u * 48 * 32 / 4096 + 1);
  CHECK_EQ(object(info, "xsbench.energy_grid").pages, 355u * 8 * 32 / 4096 + 1);
  double all = 0;
  for (const Object& each : info.objects)
    if (each.site != "qsort.buffer") all += accesses(reader, each.site);
  // MEMTIS, §6.2.2: "a very skewed hot memory region allocated at an early stage".
  CHECK_EQ(object(info, "xsbench.nuclide_grid").first_page, 0u);
  CHECK(accesses(reader, "xsbench.nuclide_grid") / all > 0.85);
  CHECK_NEAR(accesses(reader, "xsbench.index_grid") / all, 0.044, 0.01);
  CHECK_EQ(accesses(reader, "qsort.buffer"), 0.0);
  // From Good to Great, §4.2: "Rest of the pages are randomly accessed and have very similar access
  // counts". The tenth of the index grid's pages that is read most gets 22 % of its reads, since
  // the gaps between random energies vary; 30 % in this short run. A skewed tenth would get most.
  const Object& index = object(info, "xsbench.index_grid");
  const auto pages = reader.page_totals().subspan(index.first_page, index.pages);
  std::vector<std::uint64_t> counts(pages.begin(), pages.end());
  std::ranges::sort(counts, std::greater{});
  const auto tenth = counts.begin() + static_cast<std::ptrdiff_t>(counts.size() / 10);
  CHECK_NEAR(std::accumulate(counts.begin(), tenth, 0.0) / accesses(reader, index.site), 0.28,
             0.06);
  CHECK(std::ranges::count(counts, 0u) < 400);  // of 3,939, at 4.3 lookups per page
  for (std::uint32_t stream_class = 0; stream_class < info.classes.size(); ++stream_class)
    CHECK_EQ(per_lookup(reader, stream_class, AccessKind::store), 0.0);
  // 56 nuclides of two to three lines each (48-byte points: 2.25 on average).
  CHECK_NEAR(per_lookup(reader, 2, AccessKind::load), 56 * 2.25, 8);
}

TEST("xsbench: the upper levels of the binary search stay in the cache") {
  const Scratch scratch;
  auto request = small(scratch.file("x.tts"));
  (void)kernels::record("xsbench", request);
  const double searched = per_lookup(Reader{request.file}, 0, AccessKind::load);
  // 13.5 levels of 355 x 32 energies, of which the last three share a line.
  CHECK(searched > 4 && searched < 11);
  request.llc_bytes *= 16;
  (void)kernels::record("xsbench", request);
  CHECK(per_lookup(Reader{request.file}, 0, AccessKind::load) < searched - 2);
}

TEST("xsbench: every parameter shows") {
  const Scratch scratch;
  const auto with = [&](const char* name, kernels::Value value) {
    auto request = small(scratch.file("x.tts"));
    request.parameters["particles_m"] = 0.2;
    request.parameters[name] = std::move(value);
    return kernels::record("xsbench", request);
  };
  const StreamInfo usual = with("block_ms", 50.0);
  CHECK(with("block_ms", 5.0).blocks > 2 * usual.blocks);
  CHECK(with("nuclides", std::int64_t{68}).pages < usual.pages / 20);
  CHECK_NEAR(
      static_cast<double>(with("gridpoints", 65000.0).pages) / static_cast<double>(usual.pages),
      0.5, 0.01);
  CHECK_EQ(with("particles_m", 0.4).operations, 2 * usual.operations);
  CHECK_EQ(with("lookups_per_particle", std::int64_t{17}).operations, usual.operations / 2);
  CHECK_THROWS(with("nuclides", std::int64_t{67}), "nuclides: found 67, allowed 68 to 355");
  CHECK_THROWS(with("gridpoints", 4000.0), "gridpoints: fewer than 2 per nuclide at scale 4000");
  CHECK_THROWS(with("lookups_per_particle", std::int64_t{0}), "lookups_per_particle: found 0");
}
