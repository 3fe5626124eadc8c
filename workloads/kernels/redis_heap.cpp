// SPDX-License-Identifier: MIT

#include "kernels/redis_heap.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace tt::kernels {
namespace {
constexpr std::uint64_t page = trace::base_page_bytes;
}

trace::Address RedisMemory::map(std::string_view site, std::uint64_t bytes) {
  const std::uint64_t pages = (bytes + page - 1) / page;
  const trace::Address start = recorder_.map(site, pages * page);
  auto& contents = ranges_[start];
  contents.resize(pages * page);
  pages_.resize(start / page + pages);
  for (std::uint64_t i = 0; i < pages; ++i) pages_[start / page + i] = contents.data() + i * page;
  return start;
}

void RedisMemory::unmap(trace::Address start) {
  recorder_.unmap(start);
  const auto range = ranges_.find(start);
  std::fill_n(pages_.begin() + static_cast<std::ptrdiff_t>(start / page),
              range->second.size() / page, nullptr);
  ranges_.erase(range);
}

RedisHeap::RedisHeap(RedisMemory& memory, std::string site)
    : memory_(memory), site_(std::move(site)) {
  // 8, 16, 24 ... 64 and then four classes per doubling.
  std::uint64_t step = 8;
  for (std::uint64_t bytes = 8; bytes <= largest_class; bytes += step) {
    const std::uint64_t slab = std::lcm(bytes, page);
    const auto regions = static_cast<std::uint32_t>(slab / bytes);
    bins_.push_back({bytes,
                     slab / page,
                     regions,
                     std::clamp<std::size_t>(2 * std::size_t{regions}, 20, 200),
                     {},
                     {}});
    while (bin_of_.size() * 8 <= bytes)
      bin_of_.push_back(static_cast<std::uint8_t>(bins_.size() - 1));
    if (bytes >= 64 && (bytes & (bytes - 1)) == 0) step = bytes / 4;
  }
}

std::uint64_t RedisHeap::usable(std::uint64_t bytes) const {
  return large(bytes) ? (bytes + page - 1) / page * page
                      : bins_[bin_of_[(std::max<std::uint64_t>(bytes, 1) + 7) / 8]].bytes;
}

trace::Address RedisHeap::allocate(std::uint64_t bytes, std::string_view site) {
  allocated_ += usable(bytes);
  if (large(bytes)) {
    const trace::Address address = memory_.map(site, bytes);
    large_.emplace(address, usable(bytes));
    return address;
  }
  const std::uint32_t number = bin_of_[(std::max<std::uint64_t>(bytes, 1) + 7) / 8];
  Bin& bin = bins_[number];
  if (bin.cache.empty()) fill(number);
  const trace::Address address = bin.cache.back();
  bin.cache.pop_back();
  return address;
}

void RedisHeap::free(trace::Address address) {
  if (const auto found = large_.find(address); found != large_.end()) {
    allocated_ -= found->second;
    large_.erase(found);
    released_.push_back(address);
    return;
  }
  const std::uint32_t number = slabs_[slab_of(address)].bin;
  Bin& bin = bins_[number];
  allocated_ -= bin.bytes;
  if (bin.cache.size() == bin.cache_limit) flush(number);
  bin.cache.push_back(address);
}

void RedisHeap::release() {
  for (const trace::Address address : released_) memory_.unmap(address);
  released_.clear();
}

std::uint32_t RedisHeap::slab_of(trace::Address address) const {
  const std::uint64_t number = address / page;
  if (number >= slab_of_page_.size() || slab_of_page_[number] == none)
    throw std::logic_error("redis heap: an address that was not allocated");
  return slab_of_page_[number];
}

// Half of the cache's limit, lowest regions of the oldest slabs; the lowest is given out first.
void RedisHeap::fill(std::uint32_t number) {
  Bin& bin = bins_[number];
  while (bin.cache.size() < bin.cache_limit / 2) {
    const std::uint32_t slab_number =
        bin.with_room.empty() ? make_slab(number) : *bin.with_room.begin();
    Slab& slab = slabs_[slab_number];
    for (std::uint32_t i = 0; i < bin.regions && bin.cache.size() < bin.cache_limit / 2; ++i) {
      if (slab.used[i]) continue;
      slab.used[i] = true;
      --slab.free;
      bin.cache.push_back(slab.start + i * bin.bytes);
    }
    if (slab.free == 0) bin.with_room.erase(slab_number);
  }
  std::ranges::reverse(bin.cache);
}

void RedisHeap::flush(std::uint32_t number) {
  Bin& bin = bins_[number];
  const std::size_t flushed = bin.cache.size() / 2;
  for (std::size_t i = 0; i < flushed; ++i) {
    const std::uint32_t slab_number = slab_of(bin.cache[i]);
    Slab& slab = slabs_[slab_number];
    slab.used[(bin.cache[i] - slab.start) / bin.bytes] = false;
    if (slab.free++ == 0) bin.with_room.insert(slab_number);
    if (slab.free < bin.regions) continue;
    bin.with_room.erase(slab_number);
    std::fill_n(slab_of_page_.begin() + static_cast<std::ptrdiff_t>(slab.start / page),
                bin.slab_pages, none);
    give_pages(slab.start, bin.slab_pages);
    unused_slabs_.push_back(slab_number);
  }
  bin.cache.erase(bin.cache.begin(), bin.cache.begin() + static_cast<std::ptrdiff_t>(flushed));
}

std::uint32_t RedisHeap::make_slab(std::uint32_t number) {
  Bin& bin = bins_[number];
  auto slab_number = static_cast<std::uint32_t>(slabs_.size());
  if (unused_slabs_.empty()) {
    slabs_.emplace_back();
  } else {
    slab_number = unused_slabs_.back();
    unused_slabs_.pop_back();
  }
  const trace::Address start = take_pages(bin.slab_pages);
  slabs_[slab_number] = {start, number, std::vector<bool>(bin.regions), bin.regions};
  const std::uint64_t first = start / page;
  if (slab_of_page_.size() < first + bin.slab_pages)
    slab_of_page_.resize(first + bin.slab_pages, none);
  std::fill_n(slab_of_page_.begin() + static_cast<std::ptrdiff_t>(first), bin.slab_pages,
              slab_number);
  bin.with_room.insert(slab_number);
  return slab_number;
}

trace::Address RedisHeap::take_pages(std::uint64_t pages) {
  auto run = std::ranges::find_if(free_pages_, [&](const auto& r) { return r.second >= pages; });
  if (run == free_pages_.end()) {
    const std::uint64_t extent = std::max(extent_pages_, pages);
    extent_pages_ += extent_pages_ / 4;
    run = free_pages_.emplace(memory_.map(site_, extent * page), extent).first;
    extents_.insert(run->first);
  }
  const auto [start, length] = *run;
  free_pages_.erase(run);
  if (length > pages) free_pages_.emplace(start + pages * page, length - pages);
  return start;
}

void RedisHeap::give_pages(trace::Address start, std::uint64_t pages) {
  // Neighbours are joined, but never across extents: these may be mapped one after the other.
  const auto after = free_pages_.find(start + pages * page);
  if (after != free_pages_.end() && !extents_.contains(after->first)) {
    pages += after->second;
    free_pages_.erase(after);
  }
  auto before = free_pages_.lower_bound(start);
  if (!extents_.contains(start) && before != free_pages_.begin() &&
      (--before)->first + before->second * page == start) {
    before->second += pages;
    return;
  }
  free_pages_.emplace(start, pages);
}

std::string RedisHeap::inconsistency() const {
  std::uint64_t used_bytes = 0;
  for (std::uint32_t number = 0; number < bins_.size(); ++number) {
    const Bin& bin = bins_[number];
    std::set<trace::Address> cached(bin.cache.begin(), bin.cache.end());
    if (cached.size() != bin.cache.size()) return "a region is cached twice";
    if (bin.cache.size() > bin.cache_limit) return "a cache is above its limit";
    for (const trace::Address address : bin.cache) {
      const Slab& slab = slabs_[slab_of(address)];
      if (slab.bin != number || (address - slab.start) % bin.bytes != 0 ||
          !slab.used[(address - slab.start) / bin.bytes])
        return "a cached region is none of its class";
    }
    used_bytes -= bin.cache.size() * bin.bytes;
  }
  std::set<std::uint32_t> unused(unused_slabs_.begin(), unused_slabs_.end());
  for (std::uint32_t number = 0; number < slabs_.size(); ++number) {
    if (unused.contains(number)) continue;
    const Slab& slab = slabs_[number];
    const Bin& bin = bins_[slab.bin];
    const auto used = static_cast<std::uint32_t>(std::ranges::count(slab.used, true));
    if (used + slab.free != bin.regions) return "a slab's count of free regions is wrong";
    if (bin.with_room.contains(number) != (slab.free > 0)) return "a slab is in no list or in two";
    used_bytes += used * bin.bytes;
    for (std::uint64_t i = 0; i < bin.slab_pages; ++i)
      if (slab_of_page_[slab.start / page + i] != number) return "a slab's page is not its own";
  }
  for (const auto& [start, pages] : free_pages_)
    for (std::uint64_t i = start / page; i < start / page + pages; ++i)
      if (i < slab_of_page_.size() && slab_of_page_[i] != none) return "a slab's page is free";
  for (const auto& [address, bytes] : large_) used_bytes += bytes;
  return used_bytes == allocated_ ? "" : "bytes in use do not add up";
}

}  // namespace tt::kernels
