// SPDX-License-Identifier: MIT

// Fuzz target: a stream file.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/seam.hpp"
#include "fuzz.hpp"
#include "sim/simulate.hpp"
#include "trace/characteristics.hpp"
#include "trace/checksum.hpp"
#include "trace/reader.hpp"
#include "trace/stream.hpp"
#include "trace/writer.hpp"

namespace tt::fuzz {
namespace {

// Places in the file header and in an index entry; trace/layout.hpp has the layout. That refitting
// an untouched stream changes nothing (a test) keeps the two together.
constexpr std::size_t block_header_bytes = 64;
constexpr std::size_t at_file_bytes = 16, at_blocks = 24, at_index = 32, at_totals = 40,
                      at_tables = 48, at_index_sum = 64, at_totals_sum = 72, at_tables_sum = 80,
                      at_accesses = 96, at_entries = 104, at_operations = 112, at_header_sum = 184;
constexpr std::size_t index_entry_bytes = 32;

std::uint64_t sum_of(const Bytes& bytes, std::uint64_t from, std::uint64_t to) {
  if (from > to || to > bytes.size()) return 0;
  return trace::checksum(std::as_bytes(std::span(bytes)).subspan(from, to - from));
}

/// Recomputes every checksum for which the offsets make sense.
void refit_checksums(Bytes& bytes) {
  const auto blocks = peek<std::uint64_t>(bytes, at_blocks);
  const auto index = peek<std::uint64_t>(bytes, at_index);
  const auto totals = peek<std::uint64_t>(bytes, at_totals);
  const auto tables = peek<std::uint64_t>(bytes, at_tables);
  if (index <= bytes.size() && blocks <= (bytes.size() - index) / index_entry_bytes) {
    for (std::uint64_t b = 0; b < blocks; ++b) {
      const std::size_t at = index + b * index_entry_bytes;
      const auto offset = peek<std::uint64_t>(bytes, at);
      const auto size = peek<std::uint64_t>(bytes, at + 8);
      if (offset <= bytes.size() && size <= bytes.size() - offset)
        poke(bytes, at + 16, sum_of(bytes, offset, offset + size));
    }
  }
  poke(bytes, at_index_sum, sum_of(bytes, index, totals));
  poke(bytes, at_totals_sum, sum_of(bytes, totals, tables));
  poke(bytes, at_tables_sum, sum_of(bytes, tables, bytes.size()));
  poke(bytes, at_header_sum, sum_of(bytes, 0, at_header_sum));
}

/// Recomputes what verify() adds up, where read() already accepts the blocks: sums of chunks and
/// segments, page totals and the header's counters.
void refit_sums(Bytes& bytes, const std::filesystem::path& file) {
  write_file(file, bytes);
  std::vector<std::pair<std::size_t, std::uint32_t>> chunk_sums;
  std::uint64_t accesses = 0, entries = 0, operations = 0;
  std::vector<std::uint64_t> totals;
  try {
    const trace::Reader reader{file};
    totals.resize(reader.info().pages);
    const auto index = peek<std::uint64_t>(bytes, at_index);
    trace::Block block;
    for (std::uint64_t b = 0; b < reader.info().blocks; ++b) {
      reader.read(b, block);
      const auto offset = peek<std::uint64_t>(bytes, index + b * index_entry_bytes);
      // Segment headers follow compute times, operations and events.
      std::size_t header = offset + block_header_bytes + 8 * block.compute_ns.size() +
                           8 * block.operations.size() + 16 * block.events.size();
      for (const trace::Segment& segment : block.segments) {
        std::uint64_t sum = 0;
        for (std::size_t e = 0; e < segment.pages.size(); ++e) {
          sum += segment.counts[e];
          if (block.timed && segment.pages[e] < totals.size())
            totals[segment.pages[e]] += segment.counts[e];
        }
        poke(bytes, header + 16, sum);
        header += 24;
        accesses += sum;
        entries += segment.pages.size();
        // Where the chunk sums lie: as far from the pages as in the mapping. Pages come first in
        // a segment's arrays, and the first array after the last header is at a multiple of 64.
        for (std::size_t c = 0; c < segment.chunk_sums.size(); ++c) {
          std::uint32_t chunk_sum = 0;
          for (std::size_t e = c * trace::chunk;
               e < std::min((c + 1) * trace::chunk, segment.counts.size()); ++e)
            chunk_sum += segment.counts[e];
          const auto distance = reinterpret_cast<const char*>(&segment.chunk_sums[c]) -
                                reinterpret_cast<const char*>(block.compute_ns.data());
          chunk_sums.emplace_back(offset + block_header_bytes + static_cast<std::size_t>(distance),
                                  chunk_sum);
        }
      }
      if (block.timed)
        for (const std::uint64_t count : block.operations) operations += count;
    }
  } catch (const std::exception&) {
    return;
  }
  for (const auto& [at, sum] : chunk_sums) poke(bytes, at, sum);
  const auto at = peek<std::uint64_t>(bytes, at_totals);
  for (std::size_t p = 0; p < totals.size(); ++p) poke(bytes, at + 8 * p, totals[p]);
  poke(bytes, at_accesses, accesses);
  poke(bytes, at_entries, entries);
  poke(bytes, at_operations, operations);
}

void refit(Bytes& bytes, Rng& rng) {
  const std::uint64_t how = rng.below(8);
  if (how == 0) return;  // as it is: what most damage looks like
  if (rng.below(4) != 0) poke<std::uint64_t>(bytes, at_file_bytes, bytes.size());
  if (how == 1) {
    poke(bytes, at_header_sum, sum_of(bytes, 0, at_header_sum));
    return;
  }
  refit_checksums(bytes);
  if (how < 4) return;
  const auto file =
      std::filesystem::temp_directory_path() / ("tt-refit-" + std::to_string(rng.next()) + ".tts");
  refit_sums(bytes, file);
  std::filesystem::remove(file);
  refit_checksums(bytes);
}

sim::TierProfile tier(double latency_ns, double gbps) {
  sim::TierProfile out;
  out.latency_ns = latency_ns;
  out.read_gbps = out.write_gbps = gbps;
  out.loaded = {{0, 1}, {1, 3}};
  out.store_stall = 0.3;
  return out;
}

sim::MachineProfile machine() {
  sim::MachineProfile out;
  out.name = "fuzz";
  out.ghz = 2;
  out.cores = out.threads = 8;
  out.llc_bytes = 1 << 20;
  out.tiers = {tier(100, 50), tier(300, 10)};
  out.migration_fixed_us = 5;
  out.migration_copy_gbps = 4;
  out.migration_shootdown_us = 1;
  out.sample_assist_ns = 200;
  out.sample_drain_ns = 100;
  out.work_ns = sim::WorkCosts::all(20);
  out.huge_page_gain = 0.1;
  out.sample_queue = 1e4;
  return out;
}

/// Reads every byte that the reader hands out.
void read_all(const trace::Reader& reader) {
  volatile std::uint64_t sink = 0;
  trace::Block block;
  for (std::uint64_t b = 0; b < reader.info().blocks; ++b) {
    reader.read(b, block);
    for (const double nanoseconds : block.compute_ns) sink = sink + (nanoseconds > 0);
    for (const std::uint64_t count : block.operations) sink = sink + count;
    for (const trace::Event& event : block.events) sink = sink + event.first;
    for (const trace::Segment& segment : block.segments) {
      for (const auto page : segment.pages) sink = sink + page;
      for (const auto count : segment.counts) sink = sink + count;
      for (const auto sum : segment.chunk_sums) sink = sink + sum;
    }
    for (const trace::Operation& operation : block.sampled)
      for (const trace::OpAccess& access : operation.accesses) sink = sink + access.page;
  }
  for (const auto total : reader.page_totals()) sink = sink + total;
}

bool run(const Bytes& input, const std::filesystem::path& scratch) {
  const auto file = scratch / "input.tts";
  write_file(file, input);
  try {
    try {
      const trace::Reader reader{file};
      read_all(reader);
      (void)trace::characterise(reader, {16, 16});
    } catch (const std::runtime_error&) {
    }
    const trace::Reader reader{file};  // that has checked no block yet
    static constexpr std::array policies = {"first-touch", "hybridtier", "hemem", "freqtier",
                                            "static-hot"};
    const char* policy = policies[input.size() / 64 % policies.size()];
    sim::RunOptions options;
    options.fast_share = 0.2;
    options.coarse = true;
    options.deadline_seconds = 0.1;
    try {
      (void)sim::simulate(reader, machine(), tt::policy(policy), {}, options);
    } catch (const sim::DeadlineExceeded&) {
    }
    reader.verify();
  } catch (const std::runtime_error&) {  // the reader's refusal; what else is thrown is a finding
    return false;
  }
  return true;
}

Bytes made(std::size_t blocks, std::size_t entries, std::size_t pages, std::size_t kinds,
           const std::filesystem::path& file) {
  trace::StreamInfo info;
  info.workload = "fuzz";
  info.scale = 16;
  info.pages = pages;
  info.lanes = {{"many", 1}, {"one", 0}};
  info.classes = {{"stream", 8, 1, 0}, {"chase", 1, 0, 1}};
  info.objects = {{"heap", 0, pages / 2}, {"arena", pages / 2, pages - pages / 2}};
  for (std::size_t k = 0; k < kinds; ++k) info.op_kinds.push_back({"op" + std::to_string(k)});
  {
    trace::Writer writer{file, info};
    Rng rng{entries};
    for (std::size_t b = 0; b < blocks; ++b) {
      std::vector<std::uint32_t> numbers(entries);
      std::vector<std::uint16_t> counts(entries);
      for (auto& number : numbers) number = static_cast<std::uint32_t>(rng.below(pages));
      for (auto& count : counts) count = static_cast<std::uint16_t>(1 + rng.below(100));
      const auto half = static_cast<std::uint32_t>(pages / 2);
      std::vector<trace::Event> events;
      if (b == 0)
        events = {{trace::EventType::map, 0, 0, half}, {trace::EventType::touch, 0, 0, half}};
      if (b == 1) events = {{trace::EventType::unmap, 0, 0, half / 2}};
      const std::vector<double> compute = {1e5, 2e5};
      const std::vector<std::uint64_t> operations(kinds, 3);
      std::vector<trace::OpAccess> accesses;
      for (std::size_t a = 0; a < 3 && pages > 0; ++a)
        accesses.push_back({static_cast<std::uint32_t>(rng.below(pages)), 2,
                            static_cast<std::uint8_t>(a % 2), AccessKind::load});
      trace::Block block;
      block.timed = b > 0;
      block.nominal_ns = 1e7;
      block.compute_ns = compute;
      block.operations = operations;
      block.events = events;
      block.segments = {{0, AccessKind::load, 0, numbers, counts, {}},
                        {1, AccessKind::load, 0, numbers, counts, {}},
                        {1,
                         AccessKind::store,
                         0,
                         std::span(numbers).first(entries / 2),
                         std::span(counts).first(entries / 2),
                         {}}};
      if (kinds > 0) block.sampled = {{0, 1000, accesses}, {0, 0, {}}};
      writer.write(block);
    }
    writer.finish(info);
  }
  Bytes out = read_file(file);
  std::filesystem::remove(file);
  return out;
}

std::vector<Bytes> seeds() {
  std::string name = (std::filesystem::temp_directory_path() / "tt-seed-XXXXXX").string();
  const std::filesystem::path folder = mkdtemp(name.data());
  const auto file = folder / "seed.tts";
  std::vector<Bytes> out = {made(0, 0, 0, 0, file), made(1, 3, 8, 1, file),
                            made(3, 70, 300, 2, file), made(40, 5, 64, 0, file)};
  std::filesystem::remove_all(folder);
  return out;
}

}  // namespace

const Target& stream_target() {
  static constexpr Target target{"stream", seeds, refit, run};
  return target;
}

}  // namespace tt::fuzz
