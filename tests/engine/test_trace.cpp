// SPDX-License-Identifier: MIT

// The stream format: round trip, determinism, and that damage is an error and nothing else.
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "check.hpp"
#include "core/rng.hpp"
#include "fuzz.hpp"
#include "scratch.hpp"
#include "trace/checksum.hpp"
#include "trace/layout.hpp"
#include "trace/reader.hpp"
#include "trace/stream.hpp"
#include "trace/writer.hpp"

using namespace tt;
using namespace tt::trace;
using check::bytes_of;
using check::Scratch;

namespace {

StreamInfo description() {
  StreamInfo info;
  info.workload = "test";
  info.input = "small";
  info.parameters = "a=1 b=2";
  info.seed = 7;
  info.scale = 64;
  info.pages = 1000;
  info.nominal_seconds = 1.5;
  info.lanes = {{"workers", 1}, {"single", 0}};
  info.classes = {{"sequential", 8, 2.5, 0, 0.5, 0.75, 0.125, 3.5}, {"dependent", 1, 0, 1}};
  info.objects = {{"arena", 0, 900}, {"index", 900, 100}};
  info.op_kinds = {{"get"}, {"set"}};
  return info;
}

/// Writes `blocks` blocks with `entries` entries each.
void write(const std::filesystem::path& file, std::size_t blocks, std::size_t entries,
           std::uint64_t seed = 1) {
  const StreamInfo info = description();
  Writer writer{file, info};
  Rng rng{seed};
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::vector<double> compute = {100.0 * static_cast<double>(b), 7};
    const std::vector<std::uint64_t> operations = {b, 2};
    const std::vector<Event> events = {{EventType::map, 0, 0, 900}, {EventType::touch, 1, 900, 3}};
    std::vector<std::uint32_t> pages;
    std::vector<std::uint16_t> counts;
    for (std::size_t e = 0; e < entries; ++e) {
      pages.push_back(static_cast<std::uint32_t>(rng.below(1000)));
      counts.push_back(static_cast<std::uint16_t>(1 + rng.below(65535)));
    }
    const std::vector<OpAccess> accesses = {{5, 1, 1, AccessKind::load},
                                            {6, 3, 0, AccessKind::store}};
    Block block;
    block.timed = b % 3 != 0;
    block.nominal_ns = 1e6;
    block.compute_ns = compute;
    block.operations = operations;
    block.events = events;
    block.segments = {{0, AccessKind::load, 0, pages, counts, {}},
                      {1,
                       AccessKind::store,
                       0,
                       std::span(pages).first(entries / 2),
                       std::span(counts).first(entries / 2),
                       {}},
                      {1,
                       AccessKind::load,
                       0,
                       std::span(pages).first(entries / 2),
                       std::span(counts).first(entries / 2),
                       {}}};
    block.sampled = {{1, 55.5, accesses}, {0, 1.5, std::span(accesses).first(1)}, {0, 0, {}}};
    writer.write(block);
  }
  writer.finish(info);
}

void put(const std::filesystem::path& file, std::span<const char> bytes) {
  std::ofstream out{file, std::ios::binary | std::ios::trunc};
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// Opens, reads and verifies; true when one of them threw. Sums all that read() hands out, so that
/// a sanitizer sees every byte it points to.
bool refused(const std::filesystem::path& file) {
  try {
    const Reader reader{file};
    Block block;
    volatile std::uint64_t sink = 0;
    for (std::uint64_t i = 0; i < reader.info().blocks; ++i) {
      reader.read(i, block);
      for (const Segment& segment : block.segments) {
        for (const auto page : segment.pages) sink = sink + page;
        for (const auto count : segment.counts) sink = sink + count;
        for (const auto sum : segment.chunk_sums) sink = sink + sum;
      }
      for (const Operation& operation : block.sampled)
        for (const OpAccess& access : operation.accesses) sink = sink + access.page;
    }
    for (const auto total : reader.page_totals()) sink = sink + total;
    reader.verify();
  } catch (const std::runtime_error&) {
    return true;
  }
  return false;
}

}  // namespace

TEST("trace: what is written is read") {
  const Scratch scratch;
  const auto file = scratch.file("a.tts");
  write(file, 4, 150);
  CHECK_EQ(scratch.files(), 1u);
  const Reader reader{file};
  reader.verify();
  const StreamInfo& info = reader.info();
  CHECK_EQ(info.workload, "test");
  CHECK_EQ(info.input, "small");
  CHECK_EQ(info.parameters, "a=1 b=2");
  CHECK_EQ(info.seed, 7u);
  CHECK_EQ(info.scale, 64.0);
  CHECK_EQ(info.pages, 1000u);
  CHECK_EQ(info.blocks, 4u);
  CHECK_EQ(info.entries, 4u * (150 + 75 + 75));
  CHECK_EQ(info.operations, 1u + 2 + 2 + 2);  // blocks 1 and 2 are timed
  CHECK_EQ(info.nominal_seconds, 1.5);
  CHECK_EQ(info.lanes.size(), 2u);
  CHECK_EQ(info.lanes[1].name, "single");
  CHECK_EQ(info.lanes[1].thread_share, 0.0);
  CHECK_EQ(info.classes[0].mlp, 8.0);
  CHECK_EQ(info.classes[0].issue_ns, 2.5);
  CHECK_EQ(info.classes[1].lane, 1u);
  CHECK_EQ(info.classes[0].prefetched, 0.75);
  CHECK_EQ(info.classes[0].translation, 0.125);
  CHECK_EQ(info.classes[0].store_events, 3.5);
  CHECK_EQ(info.classes[1].prefetched, 0.0);
  CHECK_EQ(info.objects[1].site, "index");
  CHECK_EQ(info.objects[1].first_page, 900u);
  CHECK_EQ(info.op_kinds[1].name, "set");

  Block block;
  std::uint64_t accesses = 0;
  std::vector<std::uint64_t> totals(1000);
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    CHECK_EQ(block.timed, i % 3 != 0);
    CHECK_EQ(block.compute_ns[0], 100.0 * static_cast<double>(i));
    CHECK_EQ(block.operations[0], i);
    CHECK_EQ(block.events.size(), 2u);
    CHECK(block.events[1].type == EventType::touch);
    CHECK_EQ(block.events[1].first, 900u);
    CHECK_EQ(block.segments.size(), 3u);
    CHECK_EQ(block.segments[0].pages.size(), 150u);
    CHECK_EQ(block.segments[0].chunk_sums.size(), 3u);
    CHECK(block.segments[1].kind == AccessKind::store);
    CHECK_EQ(block.segments[1].stream_class, 1u);
    CHECK_EQ(block.segments[2].pages.data(), block.segments[1].pages.data());  // stored once
    CHECK(block.segments[2].kind == AccessKind::load);
    CHECK_EQ(block.segments[2].sum, block.segments[1].sum);
    for (const Segment& segment : block.segments) {
      CHECK_EQ(reinterpret_cast<std::uintptr_t>(segment.pages.data()) % 64, 0u);
      CHECK_EQ(reinterpret_cast<std::uintptr_t>(segment.counts.data()) % 64, 0u);
      std::uint64_t sum = 0;
      std::uint64_t of_chunks = 0;
      for (std::size_t e = 0; e < segment.pages.size(); ++e) {
        sum += segment.counts[e];
        if (block.timed) totals[segment.pages[e]] += segment.counts[e];
      }
      for (const auto chunk_sum : segment.chunk_sums) of_chunks += chunk_sum;
      CHECK_EQ(segment.sum, sum);
      CHECK_EQ(of_chunks, sum);
      accesses += sum;
    }
    CHECK_EQ(block.sampled.size(), 3u);
    CHECK_EQ(block.sampled[0].compute_ns, 55.5);
    CHECK_EQ(block.sampled[0].accesses.size(), 2u);
    CHECK(block.sampled[0].accesses[1].kind == AccessKind::store);
    CHECK_EQ(block.sampled[1].accesses[0].page, 5u);
    CHECK(block.sampled[2].accesses.empty());
  }
  CHECK_EQ(info.accesses, accesses);
  CHECK(std::ranges::equal(totals, reader.page_totals()));
  CHECK_THROWS(reader.read(4, block), "no block 4");
}

TEST("trace: a stream without blocks is a stream") {
  const Scratch scratch;
  write(scratch.file("a.tts"), 0, 0);
  const Reader reader{scratch.file("a.tts")};
  reader.verify();
  CHECK_EQ(reader.info().blocks, 0u);
  CHECK_EQ(reader.page_totals().size(), 1000u);
}

TEST("trace: the same content has the same bytes") {
  const Scratch scratch;
  write(scratch.file("a.tts"), 3, 70);
  write(scratch.file("b.tts"), 3, 70);
  write(scratch.file("c.tts"), 3, 70, 2);
  CHECK(bytes_of(scratch.file("a.tts")) == bytes_of(scratch.file("b.tts")));
  CHECK(bytes_of(scratch.file("a.tts")) != bytes_of(scratch.file("c.tts")));
}

TEST("trace: errors say what is wrong") {
  const Scratch scratch;
  const auto file = scratch.file("a.tts");
  CHECK_THROWS(Reader{file}, "a.tts: cannot open");
  CHECK_THROWS(Reader{scratch.path}, "no regular file");
  put(file, {});
  CHECK_THROWS(Reader{file}, "empty file");
  put(file, std::vector<char>(500, 'x'));
  CHECK_THROWS(Reader{file}, "a.tts: not an access stream");
  write(file, 2, 10);
  std::vector<char> bytes = bytes_of(file);
  bytes[8] = 9;
  put(file, bytes);
  CHECK_THROWS(Reader{file}, "version 9, this program reads versions 2 to 3");
  bytes[8] = static_cast<char>(format_version);
  put(file, std::span(bytes).first(bytes.size() / 2));
  CHECK_THROWS(Reader{file}, "truncated");
  bytes[200] ^= 1;  // in block 0
  put(file, bytes);
  CHECK_THROWS(Reader{file}.verify(), "a.tts: corrupt stream: block 0: checksum");
}

TEST("trace: a stream of version 2 is read; its classes had no patterns") {
  const Reader reader{std::filesystem::path(TT_FUZZ_CORPUS) / "stream" / "found-long-block"};
  reader.verify();
  const StreamInfo& info = reader.info();
  CHECK_EQ(info.classes.size(), 2u);
  for (const StreamClass& each : info.classes) {
    CHECK_EQ(each.prefetched, 0.0);
    CHECK_EQ(each.translation, 1.0);
    CHECK_EQ(each.store_events, 1.0);
  }
}

TEST("trace: truncated anywhere is an error") {
  const Scratch scratch;
  write(scratch.file("a.tts"), 2, 10);
  const std::vector<char> bytes = bytes_of(scratch.file("a.tts"));
  const auto file = scratch.file("cut.tts");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    put(file, std::span(bytes).first(size));
    if (!refused(file)) check::fail(__FILE__, __LINE__, "accepted at " + std::to_string(size));
  }
}

TEST("trace: any flipped bit is an error") {
  const Scratch scratch;
  write(scratch.file("a.tts"), 2, 10);
  std::vector<char> bytes = bytes_of(scratch.file("a.tts"));
  const auto file = scratch.file("flip.tts");
  Rng rng{3};
  for (int i = 0; i < 6000; ++i) {
    const std::size_t at = rng.below(bytes.size());
    const auto bit = static_cast<char>(1 << rng.below(8));
    bytes[at] = static_cast<char>(bytes[at] ^ bit);
    put(file, bytes);
    if (!refused(file)) check::fail(__FILE__, __LINE__, "accepted at " + std::to_string(at));
    bytes[at] = static_cast<char>(bytes[at] ^ bit);
  }
}

TEST("trace: wild counts in a block never lead out of it") {
  // The checksums fit: what read() checks beside them must hold.
  const Scratch scratch;
  write(scratch.file("a.tts"), 2, 10);
  const std::vector<char> bytes = bytes_of(scratch.file("a.tts"));
  const auto file = scratch.file("wild.tts");
  const auto index = fuzz::peek<std::uint64_t>(bytes, offsetof(layout::FileHeader, index_offset));
  const auto totals = fuzz::peek<std::uint64_t>(bytes, offsetof(layout::FileHeader, totals_offset));
  const auto block = fuzz::peek<layout::IndexEntry>(bytes, index);
  Rng rng{5};
  int refusals = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<char> wild = bytes;
    for (int words = 0; words < 3; ++words)
      fuzz::poke(wild, block.offset + 4 * rng.below(64), rng.next() >> rng.below(64));
    const auto sign = [&wild](std::size_t at, std::size_t from, std::size_t to) {
      fuzz::poke(wild, at, checksum(std::as_bytes(std::span(wild)).subspan(from, to - from)));
    };
    sign(index + offsetof(layout::IndexEntry, checksum), block.offset, block.offset + block.bytes);
    sign(offsetof(layout::FileHeader, index_checksum), index, totals);
    sign(offsetof(layout::FileHeader, checksum), 0, offsetof(layout::FileHeader, checksum));
    put(file, wild);
    refusals += refused(file);
  }
  CHECK(refusals > 2000);
  CHECK(refusals < 3000);  // another computation time is as good
}

TEST("trace: a full disk is an error that names the file and leaves none") {
  const Scratch scratch;
  const auto file = scratch.file("a.tts");
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 8192;
  setrlimit(RLIMIT_FSIZE, &small);
  bool thrown = false;
  try {
    write(file, 100, 1000);
  } catch (const std::system_error& error) {
    thrown = std::string_view{error.what()}.find("a.tts") != std::string_view::npos;
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, previous);
  CHECK(thrown);
  CHECK_EQ(scratch.files(), 0u);
}

TEST("trace: an abandoned writer leaves no file") {
  const Scratch scratch;
  {
    const Writer writer{scratch.file("a.tts"), description()};
  }
  CHECK_EQ(scratch.files(), 0u);
  CHECK_THROWS((Writer{scratch.path / "missing" / "a.tts", description()}), "a.tts");
}

TEST("trace: the writer refuses what the reader would") {
  const Scratch scratch;
  StreamInfo info = description();
  Writer writer{scratch.file("a.tts"), info};
  const double compute[2] = {};
  const std::uint64_t operations[2] = {};
  const std::uint32_t pages[1] = {5000};
  const std::uint16_t counts[1] = {1};
  Block block;
  CHECK_THROWS(writer.write(block), "per lane");
  block.compute_ns = compute;
  block.operations = operations;
  block.segments = {{2, AccessKind::load, 0, pages, counts, {}}};
  CHECK_THROWS(writer.write(block), "segment");
  block.segments[0].stream_class = 1;
  writer.write(block);
  CHECK_THROWS(writer.finish(info), "page 5000 of 1000");
  info.classes[0].mlp = 0;
  Writer other{scratch.file("b.tts"), info};
  CHECK_THROWS(other.finish(info), "MLP");
  for (const auto& [broken, message] :
       {std::pair{StreamClass{.prefetched = 1.5}, "prefetched lines is not 0 to 1"},
        {StreamClass{.translation = -1}, "translations is not 0 to 1"},
        {StreamClass{.store_events = 0}, "retired stores is not positive"}}) {
    info.classes[0] = broken;
    Writer bad{scratch.file("c.tts"), info};
    CHECK_THROWS(bad.finish(info), message);
  }
}
