// SPDX-License-Identifier: MIT

// Small synthetic streams and a test machine for the simulator's tests.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/math.hpp"
#include "core/rng.hpp"
#include "sim/profile.hpp"
#include "trace/reader.hpp"
#include "trace/stream.hpp"
#include "trace/writer.hpp"

namespace simtest {

using namespace tt;

/// A stream file that vanishes with the object.
class TempStream {
 public:
  TempStream() {
    static std::atomic<int> next{0};
    path_ = std::filesystem::temp_directory_path() /
            ("tt_sim_" + std::to_string(::getpid()) + "_" + std::to_string(next++) + ".tts");
  }
  ~TempStream() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TempStream(const TempStream&) = delete;
  TempStream& operator=(const TempStream&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const trace::Reader& reader() {
    if (!reader_) reader_ = std::make_unique<trace::Reader>(path_);
    return *reader_;
  }

 private:
  std::filesystem::path path_;
  std::unique_ptr<trace::Reader> reader_;
};

/// Accesses as a test writes them down.
struct Part {
  std::uint32_t stream_class = 0;
  AccessKind kind = AccessKind::load;
  std::vector<std::uint32_t> pages;
  std::vector<std::uint16_t> counts;
};

/// Builds blocks from owned vectors and writes them.
class StreamWriter {
 public:
  StreamWriter(const TempStream& file, trace::StreamInfo info)
      : info_(std::move(info)), writer_(file.path(), info_) {
    compute_.resize(info_.lanes.size());
    operations_.resize(info_.op_kinds.size());
  }
  std::vector<trace::Event> events;
  std::vector<Part> parts;
  std::vector<trace::Operation> sampled;
  std::vector<double>& compute() { return compute_; }
  std::vector<std::uint64_t>& operations() { return operations_; }

  /// Writes what has been set as the next block, and clears it.
  void block(bool timed, double nominal_ns) {
    trace::Block block;
    block.timed = timed;
    block.nominal_ns = nominal_ns;
    block.compute_ns = compute_;
    block.operations = operations_;
    block.events = events;
    for (const Part& part : parts)
      block.segments.push_back({part.stream_class, part.kind, 0, part.pages, part.counts, {}});
    block.sampled = sampled;
    writer_.write(block);
    events.clear();
    parts.clear();
    sampled.clear();
    std::ranges::fill(compute_, 0.0);
    std::ranges::fill(operations_, 0);
  }
  void finish() { writer_.finish(info_); }

 private:
  trace::StreamInfo info_;
  trace::Writer writer_;
  std::vector<double> compute_;
  std::vector<std::uint64_t> operations_;
};

inline trace::StreamInfo one_class(std::uint64_t pages, double scale, double mlp = 1,
                                   double issue_ns = 0) {
  trace::StreamInfo info;
  info.workload = "test";
  info.scale = scale;
  info.pages = pages;
  info.classes = {{"all", mlp, issue_ns, 0}};
  info.lanes = {{"all", 1}};
  info.objects = {{"heap", 0, pages}};
  info.op_kinds = {{"get"}};
  return info;
}

inline void map_and_touch(StreamWriter& writer, std::uint32_t first, std::uint32_t count) {
  writer.events.push_back({trace::EventType::map, 0, first, count});
  writer.events.push_back({trace::EventType::touch, 0, first, count});
}

/// A machine with round figures: 100 and 300 ns, flat latency, free tiering.
inline sim::MachineProfile plain_machine() {
  sim::MachineProfile machine;
  machine.name = "plain";
  machine.ghz = 2;
  machine.cores = 16;
  machine.threads = 4;
  machine.tiers[0] = {100, 100, 50, 120, {{0, 1}}, 0.5};
  machine.tiers[1] = {300, 20, 10, 24, {{0, 1}}, 0.5};
  machine.migration_fixed_us = 10;
  machine.migration_copy_gbps = 4.096;
  machine.sample_interrupt_ns = 0;
  machine.sample_lines = machine.live_lines = 0;
  machine.sample_queue = 1e6;
  machine.first_touch_us = 0;
  machine.clear_overlap = 1e9;  // clearing takes no time
  return machine;
}

/// The same, with every cost that a real machine has.
inline sim::MachineProfile full_machine() {
  sim::MachineProfile machine = plain_machine();
  machine.tiers[0].loaded = {{0, 1}, {0.5, 1.1}, {0.8, 1.4}, {1, 2.5}};
  machine.tiers[1].loaded = {{0, 1}, {0.5, 1.2}, {0.8, 1.6}, {1, 3}};
  machine.migration_shootdown_us = 0.5;
  machine.sample_assist_ns = 250;
  machine.sample_interrupt_ns = 2000;
  machine.sample_lines = 20;
  machine.live_lines = 0.14;
  machine.sample_drain_ns = 100;
  machine.work_ns = {{Work::tracker_update, 20},
                     {Work::tracker_lookup, 10},
                     {Work::cooling_step, 20},
                     {Work::scan_step, 20},
                     {Work::threshold_pass, 500}};
  machine.huge_page_gain = 0.1;
  machine.first_touch_us = 1;
  machine.clear_overlap = 10;
  return machine;
}

/// A skewed population, as a miniature: page j of the miniature has the mean popularity of the
/// ranks that it stands for, and the accesses that such a page gets are drawn one by one. With
/// drift, pages swap their popularity with others at random times. Stream seconds are nominal.
struct ZipfOptions {
  double full_pages = 1 << 20;
  double scale = 64;
  double exponent = 0.8;
  double rate = 50e6;  // full-scale accesses per nominal second
  double seconds = 10;
  double block_ms = 10;
  double store_share = 0.1;
  double drift_seconds = 0;  // in this time half of the pages have swapped; 0: never
  std::uint64_t seed = 1;
};

inline void write_zipf(const TempStream& file, const ZipfOptions& options) {
  const auto pages = static_cast<std::uint32_t>(options.full_pages / options.scale);
  trace::StreamInfo info = one_class(pages, options.scale, 4, 5);
  StreamWriter writer{file, info};
  // Cumulative popularity by rank; a scattered but fixed place for each rank.
  std::vector<double> cumulative(pages);
  double sum = 0;
  for (std::uint32_t j = 0; j < pages; ++j) {
    const double from = j * options.scale + 0.5;
    const double power = 1 - options.exponent;
    sum += math::pow(from + options.scale, power) - math::pow(from, power);
    cumulative[j] = sum;
  }
  std::vector<std::uint32_t> place(pages);
  Rng rng{options.seed};
  for (std::uint32_t j = 0; j < pages; ++j) place[j] = j;
  for (std::uint32_t j = pages; j > 1; --j) std::swap(place[j - 1], place[rng.below(j)]);

  map_and_touch(writer, 0, pages);
  writer.block(false, 1e6);
  const double block_ns = options.block_ms * 1e6;
  const auto blocks = static_cast<std::uint64_t>(options.seconds * 1e9 / block_ns);
  const double per_block = options.rate * options.block_ms / 1e3 / options.scale;
  std::vector<std::uint16_t> loads(pages);
  std::vector<std::uint16_t> stores(pages);
  double owed = 0;
  double swaps = 0;
  for (std::uint64_t b = 0; b < blocks; ++b) {
    if (options.drift_seconds > 0)
      swaps += 0.5 * pages * math::log(2.0) * block_ns * 1e-9 / options.drift_seconds;
    for (; swaps >= 1; --swaps) std::swap(place[rng.below(pages)], place[rng.below(pages)]);
    std::vector<trace::OpAccess> accesses;
    for (owed += per_block; owed >= 1; --owed) {
      const double at = rng.uniform() * sum;
      const auto rank =
          static_cast<std::uint32_t>(std::ranges::lower_bound(cumulative, at) - cumulative.begin());
      const std::uint32_t page = place[std::min(rank, pages - 1)];
      const bool store = rng.uniform() < options.store_share;
      ++(store ? stores : loads)[page];
      if (accesses.size() < 64)
        accesses.push_back({page, 1, 0, store ? AccessKind::store : AccessKind::load});
    }
    for (const AccessKind kind : {AccessKind::load, AccessKind::store}) {
      Part part;
      part.kind = kind;
      auto& counts = kind == AccessKind::load ? loads : stores;
      for (std::uint32_t page = 0; page < pages; ++page) {
        if (counts[page] == 0) continue;
        part.pages.push_back(page);
        part.counts.push_back(counts[page]);
        counts[page] = 0;
      }
      if (!part.pages.empty()) writer.parts.push_back(std::move(part));
    }
    writer.operations()[0] = static_cast<std::uint64_t>(per_block / 4);
    for (std::size_t i = 0; i + 4 <= accesses.size(); i += 4)
      writer.sampled.push_back({0, 50, std::span{accesses}.subspan(i, 4)});
    writer.block(true, block_ns);
  }
  writer.finish();
}

/// An object that is chased through, mlp 1, and one that is swept over, mlp 8, which gets four
/// times as many accesses and is mapped first. 512 pages each, R 4.
inline void write_chase_and_sweep(const TempStream& file, bool scratch = false) {
  constexpr std::uint32_t pages = 512;
  trace::StreamInfo info = one_class(2 * pages + 512, 4);
  info.classes = {{"sweep", 8, 5, 0}, {"chase", 1, 0, 0}};
  info.objects = {{"swept", 0, pages}, {"chased", pages, pages}, {"scratch", 2 * pages, 512}};
  StreamWriter writer{file, info};
  for (std::uint32_t object = 0; object < 2; ++object) {
    writer.events.push_back({trace::EventType::map, object, object * pages, pages});
    writer.events.push_back({trace::EventType::touch, object, object * pages, pages});
  }
  writer.block(false, 1e6);
  for (int b = 0; b < 300; ++b) {
    for (std::uint32_t c = 0; c < 2; ++c) {
      Part part;
      part.stream_class = c;
      for (std::uint32_t page = 0; page < pages; ++page) {
        part.pages.push_back(c * pages + page);
        part.counts.push_back(c == 0 ? 80 : 20);
      }
      writer.parts.push_back(std::move(part));
    }
    if (scratch && b % 10 == 0) writer.events.push_back({trace::EventType::map, 2, 2 * pages, 512});
    if (scratch && b % 10 == 5)
      writer.events.push_back({trace::EventType::unmap, 2, 2 * pages, 512});
    writer.operations()[0] = 100;
    writer.block(true, 1e7);
  }
  writer.finish();
}

}  // namespace simtest
