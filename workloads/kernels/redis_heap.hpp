// SPDX-License-Identifier: MIT

// The memory of a Redis server: bytes at simulated addresses, and the allocator that hands them
// out as jemalloc does (Evans, BSDCan 2006; public source jemalloc/jemalloc, 5.x, as Redis builds
// it, with a quantum of 8 bytes).
//
// Small requests come from slabs, runs of pages that hold regions of one size class: the shortest
// run that the class divides without rest. Freed regions go to a thread cache, last in, first out;
// it is filled from the lowest slab with room and flushed by half, oldest first. Slabs are cut from
// extents that grow by a quarter each; a slab that is empty gives its pages back to its extents.
// Requests above the largest class are mapped by themselves.
//
// Simplified: the allocator's own tables (half a percent of the heap) are not recorded, and pages
// that are free stay mapped, where jemalloc would purge them after ten seconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/recorder.hpp"

namespace tt::kernels {

/// Bytes of mapped ranges. What is stored here is what the program reads.
class RedisMemory {
 public:
  /// Maps a page that is never touched, so that no data lies at address 0 when the recorder is new.
  explicit RedisMemory(trace::Recorder& recorder) : recorder_(recorder) {
    (void)map("redis.null", trace::base_page_bytes);
  }

  /// Zeroed whole pages.
  [[nodiscard]] trace::Address map(std::string_view site, std::uint64_t bytes);
  void unmap(trace::Address start);

  /// A value, not reported.
  template <typename T>
  [[nodiscard]] T peek(trace::Address address) const {
    T value;
    std::memcpy(&value, at(address), sizeof(T));
    return value;
  }
  template <typename T>
  [[nodiscard]] T load(std::uint32_t stream_class, trace::Address address) const {
    recorder_.load(stream_class, address, sizeof(T));
    return peek<T>(address);
  }
  template <typename T>
  void store(std::uint32_t stream_class, trace::Address address, const T& value) {
    recorder_.store(stream_class, address, sizeof(T));
    std::memcpy(at(address), &value, sizeof(T));
  }
  /// Bytes of one mapped range; what is done with them is reported by the caller.
  [[nodiscard]] std::byte* at(trace::Address address) const {
    return pages_[address / trace::base_page_bytes] + address % trace::base_page_bytes;
  }
  [[nodiscard]] trace::Recorder& recorder() const { return recorder_; }

 private:
  trace::Recorder& recorder_;
  std::vector<std::byte*> pages_;  // by page number; null where other objects lie
  std::map<trace::Address, std::vector<std::byte>> ranges_;
};

class RedisHeap {
 public:
  /// Extents and large allocations are mapped as `site`.
  RedisHeap(RedisMemory& memory, std::string site);

  /// Contents are what was there before, or zeros where nothing was.
  [[nodiscard]] trace::Address allocate(std::uint64_t bytes) { return allocate(bytes, site_); }
  /// The same; a large allocation is mapped as `site`, zeroed.
  [[nodiscard]] trace::Address allocate(std::uint64_t bytes, std::string_view site);
  void free(trace::Address address);
  /// Unmaps the large allocations that were freed: between operations, where the recorder can.
  void release();

  /// Size class of a request; requests above the largest are rounded up to pages.
  [[nodiscard]] std::uint64_t usable(std::uint64_t bytes) const;
  [[nodiscard]] std::uint64_t allocated() const { return allocated_; }  // bytes, size classes
  [[nodiscard]] static bool large(std::uint64_t bytes) { return bytes > largest_class; }

  /// Checks slabs, caches and free pages against each other; empty when all agree.
  [[nodiscard]] std::string inconsistency() const;

 private:
  static constexpr std::uint64_t largest_class = 14336;
  static constexpr std::uint32_t none = 0xffffffff;

  struct Bin {
    std::uint64_t bytes;  // of a region
    std::uint64_t slab_pages;
    std::uint32_t regions;  // per slab
    std::size_t cache_limit;
    std::vector<trace::Address> cache;  // the newest last
    std::set<std::uint32_t> with_room;  // slabs; the lowest number is the oldest
  };
  struct Slab {
    trace::Address start;
    std::uint32_t bin;
    std::vector<bool> used;  // a cached region counts as used
    std::uint32_t free;
  };

  void fill(std::uint32_t bin);
  void flush(std::uint32_t bin);
  std::uint32_t make_slab(std::uint32_t bin);
  trace::Address take_pages(std::uint64_t pages);
  void give_pages(trace::Address start, std::uint64_t pages);
  [[nodiscard]] std::uint32_t slab_of(trace::Address address) const;

  RedisMemory& memory_;
  std::string site_;
  std::vector<Bin> bins_;
  std::vector<std::uint8_t> bin_of_;  // by (bytes + 7) / 8
  std::vector<Slab> slabs_;
  std::vector<std::uint32_t> unused_slabs_;
  std::vector<std::uint32_t> slab_of_page_;
  std::set<trace::Address> extents_;                    // where they start
  std::map<trace::Address, std::uint64_t> free_pages_;  // runs within one extent: start, pages
  std::uint64_t extent_pages_ = 16;                     // of the next extent
  std::map<trace::Address, std::uint64_t> large_;       // bytes
  std::vector<trace::Address> released_;
  std::uint64_t allocated_ = 0;
};

}  // namespace tt::kernels
