// SPDX-License-Identifier: MIT

#include "track/lru_lists.hpp"

#include <algorithm>
#include <cmath>

namespace tt::track {

LruLists::LruLists(Memory& memory, double gib_in_mebibytes)
    : memory_(memory),
      ratio_pages_(gib_in_mebibytes / 10 * (1 << 20) / static_cast<double>(memory.page_bytes())) {}

void LruLists::map(PageRange range) {
  found_.map(range);
  referenced_.resize(index().size());
  chains_.resize(index().size());
}

void LruLists::unmap(PageRange range) {
  found_.unmap(range, [&](std::uint32_t i) { chains_.take_off(i); });
}

void LruLists::find_new(double share) {
  found_.look(memory_, share, [&](std::uint32_t i, Tier tier) { link(i, tier, List::inactive); });
}

void LruLists::found(PageId page, Tier tier) {
  const std::uint32_t i = index().find(page);
  if (i != none && !seen(i)) link(i, tier, List::inactive);
}

bool LruLists::on(List list, PageId page) const {
  const std::uint32_t i = index().find(page);
  return seen(i) && this->list(i) == list;
}

bool LruLists::referenced(PageId page) const {
  const std::uint32_t i = index().find(page);
  return seen(i) && referenced_[i];
}

std::optional<PageId> LruLists::tail(Tier tier, List list) const {
  const std::uint32_t i = chains_.tail(chain_of(tier, list));
  if (i == none) return std::nullopt;
  return index().page(i);
}

void LruLists::mark_accessed(PageId page) {
  const std::uint32_t i = index().find(page);
  if (!seen(i)) return;
  if (!referenced_[i]) {
    referenced_[i] = true;
  } else if (list(i) == List::inactive) {
    link(i, tier(i), List::active);
  }
}

void LruLists::put(PageId page, List list) {
  const std::uint32_t i = index().find(page);
  if (seen(i)) link(i, tier(i), list);
}

void LruLists::moved(PageId page, Tier to) {
  const std::uint32_t i = index().find(page);
  if (seen(i)) link(i, to, list(i));
}

std::uint64_t LruLists::age_inactive(Tier tier, std::uint64_t most, std::uint64_t wanted,
                                     std::vector<PageId>& victims) {
  const std::size_t enough = victims.size() + wanted;
  std::uint64_t looked = 0;
  // In steps: a scan ends when it has seen its pages, not when it has its victims.
  for (std::uint64_t left = std::min(most, size(tier, List::inactive));
       left > 0 && victims.size() < enough;) {
    const std::uint64_t step = std::min<std::uint64_t>(left, enough - victims.size());
    left -= step;
    looked += scan(tier, List::inactive, step, [&](PageId page, bool accessed) {
      const std::uint32_t i = index().find(page);
      if (accessed && referenced_[i]) return List::active;
      referenced_[i] = accessed;
      if (!accessed) victims.push_back(page);
      return List::inactive;
    });
  }
  return looked;
}

std::uint64_t LruLists::age_active(Tier tier, std::uint64_t most) {
  const std::uint64_t inactive = size(tier, List::inactive), active = size(tier, List::active);
  const double kept = ratio(inactive + active);
  const double missing =
      (static_cast<double>(active) - static_cast<double>(inactive) * kept) / (kept + 1);
  if (missing <= 0) return 0;
  return deactivate(tier, std::min(most, static_cast<std::uint64_t>(std::ceil(missing))));
}

std::uint64_t LruLists::deactivate(Tier tier, std::uint64_t most) {
  return scan(tier, List::active, most, [](PageId, bool) { return List::inactive; });
}

bool LruLists::is_low(std::uint64_t inactive, std::uint64_t active) const {
  return static_cast<double>(inactive) * ratio(inactive + active) < static_cast<double>(active);
}

double LruLists::ratio(std::uint64_t pages) const {
  return std::max(1.0, std::floor(std::sqrt(static_cast<double>(pages) / ratio_pages_)));
}

void LruLists::link(std::uint32_t i, Tier tier, List list) {
  if (found_.enter(i) || this->list(i) != list) referenced_[i] = false;
  chains_.to_head(i, chain_of(tier, list));
}

std::size_t LruLists::look_at(std::uint8_t chain, std::uint64_t most) {
  constexpr std::uint64_t batch = 512;
  const std::uint64_t count = std::min(most, batch);
  numbers_.clear();
  pages_.clear();
  for (std::uint32_t i = chains_.tail(chain); numbers_.size() < count; i = chains_.before(i)) {
    numbers_.push_back(i);
    pages_.push_back(index().page(i));
  }
  accessed_.resize(mask_words(count));
  memory_.accessed(pages_, accessed_, true);
  idle_.clear();
  for (std::size_t n = 0; n < pages_.size(); ++n)
    if (!in_mask(accessed_, n)) idle_.push_back(pages_[n]);
  where_.resize(idle_.size());
  memory_.residency(idle_, where_);
  idle_where_.resize(pages_.size());
  for (std::size_t n = 0, idle = 0; n < pages_.size(); ++n)
    if (!in_mask(accessed_, n)) idle_where_[n] = where_[idle++];
  return pages_.size();
}

/// Whether the page is in the tier where it is listed; else it is put right.
bool LruLists::settle(std::uint32_t i, Tier tier, Residency where) {
  if (where == static_cast<Residency>(tier)) return true;
  if (where == Residency::absent) {
    chains_.take_off(i);
    found_.lose(i);
  } else {
    link(i, static_cast<Tier>(where), list(i));
  }
  return false;
}

}  // namespace tt::track
