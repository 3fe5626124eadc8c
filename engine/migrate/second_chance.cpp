#include "migrate/second_chance.hpp"

#include <algorithm>
#include <cmath>

namespace tt::migrate {

SecondChance::SecondChance(Nanos revisit, double limit)
    : revisit_(revisit),
      limit_(limit > 0 ? static_cast<std::size_t>(std::max(1.0, std::round(limit))) : 0) {}

bool SecondChance::mark(PageId page, std::uint32_t frequency, std::uint64_t epoch, Nanos now) {
  if (queue_.size() >= limit_ || !members_.insert(page).second) return false;
  queue_.push_back({page, frequency, epoch, now + revisit_});
  return true;
}

std::optional<SecondChance::Marked> SecondChance::due(Nanos now) {
  if (queue_.empty() || queue_.front().due > now) return std::nullopt;
  const Marked marked = queue_.front();
  queue_.pop_front();
  members_.erase(marked.page);
  return marked;
}

bool SecondChance::grew(const Marked& marked, std::uint32_t frequency, std::uint64_t epoch) {
  const std::uint64_t halvings = epoch - marked.epoch;
  return frequency > (halvings < 32 ? marked.frequency >> halvings : 0);
}

std::uint64_t SecondChance::bytes() const {
  return queue_.size() * (sizeof(Marked) + 2 * sizeof(void*) + sizeof(PageId));
}

}  // namespace tt::migrate
