// SPDX-License-Identifier: MIT

// Traces of caches: what is read of them, and what the store does with it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "check.hpp"
#include "kernels/requests.hpp"
#include "record/requests.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"

using namespace tt;
using check::Scratch;
using kernels::StoreOperation;
using kernels::StoreRequest;

namespace {

struct Read {
  std::vector<record::CacheRequest> requests;
  record::RequestSummary summary;
  std::string error;
};

Read read(std::string_view text, const std::string& columns = "") {
  Read out;
  std::size_t at = 0;
  const auto source = [&](char* buffer, std::size_t size) {
    const std::size_t count = std::min(std::min<std::size_t>(size, 11), text.size() - at);
    text.copy(buffer, count, at);
    at += count;
    return count;
  };
  try {
    record::read_requests(source, "t", columns, out.summary,
                          [&](const auto& request) { out.requests.push_back(request); });
  } catch (const record::ImportError& error) {
    out.error = error.what();
  }
  return out;
}

struct Played {
  kernels::ReplaySummary summary;
  trace::StreamInfo info;
  std::map<std::uint32_t, std::uint64_t> pages;  // accesses in the timed part
};

Played replay(std::vector<StoreRequest> requests, kernels::ReplayOptions options = {}) {
  const Scratch scratch;
  options.file = scratch.file("t.tts");
  options.info.workload = "t";
  if (options.cache_bytes == 0) options.cache_bytes = 1 << 20;
  options.llc_bytes = 1 << 12;
  Played out;
  out.info = kernels::replay(requests, options, out.summary);
  const trace::Reader reader{options.file};
  reader.verify();
  trace::Block block;
  for (std::uint64_t b = 0; b < reader.info().blocks; ++b) {
    reader.read(b, block);
    if (!block.timed) continue;
    for (const trace::Segment& segment : block.segments)
      for (std::size_t i = 0; i < segment.pages.size(); ++i)
        out.pages[segment.pages[i]] += segment.counts[i];
  }
  return out;
}

StoreRequest ask(std::uint64_t key, StoreOperation operation = StoreOperation::get,
                 std::uint32_t value = 100, std::uint32_t seconds = 0, std::uint32_t ttl = 0) {
  return {.key = key,
          .seconds = seconds,
          .value_bytes = value,
          .ttl = ttl,
          .key_bytes = 8,
          .operation = operation};
}

}  // namespace

TEST("requests: Twitter's columns, with commas in a key") {
  const Read got =
      read("100,a,b,3,50,9,get,0\n100,x,1,60,9,set,30\n99,x,1,0,9,Delete,0\n105,x,1,0,9,frob,0\n");
  CHECK_EQ(got.error, "");
  CHECK_EQ(got.summary.layout, "Twitter's columns");
  CHECK_EQ(got.requests.size(), 3U);
  CHECK_EQ(got.requests[0].key_bytes, 3U);
  CHECK_EQ(got.requests[0].value_bytes, 50U);
  CHECK(got.requests[1].operation == record::CacheOperation::set);
  CHECK_EQ(got.requests[1].ttl, 30U);
  CHECK_EQ(got.requests[1].key, got.requests[2].key);
  CHECK(got.requests[0].key != got.requests[2].key);
  CHECK(got.requests[2].operation == record::CacheOperation::remove);
  CHECK_EQ(got.summary.unknown, 1U);
  CHECK_EQ(got.summary.unknown_name, "frob");
  CHECK_EQ(got.summary.late, 1U);
  CHECK_EQ(got.summary.with_ttl, 1U);
  CHECK_EQ(got.summary.seconds, 5U);
}

TEST("requests: a heading's names, counts, and columns that nobody needs") {
  const Read got = read(
      "op_time,key,key_size,op,op_count,size,cache_hits,ttl,usecase\n"
      "7,k,30,GET_LEASE,2,50,1,,8\n8,k,30,SET_LEASE,1,51,0,60,8\n9,k,30,GET,0,51,0,60,8\n");
  CHECK_EQ(got.error, "");
  CHECK_EQ(got.summary.requests, 3U);
  CHECK_EQ(got.requests.size(), 2U);
  CHECK_EQ(got.requests[0].count, 2U);
  CHECK_EQ(got.requests[1].seconds, 1U);
  CHECK_EQ(got.summary.empty, 1U);
  CHECK_EQ(got.summary.unused.size(), 2U);
  CHECK_EQ(got.summary.unused[1], "usecase");
  CHECK(got.summary.key_sizes && got.summary.operations && got.summary.times);
}

TEST("requests: columns that the user names") {
  const Read got = read("1,33898,2a,512,429\n1,33899,2a,512,430\n", "-,time,-,size,key");
  CHECK_EQ(got.error, "");
  CHECK_EQ(got.requests.size(), 2U);
  CHECK_EQ(got.requests[0].key_bytes, 3U);  // as long as its text
  CHECK(!got.summary.operations);
  CHECK(read("1,2\n", "key,key").error.find("two columns for 'key'") != std::string::npos);
  CHECK(read("1,2\n", "key,op").error.find("no column for 'size'") != std::string::npos);
  CHECK(read("1,2\n", "key,bytes").error.find("--columns: found 'bytes'") != std::string::npos);
}

TEST("requests: oracleGeneral's records") {
  std::string bytes(24 * 3, '\0');
  const auto put = [&](std::size_t at, auto value) {
    std::memcpy(bytes.data() + at, &value, sizeof value);
  };
  for (std::size_t i = 0; i < 3; ++i) {
    put(i * 24, static_cast<std::uint32_t>(5 + i));
    put(i * 24 + 4, static_cast<std::uint64_t>(i % 2));
    put(i * 24 + 12, std::uint32_t{4096});
    put(i * 24 + 16, std::int64_t{i == 0 ? 2 : -1});
  }
  const Read got = read(bytes);
  CHECK_EQ(got.error, "");
  CHECK_EQ(got.summary.layout, "oracleGeneral");
  CHECK_EQ(got.requests.size(), 3U);
  CHECK_EQ(got.requests[0].key, got.requests[2].key);
  CHECK_EQ(got.requests[2].seconds, 2U);
  CHECK_EQ(got.requests[1].value_bytes, 4096U);
  CHECK(read(bytes.substr(0, 60)).error.find("12 bytes after record 2") != std::string::npos);
  put(24 + 16, std::int64_t{-7});
  CHECK(read(bytes).error.find("record 2: found -7") != std::string::npos);
}

TEST("requests: what is not understood is told") {
  CHECK(read("").error.find("empty") != std::string::npos);
  CHECK(read("a,b\n").error.find("a heading that names key and size") != std::string::npos);
  CHECK(read("key,size\n1,x\n").error.find("t:2: found 'x', expected an object's size") !=
        std::string::npos);
  CHECK(read("key,size\n1\n").error.find("expected 2 values") != std::string::npos);
  CHECK(read("time,key,size\n1,1,1\n9999999999,1,1\n").error.find("at most a hundred years") !=
        std::string::npos);
  CHECK(read("key,size,op\n1,1,2a\n").error.find("such as '2a'") != std::string::npos);
}

TEST("requests: hits, misses and evictions are the store's") {
  std::vector<StoreRequest> requests;
  for (std::uint64_t round = 0; round < 2; ++round)
    for (std::uint64_t key = 0; key < 100; ++key)
      requests.push_back(ask(key, StoreOperation::get, 1000));
  const Played fits = replay(requests);
  CHECK_EQ(fits.summary.gets, 200U);
  CHECK_EQ(fits.summary.hits, 100U);  // each key misses once, and is inserted
  CHECK_EQ(fits.summary.inserted, 100U);
  CHECK_EQ(fits.summary.evicted, 0U);
  CHECK_EQ(fits.summary.keys, 100U);
  CHECK(fits.summary.look_aside);
  CHECK_EQ(fits.info.op_kinds.size(), 3U);
  CHECK_EQ(fits.info.op_kinds[0].name, "get");
  // The objects' pages: an item has 32 + 8 + 1000 bytes, its class slots of 1,120, one after the
  // other from the arena's start; 100 of them, without what each leaves free, lie on 28 pages.
  const auto& arena = fits.info.objects.back();
  CHECK_EQ(arena.site, "cachelib.arena");
  std::uint64_t touched = 0;
  for (const auto& [page, count] : fits.pages) touched += page >= arena.first_page ? 1 : 0;
  CHECK_EQ(touched, 28U);

  requests.clear();
  for (std::uint64_t round = 0; round < 2; ++round)  // a loop larger than the cache: LRU never hits
    for (std::uint64_t key = 0; key < 2000; ++key)
      requests.push_back(ask(key, StoreOperation::get, 1000));
  const Played thrashes = replay(requests);
  CHECK_EQ(thrashes.summary.hits, 0U);
  CHECK(thrashes.summary.evicted > 2000);
}

TEST("requests: deletes, times to live and conditions") {
  using enum StoreOperation;
  const Played got = replay({
      ask(1, set, 100, 0, 10),
      ask(1, get, 100, 9),
      ask(1, get, 100, 10),  // hit, gone
      ask(2, set),
      ask(2, remove),
      ask(2, remove),
      ask(2, get),  // there, not there, miss
      ask(3, update),
      ask(3, get),  // nothing to change
      ask(3, add),
      ask(3, add),
      ask(3, update),
      ask(3, get),           // one insertion, then one
      ask(4, set, 2 << 20),  // too large
  });
  CHECK_EQ(got.summary.gets, 5U);
  CHECK_EQ(got.summary.hits, 2U);
  CHECK_EQ(got.summary.expired, 1U);
  CHECK_EQ(got.summary.removes, 2U);
  CHECK_EQ(got.summary.removed, 1U);
  CHECK_EQ(got.summary.inserted, 4U);
  CHECK_EQ(got.summary.too_large, 1U);
  CHECK(!got.summary.look_aside);  // the trace inserts itself
}

TEST("requests: a look-up without a size takes the one that another request says") {
  const Played got = replay({ask(1, StoreOperation::get, 0), ask(1, StoreOperation::get, 70),
                             ask(2, StoreOperation::get, 0)});
  CHECK_EQ(got.summary.sized, 1U);
  CHECK_EQ(got.summary.unsized, 1U);
  CHECK_EQ(got.summary.hits, 1U);
}

TEST("requests: values are read if they are to be") {
  std::vector<StoreRequest> requests;
  for (int i = 0; i < 64; ++i)
    requests.push_back(ask(static_cast<std::uint64_t>(i % 16), StoreOperation::get, 40'000));
  kernels::ReplayOptions options;
  const auto total = [](const Played& played) {
    std::uint64_t sum = 0;
    for (const auto& [page, count] : played.pages) sum += count;
    return sum;
  };
  const std::uint64_t read = total(replay(requests, options));
  options.touch_value = false;
  const std::uint64_t unread = total(replay(requests, options));
  options.populate = false;
  const std::uint64_t unwritten = total(replay(requests, options));
  CHECK(read >= unread + 48 * 625 - 64);  // 48 hits of 625 lines
  CHECK(unread >= unwritten + 16 * 624);  // 16 insertions
}

TEST("requests: a miniature has one key in so many, and a share of the cache") {
  std::vector<StoreRequest> requests;
  for (std::uint64_t round = 0; round < 3; ++round)
    for (std::uint64_t key = 0; key < 40'000; ++key)
      requests.push_back(ask(key * 977, StoreOperation::get, 1000));
  kernels::ReplayOptions options;
  options.cache_bytes = 64 << 20;
  options.scale = 16;
  const Played got = replay(requests, options);
  CHECK_EQ(got.info.scale, 16.0);
  CHECK(std::abs(static_cast<double>(got.summary.keys) - 2500) < 150);  // three deviations
  CHECK_EQ(got.summary.requests, 3 * got.summary.keys);
  CHECK_EQ(got.summary.hits, 2 * got.summary.keys);  // 40,000 of 1,040 bytes fit into 64 MiB
  options.scale = 128;                               // a cache of half a MiB
  bool refused = false;
  try {
    (void)replay(requests, options);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(refused);
}
