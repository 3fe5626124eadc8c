// SPDX-License-Identifier: MIT

// MEMTIS on mixed page sizes: huge pages are split where base pages are worth more, and only there.
#include <map>
#include <string>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "sim/simulate.hpp"
#include "sim_streams.hpp"

using namespace tt;
using namespace tt::sim;
using simtest::StreamWriter;
using simtest::TempStream;

namespace {

constexpr std::uint32_t unit = 512;

/// 64 units of which a thirty-second of the pages gets nearly all accesses: two of each 64 units,
/// or sixteen pages of each unit. The fast tier holds eight units. With `compute_ms` the
/// application has so much to compute in each block that its speed hardly depends on where pages
/// are.
void write_hot(const TempStream& file, bool strewn, double scale = 16, double compute_ms = 0) {
  constexpr std::uint32_t pages = 64 * unit;
  StreamWriter writer{file, simtest::one_class(pages, scale)};
  simtest::map_and_touch(writer, 0, pages);
  writer.block(false, 1);
  Rng rng{3};
  std::vector<bool> hot(pages);
  for (std::uint32_t u = 0; u < 64; ++u)
    for (int n = 0; strewn && n < 16;) {
      const auto page = static_cast<std::uint32_t>(u * unit + rng.below(unit));
      if (!hot[page]) ++n;
      hot[page] = true;
    }
  for (std::uint32_t page = 40 * unit; !strewn && page < 42 * unit; ++page) hot[page] = true;
  for (std::uint32_t b = 0; b < 400; ++b) {
    simtest::Part part;
    for (std::uint32_t page = 0; page < pages; ++page) {
      if (!hot[page] && page % 16 != b % 16) continue;
      part.pages.push_back(page);
      part.counts.push_back(hot[page] ? 50 : 1);
    }
    writer.parts.push_back(std::move(part));
    writer.compute()[0] = compute_ms * 1e6 * 4 / scale;  // four threads
    writer.block(true, 50e6);
  }
  writer.finish();
}

RunResult memtis(TempStream& stream, bool split) {
  const double scale = stream.reader().info().scale;
  const KnobMap knobs{
      {"split", split}, {"adaptation_period", 5e3 * scale}, {"cooling_period", 2e4 * scale}};
  return simulate(stream.reader(), simtest::plain_machine(), policy("memtis"), knobs,
                  {.fast_share = 1.0 / 8, .page_bytes = 4096, .mixed = true, .coarse = true});
}

}  // namespace

TEST("memtis: splits huge pages whose hot subpages are strewn, and gains by it") {
  TempStream stream;
  write_hot(stream, true);
  const RunResult with = memtis(stream, true), without = memtis(stream, false);
  CHECK_NEAR(without.metrics.at("units_split"), 0, 0);
  CHECK_NEAR(without.metrics.at("huge_share"), 1, 0);
  CHECK(with.metrics.at("units_split") > 32);
  CHECK(without.metrics.at("fast_hit_ratio") < 0.3);
  CHECK(with.metrics.at("fast_hit_ratio") > 0.6);
  CHECK(with.seconds < 0.8 * without.seconds);
}

TEST("memtis: splits none where whole huge pages are hot") {
  TempStream stream;
  write_hot(stream, false);
  const RunResult with = memtis(stream, true), without = memtis(stream, false);
  CHECK_NEAR(with.metrics.at("units_split"), 0, 0);
  CHECK_NEAR(with.seconds, without.seconds, 0);
  CHECK(with.metrics.at("fast_hit_ratio") > 0.9);
}

TEST("memtis: splits as many huge pages, and gains as much, whatever the miniature's scale") {
  // Each simulated page has the accesses of a real one, whatever R is; what computes is the same.
  for (const bool strewn : {true, false}) {
    std::vector<double> split, hits;
    for (const double scale : {1.0, 2.0, 4.0}) {
      TempStream stream;
      write_hot(stream, strewn, scale, 50);
      const RunResult result = memtis(stream, true);
      split.push_back(result.metrics.at("units_split") / scale);
      hits.push_back(result.metrics.at("fast_hit_ratio"));
    }
    for (std::size_t i = 1; i < split.size(); ++i) {
      CHECK_NEAR(split[i], split[0], 0.1 * split[0]);
      CHECK_NEAR(hits[i], hits[0], 0.05);
    }
    CHECK_EQ(split[0] > 32, strewn);
    CHECK_EQ(split[0] == 0, !strewn);
  }
}
