// SPDX-License-Identifier: MIT

// The layout of an access stream on disk, shared by its reader and its writer (stream.hpp has the
// overview).
//
// Every part starts at a multiple of 64 bytes and is padded with zeros to the next one; checksums
// cover the padding, so that any changed bit of a file is found when its part is read for the first
// time.
//
// A block consists of
//
//   BlockHeader, double compute_ns[lanes], std::uint64_t operations[op kinds], Event[events],
//   SegmentHeader[segments], OperationHeader[sampled], OpAccess[op_accesses]
//
// and then per segment, each at a multiple of 64 bytes,
//
//   std::uint32_t pages[], std::uint32_t chunk_sums[], std::uint16_t counts[]
//
// A segment that repeats the pages and counts of the one before it (the loads and the stores of
// read-modify-writes) has no arrays of its own.
//
// Names and tables: texts as a 32-bit length and bytes, lists as a 32-bit length and elements.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

#include "trace/stream.hpp"

namespace tt::trace::layout {

static_assert(std::endian::native == std::endian::little, "the format is mapped, not decoded");

inline constexpr char magic[8] = {'t', 't', 's', 't', 'r', 'e', 'a', 'm'};
inline constexpr std::size_t alignment = 64;

struct FileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t header_bytes;
  std::uint64_t file_bytes;
  std::uint64_t blocks;
  std::uint64_t index_offset;   // IndexEntry[blocks]
  std::uint64_t totals_offset;  // std::uint64_t[pages]
  std::uint64_t tables_offset;  // names and tables
  std::uint64_t tables_bytes;
  std::uint64_t index_checksum;
  std::uint64_t totals_checksum;
  std::uint64_t tables_checksum;
  std::uint64_t pages;
  std::uint64_t accesses;
  std::uint64_t entries;
  std::uint64_t operations;
  std::uint64_t seed;
  double scale;
  double nominal_seconds;
  std::uint64_t page_bytes;
  std::uint64_t reserved[4];
  std::uint64_t checksum;  // of everything above
};
static_assert(sizeof(FileHeader) == 192);

struct IndexEntry {
  std::uint64_t offset;
  std::uint64_t bytes;
  std::uint64_t checksum;
  std::uint64_t reserved;
};
static_assert(sizeof(IndexEntry) == 32);

struct BlockHeader {
  std::uint32_t timed;
  std::uint32_t segments;
  std::uint32_t events;
  std::uint32_t sampled;
  std::uint64_t op_accesses;
  double nominal_ns;
  std::uint64_t reserved[4];
};
static_assert(sizeof(BlockHeader) == 64);

struct SegmentHeader {
  std::uint32_t stream_class;
  std::uint16_t kind;
  std::uint16_t repeats;  // 1: the arrays are those of the segment before
  std::uint64_t size;
  std::uint64_t sum;
};
static_assert(sizeof(SegmentHeader) == 24);

struct OperationHeader {
  std::uint32_t kind;
  std::uint32_t accesses;
  double compute_ns;
};
static_assert(sizeof(OperationHeader) == 16);
static_assert(sizeof(Event) == 16 && sizeof(OpAccess) == 8);

constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}
constexpr std::uint64_t chunks(std::uint64_t entries) { return (entries + chunk - 1) / chunk; }

/// What is wrong with a description; the same rules for writing and for reading. Empty: nothing.
inline std::string_view defect(const StreamInfo& info) {
  if (!(std::isfinite(info.scale) && info.scale >= 1)) return "scale is below 1";
  if (!(std::isfinite(info.nominal_seconds) && info.nominal_seconds >= 0))
    return "nominal time is negative";
  if (info.page_bytes != base_page_bytes && info.page_bytes != huge_page_bytes)
    return "pages are of neither 4096 nor 2097152 bytes";
  if (info.pages > std::uint64_t{std::numeric_limits<std::uint32_t>::max()} + 1)
    return "more pages than 32-bit numbers";
  if (info.lanes.empty()) return "no lane";
  if (info.classes.size() > 255) return "more than 255 stream classes";
  for (const Lane& lane : info.lanes)
    if (!(std::isfinite(lane.thread_share) && lane.thread_share >= 0))
      return "a lane's thread share is negative";
  for (const StreamClass& entry : info.classes) {
    if (!(std::isfinite(entry.mlp) && entry.mlp > 0)) return "a stream class's MLP is not positive";
    if (!(std::isfinite(entry.issue_ns) && entry.issue_ns >= 0))
      return "a stream class's issue time is negative";
    if (!(entry.store_fill >= 0 && entry.store_fill <= 1))
      return "a stream class's share of fetching stores is not 0 to 1";
    if (!(entry.prefetched >= 0 && entry.prefetched <= 1))
      return "a stream class's share of prefetched lines is not 0 to 1";
    if (!(entry.translation >= 0 && entry.translation <= 1))
      return "a stream class's share of translations is not 0 to 1";
    if (!(std::isfinite(entry.store_events) && entry.store_events > 0))
      return "a stream class's number of retired stores is not positive";
    if (entry.lane >= info.lanes.size()) return "a stream class names an unknown lane";
  }
  for (const Object& object : info.objects)
    if (object.first_page > info.pages || object.pages > info.pages - object.first_page)
      return "an object lies outside the address space";
  return {};
}

}  // namespace tt::trace::layout
