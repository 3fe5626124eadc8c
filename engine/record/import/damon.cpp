// SPDX-License-Identifier: MIT

// damon: regions of `damo report access --raw_form`, of damo's JSON (also damon.data, unpacked), or
// of the tracepoint damon_aggregated. A region comes with the number of checks in which it was
// found accessed; every page of it gets that many accesses.
//
// damo writes one target's snapshots after the other's. So those with accesses are kept, and played
// in order of time; the tracepoint's regions come in that order.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "record/import/importer.hpp"
#include "record/import/json.hpp"

namespace tt::record {
namespace {

constexpr Text damo_remedy =
    "'START-END (SIZE) ACCESSES' or a heading, as damo report access --raw_form prints them, "
    "damo's JSON, or the tracepoint damon_aggregated";

constexpr Text mapped = "PERF_RECORD_MMAP2 ", own = "tiertune ";

/// Pages that a process has mapped. DAMON's regions go over the gaps between mappings.
class Pages {
 public:
  void add(std::uint64_t first, std::uint64_t end) {
    auto at = ends_.upper_bound(first);
    if (at != ends_.begin() && std::prev(at)->second >= first) {
      --at;
      first = at->first;
    }
    while (at != ends_.end() && at->first <= end) {
      end = std::max(end, at->second);
      at = ends_.erase(at);
    }
    ends_.emplace(first, end);
  }
  /// Calls `visit` with each part of [first, end) that is mapped.
  template <typename Visit>
  void within(std::uint64_t first, std::uint64_t end, Visit visit) const {
    auto at = ends_.upper_bound(first);
    if (at != ends_.begin()) --at;
    for (; at != ends_.end() && at->first < end; ++at)
      if (at->second > first) visit(std::max(first, at->first), std::min(end, at->second));
  }

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // by first page
};

class Damon {
 public:
  explicit Damon(Importer& to) : to_(to), lines_(to.lines) {}

  void run() {
    to_.start(true, std::max(1.0, to_.options.threads), to_.one_class());
    while (lines_.peek() == ' ' || lines_.peek() == '\n') lines_.pass();
    if (lines_.peek() == '[' || lines_.peek() == '{')
      json();
    else
      text();
    play();
    to_.summarise(false);
  }

 private:
  struct Region {
    std::uint64_t from, to;
    std::uint32_t checks;
  };
  struct Snapshot {
    std::uint64_t start_ns = 0, end_ns = 0;
    std::uint32_t target = 0;
    std::size_t first = 0, count = 0;  // of regions_
  };

  void text() {
    Asides asides{to_.summary};
    std::uint32_t target = 0;
    std::uint64_t announced = 0, regions = 0;
    std::uint64_t base_ns = 0, start_ns = 0, end_ns = 0;
    bool in_snapshot = false;
    const auto complete = [&] {
      if (in_snapshot && regions != announced)
        lines_.bad(std::to_string(regions) + " regions",
                   std::to_string(announced) + " of them, as nr_regions said");
      in_snapshot = false;
    };
    for (Text line; lines_.next(line);) {
      if (line.starts_with(own) && line.find(mapped) != Text::npos) {
        mapping(line);
        continue;
      }
      if (asides.skip(line)) continue;
      Text rest = trimmed(line);
      if (rest.starts_with("data source:")) continue;
      if (take(rest, "base_time_absolute:")) {
        complete();
        base_ns = duration(rest);
      } else if (take(rest, "monitoring_duration:")) {
        (void)duration(rest);
      } else if (take(rest, "monitoring_start:")) {
        complete();
        start_ns = base_ns + duration(rest);
      } else if (take(rest, "monitoring_end:")) {
        end_ns = base_ns + duration(rest);
      } else if (take(rest, "target_id:")) {
        complete();
        rest = trimmed(rest);
        const auto id = rest == "None" ? 0 : number<std::uint64_t>(rest);
        if (!id) lines_.bad(shown(rest), "the target's number");
        target = to_.processes[*id];
      } else if (take(rest, "nr_regions:")) {
        const auto count = number<std::uint64_t>(trimmed(rest));
        if (!count) lines_.bad(shown(rest), "the number of regions");
        announced = *count;
        regions = 0;
        in_snapshot = true;
        begin_snapshot(start_ns, end_ns, target);
      } else if (tracepoint(line)) {
        continue;
      } else {
        // 563ebaa00000-563ebc99e000 (  31.617 MiB)     1     0; before damo 2.7.2 with a colon
        const std::size_t dash = rest.find('-'), open = rest.find('('), close = rest.find(')');
        if (dash == Text::npos || open == Text::npos || close == Text::npos || dash > open ||
            open > close || !in_snapshot)
          lines_.bad(shown(line), std::string(damo_remedy));
        Text counts = rest.substr(close + 1);
        take(counts, ":");
        const auto found =
            region(number<std::uint64_t>(trimmed(rest.substr(0, dash)), 16),
                   number<std::uint64_t>(trimmed(rest.substr(dash + 1, open - dash - 1)), 16),
                   word(counts), line);
        if (found) keep(*found);
        ++regions;
      }
    }
    complete();
  }

  /// A list of records, one per target, each with its snapshots.
  void json() {
    lines_.in_line();
    Json json{lines_};
    if (json.peek() != '[')
      lines_.bad("an object", "a list of records, as damo report access --json prints it");
    json.array([&] { record(json); });
    json.end();
  }

  void record(Json& json) {
    const std::size_t first = snapshots_.size();
    std::uint64_t key = 0;
    json.object([&](Text name) {
      const auto part = [&](unsigned shift) {
        const Text text = json.scalar();
        const auto id = text == "null" ? 0 : number<std::uint64_t>(text);
        if (!id) lines_.bad(shown(text), "the number of a target, context or kdamond");
        key ^= *id << shift;
      };
      if (name == "target_id")
        part(0);
      else if (name == "context_idx")
        part(48);
      else if (name == "kdamond_idx")
        part(56);
      else if (name == "snapshots")
        json.array([&] { snapshot(json); });
      else
        json.skip();
    });
    const std::uint32_t target = to_.processes[key];
    for (std::size_t i = first; i < snapshots_.size(); ++i) snapshots_[i].target = target;
  }

  void snapshot(Json& json) {
    begin_snapshot(0, 0, 0);
    bool started = false, ended = false;
    json.object([&](Text name) {
      if (name == "start_time") {
        snapshots_.back().start_ns = duration(json.scalar());
        started = true;
      } else if (name == "end_time") {
        snapshots_.back().end_ns = duration(json.scalar());
        ended = true;
      } else if (name == "regions") {
        json.array([&] { json_region(json); });
      } else {
        json.skip();
      }
    });
    if (!started || !ended)
      lines_.bad("a snapshot without its times", "start_time and end_time in each");
  }

  void json_region(Json& json) {
    std::optional<std::uint64_t> from, to;
    std::string checks;
    json.object([&](Text name) {
      if (name == "start") {
        from = number<std::uint64_t>(plain(json.scalar()));
      } else if (name == "end") {
        to = number<std::uint64_t>(plain(json.scalar()));
      } else if (name == "nr_accesses" && json.peek() == '{') {
        json.object([&](Text unit) {
          if (unit == "samples")
            checks = plain(json.scalar());
          else
            json.skip();
        });
      } else if (name == "nr_accesses") {
        checks = plain(json.scalar());
      } else {
        json.skip();
      }
    });
    const auto found = region(from, to, checks, "a region with " + checks + " accesses");
    if (found) keep(*found);
  }

  void begin_snapshot(std::uint64_t start_ns, std::uint64_t end_ns, std::uint32_t target) {
    snapshots_.push_back({start_ns, end_ns, target, regions_.size(), 0});
  }
  void keep(const Region& found) {
    regions_.push_back(found);
    ++snapshots_.back().count;
  }

  /// What text() and json() have kept.
  void play() {
    if (snapshots_.empty()) return;
    std::ranges::stable_sort(snapshots_, {}, &Snapshot::start_ns);
    const std::uint64_t first = snapshots_.front().start_ns;
    std::uint64_t end = first;
    for (const Snapshot& snapshot : snapshots_) {
      if (snapshot.start_ns >= end) to_.stream().time(end - first);  // closes the interval's block
      to_.stream().time(snapshot.start_ns - first);
      for (std::size_t i = 0; i < snapshot.count; ++i)
        observe(snapshot.target, regions_[snapshot.first + i]);
      end = std::max(end, snapshot.end_ns);
    }
    to_.stream().time(end - first);
  }

  /// What a target maps, as `perf script --show-mmap-events` would print it, but with the target's
  /// number for the process: only `tune record --pid` writes that.
  /// tiertune 0 [000] 79357.8: PERF_RECORD_MMAP2 0/0: [0x7f00(0x1000) @ 0 00:00 0 0]: rw-p SITE
  void mapping(Text line) {
    Text rest = line.substr(line.find(mapped) + mapped.size());
    const Text names = word(rest);
    Text range = word(rest);
    const auto target = number<std::uint64_t>(names.substr(0, names.find('/')));
    const std::size_t open = range.find('('), right = rest.find("]: ");
    const bool whole = take(range, "[0x") && open != Text::npos && range.ends_with(')') &&
                       range.substr(open - 3).starts_with("(0x") && right != Text::npos;
    const auto from = number<std::uint64_t>(whole ? range.substr(0, open - 3) : Text{}, 16);
    const auto bytes =
        number<std::uint64_t>(whole ? range.substr(open, range.size() - open - 1) : Text{}, 16);
    if (!target || !from || !bytes || *from >= address_limit || *bytes == 0 ||
        *bytes > address_limit - *from)
      lines_.bad(shown(line), "PERF_RECORD_MMAP2 N/N: [0xADDRESS(0xBYTES) @ ...]: PROT NAME");
    rest.remove_prefix(right + 3);
    (void)word(rest);                    // protection
    if (to_.options.scale != 1) return;  // pages have other addresses
    const std::uint32_t process = to_.processes[*target];
    to_.stream().process(process);
    to_.stream().map(*from, *bytes, trimmed(rest));
    mapped_[process].add(*from / page_bytes, (*from + *bytes - 1) / page_bytes + 1);
  }

  /// kdamond.0 46568 [027] 79357.842179: damon:damon_aggregated: target_id=0 nr_regions=11
  /// 122509119488-135708762112: 0 864
  /// False: no line of a tracepoint. Those of others are counted as skipped.
  bool tracepoint(Text line) {
    constexpr const char* expected =
        "'SECONDS: damon_aggregated: target_id=N nr_regions=N START-END: ACCESSES [AGE]'";
    std::optional<std::uint64_t> ns;
    Text rest = line, event;
    for (;;) {
      event = word(rest);
      if (event.empty()) break;
      if (const auto found = perf_time(event))
        ns = found;
      else if (ns && event.ends_with(':'))
        break;
    }
    const bool wanted = line.find("damon_aggregated:") != Text::npos ||
                        line.find("damon_region_aggregated:") != Text::npos;
    if (!ns && !wanted) return false;
    take(event, "damon:");
    if (ns && event != "damon_aggregated:" && event != "damon_region_aggregated:") {
      if (event.empty()) lines_.bad(shown(line), expected);
      ++to_.summary.skipped;
      return true;
    }
    // A kernel that has both says the same with each.
    if (tracepoint_.empty()) tracepoint_ = event;
    if (event != tracepoint_) {
      ++to_.summary.skipped;
      return true;
    }
    Text id = word(rest), count = word(rest), range = word(rest);
    const std::size_t dash = range.find('-');
    if (!ns || !take(id, "target_id=") || !take(count, "nr_regions=") || dash == Text::npos ||
        !range.ends_with(':'))
      lines_.bad(shown(line), expected);
    const auto target = number<std::uint64_t>(id);
    if (!target) lines_.bad(shown(id), "the target's number");
    if (!first_) first_ = ns;
    to_.stream().time(*ns - std::min(*ns, *first_));
    range.remove_suffix(1);
    const auto found = region(number<std::uint64_t>(range.substr(0, dash)),
                              number<std::uint64_t>(range.substr(dash + 1)), word(rest), line);
    if (found) observe(to_.processes[*target], *found);
    return true;
  }

  /// A region and the number of checks in which it was found accessed. None: in none;
  /// what no access was seen of costs nothing, however large it is.
  std::optional<Region> region(std::optional<std::uint64_t> from, std::optional<std::uint64_t> to,
                               Text accesses, Text line) {
    if (accesses == "-1") return std::nullopt;  // damo ends a record of one snapshot with it
    const auto checks = number<std::uint32_t>(accesses);
    if (!from || !to || *from >= *to || *to > address_limit)
      lines_.bad(shown(line), "a range of addresses below 2^48");
    if (!checks) lines_.bad(shown(line), "the number of accesses after the range");
    if (*checks == 0) return std::nullopt;
    if ((*to - *from) / page_bytes / to_.options.scale > to_.options.most_pages)
      lines_.bad(shown(line),
                 "an accessed region of at most 128 GiB (--scale R takes R times as much; damo "
                 "record sees more with more regions: --monitoring_nr_regions_range)");
    ++to_.summary.samples;
    return Region{*from, *to, *checks};
  }

  /// Each page gets as many accesses as there were checks.
  void observe(std::uint32_t target, const Region& region) {
    to_.stream().process(target);
    const double accesses = region.checks * (to_.options.period > 0 ? to_.options.period : 1.0);
    const auto pages = [&](std::uint64_t first, std::uint64_t end) {
      for (std::uint64_t page = to_.kept_from(target, first); page < end;
           page = to_.kept_from(target, page + 1))
        to_.observe(target, page * page_bytes, AccessKind::load, region.checks, accesses);
    };
    const std::uint64_t first = region.from / page_bytes, end = (region.to - 1) / page_bytes + 1;
    if (const auto known = mapped_.find(target); known != mapped_.end())
      known->second.within(first, end, pages);
    else
      pages(first, end);
  }

  /// "93,000,000" as damo prints numbers for people.
  static std::string plain(Text text) {
    std::string out{text};
    std::erase(out, ',');
    return out;
  }

  /// "8 m 59.809 s", "104.599 ms", "0 ns"; a bare number is in ns.
  std::uint64_t duration(Text text) {
    const std::string whole = plain(trimmed(text));
    double ns = 0;
    std::uint64_t exact = 0;  // times since 1970 have more digits than a double
    Text rest = whole;
    do {
      const Text digits = word(rest);
      const auto value = real(digits);
      const Text unit = word(rest);
      static constexpr std::array<std::pair<Text, std::uint64_t>, 9> units = {
          {{"", 1},
           {"ns", 1},
           {"us", 1'000},
           {"usec", 1'000},
           {"ms", 1'000'000},
           {"s", 1'000'000'000},
           {"m", 60'000'000'000},
           {"h", 3'600'000'000'000},
           {"d", 86'400'000'000'000}}};
      const auto* const found =
          std::ranges::find(units, unit, [](const auto& known) { return known.first; });
      if (!value || *value < 0 || found == units.end())
        lines_.bad(shown(whole), "a time such as '8 m 59.809 s'");
      ns += *value * static_cast<double>(found->second);
      if (!(ns < 9e18)) lines_.bad(shown(whole), "a time below 285 years");
      const auto integer = number<std::uint64_t>(digits);
      exact += integer ? *integer * found->second
                       : static_cast<std::uint64_t>(
                             std::llround(*value * static_cast<double>(found->second)));
    } while (!trimmed(rest).empty());
    return exact;
  }

  Importer& to_;
  Lines& lines_;
  std::unordered_map<std::uint32_t, Pages> mapped_;  // of targets of which that is known
  std::vector<Region> regions_;
  std::vector<Snapshot> snapshots_;
  std::string tracepoint_;              // the one whose regions are taken
  std::optional<std::uint64_t> first_;  // its first time
};

}  // namespace

void import_damon(Importer& to) { Damon{to}.run(); }

}  // namespace tt::record
