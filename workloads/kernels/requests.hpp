// SPDX-License-Identifier: MIT

// Requests of a real cache's clients, answered by CacheLib's store (slab_cache.hpp) or by Redis
// (redis_store.hpp): so hits, sets, evictions and the lines touched are those of the store, as a
// stream to be replayed.
//
// Clients ask as fast as they are answered (closed loop), in the trace's order. The trace's clock
// decides when an object expires and when it moves in its LRU list, not when it is asked for.
//
// An operation is what cachebench measures the latency of: a look-up, which reads all of the value
// with touch_value; `set`, which inserts or replaces; `add` and `update`, which look up and write
// a new item if the key is not there, or is; `remove`. With look_aside a client inserts what it
// missed, in its own time, as in cachelib.cpp. An object that has expired is removed when it is
// next asked for. Items above 1 MiB are never inserted (CacheLib would chain several).
//
// With a scale R the requests of one key in R are kept (sampling in space, Waldspurger et al.,
// FAST'15), and memory, buckets and locks are divided by R, as in the kernels' miniatures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "trace/recorder.hpp"

namespace tt::kernels {

/// Redis has no limit of memory, its default: nothing is evicted. Each thread is an instance with
/// keys of its own. A look-up always reads the value, also that of `add` and `update`.
enum class AnsweringStore : std::uint8_t { cachelib, redis };

enum class StoreOperation : std::uint8_t { get, set, add, update, remove };

struct StoreRequest {
  std::uint64_t key = 0;
  std::uint32_t seconds = 0;  // ascending
  std::uint32_t value_bytes = 0;
  std::uint32_t ttl = 0;  // s; 0: none
  std::uint32_t count = 1;
  std::uint16_t key_bytes = 0;
  StoreOperation operation = StoreOperation::get;
};

struct ReplayOptions {
  trace::StreamInfo info;  // workload, input, parameters
  std::filesystem::path file;
  double scale = 1;
  double threads = 16;
  std::uint64_t llc_bytes = 24ull << 20;
  double block_ms = 20;
  double nominal_latency_ns = 90;
  AnsweringStore store = AnsweringStore::cachelib;
  double cache_bytes = 0;  // of CacheLib, for items, full-scale
  double refresh_seconds = 60;
  double op_ns = 0;      // computation within an operation ...
  double client_ns = 0;  // ... and between two
  bool touch_value = true;
  bool populate = true;
  std::optional<bool> look_aside;  // none: if nothing else inserts
  std::uint64_t seed = 0;
  std::function<bool(double)> progress;  // false: StreamInterrupted
};

struct ReplaySummary {
  std::uint64_t requests = 0, keys = 0;  // replayed: those of the miniature
  std::uint64_t gets = 0, hits = 0;
  std::uint64_t sets = 0, adds = 0, updates = 0, removes = 0;
  std::uint64_t removed = 0;  // keys that were there when they were deleted
  std::uint64_t inserted = 0, evicted = 0, expired = 0;
  std::uint64_t too_large = 0;  // insertions of items above 1 MiB
  std::uint64_t no_room = 0;    // insertions into a size class that has got no memory
  std::uint64_t unsized = 0;    // insertions of objects whose size no request says
  std::uint64_t sized = 0;      // look-ups without a size whose object has one elsewhere
  std::uint64_t buckets = 0;    // full-scale
  bool look_aside = false;
};

/// Keeps those of `requests` that are replayed. std::invalid_argument for impossible sizes;
/// StreamInterrupted (kernel.hpp).
trace::StreamInfo replay(std::vector<StoreRequest>& requests, const ReplayOptions& options,
                         ReplaySummary& summary);

}  // namespace tt::kernels
