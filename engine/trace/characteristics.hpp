// SPDX-License-Identifier: MIT

// Characteristics: how a stream uses its memory, found by reading it through.
//
// What `tune workloads` lists and `tune workload show` draws: footprint, loads and stores, the
// share of accesses that the hottest pages get, what each allocation site came to, and a heat map
// of accesses over pages and time. Counts are simulated, times are nominal seconds of the
// full-scale run since the stream's beginning.
//
// A stream never gives a page number twice, but a program's allocator does give freed memory again.
// So a page here is a place in an address space in which what is freed is given again to the same
// allocation site: an array that every iteration allocates again is one array. Hotness is that of
// the timed part: accesses in it, over all pages that were there in it, accessed or not.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trace/reader.hpp"
#include "trace/stream.hpp"

namespace tt::trace {

/// Accesses by kind; index with index(AccessKind).
using ByKind = std::array<std::uint64_t, 2>;

/// All objects of one allocation site.
struct SiteUse {
  std::string site;
  std::uint64_t objects = 0;     // ranges mapped there in all
  std::uint64_t freed = 0;       // of those, the ones of which nothing is left at the end
  std::uint64_t pages = 0;       // touched in all
  std::uint64_t peak_pages = 0;  // most that were touched and not freed at once
  double first_touch = -1;       // seconds; -1: never
  double last_touch = -1;
  double last_free = -1;
  std::vector<ByKind> accesses;       // of the timed part, per stream class
  std::uint64_t set_up_accesses = 0;  // outside of it
};

/// Pages that lie together and belong to one site.
struct Extent {
  std::uint32_t site = 0;  // index into Characteristics::sites
  std::uint32_t first = 0;
  std::uint32_t pages = 0;
};

/// Cells of pages (rows) and time (columns), column after column. Columns are groups of whole
/// blocks, so their widths differ a little.
struct HeatMap {
  std::uint64_t rows = 0;
  std::uint64_t pages_per_row = 0;
  std::vector<double> edges;            // seconds; one more than there are columns
  std::vector<std::uint64_t> accesses;  // [column * rows + row]
  std::vector<std::uint32_t> pages;     // likewise: most that were touched and not freed
};

/// Shares of the pages for which the share of accesses is reported.
inline constexpr std::array<double, 4> hot_shares = {0.01, 0.1, 0.2, 0.5};

/// A stretch of the timed part, in seconds.
struct Stretch {
  double from = 0;
  double to = 0;
};

struct Characteristics {
  std::uint64_t pages = 0;        // touched, at whatever time
  std::uint64_t timed_pages = 0;  // of those, the ones that were there in the timed part
  std::uint64_t peak_pages = 0;   // most that were touched and not freed at once: the footprint
  double seconds = 0;             // of all blocks
  std::vector<Stretch> timed;
  ByKind accesses{};                                // of the timed part
  std::uint64_t set_up_accesses = 0;                // outside of it
  std::array<double, hot_shares.size()> hottest{};  // share of accesses of the hottest pages
  /// (share of pages, share of accesses), hottest pages first, at a few hundred points.
  std::vector<std::array<double, 2>> curve;
  std::vector<SiteUse> sites;   // in order of first mapping
  std::vector<Extent> extents;  // in order of pages
  HeatMap heat;
};

/// The heat map has at most `rows` rows of a power of two of pages, and at most twice `columns`
/// columns (at least `columns` if there are as many blocks of equal length). Without rows and
/// columns only blocks' summaries are read: there are neither sites, extents nor a map, and it
/// takes a fraction of the time.
struct HeatMapSize {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
};
[[nodiscard]] Characteristics characterise(const Reader& reader, HeatMapSize size = {});

/// Share of all accesses that the hottest `share` of `pages` pages get, counting those without any
/// access; part of a page counts in proportion. `descending`: accesses per page.
[[nodiscard]] double share_of_hottest(double share, std::uint64_t pages,
                                      std::span<const std::uint64_t> descending);

}  // namespace tt::trace
