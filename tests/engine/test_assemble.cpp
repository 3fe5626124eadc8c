// SPDX-License-Identifier: MIT

// The assembler and the reader of spools: what was observed of a process becomes a stream.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <fstream>
#include <map>

#include "check.hpp"
#include "core/rng.hpp"
#include "record/assemble.hpp"
#include "record/spool.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::record;
using check::Scratch;

namespace {

constexpr std::uint64_t page = trace::base_page_bytes;
constexpr std::uint64_t mib = 1 << 20;
constexpr std::uint64_t ms = 1'000'000;

trace::StreamInfo description() {
  trace::StreamInfo info;
  info.workload = "recorded";
  info.lanes = {{"threads", 1}};
  info.classes = {{"sequential", 8, 0, 0}, {"random", 2, 0, 0}};
  return info;
}

/// Loads and stores per page over all blocks, and what the events did.
struct Played {
  std::map<std::uint32_t, std::pair<std::uint64_t, std::uint64_t>> pages;
  std::vector<double> compute;
  std::vector<trace::Event> unmaps;
  std::vector<std::size_t> unmap_blocks;
  trace::StreamInfo info;
};

Played play(const std::filesystem::path& file) {
  const trace::Reader reader{file};
  reader.verify();
  Played out;
  out.info = reader.info();
  trace::Block block;
  for (std::uint64_t b = 0; b < reader.info().blocks; ++b) {
    reader.read(b, block);
    out.compute.push_back(block.compute_ns[0]);
    for (const trace::Event& event : block.events)
      if (event.type == trace::EventType::unmap) {
        out.unmaps.push_back(event);
        out.unmap_blocks.push_back(b);
      }
    for (const trace::Segment& segment : block.segments)
      for (std::size_t i = 0; i < segment.pages.size(); ++i) {
        auto& [loads, stores] = out.pages[segment.pages[i]];
        (segment.kind == AccessKind::load ? loads : stores) += segment.counts[i];
      }
  }
  return out;
}

TEST("assembler: gives pages on first access and new ones after a new mapping") {
  const Scratch scratch;
  Assembler to{scratch.file("t.tts"), description(), {}};
  to.map(100 * mib, 8 * page, "first");
  to.map(200 * mib, 8 * page, "never accessed");
  to.access(100 * mib + 3 * page + 17, AccessKind::load, 0, 5);
  to.access(100 * mib + 3 * page, AccessKind::store, 0, 2);
  to.map(100 * mib, 4 * page, "second");  // as mmap with MAP_FIXED; the last four pages stay
  to.access(100 * mib + 3 * page, AccessKind::load, 1, 7);
  to.access(100 * mib + 5 * page, AccessKind::load, 1, 9);
  to.finish();
  const Played got = play(scratch.file("t.tts"));
  CHECK_EQ(got.info.objects.size(), 2U);
  CHECK_EQ(got.info.objects[0].site, std::string("first"));
  CHECK_EQ(got.info.objects[1].site, std::string("second"));
  CHECK_EQ(got.info.objects[1].pages, 4U);
  CHECK_EQ(got.pages.at(3).first, 5U);
  CHECK_EQ(got.pages.at(3).second, 2U);
  CHECK_EQ(got.pages.at(5).first, 9U);
  CHECK_EQ(got.pages.at(8 + 3).first, 7U);
  CHECK_EQ(got.unmaps.size(), 1U);
  CHECK_EQ(got.unmaps[0].first, 0U);
  CHECK_EQ(got.unmaps[0].count, 4U);
}

TEST("assembler: reserves only what is used") {
  const Scratch scratch;
  Assembler to{scratch.file("t.tts"), description(), {}};
  to.map(std::uint64_t{1} << 40, std::uint64_t{1} << 44, "reservation of 16 TiB");
  to.access((std::uint64_t{1} << 40) + (std::uint64_t{1} << 43), AccessKind::load, 0, 1);
  to.access((std::uint64_t{1} << 40) + 70 * mib, AccessKind::load, 0, 1);
  to.access((std::uint64_t{1} << 40) + 80 * mib, AccessKind::load, 0, 1);
  const trace::StreamInfo info = to.finish();
  CHECK_EQ(info.objects.size(), 3U);
  CHECK_EQ(info.pages, 3U * 16);
}

TEST("assembler: neither pages here and there nor all pages make much of a stream") {
  const auto described = [](std::uint64_t step) {
    const Scratch scratch;
    Assembler to{scratch.file("t.tts"), description(), {}};
    to.map(std::uint64_t{1} << 40, 256 * mib, "table");
    for (std::uint64_t at = 0; at < 256 * mib; at += step)
      to.access((std::uint64_t{1} << 40) + at, AccessKind::load, 0, 1);
    return to.finish();
  };
  const auto sparse = described(8 * mib);
  CHECK_EQ(sparse.objects.size(), 32U);
  CHECK_EQ(sparse.pages, 4U * (4 * 16 + 4 * 32));  // of each 64 MiB four pieces of each size
  const auto dense = described(page);
  CHECK_EQ(dense.pages, 256 * mib / page);
  CHECK(dense.objects.size() < 4U * 40);
}

TEST("assembler: takes unknown addresses between mappings") {
  const Scratch scratch;
  Assembler to{scratch.file("t.tts"), description(), {}};
  to.map(2 * mib + 4 * page, page, "known");
  to.access(2 * mib + 3 * page, AccessKind::load, 0, 1);
  to.access(2 * mib + 4 * page, AccessKind::load, 0, 2);
  to.access(2 * mib + 9 * page, AccessKind::load, 0, 3);
  to.access(0xffff'ffff'ffffULL, AccessKind::load, 0, 4);  // the last byte there is
  const trace::StreamInfo info = to.finish();
  CHECK_EQ(info.objects.size(), 4U);
  CHECK_EQ(info.objects[0].pages, 4U);
  CHECK_EQ(info.objects[1].site, std::string("known"));
  CHECK_EQ(info.objects[2].pages, 16U - 5);
  CHECK_EQ(info.objects[3].pages, 16U);
}

TEST("assembler: what processes map shared has its pages once") {
  const Scratch scratch;
  {
    Assembler to{scratch.file("t.tts"), description(), {}};
    to.map(mib, 8 * page, "table", 77);
    to.access(mib + 3 * page, AccessKind::load, 0, 5);
    to.process(1);
    to.map(9 * mib, 4 * page, "table", 77, 2 * page);  // pages 2 to 5 of it
    to.access(9 * mib + page, AccessKind::store, 0, 2);
    to.discard(9 * mib, 4 * page);  // its content stays
    to.access(9 * mib + page, AccessKind::store, 0, 1);
    to.access(9 * mib + 2 * page, AccessKind::load, 0, 7);
    to.map(20 * mib, 8 * page, "table", 78);  // another
    to.access(20 * mib + 3 * page, AccessKind::load, 0, 9);
    to.process(0);
    to.unmap(0, Record::address_mask);
    to.time(20 * ms);
    to.process(1);
    to.access(9 * mib + page, AccessKind::load, 0, 1);  // still there
    to.unmap(9 * mib, 4 * page);                        // now nobody has it
    to.time(40 * ms);
    to.map(9 * mib, 8 * page, "table", 77);
    to.access(9 * mib + 3 * page, AccessKind::load, 0, 4);
    to.time(60 * ms);
    (void)to.finish();
  }
  const Played got = play(scratch.file("t.tts"));
  CHECK_EQ(got.info.objects.size(), 3U);
  CHECK_EQ(got.pages.at(3).first, 6U);
  CHECK_EQ(got.pages.at(3).second, 3U);
  CHECK_EQ(got.pages.at(4).first, 7U);
  CHECK_EQ(got.pages.at(8 + 3).first, 9U);
  CHECK_EQ(got.pages.at(16 + 3).first, 4U);
  CHECK_EQ(got.unmaps.size(), 1U);
  CHECK_EQ(got.unmaps[0].first, 0U);
  CHECK_EQ(got.unmaps[0].count, 8U);
}

TEST("assembler: unmaps at the end of the block") {
  const Scratch scratch;
  AssemblerOptions options;
  options.block_ms = 1;
  Assembler to{scratch.file("t.tts"), description(), options};
  to.map(mib, 8 * page, "object");
  to.access(mib, AccessKind::load, 0, 1);
  for (std::uint64_t i = 1; i < 8; ++i) {
    to.access(mib + i * page, AccessKind::load, 0, 1);
    to.unmap(mib + i * page, page);
  }
  to.discard(mib, page);
  to.access(mib, AccessKind::store, 0, 1);  // the same object, other contents
  to.time(ms);
  to.map(64 * mib, page, "later");
  to.access(64 * mib, AccessKind::load, 0, 1);
  to.finish();
  const Played got = play(scratch.file("t.tts"));
  CHECK_EQ(got.info.blocks, 2U);
  CHECK_EQ(got.unmaps.size(), 8U);
  for (const std::size_t block : got.unmap_blocks) CHECK_EQ(block, 1U);
  CHECK_EQ(got.info.objects.size(), 3U);
  CHECK_EQ(got.info.objects[1].site, std::string("object"));
  CHECK_EQ(got.info.objects[1].pages, 1U);
}

TEST("assembler: rounds without bias") {
  const Scratch scratch;
  Assembler to{scratch.file("t.tts"), description(), {}};
  to.map(mib, 2 * page, "object");
  for (int i = 0; i < 100'000; ++i) to.access(mib, AccessKind::load, 0, 0.3);
  for (int i = 0; i < 100'000; ++i) to.access(mib + page, AccessKind::load, 0, 2.75);
  to.finish();
  const Played got = play(scratch.file("t.tts"));
  CHECK_NEAR(static_cast<double>(got.pages.at(0).first), 30'000.0, 800.0);  // 5 sigma
  CHECK_NEAR(static_cast<double>(got.pages.at(1).first), 275'000.0, 800.0);
}

TEST("assembler: wall time is compute and stall") {
  const Scratch scratch;
  AssemblerOptions options;
  options.block_ms = 10;
  options.threads = 2;
  options.wall_time = true;
  Assembler to{scratch.file("t.tts"), description(), options};
  to.map(mib, page, "object");
  to.access(mib, AccessKind::load, 1, 1000);  // MLP 2: 45 ns each
  to.time(4 * ms);
  to.time(10 * ms);
  to.access(mib, AccessKind::load, 1, 1e6);  // 45 ms of two threads in 10 ms: nothing is left
  to.time(20 * ms);
  to.access(mib, AccessKind::load, 0, 1);
  to.finish();
  const Played got = play(scratch.file("t.tts"));
  CHECK_EQ(got.compute.size(), 3U);
  CHECK_NEAR(got.compute[0], 20e6 - 45e3, 1.0);
  CHECK_EQ(got.compute[1], 0.0);
  CHECK_NEAR(got.info.nominal_seconds, (20e6 + 45e6 + 90 / 8.0) * 1e-9 / 2, 1e-9);
}

TEST("assembler: refuses what cannot be") {
  const Scratch scratch;
  Assembler to{scratch.file("t.tts"), description(), {}};
  CHECK_THROWS(to.access(mib, AccessKind::load, 2, 1), "class 2 of 2");
  CHECK_THROWS(to.access(mib, AccessKind::load, 0, -1), "stands for");
  CHECK_THROWS(to.access(mib, AccessKind::load, 0, std::nan("")), "stands for");
  CHECK_THROWS(to.compute(-1), "compute time");
  to.map(mib, 0, "nothing");
  to.unmap(0, ~std::uint64_t{0});
  CHECK_THROWS(to.finish(), "no access was observed");
}

// ------------------------------------------------------------------------------------- spools

TEST("spool: of a killed process is readable") {
  const Scratch scratch;
  const pid_t child = fork();
  if (child == 0) {
    static SpoolWriter spool;  // its destructor will not run
    if (spool.open(scratch.file("1.spool").c_str(), "test", 0) != 0) _exit(1);
    spool.header()->threads = 3;
    spool.map(mib, 64 * mib, "a call site longer than one record's sixteen bytes");
    for (std::uint64_t i = 0; i < 600'000; ++i) {  // more than two pieces
      if (i % 1000 == 0) spool.time(i * 100);
      spool.access(mib + i % 1000 * page, i % 4 == 0, 1, 1);
    }
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  SpoolSummary summary;
  AssemblerOptions options;
  options.threads = 0;
  const trace::StreamInfo info =
      assemble(scratch.path, scratch.file("t.tts"), description(), options, summary);
  CHECK_EQ(info.accesses, 600'000U);
  CHECK_EQ(info.objects[0].site, std::string("a call site longer than one record's sixteen bytes"));
  CHECK_EQ(summary.threads, 3U);
  CHECK_EQ(summary.open.size(), 1U);
  CHECK(!summary.disk_full);
  const Played got = play(scratch.file("t.tts"));
  CHECK_EQ(got.pages.at(4).second, 600U);
}

TEST("spools: a limit on the size of files ends the recording, not the program") {
  const Scratch scratch;
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{6 << 20, 6 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    SpoolWriter spool;
    if (spool.open(scratch.file("1.spool").c_str(), "test", 0) != 0) _exit(1);
    for (std::uint64_t i = 0; i < 600'000; ++i) spool.access(mib + i % 1000 * page, false, 1, 1);
    spool.close(SpoolState::closed);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  SpoolSummary summary;
  const trace::StreamInfo info =
      assemble(scratch.path, scratch.file("t.tts"), description(), {}, summary);
  CHECK(summary.disk_full);
  CHECK(summary.dropped > 0);
  CHECK_EQ(info.accesses + summary.dropped, 600'000U);
}

TEST("spools: one that is taken away while it grows counts as cut short") {
  const Scratch scratch;
  SpoolWriter kept;
  CHECK_EQ(kept.open(scratch.file("1.spool").c_str(), "test", 0), 0);
  kept.access(mib, false, 0, 1);
  std::filesystem::rename(scratch.file("1.spool"), scratch.file("2.spool"));
  CHECK(kept.header()->state.load() == static_cast<std::uint32_t>(SpoolState::open));
  for (std::uint64_t i = 0; i < 300'000; ++i) kept.access(mib, false, 0, 1);
  CHECK(kept.header()->state.load() == static_cast<std::uint32_t>(SpoolState::failed));
  SpoolSummary summary;
  assemble(scratch.path, scratch.file("t.tts"), description(), {}, summary);
  CHECK_EQ(summary.open.size(), 1U);
  CHECK(!summary.disk_full);
}

TEST("spools: a process that ended before it had anything to record is not cut short") {
  const Scratch scratch;
  SpoolWriter busy;
  SpoolWriter brief;
  CHECK_EQ(busy.open(scratch.file("1.spool").c_str(), "test", 0), 0);
  CHECK_EQ(brief.open(scratch.file("2.spool").c_str(), "test", 0), 0);
  busy.access(mib, false, 0, 1);
  busy.close(SpoolState::closed);
  SpoolSummary summary;
  assemble(scratch.path, scratch.file("t.tts"), description(), {}, summary);
  CHECK_EQ(summary.open.size(), 0U);
}

TEST("spools: of several processes are merged by time") {
  const Scratch scratch;
  SpoolWriter first;
  SpoolWriter second;
  CHECK_EQ(first.open(scratch.file("7.spool").c_str(), "test", 0), 0);
  CHECK_EQ(second.open(scratch.file("3.spool").c_str(), "test", 15 * ms), 0);
  SpoolWriter third;
  CHECK_EQ(third.open(scratch.file("3.spool").c_str(), "test", 0), EEXIST);
  for (std::uint64_t block = 0; block < 4; ++block) {
    first.time(block * 10 * ms);
    first.access(mib, false, 0, 1);
  }
  second.time(15 * ms);
  second.access(mib, false, 0, 100);
  first.close(SpoolState::closed);
  second.close(SpoolState::closed);
  SpoolSummary summary;
  const trace::StreamInfo info =
      assemble(scratch.path, scratch.file("t.tts"), description(), {}, summary);
  CHECK_EQ(summary.processes, 2U);
  CHECK_EQ(summary.open.size(), 0U);
  CHECK_EQ(info.blocks, 4U);
  CHECK_EQ(info.objects.size(), 2U);  // the same address in each is a page of its own
  const trace::Reader reader{scratch.file("t.tts")};
  trace::Block block;
  reader.read(1, block);
  CHECK_EQ(block.segments[0].sum, 101U);
  bool gone = false;  // with its process
  for (std::uint64_t b = 2; b < 4; ++b) {
    reader.read(b, block);
    for (const trace::Event& event : block.events) gone |= event.type == trace::EventType::unmap;
  }
  CHECK(gone);
}

TEST("spools: that are none are named") {
  const Scratch scratch;
  SpoolSummary summary;
  const auto go = [&] {
    return assemble(scratch.path, scratch.file("t.tts"), description(), {}, summary);
  };
  CHECK_THROWS(go(), "no process was recorded");
  std::ofstream{scratch.file("1.spool")} << "short";
  CHECK_THROWS(go(), "1.spool: not a spool, or cut off");
  std::ofstream{scratch.file("1.spool")} << std::string(10'000, 'x');
  CHECK_THROWS(go(), "not a spool of a recording");
  std::filesystem::remove(scratch.file("1.spool"));
  {
    SpoolWriter spool;
    CHECK_EQ(spool.open(scratch.file("1.spool").c_str(), "test", 0), 0);
    spool.access(mib, false, 9, 1);
    spool.close(SpoolState::closed);
  }
  CHECK_THROWS(go(), "record 0: class 9 of 2");
  const auto patch = [&](std::streamoff at, std::uint64_t value, int bytes) {
    std::fstream file{scratch.file("1.spool"), std::ios::in | std::ios::out | std::ios::binary};
    file.seekp(at);
    file.write(reinterpret_cast<const char*>(&value), bytes);
  };
  patch(offsetof(SpoolHeader, records), 1ull << 40, 8);
  CHECK_THROWS(go(), "claims 1099511627776 records");
  patch(offsetof(SpoolHeader, version), 2, 4);
  CHECK_THROWS(go(), "version 2 of the spool format");
  CHECK_EQ(std::filesystem::exists(scratch.file("t.tts")), false);
}

}  // namespace

namespace {

/// Operations of a stream: how many, those that are kept whole, and whether their memory was there.
struct PlayedOperations {
  std::uint64_t all = 0, timed = 0, kept = 0, accesses = 0;
  double compute_ns = 0;
  bool dangling = false;
};
PlayedOperations play_operations(const std::filesystem::path& file) {
  const trace::Reader reader{file};
  reader.verify();
  PlayedOperations out;
  std::vector<bool> gone(reader.info().pages);
  trace::Block block;
  for (std::uint64_t b = 0; b < reader.info().blocks; ++b) {
    reader.read(b, block);
    for (const trace::Event& event : block.events)
      if (event.type == trace::EventType::unmap)
        for (std::uint32_t p = 0; p < event.count; ++p) gone[event.first + p] = true;
    for (const std::uint64_t count : block.operations) {
      out.all += count;
      out.timed += block.timed ? count : 0;
    }
    for (const trace::Operation& operation : block.sampled) {
      ++out.kept;
      out.compute_ns += operation.compute_ns;
      for (const trace::OpAccess& access : operation.accesses) {
        out.accesses += access.count;
        out.dangling = out.dangling || gone[access.page];
      }
    }
  }
  return out;
}

}  // namespace

TEST("assembler: an operation has the memory that it freed before it ended") {
  const Scratch scratch;
  AssemblerOptions options;
  options.block_ms = 1;
  options.operations = true;
  options.last_operation_ns = 9 * ms;
  trace::StreamInfo info = description();
  info.op_kinds = {{"operation"}};
  Assembler to{scratch.file("t.tts"), info, options};
  to.map(100 * mib, 8 * page, "its own");
  to.map(200 * mib, 8 * page, "of others");
  to.access(200 * mib, AccessKind::load, 0, 100);
  to.time(1 * ms);
  to.operations_begin();
  to.access(100 * mib, AccessKind::store, 1, 3);
  to.operation_access(1, 100 * mib, AccessKind::store, 1, 3);
  to.unmap(100 * mib, 8 * page);
  to.time(3 * ms);
  to.access(200 * mib, AccessKind::load, 1, 2);
  to.operation_access(1, 200 * mib, AccessKind::load, 1, 2);
  to.time(5 * ms);
  to.operation_access(2, 200 * mib, AccessKind::load, 1, 7);
  to.operation(2, abandoned_operation, 0);
  to.operation(1, 0, 1e3);
  to.operations(1);
  to.compute(1e6);
  to.time(8 * ms);
  to.access(200 * mib, AccessKind::load, 0, 100);
  to.time(12 * ms);
  CHECK_THROWS((to.operation_access(1, 200 * mib, AccessKind::load, 9, 1), 0), "class 9");
  const trace::StreamInfo written = to.finish();
  const PlayedOperations got = play_operations(scratch.file("t.tts"));
  CHECK_EQ(got.all, 1U);
  CHECK_EQ(got.timed, 1U);
  CHECK_EQ(got.kept, 1U);
  CHECK_EQ(got.accesses, 5U);
  CHECK_EQ(got.compute_ns, 1e3);
  CHECK(!got.dangling);
  CHECK_EQ(play(scratch.file("t.tts")).unmaps.size(), 1U);
  // What came before the first operation is not timed.
  const double stall_ns = 90.0 / 2;
  CHECK_NEAR(written.nominal_seconds * 1e9, 1e6 + 2 * stall_ns + 3 * stall_ns / 4 + 100 * 90.0 / 8,
             2 * stall_ns);
}

TEST("spools: operations of all processes are a sample in which all have the same chance") {
  const Scratch scratch;
  const auto write = [&](const char* name, std::uint32_t level) {
    SpoolWriter spool;
    CHECK_EQ(spool.open(scratch.file(name).c_str(), "test", 0), 0);
    spool.map(100 * mib, page, "table");
    spool.operations_begin();
    constexpr std::uint64_t count = 4096;
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto own = static_cast<std::uint32_t>(std::countr_zero(mix64(i)));
      if (own >= level) spool.operation(1, own, 10);
    }
    spool.access(100 * mib, false, 0, 1);
    spool.operations(count);
    spool.header()->operations = count;
    spool.header()->operation_level = level;
    spool.header()->last_operation_ns = ms;
    spool.time(ms);
  };
  write("1.spool", 0);
  write("2.spool", 3);
  SpoolSummary summary;
  const trace::StreamInfo info =
      assemble(scratch.path, scratch.file("t.tts"), description(), {}, summary);
  CHECK_EQ(summary.operations, 2U * 4096);
  CHECK_EQ(info.operations, 2U * 4096);
  const PlayedOperations got = play_operations(scratch.file("t.tts"));
  CHECK(got.kept % 2 == 0);  // the same of both
  CHECK_NEAR(static_cast<double>(got.kept), 2 * 4096 / 8.0, 120);
  // A header that knows of none is not that of a spool with operations.
  SpoolWriter spool;
  CHECK_EQ(spool.open(scratch.file("3.spool").c_str(), "test", 0), 0);
  spool.header()->operations = 0;
  spool.operation(1, 5, 10);
  spool.close(SpoolState::closed);
  std::filesystem::remove(scratch.file("1.spool"));
  std::filesystem::remove(scratch.file("2.spool"));
  CHECK_THROWS(assemble(scratch.path, scratch.file("u.tts"), description(), {}, summary),
               "an operation, and the header knows of none");
}

TEST("assembler: an offered load leaves the rest of the time idle, bursts included") {
  const Scratch scratch;
  AssemblerOptions options;
  options.operations = true;
  options.threads = 2;
  options.last_operation_ns = 100 * ms;
  options.offered_per_s = 10'000;
  trace::StreamInfo info = description();
  info.op_kinds = {{"operation"}};
  Assembler to{scratch.file("t.tts"), info, options};
  to.map(100 * mib, page, "table");
  to.operations_begin();
  for (std::uint64_t i = 1; i <= 4; ++i) {
    to.access(100 * mib, AccessKind::load, 0, 1);
    to.compute(i == 2 ? 30e6 : 2e6);  // the second takes longer than clients wait for the next
    to.operations(100);
    to.time(i * 20 * ms);
  }
  const trace::StreamInfo written = to.finish();
  CHECK_NEAR(written.nominal_seconds, 400 / 10'000.0, 1e-6);
}
