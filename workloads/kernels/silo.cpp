// SPDX-License-Identifier: MIT

// silo: an in-memory database (silo_store.hpp) under YCSB-C or TPC-C, as MEMTIS and "From Good to
// Great" run it.
//
// ycsb: keys are loaded in ascending order, as Silo's benchmark does, then read one per
// transaction. tpcc: see silo_tpcc.hpp; runs until its insertions have grown the database to the
// given size.
//
// Popularity is that of the full population (Zipf in distributions.hpp): a key of the miniature
// stands for R of neighbouring ranks. Its trees are lower by log R / log 16 levels, two at R = 256;
// what is missing are upper levels, which are in the cache at full size too.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/rng.hpp"
#include "kernels/distributions.hpp"
#include "kernels/draws.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"
#include "kernels/silo_store.hpp"
#include "kernels/silo_tpcc.hpp"

namespace tt::kernels {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024;
constexpr double epoch_s = 0.04;  // Silo (SOSP'13), §4.1

enum Class : std::uint32_t { node, record, update };

constexpr int reads_at_once = 16;  // between two looks at the time

/// Lets epochs pass at their nominal times.
class Epochs {
 public:
  Epochs(SiloStore& store, trace::Recorder& recorder) : store_(store), recorder_(recorder) {}
  void pass() {
    while (recorder_.total_seconds() >= next_) {
      store_.advance_epoch();
      next_ += epoch_s;
    }
  }

 private:
  SiloStore& store_;
  trace::Recorder& recorder_;
  double next_ = epoch_s;
};

void run_ycsb(const ParameterReader& read, const RecordRequest& request, SiloStore& store,
              trace::Recorder& recorder) {
  const double keys_full = read.positive("keys_m") * 1e6;
  const auto keys = static_cast<std::uint64_t>(keys_full / request.scale);
  read.require(
      keys >= 100 && keys <= 0xffffffff, "keys_m",
      "fewer than 100 or more than 2^32 keys at scale " + ParameterReader::text(request.scale));
  const auto key_bytes = static_cast<std::size_t>(read.number("key_bytes", 8, 256));
  const auto value_bytes = static_cast<std::size_t>(read.number("value_bytes", 0, 4096));
  const double op_ns = read.number("op_ns");
  const double duration_s = read.positive("duration_s");
  const Zipf zipf{keys_full, read.number("zipf", 0, 10)};
  const bool scrambled = std::get<bool>(request.parameters.find("scrambled")->second);

  SiloStore::Table& table = store.make_table();
  Epochs epochs{store, recorder};
  std::string key(key_bytes, 'k');  // keys differ in their last 8 bytes
  const auto set_key = [&](std::uint64_t number) {
    for (std::size_t i = 0; i < 8; ++i)
      key[key_bytes - 1 - i] = static_cast<char>(number >> 8 * i & 0xff);
  };
  Progress progress{request};
  SiloTransaction transaction{store};
  const std::string value(value_bytes, 'v');
  recorder.set_timed(false);
  for (std::uint64_t i = 0; i < keys; ++i) {
    set_key(i);
    (void)transaction.insert(table, key, value);
    if (i % 100 == 99 || i + 1 == keys) (void)transaction.commit();
    if (i % 16384 == 0) progress.at(0.1 * static_cast<double>(i) / static_cast<double>(keys));
  }
  recorder.set_timed(true);

  Rng rng{request.seed};
  std::vector<std::uint32_t> at_rank(keys);
  std::iota(at_rank.begin(), at_rank.end(), 0u);
  if (scrambled)
    for (std::uint64_t left = keys; left > 1; --left)
      std::swap(at_rank[left - 1], at_rank[rng.below(left)]);
  std::string seen;
  const auto read_some = [&] {
    progress.at(0.1 + 0.9 * recorder.timed_seconds() / duration_s);
    epochs.pass();
    for (int i = 0; i < reads_at_once; ++i) {
      const auto rank = static_cast<std::uint64_t>(static_cast<double>(zipf.rank(rng)) / keys_full *
                                                   static_cast<double>(keys));
      set_key(at_rank[rank]);
      recorder.begin_operation(0);
      recorder.compute(0, op_ns);
      (void)transaction.read(table, key, seen);
      (void)transaction.commit();
      recorder.end_operation();
    }
  };
  // A read fetches some ten lines: two nodes that are not in the cache, and the record.
  independent_operations_until(recorder, request, duration_s, 10 * reads_at_once,
                               static_cast<double>(store.memory().mapped_bytes()), read_some);
}

void run_tpcc(const ParameterReader& read, const RecordRequest& request, SiloStore& store,
              trace::Recorder& recorder) {
  const double full_bytes = read.positive("grow_gib") * gib;
  const double op_ns = read.number("op_ns");
  Progress progress{request};
  Epochs epochs{store, recorder};
  recorder.set_timed(false);
  const double warehouses = read.positive("warehouses") / request.scale;
  Tpcc tpcc{store,
            {static_cast<std::uint32_t>(std::max(std::lround(warehouses), 1l)),
             std::min(warehouses, 1.0), request.seed},
            [&](double fraction) { progress.at(0.05 * fraction); }};
  recorder.set_timed(true);
  const auto size = [&] {
    return static_cast<double>(store.memory().mapped_bytes()) * request.scale;
  };
  const double loaded = size();
  read.require(loaded < full_bytes, "grow_gib",
               "the loaded database takes " + ParameterReader::text(loaded / gib) + " GiB already");
  while (size() < full_bytes) {
    progress.at(0.05 + 0.95 * (size() - loaded) / (full_bytes - loaded));
    epochs.pass();
    const Tpcc::Kind kind = tpcc.draw();
    recorder.begin_operation(kind);
    (void)tpcc.run(kind);
    recorder.compute(0, op_ns * static_cast<double>(tpcc.steps()));
    recorder.end_operation();
  }
}

trace::StreamInfo record_silo(const RecordRequest& request) {
  const ParameterReader read{request};
  const auto& benchmark = std::get<std::string>(request.parameters.find("benchmark")->second);
  read.require(benchmark == "ycsb" || benchmark == "tpcc", "benchmark",
               "found '" + benchmark + "', allowed are ycsb and tpcc");
  trace::StreamInfo info = describe(request);
  info.lanes = {{"workers", 1}};
  // Node: Masstree prefetches a node's four lines side by side before it searches them: 3 on
  // average, since some are in the cache (estimate). Record: header and value, two or more adjacent
  // lines, and links of free lists: 2. Update: stores, buffered and drained side by side.
  info.classes = {{.name = "node", .mlp = 3, .prefetched = 1}, {"record", 2, 0}, {"update", 10, 0}};
  if (benchmark == "ycsb")
    info.op_kinds = {{"read"}};
  else
    info.op_kinds = {{"new_order"}, {"payment"}, {"delivery"}, {"order_status"}, {"stock_level"}};
  trace::Recorder recorder{request.file, info, recorder_options(request)};
  TracedMemory memory{recorder, request.scale};
  SiloStore store{memory, {node, record, update}};
  (benchmark == "ycsb" ? run_ycsb : run_tpcc)(read, request, store, recorder);
  return recorder.finish();
}

const RegisterKernel registered{
    {"silo",
     "an in-memory database with optimistic transactions over Masstrees",
     {{"benchmark", std::string{"ycsb"}, "",
       "ycsb: reads of one table; tpcc: orders of a wholesaler"},
      {"keys_m", 505.0, "10^6", "ycsb: records"},
      {"key_bytes", std::int64_t{8}, "bytes", "ycsb: size of a key; all but the last 8 are alike"},
      {"value_bytes", std::int64_t{100}, "bytes", "ycsb: size of a value"},
      {"zipf", 0.99, "exponent", "ycsb: popularity falls as rank^-exponent; 0: uniform"},
      {"scrambled", true, "", "ycsb: popular keys are anywhere; otherwise the first ones"},
      {"duration_s", 600.0, "s", "ycsb: length of the timed part if all memory were fast"},
      {"warehouses", 12.0, "count", "tpcc: size of the database at first"},
      {"grow_gib", 75.7, "GiB", "tpcc: size at which the run ends"},
      {"op_ns", 450.0, "ns", "computation of an access to a record besides memory"},
      block_ms_parameter(20)},
     &record_silo}};

}  // namespace
}  // namespace tt::kernels
