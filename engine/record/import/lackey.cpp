// SPDX-License-Identifier: MIT

// lackey: every access of `valgrind --tool=lackey --trace-mem=yes`, passed through a
// last-level-cache filter.
#include <algorithm>
#include <array>
#include <stdexcept>

#include "record/import/importer.hpp"
#include "trace/llc.hpp"

namespace tt::record {
namespace {

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

}  // namespace

void import_lackey(Importer& to) {
  if (!(to.options.ns_per_instruction > 0))
    throw std::invalid_argument("ns_per_instruction must be positive");
  // Stores that found their line in the cache are a class of their own: they only write back.
  to.start(false, std::max(1.0, to.options.threads),
           {{"random", to.options.mlp_random, 0, 0},
            {.name = "sequential",
             .mlp = to.options.mlp_sequential,
             .prefetched = trace::sequential_pattern.prefetched,
             .translation = trace::sequential_pattern.translation},
            {"rewritten", to.options.mlp_random, 0, 0, 0}});
  trace::LlcFilter llc{to.options.llc_bytes, 16};
  Numbers frames;  // of the filter: dense page numbers
  Streams streams;
  std::uint64_t instructions = 0, charged = 0;
  double accesses = 0;
  for (Text line; to.lines.next(line);) {
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
      to.lines.bad(shown(line),
                   "'I  ADDRESS,SIZE', ' L ADDRESS,SIZE', ' S ...' or ' M ...' as lackey prints "
                   "them with --trace-mem=yes");
    if (instruction) {
      ++instructions;
      if (instructions - charged == 1024) {
        to.stream().compute(1024 * to.options.ns_per_instruction);
        to.stream().time(static_cast<std::uint64_t>(static_cast<double>(instructions) *
                                                    to.options.ns_per_instruction));
        charged = instructions;
      }
      continue;
    }
    ++to.summary.samples;
    ++accesses;
    for (std::uint64_t at = *address; at < *address + *size;) {
      const std::uint64_t page = at / page_bytes;
      const std::uint64_t end = std::min(*address + *size, (page + 1) * page_bytes);
      const std::uint64_t line_from = at / trace::line_bytes;
      const std::uint64_t line_to = (end - 1) / trace::line_bytes + 1;
      const std::uint32_t frame = frames[page];
      if (frame >= trace::LlcFilter::max_pages)
        to.lines.fail("more than 128 GiB of memory were accessed");
      const auto touch = [&](bool store) {
        const auto count =
            llc.touch(frame, static_cast<std::uint32_t>(line_from % trace::page_lines),
                      static_cast<std::uint32_t>(line_to - line_from), store);
        if (count.missed == 0 && count.dirtied == 0) return;
        const std::uint32_t fetched = count.missed > 0 && streams.goes_on(line_from) ? 1 : 0;
        const auto place = to.place(0, at);
        if (!place) return;
        if (!store) {
          to.stream().access(*place, AccessKind::load, fetched, count.missed);
        } else {
          if (count.missed > 0)
            to.stream().access(*place, AccessKind::store, fetched, count.missed);
          if (count.dirtied > count.missed)
            to.stream().access(*place, AccessKind::store, 2, count.dirtied - count.missed);
        }
      };
      if (kind != 'S') touch(false);
      if (kind != 'L') touch(true);
      at = end;
    }
  }
  to.stream().compute(static_cast<double>(instructions - charged) * to.options.ns_per_instruction);
  to.stream().time(static_cast<std::uint64_t>(static_cast<double>(instructions) *
                                              to.options.ns_per_instruction));
  to.summary.observed = to.summary.accesses = accesses;
}

}  // namespace tt::record
