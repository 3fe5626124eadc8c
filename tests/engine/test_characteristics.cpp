// SPDX-License-Identifier: MIT

// Characteristics: counted by hand on small streams, and against a plain count on a random one.
#include "trace/characteristics.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>

#include "check.hpp"
#include "sim/address_space.hpp"
#include "sim_streams.hpp"

using namespace tt;
using namespace tt::trace;
using namespace simtest;

namespace {

constexpr auto load = AccessKind::load;
constexpr auto store = AccessKind::store;

std::uint64_t total(const std::vector<std::uint64_t>& cells) {
  return std::accumulate(cells.begin(), cells.end(), std::uint64_t{0});
}

/// Set-up of one second and a timed part of two; two sites, one of them with two objects, of which
/// the first is freed before the second is used.
void write_small(const TempStream& file) {
  StreamInfo info = one_class(100, 64);
  info.classes = {{"stream", 8, 0, 0}, {"random", 4, 0, 0}};
  info.objects = {{"table", 0, 60}, {"buffer", 60, 20}, {"buffer", 80, 20}};
  StreamWriter writer{file, info};
  writer.events = {{EventType::map, 0, 0, 60},
                   {EventType::map, 1, 60, 20},
                   {EventType::touch, 0, 0, 50},
                   {EventType::touch, 1, 60, 10}};
  writer.parts = {{0, store, {0, 1, 60}, {5, 5, 5}}};
  writer.block(false, 1e9);
  writer.parts = {{0, load, {0, 1, 2, 60}, {100, 10, 1, 9}}, {1, store, {0}, {30}}};
  writer.block(true, 1e9);
  writer.events = {{EventType::unmap, 1, 60, 5},
                   {EventType::unmap, 1, 65, 15},
                   {EventType::map, 2, 80, 20},
                   {EventType::touch, 2, 80, 12}};
  writer.parts = {{1, load, {0, 80}, {40, 10}}};
  writer.block(true, 1e9);
  writer.finish();
}

}  // namespace

TEST("characteristics: totals, footprint and times of a small stream") {
  TempStream file;
  write_small(file);
  for (const HeatMapSize size : {HeatMapSize{}, HeatMapSize{10, 4}}) {
    const Characteristics found = characterise(file.reader(), size);
    CHECK_EQ(found.pages, 62u);  // the second buffer lies where the first one was
    CHECK_EQ(found.timed_pages, 62u);
    CHECK_EQ(found.peak_pages, 62u);  // 50 + 10, then ten go and twelve come
    CHECK_EQ(found.accesses[index(load)], 170u);
    CHECK_EQ(found.accesses[index(store)], 30u);
    CHECK_EQ(found.set_up_accesses, 15u);
    CHECK_NEAR(found.seconds, 3, 1e-9);
    CHECK_EQ(found.timed.size(), 1u);
    CHECK_NEAR(found.timed[0].from, 1, 1e-9);
    CHECK_NEAR(found.timed[0].to, 3, 1e-9);
  }
}

TEST("characteristics: sites join their objects") {
  TempStream file;
  write_small(file);
  const auto sites = characterise(file.reader(), {10, 4}).sites;
  CHECK_EQ(sites.size(), 2u);
  const SiteUse& table = sites[0];
  CHECK_EQ(table.site, "table");
  CHECK_EQ(table.objects, 1u);
  CHECK_EQ(table.freed, 0u);
  CHECK_EQ(table.pages, 50u);
  CHECK_EQ(table.peak_pages, 50u);
  CHECK_NEAR(table.first_touch, 0, 1e-9);
  CHECK_NEAR(table.last_touch, 2, 1e-9);
  CHECK_NEAR(table.last_free, -1, 1e-9);
  CHECK_EQ(table.set_up_accesses, 10u);
  CHECK((table.accesses == std::vector<ByKind>{{111, 0}, {40, 30}}));
  const SiteUse& buffer = sites[1];
  CHECK_EQ(buffer.objects, 2u);
  CHECK_EQ(buffer.freed, 1u);
  CHECK_EQ(buffer.pages, 12u);
  CHECK_EQ(buffer.peak_pages, 12u);
  CHECK_NEAR(buffer.first_touch, 0, 1e-9);
  CHECK_NEAR(buffer.last_touch, 2, 1e-9);
  CHECK_NEAR(buffer.last_free, 2, 1e-9);
  CHECK_EQ(buffer.set_up_accesses, 5u);
  CHECK((buffer.accesses == std::vector<ByKind>{{9, 0}, {10, 0}}));
}

TEST("characteristics: an object is freed when nothing of it is left") {
  TempStream file;
  StreamInfo info = one_class(30, 1);
  info.objects = {{"a", 0, 10}, {"a", 10, 20}};
  StreamWriter writer{file, info};
  map_and_touch(writer, 0, 10);
  writer.events.push_back({EventType::unmap, 0, 0, 9});
  writer.events.push_back({EventType::unmap, 1, 10, 20});
  writer.block(true, 1e9);
  writer.finish();
  const auto sites = characterise(file.reader(), {4, 4}).sites;
  CHECK_EQ(sites[0].freed, 1u);
  CHECK_EQ(sites[0].pages, 10u);
}

TEST("characteristics: the heat map's cells are the accesses of their pages and times") {
  TempStream file;
  write_small(file);
  // Rows of 16 pages: 0-15, ..., 64-79; columns of one block.
  const HeatMap heat = characterise(file.reader(), {9, 4}).heat;
  CHECK_EQ(heat.pages_per_row, 16u);
  CHECK_EQ(heat.rows, 5u);
  CHECK_EQ(heat.edges.size(), 4u);
  for (std::size_t i = 0; i < heat.edges.size(); ++i)
    CHECK_NEAR(heat.edges[i], static_cast<double>(i), 1e-9);
  CHECK((heat.accesses == std::vector<std::uint64_t>{10, 0, 0, 5, 0,   //
                                                     141, 0, 0, 9, 0,  //
                                                     40, 0, 0, 10, 0}));
  // Row 3 holds the last 2 pages of the table and 4 of the buffer, row 4 the buffer's 6, then 8.
  CHECK((heat.pages == std::vector<std::uint32_t>{16, 16, 16, 6, 6,  //
                                                  16, 16, 16, 6, 6,  //
                                                  16, 16, 16, 6, 8}));
}

TEST("characteristics: freed memory is given again to its site, the best fit first") {
  TempStream file;
  StreamInfo info = one_class(110, 1);
  info.objects = {{"a", 0, 40},  {"b", 40, 10}, {"a", 50, 10},
                  {"a", 60, 30}, {"b", 90, 10}, {"a", 100, 10}};
  StreamWriter writer{file, info};
  const auto map = [&](std::uint32_t object) {
    const Object& of = info.objects[object];
    const auto first = static_cast<std::uint32_t>(of.first_page);
    const auto pages = static_cast<std::uint32_t>(of.pages);
    writer.events.push_back({EventType::map, object, first, pages});
    writer.events.push_back({EventType::touch, object, first, pages});
    writer.parts.push_back({0, load, {first}, {1}});
  };
  const auto unmap = [&](std::uint32_t object, std::uint32_t first, std::uint32_t pages) {
    writer.events.push_back({EventType::unmap, object, first, pages});
  };
  map(0);  // places 0-39
  map(1);  // 40-49
  map(2);  // 50-59
  writer.block(true, 1e9);
  unmap(0, 10, 10);  // 10-39 in two parts that join; 0-9 stays
  unmap(0, 20, 20);
  unmap(2, 50, 10);  // 50-59
  map(5);            // fits 50-59 better than 10-39
  writer.block(true, 1e9);
  map(3);  // 10-39
  map(4);  // another site: 60-69
  writer.block(true, 1e9);
  writer.finish();
  const Characteristics found = characterise(file.reader(), {70, 10});
  CHECK_EQ(found.pages, 70u);
  CHECK_EQ(found.peak_pages, 70u);
  CHECK_EQ(found.heat.rows, 70u);
  const auto cell = [&](std::size_t column, std::size_t row) {
    return found.heat.accesses[column * 70 + row];
  };
  CHECK_EQ(cell(1, 50), 1u);
  CHECK_EQ(cell(2, 10), 1u);
  CHECK_EQ(cell(2, 60), 1u);
  CHECK_EQ(found.sites[0].pages, 50u);
  CHECK_EQ(found.sites[1].pages, 20u);
  std::vector<std::array<std::uint32_t, 3>> extents;
  for (const auto& [site, first, pages] : found.extents) extents.push_back({site, first, pages});
  CHECK((extents == std::vector<std::array<std::uint32_t, 3>>{
                        {0, 0, 40}, {1, 40, 10}, {0, 50, 10}, {1, 60, 10}}));
}

TEST("characteristics: a foreign stream may free what it never mapped, twice, and use it") {
  TempStream file;
  StreamInfo info = one_class(60, 1);
  info.objects = {{"a", 0, 10}, {"a", 10, 50}};
  StreamWriter writer{file, info};
  writer.events = {{EventType::map, 0, 0, 10},    {EventType::touch, 0, 0, 20},
                   {EventType::unmap, 0, 0, 30},  {EventType::unmap, 0, 5, 10},
                   {EventType::map, 1, 30, 30},   {EventType::touch, 1, 30, 30},
                   {EventType::unmap, 1, 30, 30}, {EventType::unmap, 1, 30, 30},
                   {EventType::map, 1, 20, 30},   {EventType::touch, 1, 0, 60}};
  writer.parts = {{0, load, {0, 15, 30, 59}, {1, 2, 3, 4}}};
  writer.block(true, 1e9);
  writer.finish();
  const Characteristics found = characterise(file.reader(), {60, 5});
  CHECK_EQ(found.accesses[index(load)], 10u);
  CHECK_EQ(total(found.heat.accesses), 10u);
  CHECK(found.pages <= 60);
}

TEST("characteristics: pages that only set-up had do not count as cold") {
  TempStream file;
  StreamInfo info = one_class(40, 1);
  info.objects = {{"a", 0, 10}, {"b", 10, 10}, {"c", 20, 20}};
  StreamWriter writer{file, info};
  for (std::uint32_t object : {0u, 1u}) {
    writer.events.push_back({EventType::map, object, object * 10, 10});
    writer.events.push_back({EventType::touch, object, object * 10, 10});
  }
  writer.block(false, 1e9);
  writer.events.push_back({EventType::unmap, 0, 0, 10});  // never there in the timed part
  writer.block(true, 1e9);
  writer.events.push_back({EventType::unmap, 1, 10, 10});  // there for one timed block
  writer.events.push_back({EventType::map, 2, 20, 20});
  writer.events.push_back({EventType::touch, 2, 20, 20});
  writer.parts = {{0, load, {20}, {7}}};
  writer.block(true, 1e9);
  writer.finish();
  const Characteristics found = characterise(file.reader());
  CHECK_EQ(found.pages, 40u);
  CHECK_EQ(found.timed_pages, 30u);
  CHECK_NEAR(found.curve.front()[0], 1.0 / 30, 1e-12);
}

TEST("characteristics: columns stay few, and lose nothing") {
  for (const std::size_t blocks : {1u, 7u, 8u, 9u, 100u, 1000u}) {
    TempStream file;
    StreamWriter writer{file, one_class(64, 1)};
    map_and_touch(writer, 0, 32);
    std::uint64_t sum = 0;
    for (std::uint16_t b = 0; b < blocks; ++b) {
      writer.parts = {{0, load, {b % 64u}, {static_cast<std::uint16_t>(b + 1)}}};
      sum += b + 1u;
      writer.block(true, 1e6 * (1 + b % 3));
    }
    writer.finish();
    const Characteristics found = characterise(file.reader(), {64, 8});
    const HeatMap& heat = found.heat;
    const std::size_t columns = heat.edges.size() - 1;
    CHECK(columns <= 16);
    CHECK(columns >= std::min<std::size_t>(blocks, 5));
    CHECK_EQ(heat.accesses.size(), columns * 64);
    CHECK_EQ(heat.pages.size(), columns * 64);
    CHECK(std::ranges::is_sorted(heat.edges));
    CHECK_NEAR(heat.edges.back(), found.seconds, 1e-12);
    CHECK_EQ(total(heat.accesses), sum);
    for (std::size_t c = 0; c < columns; ++c) CHECK_EQ(heat.pages[c * 64 + 31], 1u);
  }
}

TEST("characteristics: a heat map of a random stream is a plain count") {
  TempStream file;
  write_zipf(file, {.full_pages = 1000 * 64, .scale = 64, .rate = 10e6, .seconds = 3});
  const Characteristics found = characterise(file.reader(), {100, 20});
  std::map<std::pair<std::size_t, std::uint64_t>, std::uint64_t> cells;
  std::array<std::uint64_t, 2> kinds{};
  double now = 0;
  Block block;
  for (std::uint64_t b = 0; b < file.reader().info().blocks; ++b) {
    file.reader().read(b, block);
    const auto middle = now + block.nominal_ns * 0.5e-9;
    now += block.nominal_ns * 1e-9;
    const auto column = static_cast<std::size_t>(
        std::ranges::upper_bound(found.heat.edges, middle) - found.heat.edges.begin() - 1);
    for (const Segment& segment : block.segments)
      for (std::size_t e = 0; e < segment.pages.size(); ++e) {
        cells[{column, segment.pages[e] / found.heat.pages_per_row}] += segment.counts[e];
        kinds[index(segment.kind)] += segment.counts[e];
      }
  }
  CHECK(kinds == found.accesses);
  std::uint64_t other = 0;
  for (std::size_t i = 0; i < found.heat.accesses.size(); ++i) {
    const auto cell = cells.find({i / found.heat.rows, i % found.heat.rows});
    other += found.heat.accesses[i] != (cell == cells.end() ? 0 : cell->second);
  }
  CHECK_EQ(other, 0u);
  CHECK_EQ(total(found.heat.accesses), kinds[0] + kinds[1]);
}

TEST("characteristics: the hottest pages' share counts untouched hotness as cold") {
  const std::vector<std::uint64_t> descending = {50, 30, 20};
  CHECK_NEAR(share_of_hottest(0.1, 10, descending), 0.5, 1e-12);
  CHECK_NEAR(share_of_hottest(0.2, 10, descending), 0.8, 1e-12);
  CHECK_NEAR(share_of_hottest(0.05, 10, descending), 0.25, 1e-12);  // half a page
  CHECK_NEAR(share_of_hottest(0.5, 10, descending), 1, 1e-12);
  CHECK_NEAR(share_of_hottest(0.5, 10, {}), 0, 1e-12);
}

TEST("characteristics: the curve rises from the hottest page to all of them") {
  TempStream file;
  write_small(file);
  const Characteristics found = characterise(file.reader());
  // Four of 62 pages have timed accesses besides page 0's 170 of 200: 10, 10, 9, 1.
  CHECK_NEAR(found.curve.front()[0], 1.0 / 62, 1e-12);
  CHECK_NEAR(found.curve.front()[1], 0.85, 1e-12);
  CHECK_NEAR(found.curve.back()[0], 1, 1e-12);
  CHECK_NEAR(found.curve.back()[1], 1, 1e-12);
  CHECK_NEAR(found.hottest[0], 0.62 * 0.85, 1e-12);
  CHECK_NEAR(found.hottest[1], 1, 1e-12);

  TempStream skewed;
  write_zipf(skewed, {.full_pages = 10'000 * 64, .scale = 64, .seconds = 1});
  const Characteristics zipf = characterise(skewed.reader());
  CHECK(zipf.curve.size() > 250 && zipf.curve.size() < 500);
  for (std::size_t i = 1; i < zipf.curve.size(); ++i) {
    CHECK(zipf.curve[i][0] > zipf.curve[i - 1][0]);
    CHECK(zipf.curve[i][1] >= zipf.curve[i - 1][1]);
    // Concave: the hottest come first.
    CHECK(zipf.curve[i][1] / zipf.curve[i][0] <= zipf.curve[i - 1][1] / zipf.curve[i - 1][0]);
  }
  CHECK(zipf.hottest[0] > 0.2 && zipf.hottest[3] < 1);
}

TEST("characteristics: a stream without accesses, and one without pages") {
  for (const std::uint64_t pages : {0u, 10u}) {
    TempStream file;
    StreamWriter writer{file, one_class(pages, 1)};
    writer.block(true, 1e9);
    writer.finish();
    const Characteristics found = characterise(file.reader(), {10, 10});
    CHECK_EQ(found.pages, 0u);
    CHECK(found.curve.empty());
    CHECK_NEAR(found.hottest[3], 0, 0);
    CHECK_EQ(total(found.heat.accesses), 0u);
  }
}

TEST("characteristics: the footprint is the one that the simulator divides") {
  TempStream file;
  write_small(file);
  CHECK_EQ(characterise(file.reader()).peak_pages, sim::peak_pages(file.reader(), 0));
}

TEST("characteristics: a map without columns is refused") {
  TempStream file;
  write_small(file);
  CHECK_THROWS(characterise(file.reader(), {10, 0}), "rows and columns");
}
