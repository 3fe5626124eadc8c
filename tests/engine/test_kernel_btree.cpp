// SPDX-License-Identifier: MIT

// btree: the tree against a map, its memory, and the two phases of the benchmark.
#include <algorithm>
#include <map>
#include <numeric>

#include "check.hpp"
#include "core/rng.hpp"
#include "drawn_law.hpp"
#include "kernels/btree_index.hpp"
#include "kernels/kernel.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::kernels;
using namespace tt::trace;
using check::Scratch;

namespace {

StreamInfo description() {
  StreamInfo info;
  info.lanes = {{"all", 1}};
  info.classes = {{"dependent", 1, 0, 0}, {"scan", 4, 0, 0}, {"update", 8, 0, 0}};
  return info;
}

RecordRequest small(const std::filesystem::path& file) {
  RecordRequest request;
  request.input = "test";
  request.scale = 16384;  // 8,178 keys
  request.threads = 12;
  request.llc_bytes = 18 << 20;
  request.seed = 3;
  request.file = file;
  request.parameters = {{"inserts_m", 300.0}, {"lookups_m", 300.0}, {"block_ms", 200.0}};
  return request;
}

struct Phase {
  double loads = 0;
  double stores = 0;
  double seconds = 0;
  std::uint64_t operations = 0;
  std::vector<double> pages;
};
struct Phases {
  StreamInfo info;
  Phase insert;
  Phase lookup;
};

/// Accesses of the blocks up to the first lookup, and of those from it on.
Phases phases(const RecordRequest& request) {
  Phases result{kernels::record("btree", request), {}, {}};
  const Reader reader{request.file};
  reader.verify();
  Block block;
  Phase* phase = &result.insert;
  result.insert.pages.resize(result.info.pages);
  result.lookup.pages.resize(result.info.pages);
  for (std::uint64_t i = 0; i < result.info.blocks; ++i) {
    reader.read(i, block);
    if (block.operations[1] > 0 && block.operations[0] == 0) phase = &result.lookup;
    result.insert.operations += block.operations[0];
    result.lookup.operations += block.operations[1];
    phase->seconds += block.nominal_ns * 1e-9;
    for (const Segment& segment : block.segments)
      for (std::size_t e = 0; e < segment.pages.size(); ++e) {
        (segment.kind == AccessKind::load ? phase->loads : phase->stores) += segment.counts[e];
        phase->pages[segment.pages[e]] += segment.counts[e];
      }
  }
  return result;
}

}  // namespace

TEST("btree: behaves as a map under random insertions, replacements and lookups") {
  const Scratch scratch;
  for (const std::uint64_t order : {3u, 4u, 5u, 16u}) {
    Recorder recorder{scratch.file("a.tts"), description(), {}};
    TracedMemory memory{recorder, 4096};
    BtreeOptions options;
    options.order = order;
    BtreeIndex tree{options, {0, 1, 2, 2}, memory};
    std::map<std::uint64_t, std::uint64_t> known;
    Rng rng{order};
    CHECK(!tree.find(1));
    for (std::uint64_t i = 0; i < 5000; ++i) {
      const std::uint64_t key = rng.below(4000);
      CHECK_EQ(tree.insert(key, i), known.insert_or_assign(key, i).second);
      const std::uint64_t asked = rng.below(4000);
      const auto found = known.find(asked);
      const auto value = tree.find(asked);
      CHECK(found == known.end() ? !value : value == found->second);
      if (i % 500 == 0) CHECK_EQ(tree.inconsistency(), "");
    }
    CHECK_EQ(tree.inconsistency(), "");
    CHECK_EQ(tree.size(), known.size());
    CHECK(std::ranges::equal(tree.pairs(), known, [](const auto& a, const auto& b) {
      return a.first == b.first && a.second == b.second;
    }));
  }
}

TEST("btree: a heap beyond what a system has at this scale is refused") {
  const Scratch scratch;
  Recorder recorder{scratch.file("a.tts"), description(), {}};
  TracedMemory memory{recorder, 1 << 20};  // 4 MiB of 4 TiB
  const auto first = memory.map("first", 2 << 20);
  memory.poke<std::uint64_t>(first + (2 << 20) - 8) = 7;
  CHECK_EQ(memory.peek<std::uint64_t>(first + (2 << 20) - 8), 7u);
  (void)memory.map("second", 2 << 20);
  CHECK_THROWS((void)memory.map("third", 1), "more than 4 TiB");
}

TEST("btree: memory per pair is the published one, with base pages and with huge ones") {
  const Scratch scratch;
  // MEMTIS (SOSP'23), §6.2.5: 157 million pairs take 15.2 GB, and 38.3 GB with huge pages.
  for (const std::uint64_t slab_kib : {256u, 2048u}) {
    Recorder recorder{scratch.file("a.tts"), description(), {}};
    TracedMemory memory{recorder, 4096};
    BtreeOptions options;
    options.slab_bytes = slab_kib << 10;
    BtreeIndex tree{options, {0, 1, 2, 2}, memory};
    constexpr std::uint64_t pairs = 200000;
    for (std::uint64_t i = 0; i < pairs; ++i) (void)tree.insert(mix64(i + 1), i);
    CHECK_EQ(tree.size(), pairs);
    const double used = static_cast<double>(tree.nodes()) *
                            static_cast<double>(56 + 2 * options.array_stride) / pairs +
                        16;
    CHECK_NEAR(used, 15.2e9 / 157e6, 5);
    if (slab_kib == 256)
      CHECK_NEAR(static_cast<double>(memory.mapped_bytes()) / pairs, 38.3e9 / 157e6,
                 40);  // whole slabs
    const StreamInfo info = recorder.finish();
    const Reader reader{scratch.file("a.tts")};
    std::vector<int> touched(info.pages / 512);
    Block block;
    for (std::uint64_t i = 0; i < info.blocks; ++i) {
      reader.read(i, block);
      for (const Event& event : block.events)
        if (event.type == EventType::touch)
          for (std::uint32_t page = event.first; page < event.first + event.count; ++page)
            ++touched[page / 512];
    }
    // Ibid.: "mostly 8.3-12.5 %" of a huge page's subpages are used.
    std::ranges::sort(touched);
    CHECK_EQ(touched[touched.size() / 2], slab_kib == 256 ? 64 : 512);
  }
}

TEST("btree: insertions write, lookups read, and both are counted") {
  const Scratch scratch;
  const Phases run = phases(small(scratch.file("a.tts")));
  CHECK_EQ(run.insert.operations, 18310u);
  CHECK_EQ(run.lookup.operations, 18310u);
  CHECK_EQ(run.lookup.stores, 0.0);
  CHECK(run.insert.stores > 0.25 * run.insert.loads);
  // One thread inserts and twelve look up.
  CHECK(run.insert.seconds > 8 * run.lookup.seconds);
  CHECK_NEAR(run.info.nominal_seconds, run.insert.seconds + run.lookup.seconds, 1e-6);
  // What is hot in the first phase is not in the second: records that were written.
  const auto share = [&](const Phase& phase, std::string_view site) {
    double part = 0;
    double all = 0;
    for (const Object& object : run.info.objects)
      for (std::uint64_t page = object.first_page; page < object.first_page + object.pages;
           ++page) {
        all += phase.pages[page];
        if (object.site == site) part += phase.pages[page];
      }
    return part / all;
  };
  CHECK(share(run.insert, "btree.records") > 0.05);
  CHECK(share(run.lookup, "btree.nodes") > 0.2);  // 56 bytes per node, touched at each level
}

TEST("btree: in huge pages, drawn counts give what operations one by one do") {
  const Scratch scratch;
  const auto run = [&](const char* name, std::uint64_t page_bytes) {
    auto request = small(scratch.file(name));
    request.scale = 256;  // 25 huge pages: 21,000 replacements and as many lookups are made
    request.page_bytes = page_bytes;
    request.parameters["inserts_m"] = 237.0;
    request.parameters["lookups_m"] = 100.0;
    request.parameters["block_ms"] = 5.0;  // one block holds the end of a phase and a beginning
    return phases(request);
  };
  const Phases made = run("made.tts", base_page_bytes);
  const Phases drawn = run("drawn.tts", huge_page_bytes);
  CHECK(drawn.info.entries * 2 < made.info.entries);
  CHECK_EQ(drawn.insert.operations, made.insert.operations);
  CHECK_EQ(drawn.lookup.operations, made.lookup.operations);
  CHECK_NEAR(drawn.insert.seconds, made.insert.seconds, 0.005 * made.insert.seconds);
  CHECK_NEAR(drawn.lookup.seconds, made.lookup.seconds, 0.005 * made.lookup.seconds);
  CHECK_NEAR(drawn.insert.stores, made.insert.stores, 0.005 * made.insert.stores);
  const double law = 8000 * static_cast<double>(drawn.info.pages) / 10;
  const double times = static_cast<double>(made.lookup.operations) / law;
  CHECK(times > 8);
  check::same_law(check::by_huge_page(made.lookup.pages), drawn.lookup.pages, times, 2);
  check::same_law(check::by_huge_page(made.insert.pages), drawn.insert.pages, times, 2);
}

TEST("btree: a look ahead at the paths is not reported, and changes nothing") {
  const Scratch scratch;
  std::vector<std::uint64_t> keys(300);
  std::iota(keys.begin(), keys.end(), 0u);
  const auto accesses = [&](bool looks_ahead) {
    Recorder recorder{scratch.file("a.tts"), description(), {.llc_bytes = 1024}};
    TracedMemory memory{recorder, 4096};
    BtreeIndex tree{{.order = 4}, {0, 1, 2, 2}, memory};
    for (const std::uint64_t key : keys) {
      if (looks_ahead) tree.approach(keys);  // of an empty tree at first
      (void)tree.insert(key * 7 % 300, key);
    }
    CHECK_EQ(tree.inconsistency(), "");
    CHECK_EQ(tree.size(), 300u);
    return recorder.finish().accesses;
  };
  CHECK(accesses(false) > 1000);
  CHECK_EQ(accesses(true), accesses(false));
}

TEST("btree: each parameter shows") {
  const Scratch scratch;
  const auto with = [&](const char* name, Value value) {
    auto request = small(scratch.file("a.tts"));
    request.parameters[name] = std::move(value);
    return phases(request);
  };
  const Phases base = phases(small(scratch.file("a.tts")));
  const auto top = [](Phases run) {
    std::ranges::sort(run.lookup.pages, std::greater{});
    return std::accumulate(run.lookup.pages.begin(), run.lookup.pages.begin() + 60, 0.0) /
           (run.lookup.loads + run.lookup.stores);
  };
  const auto touched = [](const Phases& run) {
    return std::ranges::count_if(run.insert.pages, [](double count) { return count > 0; });
  };
  CHECK(top(with("zipf", 0.99)) > top(base) + 0.05);
  const Phases untimed = with("insert_timed", false);
  CHECK_EQ(untimed.info.operations, 18310u);
  CHECK_NEAR(untimed.info.nominal_seconds, base.lookup.seconds, 1);
  CHECK(with("hit_share", 0.0).lookup.loads < base.lookup.loads * 0.97);  // no record is read
  CHECK_EQ(with("inserts_m", 450.0).insert.operations, 27465u);
  CHECK_EQ(with("lookups_m", 150.0).lookup.operations, 9155u);
  CHECK(touched(with("keys_m", 67.0)) < touched(base));
  CHECK(touched(with("record_bytes", std::int64_t{64})) >= touched(base));
  CHECK(touched(with("array_stride", std::int64_t{704})) > touched(base) + 100);
  CHECK(touched(with("slab_kib", 256.0)) < touched(base));
  CHECK(with("order", std::int64_t{4}).lookup.loads > 1.2 * base.lookup.loads);
  CHECK(with("insert_ns", 1000.0).insert.seconds > base.insert.seconds * 1.2);
  CHECK(with("lookup_ns", 1000.0).lookup.seconds > base.lookup.seconds * 1.2);
  CHECK(with("block_ms", 50.0).info.blocks > base.info.blocks * 2);
  CHECK_THROWS(with("keys_m", 0.1), "fewer than 100");
}
