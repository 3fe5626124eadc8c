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
      {"bc", 0x38259dd6f3ba5ac4, 131072, graph},
      {"bfs", 0x6d620c9d8bb497f8, 131072, graph},
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
      {"cc", 0x3a25a0be971f7bfe, 131072, graph},
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
      {"graph500", 0x4993dc6090cec4a2, 131072, {{"keys", Int{2}}}},
      {"gups", 0x416b115ebfb4b090, 1024, {{"updates_g", 0.1}}},
      {"liblinear", 0xe60a90d637537da3, 32768, {}},
      {"microbench",
       0xd6b8b6bbfd18d151,
       256,
       {{"sequential_loads_g", 0.26}, {"chase_loads_g", 0.04}}},
      {"pr", 0x4c398b3aa3716991, 131072, graph},
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
      {"sssp", 0x9152e0a84ad40c56, 131072, graph},
      {"tc", 0x8a317076f4ffd428, 131072, graph},
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
    {"all-fast", false, 0x4608d85cb1937e91},    {"all-slow", false, 0x363775e2de760cb0},
    {"first-touch", false, 0xe9e58e4889309502}, {"freqtier", false, 0x2f3943226be6a4a2},
    {"freqtier", true, 0x136ddd4fafaeb0a0},     {"hemem", false, 0x76b095bc58d36e8},
    {"hemem", true, 0x7a2fbda3f1ad142a},        {"hybridtier", false, 0x6b9fe5241f415bc0},
    {"hybridtier", true, 0xf812f358b883dcc7},   {"static-hot", false, 0x36c77f3d5130e284},
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
