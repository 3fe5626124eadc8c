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
  static const Parameters graph{{"block_ms", 200.0}, {"duration_s", 1.0}};
  static const std::vector<Stream> all{
      {"bc", 0xd8a094928ae0e895, 131072, graph},
      {"bfs", 0x1c812f914e14aac7, 131072, graph},
      {"btree",
       0xe55d301bb485e44,
       16384,
       {{"inserts_m", 300.0}, {"lookups_m", 300.0}, {"block_ms", 200.0}}},
      {"bwaves",
       0x56d3e53f3d067a85,
       16384,
       {{"cells_per_edge", 400.0}, {"steps", 3.0}, {"tolerance", 1e-3}}},
      {"cachelib",
       0xe95c3a160b80caac,
       8192,
       {{"objects_m", 160.0}, {"slab_kib", 256.0}, {"duration_s", 5.0}}},
      {"cc", 0x3f3e9fe49603e7f7, 131072, graph},
      {"gpt2",
       0x385de5814ab9707c,
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
      {"graph500", 0x6714b828b1b25075, 131072, {{"keys", Int{2}}}},
      {"gups", 0x244ae8d390834d7d, 1024, {{"updates_g", 0.1}}},
      {"liblinear", 0x7d3479cf674c40bf, 32768, {}},
      {"microbench",
       0xd56f91b7e4f3e669,
       256,
       {{"sequential_loads_g", 0.26}, {"chase_loads_g", 0.04}}},
      {"pr", 0xdf4d21a5be5b7deb, 131072, graph},
      {"redis",
       0x4f858d4b0cb7bc39,
       2048,
       {{"instances", Int{2}}, {"duration_s", 5.0}, {"update_share", 0.5}}},
      {"roms", 0x584146ae3c007017, 16384, {{"steps", 2.0}}, 18, false},
      {"silo", 0xf2fbc27257f40a85, 16384, {{"duration_s", 30.0}, {"block_ms", 200.0}}},
      {"silo",
       0xc04b68d8e7e3c4f,
       16384,
       {{"benchmark", std::string{"tpcc"}}, {"warehouses", 12.0}, {"grow_gib", 480.0}}},
      {"sssp", 0xf6c18ddfded6b8bc, 131072, graph},
      {"tc", 0x4f97759f9af6ea6b, 131072, graph},
      {"xgboost", 0x4819e1eccc1853f0, 262144, {{"rounds", 4.0}}},
      {"xsbench", 0xc9e20cb693ded3fe, 4000, {{"nuclides", Int{68}}, {"particles_m", 0.4}}},
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
    {"all-fast", false, 0x4608d85cb1937e91},    {"all-slow", false, 0x363775e2de760cb0},
    {"first-touch", false, 0xe9e58e4889309502}, {"freqtier", false, 0xcfa544c8dae59ae4},
    {"freqtier", true, 0xda3c9a31f819780c},     {"hemem", false, 0x8be1b0ab0597862d},
    {"hemem", true, 0x18b8c8a71ce77bbb},        {"hybridtier", false, 0xae3defa3ce24cd6c},
    {"hybridtier", true, 0x8316264ee1912056},   {"static-hot", false, 0x36c77f3d5130e284},
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
  compare("the synthetic stream", check::hash_of(stream.path()), 0x9f1c16477fbef1fb);
  sim::RunOptions options;
  options.page_bytes = 4096;  // so that there are enough of them to choose from
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
      std::map<std::string, KnobValue, std::less<>> knobs;
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
