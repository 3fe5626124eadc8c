// SPDX-License-Identifier: MIT

// What a live engine works for a sample: records of PEBS in memory are decoded, looked up among the
// pages of a process, and told to a policy, which asks for moves. One JSON object {name: value} on
// standard output.
//
//   bench_live                     all policies; first-touch, which samples nothing, shows the rest
//   bench_live --policy hemem      one of them
//   bench_live --policy hemem --rounds N   for callgrind
//
// live.samples.*: M samples per second of processor time on one thread, median of the rounds.
// live.share.*: of a core, at 100,000 samples a second, with the policy's ticks.
//
// The process has 16 GiB, an eighth of which fits the fast tier. Accesses are a Zipf law over its
// pages, which are spread at random. A kernel of this file's moves what is asked for at once, and
// its time is not measured.
#include <linux/perf_event.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iostream>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.hpp"
#include "core/rng.hpp"
#include "core/ticker.hpp"
#include "live/live_memory.hpp"
#include "live/perf_samples.hpp"

namespace {

using namespace tt;
using live::base_page_bytes;

constexpr int pid = 7;
constexpr std::uint64_t heap = 1ULL << 40;
constexpr std::uint64_t pages = 1ULL << 22, fast_pages = pages / 8;
constexpr std::size_t in_a_turn = 1000;  // samples: 10 ms of 100,000 a second
constexpr std::size_t turns = 2000;      // in a round

double processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}
double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// One process, all of whose pages are on node 1 at first.
class Kernel final : public live::KernelCalls {
 public:
  Nanos now() override { return {}; }
  Nanos processor_time() override { return {}; }
  int read(const std::string& path, std::string& text) override {
    char line[200];
    if (path == "/proc/7/maps") {
      std::snprintf(line, sizeof line, "%lx-%lx rw-p 00000000 00:00 0 \n", heap,
                    heap + pages * base_page_bytes);
    } else if (path.ends_with("/meminfo")) {
      const int node = path.find("node0") != std::string::npos ? 0 : 1;
      const std::uint64_t total = node == 0 ? fast_pages + 4096 : 2 * pages;
      std::snprintf(line, sizeof line, "Node %d MemTotal: %lu kB\nNode %d MemFree: %lu kB\n", node,
                    4 * total, node, 4 * (total - used_[node]));
    } else {
      return ENOENT;
    }
    text = line;
    return 0;
  }
  int folders(const std::string&, std::vector<std::string>&) override { return ENOENT; }
  int write(const std::string&, const std::string&) override { return ENOENT; }
  int trace(std::uint64_t, int, std::uint64_t, std::unique_ptr<live::TraceRing>&) override {
    return ENOENT;
  }
  int sample(std::span<const live::SampledEvent>, int,
             std::unique_ptr<live::SampleRing>&) override {
    return ENOENT;
  }
  int map_device(const std::string&, std::unique_ptr<live::DeviceMemory>&) override {
    return ENOENT;
  }
  int hint(std::span<const int>) override { return ENOSYS; }
  int populated(int, std::uint64_t begin, std::uint64_t end,
                std::vector<live::Populated>& out) override {
    out.push_back({begin, end, false});
    return 0;
  }
  int soft_dirty(int, std::uint64_t, std::uint64_t, std::vector<live::Populated>&) override {
    return ENOSYS;
  }
  long move_pages(int, std::span<const std::uint64_t> addresses, std::span<const int> nodes,
                  std::span<int> statuses) override {
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      char& node = nodes_[(addresses[i] - heap) / base_page_bytes];
      if (!nodes.empty()) {
        --used_[static_cast<std::size_t>(node)];
        node = static_cast<char>(nodes[i]);
        ++used_[static_cast<std::size_t>(node)];
      }
      statuses[i] = node;
    }
    return 0;
  }

 private:
  std::vector<char> nodes_ = std::vector<char>(pages, 1);
  std::uint64_t used_[2] = {0, pages};
};

/// Of samples as PEBS's events are opened for, in `turns` turns.
std::vector<std::byte> records() {
  struct Record {
    perf_event_header header{PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER, 40};
    std::uint32_t pid = ::pid, tid = ::pid;
    std::uint64_t address = 0, period = 10'000;
    std::uint64_t source = std::uint64_t{PERF_MEM_OP_LOAD} << PERF_MEM_OP_SHIFT |
                           std::uint64_t{PERF_MEM_LVL_LOC_RAM | PERF_MEM_LVL_HIT}
                               << PERF_MEM_LVL_SHIFT;
  };
  static_assert(sizeof(Record) == 40);
  Rng rng{1};
  std::vector<std::byte> out(sizeof(Record) * in_a_turn * turns);
  for (std::size_t at = 0; at < out.size(); at += sizeof(Record)) {
    // Ranks of a Zipf law with exponent 1, nearly: the logarithm of the rank is uniform.
    const double rank = std::exp(rng.uniform() * std::log(static_cast<double>(pages)));
    const std::uint64_t page = mix64(static_cast<std::uint64_t>(rank)) % pages;
    Record record;
    record.address = heap + page * base_page_bytes + 8 * rng.below(512);
    std::memcpy(out.data() + at, &record, sizeof record);
  }
  return out;
}

struct Speeds {
  double samples = 0;  // a second
  double share = 0;    // of a core, at 100 kHz
};

Speeds measure(const std::string& name, std::span<const std::byte> records, int rounds) {
  Kernel kernel;
  live::Pmu pmu{.name = "pebs"};
  for (const bool loads : {true, false})
    pmu.events.push_back({.loads = loads, .stores = !loads, .first_period = 10'000});
  live::PerfSamples source{kernel, pmu, {}};
  live::LiveMemory::Options options;
  options.fast_limit = fast_pages;
  live::Nodes nodes;
  nodes.of = {std::vector{0}, std::vector{1}};
  live::LiveMemory memory{kernel, nodes, options, &source};
  const PolicyInfo& info = policy(name);
  const std::unique_ptr<Policy> runs = info.make({memory, resolve(info.knobs, {}), nullptr, 1});
  SamplingRequest every;
  every.loads = {SamplingRequest::Mode::period, 10'000};
  memory.follow(std::vector{pid});
  live::BlockChanges found;
  if (memory.look(found) != 0) throw std::runtime_error("the process was not found");
  while (memory.place_some()) continue;
  Nanos now{};
  Ticker<Nanos> ticker{runs->tick_period()};
  std::vector<Sample> samples;
  std::vector<double> speeds, shares;
  const std::size_t part = records.size() / turns;
  for (int round = 0; round <= rounds; ++round) {
    (void)source.grant(every);  // whatever the policy has asked for meanwhile
    double told = 0, ticked = 0;
    std::size_t count = 0;
    for (std::size_t turn = 0; turn < turns; ++turn) {
      now += from_millis(10);
      samples.clear();
      const double begin = processor_time();
      if (source.feed(records.subspan(turn * part, part), memory, samples) != part)
        throw std::runtime_error("a record was not read");
      runs->on_samples(samples, now);
      const double middle = processor_time();
      if (ticker.due(now)) {
        ticker.set_period(runs->tick_period());
        runs->tick(now);
        ticker.tick(now);
      }
      memory.press(*runs, now);
      ticked += processor_time() - middle;
      told += middle - begin;
      count += samples.size();
      while (memory.move(*runs, now)) continue;
      (void)source.grant(every);
    }
    if (count != in_a_turn * turns) throw std::runtime_error("a sample was not told");
    if (round == 0) continue;  // pages come to where they belong
    speeds.push_back(static_cast<double>(count) / told);
    shares.push_back((told + ticked) / static_cast<double>(count) * 1e5);
  }
  return {median(speeds), median(shares)};
}

int run(std::span<char* const> arguments) {
  std::vector<std::string> names{"first-touch", "hybridtier", "freqtier",
                                 "hemem",       "memtis",     "unified"};
  int rounds = 5;
  for (std::size_t i = 1; i < arguments.size(); i += 2) {
    const std::string_view option = arguments[i];
    if (i + 1 == arguments.size()) throw std::invalid_argument("option without a value");
    const std::string_view value = arguments[i + 1];
    if (option == "--policy") {
      names = {std::string{value}};
    } else if (option != "--rounds" ||
               std::from_chars(value.data(), value.data() + value.size(), rounds).ec !=
                   std::errc{}) {
      throw std::invalid_argument("unknown option '" + std::string(option) + "'");
    }
  }
  const std::vector<std::byte> all = records();
  std::map<std::string, double> figures;
  for (const std::string& name : names) {
    const Speeds found = measure(name, all, rounds);
    figures["live.samples." + name] = found.samples / 1e6;
    figures["live.share." + name] = found.share;
    std::cerr << name << ": " << found.samples / 1e6 << " M samples/s, " << 100 * found.share
              << " % of a core at 100 kHz\n";
  }
  const char* before = "{";
  for (const auto& [name, value] : figures) {
    std::cout << before << "\"" << name << "\": " << value;
    before = ",\n ";
  }
  std::cout << "}\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv, static_cast<std::size_t>(argc)});
  } catch (const std::exception& error) {
    std::cerr << "bench_live: " << error.what() << "\n";
    return 2;
  }
}
