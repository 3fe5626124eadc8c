#include "migrate/hot_lists.hpp"

#include <algorithm>

namespace tt::migrate {

bool HotLists::queued(PageId page) const {
  const auto it = hot_.find(page);
  return it != hot_.end() && it->second.queued;
}

void HotLists::put(PageId page, Tier tier) {
  Hot& hot = hot_[page];
  hot.list = tier;
  if (tier == Tier::fast || hot.queued) return;
  hot.queued = true;
  slow_.push_back(page);
}

std::size_t HotLists::unmap(PageRange range) {
  return std::erase_if(hot_, [&](const auto& item) { return range.contains(item.first); });
}

void HotLists::for_each_slow(const Take& take) {
  stale_ = 0;
  for (const PageId page : slow_) {
    const auto it = hot_.find(page);
    if (it == hot_.end() || it->second.list != Tier::slow) {
      ++stale_;  // cold, moved or gone meanwhile
    } else if (!take(page)) {
      return;
    }
  }
}

void HotLists::promoted(std::span<const PageId> pages) {
  for (const PageId page : pages) hot_.find(page)->second.list = Tier::fast;
  // What was taken or has become stale leaves the front of the queue.
  for (std::size_t n = pages.size() + stale_; n > 0; --n) {
    const auto it = hot_.find(slow_.front());
    if (it != hot_.end()) {
      if (it->second.list == Tier::slow) break;
      it->second.queued = false;
    }
    slow_.pop_front();
  }
}

void HotLists::begin_sweep() {
  sweep_again_ = !sweep_.empty();
  if (!sweep_again_) start_sweep();
}

void HotLists::start_sweep() {
  sweep_.clear();
  for (const auto& [page, hot] : hot_) sweep_.push_back(page);
  std::ranges::sort(sweep_, std::greater{});
}

std::uint64_t HotLists::sweep(std::uint64_t count, const std::function<void(PageId)>& look) {
  std::uint64_t looked_at = 0;
  for (; looked_at < count && !sweep_.empty(); ++looked_at) {
    const PageId page = sweep_.back();
    sweep_.pop_back();
    look(page);
  }
  if (sweep_.empty() && sweep_again_) {
    sweep_again_ = false;
    start_sweep();
  }
  return looked_at;
}

std::uint64_t HotLists::bytes() const {
  return hot_.size() * (sizeof(PageId) + sizeof(Hot) + 2 * sizeof(void*)) +
         hot_.bucket_count() * sizeof(void*) + (slow_.size() + sweep_.size()) * sizeof(PageId);
}

}  // namespace tt::migrate
