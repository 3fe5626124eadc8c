// SPDX-License-Identifier: MIT

// A hot window that drifts over the memory: independent accesses to single lines, of which a share
// goes to a window of pages that moves on all the time.
//
// No published benchmark: a ruler for policies, of which every mark is a parameter. How much faster
// a promoted page makes a run follows from how many accesses come to it before it is cold again,
// which here is known: a page stays hot for turnover_g 10^9 accesses. The window moves by accesses
// and not by time, so that a policy that slows the run down does not meet another drift; and hot
// pages lie in a random order, so that neither a page's neighbours nor its address tell anything.
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/rng.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"

namespace tt::kernels {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024;

enum Class : std::uint32_t { access, initialise };

/// Pages as the window meets them.
std::vector<std::uint32_t> shuffled(std::uint64_t pages, Rng& rng) {
  std::vector<std::uint32_t> order(pages);
  std::iota(order.begin(), order.end(), 0u);
  for (std::uint64_t left = pages; left > 1; --left)
    std::swap(order[left - 1], order[rng.below(left)]);
  return order;
}

trace::StreamInfo record_drift(const RecordRequest& request) {
  const ParameterReader read{request};
  const double memory_gib = read.positive("memory_gib");
  const double hot_gib = read.number("hot_gib", 0, memory_gib);
  const double hot_share = read.number("hot_share", 0, 1);
  const double accesses = std::ceil(read.positive("accesses_g") * 1e9 / request.scale);
  const double turnover = read.number("turnover_g") * 1e9 / request.scale;
  const double store_share = read.number("store_share", 0, 1);
  const double mlp = read.number("mlp", 1, 10);

  // A page of the window is one that the policy manages: a hot huge page is hot throughout.
  const std::uint64_t page_lines = request.page_bytes / trace::line_bytes;
  const auto pages_of = [&](double size_gib) {
    return static_cast<std::uint64_t>(size_gib * gib / request.scale /
                                      static_cast<double>(request.page_bytes));
  };
  const std::uint64_t pages = pages_of(memory_gib);
  const std::uint64_t hot = pages_of(hot_gib) * page_lines;  // lines, as all that follows
  const std::string scale = ParameterReader::text(request.scale);
  read.require(pages > 0, "memory_gib", "less than a page at scale " + scale);
  read.require(pages < 1u << 31, "memory_gib", "more than 2^31 pages; raise scale");
  read.require(hot > 0 || hot_gib == 0, "hot_gib", "less than a page at scale " + scale);
  const std::uint64_t lines = pages * page_lines;

  trace::StreamInfo info = describe(request);
  info.lanes = {{"readers", 1}};
  // Some 15 instructions for an access, which the misses hide.
  info.classes = {{"access", mlp, 4}, {"initialise", 10, 2}};
  info.op_kinds = {{"access"}};
  trace::RecorderOptions options = recorder_options(request);
  options.op_sample_probability = 1e-4;  // an operation is one access: few suffice
  trace::Recorder recorder{request.file, info, options};

  const trace::Address memory = recorder.map("drift.memory", lines * trace::line_bytes);
  recorder.set_timed(false);
  recorder.store(initialise, memory, lines * trace::line_bytes);
  recorder.set_timed(true);

  Rng rng{request.seed};
  const std::vector<std::uint32_t> order = shuffled(pages, rng);
  Progress progress{request};
  const auto total = static_cast<std::uint64_t>(accesses);
  const double step = turnover > 0 ? static_cast<double>(hot) / turnover : 0;  // lines an access
  for (std::uint64_t i = 0; i < total; ++i) {
    std::uint64_t place = 0;
    if (hot > 0 && rng.uniform() < hot_share) {
      const auto first = static_cast<std::uint64_t>(static_cast<double>(i) * step);
      place = (first + rng.below(hot)) % lines;
    } else {
      place = rng.below(lines);
    }
    const trace::Address address =
        memory + (order[place / page_lines] * page_lines + place % page_lines) * trace::line_bytes;
    recorder.begin_operation(0);
    recorder.load(access, address, 8);
    if (store_share > 0 && rng.uniform() < store_share) recorder.store(access, address, 8);
    recorder.end_operation();
    if (i % 65536 == 0) progress.at(static_cast<double>(i) / accesses);
  }
  return recorder.finish();
}

const RegisterKernel registered{
    {"drift",
     "independent accesses to single lines, most of them to a hot window that drifts",
     {{"memory_gib", 16.0, "GiB", "memory in use"},
      {"hot_gib", 2.0, "GiB", "size of the hot window"},
      {"hot_share", 0.9, "share", "accesses that go to the window; the others are uniform"},
      {"accesses_g", 20.0, "10^9", "number of accesses"},
      {"turnover_g", 10.0, "10^9",
       "accesses in which the window moves on by its own size; 0: it stays"},
      {"store_share", 0.1, "share", "accesses that also write their line"},
      {"mlp", 5.0, "misses", "misses of a thread that are outstanding together; 1: a chain"},
      block_ms_parameter(20)},
     &record_drift}};

}  // namespace
}  // namespace tt::kernels
