// SPDX-License-Identifier: MIT

// Golden values: the streams of all kernels and the results of all policies, as numbers that are
// the same on every processor, under every instruction set and with every compiler.
//
// They are in data/golden.txt. `make golden` writes them, and those of tests/tuner/test_golden.py,
// when a change was meant to change streams or results, or has added a policy or a kernel. A value
// that differs on one machine alone is a defect, and is never put there.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
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

constexpr const char* FILE_OF_VALUES = TT_TEST_DATA "/golden.txt";
using Values = std::map<std::string, std::uint64_t>;  // by kind and name

Values read() {
  Values found;
  std::ifstream file{FILE_OF_VALUES};
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    const auto end = line.rfind(' ');
    found[line.substr(0, end)] = std::stoull(line.substr(end + 1), nullptr, 16);
  }
  return found;
}

void write(const Values& values) {
  std::ofstream file{FILE_OF_VALUES};
  file << "# SPDX-License-Identifier: MIT\n"
          "# Golden values of tests/engine/test_golden.cpp, which `make golden` writes.\n";
  for (const auto& [key, value] : values)
    file << key << ' ' << std::hex << std::setw(16) << std::setfill('0') << value << '\n';
  if (!file.flush()) check::fail(__FILE__, __LINE__, "cannot write the golden values");
}

/// Those of a kind: of streams, or of results.
class Golden {
 public:
  explicit Golden(const char* kind) : kind_{std::string{kind} + ' '}, known_{read()} {
    if (writing_) std::erase_if(known_, [&](const auto& each) { return is_mine(each.first); });
  }
  void compare(const std::string& name, std::uint64_t found) {
    const std::string key = kind_ + name;
    if (writing_) known_.emplace(key, found);  // another instruction set must not differ
    seen_.insert(key);
    const auto golden = known_.find(key);
    std::ostringstream out;
    if (golden == known_.end()) {
      out << "no golden value of " << key << "; `make golden` writes it";
    } else if (golden->second != found) {
      out << "golden value of " << key << ": found 0x" << std::hex << found << ", not 0x"
          << golden->second;
    } else {
      return;
    }
    check::fail(__FILE__, __LINE__, out.str());
  }
  void finish() {
    for (const auto& [key, value] : known_)
      if (is_mine(key) && !seen_.contains(key))
        check::fail(__FILE__, __LINE__, "there is no " + key + "; `make golden` forgets its value");
    if (writing_) write(known_);
  }

 private:
  [[nodiscard]] bool is_mine(const std::string& key) const { return key.starts_with(kind_); }

  const bool writing_ = std::getenv("TIERTUNE_GOLDEN") != nullptr;
  const std::string kind_;
  Values known_;
  std::set<std::string> seen_;
};

// --- Streams -------------------------------------------------------------------------------------

struct Stream {
  const char* kernel;
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
      {"bc", 131072, graph},
      {"bfs", 131072, graph},
      {"btree", 16384, {{"inserts_m", 300.0}, {"lookups_m", 300.0}, {"block_ms", 200.0}}},
      {"bwaves", 16384, {{"cells_per_edge", 400.0}, {"steps", 3.0}, {"tolerance", 1e-3}}},
      {"cachelib",
       8192,
       {{"generator", std::string{"default"}}, {"lone_get_share", 0.1}, {"duration_s", 5.0}}},
      {"cc", 131072, graph},
      {"drift", 4096, {{"accesses_g", 0.1}, {"turnover_g", 0.05}, {"block_ms", 100.0}}},
      {"gpt2",
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
      {"graph500", 131072, {{"keys", Int{2}}}},
      {"gups", 1024, {{"updates_g", 0.1}}},
      {"liblinear", 32768, {}},
      {"microbench", 256, {{"sequential_loads_g", 0.26}, {"chase_loads_g", 0.04}}},
      {"pr", 131072, graph},
      {"redis", 2048, {{"instances", Int{2}}, {"duration_s", 5.0}, {"update_share", 0.5}}},
      {"roms", 16384, {{"steps", 2.0}}, 18, false},
      {"silo", 16384, {{"duration_s", 30.0}, {"block_ms", 200.0}}},
      {"silo",
       16384,
       {{"benchmark", std::string{"tpcc"}}, {"warehouses", 12.0}, {"grow_gib", 480.0}}},
      {"sssp", 131072, graph},
      {"tc", 131072, graph},
      {"xgboost", 262144, {{"rounds", 4.0}}},
      {"xsbench", 4000, {{"nuclides", Int{68}}, {"particles_m", 0.4}}},
  };
  return all;
}

// --- Results -------------------------------------------------------------------------------------

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
  Golden golden{"stream"};
  std::map<std::string, unsigned> reached;
  for (const Stream& stream : streams()) {
    const unsigned turn = ++reached[stream.kernel];
    const std::string name = stream.kernel + (turn > 1 ? ' ' + std::to_string(turn) : "");
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
      golden.compare(name, check::hash_of(request.file));
    });
  }
  for (const auto& kernel : kernels::kernels())
    if (!reached.contains(kernel.name))
      check::fail(__FILE__, __LINE__, "no small stream of kernel " + kernel.name + " in streams()");
  golden.finish();
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
  Golden golden{"result"};
  golden.compare("of the stream", check::hash_of(stream.path()));
  sim::RunOptions options;
  options.page_bytes = 4096;  // so that there are enough of them to choose from
  options.coarse = true;      // 28 in the fast tier
  for (const PolicyInfo& policy : policies())
    for (const bool aol : {false, true}) {
      if (aol && !has_aol(policy)) continue;
      KnobMap knobs;
      // Limits between which this stream's AOL is.
      if (aol) knobs = {{"aol.enabled", true}, {"aol.low", 100.0}, {"aol.high", 200.0}};
      check::on_each_isa([&] {
        const auto result =
            sim::simulate(stream.reader(), simtest::full_machine(), policy, knobs, options);
        golden.compare(policy.name + (aol ? " with AOL" : ""), hash_of(result));
      });
    }
  golden.finish();
}
