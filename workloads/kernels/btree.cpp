// SPDX-License-Identifier: MIT

// btree: the in-memory index benchmark of MEMTIS and "From Good to Great": pairs are inserted in
// random order, then looked up.
//
// The tree is the benchmark's (btree_index.hpp). Insertion runs on one thread, as there; lookups
// run on all. In a miniature of scale R the tree holds 1/R of the pairs and is lower by log R / log
// 11 levels, about two at R = 64. Those are missing at the top, where a full-size tree's levels are
// in the cache; every level that reaches memory is there, with 1/R of its nodes.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/rng.hpp"
#include "kernels/btree_index.hpp"
#include "kernels/distributions.hpp"
#include "kernels/draws.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"

namespace tt::kernels {
namespace {

enum Lane : std::uint32_t { inserting, looking };
enum Kind : std::uint32_t { insert, lookup };

constexpr std::uint64_t keys_at_once = 32;  // that the host looks for side by side
constexpr double lines_per_operation = 10;  // that are not in the cache; about

trace::StreamInfo record_btree(const RecordRequest& request) {
  const ParameterReader read{request};
  const double keys_full = read.positive("keys_m") * 1e6;
  const auto keys = static_cast<std::uint64_t>(keys_full / request.scale);
  read.require(
      keys >= 100 && keys <= 0xffffffff, "keys_m",
      "fewer than 100 or more than 2^32 keys at scale " + ParameterReader::text(request.scale));
  const auto count = [&](const char* name) {
    return static_cast<std::uint64_t>(read.number(name) * 1e6 / request.scale);
  };
  const std::uint64_t inserts = std::max(count("inserts_m"), keys);
  const std::uint64_t lookups = count("lookups_m");
  const bool insert_timed = std::get<bool>(request.parameters.find("insert_timed")->second);
  const double insert_ns = read.number("insert_ns");
  const double lookup_ns = read.number("lookup_ns");
  const double hit_share = read.number("hit_share", 0, 1);
  const Zipf zipf{keys_full, read.number("zipf", 0, 10)};

  BtreeOptions options;
  options.order = static_cast<std::uint64_t>(read.number("order", 3, 64));
  options.record_bytes = static_cast<std::uint64_t>(read.number("record_bytes", 8, 4096));
  options.array_stride = static_cast<std::uint64_t>(read.number("array_stride", 64, 4096));
  options.slab_bytes = static_cast<std::uint64_t>(read.number("slab_kib", 4, 2048) * 1024);

  trace::StreamInfo info = describe(request);
  // One thread inserts, all look up.
  info.lanes = {{"inserter", 0}, {"lookups", 1}};
  // Dependent: struct, keys, pointer, next struct: each address comes from the line before, and the
  // mispredicted end of every scan keeps the next lookup from starting early: MLP 1. Scan: further
  // lines of an array, which the adjacent-line prefetcher fetches with the first: 4 (estimate).
  // Update: stores to lines just read, buffered and drained side by side. Sequential: clearing.
  info.classes = {{"insert.dependent", 1, 0, inserting}, {"insert.scan", 4, 0, inserting},
                  {"insert.update", 10, 0, inserting},   {"insert.clear", 10, 2, inserting},
                  {"lookup.dependent", 1, 0, looking},   {"lookup.scan", 4, 0, looking}};
  info.op_kinds = {{"insert"}, {"lookup"}};
  trace::Recorder recorder{request.file, info, recorder_options(request)};
  TracedMemory memory{recorder, request.scale};
  BtreeClasses classes{0, 1, 2, 3};
  BtreeIndex tree{options, classes, memory};

  Rng rng{request.seed};
  Progress progress{request};
  const auto total = static_cast<double>(inserts + lookups);
  // Stored keys are even, so that every odd one is missing.
  std::vector<std::uint32_t> order(keys);
  std::iota(order.begin(), order.end(), 0u);
  for (std::uint64_t left = keys; left > 1; --left)
    std::swap(order[left - 1], order[rng.below(left)]);

  recorder.set_timed(insert_timed);
  const auto put = [&](std::uint64_t i) {
    const std::uint64_t key = 2 * std::uint64_t{order[i < keys ? i : rng.below(keys)]};
    if (insert_timed) recorder.begin_operation(insert);
    recorder.compute(inserting, insert_ns);
    (void)tree.insert(key, i);
    if (insert_timed) recorder.end_operation();
    if (i % 16384 == 0) progress.at(static_cast<double>(i) / total);
  };
  // As long as the tree grows, each insertion depends on those before it. Then they replace values.
  std::vector<std::uint64_t> next;
  for (std::uint64_t i = 0; i < keys; ++i) {
    if (i % keys_at_once == 0) {
      next.clear();
      for (std::uint64_t k = i; k < std::min(i + keys_at_once, keys); ++k)
        next.push_back(2 * std::uint64_t{order[k]});
      tree.approach(next);
    }
    put(i);
  }
  const auto bytes = static_cast<double>(memory.mapped_bytes());
  independent_operations(recorder, request, inserts - keys, lines_per_operation, bytes,
                         [&](std::uint64_t i) { put(keys + i); });

  recorder.set_timed(true);
  tree.set_classes({4, 5, 2, 3});
  // Popularity has an order of its own: it has nothing to do with when a key was inserted.
  for (std::uint64_t left = keys; left > 1; --left)
    std::swap(order[left - 1], order[rng.below(left)]);
  independent_operations(
      recorder, request, lookups, lines_per_operation, bytes, [&](std::uint64_t i) {
        const auto rank = static_cast<std::uint64_t>(static_cast<double>(zipf.rank(rng)) /
                                                     keys_full * static_cast<double>(keys));
        const bool hits = rng.uniform() < hit_share;
        const std::uint64_t key = 2 * std::uint64_t{order[rank]} + (hits ? 0 : 1);
        recorder.begin_operation(lookup);
        recorder.compute(looking, lookup_ns);
        (void)tree.find(key);
        recorder.end_operation();
        if (i % 16384 == 0) progress.at(static_cast<double>(inserts + i) / total);
      });
  return recorder.finish();
}

const RegisterKernel registered{
    {"btree",
     "inserts into an in-memory B+ tree, then lookups",
     {{"keys_m", 137.0, "10^6", "different keys, inserted in random order"},
      {"inserts_m", 600.0, "10^6",
       "insertions; those beyond the different keys replace a random key's value"},
      {"lookups_m", 750.0, "10^6", "lookups"},
      {"zipf", 0.0, "exponent",
       "popularity of keys in lookups falls as rank^-exponent; 0: uniform"},
      {"hit_share", 1.0, "share", "lookups for a key that is there"},
      {"insert_timed", true, "", "the insert phase counts toward the objective"},
      {"order", std::int64_t{16}, "count", "most children of a node"},
      {"record_bytes", std::int64_t{16}, "bytes", "size of a record"},
      {"array_stride", std::int64_t{352}, "bytes",
       "heap that an array of keys or pointers takes, with what the allocator wastes"},
      {"slab_kib", 2048.0, "KiB",
       "size of a slab of nodes or records; each takes 2 MiB of "
       "addresses, so that less leaves a part of a huge page empty"},
      {"insert_ns", 150.0, "ns", "computation of an insertion besides memory"},
      {"lookup_ns", 120.0, "ns", "computation of a lookup besides memory"},
      block_ms_parameter(20)},
     &record_btree}};

}  // namespace
}  // namespace tt::kernels
