// SPDX-License-Identifier: MIT

// redis: the keyspace against a plain map, its allocator against itself, and what YCSB's mixes do
// to memory.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "kernels/kernel.hpp"
#include "kernels/redis_store.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::trace;
using check::Scratch;
using kernels::RedisHeap;
using kernels::RedisMemory;
using kernels::RedisStore;

namespace {

struct Machine {
  Machine() : recorder(scratch.file("m.tts"), description(), {}), memory(recorder) {}
  static StreamInfo description() {
    StreamInfo info;
    info.classes = {{"value", 9, 0}, {"chain", 1, 0}, {"update", 10, 0}};
    info.lanes = {{"all", 1}};
    return info;
  }
  Scratch scratch;
  Recorder recorder;
  RedisMemory memory;
};

std::vector<std::byte> bytes(std::size_t count, std::uint64_t seed) {
  std::vector<std::byte> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = static_cast<std::byte>(mix64(seed + i / 8));
  return made;
}

/// 7,812 records of 1 KB in 2,300 pages; 4,000 operations.
kernels::RecordRequest small(const std::filesystem::path& file) {
  kernels::RecordRequest request;
  request.workload = "redis";
  request.input = "test";
  request.scale = 2048;
  request.threads = 8;
  request.llc_bytes = static_cast<double>(14 << 20);
  request.seed = 3;
  request.file = file;
  request.parameters["instances"] = std::int64_t{2};
  request.parameters["duration_s"] = 5.0;
  return request;
}

struct Timed {
  std::map<std::pair<std::uint32_t, AccessKind>, double> accesses;  // by class and kind
  double gets = 0;
  double sets = 0;
  std::uint64_t tables_mapped = 0;
  std::uint64_t tables_freed = 0;
};

Timed timed(const Reader& reader) {
  Timed sums;
  Block block;
  for (std::uint64_t i = 0; i < reader.info().blocks; ++i) {
    reader.read(i, block);
    if (!block.timed) continue;
    sums.gets += static_cast<double>(block.operations[0]);
    sums.sets += static_cast<double>(block.operations[1]);
    for (const Segment& segment : block.segments)
      sums.accesses[{segment.stream_class, segment.kind}] += static_cast<double>(segment.sum);
    for (const Event& event : block.events) {
      if (reader.info().objects[event.object].site != "redis.dict.table") continue;
      sums.tables_mapped += event.type == EventType::map;
      sums.tables_freed += event.type == EventType::unmap;
    }
  }
  return sums;
}

/// Sum of r^-0.99 for r from 1 to n (midpoint rule beyond 100).
double zeta(double n) {
  double sum = 0;
  for (int r = 1; r <= 100; ++r) sum += std::pow(r, -0.99);
  return sum + (std::pow(n + 0.5, 0.01) - std::pow(100.5, 0.01)) / 0.01;
}

}  // namespace

TEST("redis: SipHash has the published test vectors") {
  std::array<std::byte, 15> text;
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::byte>(i);
  const std::array<std::uint64_t, 2> key{0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL};
  CHECK_EQ(kernels::siphash(text, key, 2, 4), 0xa129ca6149be45e5ULL);
  CHECK_EQ(kernels::siphash(std::span(text).first(0), key, 2, 4), 0x726fdb47dd0e0e31ULL);
  CHECK(kernels::siphash(text, key) != kernels::siphash(text, key, 2, 4));
}

TEST("redis: the heap's size classes are jemalloc's with a quantum of 8") {
  Machine machine;
  RedisHeap heap{machine.memory, "heap"};
  CHECK_EQ(heap.usable(1), 8u);
  CHECK_EQ(heap.usable(17), 24u);  // a dict's entry
  CHECK_EQ(heap.usable(25), 32u);  // a key of YCSB
  CHECK_EQ(heap.usable(65), 80u);
  CHECK_EQ(heap.usable(1006), 1024u);  // a value of YCSB
  CHECK_EQ(heap.usable(1025), 1280u);
  CHECK_EQ(heap.usable(14336), 14336u);
  CHECK_EQ(heap.usable(14337), 16384u);
  // Last in, first out.
  const auto first = heap.allocate(1000);
  const auto second = heap.allocate(1000);
  heap.free(first);
  heap.free(second);
  CHECK_EQ(heap.allocate(1000), second);
  CHECK_EQ(heap.allocate(1000), first);
  CHECK_THROWS(heap.free(0), "not allocated");
}

TEST("redis: what is allocated does not overlap, and what is freed is used again") {
  Machine machine;
  RedisHeap heap{machine.memory, "heap"};
  struct Piece {
    std::uint64_t bytes;
    std::uint64_t stamp;
  };
  std::map<Address, Piece> pieces;
  Rng rng{3};
  const auto holds = [&](Address address, const Piece& piece) {
    const auto expected = bytes(piece.bytes, piece.stamp);
    return std::ranges::equal(expected, std::span(machine.memory.at(address), piece.bytes));
  };
  const auto step = [&](bool add) {
    if (add || pieces.empty()) {
      const std::uint64_t size = rng.below(50) == 0 ? rng.below(60000) : 1 + rng.below(2000);
      const Address address = heap.allocate(size);
      const Piece piece{size, rng.next()};
      std::ranges::copy(bytes(size, piece.stamp), machine.memory.at(address));
      CHECK(pieces.emplace(address, piece).second);
    } else {
      const auto it = pieces.lower_bound(rng.below(pieces.rbegin()->first + 1));
      CHECK(holds(it->first, it->second));
      heap.free(it->first);
      pieces.erase(it);
      heap.release();
    }
  };
  for (int i = 0; i < 3000; ++i) step(rng.uniform() < 0.7);
  CHECK_EQ(heap.inconsistency(), "");
  const auto peak = heap.allocated();
  for (int i = 0; i < 1500; ++i) step(rng.uniform() < 0.2);
  CHECK_EQ(heap.inconsistency(), "");
  CHECK(heap.allocated() < peak / 2);
  for (const auto& [address, piece] : pieces) {
    CHECK(holds(address, piece));
    heap.free(address);
  }
  heap.release();
  CHECK_EQ(heap.inconsistency(), "");
  CHECK_EQ(heap.allocated(), 0u);
}

TEST("redis: random commands give what a plain map gives, through growing and shrinking tables") {
  Machine machine;
  RedisStore store{machine.memory, {1, 0, 2}, 5};
  std::unordered_map<std::string, std::vector<std::byte>> plain;
  Rng rng{17};
  int grown = 0;
  int shrunk = 0;
  std::uint64_t before = 0;
  for (int i = 0; i < 24000; ++i) {
    // First mostly insertions, then mostly deletions.
    const bool filling = i < 12000;
    const std::string key = std::string(rng.below(40), 'k') + std::to_string(rng.below(3000));
    const double dice = rng.uniform();
    if (dice < (filling ? 0.5 : 0.02)) {
      const auto value = bytes(rng.below(200) == 0 ? rng.below(70000) : rng.below(300), rng.next());
      CHECK_EQ(store.set(key, value), plain.insert_or_assign(key, value).second);
    } else if (dice < (filling ? 0.6 : 0.5)) {
      CHECK_EQ(store.remove(key), plain.erase(key) == 1);
    } else if (const auto got = store.get(key); got.has_value()) {
      const auto it = plain.find(key);
      CHECK(it != plain.end() && std::ranges::equal(*got, it->second));
    } else {
      CHECK(!plain.contains(key));
    }
    if (!filling && i % 2 == 0 && !plain.empty()) {
      CHECK(store.remove(plain.begin()->first));
      plain.erase(plain.begin());
    }
    if (i % 50 == 0) (void)store.cron(20);
    store.release();
    CHECK_EQ(store.size(), plain.size());
    if (!store.rehashing() && store.buckets() != before) {
      ++(store.buckets() > before ? grown : shrunk);
      before = store.buckets();
    }
    if (i % 3000 == 0 || (store.rehashing() && i % 500 == 0)) CHECK_EQ(store.inconsistency(), "");
  }
  CHECK(grown >= 8);
  CHECK(shrunk >= 2);
  while (!plain.empty()) {
    CHECK(store.remove(plain.begin()->first));
    plain.erase(plain.begin());
  }
  CHECK_EQ(store.size(), 0u);
  CHECK_EQ(store.inconsistency(), "");
}

TEST("redis: a full table moves over, a bucket with every command, and is freed") {
  Machine machine;
  RedisStore store{machine.memory, {1, 0, 2}, 5};
  const auto value = bytes(100, 1);
  int number = 0;
  while (store.size() < 4096) store.set(std::to_string(number++), value);
  while (store.rehashing()) (void)store.get("0");
  CHECK_EQ(store.buckets(), 4096u);
  store.set(std::to_string(number++), value);
  CHECK_EQ(store.buckets(), 4096u + 8192u);
  int commands = 0;
  for (; store.rehashing(); ++commands) CHECK(store.get(std::to_string(commands)).has_value());
  // 63 % of the buckets hold an entry, and empty ones are passed over.
  CHECK(commands > 0.6 * 4096 && commands < 0.66 * 4096);
  CHECK_EQ(store.buckets(), 8192u);
  store.set("one more", value);  // nothing to move
  while (store.size() <= 8192) store.set(std::to_string(number++), value);
  CHECK(store.rehashing());
  while (store.rehashing()) CHECK(store.cron(100) >= 1);
  CHECK_EQ(store.inconsistency(), "");
}

TEST("redis: a record of YCSB takes 1.1 KB") {
  Machine machine;
  RedisStore store{machine.memory, {1, 0, 2}, 5};
  const auto value = bytes(1000, 1);
  for (int i = 0; i < 1024; ++i) store.set("user" + std::to_string(1234567890123456789 + i), value);
  while (store.rehashing()) (void)store.cron(100);
  // Value 1024, key 32, entry 24, object 16, bucket 8.
  CHECK_EQ(store.heap().allocated(), 1024u * (1024 + 32 + 24 + 16 + 8));
}

TEST("redis: a GET is a chain of lines and the value, and notes the clock") {
  const Scratch scratch;
  auto request = small(scratch.file("r.tts"));
  request.parameters["update_share"] = 0.0;
  request.parameters["distribution"] = std::string{"uniform"};
  const StreamInfo info = kernels::record("redis", request);
  const Reader reader{scratch.file("r.tts")};
  reader.verify();
  const Timed sums = timed(reader);
  CHECK_EQ(sums.sets, 0.0);
  const auto per_get = [&](std::uint32_t stream_class, AccessKind kind) {
    const auto it = sums.accesses.find({stream_class, kind});
    return it == sums.accesses.end() ? 0 : it->second / sums.gets;
  };
  // Bucket, 1.5 entries and keys, object; 1005 bytes of value from anywhere in a line. The cache
  // holds one record in a thousand.
  CHECK_NEAR(per_get(1, AccessKind::load), 4.7, 0.7);
  CHECK_NEAR(per_get(0, AccessKind::load), 16, 0.6);
  CHECK_NEAR(per_get(2, AccessKind::store), 1, 0.1);
  CHECK_EQ(per_get(0, AccessKind::store), 0.0);
}

TEST("redis: the records' popularity is that of YCSB's scrambled Zipf's law") {
  const Scratch scratch;
  auto request = small(scratch.file("r.tts"));
  request.parameters["update_share"] = 0.0;
  request.parameters["value_bytes"] = std::int64_t{4000};  // each on a page of its own
  request.parameters["records_m"] = 8.0;
  request.parameters["duration_s"] = 60.0;
  request.llc_bytes = 1;  // so that every GET is seen
  (void)kernels::record("redis", request);
  const Reader reader{scratch.file("r.tts")};
  std::vector<double> records;
  for (const Object& object : reader.info().objects) {
    if (object.site != "redis.heap") continue;
    for (const auto total : reader.page_totals().subspan(object.first_page, object.pages))
      records.push_back(static_cast<double>(total));
  }
  std::ranges::sort(records, std::greater{});
  records.resize(3906);
  const double all = std::accumulate(records.begin(), records.end(), 0.0);
  const auto share = [&](std::ptrdiff_t top) {
    return std::accumulate(records.begin(), records.begin() + top, 0.0) / all;
  };
  // Of 10^10 ranks the first come to a record of their own, the others to any.
  const auto expected = [&](double top) {
    const double head = zeta(top / 3906 * 8e6) / zeta(1e10);
    return head + top / 3906 * (1 - head);
  };
  for (const int top : {4, 39, 390}) CHECK_NEAR(share(top), expected(top), 0.03);
  CHECK_NEAR(expected(39), 0.48, 0.02);
  // Other exponents show.
  request.parameters["zipf_exponent"] = 0.5;
  (void)kernels::record("redis", request);
  const Reader flat{scratch.file("r.tts")};
  CHECK_NEAR(static_cast<double>(std::ranges::max(flat.page_totals())) / all, 0, 0.01);
}

TEST("redis: the mixes are YCSB's") {
  const Scratch scratch;
  const auto with = [&](std::map<std::string, kernels::Value> values) {
    auto request = small(scratch.file("r.tts"));
    for (auto& [name, value] : values) request.parameters[name] = std::move(value);
    (void)kernels::record("redis", request);
    return timed(Reader{request.file});
  };
  const Timed b = with({});
  CHECK_NEAR(b.sets / (b.gets + b.sets), 0.05, 0.01);
  const Timed a = with({{"update_share", 0.5}});
  CHECK_NEAR(a.sets / (a.gets + a.sets), 0.5, 0.02);
  // A SET writes 16 lines and more.
  const std::pair stores{2u, AccessKind::store};
  CHECK(a.accesses.at(stores) > 3 * b.accesses.at(stores));
  const Timed f = with({{"update_share", 0.0}, {"modify_share", 0.5}});
  CHECK_NEAR(f.sets / f.gets, 0.5, 0.03);
  // D: new records all the time; the tables (3,906 records in two) grow and the old ones are freed.
  const Timed d = with({{"update_share", 0.0},
                        {"insert_share", 0.05},
                        {"distribution", std::string{"latest"}},
                        {"records_m", 8.0},
                        {"duration_s", 30.0}});
  CHECK_NEAR(d.sets / (d.gets + d.sets), 0.05, 0.01);
  CHECK_EQ(b.tables_mapped + b.tables_freed, 0u);
  CHECK_EQ(d.tables_mapped, 2u);
  CHECK_EQ(d.tables_freed, 2u);
}

TEST("redis: the latest records are the ones asked for") {
  const Scratch scratch;
  auto request = small(scratch.file("r.tts"));
  request.parameters["distribution"] = std::string{"latest"};
  request.parameters["update_share"] = 0.0;
  request.parameters["instances"] = std::int64_t{1};
  request.llc_bytes = 1;
  (void)kernels::record("redis", request);
  const Reader reader{scratch.file("r.tts")};
  // Records lie in order of insertion, extent after extent.
  double old = 0;
  double young = 0;
  for (std::size_t page = 0; page < reader.page_totals().size(); ++page)
    (page < reader.page_totals().size() / 2 ? old : young) +=
        static_cast<double>(reader.page_totals()[page]);
  CHECK(young > 5 * old);
}

TEST("redis: every parameter shows") {
  const Scratch scratch;
  const auto with = [&](const char* name, kernels::Value value) {
    auto request = small(scratch.file("r.tts"));
    request.parameters["duration_s"] = 1.0;
    if (name[0] != '\0') request.parameters[name] = std::move(value);
    return kernels::record("redis", request);
  };
  const auto objects = [](const StreamInfo& info, const char* site) {
    return std::ranges::count(info.objects, site, &Object::site);
  };
  const StreamInfo usual = with("", 0.0);
  CHECK_NEAR(static_cast<double>(with("records_m", 8.0).pages) / static_cast<double>(usual.pages),
             0.5, 0.08);
  CHECK(with("value_bytes", std::int64_t{100}).pages < usual.pages / 3);
  CHECK(objects(with("instances", std::int64_t{8}), "redis.dict.table") !=
        objects(usual, "redis.dict.table"));
  CHECK(with("command_ns", 12000.0).operations < usual.operations / 2);
  CHECK(with("loop_ns", 30000.0).operations < usual.operations / 4);
  CHECK_NEAR(static_cast<double>(with("duration_s", 2.0).operations),
             2 * static_cast<double>(usual.operations), 100);
  CHECK(with("block_ms", 100.0).blocks < usual.blocks / 2);
  CHECK_THROWS(with("distribution", std::string{"scan"}),
               "distribution: found 'scan', allowed zipfian, latest, uniform");
  CHECK_THROWS(with("modify_share", 0.96), "modify_share: more than 1");
  CHECK_THROWS(with("records_m", 0.1), "fewer than 100 records at scale 2048");
}
