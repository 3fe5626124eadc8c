// SPDX-License-Identifier: MIT

#include "record/restate.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/rng.hpp"
#include "trace/reader.hpp"
#include "trace/writer.hpp"

namespace tt::record {
namespace {

using trace::Block;
using trace::Event;
using trace::EventType;
using trace::Segment;

constexpr double most_parts = 10'000;
constexpr std::size_t drawn_of_a_part = 16;

/// Entries of a segment that belong to one part of a block.
struct Entries {
  std::vector<std::uint32_t> pages;
  std::vector<std::uint16_t> counts;
};

/// What the repeated blocks do to memory, and what becomes of it in each pass.
class Passes {
 public:
  Passes(const trace::Reader& reader, const Restatement& wanted)
      : info_(reader.info()), last_(wanted.passes - 1), how_(info_.pages), rank_(info_.pages) {
    if (last_ == 0) return;
    for (std::uint64_t b = wanted.from; b < wanted.to; ++b)
      for (const Event& event : reader.events(b))
        for (std::uint64_t p = event.first; p < std::uint64_t{event.first} + event.count; ++p) {
          if (event.type == EventType::map) how_[p] |= comes;
          if (event.type == EventType::unmap) how_[p] |= goes;
        }
    for (std::uint64_t p = 0; p < info_.pages; ++p) {
      rank_[p] = passing_;
      if (how_[p] == (comes | goes)) ++passing_;
    }
    constexpr auto most = static_cast<double>(std::numeric_limits<std::uint32_t>::max());
    if (static_cast<double>(info_.pages) +
            static_cast<double>(passing_) * static_cast<double>(last_) >
        most)
      throw std::invalid_argument(
          "memory comes and goes in the repeated blocks: " + std::to_string(passing_) +
          " pages, too many to repeat " + std::to_string(last_) + " times");
    number_.assign(info_.objects.size(), none);
    for (std::size_t o = 0; o < info_.objects.size(); ++o) {
      const trace::Object& object = info_.objects[o];
      const std::uint64_t count = rank(object.first_page + object.pages) - rank(object.first_page);
      if (count == 0) continue;
      number_[o] = static_cast<std::uint32_t>(again_.size());
      again_.push_back({object.site, rank(object.first_page), count});
    }
  }

  /// Pages and objects of all passes.
  void complete(trace::StreamInfo& info) const {
    info.pages = info_.pages + passing_ * last_;
    for (std::uint64_t pass = 1; pass <= last_; ++pass)
      for (trace::Object object : again_) {
        object.first_page += page_base(pass);
        info.objects.push_back(std::move(object));
      }
  }

  [[nodiscard]] std::uint32_t page(std::uint32_t page, std::uint64_t pass) const {
    if (pass == 0 || how_[page] != (comes | goes)) return page;
    return static_cast<std::uint32_t>(page_base(pass) + rank_[page]);
  }
  /// Whether any page has another number in that pass.
  [[nodiscard]] bool renames(std::uint64_t pass) const { return pass > 0 && passing_ > 0; }

  /// The events of a pass, run by run of pages with the same fate.
  void events(std::span<const Event> from, std::uint64_t pass, std::vector<Event>& out) const {
    out.clear();
    for (const Event& event : from) {
      const std::uint64_t end = std::uint64_t{event.first} + event.count;
      for (std::uint64_t p = event.first, next = p; p < end; p = next) {
        while (next < end && how_[next] == how_[p]) ++next;
        if (!happens(event.type, how_[p], pass)) continue;
        const bool anew = pass > 0 && how_[p] == (comes | goes);
        const std::uint32_t number = anew ? number_[event.object] : none;
        out.push_back({.type = event.type,
                       .object = number == none ? event.object
                                                : static_cast<std::uint32_t>(
                                                      info_.objects.size() +
                                                      (pass - 1) * again_.size() + number),
                       .first = page(static_cast<std::uint32_t>(p), pass),
                       .count = static_cast<std::uint32_t>(next - p)});
      }
    }
  }

 private:
  static constexpr std::uint8_t comes = 1, goes = 2;
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  [[nodiscard]] bool happens(EventType type, std::uint8_t how, std::uint64_t pass) const {
    if (how == (comes | goes)) return true;
    return type == EventType::unmap ? pass == last_ : pass == 0;
  }
  /// How many passing pages there are below.
  [[nodiscard]] std::uint64_t rank(std::uint64_t page) const {
    return page < info_.pages ? rank_[page] : passing_;
  }
  [[nodiscard]] std::uint64_t page_base(std::uint64_t pass) const {
    return info_.pages + (pass - 1) * passing_;
  }

  const trace::StreamInfo& info_;
  std::uint64_t last_;
  std::vector<std::uint8_t> how_;    // of each page, in the repeated blocks
  std::vector<std::uint32_t> rank_;  // how many pages before it come and go
  std::uint32_t passing_ = 0;        // pages that come and go
  std::vector<std::uint32_t> number_;
  std::vector<trace::Object> again_;  // objects of passing pages, from page 0 on
};

/// Writes blocks, those that last too long in parts.
class Parts {
 public:
  Parts(trace::Writer& writer, const trace::StreamInfo& info, double time, double most_ms)
      : writer_(writer), time_(time), most_ns_(most_ms * 1e6), kinds_(info.op_kinds.size()) {}

  void write(Block& block, std::uint64_t seed) {
    block.nominal_ns *= time_;
    if (block.timed) seconds_ += block.nominal_ns * 1e-9;
    const double wanted = std::clamp(std::ceil(block.nominal_ns / most_ns_), 1.0, most_parts);
    const auto parts = static_cast<std::size_t>(wanted);
    if (parts == 1) {
      writer_.write(block);
      return;
    }
    spread(block, parts, seed);
    Block part;
    part.timed = block.timed;
    part.nominal_ns = block.nominal_ns / wanted;
    std::vector<double> compute(block.compute_ns.begin(), block.compute_ns.end());
    for (double& ns : compute) ns /= wanted;
    part.compute_ns = compute;
    std::vector<std::uint64_t> operations(kinds_);
    Rng rng(mix64(seed) ^ 0x6f7073ULL);
    std::vector<std::size_t> place;
    for (std::size_t o = 0; o < block.sampled.size(); ++o) place.push_back(rng.below(parts));
    for (std::size_t p = 0; p < parts; ++p) {
      part.events = p == 0 ? block.events : std::span<const Event>{};
      for (std::size_t k = 0; k < kinds_; ++k)
        operations[k] = block.operations[k] * (p + 1) / parts - block.operations[k] * p / parts;
      part.operations = operations;
      part.segments.clear();
      for (std::size_t s = 0; s < block.segments.size(); ++s) {
        const Entries& mine = entries_[s * parts + p];
        if (mine.pages.empty()) continue;
        Segment segment;
        segment.stream_class = block.segments[s].stream_class;
        segment.kind = block.segments[s].kind;
        segment.pages = mine.pages;
        segment.counts = mine.counts;
        part.segments.push_back(segment);
      }
      part.sampled.clear();
      for (std::size_t o = 0; o < block.sampled.size(); ++o)
        if (place[o] == p) part.sampled.push_back(block.sampled[o]);
      writer_.write(part);
    }
  }

  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  /// Where in its block an access is was not recorded: each falls into any part, independently of
  /// the others. Of many accesses to a page, all but the last few are shared out evenly.
  void spread(const Block& block, std::size_t parts, std::uint64_t seed) {
    entries_.resize(std::max(entries_.size(), block.segments.size() * parts));
    for (Entries& each : entries_) {
      each.pages.clear();
      each.counts.clear();
    }
    std::vector<std::uint16_t> mine(parts);
    for (std::size_t s = 0; s < block.segments.size(); ++s) {
      const Segment& segment = block.segments[s];
      // Loads and stores of the same pages stay together: the writer keeps their arrays once.
      Rng rng(seed);
      for (std::size_t e = 0; e < segment.pages.size(); ++e) {
        const std::size_t count = segment.counts[e];
        const std::size_t even =
            count > drawn_of_a_part * parts ? count / parts - drawn_of_a_part : 0;
        std::ranges::fill(mine, static_cast<std::uint16_t>(even));
        for (std::size_t left = count - even * parts; left > 0; --left) ++mine[rng.below(parts)];
        for (std::size_t p = 0; p < parts; ++p) {
          if (mine[p] == 0) continue;
          entries_[s * parts + p].pages.push_back(segment.pages[e]);
          entries_[s * parts + p].counts.push_back(mine[p]);
        }
      }
    }
  }

  trace::Writer& writer_;
  double time_;
  double most_ns_;
  std::size_t kinds_;
  double seconds_ = 0;
  std::vector<Entries> entries_;  // by segment and part
};

void check(const Restatement& wanted, const trace::StreamInfo& info) {
  const auto positive = [](double value) { return std::isfinite(value) && value > 0; };
  if (!(positive(wanted.factor) && info.scale * wanted.factor >= 1))
    throw std::invalid_argument("a page cannot stand for less than one");
  if (!positive(wanted.threads) || !positive(wanted.most_block_ms))
    throw std::invalid_argument("threads and length of a block must be positive");
  if (wanted.passes == 0 || wanted.from > wanted.to || wanted.to > info.blocks)
    throw std::invalid_argument("there are no such blocks to repeat");
  if (wanted.threads != 1 && (info.lanes.size() != 1 || info.lanes.front().thread_share <= 0))
    throw std::invalid_argument("its threads are not all alike: their number cannot be changed");
}

}  // namespace

trace::StreamInfo restate(const std::filesystem::path& from, const std::filesystem::path& to,
                          const Restatement& wanted, const std::function<bool(double)>& progress) {
  const trace::Reader reader(from);
  check(wanted, reader.info());
  const Passes passes(reader, wanted);
  trace::StreamInfo info = reader.info();
  info.workload = wanted.workload;
  info.parameters = wanted.parameters;
  info.scale *= wanted.factor;
  passes.complete(info);
  trace::Writer writer(to, info);
  Parts parts(writer, info, wanted.factor / wanted.threads, wanted.most_block_ms);

  const std::uint64_t repeated = wanted.to - wanted.from;
  const std::uint64_t all = info.blocks + repeated * (wanted.passes - 1);
  std::vector<Event> events;
  std::vector<std::vector<std::uint32_t>> renamed;
  std::vector<std::vector<trace::OpAccess>> operations;
  Block block;
  for (std::uint64_t i = 0; i < all; ++i) {
    const bool before = i < wanted.from;
    const bool inside = !before && i < wanted.from + repeated * wanted.passes;
    const std::uint64_t pass = inside ? (i - wanted.from) / repeated : 0;
    const std::uint64_t b = before   ? i
                            : inside ? wanted.from + (i - wanted.from) % repeated
                                     : i - repeated * (wanted.passes - 1);
    reader.read(b, block);
    if (inside && wanted.passes > 1) {
      passes.events(block.events, pass, events);
      block.events = events;
    }
    if (inside && passes.renames(pass)) {
      renamed.resize(block.segments.size());
      for (std::size_t s = 0; s < block.segments.size(); ++s) {
        Segment& segment = block.segments[s];
        renamed[s].assign(segment.pages.begin(), segment.pages.end());
        for (std::uint32_t& page : renamed[s]) page = passes.page(page, pass);
        segment.pages = renamed[s];
      }
      operations.resize(block.sampled.size());
      for (std::size_t o = 0; o < block.sampled.size(); ++o) {
        operations[o].assign(block.sampled[o].accesses.begin(), block.sampled[o].accesses.end());
        for (trace::OpAccess& access : operations[o]) access.page = passes.page(access.page, pass);
        block.sampled[o].accesses = operations[o];
      }
    }
    parts.write(block, i);
    if (progress && !progress(static_cast<double>(i + 1) / static_cast<double>(all)))
      throw std::runtime_error("stopped");
  }
  reader.confirm();
  info.nominal_seconds = parts.seconds();
  return writer.finish(info);
}

}  // namespace tt::record
