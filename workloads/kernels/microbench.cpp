// SPDX-License-Identifier: MIT

// Soar's microbenchmark: a sequential reader beside a pointer chase (Soar/Alto, OSDI'25, §2.1).
//
// Two threads, each on a buffer of its own. The reader's pages are much hotter, but its misses
// overlap (measured MLP 7); the chase's are colder and each one stalls. Placing by hotness alone
// favours the wrong buffer, which is what the benchmark is for.
//
// Both threads write their buffers at the same time, so that pages of either come in turns: in the
// published code (github.com/MoatLab/SoarAlto, microbenchmark/src/main.c) pointer_chasing() and
// bandwidth() pass one barrier before they write buffers that they have only read until then, and
// what is read but not written has no memory of its own. Inferred: that the threads, whose time
// goes into page faults, write equally fast.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/rng.hpp"
#include "kernels/kernel.hpp"
#include "kernels/parameters.hpp"

namespace tt::kernels {
namespace {

constexpr double gib = 1024.0 * 1024 * 1024;
constexpr std::uint64_t node_bytes = 64;  // a node is a cache line: every step is a miss

enum Class : std::uint32_t { sequential, dependent, initialise };

/// Successor of each node: within every window of `window` nodes one random cycle's path; the last
/// node of a window leads to the first of the next, the very last back to the start.
std::vector<std::uint32_t> chain(std::uint64_t nodes, std::uint64_t window, Rng& rng) {
  std::vector<std::uint32_t> order(nodes);
  std::iota(order.begin(), order.end(), 0u);
  for (std::uint64_t first = 0; first < nodes; first += window)
    for (std::uint64_t left = std::min(window, nodes - first); left > 1; --left)
      std::swap(order[first + left - 1], order[first + rng.below(left)]);
  std::vector<std::uint32_t> next(nodes);
  for (std::uint64_t i = 0; i < nodes; ++i) next[order[i]] = order[i + 1 < nodes ? i + 1 : 0];
  return next;
}

trace::StreamInfo record_microbench(const RecordRequest& request) {
  const ParameterReader read{request};
  const auto scaled = [&](double value) {
    return static_cast<std::uint64_t>(std::ceil(value / request.scale));
  };
  const std::uint64_t lines = scaled(read.positive("buffer_gib") * gib / node_bytes);
  read.require(lines < 1u << 31, "buffer_gib", "more than 2^31 lines; raise scale");
  const std::uint64_t reads = scaled(read.positive("sequential_loads_g") * 1e9);
  const std::uint64_t steps = scaled(read.positive("chase_loads_g") * 1e9);
  const std::uint64_t window = std::min(lines, scaled(read.positive("window_nodes")));

  trace::StreamInfo info = describe(request);
  info.lanes = {{"sequential", 0}, {"chase", 0}};
  // A core has 10 line-fill buffers (Skylake), so at most 10 lines are outstanding; the paper
  // measures an MLP of 7 at a latency of 90 ns, so one line is taken every 90 / 7 = 12.86 ns. Where
  // latency is higher the buffers bind: the reader slows down when 10 lines take longer than that.
  info.classes = {{"sequential", 10, 12.86, 0}, {"dependent", 1, 0, 1}, {"initialise", 10, 2, 1}};
  trace::Recorder recorder{request.file, info, recorder_options(request)};

  const std::uint64_t bytes = lines * node_bytes;
  const trace::Address buffer = recorder.map("microbench.sequential", bytes);
  const trace::Address nodes = recorder.map("microbench.chase", bytes);
  recorder.set_timed(false);
  for (std::uint64_t at = 0; at < bytes; at += trace::base_page_bytes) {
    const std::uint64_t part = std::min<std::uint64_t>(trace::base_page_bytes, bytes - at);
    recorder.store(sequential, buffer + at, part);
    recorder.store(initialise, nodes + at, part);
  }
  recorder.set_timed(true);

  Rng rng{request.seed};
  const std::vector<std::uint32_t> next = chain(lines, window, rng);
  Progress progress{request};
  // The reader goes page by page; the chase keeps its share of the way beside it.
  constexpr std::uint64_t stride = trace::base_page_bytes / node_bytes;
  std::uint64_t at_line = 0;
  std::uint64_t chased = 0;
  std::uint32_t node = 0;
  for (std::uint64_t done = 0; done < reads;) {
    const std::uint64_t now = std::min({stride, reads - done, lines - at_line});
    recorder.load(sequential, buffer + at_line * node_bytes, now * node_bytes);
    at_line = at_line + now == lines ? 0 : at_line + now;
    done += now;
    const auto due = static_cast<std::uint64_t>(
        static_cast<double>(steps) * (static_cast<double>(done) / static_cast<double>(reads)));
    for (; chased < due; ++chased) {
      recorder.load(dependent, nodes + node * node_bytes, node_bytes);
      node = next[node];
    }
    progress.at(static_cast<double>(done) / static_cast<double>(reads));
  }
  return recorder.finish();
}

const RegisterKernel registered{
    {"microbench",
     "a sequential reader and a pointer chase, one thread each",
     {{"buffer_gib", 2.0, "GiB", "size of each of the two buffers"},
      {"sequential_loads_g", 26.0, "10^9", "cache lines that the sequential thread reads"},
      {"chase_loads_g", 4.0, "10^9", "nodes that the chasing thread visits"},
      {"window_nodes", 1048576.0, "nodes", "nodes are shuffled within windows of this size"},
      block_ms_parameter(50)},
     &record_microbench}};

}  // namespace
}  // namespace tt::kernels
