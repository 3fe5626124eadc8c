// SPDX-License-Identifier: MIT

// damon: regions of `damo report raw` or of the tracepoint damon_aggregated. A region comes with
// the number of checks in which it was found accessed; every page of it gets that many accesses.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "record/import/importer.hpp"

namespace tt::record {
namespace {

class Damon {
 public:
  explicit Damon(Importer& to) : to_(to), lines_(to.lines) {}

  void run() {
    to_.start(true, std::max(1.0, to_.options.threads), to_.one_class());
    std::uint32_t target = 0;
    std::uint64_t announced = 0, regions = 0;
    std::uint64_t start_ns = 0, end_ns = 0;
    bool in_snapshot = false;
    std::optional<std::uint64_t> first;
    const auto complete = [&] {
      if (in_snapshot && regions != announced)
        lines_.bad(std::to_string(regions) + " regions",
                   std::to_string(announced) + " of them, as nr_regions said");
      if (in_snapshot) to_.stream().time(end_ns);  // closes the interval's block
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
        to_.stream().time(start_ns);
      } else if (take(rest, "target_id:")) {
        complete();
        const auto id = number<std::uint64_t>(trimmed(rest));
        if (!id) lines_.bad(shown(rest), "the target's number");
        target = to_.processes[*id];
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
    to_.summarise(false);
  }

 private:
  /// kdamond.0 46568 [027] 79357.842179: damon:damon_aggregated: target_id=0 nr_regions=11
  /// 122509119488-135708762112: 0 864
  void tracepoint(Text line, std::size_t at, std::optional<std::uint64_t>& first) {
    constexpr const char* expected =
        "'SECONDS: damon_aggregated: target_id=N nr_regions=N START-END: ACCESSES [AGE]'";
    std::optional<std::uint64_t> ns;
    for (Text head = line.substr(0, at);;) {
      const Text token = word(head);
      if (token.empty()) break;
      if (const auto found = perf_time(token)) ns = found;
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
    to_.stream().time(*ns - std::min(*ns, *first));
    range.remove_suffix(1);
    region(to_.processes[*target], number<std::uint64_t>(range.substr(0, dash)),
           number<std::uint64_t>(range.substr(dash + 1)), rest, line);
  }

  /// A region and the number of checks in which it was found accessed; each page gets that many.
  void region(std::uint32_t target, std::optional<std::uint64_t> from,
              std::optional<std::uint64_t> to, Text counts, Text line) {
    const auto checks = number<std::uint32_t>(word(counts));
    if (!from || !to || *from >= *to || *to > address_limit)
      lines_.bad(shown(line), "a range of addresses below 2^48");
    if ((*to - *from) / page_bytes > to_.options.most_pages)
      lines_.bad(shown(line), "a region of at most 128 GiB");
    if (!checks) lines_.bad(shown(line), "the number of accesses after the range");
    if (*checks == 0) return;
    ++to_.summary.samples;
    to_.stream().process(target);
    const double accesses = *checks * (to_.options.period > 0 ? to_.options.period : 1.0);
    for (std::uint64_t page = *from / page_bytes; page <= (*to - 1) / page_bytes; ++page)
      to_.observe(target, page * page_bytes, AccessKind::load, *checks, accesses);
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

  Importer& to_;
  Lines& lines_;
};

}  // namespace

void import_damon(Importer& to) { Damon{to}.run(); }

}  // namespace tt::record
