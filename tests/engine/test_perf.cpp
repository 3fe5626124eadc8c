// SPDX-License-Identifier: MIT

// Decoding perf's ring buffers: bytes that a kernel wrote (data/page-faults.perf: the page faults
// of `sh -c 'true & wait; exec true'`, in the very layout that hardware samples have), and
// hand-made samples of Intel's PEBS and AMD's IBS with every data source that matters.
#include <linux/perf_event.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "check.hpp"
#include "record/assemble.hpp"
#include "record/perf_decoder.hpp"
#include "record/spool.hpp"
#include "scratch.hpp"

using namespace tt::record;

namespace {

const std::filesystem::path recorded = std::filesystem::path{TT_TEST_DATA} / "page-faults.perf";

struct Bytes {
  std::vector<std::byte> all;
  template <typename T>
  Bytes& put(const T& value) {
    const auto* const at = reinterpret_cast<const std::byte*>(&value);
    all.insert(all.end(), at, at + sizeof value);
    return *this;
  }
  Bytes& text(const std::string& value, std::size_t room) {
    for (std::size_t i = 0; i < room; ++i) put(i < value.size() ? value[i] : '\0');
    return *this;
  }
  /// With the header that belongs to it.
  [[nodiscard]] std::vector<std::byte> record(std::uint32_t type, std::uint16_t misc = 0) const {
    Bytes out;
    out.put(type).put(misc).put(static_cast<std::uint16_t>(all.size() + 8));
    out.all.insert(out.all.end(), all.begin(), all.end());
    return out.all;
  }
};

constexpr std::uint64_t loads_id = 11;
constexpr std::uint64_t stores_id = 12;
constexpr std::uint64_t ibs_id = 13;
constexpr std::uint32_t pid = 100;

std::vector<std::byte> sample(std::uint64_t id, std::uint64_t time, std::uint64_t address,
                              std::uint64_t source, std::uint64_t period = 1000,
                              std::uint64_t ip = 0x400000) {
  return Bytes{}
      .put(id)
      .put(ip)
      .put(pid)
      .put(pid)
      .put(time)
      .put(address)
      .put(period)
      .put(std::uint64_t{350})
      .put(source)
      .record(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER);
}
std::vector<std::byte> mapping(std::uint64_t time, std::uint64_t address, std::uint64_t bytes,
                               const std::string& name) {
  Bytes out;
  out.put(pid).put(pid).put(address).put(bytes).put(std::uint64_t{0});
  for (int i = 0; i < 3; ++i) out.put(std::uint64_t{0});
  out.put(std::uint32_t{3}).put(std::uint32_t{2}).text(name, (name.size() / 8 + 1) * 8);
  return out.put(pid).put(pid).put(time).put(loads_id).record(PERF_RECORD_MMAP2);
}
std::vector<std::byte> lost(std::uint64_t time, std::uint64_t count) {
  return Bytes{}.put(loads_id).put(count).put(pid).put(pid).put(time).put(loads_id).record(
      PERF_RECORD_LOST);
}

std::uint64_t load(std::uint64_t levels, std::uint64_t number = 0) {
  return std::uint64_t{PERF_MEM_OP_LOAD} << PERF_MEM_OP_SHIFT | levels << PERF_MEM_LVL_SHIFT |
         number << PERF_MEM_LVLNUM_SHIFT;
}
std::uint64_t store(std::uint64_t levels) {
  return std::uint64_t{PERF_MEM_OP_STORE} << PERF_MEM_OP_SHIFT | levels << PERF_MEM_LVL_SHIFT;
}

struct Run {
  explicit Run(std::uint64_t begin_ns = 0) : decoder(scratch.path, "pebs", begin_ns) {
    decoder.add(loads_id, {.name = "loads", .period = 1000, .filter = PerfFilter::loads});
    decoder.add(stores_id, {.name = "stores", .period = 1000, .filter = PerfFilter::stores});
    decoder.add(ibs_id, {.name = "ibs", .period = 1000, .filter = PerfFilter::operations});
  }
  void feed(const std::vector<std::byte>& bytes) { CHECK_EQ(decoder.feed(bytes), bytes.size()); }
  /// Records of the process's spool; sites' texts are left out.
  std::vector<Record> records() {
    const auto bytes = check::bytes_of(scratch.file(std::to_string(pid) + ".spool"));
    SpoolHeader const* const header = reinterpret_cast<const SpoolHeader*>(bytes.data());
    CHECK_EQ(header->state.load(), static_cast<std::uint32_t>(SpoolState::closed));
    CHECK_EQ(header->pid, pid);
    std::vector<Record> out;
    for (std::uint64_t i = 0; i < header->records; ++i) {
      Record record{};
      std::memcpy(&record, bytes.data() + spool_header_bytes + i * sizeof record, sizeof record);
      out.push_back(record);
      if (record.type() == RecordType::site) i += (record.value + 15) / 16;
    }
    return out;
  }
  check::Scratch scratch;
  PerfDecoder decoder;
};

std::vector<std::byte> file_bytes() {
  const auto chars = check::bytes_of(recorded);
  CHECK(!chars.empty());
  std::vector<std::byte> out(chars.size());
  std::memcpy(out.data(), chars.data(), chars.size());
  return out;
}
/// The identifier that the kernel gave the event: the first word of the first sample.
std::uint64_t first_id(const std::vector<std::byte>& bytes) {
  for (std::size_t at = 0; at < bytes.size();) {
    perf_event_header header{};
    std::memcpy(&header, bytes.data() + at, sizeof header);
    std::uint64_t id = 0;
    std::memcpy(&id, bytes.data() + at + sizeof header, sizeof id);
    if (header.type == PERF_RECORD_SAMPLE) return id;
    at += header.size;
  }
  return 0;
}

}  // namespace

TEST("perf: a recorded ring buffer, whole or in pieces") {
  const auto bytes = file_bytes();
  CHECK(bytes.size() > 10'000);
  std::vector<std::vector<char>> spools[2];
  for (const std::size_t piece : {bytes.size(), std::size_t{1000}}) {
    check::Scratch scratch;
    PerfDecoder decoder{scratch.path, "pebs", 0};
    // Both processors' events have identifiers of their own.
    const std::uint64_t id = first_id(bytes);
    for (std::uint64_t other = id > 64 ? id - 64 : 0; other < id + 64; ++other)
      decoder.add(other, {.name = "page-faults", .period = 1, .filter = PerfFilter::faults});
    std::size_t from = 0;
    for (std::size_t to = 0; to < bytes.size();) {
      to = std::min(bytes.size(), to + piece);
      from += decoder.feed(std::span{bytes}.subspan(from, to - from));
    }
    CHECK_EQ(from, bytes.size());
    const PerfCounts counts = decoder.finish();
    CHECK(counts.samples > 100);
    CHECK_EQ(counts.kept, counts.samples);
    CHECK_EQ(counts.lost, 0U);
    auto& out = spools[piece == 1000 ? 1 : 0];
    std::set<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator{scratch.path})
      files.insert(entry.path());
    for (const auto& file : files) out.push_back(check::bytes_of(file));

    SpoolSummary summary;
    const auto info = assemble(scratch.path, scratch.file("out.tts"),
                               {.workload = "faults",
                                .input = "recorded",
                                .parameters = "{}",
                                .classes = {{.name = "random"}, {.name = "sequential"}},
                                .lanes = {{.name = "all"}}},
                               {.wall_time = true}, summary);
    CHECK_EQ(info.accesses, counts.kept);
    CHECK_EQ(summary.open.size(), 0U);
    CHECK_EQ(summary.processes, 2U);
    std::set<std::string> sites;
    for (const auto& object : info.objects) sites.insert(object.site);
    CHECK(sites.contains("libc.so.6"));
    CHECK(sites.contains("true"));
    CHECK(sites.contains("anonymous"));
  }
  CHECK(spools[0] == spools[1]);
}

TEST("perf: only what memory served counts, with its period") {
  Run run;
  run.feed(mapping(1, 0x10000, 0x10000, "//anon"));
  const std::uint64_t hit = PERF_MEM_LVL_HIT;
  std::uint64_t time = 10;
  const auto one = [&](std::uint64_t id, std::uint64_t source, std::uint64_t page) {
    run.feed(sample(id, time++, 0x10000 + page * 4096, source, 1000 + page));
  };
  one(loads_id, load(hit | PERF_MEM_LVL_L1), 0);
  one(loads_id, load(hit | PERF_MEM_LVL_L3), 0);
  one(loads_id, load(hit | PERF_MEM_LVL_LFB), 0);
  one(loads_id, store(hit | PERF_MEM_LVL_LOC_RAM), 0);
  one(loads_id, load(hit | PERF_MEM_LVL_LOC_RAM), 1);
  one(loads_id, load(hit | PERF_MEM_LVL_REM_RAM1), 2);
  one(loads_id, load(hit, PERF_MEM_LVLNUM_RAM), 3);
  one(loads_id, load(hit, PERF_MEM_LVLNUM_PMEM), 4);
  one(loads_id, load(hit, 0x09), 5);  // CXL
  one(stores_id, store(hit | PERF_MEM_LVL_L1), 0);
  one(stores_id, store(PERF_MEM_LVL_MISS | PERF_MEM_LVL_L1), 6);
  one(ibs_id, load(hit | PERF_MEM_LVL_L2), 0);
  one(ibs_id, load(hit | PERF_MEM_LVL_LOC_RAM), 7);
  one(ibs_id, store(PERF_MEM_LVL_NA), 8);
  one(ibs_id, std::uint64_t{PERF_MEM_OP_NA}, 0);
  run.feed(sample(loads_id, time++, 0, load(hit | PERF_MEM_LVL_LOC_RAM)));
  run.feed(sample(loads_id, time++, 0xffff888000000000ULL, load(hit | PERF_MEM_LVL_LOC_RAM)));
  run.feed(lost(time++, 5));
  const PerfCounts counts = run.decoder.finish();
  CHECK_EQ(counts.samples, 17U);
  CHECK_EQ(counts.kept, 8U);
  CHECK_EQ(counts.filtered, 9U);
  CHECK_EQ(counts.lost, 5U);
  std::map<std::uint64_t, std::pair<double, bool>> found;
  for (const Record& record : run.records())
    if (record.type() == RecordType::access)
      found[(record.address() - 0x10000) / 4096] = {std::bit_cast<double>(record.value),
                                                    record.store()};
  CHECK_EQ(found.size(), 8U);
  for (std::uint64_t page = 1; page <= 8; ++page) {
    CHECK_EQ(found[page].first, 1000.0 + static_cast<double>(page));
    CHECK_EQ(found[page].second, page == 6 || page == 8);
  }
}

TEST("perf: records of several rings are merged by time, and none is written too early") {
  Run run{1'000'000};
  const std::uint64_t ram = load(PERF_MEM_LVL_HIT | PERF_MEM_LVL_LOC_RAM);
  run.feed(sample(loads_id, 1'000'030, 0x10000, ram));
  run.feed(sample(loads_id, 1'000'050, 0x11000, ram));
  run.decoder.flush(1'000'020);
  run.feed(mapping(1'000'025, 0x10000, 0x2000, "/usr/lib/libdata.so"));
  run.feed(sample(loads_id, 1'000'040, 0x10040, ram));
  (void)run.decoder.finish();
  std::vector<std::uint64_t> order;
  std::uint64_t now = 0;
  for (const Record& record : run.records()) {
    if (record.type() == RecordType::time) now = record.value;
    if (record.type() == RecordType::map || record.type() == RecordType::access)
      order.push_back(now);
  }
  CHECK((order == std::vector<std::uint64_t>{25, 30, 40, 50}));
}

TEST("perf: one instruction that goes one way sweeps, one that goes both ways does not") {
  Run run;
  const std::uint64_t ram = load(PERF_MEM_LVL_HIT | PERF_MEM_LVL_LOC_RAM);
  std::uint64_t x = 1;
  for (std::uint64_t i = 0; i < 200; ++i) {
    x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    run.feed(sample(loads_id, 2 * i, 0x100000 + i * 8192, ram, 1000, 0x400000));
    run.feed(sample(loads_id, 2 * i + 1, 0x100000 + (x >> 40) % 1'000'000, ram, 1000, 0x400010));
  }
  (void)run.decoder.finish();
  int swept[2] = {};
  int at = 0;
  for (const Record& record : run.records())
    if (record.type() == RecordType::access) swept[at++ % 2] += record.stream_class() == 1;
  CHECK(swept[0] > 180);
  CHECK(swept[1] < 10);
}

TEST("perf: a new program begins without mappings, a child with its parent's") {
  Run run;
  run.feed(mapping(1, 0x10000, 0x2000, "//anon"));
  const std::uint32_t child = 101;
  run.feed(Bytes{}
               .put(child)
               .put(pid)
               .put(child)
               .put(pid)
               .put(std::uint64_t{2})
               .put(pid)
               .put(pid)
               .put(std::uint64_t{2})
               .put(loads_id)
               .record(PERF_RECORD_FORK));
  run.feed(Bytes{}
               .put(pid)
               .put(pid)
               .text("new", 8)
               .put(pid)
               .put(pid)
               .put(std::uint64_t{3})
               .put(loads_id)
               .record(PERF_RECORD_COMM, PERF_RECORD_MISC_COMM_EXEC));
  (void)run.decoder.finish();
  int unmaps = 0;
  for (const Record& record : run.records()) unmaps += record.type() == RecordType::unmap;
  CHECK_EQ(unmaps, 1);
  const auto bytes = check::bytes_of(run.scratch.file("101.spool"));
  CHECK(std::string(bytes.data(), bytes.size()).find("anonymous") != std::string::npos);
}

TEST("perf: records that cannot be are errors") {
  const std::uint64_t ram = load(PERF_MEM_LVL_HIT | PERF_MEM_LVL_LOC_RAM);
  const auto fed = [](std::vector<std::byte> bytes) {
    Run run;
    return run.decoder.feed(bytes);
  };
  auto bytes = sample(loads_id, 1, 0x1000, ram);
  CHECK_EQ(fed({bytes.begin(), bytes.end() - 8}), 0U);  // not all there yet
  bytes[6] = std::byte{0};
  CHECK_THROWS(fed(bytes), "a perf record of 0 bytes");
  bytes[6] = std::byte{12};
  CHECK_THROWS(fed(bytes), "a perf record of 12 bytes");
  CHECK_THROWS(fed(sample(99, 1, 0x1000, ram)), "event 99, which was not opened");
  for (const std::uint32_t type : {PERF_RECORD_SAMPLE, PERF_RECORD_MMAP2, PERF_RECORD_FORK,
                                   PERF_RECORD_COMM, PERF_RECORD_LOST})
    CHECK_THROWS(fed(Bytes{}.put(std::uint64_t{1}).record(type, PERF_RECORD_MISC_COMM_EXEC)),
                 "too short");
}
