// SPDX-License-Identifier: MIT

// Soar's microbenchmark: the two threads' access patterns.
#include <algorithm>
#include <set>

#include "check.hpp"
#include "kernels/kernel.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"

using namespace tt;
using namespace tt::trace;
using check::Scratch;

namespace {

kernels::RecordRequest small(const std::filesystem::path& file) {
  kernels::RecordRequest request;
  request.workload = "microbench";
  request.scale = 256;  // 2,048 pages per buffer, windows of 64 pages
  request.threads = 8;
  request.llc_bytes = 14417920;  // 13.75 MiB
  request.seed = 3;
  request.file = file;
  request.parameters["sequential_loads_g"] = 2.6;
  request.parameters["chase_loads_g"] = 0.4;
  return request;
}

}  // namespace

TEST("microbench: counts, classes and lanes are those of the paper") {
  const Scratch scratch;
  const StreamInfo info = kernels::record("microbench", small(scratch.file("m.tts")));
  const Reader reader{scratch.file("m.tts")};
  reader.verify();
  CHECK_EQ(info.pages, 4096u);
  CHECK_EQ(info.lanes.size(), 2u);
  CHECK_EQ(info.lanes[0].thread_share, 0.0);
  CHECK_EQ(info.lanes[1].thread_share, 0.0);
  CHECK_EQ(info.classes[1].lane, 1u);
  // On 90 ns memory the reader takes a line each 12.86 ns: seven are outstanding.
  const StreamClass& reader_class = info.classes[0];
  CHECK_NEAR(90 / std::max(reader_class.issue_ns, 90 / reader_class.mlp), 7, 0.01);
  CHECK_EQ(info.classes[1].mlp, 1.0);

  std::uint64_t sequential = 0;
  std::uint64_t chased = 0;
  Block block;
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    for (const Segment& segment : block.segments) {
      if (!block.timed) {
        CHECK(segment.kind == AccessKind::store);
        continue;
      }
      CHECK(segment.kind == AccessKind::load);
      (segment.stream_class == 0 ? sequential : chased) += segment.sum;
      for (const std::uint32_t page : segment.pages)
        CHECK_EQ(page / 2048, segment.stream_class);  // each on a buffer of its own
    }
  }
  // 2.6 G and 0.4 G over 256. The reader never hits; the chase now and then finds its next node in
  // what is left of the cache.
  CHECK_EQ(sequential, 10156250u);
  CHECK_NEAR(static_cast<double>(chased), 1562500, 1562500 * 0.01);
  // Both threads take about as long.
  const double sequential_s = 2.6 * 12.86;
  CHECK_NEAR(info.nominal_seconds, 0.4 * 90, 0.5);
  CHECK_NEAR(info.nominal_seconds / sequential_s, 1, 0.1);
}

TEST("microbench: the two threads write their buffers at the same time, page by page") {
  const Scratch scratch;
  const StreamInfo info = kernels::record("microbench", small(scratch.file("m.tts")));
  const Reader reader{scratch.file("m.tts")};
  std::vector<std::uint32_t> touched;
  Block block;
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    for (const Event& event : block.events)
      for (std::uint32_t n = 0; event.type == EventType::touch && n < event.count; ++n)
        touched.push_back(event.first + n);
  }
  CHECK_EQ(touched.size(), 4096u);
  for (std::uint32_t n = 0; n < 4096; ++n) CHECK_EQ(touched[n], n / 2 + n % 2 * 2048);
}

TEST("microbench: the chase visits every node, window after window") {
  const Scratch scratch;
  auto request = small(scratch.file("m.tts"));
  request.parameters["block_ms"] = 0.5;
  const StreamInfo info = kernels::record("microbench", request);
  const Reader reader{scratch.file("m.tts")};
  const auto totals = reader.page_totals();
  // 1.5625 M steps over 131,072 nodes: 11.9 rounds of 64 nodes a page, less what hits.
  const auto [least, most] = std::minmax_element(totals.begin() + 2048, totals.end());
  CHECK(*least >= 10 * 64 && *most <= 12 * 64);
  Block block;
  std::size_t checked = 0;
  for (std::uint64_t i = 0; i < info.blocks; ++i) {
    reader.read(i, block);
    if (!block.timed) continue;
    for (const Segment& segment : block.segments) {
      if (segment.stream_class != 1) continue;
      std::set<std::uint32_t> windows;
      for (const std::uint32_t page : segment.pages) windows.insert((page - 2048) / 64);
      CHECK(windows.size() <= 2);  // at most one border within half a millisecond
      if (windows.size() == 1 && segment.sum >= 20) {
        ++checked;
        CHECK(segment.pages.size() * 3 > segment.sum);  // scattered, not sequential
      }
    }
  }
  CHECK(checked > 1000);
}
