// SPDX-License-Identifier: MIT

// redis: GET and SET of 1 KB records under YCSB's mixes (Cooper et al., SoCC'10; public source
// brianfrankcooper/YCSB, core workloads A, B, C, D and F; E scans, which strings cannot).
//
// Redis runs commands on one thread. Several threads are several instances, each with its share of
// the keys and a heap of its own, as a cluster on one machine; a key belongs to the instance that
// its hash says. Instances are independent, so they are one lane of as many threads.
//
// Keys are drawn as YCSB draws them. Zipfian: rank by Zipf's law over 10^10 items, hashed to the
// records (ScrambledZipfianGenerator), so that popular records lie anywhere and everything beyond
// the head is nearly uniform. Latest: Zipf's law over the records counted from the newest. The
// miniature draws full-scale ranks and divides them by R: one of its records stands for R of
// neighbouring ranks, with their share of the operations.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/rng.hpp"
#include "kernels/distributions.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"
#include "kernels/redis_store.hpp"

namespace tt::kernels {
namespace {

enum Class : std::uint32_t { value, chain, update };
enum Kind : std::uint32_t { get, set };

constexpr double ycsb_items = 1e10;  // ScrambledZipfianGenerator.ITEM_COUNT

// databasesCron: 1 ms of every 100 moves entries, at some 150 ns a bucket (estimate).
constexpr double cron_period_s = 0.1;
constexpr double cron_buckets = 1e6 / 150;
constexpr double cron_bucket_ns = 150;

/// FNV-1a of the number's bytes, YCSB's Utils.fnvhash64.
std::uint64_t fnv(std::uint64_t number) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (int byte = 0; byte < 8; ++byte, number >>= 8)
    hash = (hash ^ (number & 0xff)) * 1099511628211ULL;
  return hash & ~(std::uint64_t{1} << 63);  // YCSB takes the absolute value
}

/// "user" and the hash of the record's number: records are inserted in no order of keys.
class Key {
 public:
  explicit Key(std::uint64_t record) {
    std::memcpy(text_.data(), "user", 4);
    end_ = std::to_chars(text_.data() + 4, text_.data() + text_.size(), fnv(record)).ptr;
  }
  operator std::string_view() const { return {text_.data(), end_}; }

 private:
  std::array<char, 24> text_;
  char* end_;
};

trace::StreamInfo record_redis(const RecordRequest& request) {
  const ParameterReader read{request};
  auto records = static_cast<std::uint64_t>(read.positive("records_m") * 1e6 / request.scale);
  read.require(records >= 100, "records_m",
               "fewer than 100 records at scale " + ParameterReader::text(request.scale));
  const auto instances = static_cast<std::size_t>(read.number("instances", 1, 1024));
  const auto value_bytes = static_cast<std::size_t>(read.number("value_bytes", 8, 1 << 20));
  const double exponent = read.number("zipf_exponent", 0, 4);
  const auto& distribution = read.text_value("distribution");
  read.require(distribution == "zipfian" || distribution == "latest" || distribution == "uniform",
               "distribution", "found '" + distribution + "', allowed zipfian, latest, uniform");
  const double update_share = read.number("update_share", 0, 1);
  const double insert_share = read.number("insert_share", 0, 1);
  const double modify_share = read.number("modify_share", 0, 1);
  read.require(update_share + insert_share + modify_share <= 1, "modify_share",
               "more than 1 with update_share and insert_share");
  const double command_ns = read.number("command_ns");
  const double loop_ns = read.number("loop_ns");
  const double duration_s = read.positive("duration_s");

  trace::StreamInfo info = describe(request);
  info.lanes = {{"instances", 1}};
  // Value: sequential bytes. The prefetchers keep a core's 10 to 12 line buffers nearly full but
  // start again at every page: 9 lines on average (estimate), copied in some 2 ns each. Chain:
  // bucket, entry, key, object, each address from the line before, one command at a time: MLP 1.
  // Update: stores, buffered and drained side by side.
  info.classes = {{"value", 9, 2}, {"chain", 1, 0}, {"update", 10, 0}};
  info.op_kinds = {{"get"}, {"set"}};
  trace::Recorder recorder{request.file, info, recorder_options(request)};

  RedisMemory memory{recorder};
  std::vector<std::unique_ptr<RedisStore>> stores;
  for (std::size_t i = 0; i < instances; ++i)
    stores.push_back(std::make_unique<RedisStore>(memory, RedisClasses{chain, value, update},
                                                  mix64(request.seed) + 2 * i));
  const auto store_of = [&](std::uint64_t record) -> RedisStore& {
    return *stores[mix64(record) % instances];
  };

  // A value is its record's number and that of the command that wrote it, over and over.
  std::vector<std::byte> content(value_bytes);
  std::uint64_t commands = 0;
  const auto run = [&](Kind kind, std::uint64_t record) {
    RedisStore& store = store_of(record);
    const Key key{record};
    if (kind == set) {
      const std::uint64_t stamp = mix64(record) ^ commands;
      for (std::size_t at = 0; at + 8 <= value_bytes; at += 8)
        std::memcpy(content.data() + at, &stamp, 8);
    }
    ++commands;
    recorder.begin_operation(kind);
    recorder.compute(0, command_ns);
    if (kind == get)
      (void)store.get(key);
    else
      (void)store.set(key, content);
    recorder.end_operation();
    store.release();
    recorder.compute(0, loop_ns);
  };

  // A timer event of all instances: their threads' time.
  double next_cron_s = cron_period_s;
  const auto timer = [&] {
    if (recorder.total_seconds() < next_cron_s) return;
    next_cron_s += cron_period_s;
    const auto share = static_cast<std::uint64_t>(std::ceil(cron_buckets / request.scale));
    for (const auto& store : stores) {
      recorder.compute(0, static_cast<double>(store->cron(share)) * cron_bucket_ns);
      store->release();
    }
  };

  Progress progress{request};
  recorder.set_timed(false);
  for (std::uint64_t record = 0; record < records; ++record) {
    run(set, record);
    timer();
  }
  recorder.set_timed(true);

  Rng rng{request.seed};
  const Zipf scrambled{ycsb_items, exponent};
  Zipf latest{static_cast<double>(records) * request.scale, exponent};
  const std::function<std::uint64_t()> draw =
      distribution == "zipfian" ? std::function<std::uint64_t()>{[&] {
        const double rank = static_cast<double>(scrambled.rank(rng));
        return fnv(static_cast<std::uint64_t>(rank / request.scale)) % records;
      }}
      : distribution == "latest"
          ? std::function<std::uint64_t()>{[&] {
              const double rank = static_cast<double>(latest.rank(rng));
              const auto back = static_cast<std::uint64_t>(rank / request.scale);
              return records - 1 - std::min(back, records - 1);
            }}
          : std::function<std::uint64_t()>{[&] { return rng.below(records); }};
  for (;;) {
    const double timed_s = recorder.timed_seconds();
    if (timed_s >= duration_s) break;
    progress.at(timed_s / duration_s);
    timer();
    const double dice = rng.uniform();
    if (dice < insert_share) {
      run(set, records);
      ++records;
      latest = Zipf{static_cast<double>(records) * request.scale, exponent};
      continue;
    }
    const std::uint64_t record = draw();
    if (dice < insert_share + update_share) {
      run(set, record);
    } else {
      run(get, record);
      if (dice < insert_share + update_share + modify_share) run(set, record);
    }
  }
  return recorder.finish();
}

const RegisterKernel registered{
    {"redis",
     "Redis' dict, strings and heap under GET and SET of YCSB's mixes",
     {{"records_m", 16.0, "10^6", "records, inserted first"},
      {"value_bytes", std::int64_t{1000}, "bytes", "size of a value"},
      {"instances", std::int64_t{8}, "count", "servers, each with its share of the keys"},
      {"distribution", std::string{"zipfian"}, "",
       "zipfian (scrambled), latest or uniform: which record a command asks for"},
      {"zipf_exponent", 0.99, "", "of zipfian and latest"},
      {"update_share", 0.05, "share", "operations that SET a record that exists"},
      {"insert_share", 0.0, "share", "operations that SET a new record"},
      {"modify_share", 0.0, "share", "operations that GET a record and then SET it"},
      {"command_ns", 1200.0, "ns", "computation of a command: parsing, dispatch, reply"},
      {"loop_ns", 3000.0, "ns", "event loop and system calls between two commands"},
      {"duration_s", 600.0, "s", "length of the timed part if all memory were fast"},
      block_ms_parameter(20)},
     &record_redis}};

}  // namespace
}  // namespace tt::kernels
