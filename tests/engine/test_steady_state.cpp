// SPDX-License-Identifier: MIT

// Where pages are at first does not matter in the end: of a program that does the same all the
// time, a policy makes as much of the fast tier from one start as from any other. Policies of which
// that is not true are listed with the reason.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

#include "check.hpp"
#include "sim/simulate.hpp"
#include "sim_streams.hpp"

using namespace tt;
using namespace tt::sim;
using simtest::StreamWriter;
using simtest::TempStream;

namespace {

constexpr std::uint32_t pages = 4096, run = 64;  // simulated; as hot or as cold in runs
constexpr double seconds = 4000;                 // nominal
constexpr double fast_share = 1.0 / 4;
constexpr double cold_accesses = 0.0002;  // share of all

/// One run of eight is hot.
bool hot(std::uint32_t page) { return page / run % 8 == 5; }

enum class Start { slow, cold_first, hot_first };

/// The hot pages have nearly all accesses, by a power law; the cold ones share the rest evenly.
/// Each page has its own at a steady rate. All fast memory is taken by what is touched first.
void write_stationary(const TempStream& file, double scale, Start start) {
  trace::StreamInfo info = simtest::one_class(pages, scale, 4, 5);
  info.nominal_seconds = seconds;
  StreamWriter writer{file, info};
  writer.events.push_back({trace::EventType::map, 0, 0, pages});
  for (const bool kind : {start == Start::hot_first, start != Start::hot_first})
    for (std::uint32_t page = 0; page < pages; page += run)
      if (hot(page) == kind) writer.events.push_back({trace::EventType::touch, 0, page, run});
  writer.block(false, 1e6);
  constexpr double block_ms = 500, rate = 50e6;  // full scale, per nominal second
  const double per_block = rate * block_ms / 1e3 / scale;
  constexpr std::uint32_t hot_pages = pages / 8;
  std::vector<double> share(pages, cold_accesses / (pages - hot_pages)), owed(pages);
  double sum = 0;
  for (std::uint32_t n = 0; n < hot_pages; ++n) sum += 1 / std::sqrt(n + 1.0);
  for (std::uint32_t page = 0, n = 0; page < pages; ++page)
    if (hot(page)) share[page] = (1 - cold_accesses) / std::sqrt(n++ * 5 % hot_pages + 1.0) / sum;
  Rng rng{1};
  for (double& part : owed) part = rng.uniform();  // so that pages do not take turns together
  constexpr int blocks = static_cast<int>(seconds * 1e3 / block_ms);
  for (int b = 0; b < blocks; ++b) {
    simtest::Part part;
    for (std::uint32_t page = 0; page < pages; ++page) {
      owed[page] += per_block * share[page];
      const double due = std::floor(owed[page]);
      owed[page] -= due;
      if (due == 0) continue;
      part.pages.push_back(page);
      part.counts.push_back(static_cast<std::uint16_t>(due));
    }
    writer.parts = {part};
    writer.block(true, block_ms * 1e6);
  }
  writer.finish();
}

double end_hits(TempStream& stream, const PolicyInfo& policy, Start start) {
  RunOptions options;
  options.fast_share = fast_share;
  options.page_bytes = 4096;
  options.start_slow = start == Start::slow;
  options.score_after = 0.75;
  options.seed = 1;
  return simulate(stream.reader(), simtest::full_machine(), policy, {}, options)
      .metrics.at("fast_hit_ratio");
}

/// Largest difference of hit ratios that counts as none.
constexpr double tolerance = 0.03;

/// Policies whose steady state depends on the start, or which do not reach it in this time, with
/// the reason. Where it is a knob, the policy settles with the value in brackets.
using Dependent = std::map<std::string_view, std::string_view>;
const Dependent dependent{
    {"autonuma", "demotes nothing: what is in the fast tier stays there"},
    {"autotiering",
     "demotes no page that eight scans found accessed, and a scan of all memory takes two minutes, "
     "in which most cold pages are (scan_period_max = 1000)"},
    {"hemem",
     "halves counts when one page has 18 samples: those that get fewer than 8 until then are all "
     "cold, and stay where they are (read_hot_threshold = 1)"},
    {"hmsdk",
     "tries a cold region once in 30 s, and keeps its pages that were accessed since the last time "
     "(demote_age = 4, or young_filter = false)"},
    {"pact",
     "demotes a page for each that it promotes, also where there is room, and promotes it again"},
};

void check_starts(double scale, Need needs, const Dependent& listed) {
  TempStream cold_first, hot_first;
  write_stationary(cold_first, scale, Start::cold_first);
  write_stationary(hot_first, scale, Start::hot_first);
  // The starts differ as much as can be.
  CHECK(end_hits(cold_first, policy("first-touch"), Start::cold_first) < 0.001);
  CHECK(end_hits(hot_first, policy("first-touch"), Start::hot_first) > 0.999);
  std::size_t found = 0;
  for (const PolicyInfo& policy : policies()) {
    if (!policy.traits.migrates || !includes(policy.traits.needs, needs)) continue;
    const auto [least, most] = std::minmax({end_hits(cold_first, policy, Start::slow),
                                            end_hits(cold_first, policy, Start::cold_first),
                                            end_hits(hot_first, policy, Start::hot_first)});
    const bool settles = most - least <= tolerance;
    const bool excepted = listed.contains(policy.name);
    found += excepted ? 1 : 0;
    if (settles == excepted)
      std::cerr << policy.name << ": hit ratios from " << least << " to " << most
                << (excepted ? "; not to be listed any more\n" : "\n");
    CHECK(settles != excepted);
  }
  CHECK_EQ(found, listed.size());
}

}  // namespace

TEST("steady state: does not depend on where pages are at first") {
  check_starts(256, Need::nothing, dependent);  // 4 GiB
}

TEST("steady state: does not depend on it either where hot pages have few samples") {
  // 128 GiB, 16 of them hot: two million samples, as MEMTIS takes between two coolings, are half a
  // sample of each hot page.
  check_starts(8192, Need::samples,
               {{"arms", "samples one miss in 5,003, and settles within 8,000 s"},
                {"hemem", dependent.at("hemem")},
                {"pact", dependent.at("pact")}});
}
