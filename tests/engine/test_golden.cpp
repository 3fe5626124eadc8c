// SPDX-License-Identifier: MIT

// Golden values: the streams of all kernels and the results of all policies, as numbers that are
// the same on every processor, under every instruction set and with every compiler.
//
// A mismatch prints the value that was found. It is put here when the change that led to it was
// meant to change streams or results; tests/tuner/test_golden.py then has to be told too. A value
// that differs on one machine alone is a defect, and is never put here.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "check.hpp"
#include "core/seam.hpp"
#include "core/types.hpp"
#include "isas.hpp"
#include "kernels/kernel.hpp"
#include "scratch.hpp"
#include "sim/simulate.hpp"
#include "sim_streams.hpp"
#include "trace/reader.hpp"

using namespace tt;
using kernels::Parameters;

namespace {

void compare(const std::string& what, std::uint64_t found, std::uint64_t golden) {
  if (found == golden) return;
  std::ostringstream out;
  out << "golden value of " << what << ": found 0x" << std::hex << found << ", not 0x" << golden;
  check::fail(__FILE__, __LINE__, out.str());
}

// --- Streams -------------------------------------------------------------------------------------

struct Stream {
  const char* kernel;
  std::uint64_t golden;  // of the file, with seed 0
  double scale;
  Parameters parameters;
  double llc_mib = 18;
  bool seeded = true;  // false: the seed sets values, on which no access depends
};

/// Small ones: a fraction of a second each. Together they reach every kernel.
const std::vector<Stream>& streams() {
  using Int = std::int64_t;
  static const Parameters graph{{"block_ms", 200.0}, {"trials", Int{1}}};
  static const std::vector<Stream> all{
      {"bc", 0xd83b924c17972019, 131072, graph},
      {"bfs", 0xf9f5d079b589de42, 131072, graph},
      {"btree",
       0xc7b845cf60e03f55,
       16384,
       {{"inserts_m", 300.0}, {"lookups_m", 300.0}, {"block_ms", 200.0}}},
      {"bwaves",
       0x493f73ff6be68587,
       16384,
       {{"cells_per_edge", 400.0}, {"steps", 3.0}, {"tolerance", 1e-3}}},
      {"cachelib",
       0xa0774e5c3419c7b6,
       8192,
       {{"generator", std::string{"default"}}, {"lone_get_share", 0.1}, {"duration_s", 5.0}}},
      {"cc", 0x92eef1c410058c, 131072, graph},
      {"drift",
       0x14efcfbf7766fbfb,
       4096,
       {{"accesses_g", 0.1}, {"turnover_g", 0.05}, {"block_ms", 100.0}}},
      {"gpt2",
       0x262ca1b92dd67819,
       16,
       {{"layers", Int{4}},
        {"width", Int{256}},
        {"vocabulary", Int{2000}},
        {"context", Int{64}},
        {"batch", Int{8}},
        {"prompt_tokens", Int{16}},
        {"least_tokens", Int{48}},
        {"duration_s", 0.05},
        {"block_ms", 0.5}},
       1},
      {"graph500", 0x7c88014274864f75, 131072, {{"keys", Int{2}}}},
      {"gups", 0x416b115ebfb4b090, 1024, {{"updates_g", 0.1}}},
      {"liblinear", 0xe60a90d637537da3, 32768, {}},
      {"microbench",
       0xed842c3e3a8dc585,
       256,
       {{"sequential_loads_g", 0.26}, {"chase_loads_g", 0.04}}},
      {"pr", 0xbce0cca98dbe30e4, 131072, graph},
      {"redis",
       0x14767b39b8b65570,
       2048,
       {{"instances", Int{2}}, {"duration_s", 5.0}, {"update_share", 0.5}}},
      {"roms", 0x82d40ed502290e6d, 16384, {{"steps", 2.0}}, 18, false},
      {"silo", 0xb0c0f2cb02e8245b, 16384, {{"duration_s", 30.0}, {"block_ms", 200.0}}},
      {"silo",
       0xbe1447db86ef1734,
       16384,
       {{"benchmark", std::string{"tpcc"}}, {"warehouses", 12.0}, {"grow_gib", 480.0}}},
      {"sssp", 0x7d32055a10f2b060, 131072, graph},
      {"tc", 0x19abf97d89e56407, 131072, graph},
      {"xgboost", 0x5414466b94921d6f, 262144, {{"rounds", 4.0}}},
      {"xsbench", 0xafa95e856068bed0, 4000, {{"nuclides", Int{68}}, {"particles_m", 0.4}}},
  };
  return all;
}

// --- Results -------------------------------------------------------------------------------------

struct Simulation {
  const char* policy;
  bool aol;
  std::uint64_t golden;
};

constexpr Simulation simulations[] = {
    {"all-fast", false, 0xdc4a6e5076b97850},    {"all-slow", false, 0xac093c47d1e325df},
    {"arc", false, 0x9def66417eee80a0},         {"arc", true, 0x8e0709a49786ad2e},
    {"arms", false, 0x788c9ca361bf71ee},        {"arms", true, 0x78281e7fba71a2e0},
    {"autonuma", false, 0xccb2773cf68ef063},    {"autonuma", true, 0x190db3a81adaf66e},
    {"autotiering", false, 0x8c7ffee8427d3407}, {"autotiering", true, 0xc0220633c16155f3},
    {"colloid", false, 0x19799920ee8e6dc3},     {"colloid", true, 0xef9e3f2932fc97cf},
    {"damon-goal", false, 0x53fb83baa2d44c66},  {"damon-goal", true, 0xa13751b1fee5bb63},
    {"first-touch", false, 0x4b6392c57979272e}, {"freqtier", false, 0x70d6a23e69289a52},
    {"freqtier", true, 0x18b98bc94085f608},     {"hemem", false, 0xd3319194e6579b2b},
    {"hemem", true, 0xb66006baf81ca5a4},        {"hmsdk", false, 0x2a30daa07093e5ea},
    {"hmsdk", true, 0xa7e23c14878a5120},        {"hybridtier", false, 0x74a3e078c7d8412},
    {"hybridtier", true, 0xf5bc53bbd0101fa4},   {"memtis", false, 0xf822552f0623b742},
    {"memtis", true, 0xda7e3f8c4be8a978},       {"multiclock", false, 0x39a2fe738cbe9ed2},
    {"multiclock", true, 0x7ee48dab3c93ccd8},   {"nbt", false, 0xaefd4b331dd23df7},
    {"nbt", true, 0x8ee0c3f0f9a54d3d},          {"nimble", false, 0xad9ac8e7205fa5e7},
    {"nimble", true, 0x74a6d647583083d},        {"nomad", false, 0x88e7b472fd318a4c},
    {"nomad", true, 0x8ec0a5a07084e3ab},        {"offline-optimal", false, 0xb5ff30fa9778b981},
    {"pact", false, 0xef327063a4807d56},        {"pact", true, 0x228437ff04daf055},
    {"pghot", false, 0xbbd79eed1f044c24},       {"pghot", true, 0xfbb9844d753d73f8},
    {"soar", false, 0x565b8b5849ef12d8},        {"static-hot", false, 0x333d49d60a5c2938},
    {"tpp", false, 0x118f6b7a1df93385},         {"tpp", true, 0x8bfc454ad3f1104a},
    {"twoq", false, 0x3fd1936e04360a47},        {"twoq", true, 0x1a05ee14f73e7c1},
    {"unified", false, 0x724d5008139f8667},     {"unified", true, 0x20682f764acedf24},
};

bool has_aol(const PolicyInfo& policy) {
  return std::ranges::find(policy.knobs, "aol.enabled", &KnobDecl::name) != policy.knobs.end();
}

/// Every name and every bit of a result.
std::uint64_t hash_of(const sim::RunResult& result) {
  std::uint64_t sum = 0;
  const auto value = [&](double each) {
    sum = mix64(sum ^ std::bit_cast<std::uint64_t>(each)) + 1;
  };
  const auto name = [&](const std::string& text) {
    sum = mix64(sum ^ trace::checksum(std::as_bytes(std::span{text})));
  };
  for (const double each : {result.seconds, result.total_seconds, result.operations}) value(each);
  for (const auto& [kind, latency] : result.latency) {
    name(kind);
    value(static_cast<double>(latency.operations));
    for (const double each : {latency.mean, latency.p50, latency.p90, latency.p99, latency.p999})
      value(each);
  }
  for (const auto* sums : {&result.metrics, &result.breakdown})
    for (const auto& [key, each] : *sums) {
      name(key);
      value(each);
    }
  for (const auto& [key, column] : result.series) {
    name(key);
    for (const double each : column) value(each);
  }
  return sum;
}

}  // namespace

TEST("golden: every kernel's stream; another seed, another stream") {
  const check::Scratch scratch;
  std::set<std::string> reached;
  for (const Stream& stream : streams()) {
    reached.insert(stream.kernel);
    kernels::RecordRequest request;
    request.input = "test";
    request.parameters = stream.parameters;
    request.scale = stream.scale;
    request.threads = 12;
    request.llc_bytes = stream.llc_mib * (1 << 20);
    request.file = scratch.file("golden.tts");
    const auto totals = [&](std::uint64_t seed) {
      request.seed = seed;
      (void)kernels::record(stream.kernel, request);
      const trace::Reader reader{request.file};
      return std::vector(reader.page_totals().begin(), reader.page_totals().end());
    };
    if ((totals(0) != totals(1)) != stream.seeded)
      check::fail(__FILE__, __LINE__, std::string("effect of the seed on ") + stream.kernel);
    check::on_each_isa([&] {
      (void)totals(0);
      compare(stream.kernel, check::hash_of(request.file), stream.golden);
    });
  }
  for (const auto& kernel : kernels::kernels())
    if (!reached.contains(kernel.name))
      check::fail(__FILE__, __LINE__, "no golden stream of kernel " + kernel.name);
}

TEST("golden: every policy's result, with and without AOL") {
  simtest::TempStream stream;
  simtest::write_zipf(stream, {.full_pages = 1 << 14,
                               .scale = 64,
                               .exponent = 0.9,
                               .rate = 100e6,
                               .seconds = 8,
                               .drift_seconds = 10,
                               .seed = 7});
  compare("the synthetic stream", check::hash_of(stream.path()), 0x68258b08212d838a);
  sim::RunOptions options;
  options.page_bytes = 4096;  // so that there are enough of them to choose from
  options.coarse = true;      // 28 in the fast tier
  std::size_t compared = 0;
  for (const PolicyInfo& policy : policies())
    for (const bool aol : {false, true}) {
      if (aol && !has_aol(policy)) continue;
      const auto golden = std::ranges::find_if(simulations, [&](const Simulation& each) {
        return each.policy == policy.name && each.aol == aol;
      });
      const std::string what = policy.name + (aol ? " with AOL" : "");
      if (golden == std::end(simulations)) {
        check::fail(__FILE__, __LINE__, "no golden result of " + what);
        continue;
      }
      ++compared;
      KnobMap knobs;
      // Limits between which this stream's AOL is.
      if (aol) knobs = {{"aol.enabled", true}, {"aol.low", 100.0}, {"aol.high", 200.0}};
      check::on_each_isa([&] {
        const auto result =
            sim::simulate(stream.reader(), simtest::full_machine(), policy, knobs, options);
        compare(what, hash_of(result), golden->golden);
      });
    }
  CHECK_EQ(compared, std::size(simulations));
}
