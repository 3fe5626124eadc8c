// SPDX-License-Identifier: MIT

// cachelib: the distributions, the generators' tables, and what comes out of a whole run.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <unordered_set>

#include "check.hpp"
#include "core/rng.hpp"
#include "kernels/distributions.hpp"
#include "kernels/kernel.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::kernels;
using namespace tt::trace;
using check::Scratch;

namespace {

constexpr std::array top = {1e-4, 0.01, 0.1, 0.2, 0.5};
constexpr std::array cdn_share = {0.032, 0.139, 0.375, 0.499, 0.698};
constexpr std::array graph_share = {0.214, 0.327, 0.553, 0.674, 0.860};
constexpr std::array quantile = {0.0, 0.1, 0.5, 0.9, 0.99, 1.0};
constexpr std::array cdn_bytes = {1.0, 159.0, 13300.0, 77600.0, 274000.0, 4180000.0};
constexpr std::array graph_bytes = {1.0, 31.0, 63.0, 895.0, 25000.0, 2600000.0};

using List = std::vector<double>;

/// Like the input social-graph, with values up to 250 KB; a fraction of a second.
RecordRequest small(const std::filesystem::path& file) {
  RecordRequest request;
  request.input = "test";
  request.scale = 8192;
  request.threads = 16;
  request.llc_bytes = 24 << 20;
  request.seed = 5;
  request.file = file;
  request.parameters = {{"keys_m", 20.0},
                        {"bucket_power", 28.0},
                        {"generator", std::string{"default"}},
                        {"touch_value", false},
                        {"value_bytes", List{1, 31, 63, 895, 25000, 250000}},
                        {"value_mean", 1420.0},
                        {"lone_get_share", 0.11589},
                        {"op_ns", 400.0},
                        {"client_ns", 1425.0},
                        {"duration_s", 20.0}};
  return request;
}

/// Of a stream's timed part: lines per operation by site, operations, hottest pages.
struct Figures {
  StreamInfo info;
  std::map<std::string, double> loads, stores;  // by site, and "" for all
  std::vector<double> heat;                     // by page
  double touched = 0;                           // pages
  double set_up_operations = 0;
  double operations = 0;

  /// Share of accesses to pages of `site` that its hottest `bytes` (full-scale) get.
  [[nodiscard]] double hit_ratio(double bytes) const {
    std::vector<double> sorted = heat;
    std::ranges::sort(sorted, std::greater{});
    const auto pages = static_cast<std::size_t>(bytes / info.scale / base_page_bytes);
    const double all = std::accumulate(sorted.begin(), sorted.end(), 0.0);
    sorted.resize(std::min(pages, sorted.size()));
    return std::accumulate(sorted.begin(), sorted.end(), 0.0) / all;
  }
};

Figures figures_of(const RecordRequest& request) {
  Figures out;
  out.info = kernels::record("cachelib", request);
  const Reader reader{request.file};
  reader.verify();
  out.heat.resize(out.info.pages);
  std::vector<const std::string*> site(out.info.pages);
  for (const Object& object : out.info.objects)
    for (std::uint64_t page = 0; page < object.pages; ++page)
      site[object.first_page + page] = &object.site;
  Block block;
  for (std::uint64_t i = 0; i < out.info.blocks; ++i) {
    reader.read(i, block);
    for (const Event& event : block.events)
      if (event.type == EventType::touch) out.touched += event.count;
    const double operations =
        std::accumulate(block.operations.begin(), block.operations.end(), 0.0);
    (block.timed ? out.operations : out.set_up_operations) += operations;
    if (!block.timed) continue;
    for (const Segment& segment : block.segments)
      for (std::size_t e = 0; e < segment.pages.size(); ++e) {
        auto& sums = segment.kind == AccessKind::load ? out.loads : out.stores;
        sums[*site[segment.pages[e]]] += segment.counts[e];
        sums[""] += segment.counts[e];
        if (segment.kind == AccessKind::load) out.heat[segment.pages[e]] += segment.counts[e];
      }
  }
  for (auto* sums : {&out.loads, &out.stores})
    for (auto& [name, sum] : *sums) sum /= out.operations;
  return out;
}

}  // namespace

TEST("popularity: every published share is met, and none rises with rank") {
  for (const auto& shares : {cdn_share, graph_share}) {
    const Popularity popularity{top, shares};
    for (std::size_t i = 0; i < top.size(); ++i)
      CHECK_NEAR(popularity.share(top[i]), shares[i], 1e-9);
    constexpr int steps = 10000;
    double previous = 2;
    for (int i = 0; i < steps; ++i) {
      const double share =
          popularity.share((i + 1.0) / steps) - popularity.share(double(i) / steps);
      CHECK(share <= previous * (1 + 1e-6));
      previous = share;
    }
    // Draws: the shares of a million within a fraction of a point.
    Rng rng{1};
    constexpr int draws = 1000000;
    std::array<int, top.size()> hits{};
    for (int i = 0; i < draws; ++i) {
      const double position = popularity.position(rng.uniform());
      CHECK(position >= 0 && position < 1);
      for (std::size_t k = 0; k < top.size(); ++k) hits[k] += position < top[k];
    }
    for (std::size_t k = 0; k < top.size(); ++k)
      CHECK_NEAR(hits[k] / double(draws), shares[k], 0.002);
  }
  const std::array<double, 2> rising = {0.001, 0.9};
  const std::array<double, 2> positions = {0.1, 0.2};
  CHECK_THROWS((Popularity{positions, rising}), "must not");
}

TEST("normal popularity: shares and draws are the normal distribution's") {
  for (const double sigma : {0.00375, 0.1, 0.25, 1.0}) {
    const NormalPopularity popularity{sigma};
    // Both sides of the middle, cut off at the first and the last key.
    const double whole = std::erf(0.5 / sigma / std::sqrt(2.0));
    const auto analytic = [&](double x) {
      return std::erf(x / 2 / sigma / std::sqrt(2.0)) / whole;
    };
    std::array<int, 5> hits{};
    const std::array at = {sigma / 4, sigma, 2 * sigma, 4 * sigma, 0.9};
    Rng rng{3};
    constexpr int draws = 200000;
    for (int i = 0; i < draws; ++i) {
      const double position = popularity.position(rng.uniform());
      CHECK(position >= 0 && position < 1);
      for (std::size_t k = 0; k < at.size(); ++k) hits[k] += position < at[k];
    }
    for (std::size_t k = 0; k < at.size(); ++k) {
      const double share = at[k] < 1 ? analytic(at[k]) : 1;
      CHECK_NEAR(popularity.share(at[k]), share, 1e-6);
      CHECK_NEAR(hits[k] / double(draws), share, 0.004);
    }
    CHECK_EQ(popularity.position(0), 0.0);
    CHECK(popularity.position(std::nextafter(1.0, 0.0)) < 1);
  }
  CHECK_THROWS(NormalPopularity{0}, "above 0");
}

TEST("sizes: every published percentile and the mean are met") {
  const auto mean_of = [](const Sizes& sizes) {
    double sum = 0;
    constexpr int steps = 1000000;
    for (int i = 0; i < steps; ++i) sum += sizes.at((i + 0.5) / steps);
    return sum / steps;
  };
  const Sizes cdn{quantile, cdn_bytes, 33000};
  const Sizes graph{quantile, graph_bytes, 1420};
  for (std::size_t i = 0; i < quantile.size(); ++i) {
    CHECK_NEAR(cdn.at(quantile[i]) / cdn_bytes[i], 1, 1e-9);
    CHECK_NEAR(graph.at(quantile[i]) / graph_bytes[i], 1, 1e-9);
  }
  CHECK_NEAR(mean_of(cdn) / 33000, 1, 0.002);
  CHECK_NEAR(mean_of(graph) / 1420, 1, 0.002);
  CHECK_THROWS((Sizes{quantile, cdn_bytes, 1e7}), "no curve");
}

TEST("churn: half of the popular objects are gone after the half-life") {
  constexpr std::uint32_t objects = 100000;
  const auto popular_now = [](const Ranks& ranks) {
    std::unordered_set<std::uint32_t> set;
    for (int i = 0; i < 10000; ++i) set.insert(ranks.object((i + 0.5) / objects));
    return set;
  };
  const auto staying = [&](const Ranks& ranks) {
    int stays = 0;
    for (const std::uint32_t object : popular_now(ranks)) stays += object < 10000;
    return stays / 10000.0;
  };
  Ranks ranks{objects, 600, 1};
  for (int i = 0; i <= 300; ++i) ranks.advance(i);
  const double halfway = staying(ranks);
  ranks.advance(600);
  CHECK_NEAR(staying(ranks), 0.5, 0.02);
  CHECK(halfway > 0.65 && halfway < 0.75);      // gradual
  CHECK_EQ(popular_now(ranks).size(), 10000u);  // still each object once

  Ranks fixed{objects, 0, 1};
  fixed.advance(1e6);
  CHECK_EQ(staying(fixed), 1.0);
  fixed.shift(0.1, 2.0 / 3);
  CHECK_NEAR(staying(fixed), 1.0 / 3, 0.02);

  // The two halves change places: FreqTier, §VII-D.
  Ranks halves{objects, 0, 1};
  halves.shift(0.5, 1);
  std::unordered_set<std::uint32_t> seen;
  for (std::uint32_t rank = 0; rank < objects; ++rank) {
    const std::uint32_t object = halves.object((rank + 0.5) / objects);
    CHECK_EQ(object >= objects / 2, rank < objects / 2);
    seen.insert(object);
  }
  CHECK_EQ(seen.size(), std::size_t{objects});
}

TEST("cachelib: clients fill the cache before the timed part begins") {
  const Scratch scratch;
  const Figures figures = figures_of(small(scratch.file("a.tts")));
  CHECK_NEAR(figures.info.nominal_seconds, 20, 0.1);
  CHECK_EQ(figures.info.op_kinds[0].name, "get");
  CHECK(figures.set_up_operations > 10000);
  const Object& arena = figures.info.objects.back();
  CHECK_EQ(arena.site, "cachelib.arena");
  CHECK_NEAR(static_cast<double>(arena.pages), 200000.0 * 256 / 8192, 1);
  CHECK(figures.touched > static_cast<double>(figures.info.pages) * 0.9);

  auto request = small(scratch.file("a.tts"));
  request.parameters["warm_up_s"] = 1.0;
  const Figures cold = figures_of(request);
  CHECK(cold.touched < 0.8 * figures.touched);
  CHECK(cold.set_up_operations < 0.1 * figures.set_up_operations);

  request.parameters["preload"] = true;
  request.parameters["warm_up_s"] = 0.0;
  request.parameters["keys_m"] = 100.0;
  const Figures preloaded = figures_of(request);
  CHECK_EQ(preloaded.set_up_operations, 0.0);
  CHECK(preloaded.touched > 0.8 * figures.touched);
}

TEST("cachelib: touch_value and populate decide whether value bytes are touched") {
  const Scratch scratch;
  auto request = small(scratch.file("a.tts"));
  const Figures off = figures_of(request);
  request.parameters["touch_value"] = true;
  const Figures on = figures_of(request);
  // All values but the 12 % of lone GETs: 1,420 bytes are 23 lines on average.
  CHECK_NEAR(on.loads.at("cachelib.arena") - off.loads.at("cachelib.arena"), 0.88 * 23, 3);
  CHECK_NEAR(on.loads.at("cachelib.hash_table"), off.loads.at("cachelib.hash_table"), 0.05);

  request.parameters["touch_value"] = false;
  request.parameters["populate"] = false;
  const Figures unwritten = figures_of(request);
  CHECK_NEAR(off.stores.at("cachelib.arena") - unwritten.stores.at("cachelib.arena"), 0.116 * 23,
             0.7);
}

TEST("cachelib: what the generators read is memory of the application") {
  const Scratch scratch;
  auto request = small(scratch.file("a.tts"));
  const Figures tabled = figures_of(request);
  const auto bytes_of = [](const Figures& figures, std::string_view site) {
    double pages = 0;
    for (const Object& object : figures.info.objects)
      if (object.site == site) pages += static_cast<double>(object.pages);
    return pages * base_page_bytes * figures.info.scale;
  };
  CHECK_NEAR(bytes_of(tabled, "generator.index") / (4.294967295e9 * 4), 1, 0.01);
  CHECK_NEAR(bytes_of(tabled, "generator.requests") / (20e6 * 120), 1, 0.02);
  CHECK_NEAR(bytes_of(tabled, "generator.strings") / (20e6 * 32), 1, 0.06);
  CHECK_NEAR(tabled.loads.at("generator.index"), 1, 0.02);  // a random entry of 17 GB
  CHECK(tabled.loads.at("generator.requests") > 1);         // key pointer, further members
  CHECK(tabled.stores.at("generator.requests") > 0.8);      // the kind of operation
  CHECK(tabled.loads.at("generator.characters") > 0.4);     // of keys above 15 characters
  CHECK(tabled.info.objects.front().site.starts_with("generator."));  // before the cache

  request.parameters["generator"] = std::string{"online"};
  request.scale = 256;  // its tables are small
  request.parameters["duration_s"] = 1.0;
  const Figures online = figures_of(request);
  CHECK_EQ(bytes_of(online, "generator.index"), 0.0);
  CHECK_EQ(bytes_of(online, "generator.requests"), 0.0);
  CHECK_NEAR(bytes_of(online, "generator.size_lists"), 32768 * 24, 4096 * 256);
  CHECK(online.loads.at("generator.key_lengths") > 0);
  CHECK(online.loads.at("") < tabled.loads.at("") - 2);

  request.parameters["generator"] = std::string{"offline"};
  CHECK_THROWS(kernels::record("cachelib", request), "allowed online, default");
  request.parameters["generator"] = std::string{"online"};
  request.parameters["popularity"] = std::string{"zipf"};
  CHECK_THROWS(kernels::record("cachelib", request), "allowed normal, table");
}

TEST("cachelib: the standard deviation decides how much memory is hot") {
  const Scratch scratch;
  auto request = small(scratch.file("a.tts"));
  request.parameters["generator"] = std::string{"online"};
  request.parameters["touch_value"] = true;
  const auto share = [&](double sigma) {
    request.parameters["popularity_sigma_m"] = sigma;
    return figures_of(request).hit_ratio(4e9);
  };
  const double narrow = share(0.5);
  const double wide = share(4.0);
  CHECK(narrow > 0.8);
  CHECK(wide < narrow - 0.25);
}

TEST("cachelib: work does not depend on the scale") {
  const Scratch scratch;
  auto request = small(scratch.file("a.tts"));
  // Without the tail of rare large values, so that few operations suffice.
  request.parameters["value_quantile"] = List{0, 0.9, 1};
  request.parameters["value_bytes"] = List{200, 1500, 2500};
  request.parameters["value_mean"] = 775.0;
  request.parameters["touch_value"] = true;
  request.parameters["duration_s"] = 10.0;
  const auto at = [&](double scale) {
    request.scale = scale;
    return figures_of(request);
  };
  const Figures reference = at(1024);
  for (const double scale : {512.0, 2048.0}) {
    const Figures other = at(scale);
    CHECK_NEAR(other.operations * scale / (reference.operations * 1024), 1, 0.03);
    CHECK_NEAR(other.loads.at("") / reference.loads.at(""), 1, 0.03);
    CHECK_NEAR(other.stores.at("") / reference.stores.at(""), 1, 0.03);
    for (const auto& [site, loads] : reference.loads)
      if (loads > 0.5) CHECK_NEAR(other.loads.at(site) / loads, 1, 0.03);
    CHECK_NEAR(other.hit_ratio(16e9), reference.hit_ratio(16e9), 0.03);
  }
}

TEST("cachelib: set and delete shares are met") {
  const Scratch scratch;
  auto request = small(scratch.file("a.tts"));
  request.parameters["set_share"] = 0.2;
  request.parameters["delete_share"] = 0.1;
  const StreamInfo info = kernels::record("cachelib", request);
  const Reader reader{scratch.file("a.tts")};
  std::array<double, 3> kinds{};
  Block block;
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    if (!block.timed) continue;
    for (std::size_t k = 0; k < 3; ++k) kinds[k] += static_cast<double>(block.operations[k]);
  }
  const double all = kinds[0] + kinds[1] + kinds[2];
  CHECK_NEAR(kinds[0] / all, 0.7, 0.015);
  CHECK_NEAR(kinds[1] / all, 0.2, 0.015);
  CHECK_NEAR(kinds[2] / all, 0.1, 0.015);
  request.parameters["set_share"] = 0.95;
  CHECK_THROWS(kernels::record("cachelib", request), "more than 1 with delete_share");
}

TEST("cachelib: what is hot moves at a shift and by churn, and stays without") {
  const Scratch scratch;
  // Values of several pages, so that a page belongs to one object.
  const auto overlap = [&](double half_life_s, double shift_at_s) {
    auto request = small(scratch.file("a.tts"));
    request.parameters["keys_m"] = 6.0;
    request.parameters["generator"] = std::string{"online"};
    request.parameters["touch_value"] = true;
    request.parameters["popularity"] = std::string{"table"};
    request.parameters["popularity_top"] = List{0.01, 0.1, 0.2, 0.5};
    request.parameters["popularity_share"] = List{0.327, 0.553, 0.674, 0.86};
    request.parameters["preload"] = true;
    request.parameters["warm_up_s"] = 0.0;
    request.parameters["value_bytes"] = List{20000, 20000, 20000, 20000, 20000, 20000};
    request.parameters["value_mean"] = 20000.0;
    request.parameters["lone_get_share"] = 0.0;
    request.parameters["duration_s"] = 120.0;
    request.parameters["churn_half_life_s"] = half_life_s;
    request.parameters["shift_at_s"] = shift_at_s;
    const StreamInfo info = kernels::record("cachelib", request);
    const Reader reader{scratch.file("a.tts")};
    std::array<std::vector<std::pair<double, std::uint32_t>>, 2> heat;
    for (auto& half : heat)
      for (std::uint32_t p = 0; p < info.pages; ++p) half.emplace_back(0, p);
    Block block;
    double time = 0;
    for (std::uint64_t i = 0; i < info.blocks; ++i) {
      reader.read(i, block);
      if (!block.timed) continue;
      for (const Segment& segment : block.segments)
        for (std::size_t e = 0; e < segment.pages.size(); ++e)
          heat[time < 60e9 ? 0 : 1][segment.pages[e]].first += segment.counts[e];
      time += block.nominal_ns;
    }
    std::unordered_set<std::uint32_t> early;
    double both = 0;
    const std::size_t hottest = info.pages / 10;
    for (auto& half : heat) std::ranges::sort(half, std::greater{});
    for (std::size_t i = 0; i < hottest; ++i) early.insert(heat[0][i].second);
    for (std::size_t i = 0; i < hottest; ++i) both += early.contains(heat[1][i].second);
    return both / static_cast<double>(hottest);
  };
  const double steady = overlap(0, 0);
  const double churning = overlap(30, 0);
  const double shifted = overlap(0, 60);
  CHECK(steady > 0.8);
  CHECK(churning < steady - 0.2);
  CHECK(shifted < steady - 0.3);
}
