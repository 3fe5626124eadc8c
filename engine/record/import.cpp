// Importers: see import.hpp for the formats and what becomes of them.
#include "record/import.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "trace/llc.hpp"

namespace tt::record {
namespace {

using Text = std::string_view;

constexpr std::size_t longest_line = 64 << 10;
constexpr std::uint64_t page_bytes = trace::base_page_bytes;
constexpr std::uint64_t address_limit = std::uint64_t{1} << 48;
constexpr std::uint64_t user_limit = std::uint64_t{1} << 47;  // above it lies the kernel

/// A line's content for a message: short, and printable.
std::string shown(Text text) {
  constexpr std::size_t most = 80;
  std::string out;
  for (const char c : text.substr(0, most)) out += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > most ? "'" + out + "...'" : "'" + out + "'";
}

template <typename T>
std::optional<T> number(Text text, int base = 10) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc{} || at != end || text.empty()) return std::nullopt;
  return value;
}
std::optional<double> real(Text text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || at != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

/// The next word of a line, between spaces and tabs; empty at the end.
Text word(Text& rest) {
  const std::size_t from = std::min(rest.find_first_not_of(" \t"), rest.size());
  const std::size_t to = std::min(rest.find_first_of(" \t", from), rest.size());
  const Text out = rest.substr(from, to - from);
  rest.remove_prefix(to);
  return out;
}
Text trimmed(Text text) {
  const std::size_t from = std::min(text.find_first_not_of(" \t"), text.size());
  text.remove_prefix(from);
  return text.substr(0, text.find_last_not_of(" \t") + 1);
}
bool take(Text& rest, Text prefix) {
  if (!rest.starts_with(prefix)) return false;
  rest.remove_prefix(prefix.size());
  return true;
}

/// Hands out lines, and knows where it is.
class Lines {
 public:
  Lines(const ImportSource& source, const std::string& name)
      : source_(source), name_(name), buffer_(std::size_t{1} << 20) {}

  bool next(Text& line) {
    for (;;) {
      const char* const from = buffer_.data() + at_;
      if (const void* const end = std::memchr(from, '\n', end_ - at_)) {
        line = {from, static_cast<std::size_t>(static_cast<const char*>(end) - from)};
        at_ += line.size() + 1;
        ++number_;
        if (line.ends_with('\r')) line.remove_suffix(1);
        return true;
      }
      const Text partial{from, end_ - at_};
      if (partial.size() > longest_line) {
        ++number_;
        bad(shown(partial), "a line of at most 65,536 bytes");
      }
      if (over_) {
        if (partial.empty()) return false;
        ++number_;
        bad("the end of the file after " + shown(partial),
            "the end of the line: the file is cut off");
      }
      std::memmove(buffer_.data(), from, partial.size());
      at_ = 0;
      end_ = partial.size();
      const std::size_t got = source_(buffer_.data() + end_, buffer_.size() - end_);
      over_ = got == 0;
      end_ += got;
    }
  }

  [[noreturn]] void bad(const std::string& found, const std::string& expected) const {
    throw ImportError(name_ + ":" + std::to_string(number_) + ": found " + found + ", expected " +
                      expected);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw ImportError(name_ + ":" + std::to_string(number_) + ": " + what);
  }
  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  const ImportSource& source_;
  const std::string& name_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, end_ = 0;
  bool over_ = false;
  std::uint64_t number_ = 0;
};

/// Numbers in order of first appearance: processes, targets.
class Numbers {
 public:
  std::uint32_t operator[](std::uint64_t key) {
    if (!known_.empty() && key == last_key_) return last_;
    last_ = known_.try_emplace(key, static_cast<std::uint32_t>(known_.size())).first->second;
    last_key_ = key;
    return last_;
  }
  [[nodiscard]] std::size_t size() const { return known_.size(); }

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> known_;
  std::uint64_t last_key_ = 0;
  std::uint32_t last_ = 0;
};

/// How often each page was observed, and for how many accesses that stands.
class Uncertainty {
 public:
  void add(std::uint32_t process, std::uint64_t address, double observed, double accesses) {
    Page& page = pages_[std::uint64_t{process} << 36 | address / page_bytes];
    page.observed += observed;
    page.accesses += accesses;
  }

  /// `of_all`: the observations are a sample of the accesses, rather than of something else.
  void tell(bool of_all, ImportSummary& summary) const {
    std::vector<Page> pages;
    pages.reserve(pages_.size());
    for (const auto& [number, page] : pages_) pages.push_back(page);
    // By content, so that the sums do not depend on the order of a hash table.
    std::ranges::sort(pages, [](const Page& a, const Page& b) {
      return std::pair(a.accesses, a.observed) > std::pair(b.accesses, b.observed);
    });
    double all = 0;
    for (const Page& page : pages) {
      all += page.accesses;
      summary.observed += page.observed;
    }
    double sum = 0, error = 0;
    bool hot = true;
    for (const Page& page : pages) {
      const double sampled = of_all ? std::min(1.0, page.observed / page.accesses) : 0;
      error += page.accesses * std::sqrt((1 - sampled) / page.observed);
      sum += page.accesses;
      if (hot && sum >= all / 2) {
        summary.hot_error_share = error / sum;
        hot = false;
      }
    }
    summary.accesses = all;
    summary.error_share = all > 0 ? error / all : 0;
  }

 private:
  struct Page {
    double observed = 0, accesses = 0;
  };
  std::unordered_map<std::uint64_t, Page> pages_;
};

/// What all formats share: lines in, stream out.
class Import {
 public:
  Import(Lines& lines, std::filesystem::path file, trace::StreamInfo info,
         const ImportOptions& options, ImportSummary& summary)
      : lines_(lines),
        options_(options),
        summary_(summary),
        file_(std::move(file)),
        info_(std::move(info)) {}

  trace::StreamInfo run() {
    try {
      switch (options_.format) {
        case ImportFormat::perf_script:
          perf_script();
          break;
        case ImportFormat::damon:
          damon();
          break;
        case ImportFormat::lackey:
          lackey();
          break;
        case ImportFormat::csv:
          csv();
          break;
      }
    } catch (const std::invalid_argument& error) {  // of the assembler: a value beyond its limits
      lines_.fail(error.what());
    }
    summary_.lines = lines_.number();
    summary_.processes = std::max<std::size_t>(1, processes_.size());
    if (summary_.samples == 0)
      throw ImportError(lines_.name() + ": no access in " + std::to_string(summary_.lines) +
                        " lines; there is nothing to play");
    return to_->finish();
  }

 private:
  void start(bool wall_time, double threads, std::vector<trace::StreamClass> classes) {
    AssemblerOptions options;
    options.block_ms = options_.block_ms;
    options.threads = summary_.threads = threads;
    options.wall_time = wall_time;
    options.nominal_latency_ns = options_.nominal_latency_ns;
    options.seed = options_.seed;
    info_.classes = std::move(classes);
    to_.emplace(file_, std::move(info_), options);
  }
  [[nodiscard]] std::vector<trace::StreamClass> one_class() const {
    return {{"random", options_.mlp_random, 0, 0}};
  }

  /// An observation of an access, in the stream and in the books.
  void observe(std::uint32_t process, std::uint64_t address, AccessKind kind, double observed,
               double accesses) {
    to_->access(address, kind, 0, accesses);
    uncertainty_.add(process, address, observed, accesses);
  }

  // -------------------------------------------------------------------------------- perf script

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

  /// Samples are put in order of time: perf writes one buffer per processor. So all are kept.
  void perf_script() {
    std::vector<Sample> samples;
    Numbers threads;
    for (Text line; lines_.next(line);) {
      if (trimmed(line).empty() || line.starts_with('#')) continue;
      Sample sample{};
      if (perf_sample(line, threads, sample)) samples.push_back(sample);
    }
    std::ranges::stable_sort(samples, {}, &Sample::ns);
    start(true, options_.threads > 0 ? options_.threads : busiest_second(samples), one_class());
    const std::uint64_t first = samples.empty() ? 0 : samples.front().ns;
    for (const Sample& sample : samples) {
      to_->process(sample.process);
      to_->time(sample.ns - first);
      observe(sample.process, sample.address, sample.store ? AccessKind::store : AccessKind::load,
              1, sample.accesses);
    }
    summary_.samples = samples.size();
    uncertainty_.tell(true, summary_);
  }

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
      if (const auto ns = seconds(token)) {
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
                 "an address in hexadecimal (perf record -d, perf script -F ...,addr)");
    if (!served_by_memory(rest)) {
      ++summary_.cached;
      return false;
    }
    if (*address == 0 || *address >= user_limit) {
      ++summary_.no_address;
      return false;
    }
    if (options_.period == 0 && !period)
      lines_.bad("no period", "one before the event (perf script -F ...,period,...), or --period");
    sample.accesses = options_.period > 0 ? options_.period : static_cast<double>(*period);
    sample.store = is_store(event, rest);
    sample.address = *address;
    sample.process = processes_[*process];
    sample.thread = threads[*thread];
    return true;
  }

  /// 12345.678901: in ns; none if it is something else.
  static std::optional<std::uint64_t> seconds(Text token) {
    if (!token.ends_with(':')) return std::nullopt;
    token.remove_suffix(1);
    const std::size_t dot = token.find('.');
    if (dot == Text::npos) return std::nullopt;
    const Text digits = token.substr(dot + 1);
    const auto whole = number<std::uint32_t>(token.substr(0, dot));
    const auto part = number<std::uint64_t>(digits);
    if (!whole || !part || digits.size() > 9) return std::nullopt;
    std::uint64_t ns = *part;
    for (std::size_t i = digits.size(); i < 9; ++i) ns *= 10;
    return *whole * std::uint64_t{1'000'000'000} + ns;
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

  // -------------------------------------------------------------------------------------- DAMON

  void damon() {
    start(true, std::max(1.0, options_.threads), one_class());
    std::uint32_t target = 0;
    std::uint64_t announced = 0, regions = 0;
    std::uint64_t start_ns = 0, end_ns = 0;
    bool in_snapshot = false;
    std::optional<std::uint64_t> first;
    const auto complete = [&] {
      if (in_snapshot && regions != announced)
        lines_.bad(std::to_string(regions) + " regions",
                   std::to_string(announced) + " of them, as nr_regions said");
      if (in_snapshot) to_->time(end_ns);  // closes the interval's block
      in_snapshot = false;
    };
    for (Text line; lines_.next(line);) {
      Text rest = trimmed(line);
      if (rest.empty() || rest.starts_with('#')) continue;
      if (const std::size_t at = rest.find("damon_aggregated:"); at != Text::npos) {
        tracepoint(rest, at, first);
      } else if (take(rest, "base_time_absolute:") || take(rest, "monitoring_duration:")) {
        (void)duration(rest);
      } else if (take(rest, "monitoring_start:")) {
        complete();
        start_ns = duration(rest);
      } else if (take(rest, "monitoring_end:")) {
        end_ns = duration(rest);
        to_->time(start_ns);
      } else if (take(rest, "target_id:")) {
        complete();
        const auto id = number<std::uint64_t>(trimmed(rest));
        if (!id) lines_.bad(shown(rest), "the target's number");
        target = processes_[*id];
      } else if (take(rest, "nr_regions:")) {
        const auto count = number<std::uint64_t>(trimmed(rest));
        if (!count) lines_.bad(shown(rest), "the number of regions");
        announced = *count;
        regions = 0;
        in_snapshot = true;
      } else {
        // 563ebaa00000-563ebc99e000(  31.617 MiB):	1 [age]
        const std::size_t dash = rest.find('-'), open = rest.find('('), colon = rest.find("):");
        if (dash == Text::npos || open == Text::npos || colon == Text::npos || dash > open ||
            !in_snapshot)
          lines_.bad(shown(line),
                     "'START-END(SIZE): ACCESSES' or a heading, as damo report raw prints them, "
                     "or the tracepoint damon_aggregated");
        Text counts = rest.substr(colon + 2);
        region(target, number<std::uint64_t>(trimmed(rest.substr(0, dash)), 16),
               number<std::uint64_t>(trimmed(rest.substr(dash + 1, open - dash - 1)), 16), counts,
               line);
        ++regions;
      }
    }
    complete();
    uncertainty_.tell(false, summary_);
  }

  /// kdamond.0 46568 [027] 79357.842179: damon:damon_aggregated: target_id=0 nr_regions=11
  /// 122509119488-135708762112: 0 864
  void tracepoint(Text line, std::size_t at, std::optional<std::uint64_t>& first) {
    constexpr const char* expected =
        "'SECONDS: damon_aggregated: target_id=N nr_regions=N START-END: ACCESSES [AGE]'";
    std::optional<std::uint64_t> ns;
    for (Text head = line.substr(0, at);;) {
      const Text token = word(head);
      if (token.empty()) break;
      if (const auto found = seconds(token)) ns = found;
    }
    Text rest = line.substr(at + Text("damon_aggregated:").size());
    Text id = word(rest), count = word(rest), range = word(rest);
    const std::size_t dash = range.find('-');
    if (!ns || !take(id, "target_id=") || !take(count, "nr_regions=") || dash == Text::npos ||
        !range.ends_with(':'))
      lines_.bad(shown(line), expected);
    const auto target = number<std::uint64_t>(id);
    if (!target) lines_.bad(shown(id), "the target's number");
    if (!first) first = ns;
    to_->time(*ns - std::min(*ns, *first));
    range.remove_suffix(1);
    region(processes_[*target], number<std::uint64_t>(range.substr(0, dash)),
           number<std::uint64_t>(range.substr(dash + 1)), rest, line);
  }

  /// Every page of a region was found accessed in so many checks.
  void region(std::uint32_t target, std::optional<std::uint64_t> from,
              std::optional<std::uint64_t> to, Text counts, Text line) {
    const auto checks = number<std::uint32_t>(word(counts));
    if (!from || !to || *from >= *to || *to > address_limit)
      lines_.bad(shown(line), "a range of addresses below 2^48");
    if ((*to - *from) / page_bytes > options_.most_pages)
      lines_.bad(shown(line), "a region of at most 128 GiB");
    if (!checks) lines_.bad(shown(line), "the number of accesses after the range");
    if (*checks == 0) return;
    ++summary_.samples;
    to_->process(target);
    const double accesses = *checks * (options_.period > 0 ? options_.period : 1.0);
    for (std::uint64_t page = *from / page_bytes; page <= (*to - 1) / page_bytes; ++page)
      observe(target, page * page_bytes, AccessKind::load, *checks, accesses);
  }

  /// "8 m 59.809 s", "104.599 ms", "0 ns"; a bare number is in ns.
  std::uint64_t duration(Text text) {
    const Text whole = trimmed(text);
    double ns = 0;
    Text rest = whole;
    do {
      const auto value = real(word(rest));
      const Text unit = word(rest);
      static constexpr std::array<std::pair<Text, double>, 9> units = {{{"", 1},
                                                                        {"ns", 1},
                                                                        {"us", 1e3},
                                                                        {"usec", 1e3},
                                                                        {"ms", 1e6},
                                                                        {"s", 1e9},
                                                                        {"m", 60e9},
                                                                        {"h", 3600e9},
                                                                        {"d", 86400e9}}};
      const auto* const found =
          std::ranges::find(units, unit, [](const auto& known) { return known.first; });
      if (!value || *value < 0 || found == units.end())
        lines_.bad(shown(whole), "a time such as '8 m 59.809 s'");
      ns += *value * found->second;
    } while (!trimmed(rest).empty());
    if (!(ns < 1e18)) lines_.bad(shown(whole), "a time below 31 years");
    return static_cast<std::uint64_t>(std::llround(ns));
  }

  // ------------------------------------------------------------------------------------- lackey

  void lackey() {
    if (!(options_.ns_per_instruction > 0))
      throw std::invalid_argument("ns_per_instruction must be positive");
    // Stores that found their line in the cache are a class of their own: they only write back.
    start(false, std::max(1.0, options_.threads),
          {{"random", options_.mlp_random, 0, 0},
           {"sequential", options_.mlp_sequential, 0, 0},
           {"rewritten", options_.mlp_random, 0, 0, 0}});
    trace::LlcFilter llc{options_.llc_bytes, 16};
    Numbers frames;  // of the filter: dense page numbers
    Streams streams;
    std::uint64_t instructions = 0, told = 0;
    double accesses = 0;
    for (Text line; lines_.next(line);) {
      if (trimmed(line).empty() || line.starts_with("==") || line.starts_with("--")) continue;
      const char kind = line[0] != ' ' ? line[0] : line.size() > 1 ? line[1] : ' ';
      Text rest = line.substr(std::min<std::size_t>(2, line.size()));
      rest = trimmed(rest);
      const std::size_t comma = rest.find(',');
      const auto address = number<std::uint64_t>(rest.substr(0, comma), 16);
      const auto size =
          comma == Text::npos ? std::nullopt : number<std::uint32_t>(rest.substr(comma + 1));
      const bool instruction = kind == 'I';
      if (!address || !size || *size == 0 || *size > page_bytes || *address >= address_limit ||
          (line[0] == ' ' ? kind != 'L' && kind != 'S' && kind != 'M'
                          : !instruction || line.size() < 2 || line[1] != ' '))
        lines_.bad(shown(line),
                   "'I  ADDRESS,SIZE', ' L ADDRESS,SIZE', ' S ...' or ' M ...' as lackey prints "
                   "them with --trace-mem=yes");
      if (instruction) {
        ++instructions;
        if (instructions - told == 1024) {
          to_->compute(1024 * options_.ns_per_instruction);
          to_->time(static_cast<std::uint64_t>(static_cast<double>(instructions) *
                                               options_.ns_per_instruction));
          told = instructions;
        }
        continue;
      }
      ++summary_.samples;
      ++accesses;
      for (std::uint64_t at = *address; at < *address + *size;) {
        const std::uint64_t page = at / page_bytes;
        const std::uint64_t end = std::min(*address + *size, (page + 1) * page_bytes);
        const std::uint64_t line_from = at / trace::line_bytes;
        const std::uint64_t line_to = (end - 1) / trace::line_bytes + 1;
        const std::uint32_t frame = frames[page];
        if (frame >= trace::LlcFilter::max_pages)
          lines_.fail("more than 128 GiB of memory were accessed");
        const auto touch = [&](bool store) {
          const auto count =
              llc.touch(frame, static_cast<std::uint32_t>(line_from % trace::page_lines),
                        static_cast<std::uint32_t>(line_to - line_from), store);
          if (count.missed == 0 && count.dirtied == 0) return;
          const std::uint32_t fetched = count.missed > 0 && streams.goes_on(line_from) ? 1 : 0;
          if (!store) {
            to_->access(at, AccessKind::load, fetched, count.missed);
          } else {
            if (count.missed > 0) to_->access(at, AccessKind::store, fetched, count.missed);
            if (count.dirtied > count.missed)
              to_->access(at, AccessKind::store, 2, count.dirtied - count.missed);
          }
        };
        if (kind != 'S') touch(false);
        if (kind != 'L') touch(true);
        at = end;
      }
    }
    to_->compute(static_cast<double>(instructions - told) * options_.ns_per_instruction);
    to_->time(static_cast<std::uint64_t>(static_cast<double>(instructions) *
                                         options_.ns_per_instruction));
    summary_.observed = summary_.accesses = accesses;
  }

  /// Whether a miss goes on in one of the latest address streams, as a prefetcher would see it.
  class Streams {
   public:
    bool goes_on(std::uint64_t line) {
      for (std::uint64_t& next : next_)
        if (next != 0 && (line == next || line + 1 == next)) {
          next = line + 1;
          return true;
        }
      next_[oldest_++ % next_.size()] = line + 1;
      return false;
    }

   private:
    std::array<std::uint64_t, 16> next_{};
    std::size_t oldest_ = 0;
  };

  // ---------------------------------------------------------------------------------------- CSV

  enum class Column { time, address, kind, count, size, process };
  static constexpr std::array<Text, 6> column_names = {"time",  "address", "kind",
                                                       "count", "size",    "process"};

  void csv() {
    start(true, std::max(1.0, options_.threads), one_class());
    Text line;
    if (!lines_.next(line)) throw ImportError(lines_.name() + ": empty; expected a heading");
    const std::vector<Column> columns = heading(line);
    const double period = options_.period > 0 ? options_.period : 1;
    std::optional<double> first;
    while (lines_.next(line)) {
      if (trimmed(line).empty()) continue;
      Row row;
      Text rest = line;
      for (std::size_t i = 0; i < columns.size(); ++i) {
        const std::size_t comma = rest.find(',');
        if ((comma == Text::npos) != (i + 1 == columns.size()))
          lines_.bad(shown(line), std::to_string(columns.size()) + " values, as the heading has");
        field(columns[i], trimmed(rest.substr(0, comma)), row);
        rest.remove_prefix(comma == Text::npos ? rest.size() : comma + 1);
      }
      if (row.size > address_limit - row.address) lines_.bad(shown(line), "addresses below 2^48");
      if (!first) first = row.time;
      to_->time(static_cast<std::uint64_t>(std::max(0.0, row.time - *first)));
      const std::uint32_t process = processes_[row.process];
      to_->process(process);
      summary_.samples += row.count > 0;
      for (std::uint64_t at = row.address; at < row.address + row.size;) {
        const std::uint64_t end =
            std::min(row.address + row.size, (at / page_bytes + 1) * page_bytes);
        const std::uint64_t lines_touched =
            (end - 1) / trace::line_bytes - at / trace::line_bytes + 1;
        const double observed = row.count * static_cast<double>(lines_touched);
        if (observed > 0) observe(process, at, row.kind, observed, observed * period);
        at = end;
      }
    }
    uncertainty_.tell(true, summary_);
  }

  struct Row {
    double time = 0;
    std::uint64_t address = 0;
    AccessKind kind = AccessKind::load;
    double count = 1;
    std::uint64_t size = 1;
    std::uint64_t process = 0;
  };

  std::vector<Column> heading(Text line) {
    constexpr const char* expected =
        "a heading with time,address,kind and optionally count,size,process";
    std::vector<Column> columns;
    for (Text rest = line;;) {
      const std::size_t comma = rest.find(',');
      const auto* const at = std::ranges::find(column_names, trimmed(rest.substr(0, comma)));
      const auto column = static_cast<Column>(at - column_names.begin());
      if (at == column_names.end() || std::ranges::find(columns, column) != columns.end())
        lines_.bad(shown(line), expected);
      columns.push_back(column);
      if (comma == Text::npos) break;
      rest.remove_prefix(comma + 1);
    }
    for (const Column needed : {Column::time, Column::address, Column::kind})
      if (std::ranges::find(columns, needed) == columns.end()) lines_.bad(shown(line), expected);
    return columns;
  }

  void field(Column column, Text text, Row& row) {
    switch (column) {
      case Column::time: {
        const auto time = real(text);
        if (!time || *time < 0 || *time > 1e18) lines_.bad(shown(text), "a time in ns, 0 to 1e18");
        row.time = *time;
        break;
      }
      case Column::address: {
        Text digits = text;
        const bool hex = take(digits, "0x") || take(digits, "0X");
        const auto address = number<std::uint64_t>(digits, hex ? 16 : 10);
        if (!address || *address >= address_limit)
          lines_.bad(shown(text), "an address below 2^48: 0x and hexadecimal, or decimal");
        row.address = *address;
        break;
      }
      case Column::kind:
        if (text == "load" || text == "r" || text == "R")
          row.kind = AccessKind::load;
        else if (text == "store" || text == "w" || text == "W")
          row.kind = AccessKind::store;
        else
          lines_.bad(shown(text), "load or store (or r, w)");
        break;
      case Column::count: {
        const auto count = real(text);
        if (!count || *count < 0 || *count > 1e12)
          lines_.bad(shown(text), "a number of accesses, 0 to 1e12");
        row.count = *count;
        break;
      }
      case Column::size: {
        const auto size = number<std::uint64_t>(text);
        if (!size || *size == 0 ||
            *size > std::min(std::uint64_t{1} << 30, options_.most_pages * page_bytes))
          lines_.bad(shown(text), "a size in bytes, 1 to 2^30");
        row.size = *size;
        break;
      }
      case Column::process: {
        const auto process = number<std::uint32_t>(text);
        if (!process) lines_.bad(shown(text), "a process number");
        row.process = *process;
        break;
      }
    }
  }

  Lines& lines_;
  const ImportOptions& options_;
  ImportSummary& summary_;
  std::filesystem::path file_;
  trace::StreamInfo info_;
  std::optional<Assembler> to_;
  Numbers processes_;
  Uncertainty uncertainty_;
};

}  // namespace

ImportFormat import_format(std::string_view name) {
  static constexpr std::array<std::pair<Text, ImportFormat>, 4> known = {
      {{"perf-script", ImportFormat::perf_script},
       {"damon", ImportFormat::damon},
       {"lackey", ImportFormat::lackey},
       {"csv", ImportFormat::csv}}};
  for (const auto& [format, value] : known)
    if (format == name) return value;
  throw std::invalid_argument("no format '" + std::string(name) +
                              "' (known: perf-script, damon, lackey, csv)");
}

trace::StreamInfo import_trace(const ImportSource& source, const std::string& name,
                               const std::filesystem::path& file, trace::StreamInfo info,
                               const ImportOptions& options, ImportSummary& summary) {
  summary = {};
  info.lanes = {{"threads", 1}};
  Lines lines{source, name};
  return Import{lines, file, std::move(info), options, summary}.run();
}

}  // namespace tt::record
