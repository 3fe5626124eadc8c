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
      {"bc", 0xf31d5539350b2ef3, 131072, graph},
      {"bfs", 0x6b437da7c27a53c4, 131072, graph},
      {"btree",
       0x5562232ba24a3a1c,
       16384,
       {{"inserts_m", 300.0}, {"lookups_m", 300.0}, {"block_ms", 200.0}}},
      {"bwaves",
       0x8fd859913468e8a6,
       16384,
       {{"cells_per_edge", 400.0}, {"steps", 3.0}, {"tolerance", 1e-3}}},
      {"cachelib",
       0x972ea60789fe25ae,
       8192,
       {{"generator", std::string{"default"}}, {"lone_get_share", 0.1}, {"duration_s", 5.0}}},
      {"cc", 0xc89081406149d613, 131072, graph},
      {"gpt2",
       0xa23628a5d331cf0e,
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
      {"graph500", 0xe3478994841afe23, 131072, {{"keys", Int{2}}}},
      {"gups", 0xc5cd224c6fe22e2a, 1024, {{"updates_g", 0.1}}},
      {"liblinear", 0x7103eb25493aeebe, 32768, {}},
      {"microbench",
       0x1793ffef79bec80b,
       256,
       {{"sequential_loads_g", 0.26}, {"chase_loads_g", 0.04}}},
      {"pr", 0xe396f36dd512b43f, 131072, graph},
      {"redis",
       0xff6ab9e1074bf5f,
       2048,
       {{"instances", Int{2}}, {"duration_s", 5.0}, {"update_share", 0.5}}},
      {"roms", 0x26a1a35488c8842d, 16384, {{"steps", 2.0}}, 18, false},
      {"silo", 0x37028d31e7fb8a62, 16384, {{"duration_s", 30.0}, {"block_ms", 200.0}}},
      {"silo",
       0xc7a3f139d6ea3e6e,
       16384,
       {{"benchmark", std::string{"tpcc"}}, {"warehouses", 12.0}, {"grow_gib", 480.0}}},
      {"sssp", 0x714293640aba9e74, 131072, graph},
      {"tc", 0x32fe2a537252ab81, 131072, graph},
      {"xgboost", 0x999df4d81e81dcd5, 262144, {{"rounds", 4.0}}},
      {"xsbench", 0xf94ef620820fb397, 4000, {{"nuclides", Int{68}}, {"particles_m", 0.4}}},
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
    {"all-fast", false, 0x51b988330cecf854},    {"all-slow", false, 0x73d8851253802463},
    {"first-touch", false, 0xcea0c59260b2d0d4}, {"freqtier", false, 0x6a85648fe8cadf8b},
    {"freqtier", true, 0x1415b3d047488209},     {"hemem", false, 0x62bfa51f62bcdddf},
    {"hemem", true, 0x931a426782b53a73},        {"hybridtier", false, 0xcdae2e0c6de748fd},
    {"hybridtier", true, 0x616606d6ada34842},   {"static-hot", false, 0xbd875ae2e05ec10c},
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
  compare("the synthetic stream", check::hash_of(stream.path()), 0xadec7a813fdf10b6);
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
