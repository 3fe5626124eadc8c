// SPDX-License-Identifier: MIT

// perf-script: sampled misses of `perf script`, each of which stands for a period of accesses.
#include <algorithm>
#include <unordered_set>
#include <vector>

#include "record/import/importer.hpp"

namespace tt::record {
namespace {

constexpr std::uint64_t user_limit = std::uint64_t{1} << 47;  // the kernel lies above it

class PerfScript {
 public:
  explicit PerfScript(Importer& to) : to_(to), lines_(to.lines) {}

  /// Samples are put in order of time: perf writes one buffer per processor. So all are kept.
  void run() {
    std::vector<Sample> samples;
    Numbers threads;
    for (Text line; lines_.next(line);) {
      if (trimmed(line).empty() || line.starts_with('#')) continue;
      Sample sample{};
      if (perf_sample(line, threads, sample)) samples.push_back(sample);
    }
    std::ranges::stable_sort(samples, {}, &Sample::ns);
    to_.start(true, to_.options.threads > 0 ? to_.options.threads : busiest_second(samples),
              to_.one_class());
    const std::uint64_t first = samples.empty() ? 0 : samples.front().ns;
    for (const Sample& sample : samples) {
      to_.stream().process(sample.process);
      to_.stream().time(sample.ns - first);
      to_.observe(sample.process, sample.address,
                  sample.store ? AccessKind::store : AccessKind::load, 1, sample.accesses);
    }
    to_.summary.samples = samples.size();
    if (samples.empty() && to_.summary.no_address > 0)
      throw ImportError(lines_.name() + ": none of " + std::to_string(to_.summary.no_address) +
                        " samples has an address in the program's memory (" +
                        std::string(perf_remedy) + ")");
    to_.summarise(true);
  }

 private:
  struct Sample {
    std::uint64_t ns;
    std::uint64_t address;
    double accesses;
    std::uint32_t process;
    std::uint32_t thread;
    bool store;
  };

  static constexpr const char* perf_line =
      "'COMM PID/TID SECONDS: [PERIOD] EVENT: ADDRESS' as perf script prints it with -F "
      "comm,pid,tid,time,period,event,addr";

  static constexpr Text perf_remedy =
      "perf record -d, then perf script -F comm,pid,tid,time,period,event,addr";

  /// Threads that were sampled in one and the same second, at most.
  static double busiest_second(const std::vector<Sample>& samples) {
    std::size_t most = 1;
    std::unordered_set<std::uint32_t> seen;
    std::uint64_t second = 0;
    for (const Sample& sample : samples) {
      if (sample.ns / 1'000'000'000 != second) seen.clear();
      second = sample.ns / 1'000'000'000;
      seen.insert(sample.thread);
      most = std::max(most, seen.size());
    }
    return static_cast<double>(most);
  }

  /// False: a sample that says nothing about memory, and was counted.
  bool perf_sample(Text line, Numbers& threads, Sample& sample) {
    // The command may contain spaces; the time tells where we are.
    Text rest = line, task;
    for (;;) {
      const Text token = word(rest);
      if (token.empty()) lines_.bad(shown(line), perf_line);
      if (const auto ns = perf_time(token)) {
        sample.ns = *ns;
        break;
      }
      if (token.starts_with('[') && token.ends_with(']')) continue;  // the processor
      task = token;
    }
    const std::size_t slash = task.find('/');
    const auto process = number<std::uint32_t>(task.substr(0, slash));
    const auto thread =
        slash == Text::npos ? process : number<std::uint32_t>(task.substr(slash + 1));
    if (!process || !thread) lines_.bad(shown(task), "PID/TID before the time");
    Text token = word(rest);
    std::optional<std::uint64_t> period;
    if (!token.ends_with(':')) {
      period = number<std::uint64_t>(token);
      if (!period || *period == 0)
        lines_.bad(shown(token), "a period, or the event's name and ':'");
      token = word(rest);
    }
    if (!token.ends_with(':') || token.size() < 2)
      lines_.bad(token.empty() ? "the end of the line" : shown(token), "the event's name and ':'");
    const Text event = token.substr(0, token.size() - 1);
    token = word(rest);
    const auto address = number<std::uint64_t>(token, 16);
    if (!address)
      lines_.bad(token.empty() ? "the end of the line" : shown(token),
                 "an address in hexadecimal (" + std::string(perf_remedy) + ")");
    refuse_instruction(token, rest);
    if (!served_by_memory(rest)) {
      ++to_.summary.cached;
      return false;
    }
    if (*address == 0 || *address >= user_limit) {
      ++to_.summary.no_address;
      return false;
    }
    if (to_.options.period == 0 && !period)
      lines_.bad("no period", "one before the event (perf script -F ...,period,...), or --period");
    sample.accesses = to_.options.period > 0 ? to_.options.period : static_cast<double>(*period);
    sample.store = is_store(event, rest);
    sample.address = *address;
    sample.process = to_.processes[*process];
    sample.thread = threads[*thread];
    return true;
  }

  /// Without data addresses perf prints where the instruction was, and its symbol or file.
  void refuse_instruction(Text address, Text rest) {
    const Text next = word(rest);
    if (next.empty() || next.starts_with('|') || number<std::uint64_t>(next, 16)) return;
    lines_.bad("the address of an instruction, " + shown(address) + " in " + shown(next),
               "that of the data (" + std::string(perf_remedy) + ")");
  }

  /// From perf's decoded data source ("|OP STORE|LVL L1 hit|"), else from the event's name.
  bool is_store(Text event, Text data_source) {
    if (data_source.find("OP STORE") != Text::npos) return true;
    if (data_source.find("OP LOAD") != Text::npos) return false;
    if (event.find("store") != Text::npos) return true;
    if (event.find("load") != Text::npos) return false;
    lines_.bad("the event " + shown(event),
               "one whose name says 'load' or 'store', or the field data_src");
  }
  static bool served_by_memory(Text data_source) {
    const std::size_t at = data_source.find("|LVL ");
    if (at == Text::npos) return true;
    Text level = data_source.substr(at + 5);
    level = level.substr(0, level.find('|'));
    const bool cache = level.starts_with('L') && level.find("hit") != Text::npos &&
                       level.find("RAM") == Text::npos;
    return !cache;
  }

  Importer& to_;
  Lines& lines_;
};

}  // namespace

void import_perf_script(Importer& to) { PerfScript{to}.run(); }

}  // namespace tt::record
