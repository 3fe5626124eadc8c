// SPDX-License-Identifier: MIT

// Fuzz target: records in a ring of perf events. The first byte of an input says whose they are:
// DAMON's, PEBS's, IBS's or those of hinting faults.
#include <algorithm>
#include <cstddef>

#include "../engine/fake_kernel.hpp"
#include "../engine/perf_bytes.hpp"
#include "fuzz.hpp"
#include "live/damon_trace.hpp"
#include "live/live_memory.hpp"
#include "live/perf_samples.hpp"

namespace tt::fuzz {
namespace {

using test::FakeKernel;

constexpr std::uint64_t heap = 1ULL << 40;
constexpr std::size_t at_size = 6;  // in a record's header

/// Where the records begin, so that their words are aligned as a ring's are.
constexpr std::size_t records_at = 8;

/// Makes sizes of records such as there are, so that those behind are seen, too.
void refit(Bytes& input, Rng& rng) {
  if (rng.below(8) == 0) return;
  for (std::size_t at = records_at; at + 8 <= input.size();) {
    auto size = peek<std::uint16_t>(input, at + at_size);
    if (size < 8 || size % 8 != 0 || size > input.size() - at) {
      size = static_cast<std::uint16_t>(
          std::min<std::size_t>(8 * (1 + rng.below(16)), (input.size() - at) / 8 * 8));
      poke(input, at + at_size, size);
    }
    at += size;
  }
}

bool run(const Bytes& input, const std::filesystem::path&) {
  if (input.size() < records_at) return false;
  const auto* const begin = reinterpret_cast<const std::byte*>(input.data());
  const std::span<const std::byte> records{begin + records_at, input.size() - records_at};
  const int whose = static_cast<unsigned char>(input[0]) % 4;
  try {
    if (whose == 0) {
      live::DamonDecoder decoder{live::TraceFormat{FakeKernel::damon_format}};
      if (decoder.feed(records) > records.size())
        throw std::logic_error("more was dealt with than there is");
      for (const live::DamonAggregation& each : decoder.take())
        for (const live::DamonRegion& region : each.regions)
          if (region.begin >= region.end) throw std::logic_error("a region is empty");
      return true;
    }
    FakeKernel kernel{{8, 8}};
    kernel.have_pebs();
    kernel.have_ibs();
    kernel.have_hints();
    live::PerfSamples source{kernel,
                             whose == 1   ? *find_pebs(kernel, 128)
                             : whose == 2 ? *find_ibs(kernel, true)
                                          : *find_hints(kernel),
                             {}};
    live::Nodes nodes;
    nodes.of = {std::vector{0}, std::vector{1}};
    const live::LiveMemory memory{kernel, nodes, {}, &source};
    std::vector<Sample> samples;
    if (source.feed(records, memory, samples) > records.size())
      throw std::logic_error("more was dealt with than there is");
    if (!samples.empty()) throw std::logic_error("a sample of a process that is not watched");
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

Bytes made(int whose) {
  test::Bytes records;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const std::uint64_t at = heap + i * FakeKernel::huge;
    if (whose == 0) test::region(records, 1000, 0, 3, {at, at + FakeKernel::huge, i, 1});
    if (whose == 1) test::pebs_sample(records, 7, at, test::memory_load, 1000);
    if (whose == 2) test::ibs_sample(records, 7, 65536, {.address = at});
  }
  test::lost(records, 3);
  Bytes out(records_at + records.size());
  out[0] = static_cast<char>(whose);
  std::memcpy(out.data() + records_at, records.data(), records.size());
  return out;
}

std::vector<Bytes> seeds() { return {made(0), made(1), made(2)}; }

}  // namespace

const Target& perf_target() {
  static constexpr Target target{"perf", seeds, refit, run};
  return target;
}

}  // namespace tt::fuzz
