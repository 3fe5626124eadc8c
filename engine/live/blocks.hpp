// SPDX-License-Identifier: MIT

// Blocks: the pages that are known of the processes, by number, and where each of them is.
//
// Numbers are handed out by blocks of 2 MiB as they fill, whatever process and address they are of,
// so that a policy's tables are dense. A number is given again when its block is gone.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/types.hpp"
#include "live/kernel_calls.hpp"
#include "live/nodes.hpp"

namespace tt::live {

/// What a look at a process has found.
struct BlockChanges {
  std::vector<PageRange> mapped, unmapped;  // whole blocks
  std::vector<PageId> unplaced;  // populated pages whose node is not known, in order of addresses
};

class Blocks {
 public:
  /// The process's populated pages now; none when it has ended. What is new, gone or not known
  /// joins `out`. A block whose page size has changed is not known any more: the kernel brought its
  /// pages together, or somebody moved a part of it.
  void update(int pid, std::span<const Populated> runs, BlockChanges& out);

  /// Whether this address is of a known block, and its page.
  [[nodiscard]] bool find(int pid, std::uint64_t address, PageId& out) const {
    const std::uint64_t begin = address - address % block_bytes;
    const std::size_t mask = places_.size() - 1;
    for (std::size_t at = hash(pid, begin) & mask;; at = (at + 1) & mask) {
      const Place& place = places_[at];
      if (place.pid == 0) return false;
      if (place.address != begin || place.pid != pid) continue;
      out = {place.number * block_pages + address % block_bytes / base_page_bytes};
      return true;
    }
  }
  /// Of an address that find() will be asked for soon.
  void prefetch(int pid, std::uint64_t address) const {
    __builtin_prefetch(&places_[hash(pid, address - address % block_bytes) & (places_.size() - 1)]);
  }
  /// Whether the page is of a known block.
  [[nodiscard]] bool known(PageId page) const {
    return page.value / block_pages < blocks_.size() && block(page).pid != 0;
  }
  /// Of a known page.
  [[nodiscard]] int pid(PageId page) const { return block(page).pid; }
  [[nodiscard]] std::uint64_t address(PageId page) const {
    return block(page).address + page.value % block_pages * base_page_bytes;
  }

  /// Nowhere if it is not known.
  [[nodiscard]] Level at(PageId page) const {
    return known(page) ? block(page).at[page.value % block_pages] : nowhere;
  }
  /// Of a known page.
  [[nodiscard]] Level at_known(PageId page) const {
    return block(page).at[page.value % block_pages];
  }
  /// As Memory::unit.
  [[nodiscard]] PageRange unit(PageId page) const {
    if (!known(page) || !block(page).huge) return {page, 1};
    return {{page.value - page.value % block_pages}, block_pages};
  }
  /// Whether the page, of a known block, may be of a huge page that is mapped in parts, as a fork
  /// leaves them: it moves whole with any of them. Such a block was huge before, or a process that
  /// has it at the same address has or had it so. Which of its pages have become small ones since
  /// is not told.
  [[nodiscard]] bool in_parts(PageId page) const { return block(page).in_parts; }
  /// The unit of a known page is there from now on.
  void place(PageId page, Level at);
  /// Known pages in the tier of this level.
  [[nodiscard]] std::uint64_t used(Level level) const { return used_[level]; }
  /// Known blocks that are mapped as huge pages.
  [[nodiscard]] std::uint64_t huge() const { return huge_; }
  /// Numbers that have been handed out, whether they are in use or not.
  [[nodiscard]] std::uint64_t numbers() const { return blocks_.size() * block_pages; }

  /// The sums are those of the pages. For assertions.
  [[nodiscard]] bool consistent() const;

 private:
  struct Block {
    int pid = 0;  // 0: the number is not in use
    bool huge = false, in_parts = false;
    std::uint64_t address = 0;
    std::uint64_t look = 0;  // the last one that found it
    std::array<Level, block_pages> at;
  };
  struct Found;
  struct Place {
    std::uint64_t address = 0;
    int pid = 0;  // 0: nothing is here
    std::uint32_t number = 0;
  };

  [[nodiscard]] static std::uint64_t hash(int pid, std::uint64_t address) {
    return mix64(address / block_bytes ^ static_cast<std::uint64_t>(pid) << 40);
  }
  void index_blocks();
  [[nodiscard]] const Block& block(PageId page) const { return blocks_[page.value / block_pages]; }
  Block& take(int pid, std::uint64_t address, std::uint64_t& number);
  void found(int pid, const Found& block, BlockChanges& out);
  [[nodiscard]] bool is_forked(int pid, std::uint64_t address) const;
  void set(Level& page, Level to) {
    if (page != nowhere) --used_[page];
    if (to != nowhere) ++used_[to];
    page = to;
  }

  std::vector<Block> blocks_;
  std::vector<std::uint64_t> free_;  // numbers
  std::map<int, std::map<std::uint64_t, std::uint64_t>> by_address_;
  // The same for find(), which every sample calls: each in the first free place from the hash of
  // its process and address on. A power of two, at most half full.
  std::vector<Place> places_{Place{}};
  std::array<std::uint64_t, most_levels> used_{};
  std::uint64_t huge_ = 0;
  std::uint64_t look_ = 0;
};

}  // namespace tt::live
