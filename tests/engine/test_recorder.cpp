// SPDX-License-Identifier: MIT

// The recorder: cache filter, coalescing, blocks, first touches, operations.
#include <algorithm>
#include <list>
#include <map>
#include <set>

#include "check.hpp"
#include "core/rng.hpp"
#include "isas.hpp"
#include "scratch.hpp"
#include "trace/llc.hpp"
#include "trace/reader.hpp"
#include "trace/recorder.hpp"

using namespace tt;
using namespace tt::trace;
using check::Scratch;

namespace {

constexpr std::uint64_t page = base_page_bytes;

StreamInfo description() {
  StreamInfo info;
  info.workload = "test";
  info.lanes = {{"all", 1}, {"one", 0}};
  info.classes = {{"sequential", 8, 2, 0}, {"dependent", 1, 0, 0}, {"alone", 1, 0, 1}};
  info.op_kinds = {{"get"}, {"set"}};
  return info;
}

RecorderOptions small_cache() {
  RecorderOptions options;
  options.llc_bytes = 64 * 64 * 16;  // 64 sets
  options.block_ms = 1e6;
  return options;
}

struct Entry {
  std::uint64_t loads = 0;
  std::uint64_t stores = 0;
  friend bool operator==(const Entry&, const Entry&) = default;
};

/// Sums per page over all blocks.
std::map<std::uint32_t, Entry> totals(const Reader& reader) {
  std::map<std::uint32_t, Entry> sums;
  Block block;
  for (std::uint64_t i = 0; i < reader.info().blocks; ++i) {
    reader.read(i, block);
    for (const Segment& segment : block.segments)
      for (std::size_t e = 0; e < segment.pages.size(); ++e) {
        Entry& entry = sums[segment.pages[e]];
        (segment.kind == AccessKind::load ? entry.loads : entry.stores) += segment.counts[e];
      }
  }
  return sums;
}

}  // namespace

TEST("llc: every variant is an exact LRU cache") {
  check::on_each_isa([] {
    for (const unsigned ways : {1u, 3u, 8u, 9u, 16u}) {
      LlcFilter one_set{64.0 * ways, ways};
      CHECK_EQ(one_set.sets(), 1u);
      std::list<std::pair<std::uint32_t, bool>> reference;  // line, dirty; most recent first
      Rng rng{ways};
      for (int i = 0; i < 20000; ++i) {
        const auto line = static_cast<std::uint32_t>(rng.below(24));
        const bool store = rng.below(3) == 0;
        const auto found =
            std::ranges::find(reference, line, [](const auto& entry) { return entry.first; });
        const bool hit = found != reference.end();
        bool dirty = hit && found->second;
        const bool dirtied = store && !dirty;
        dirty = dirty || store;
        if (hit) reference.erase(found);
        reference.emplace_front(line, dirty);
        if (reference.size() > ways) reference.pop_back();
        const LlcFilter::Count count = one_set.touch(line / 8, line % 8, 1, store);
        CHECK_EQ(count.missed, hit ? 0u : 1u);
        CHECK_EQ(count.dirtied, dirtied ? 1u : 0u);
      }
    }
  });
}

TEST("llc: what fits stays, what does not is missed") {
  LlcFilter llc{64.0 * 1024, 16};
  CHECK_EQ(llc.sets(), 64u);
  for (std::uint32_t p = 0; p < 16; ++p) CHECK_EQ(llc.touch(p, 0, 64, false).missed, 64u);
  for (std::uint32_t p = 0; p < 16; ++p) CHECK_EQ(llc.touch(p, 0, 64, false).missed, 0u);
  CHECK_EQ(llc.touch(16, 0, 64, false).missed, 64u);
  for (std::uint32_t p = 0; p < 17; ++p)  // 17 pages in 16 ways: cyclic use defeats LRU
    CHECK_EQ(llc.touch(p, 0, 64, false).missed, 64u);
  CHECK_THROWS((LlcFilter{1e6, 17}), "1 to 16 ways");
}

TEST("recorder: a class's addresses tell what prefetchers bring, and who translates") {
  const Scratch scratch;
  StreamInfo info = description();
  info.classes = {{"sweep", 8, 2, 0},
                  {"random", 4, 0, 0},
                  {"short", 4, 0, 0},
                  {.name = "ahead", .mlp = 4, .prefetched = 1},
                  {"never", 1, 0, 0}};
  Recorder recorder{scratch.file("a.tts"), info, small_cache()};
  constexpr std::uint64_t pages = 256;  // four times the cache
  const Address a = recorder.map("a", pages * page);
  // In words: a line that is touched again does not end its run, nor does a border of a call.
  for (Address at = a; at < a + pages * page; at += 8) recorder.load(0, at, 8);
  Rng rng{3};
  for (int i = 0; i < 40000; ++i) recorder.load(1, a + rng.below(pages * page / 64) * 64, 8);
  // Values of four lines, each two times the cache's size from the last one.
  for (std::uint64_t i = 0; i < 10000; ++i)
    recorder.load(2, a + (i * 97 % pages) * page + (i % 8) * 512, 256);
  for (int i = 0; i < 40000; ++i) recorder.load(3, a + rng.below(pages * page / 64) * 64, 8);
  const StreamInfo found = recorder.finish();
  // All but the two lines at each page's start, which the core has to ask for itself.
  CHECK_NEAR(found.classes[0].prefetched, 62.0 / 64, 1e-12);
  CHECK_NEAR(found.classes[0].translation, 1.0 / 64, 1e-12);
  // By chance one in 64 goes on where another stopped.
  CHECK(found.classes[1].prefetched < 0.01);
  CHECK(found.classes[1].translation > 0.96);
  CHECK_NEAR(found.classes[2].prefetched, 0.5, 0.07);
  CHECK_NEAR(found.classes[2].translation, 0.25, 0.04);
  CHECK_NEAR(found.classes[3].prefetched, 1, 0);  // by instructions, as it said
  CHECK(found.classes[3].translation > 0.96);
  CHECK_EQ(found.classes[4].prefetched, 0.0);  // as declared
  CHECK_EQ(found.classes[4].translation, 1.0);
  CHECK_EQ(Reader{scratch.file("a.tts")}.info().classes[0].prefetched, found.classes[0].prefetched);
}

TEST("recorder: a class has as many retired stores for each line as its calls take") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), small_cache()};
  const Address a = recorder.map("a", 100 * page);
  recorder.store(0, a, 50 * page);  // a copy: 32 bytes at a time
  for (int i = 0; i < 1000; ++i) recorder.store(1, a + 60 * page, 8);
  const StreamInfo info = recorder.finish();
  CHECK_EQ(info.classes[0].store_events, 2.0);
  CHECK_EQ(info.classes[1].store_events, 1000.0);
  CHECK_EQ(info.classes[2].store_events, 1.0);
}

TEST("recorder: misses are coalesced per page, class and kind") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), small_cache()};
  const Address a = recorder.map("a", 2 * page);
  const Address b = recorder.map("b", 1);
  CHECK_EQ(b, a + 2 * page);
  recorder.load(0, a + 100, 4096);  // lines 1 to 65: 63 of page 0, 2 of page 1
  recorder.load(1, a + 100, 8);     // a hit
  recorder.load(1, a, 8);           // line 0
  recorder.store(1, a, 8);          // dirtied: one write-back
  recorder.store(1, a, 8);          // already dirty
  recorder.store(0, b, 1);
  const StreamInfo info = recorder.finish();
  const Reader reader{scratch.file("a.tts")};
  reader.verify();
  CHECK_EQ(reader.info().accesses, info.accesses);
  CHECK_EQ(info.accesses, 65u + 1 + 1 + 1);
  CHECK_EQ(info.entries, 5u);
  CHECK_EQ(info.pages, 3u);
  // The only store of class 0 had to fetch its line; that of class 1 wrote what had been read.
  CHECK_EQ(reader.info().classes[0].store_fill, 1.0);
  CHECK_EQ(reader.info().classes[1].store_fill, 0.0);
  Block block;
  reader.read(0, block);
  CHECK_EQ(block.segments.size(), 4u);
  CHECK_EQ(block.segments[0].counts[0], 63u);
  CHECK_EQ(block.segments[0].counts[1], 2u);
  CHECK(block.segments[1].kind == AccessKind::store);
  CHECK_EQ(block.segments[1].pages[0], 2u);
  CHECK_EQ(block.segments[2].stream_class, 1u);
  CHECK_EQ(block.segments[2].sum, 1u);
  CHECK_EQ(block.segments[3].sum, 1u);
}

TEST("recorder: counts beyond 16 bits continue in a new entry") {
  const Scratch scratch;
  RecorderOptions options = small_cache();
  options.llc_bytes = 64;
  options.llc_ways = 1;  // one line: alternating lines always miss
  Recorder recorder{scratch.file("a.tts"), description(), options};
  const Address a = recorder.map("a", page);
  for (int i = 0; i < 70000; ++i) {
    recorder.load(1, a, 1);
    recorder.load(1, a + 64, 1);
  }
  CHECK_EQ(recorder.finish().entries, 3u);
  const Reader reader{scratch.file("a.tts")};
  reader.verify();
  CHECK_EQ(reader.info().accesses, 140000u);
  CHECK_EQ(reader.page_totals()[0], 140000u);
}

TEST("recorder: first touches come in order, once, as ranges") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), small_cache()};
  const Address a = recorder.map("a", 10 * page);
  const Address b = recorder.map("b", 10 * page);
  recorder.load(0, a + 4 * page, 3 * page);
  recorder.load(0, a + 2 * page, 4 * page);
  recorder.store(0, b, 2 * page);
  (void)recorder.finish();
  const Reader reader{scratch.file("a.tts")};
  Block block;
  reader.read(0, block);
  const auto is = [](const Event& event, EventType type, unsigned object, unsigned first,
                     unsigned count) {
    return event.type == type && event.object == object && event.first == first &&
           event.count == count;
  };
  CHECK_EQ(block.events.size(), 5u);
  CHECK(is(block.events[0], EventType::map, 0, 0, 10));
  CHECK(is(block.events[1], EventType::map, 1, 10, 10));
  CHECK(is(block.events[2], EventType::touch, 0, 4, 3));
  CHECK(is(block.events[3], EventType::touch, 0, 2, 2));
  CHECK(is(block.events[4], EventType::touch, 1, 10, 2));
  CHECK_EQ(reader.info().objects[1].site, "b");
  CHECK_EQ(reader.info().objects[1].pages, 10u);
}

TEST("recorder: a freed range is closed off before its event and never reused") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), small_cache()};
  const Address a = recorder.map("a", page);
  const Address b = recorder.map("b", page);
  recorder.load(0, a, page);
  recorder.unmap(a);
  CHECK_THROWS(recorder.load(0, a, 1), "not mapped");
  CHECK_THROWS(recorder.load(0, b + page, 1), "not mapped");
  CHECK_THROWS(recorder.unmap(a), "unmap");
  CHECK_THROWS(recorder.unmap(b + 64), "unmap");
  CHECK_EQ(recorder.map("c", page), 2 * page);
  recorder.load(0, b, 1);
  (void)recorder.finish();
  const Reader reader{scratch.file("a.tts")};
  reader.verify();
  CHECK_EQ(reader.info().blocks, 2u);
  Block block;
  reader.read(0, block);
  CHECK_EQ(block.segments[0].sum, 64u);
  reader.read(1, block);
  CHECK(block.events[0].type == EventType::unmap);
  CHECK_EQ(block.events[0].object, 0u);
}

TEST("recorder: blocks close at their nominal time, and time adds up") {
  const Scratch scratch;
  RecorderOptions options = small_cache();
  options.block_ms = 1;
  options.scale = 10;
  options.threads = 4;
  options.nominal_latency_ns = 80;
  options.llc_bytes = 640;
  options.op_sample_probability = 0;
  Recorder recorder{scratch.file("a.tts"), description(), options};
  const Address a = recorder.map("a", 1000 * page);
  recorder.set_timed(false);
  // Sequential: 80 / 8 = 10 ns a line; ten-fold over four threads: 25 ns, 64 lines 1.6 us a page.
  recorder.load(0, a, 1000 * page);
  CHECK_NEAR(recorder.total_seconds(), 1.6e-3, 1e-12);
  CHECK_EQ(recorder.timed_seconds(), 0.0);
  recorder.set_timed(true);
  recorder.load(2, a, 640);   // the lane of one thread: 10 lines, 800 ns each at full scale
  recorder.compute(0, 2000);  // 5 us, meanwhile
  CHECK_NEAR(recorder.timed_seconds(), 8e-6, 1e-15);
  recorder.compute(0, 4000);  // 15 us
  CHECK_NEAR(recorder.timed_seconds(), 15e-6, 1e-15);
  const StreamInfo info = recorder.finish();
  CHECK_NEAR(info.nominal_seconds, 15e-6, 1e-15);
  CHECK_EQ(info.blocks, 3u);
  CHECK_EQ(info.scale, 10.0);
  const Reader reader{scratch.file("a.tts")};
  reader.verify();
  Block block;
  reader.read(0, block);
  CHECK(!block.timed);
  CHECK_EQ(block.segments[0].sum, 625u * 64);
  CHECK_NEAR(block.nominal_ns, 1e6, 1e-6);
  reader.read(2, block);
  CHECK(block.timed);
  CHECK_EQ(block.compute_ns[0], 6000.0);
  CHECK_EQ(reader.page_totals()[0], 10u);  // the timed part only
  CHECK_EQ(reader.page_totals()[1], 0u);
}

TEST("recorder: operations stay whole and are sampled with their probability") {
  const Scratch scratch;
  RecorderOptions options = small_cache();
  options.block_ms = 0.001;
  options.op_sample_probability = 0.1;
  options.llc_bytes = 64 * 16;
  Recorder recorder{scratch.file("a.tts"), description(), options};
  const Address a = recorder.map("a", 100 * page);
  constexpr int count = 20000;
  for (int i = 0; i < count; ++i) {
    recorder.begin_operation(i % 4 == 0 ? 1 : 0);
    const Address at = a + static_cast<Address>(i) % 99 * page;
    recorder.load(1, at, 1);
    recorder.compute(0, 5);
    recorder.load(0, at + 64, 128);
    recorder.load(0, at + 192, 64);
    recorder.store(1, at + page + 640, 1);
    recorder.end_operation();
  }
  CHECK_THROWS(recorder.end_operation(), "no operation");
  const StreamInfo info = recorder.finish();
  CHECK_EQ(info.operations, static_cast<std::uint64_t>(count));
  const Reader reader{scratch.file("a.tts")};
  reader.verify();
  CHECK(info.blocks > 100);
  Block block;
  std::uint64_t sampled = 0;
  std::uint64_t sets = 0;
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    sampled += block.sampled.size();
    sets += block.operations[1];
    std::uint64_t sum = 0;
    for (const Segment& segment : block.segments) sum += segment.sum;
    CHECK_EQ(sum, 5 * (block.operations[0] + block.operations[1]));
    for (const Operation& operation : block.sampled) {
      CHECK_EQ(operation.compute_ns, 5.0);
      CHECK_EQ(operation.accesses.size(), 3u);
      CHECK_EQ(operation.accesses[0].stream_class, 1u);
      CHECK_EQ(operation.accesses[1].count, 3u);
      CHECK_EQ(operation.accesses[2].page, operation.accesses[1].page + 1);
      CHECK(operation.accesses[2].kind == AccessKind::store);
    }
  }
  CHECK_EQ(sets, count / 4u);
  CHECK_NEAR(static_cast<double>(sampled), 0.1 * count, 5 * std::sqrt(0.09 * count));
}

TEST("recorder: sums do not depend on the block length") {
  const Scratch scratch;
  std::map<std::uint32_t, Entry> sums[2];
  for (int variant = 0; variant < 2; ++variant) {
    RecorderOptions options = small_cache();
    options.block_ms = variant == 0 ? 0.005 : 5;
    Recorder recorder{scratch.file("a.tts"), description(), options};
    const Address a = recorder.map("a", 500 * page);
    Rng rng{1};
    for (int i = 0; i < 50000; ++i) {
      const Address at = a + rng.below(500 * page - 200);
      recorder.load(1, at, 1 + rng.below(200));
      if (rng.below(2) == 0) recorder.store(1, at, 8);
    }
    const StreamInfo info = recorder.finish();
    CHECK(variant == 0 ? info.blocks > 100 : info.blocks < 10);
    sums[variant] = totals(Reader{scratch.file("a.tts")});
  }
  CHECK(sums[0] == sums[1]);
}

TEST("recorder: refuses nonsense") {
  const Scratch scratch;
  RecorderOptions options = small_cache();
  options.scale = 0;
  CHECK_THROWS((Recorder{scratch.file("a.tts"), description(), options}), "positive");
  Recorder recorder{scratch.file("a.tts"), description(), small_cache()};
  CHECK_THROWS(recorder.map("a", 0), "no bytes");
  CHECK_THROWS(recorder.map("a", 1ull << 40), "128 GiB");
  recorder.begin_operation(0);
  CHECK_THROWS(recorder.begin_operation(0), "nest");
}
