// SPDX-License-Identifier: MIT

// GUPS with a moving hot set: 8-byte read-modify-writes of a table, 90 % of them in a hot part.
//
// The variant of HeMem (Raybuck et al., SOSP'21, §5.1) that "From Good to Great" (2025, §4.3)
// tunes: 64 GiB, 8 GiB hot, the hot set moves after half of the updates. Every thread has a region
// of its own with its share of the hot set, so that hot pages are spread over the address space.
// The table's contents decide no address, so only addresses are computed.
#include <algorithm>
#include <cmath>

#include "core/rng.hpp"
#include "kernels/draws.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"

namespace tt::kernels {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024;
constexpr std::uint64_t element_bytes = 8;

enum Class : std::uint32_t { random, sequential };

trace::StreamInfo record_gups(const RecordRequest& request) {
  const ParameterReader read{request};
  const double memory_gib = read.positive("memory_gib");
  const double hot_gib = read.number("hot_gib", 0, memory_gib / 2);
  const double hot_share = read.number("hot_share", 0, 1);
  const double updates = std::ceil(read.positive("updates_g") * 1e9 / request.scale);
  const double move_at = read.number("move_at", 0, 1);
  const double move_fraction = read.number("move_fraction", 0, 1);
  const auto regions = static_cast<std::uint64_t>(read.number("regions", 1, 4096));

  // Elements per region; whole cache lines, so that regions do not share any.
  const auto elements = [&](double size_gib) {
    return static_cast<std::uint64_t>(size_gib * gib / request.scale /
                                      static_cast<double>(regions)) /
           64 * (64 / element_bytes);
  };
  const std::uint64_t region = elements(memory_gib);
  const std::uint64_t hot = elements(hot_gib);
  read.require(
      region > 0 && (hot > 0 || hot_gib == 0), "hot_gib",
      "less than a cache line per region at scale " + ParameterReader::text(request.scale));

  trace::StreamInfo info = describe(request);
  info.lanes = {{"updaters", 1}};
  // Updates do not depend on each other: an out-of-order window of some 350 instructions holds over
  // twenty of them and could fill the 12 line buffers of a core. What a core reaches is less: a
  // mispredicted hot-or-cold branch ends the window, and nearly every update misses the TLB and
  // occupies one of its two page walkers. 5 outstanding misses is an estimate, within the 4 to 6
  // that such loops show. Some 20 instructions of one update are hidden under the misses.
  info.classes = {{"random", 5, 4}, {"sequential", 10, 2}};
  info.op_kinds = {{"update"}};
  trace::RecorderOptions options = recorder_options(request);
  options.op_sample_probability = 1e-4;  // an operation is one access: few suffice
  trace::Recorder recorder{request.file, info, options};

  const std::uint64_t region_bytes = region * element_bytes;
  const trace::Address table = recorder.map("gups.table", regions * region_bytes);
  recorder.set_timed(false);
  recorder.store(sequential, table, regions * region_bytes);
  recorder.set_timed(true);

  Rng rng{request.seed};
  Progress progress{request};
  const auto total = static_cast<std::uint64_t>(updates);
  const auto moves_after = static_cast<std::uint64_t>(updates * move_at);
  // The first `moved` elements of a region's hot set move to the middle of the region, where
  // nothing was hot; the others stay.
  auto moved = static_cast<std::uint64_t>(static_cast<double>(hot) * move_fraction);
  moved = move_at < 1 ? moved / 8 * 8 : 0;
  std::uint64_t at_region = 0;
  const auto update = [&](std::uint64_t i, bool has_moved) {
    std::uint64_t element = 0;
    if (hot > 0 && rng.uniform() < hot_share) {
      element = rng.below(hot);
      if (has_moved && element < moved) element += region / 2;
    } else {
      element = rng.below(region);
    }
    const trace::Address address = table + at_region * region_bytes + element * element_bytes;
    if (++at_region == regions) at_region = 0;
    recorder.begin_operation(0);
    recorder.load(random, address, element_bytes);
    recorder.store(random, address, element_bytes);
    recorder.end_operation();
    if (i % 65536 == 0) progress.at(static_cast<double>(i) / updates);
  };
  const auto bytes = static_cast<double>(regions * region_bytes);
  independent_operations(recorder, request, moves_after, 1, bytes,
                         [&](std::uint64_t i) { update(i, false); });
  independent_operations(recorder, request, total - moves_after, 1, bytes,
                         [&](std::uint64_t i) { update(moves_after + i, true); });
  return recorder.finish();
}

const RegisterKernel registered{
    {"gups",
     "random 8-byte read-modify-writes of a table with a hot part that moves",
     {{"memory_gib", 64.0, "GiB", "size of the table"},
      {"hot_gib", 8.0, "GiB", "size of the hot part; at most half of the table"},
      {"hot_share", 0.9, "share", "updates that go to the hot part; the others are uniform"},
      {"updates_g", 80.0, "10^9", "number of updates"},
      {"move_at", 0.5, "share", "the hot part moves after this share of the updates; 1: never"},
      {"move_fraction", 1.0, "share", "how much of the hot part moves"},
      {"regions", std::int64_t{4}, "count", "regions, each with its part of the hot set"},
      block_ms_parameter(20)},
     &record_gups}};

}  // namespace
}  // namespace tt::kernels
