// SPDX-License-Identifier: MIT

// Traces of caches: which keys a server's clients asked for, and how large the objects are. What a
// request touches is not in them; kernels/requests.hpp has a store that answers them.
//
// Three layouts are told apart by themselves:
//  - oracleGeneral, libCacheSim's binary records of 24 bytes: u32 seconds, u64 object, u32 bytes,
//    i64 number of the object's next request (1a1a11a/libCacheSim, oracleGeneralBin.h);
//  - Twitter's seven columns without a heading (twitter/cache-trace): seconds, key, bytes of the
//    key, bytes of the value, client, operation, TTL in seconds;
//  - a table with a heading, as Meta's kvcache traces have (key, op, size, op_count, key_size, ttl)
//    and libCacheSim's CSV may have. `columns` names those of a table without a heading.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "record/import.hpp"

namespace tt::record {

/// `update`: of what is there (replace, cas, append, incr, ...); `add`: only what is not there.
enum class CacheOperation : std::uint8_t { get, set, add, update, remove };

struct CacheRequest {
  std::uint64_t key = 0;      // the same for the same key
  std::uint32_t seconds = 0;  // since the first request; 0 where the trace has no times
  std::uint32_t value_bytes = 0;
  std::uint32_t ttl = 0;    // s; 0: none
  std::uint32_t count = 1;  // so many alike
  std::uint16_t key_bytes = 0;
  CacheOperation operation = CacheOperation::get;
};

struct RequestSummary {
  std::uint64_t lines = 0;     // or records
  std::uint64_t requests = 0;  // rows, each with its count
  std::uint64_t unknown = 0;   // rows with an operation that no store has, left out
  std::string unknown_name;    // the first one
  std::uint64_t empty = 0;     // rows with a count of 0, left out
  std::uint64_t late = 0;      // rows with a time before an earlier row's, which counts
  std::uint64_t with_ttl = 0;  // requests
  std::uint32_t seconds = 0;   // from the first request to the last
  bool times = false;          // whether the trace has any
  bool key_sizes = false;      // likewise; else a key is as long as its text
  bool operations = false;     // likewise; else all are look-ups
  std::string layout;
  std::vector<std::string> unused;  // columns
};

/// Reads all of `source` (called `name` in messages), and gives `to` each row. `columns`: time,
/// key, size, key_size, op, ttl, count and - (unused), with commas; empty: as the trace says.
/// ImportError names the line that is not understood.
void read_requests(const ImportSource& source, const std::string& name, const std::string& columns,
                   RequestSummary& summary, const std::function<void(const CacheRequest&)>& to);

}  // namespace tt::record
