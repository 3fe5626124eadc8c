// SPDX-License-Identifier: MIT

#include "track/generations.hpp"

#include <algorithm>
#include <cmath>

namespace tt::track {
namespace {

constexpr int first_priority = 12, least_first_priority = 6;  // DEF_PRIORITY, and its half
constexpr double kernel_batch = 64;                           // MIN_LRU_BATCH
constexpr std::uint64_t entries_a_look = 8;

/// 2^priority.
double one_of(int priority) { return static_cast<double>(std::uint64_t{1} << priority); }

std::uint64_t whole(double pages) {
  return static_cast<std::uint64_t>(std::max(1.0, std::round(pages)));
}

}  // namespace

Generations::Generations(Memory& memory, double batch)
    : memory_(memory), batch_(batch), window_(whole(batch)), table_(whole(8 * batch)) {}

void Generations::map(PageRange range) {
  found_.map(range);
  chains_.resize(found_.index().size());
}

void Generations::unmap(PageRange range) {
  found_.unmap(range, [&](std::uint32_t i) { chains_.take_off(i); });
}

void Generations::find_new(double share) {
  found_.look(memory_, share, [&](std::uint32_t i, Tier tier) {
    link(i, tier == Tier::fast ? chain_of(newest_) : slow);
  });
}

void Generations::moved(PageId page, Tier to) {
  const std::uint32_t i = found_.index().find(page);
  if (i != FoundPages::none) link(i, to == Tier::fast ? chain_of(newest_) : slow);
}

void Generations::stayed(PageId page) {
  const std::uint32_t i = found_.index().find(page);
  if (found_.has(i) && chains_.chain(i) == leaving) link(i, chain_of(newest_));
}

std::uint64_t Generations::inactive() const {
  std::uint64_t pages = 0;
  for (std::uint64_t each = oldest_; each + least <= newest_; ++each) pages += size(each);
  return pages;
}

std::size_t Generations::age(PageId page) const {
  const std::uint32_t i = found_.index().find(page);
  if (!aged(i)) return most;
  return static_cast<std::size_t>((newest_ + most - chains_.chain(i)) % most);
}

std::uint64_t Generations::evict(double aim, std::uint64_t wanted, std::uint64_t budget,
                                 std::vector<PageId>& victims) {
  const std::size_t enough = victims.size() + wanted;
  int priority = first_priority;
  if (aim >= batch_) {  // the part of what is inactive that is as much as is to be reclaimed
    priority = least_first_priority;
    while (priority < first_priority &&
           aim * one_of(priority + 1) <= static_cast<double>(inactive() + 1))
      ++priority;
  }
  std::uint64_t looked = 0;
  while (priority >= 1 && victims.size() < enough && looked < budget) {
    const std::size_t before = victims.size();
    std::uint64_t scanned = 0;
    while (true) {
      const bool stale = wants_aging();
      if (stale && priority < first_priority) {
        looked += run_aging() / entries_a_look;
        break;
      }
      const double part = static_cast<double>(pages()) / one_of(priority);
      if (generations() == least || part * kernel_batch < batch_) break;  // less than a page
      const std::uint64_t batch = evict_batch(victims);
      looked += batch + entries_read_ / entries_a_look;
      scanned += batch;
      if (batch == 0 || static_cast<double>(scanned) >= part || victims.size() >= enough ||
          looked >= budget)
        break;
    }
    if (victims.size() == before || static_cast<double>(scanned) < aim) --priority;
  }
  return looked;
}

bool Generations::wants_aging() const {
  if (generations() == least) return true;
  if (generations() == most) return false;
  const std::uint64_t all = pages();
  return size(newest_) * least > all || size(newest_ - least) * (least + 2) < all;
}

std::uint64_t Generations::run_aging() {
  TT_ASSERT(generations() < most);
  entries_read_ = 0;
  if (!walked_) all_tables(tables_);
  walked_ = true;
  std::ranges::sort(tables_);
  const auto twice = std::ranges::unique(tables_);
  tables_.erase(twice.begin(), twice.end());
  for (const std::uint64_t table : tables_) walk(table);
  tables_.swap(next_tables_);
  next_tables_.clear();
  ++newest_;
  ++agings_;
  memory_.charge(Work::pte_scan, entries_read_);
  return entries_read_;
}

void Generations::all_tables(Tables& out) const {
  const PageIndex& index = found_.index();
  for (std::uint32_t i = 0; i < index.size(); ++i) {
    const PageId page = index.page(i);
    if (index.contains(page) && (out.empty() || out.back() != page.value / table_))
      out.push_back(page.value / table_);
  }
}

void Generations::walk(std::uint64_t table) {
  std::uint64_t all = 0;
  entry_numbers_.clear();
  for (std::uint64_t page = table * table_; page < (table + 1) * table_; ++page) {
    const std::uint32_t i = found_.index().find({page});
    if (i == FoundPages::none) continue;
    ++all;
    if (aged(i)) entry_numbers_.push_back(i);
  }
  entries_read_ += all;
  if (all > 0 && dense(rejuvenate(), all)) next_tables_.push_back(table);
}

std::uint64_t Generations::evict_batch(std::vector<PageId>& victims) {
  entries_read_ = 0;
  numbers_.clear();
  batch_pages_.clear();
  for (std::uint32_t i = chains_.tail(chain_of(oldest_));
       i != Chains::none && numbers_.size() < window_; i = chains_.before(i)) {
    numbers_.push_back(i);
    batch_pages_.push_back(found_.index().page(i));
  }
  const std::size_t count = numbers_.size();
  accessed_.resize(mask_words(count));
  memory_.accessed(batch_pages_, accessed_, true);
  where_.resize(count);
  memory_.residency(batch_pages_, where_);
  covered_.assign(count, false);
  std::uint64_t looked = 0;
  for (std::size_t n = 0; n < count; ++n) {
    const std::uint32_t i = numbers_[n];
    if (where_[n] == Residency::absent) {
      chains_.take_off(i);
      found_.lose(i);
      continue;
    }
    if (where_[n] == Residency::slow) {  // moved unseen
      link(i, slow);
      continue;
    }
    ++looked;
    if (!in_mask(accessed_, n)) {
      victims.push_back(batch_pages_[n]);
      link(i, leaving);
      continue;
    }
    link(i, chain_of(newest_));
    if (!covered_[n]) look_around(n);
  }
  memory_.charge(Work::lru_step, looked);
  memory_.charge(Work::pte_scan, entries_read_);
  // "Find the oldest populated generation", and evict nothing of the last two.
  std::uint64_t emptied = 0;
  while (oldest_ + least <= newest_ && size(oldest_) == 0) {
    ++oldest_;
    ++emptied;
  }
  return generations() == least ? 0 : count + std::min<std::uint64_t>(emptied, 1);
}

void Generations::look_around(std::size_t n) {
  const PageIndex& index = found_.index();
  const std::uint64_t page = batch_pages_[n].value;
  const std::uint64_t table = page / table_ * table_;
  const std::uint64_t half = window_ / 2;
  // Within the table, half of the window on each side where there is room.
  const std::uint64_t first =
      std::min(page - std::min(half, page - table), table + table_ - std::min(window_, table_));
  std::uint64_t all = 0;
  entry_numbers_.clear();
  for (std::uint64_t each = first; each < first + window_; ++each) {
    const std::uint32_t i = index.find({each});
    if (i == FoundPages::none) continue;
    ++all;
    if (each != page && aged(i)) entry_numbers_.push_back(i);
  }
  entries_read_ += all;
  // Bits of the batch are read already.
  std::uint64_t young = 1;
  for (std::size_t other = 0; other < batch_pages_.size(); ++other) {
    const std::uint64_t each = batch_pages_[other].value;
    if (other == n || each < first || each >= first + window_) continue;
    if (!in_mask(accessed_, other) || covered_[other]) continue;
    covered_[other] = true;
    young += other > n;  // one before it has been looked around itself
  }
  if (dense(young + rejuvenate(), all)) tables_.push_back(page / table_);
}

std::uint64_t Generations::rejuvenate() {
  entries_.clear();
  for (const std::uint32_t i : entry_numbers_) entries_.push_back(found_.index().page(i));
  if (entries_.empty()) return 0;
  entries_accessed_.resize(mask_words(entries_.size()));
  memory_.accessed(entries_, entries_accessed_, true);
  std::uint64_t young = 0;
  for (std::size_t n = 0; n < entries_.size(); ++n) {
    if (!in_mask(entries_accessed_, n)) continue;
    ++young;
    link(entry_numbers_[n], chain_of(newest_));
  }
  return young;
}

}  // namespace tt::track
