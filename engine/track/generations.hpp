// SPDX-License-Identifier: MIT

// Generations: the fast tier's pages by a kernel's multi-generational LRU, for kswapd to demote
// from (Linux 6.12, mm/vmscan.c, what CONFIG_LRU_GEN brings; on by default in Debian, Ubuntu from
// 23.10 on and Fedora, off in a plain kernel).
//
// Two to four generations, oldest to youngest. A page that is touched for the first time, or is
// promoted by a fault, is of the youngest.
//
//     aging     reads and clears the accessed bits of whole page tables: what has been accessed
//               goes to the youngest generation. Then a new one, empty, becomes the youngest
//               (try_to_inc_max_seq). A table is left out of which less than an eighth was
//               accessed when it was last looked at (suitable_to_scan and the Bloom filters; here
//               a list of tables).
//     eviction  takes a batch of the oldest generation. What has been accessed goes to the
//               youngest, and so do accessed neighbours within a batch of addresses
//               (lru_gen_look_around). The rest are victims. Where the oldest is empty the next one
//               is the oldest.
//     balance   there are new generations while the youngest holds more than half of all, or the
//               oldest of three less than a quarter (should_run_aging). Nothing is evicted of the
//               two youngest.
//
// kswapd goes round with a priority p of 12 to 1: a round looks at one page of 2^p, and ages only
// below 12 (get_nr_to_scan). It begins with a lower priority where more is missing
// (set_initial_priority), and lowers it after a round that evicted nothing, or looked at fewer
// pages than are to be reclaimed (balance_pgdat).
//
//     Generations pages(memory, 64);
//     pages.map(range); pages.unmap(range);  // in on_map(), on_unmap()
//     pages.find_new();                      // now and then: pages touched since
//     pages.moved(page, to);                 // in on_migrated(), for Outcome::done
//     pages.stayed(page);                    // for any other outcome
//     pages.evict(aim, wanted, budget, victims);
//
// A page table entry that is read in order costs Work::pte_scan, a page of a batch Work::lru_step.
// Left out: files, and the slow tier, from which nothing is reclaimed.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/seam.hpp"
#include "track/chains.hpp"
#include "track/found_pages.hpp"

namespace tt::track {

class Generations {
 public:
  static constexpr std::size_t most = 4, least = 2;  // generations (MAX_NR_GENS, MIN_NR_GENS)

  /// A batch of so many pages, and page tables of eight batches: 64 and 512 in a kernel, fractional
  /// in a miniature, and then at least one.
  Generations(Memory& memory, double batch);

  void map(PageRange range);
  void unmap(PageRange range);
  /// As FoundPages::look().
  void find_new(double share = 1);
  /// The page is in that tier now.
  void moved(PageId page, Tier to);
  /// A victim that was not demoted: it goes to the youngest generation.
  void stayed(PageId page);

  /// Rounds of kswapd, until `wanted` victims and what else is in their batch are found, at so many
  /// pages was looked, or nothing is left to try. `aim`: what a round is to reclaim, in pages.
  /// Eight entries that are read in order count as one page. Returns how many pages it looked at.
  std::uint64_t evict(double aim, std::uint64_t wanted, std::uint64_t budget,
                      std::vector<PageId>& victims);

  /// Pages of the two youngest generations, which the kernel counts as active, and of the others.
  [[nodiscard]] std::uint64_t active() const { return size(newest_) + size(newest_ - 1); }
  [[nodiscard]] std::uint64_t inactive() const;
  /// Of the page: 0 is the youngest generation. `most`: of none, as in the slow tier.
  [[nodiscard]] std::size_t age(PageId page) const;
  [[nodiscard]] std::size_t generations() const {
    return static_cast<std::size_t>(newest_ - oldest_ + 1);
  }
  /// Times that a new generation began.
  [[nodiscard]] std::uint64_t agings() const { return agings_; }

 private:
  // Chains: generations by their number, pages on their way out, and pages of the slow tier.
  static constexpr std::uint8_t leaving = most, slow = most + 1;
  using Tables = std::vector<std::uint64_t>;  // by their number; perhaps several times

  static std::uint8_t chain_of(std::uint64_t generation) {
    return static_cast<std::uint8_t>(generation % most);
  }
  [[nodiscard]] std::uint64_t size(std::uint64_t generation) const {
    return chains_.size(chain_of(generation));
  }
  [[nodiscard]] std::uint64_t pages() const { return active() + inactive(); }
  [[nodiscard]] bool aged(std::uint32_t i) const {  // of a generation
    return found_.has(i) && chains_.chain(i) < most;
  }
  void link(std::uint32_t i, std::uint8_t chain) {
    found_.enter(i);
    chains_.to_head(i, chain);
  }
  [[nodiscard]] bool wants_aging() const;
  /// Returns the number of entries read.
  std::uint64_t run_aging();
  void walk(std::uint64_t table);
  /// Those that have a mapped page.
  void all_tables(Tables& out) const;
  /// Returns the number of pages looked at; 0: nothing may be evicted.
  std::uint64_t evict_batch(std::vector<PageId>& victims);
  /// Around page `n` of the batch.
  void look_around(std::size_t n);
  /// Reads and clears the bits of entry_numbers_; what was accessed goes to the youngest
  /// generation. Returns how many were.
  std::uint64_t rejuvenate();
  [[nodiscard]] static bool dense(std::uint64_t young, std::uint64_t all) {
    return 8 * young >= all;  // an entry of a cache line of them
  }

  Memory& memory_;
  const double batch_;
  const std::uint64_t window_, table_;  // pages
  FoundPages found_;
  Chains chains_{most + 2};
  std::uint64_t oldest_ = 0, newest_ = least + 1;  // as a kernel begins
  std::uint64_t agings_ = 0;
  bool walked_ = false;  // else all tables are to be walked
  Tables tables_, next_tables_;
  std::uint64_t entries_read_ = 0;
  // Scratch: the batch, whether each page was accessed, and where it is if not; entries of a table.
  std::vector<std::uint32_t> numbers_, entry_numbers_;
  std::vector<PageId> batch_pages_, entries_;
  std::vector<std::uint64_t> accessed_, entries_accessed_;
  std::vector<Residency> where_;
  std::vector<bool> covered_;
};

}  // namespace tt::track
