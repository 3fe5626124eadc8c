// SPDX-License-Identifier: MIT

#include "trace/pattern.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "trace/poisson.hpp"

namespace tt::trace {

void Pattern::keep(const Block& block) {
  Kept& kept = blocks_.emplace_back();
  kept.timed = block.timed;
  kept.events.assign(block.events.begin(), block.events.end());
  kept.nominal_ns = block.nominal_ns;
  kept.compute_ns.assign(block.compute_ns.begin(), block.compute_ns.end());
  kept.operations.assign(block.operations.begin(), block.operations.end());
  for (const Segment& segment : block.segments)
    kept.entries.push_back({segment.stream_class,
                            segment.kind,
                            {segment.pages.begin(), segment.pages.end()},
                            {segment.counts.begin(), segment.counts.end()}});
  for (const Operation& operation : block.sampled)
    kept.sampled.push_back({operation.kind,
                            operation.compute_ns,
                            {operation.accesses.begin(), operation.accesses.end()}});
}

bool Pattern::uniform(bool timed) const {
  return !blocks_.empty() &&
         std::ranges::all_of(blocks_, [timed](const Kept& kept) { return kept.timed == timed; });
}

bool Pattern::drawable(bool timed) const {
  return uniform(timed) && std::ranges::all_of(blocks_, [](const Kept& kept) {
           return std::ranges::all_of(
               kept.events, [](const Event& event) { return event.type == EventType::touch; });
         });
}

bool Pattern::repeatable(bool timed, std::uint64_t own) const {
  return uniform(timed) && std::ranges::all_of(blocks_, [own](const Kept& kept) {
           return std::ranges::all_of(kept.events, [own](const Event& event) {
             return event.type != EventType::unmap || event.first >= own;
           });
         });
}

std::vector<Operation> Pattern::operations(const std::vector<Sampled>& sampled) {
  std::vector<Operation> views;
  for (const Sampled& operation : sampled)
    views.push_back({operation.kind, operation.compute_ns, operation.accesses});
  return views;
}

void Pattern::repeat(const Shift& shift, const Append& append) const {
  const auto moved = [&shift](std::uint32_t page) {
    return page < shift.page ? page : static_cast<std::uint32_t>(page + shift.pages);
  };
  for (const Kept& kept : blocks_) {
    Block block;
    block.timed = kept.timed;
    block.nominal_ns = kept.nominal_ns;
    block.compute_ns = kept.compute_ns;
    block.operations = kept.operations;
    std::vector<Event> events;
    for (Event event : kept.events) {
      if (event.first < shift.page) continue;  // touched the first time
      event.first = moved(event.first);
      event.object = static_cast<std::uint32_t>(event.object + shift.objects);
      events.push_back(event);
    }
    block.events = events;
    std::vector<Entries> shifted = kept.entries;
    for (Entries& entries : shifted) {
      std::ranges::transform(entries.pages, entries.pages.begin(), moved);
      block.segments.push_back(
          {entries.stream_class, entries.kind, 0, entries.pages, entries.counts, {}});
    }
    std::vector<Sampled> sampled = kept.sampled;
    for (Sampled& operation : sampled)
      for (OpAccess& access : operation.accesses) access.page = moved(access.page);
    block.sampled = operations(sampled);
    append(block);
  }
}

namespace {

/// One class and kind: which pages it accessed, and how often in all blocks.
struct Law {
  std::vector<std::uint64_t> totals;  // by page
  std::vector<std::uint32_t> pages;   // those of them that are not 0
  std::vector<Poisson> counts;        // in one block
  bool mirrors = false;               // stores to what the loads of the class fetched
};

void add_entry(std::uint32_t page, std::uint64_t count, std::vector<std::uint32_t>& pages,
               std::vector<std::uint16_t>& counts) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint16_t>::max();
  for (; count > 0; count -= std::min(count, most)) {
    pages.push_back(page);
    counts.push_back(static_cast<std::uint16_t>(std::min(count, most)));
  }
}

}  // namespace

void Pattern::draw(double times, Rng& rng, const Append& append) const {
  const auto length = static_cast<double>(blocks_.size());
  const double blocks = times * length;
  const auto whole = static_cast<std::uint64_t>(blocks);

  std::map<std::pair<std::uint32_t, AccessKind>, Law> laws;
  std::vector<double> compute(blocks_.front().compute_ns.size());
  std::vector<double> operations_mean(blocks_.front().operations.size());
  double nominal_ns = 0;
  for (const Kept& kept : blocks_) {
    for (const Entries& entries : kept.entries) {
      std::vector<std::uint64_t>& totals = laws[{entries.stream_class, entries.kind}].totals;
      for (std::size_t e = 0; e < entries.pages.size(); ++e) {
        if (totals.size() <= entries.pages[e]) totals.resize(entries.pages[e] + std::size_t{1});
        totals[entries.pages[e]] += entries.counts[e];
      }
    }
    for (std::size_t lane = 0; lane < compute.size(); ++lane)
      compute[lane] += kept.compute_ns[lane] / length;
    for (std::size_t kind = 0; kind < operations_mean.size(); ++kind)
      operations_mean[kind] += static_cast<double>(kept.operations[kind]) / length;
    nominal_ns += kept.nominal_ns / length;
  }
  for (auto& [way, law] : laws) {
    const auto loads = laws.find({way.first, AccessKind::load});
    law.mirrors = way.second == AccessKind::store && loads != laws.end() &&
                  loads->second.totals == law.totals;
  }

  const auto one = [&](std::uint64_t b, double share) {
    Block block;
    const Kept& like = blocks_[b % blocks_.size()];
    block.timed = like.timed;
    block.nominal_ns = nominal_ns * share;
    std::vector<double> scaled = compute;
    for (double& ns : scaled) ns *= share;
    block.compute_ns = scaled;
    // Rounded so that their sum is right after each block.
    std::vector<std::uint64_t> count;
    for (const double mean : operations_mean) {
      const auto at = static_cast<double>(b);
      count.push_back(static_cast<std::uint64_t>(mean * (at + share) + 0.5) -
                      static_cast<std::uint64_t>(mean * at + 0.5));
    }
    block.operations = count;
    std::vector<Entries> drawn;
    drawn.reserve(laws.size());
    for (const auto& [way, law] : laws) {
      Entries& entries = drawn.emplace_back();
      entries.stream_class = way.first;
      entries.kind = way.second;
      if (law.mirrors) {
        entries.pages = drawn[drawn.size() - 2].pages;
        entries.counts = drawn[drawn.size() - 2].counts;
        continue;
      }
      for (std::size_t p = 0; p < law.pages.size(); ++p)
        add_entry(law.pages[p], law.counts[p].draw(rng), entries.pages, entries.counts);
    }
    for (const Entries& entries : drawn)
      if (!entries.pages.empty())
        block.segments.push_back(
            {entries.stream_class, entries.kind, 0, entries.pages, entries.counts, {}});
    block.sampled = operations(like.sampled);
    append(block);
  };
  const auto prepare = [&](double share) {
    for (auto& [way, law] : laws) {
      law.pages.clear();
      law.counts.clear();
      if (law.mirrors) continue;
      for (std::size_t page = 0; page < law.totals.size(); ++page) {
        if (law.totals[page] == 0) continue;
        law.pages.push_back(static_cast<std::uint32_t>(page));
        law.counts.emplace_back(static_cast<double>(law.totals[page]) / length * share);
      }
    }
  };
  prepare(1);
  for (std::uint64_t b = 0; b < whole; ++b) one(b, 1);
  const double rest = blocks - static_cast<double>(whole);
  if (rest * nominal_ns < 1) return;  // less than a nanosecond
  prepare(rest);
  one(whole, rest);
}

}  // namespace tt::trace
