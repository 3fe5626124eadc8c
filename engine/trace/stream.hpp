// SPDX-License-Identifier: MIT

// The access-stream format (.tts): what a workload does to memory, ready to be replayed.
//
// A stream is a sequence of blocks of last-level-cache misses at page granularity: of base pages
// (4 KiB), or, for policies that manage nothing smaller, of huge pages (2 MiB), where it is up to
// 512 times smaller and a small R affordable.
// Order inside a block does not matter: accesses are coalesced per page, in runs ("segments") that
// share a stream class and an access kind. A file is written once and memory-mapped by all readers;
// everything is little-endian and 64-byte aligned.
//
//   FileHeader | block 0 | block 1 | ... | block index | page totals | names and tables
//
// The header holds the offset, size and checksum of every part, its own checksum and the size of
// the file; the index holds the checksum of every block. layout.hpp has the exact layout,
// reader.hpp and writer.hpp the two ends. Counts are of *simulated* accesses: in a miniature of
// scale R each stands for R accesses to R different pages (miniature simulation, Waldspurger et
// al., ATC'17).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/types.hpp"

namespace tt::trace {

inline constexpr std::uint32_t format_version = 3;
/// What the reader still takes. Version 2 had neither `prefetched`, `translation` and
/// `store_events` nor `page_bytes`: its pages are base pages.
inline constexpr std::uint32_t oldest_version = 2;
inline constexpr std::size_t base_page_bytes = 4096;
inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
inline constexpr std::size_t line_bytes = 64;
inline constexpr std::size_t page_lines = base_page_bytes / line_bytes;
/// Every `chunk` entries of a segment have a precomputed sum of counts, so that a sampler skips
/// whole chunks.
inline constexpr std::size_t chunk = 64;

/// Accesses that share a degree of memory-level parallelism. `issue_ns` is computation between two
/// misses of one thread that overlaps with outstanding misses: a miss stalls its thread for
/// max(0, latency / mlp - issue_ns). Lanes are groups of threads that run independently of each
/// other (the two threads of Soar's microbenchmark); most streams have one.
///
/// A store entry is a line that gets dirty and will be written back. `store_fill` is the share of
/// them that had to fetch the line first (write-allocate); the others found it in the cache, as the
/// store of a read-modify-write does, and cost their write-back alone.
///
/// The last three say what else depends on the pattern; recorder.hpp has how they are found, and
/// engine/sim/README.md what the machine makes of them. `prefetched` is the share of the lines that
/// a prefetcher asked for before the access did, `translation` the share of the accesses that go to
/// another page than the one before in their sequence, and `store_events` the number of retired
/// stores, those that the caches served included, for each store entry.
struct StreamClass {
  std::string name;
  double mlp = 1;
  double issue_ns = 0;
  std::uint32_t lane = 0;
  double store_fill = 1;
  double prefetched = 0;
  double translation = 1;
  double store_events = 1;
};

struct Lane {
  std::string name;
  double thread_share = 1;  // of the run's threads; 0: exactly one thread
};

/// A data structure or arena of the workload: allocation site, for object-level placement.
struct Object {
  std::string site;
  std::uint64_t first_page = 0;
  std::uint64_t pages = 0;
};

/// Kind of operation whose latency is reported (GET, lookup, update).
struct OpKind {
  std::string name;
};

struct StreamInfo {
  std::string workload;
  std::string input;
  std::string parameters;  // canonical text of what made it; part of the content hash
  std::uint64_t seed = 0;
  double scale = 1;                            // R
  std::uint64_t page_bytes = base_page_bytes;  // of a page of the stream; or huge_page_bytes
  std::uint64_t pages = 0;                     // of the simulated address space, dense from 0
  std::uint64_t blocks = 0;
  std::uint64_t accesses = 0;    // simulated loads + stores, all blocks
  std::uint64_t entries = 0;     // after coalescing
  std::uint64_t operations = 0;  // in the timed part, all kinds
  double nominal_seconds = 0;    // the recorder's estimate of all-fast time, timed part
  // The header's checksum, which covers the checksums of all parts: two files that verify and have
  // the same one are the same stream. Set when a stream is read or finished.
  std::uint64_t identity = 0;
  std::vector<StreamClass> classes;
  std::vector<Lane> lanes;
  std::vector<Object> objects;
  std::vector<OpKind> op_kinds;
};

/// map: the range exists from now on (Policy::on_map). touch: first touches, in order; the pages
/// get a place. unmap: the range is freed.
enum class EventType : std::uint8_t { map = 0, touch = 1, unmap = 2 };
struct Event {
  EventType type = EventType::map;
  std::uint32_t object = 0;
  std::uint32_t first = 0;  // page of the stream
  std::uint32_t count = 0;
};

/// Coalesced accesses of one class and kind: pages[i] is accessed counts[i] times.
struct Segment {
  std::uint32_t stream_class = 0;
  AccessKind kind = AccessKind::load;
  std::uint64_t sum = 0;  // of counts
  std::span<const std::uint32_t> pages;
  std::span<const std::uint16_t> counts;      // same size
  std::span<const std::uint32_t> chunk_sums;  // ceil(size / chunk)
};

/// An access of a sampled operation, in program order.
struct OpAccess {
  std::uint32_t page = 0;
  std::uint16_t count = 0;
  std::uint8_t stream_class = 0;
  AccessKind kind = AccessKind::load;
};

/// A whole operation drawn at random, with its own accesses; they are also part of the segments.
struct Operation {
  std::uint32_t kind = 0;
  double compute_ns = 0;
  std::span<const OpAccess> accesses;
};

/// A view into the mapped file; valid while the reader lives.
struct Block {
  bool timed = false;                  // counts toward the objective (false: set-up)
  double nominal_ns = 0;               // full-scale all-fast estimate
  std::span<const double> compute_ns;  // per lane: thread-time of one simulated share; full
                                       // scale is this times R, spread over the lane's threads
  std::span<const std::uint64_t> operations;  // per op kind, simulated
  std::span<const Event> events;              // applied before the accesses
  std::vector<Segment> segments;              // reused between blocks by Reader::read
  std::vector<Operation> sampled;             // likewise
};

}  // namespace tt::trace
