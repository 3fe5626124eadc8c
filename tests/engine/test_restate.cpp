// SPDX-License-Identifier: MIT

// Recordings that stand for more than was recorded, and which part of one is steady.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>

#include "check.hpp"
#include "core/rng.hpp"
#include "record/restate.hpp"
#include "record/windows.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"
#include "trace/writer.hpp"

using namespace tt;
using namespace tt::record;
using namespace tt::trace;
using check::Scratch;

namespace {

constexpr double ms = 1e6;

StreamInfo description(std::uint64_t pages, std::vector<Object> objects) {
  StreamInfo info;
  info.workload = "recorded";
  info.parameters = "{}";
  info.pages = pages;
  info.lanes = {{"threads", 1}};
  info.classes = {{"random", 2, 0, 0}};
  info.objects = std::move(objects);
  info.op_kinds = {{"get"}};
  return info;
}

/// Writes blocks of loads, each with a tenth as many stores of the same pages and 7 operations.
class Recording {
 public:
  Recording(const std::filesystem::path& file, StreamInfo info)
      : info_(std::move(info)), writer_(file, info_) {}

  std::vector<Event> events;

  void block(double nominal_ms, const std::vector<std::uint32_t>& pages,
             const std::vector<std::uint16_t>& counts, bool timed = true) {
    Block block;
    block.timed = timed;
    block.nominal_ns = nominal_ms * ms;
    const std::vector<double> compute = {1000};
    const std::vector<std::uint64_t> operations = {7};
    block.compute_ns = compute;
    block.operations = operations;
    block.events = events;
    Segment loads;
    loads.pages = pages;
    loads.counts = counts;
    Segment stores = loads;
    stores.kind = AccessKind::store;
    block.segments = {loads, stores};
    const std::vector<OpAccess> accesses = {{pages.front(), 1, 0, AccessKind::load}};
    block.sampled = {{0, 5, accesses}};
    writer_.write(block);
    if (timed) info_.nominal_seconds += nominal_ms * 1e-3;
    events.clear();
  }
  void finish() { writer_.finish(info_); }

 private:
  StreamInfo info_;
  Writer writer_;
};

/// What a stream does, and that every page is mapped once, then touched, then accessed, then freed.
struct Played {
  StreamInfo info;
  std::map<std::uint32_t, std::uint64_t> accesses;
  std::uint64_t operations = 0;
  std::uint64_t sampled = 0;
  double compute_ns = 0;
  double longest_ms = 0;
  std::size_t live = 0;
  std::size_t mapped = 0;
};

Played play(const std::filesystem::path& file) {
  const Reader reader{file};
  reader.verify();
  Played out;
  out.info = reader.info();
  std::map<std::uint32_t, int> state;  // 1 mapped, 2 touched, 3 freed
  Block block;
  for (std::uint64_t b = 0; b < reader.info().blocks; ++b) {
    reader.read(b, block);
    out.compute_ns += block.compute_ns[0];
    out.operations += block.operations[0];
    out.sampled += block.sampled.size();
    out.longest_ms = std::max(out.longest_ms, block.nominal_ns / ms);
    for (const Event& event : block.events) {
      const Object& object = out.info.objects[event.object];
      for (std::uint32_t page = event.first; page < event.first + event.count; ++page) {
        CHECK(page >= object.first_page && page < object.first_page + object.pages);
        const int wanted = static_cast<int>(event.type);
        CHECK_EQ(state[page], wanted);
        state[page] = wanted + 1;
      }
    }
    for (const Segment& segment : block.segments)
      for (std::size_t e = 0; e < segment.pages.size(); ++e) {
        CHECK_EQ(state[segment.pages[e]], 2);
        out.accesses[segment.pages[e]] += segment.counts[e];
      }
  }
  out.mapped = state.size();
  for (const auto& [page, is] : state) out.live += is == 2 ? 1 : 0;
  return out;
}

std::vector<Event> come(std::uint32_t object, std::uint32_t first, std::uint32_t count) {
  return {{EventType::map, object, first, count}, {EventType::touch, object, first, count}};
}

}  // namespace

TEST("a recording that stands for more has all accesses, each page for more, in more time") {
  const Scratch scratch;
  Recording small{scratch.file("a.tts"), description(4, {{"heap", 0, 4}})};
  small.events = come(0, 0, 4);
  small.block(10, {0, 1, 3}, {100, 1, 7});
  small.block(10, {2}, {5});
  small.finish();
  const Played before = play(scratch.file("a.tts"));
  restate(scratch.file("a.tts"), scratch.file("b.tts"),
          {.workload = "b", .parameters = "p", .factor = 4, .threads = 2});
  const Played after = play(scratch.file("b.tts"));
  CHECK_EQ(after.info.workload, "b");
  CHECK_EQ(after.info.parameters, "p");
  CHECK_EQ(after.info.scale, 4.0);
  CHECK_EQ(after.info.blocks, 2u);
  CHECK(std::abs(after.info.nominal_seconds - 0.040) < 1e-12);  // 4 times, by twice the threads
  CHECK(after.accesses == before.accesses);
  CHECK_EQ(after.operations, before.operations);
  CHECK_EQ(after.compute_ns, before.compute_ns);
}

TEST("a block that lasts too long is cut, and nothing is lost") {
  const Scratch scratch;
  Recording small{scratch.file("a.tts"), description(600, {{"heap", 0, 600}})};
  small.events = come(0, 0, 600);
  std::vector<std::uint32_t> pages;
  std::vector<std::uint16_t> counts;
  for (std::uint32_t page = 0; page < 600; ++page) {
    pages.push_back(page);
    counts.push_back(static_cast<std::uint16_t>(page == 9 ? 65'535 : 1 + page % 3));
  }
  small.block(10, pages, counts);
  small.finish();
  const Played before = play(scratch.file("a.tts"));
  restate(scratch.file("a.tts"), scratch.file("a.tts"),  // in its own place
          {.workload = "a", .factor = 32, .most_block_ms = 50});
  const Played after = play(scratch.file("a.tts"));
  CHECK_EQ(after.info.blocks, 7u);
  CHECK(after.longest_ms <= 50);
  CHECK(after.accesses == before.accesses);
  CHECK_EQ(after.operations, before.operations);
  CHECK_EQ(after.sampled, before.sampled);
  CHECK(std::abs(after.compute_ns - before.compute_ns) < 1e-6);
  CHECK_EQ(scratch.files(), 1u);
  // The accesses may be anywhere in it: of many to a page, about as many in each part.
  const Reader reader{scratch.file("a.tts")};
  Block block;
  for (std::uint64_t b = 0; b < 7; ++b) {
    reader.read(b, block);
    for (const Segment& segment : block.segments) {
      const auto at = std::ranges::find(segment.pages, 9U) - segment.pages.begin();
      CHECK(std::abs(segment.counts[static_cast<std::size_t>(at)] - 65'535 / 7) < 30);
      // A page with n accesses is in a part with a probability of 1 - (6/7)^n.
      const double wanted = 200 * (3 - 6.0 / 7 - 36.0 / 49 - 216.0 / 343);
      CHECK(std::abs(static_cast<double>(segment.pages.size()) - wanted) < 50);
    }
  }
}

TEST("blocks are repeated, and what comes and goes in them comes anew") {
  const Scratch scratch;
  // Of 30 pages, 10 stay, 10 come and go, 4 come and stay, and of the first 2 go.
  const StreamInfo info = description(30, {{"heap", 0, 10}, {"buffer", 10, 10}, {"grows", 20, 10}});
  Recording small{scratch.file("a.tts"), info};
  small.events = come(0, 0, 10);
  small.block(10, {0, 9}, {3, 3});
  small.events = come(1, 10, 10);
  small.block(10, {1, 12}, {5, 2});
  small.events = {{EventType::unmap, 1, 10, 10}};
  for (const Event& event : come(2, 20, 4)) small.events.push_back(event);
  small.events.push_back({EventType::unmap, 0, 8, 2});
  small.block(10, {1, 21}, {5, 1});
  small.block(10, {2}, {9});
  small.finish();
  restate(scratch.file("a.tts"), scratch.file("b.tts"),
          {.workload = "b", .from = 1, .to = 3, .passes = 5});
  const Played after = play(scratch.file("b.tts"));
  CHECK_EQ(after.info.blocks, 2u + 5 * 2);
  CHECK_EQ(after.info.pages, 30u + 4 * 10);
  CHECK(std::abs(after.info.nominal_seconds - 0.12) < 1e-12);
  CHECK_EQ(after.accesses.at(1), 2u * 5 * 10);  // loads and stores
  CHECK_EQ(after.accesses.at(21), 2u * 5 * 1);
  CHECK_EQ(after.accesses.at(12), 2u * 2);
  for (std::uint32_t pass = 1; pass < 5; ++pass)
    CHECK_EQ(after.accesses.at(30 + (pass - 1) * 10 + 2), 2u * 2);
  CHECK_EQ(after.mapped, 10u + 5 * 10 + 4);
  CHECK_EQ(after.live, 8u + 4);
  CHECK_EQ(after.info.objects.size(), 3u + 4);
  CHECK_EQ(after.info.objects.back().site, "buffer");
}

TEST("what cannot stand for anything is refused") {
  const Scratch scratch;
  Recording small{scratch.file("a.tts"), description(1, {{"heap", 0, 1}})};
  small.events = come(0, 0, 1);
  small.block(10, {0}, {1});
  small.finish();
  const auto refused = [&](const Restatement& wanted) {
    try {
      restate(scratch.file("a.tts"), scratch.file("b.tts"), wanted);
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  CHECK(refused({.factor = 0.5}));
  CHECK(refused({.factor = std::nan("")}));
  CHECK(refused({.threads = 0}));
  CHECK(refused({.from = 0, .to = 2}));
  CHECK(refused({.passes = 0}));
  CHECK(!refused({}));
}

TEST("windows are alike whose pages have the same law, whatever chance does") {
  const Scratch scratch;
  Recording made{scratch.file("a.tts"), description(2000, {{"heap", 0, 2000}})};
  made.events = come(0, 0, 2000);
  Rng rng{7};
  made.block(10, {0}, {1}, false);
  // A fifth of the pages is hot, the second half another fifth; a block has an access to a page in
  // ten.
  for (int b = 0; b < 400; ++b) {
    std::map<std::uint32_t, std::uint16_t> found;
    for (int i = 0; i < 200; ++i) {
      const bool hot = rng.uniform() < 0.8;
      const std::uint64_t first = b < 200 ? 0 : 400;
      ++found[static_cast<std::uint32_t>(hot ? first + rng.below(400) : rng.below(2000))];
    }
    std::vector<std::uint32_t> pages;
    std::vector<std::uint16_t> counts;
    for (const auto& [page, count] : found) {
      pages.push_back(page);
      counts.push_back(count);
    }
    made.block(10, pages, counts);
  }
  made.finish();
  const Reader reader{scratch.file("a.tts")};
  const Windows found = windows(reader, 8);
  CHECK_EQ(found.windows.size(), 8u);
  CHECK_EQ(found.windows.front().from, 1u);
  CHECK_EQ(found.windows.back().to, 401u);
  for (std::size_t w = 0; w < 8; ++w) {
    CHECK(std::abs(found.windows[w].end_s - found.windows[w].begin_s - 0.5) < 1e-9);
    CHECK_EQ(found.windows[w].accesses, 2u * 50 * 200);
    for (std::size_t v = 0; v < 8; ++v) {
      const double alike = found.alike[v * 8 + w];
      if ((v < 4) == (w < 4))
        CHECK(alike > 0.97);
      else
        CHECK(alike > 0.3 && alike < 0.7);
    }
  }
  // Of a part of the pages, about the same.
  const Windows part = windows(reader, 8, 1000);
  CHECK(std::abs(part.alike[7] - found.alike[7]) < 0.1);
  // Not more windows than have two blocks each.
  CHECK_EQ(windows(reader, 1000).windows.size(), 200u);
}
