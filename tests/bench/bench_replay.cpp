// SPDX-License-Identifier: MIT

// Speed of the replay loop, in simulated accesses per second (coalesced repeats count), printed as
// one JSON object.
//
//   bench_replay [STREAM]
//   bench_replay --policies
//
// With a recorded cachelib stream: `hybridtier` at its default sampling on one core, the bare loop
// (tier lookups only) over the same file, and their ratio; medians of five alternating runs.
// Always: 64 Mi pages without coalescing, half Zipf and half uniform, from a stream that the bench
// writes itself, and the peak resident size of that run.
//
// With --policies: every policy at its defaults on one core, medians of three runs, on the same
// kind of stream over 256 Ki pages, each of which stands for 64. A figure's name has what the
// policy learns from: samples, traps (hint faults, accessed bits, probes), future; or nothing.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "bare_lookup.hpp"
#include "core/rng.hpp"
#include "core/seam.hpp"
#include "sim/simulate.hpp"
#include "trace/reader.hpp"
#include "trace/stream.hpp"
#include "trace/writer.hpp"

namespace {

using namespace tt;
using Figures = std::map<std::string, double>;

/// The figures of engine/machines/hybridtier-cxl.yaml.
sim::MachineProfile machine() {
  sim::MachineProfile profile;
  profile.name = "hybridtier-cxl";
  profile.ghz = 2.4;
  profile.cores = 16;
  profile.threads = 16;
  profile.llc_bytes = 24 << 20;
  profile.tiers[0] = {85, 136, 82, 136, {{0, 1}, {0.5, 1.12}, {0.81, 1.56}, {0.98, 2}, {1, 2.1}},
                      0.3};
  profile.tiers[1] = {124, 34, 30, 51, {{0, 1}, {0.5, 1.15}, {0.8, 1.6}, {0.95, 2.1}, {1, 2.4}},
                      0.3};
  profile.migration_fixed_us = 11;
  profile.migration_copy_gbps = 4;
  profile.migration_shootdown_us = 0.5;
  profile.sample_assist_ns = 250;
  profile.sample_drain_ns = 120;
  profile.work_ns = {{Work::tracker_update, 60},
                     {Work::tracker_lookup, 30},
                     {Work::cooling_step, 5},
                     {Work::scan_step, 100},
                     {Work::threshold_pass, 500}};
  profile.huge_page_gain = 0.1;
  profile.daemon_core_share = 1;
  profile.sample_queue = 419424;
  return profile;
}

/// Processor time: the replay has one thread, and other programs on the machine do not count.
double timed(const std::function<void()>& work) {
  const std::clock_t start = std::clock();
  work();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// 64 GiB of cachelib's 249: 1:8 with the slow tier of 512 GB of HybridTier (ASPLOS'25), §6.1.
constexpr double fast_share = 64.0 / 249;

void replay(const trace::Reader& stream) {
  sim::RunOptions options;
  options.fast_share = fast_share;
  const auto result = sim::simulate(stream, machine(), policy("hybridtier"), {}, options);
  if (result.total_seconds <= 0) throw std::runtime_error("the replay took no virtual time");
}

Figures recorded(const std::filesystem::path& file) {
  const trace::Reader stream{file};
  stream.verify();  // also brings the file into memory
  const auto accesses = static_cast<double>(stream.info().accesses);
  std::vector<double> full;
  std::vector<double> bare;
  std::uint64_t found = 0;
  for (int round = 0; round < 5; ++round) {
    bare.push_back(timed([&] { found += bench::bare_lookup(stream, fast_share); }));
    full.push_back(timed([&] { replay(stream); }));
  }
  if (found == 0) throw std::runtime_error("no access to the slow tier: not a tiering workload");
  return {{"replay.hybridtier.cachelib", accesses / median(full)},
          {"replay.bare.cachelib", accesses / median(bare)},
          {"replay.ratio_to_bare", median(bare) / median(full)},
          {"replay.entries_per_second", static_cast<double>(stream.info().entries) / median(full)}};
}

/// Every access is an entry of its own, in random order: half Zipf, half uniform.
struct Large {
  std::uint32_t pages = 0;  // a power of two
  double scale = 1;
  int blocks = 0;
  std::size_t per_block = 0;
  double block_ns = 0;
};
constexpr Large sixty_four_mi{1U << 26, 1, 64, std::size_t{1} << 21, 10e6};
constexpr Large for_policies{1U << 18, 64, 128, std::size_t{1} << 20, 500e6};

void write_large(const std::filesystem::path& file, const Large& large) {
  const std::uint32_t pages = large.pages;
  trace::StreamInfo info;
  info.workload = "zipf and uniform";
  info.pages = pages;
  info.scale = large.scale;
  info.classes = {{"all", 4, 5, 0}};
  info.lanes = {{"all", 1}};
  info.objects = {{"heap", 0, pages}};
  trace::Writer writer{file, info};
  Rng rng{1};
  std::vector<std::uint32_t> page(large.per_block);
  const std::vector<std::uint16_t> count(large.per_block, 1);
  const std::vector<double> compute(1);
  for (int b = 0; b < large.blocks; ++b) {
    for (std::size_t i = 0; i < large.per_block; ++i) {
      if (i % 2 == 0) {
        page[i] = static_cast<std::uint32_t>(rng.next()) % pages;
      } else {
        // Zipf 0.9 by inverting its continuous distribution; ranks scattered by an odd factor.
        const auto rank = static_cast<std::uint32_t>(pages * std::pow(rng.uniform(), 10.0));
        page[i] = rank * 0x9e3779b1U % pages;
      }
    }
    trace::Block block;
    block.timed = b > 0;
    block.nominal_ns = large.block_ns;
    block.compute_ns = compute;
    const std::vector<trace::Event> events = {{trace::EventType::map, 0, 0, pages},
                                              {trace::EventType::touch, 0, 0, pages}};
    if (b == 0) block.events = events;
    block.segments.push_back({0, AccessKind::load, 0, page, count, {}});
    writer.write(block);
  }
  writer.finish(info);
}

/// What it learns from, as in a figure's name.
std::string source(Need needs) {
  if (includes(needs, Need::future)) return "future";
  for (const Need trap : {Need::faults, Need::accessed_bits, Need::probes}) {
    if (includes(needs, trap)) return "traps";
  }
  return includes(needs, Need::samples) ? "samples" : "nothing";
}

Figures every_policy(const std::filesystem::path& file) {
  const trace::Reader stream{file};
  const auto accesses = static_cast<double>(stream.info().accesses);
  Figures figures;
  for (const PolicyInfo& policy : policies()) {
    sim::RunOptions options;
    options.page_bytes = 4096;
    std::vector<double> seconds;
    for (int round = 0; round < 3; ++round) {
      seconds.push_back(
          timed([&] { (void)sim::simulate(stream, machine(), policy, {}, options); }));
    }
    figures["replay." + source(policy.traits.needs) + "." + policy.name] =
        accesses / median(seconds);
  }
  return figures;
}

Figures large(const std::filesystem::path& file) {
  const trace::Reader stream{file};
  const auto accesses = static_cast<double>(stream.info().accesses);
  std::vector<double> full;
  for (int round = 0; round < 3; ++round) full.push_back(timed([&] { replay(stream); }));
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {{"replay.hybridtier.64mi", accesses / median(full)},
          {"replay.rss_gib.64mi", static_cast<double>(usage.ru_maxrss) / (1 << 20)}};
}

/// Runs `work` in a process of its own, so that its peak size is its own; returns its figures.
Figures apart(const std::function<Figures()>& work) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child == 0) {
    ::close(ends[0]);
    int status = 0;
    try {
      FILE* out = ::fdopen(ends[1], "w");
      for (const auto& [name, value] : work()) std::fprintf(out, "%s %.17g\n", name.c_str(), value);
      std::fclose(out);
    } catch (const std::exception& error) {
      std::cerr << error.what() << "\n";
      status = 1;
    }
    ::_exit(status);
  }
  ::close(ends[1]);
  Figures figures;
  FILE* in = ::fdopen(ends[0], "r");
  char name[128];
  double value = 0;
  while (std::fscanf(in, "%127s %lf", name, &value) == 2) figures[name] = value;
  std::fclose(in);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status != 0) throw std::runtime_error("a benchmark process failed");
  return figures;
}

struct TempFile {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("bench_replay_" + std::to_string(::getpid()));
  ~TempFile() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
};

}  // namespace

int main(int argc, char** argv) {
  try {
    Figures figures;
    const bool of_policies = argc > 1 && std::string_view{argv[1]} == "--policies";
    if (argc > 1 && !of_policies) figures.merge(apart([&] { return recorded(argv[1]); }));
    const TempFile file;
    apart([&] {
      write_large(file.path, of_policies ? for_policies : sixty_four_mi);
      return Figures{};
    });
    figures.merge(apart([&] { return of_policies ? every_policy(file.path) : large(file.path); }));
    std::string text;
    for (const auto& [name, value] : figures) {
      char number[32];
      std::snprintf(number, sizeof number, "%.6g", value);
      text += (text.empty() ? "{\"" : ", \"") + name + "\": " + number;
    }
    std::cout << text << "}\n";
  } catch (const std::exception& error) {
    std::cerr << "bench_replay: " << error.what() << "\n";
    return 1;
  }
}
