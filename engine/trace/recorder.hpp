// SPDX-License-Identifier: MIT

// Recorder: turns a kernel's loads and stores into a stream.
//
// A kernel runs its real algorithm on real data structures and reports what it touches. The
// recorder passes the touches through a set-associative last-level-cache filter (LRU, 64-byte
// lines, size divided by the stream's scale), keeps the misses, coalesces them per page and block,
// notes first touches, and closes a block whenever its nominal time is reached.
//
// What counts:
//  - a load entry is a load that missed;
//  - a store entry is a line that a store made dirty, whether it was in the cache or not: a line
//    that will be written back once. The fetch for a store that missed (write-allocate) has no
//    entry of its own: the stream class tells the share of stores that fetched (store_fill). A
//    read-modify-write of a missing line is one load, and one store that fetched nothing. When
//    the line is evicted does not matter to a block, so evictions are not tracked.
//
// A class's addresses tell its pattern (overlap.hpp): of the lines that its accesses fetched, those
// deep enough in an ascending run inside of a page for a prefetcher to have asked for them
// (StreamClass::prefetched, on top of the share that the class says it prefetches by instructions),
// and those at the start of a run (translation). Threads of one page are not told apart, and how
// long ago a run stopped is not known. Every store call counts as the stores of 32 bytes that it
// takes (store_events): a class has one number for all its pages, since those that the caches serve
// leave no entry in a stream that could hold a number of their own.
//
// Nominal time is what a block would take on memory of nominal_latency_ns: per lane the compute
// time and, per load, the larger of issue_ns and latency / mlp, times R, over the lane's threads;
// the longest lane counts. A store that fetched waits only while write buffers are full: it counts
// a quarter of the latency. Nominal time decides where blocks end and when a kernel has recorded
// enough; no result is computed from it.
//
// A stream of huge pages (StreamInfo::page_bytes) holds the same misses, coalesced per huge page. A
// mapping starts on a page of its own: where objects are as large as in a real program, few huge
// pages hold two of them, and no two may share one only because both shrank with the scale.
//
// In such a stream the kernel may hold a part of each page only, one base page in `thinning`, where
// a page's base pages follow one law (vertices that are named at random): a huge page is then
// 512 / thinning of the kernel's base pages, and each of their accesses, and of the kernel's
// computation, stands for `thinning` of them. A page's count has the mean that it would have, and a
// larger error; the kernel and the cache filter are those of a miniature of R * thinning.
//
// Page numbers are dense from 0 in order of map() and are never given twice: a freed range stays
// unused, so that a page number means one allocation for the whole run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/types.hpp"
#include "trace/stream.hpp"

namespace tt::trace {

/// A byte address in the kernel's simulated address space.
using Address = std::uint64_t;

struct RecorderOptions {
  double scale = 1;                       // R
  std::uint32_t thinning = 1;             // see above; a power of two, 1 in streams of base pages
  std::uint64_t llc_bytes = 24ull << 20;  // full-scale; divided by R * thinning
  unsigned llc_ways = 16;                 // 1 to 16
  double block_ms = 10;                   // nominal block length, full-scale time
  double threads = 16;                    // nominal threads, for block_ms and nominal_seconds only
  double nominal_latency_ns = 90;         // likewise; local DRAM
  double op_sample_probability = 0.01;    // share of operations kept whole for latency percentiles
  std::uint64_t seed = 0;
};

class Recorder {
 public:
  Recorder(std::filesystem::path file, StreamInfo info, RecorderOptions options);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Reserves an address range (whole pages) for an object allocated at `site`. No page is placed
  /// until it is touched.
  [[nodiscard]] Address map(std::string_view site, std::uint64_t bytes);
  /// Frees a range got from map(), whole. Its pages vanish.
  void unmap(Address start);
  /// Frees `pages` whole pages of the stream from `start` on, all of one mapped range and none of
  /// them freed yet.
  void unmap(Address start, std::uint64_t pages);

  /// Blocks from now on count toward the objective (true) or not (false: set-up).
  void set_timed(bool timed);

  /// Accesses of `bytes` bytes at `address`, all lines in order, as class `stream_class` (index
  /// into StreamInfo::classes). Throws std::logic_error outside of mapped ranges.
  void load(std::uint32_t stream_class, Address address, std::uint64_t bytes);
  void store(std::uint32_t stream_class, Address address, std::uint64_t bytes);
  /// `count` accesses to the page of `address` that are known to reach memory: they pass the filter
  /// by. For what was observed rather than computed; of its stores, all count as fetching unless
  /// the class says otherwise.
  void miss(std::uint32_t stream_class, AccessKind kind, Address address, std::uint64_t count);
  /// Thread time on a lane that is not waiting for memory and does not overlap with it.
  void compute(std::uint32_t lane, double nanoseconds);

  /// Ends the open block, if anything is in it.
  void end_block();

  /// Brackets one operation; its accesses and compute() in between are its latency. A block never
  /// ends inside one.
  void begin_operation(std::uint32_t kind);
  void end_operation();

  /// What follows, until end_pattern(), is kept as a pattern besides being recorded: whole blocks.
  /// It may not leave the timed part. A pattern needs memory as its blocks do on disk.
  void begin_pattern();
  void end_pattern();
  /// Appends the pattern's blocks, `times` times, as they were: for what accesses the same lines
  /// over and over, as trials of PageRank do. What the pattern mapped is mapped anew each time,
  /// under new page numbers; it may free only that.
  void repeat_pattern(std::uint64_t times);
  /// Appends blocks as if the pattern had gone on for `times` times its length, where its accesses
  /// are independent draws from one law: a page's count in a block is Poisson with the mean that
  /// it had in the pattern's blocks, whose misses the cache filter has counted. A class whose
  /// stores dirtied just the lines that its loads fetched (read-modify-writes) still does that.
  /// Computation and operations go on at the mean rate; the sampled operations are the pattern's.
  /// The pattern may map and free nothing.
  void draw_pattern(double times);

  /// Nominal full-scale seconds recorded so far in the timed part, and in all.
  [[nodiscard]] double timed_seconds() const;
  [[nodiscard]] double total_seconds() const;

  /// Writes what is left and closes the file. Returns the final description.
  StreamInfo finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tt::trace
