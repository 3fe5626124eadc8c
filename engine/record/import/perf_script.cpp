// SPDX-License-Identifier: MIT

// perf-script: sampled misses of `perf script`, each of which stands for a period of accesses.
#include <algorithm>
#include <array>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "record/import/importer.hpp"

namespace tt::record {
namespace {

/// What served an access, as far as is known; the surest first.
enum class Level : std::uint8_t {
  memory,
  beyond,  // memory, or a cache further out than one that it missed
  cache,
  unknown,
};

class PerfScript {
 public:
  explicit PerfScript(Importer& to) : to_(to), lines_(to.lines) {}

  /// Samples are put in order of time: perf writes one buffer per processor. So all are kept.
  void run() {
    Asides asides{to_.summary};
    Numbers threads;
    for (Text line; lines_.next(line);)
      if (!asides.skip(line)) perf_sample(line, threads);
    merge_spe();
    std::ranges::stable_sort(samples_, {}, &Sample::ns);
    to_.start(true, to_.options.threads > 0 ? to_.options.threads : busiest_second(samples_),
              to_.one_class());
    const std::uint64_t first = samples_.empty() ? 0 : samples_.front().ns;
    for (const Sample& sample : samples_) {
      to_.stream().process(sample.process);
      to_.stream().time(sample.ns - first);
      to_.observe(sample.process, sample.address,
                  sample.store ? AccessKind::store : AccessKind::load, 1, sample.accesses);
      to_.summary.unsure += sample.level == Level::beyond ? 1 : 0;
    }
    to_.summary.samples = samples_.size();
    to_.summary.period_known =
        to_.options.period > 0 ||
        std::ranges::any_of(samples_, [](const Sample& sample) { return sample.accesses > 1; });
    if (samples_.empty()) explain_none();
    to_.summarise(to_.summary.period_known);
  }

 private:
  struct Sample {
    std::uint64_t ns;
    std::uint64_t address;
    double accesses;
    std::uint32_t process;
    std::uint32_t thread;
    std::uint16_t event;  // of Arm SPE; else 0
    Level level;
    bool store;
  };

  /// Why nothing is left, where something was there.
  void explain_none() const {
    const ImportSummary& seen = to_.summary;
    if (seen.no_address > 0)
      throw ImportError(lines_.name() + ": none of " + std::to_string(seen.no_address) +
                        " samples has an address in the program's memory (" +
                        std::string(perf_remedy) + ")");
    if (const std::uint64_t others = seen.cached + seen.no_level; others > 0)
      throw ImportError(lines_.name() + ": memory served none of " + std::to_string(others) +
                        " samples: caches served " + std::to_string(seen.cached) +
                        ", and the data source of " + std::to_string(seen.no_level) +
                        " does not say");
  }

  /// perf makes several events of one record of Arm SPE, all with its time, thread and address:
  /// they are one operation. The n-th event of a name is of the n-th such operation.
  void merge_spe() {
    if (std::ranges::none_of(samples_, [](const Sample& s) { return s.event != 0; })) return;
    const auto operation = [](const Sample& s) {
      return std::tuple(s.ns, s.process, s.thread, s.address, s.event != 0, s.store);
    };
    std::ranges::stable_sort(samples_, [&](const Sample& a, const Sample& b) {
      return std::pair(operation(a), a.event) < std::pair(operation(b), b.event);
    });
    std::vector<Sample> kept;
    for (std::size_t from = 0, to = 0; from < samples_.size(); from = to) {
      const std::size_t place = kept.size();
      std::size_t nth = 0;
      for (to = from; to < samples_.size() && operation(samples_[to]) == operation(samples_[from]);
           ++to) {
        const Sample& sample = samples_[to];
        nth = to > from && sample.event == samples_[to - 1].event ? nth + 1 : 0;
        if (sample.event == 0 || place + nth == kept.size()) {
          kept.push_back(sample);
          continue;
        }
        Sample& merged = kept[place + nth];
        merged.level = std::min(merged.level, sample.level);
        merged.accesses = std::max(merged.accesses, sample.accesses);
        ++to_.summary.repeated;
      }
    }
    std::erase_if(kept, [this](const Sample& sample) { return left_out(sample.level); });
    samples_ = std::move(kept);
  }

  /// True: a cache or nobody knows what served it; counted.
  bool left_out(Level level) {
    to_.summary.cached += level == Level::cache ? 1 : 0;
    to_.summary.no_level += level == Level::unknown ? 1 : 0;
    return level == Level::cache || level == Level::unknown;
  }

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

  /// Keeps a sample of memory, and counts another.
  void perf_sample(Text line, Numbers& threads) {
    Sample sample{};
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
    if (*address == 0 || *address >= address_limit) {
      ++to_.summary.no_address;
      return;
    }
    const std::size_t spe =
        static_cast<std::size_t>(std::ranges::find(spe_events, event) - spe_events.begin());
    sample.event = static_cast<std::uint16_t>(spe < spe_events.size() ? spe + 1 : 0);
    const bool neither = rest.find("|OP ") != Text::npos && rest.find("OP LOAD") == Text::npos &&
                         rest.find("OP STORE") == Text::npos;
    sample.store = !neither && is_store(event, rest);
    sample.level = neither ? Level::unknown : level(event, rest, sample.store);
    if (sample.event == 0 && left_out(sample.level)) return;
    if (to_.options.period == 0 && !period)
      lines_.bad("no period", "one before the event (perf script -F ...,period,...), or --period");
    sample.accesses = to_.options.period > 0 ? to_.options.period : static_cast<double>(*period);
    sample.address = *address;
    sample.process = to_.processes[*process];
    sample.thread = threads[*thread];
    samples_.push_back(sample);
  }

  /// Without data addresses perf prints where the instruction was, and its symbol or file.
  void refuse_instruction(Text address, Text rest) {
    const Text next = word(rest);
    if (next.empty() || number<std::uint64_t>(next, 16)) return;
    if (next.starts_with('|'))  // perf prints the number that it decodes, then what that says
      lines_.bad("the data source " + shown(address) + " without an address",
                 "the address before it (" + std::string(perf_remedy) + ",data_src)");
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

  /// From the data source (perf's perf_mem__lvl_scnprintf prints it), else from the event's name.
  static Level level(Text event, Text data_source, bool store) {
    const auto has = [](Text text, Text part) { return text.find(part) != Text::npos; };
    const std::size_t at = data_source.find("|LVL ");
    if (at == Text::npos) return Level::memory;  // the event chose it
    Text text = data_source.substr(at + 5);
    text = text.substr(0, text.find('|'));
    // A memory-side cache stands for the memory behind it.
    for (const Text memory : {"RAM", "CXL", "PMEM", "Memory-side"})
      if (has(text, memory)) return Level::memory;
    const bool named = has(text, "ache") || has(text, "LFB") || has(text, "L0") ||
                       has(text, "L1") || has(text, "L2") || has(text, "L3") || has(text, "L4");
    const bool last = has(text, "ache") || has(text, "L3") || has(text, "L4");
    const bool missed = has(text, "miss");
    if (named && !missed) return Level::cache;
    if (named && last) return Level::memory;
    for (const Text memory : {"llc-miss", "l3_miss", "l3-miss", "llc_miss", "dram"})
      if (has(event, memory)) return Level::memory;
    // Of a store many processors say nothing else.
    return named || (store && has(text, "N/A")) ? Level::beyond : Level::unknown;
  }

  /// As perf names the events that it makes of Arm SPE's records (util/arm-spe.c).
  static constexpr std::array<Text, 13> spe_events = {
      "l1d-miss",      "l1d-access", "l2d-miss",    "l2d-access", "llc-miss",
      "llc-access",    "tlb-miss",   "tlb-access",  "branch",     "branch-miss",
      "remote-access", "memory",     "instructions"};

  std::vector<Sample> samples_;
  Importer& to_;
  Lines& lines_;
};

}  // namespace

void import_perf_script(Importer& to) { PerfScript{to}.run(); }

}  // namespace tt::record
