// SPDX-License-Identifier: MIT

#include "migrate/second_chance.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tt::migrate {

SecondChance::SecondChance(Nanos revisit, double limit)
    : revisit_(revisit),
      limit_(limit > 0 ? static_cast<std::size_t>(std::max(1.0, std::round(limit))) : 0) {}

SecondChance::SecondChance(const Knobs& knobs)
    : SecondChance(from_millis(knobs.real("second_chance_revisit")),
                   knobs.real("second_chance_queue")) {}

bool SecondChance::mark(PageId page, std::uint32_t frequency, std::uint64_t epoch, Nanos now) {
  if (queue_.size() >= limit_ || !members_.insert(page).second) return false;
  queue_.push_back({page, frequency, epoch, now + revisit_});
  return true;
}

std::size_t SecondChance::revisit(Memory& memory, Nanos now, const Judge& demote) {
  due_.clear();
  pages_.clear();
  for (; !queue_.empty() && queue_.front().due <= now; queue_.pop_front()) {
    due_.push_back(queue_.front());
    pages_.push_back(queue_.front().page);
    members_.erase(queue_.front().page);
  }
  if (pages_.empty()) return 0;
  where_.resize(pages_.size());
  memory.residency(pages_, where_);
  memory.charge(Work::scan_step, pages_.size());
  victims_.clear();
  for (std::size_t i = 0; i < pages_.size(); ++i) {
    if (where_[i] != Residency::fast) continue;  // demoted or unmapped meanwhile
    if (demote(due_[i])) victims_.push_back(pages_[i]);
  }
  if (!victims_.empty()) memory.request(Tier::slow, victims_);
  return pages_.size();
}

bool SecondChance::grew(const Marked& marked, std::uint32_t frequency, std::uint64_t epoch) {
  const std::uint64_t halvings = epoch - marked.epoch;
  return frequency > (halvings < 32 ? marked.frequency >> halvings : 0);
}

std::uint64_t SecondChance::bytes() const {
  return queue_.size() * (sizeof(Marked) + 2 * sizeof(void*) + sizeof(PageId));
}

std::vector<KnobDecl> second_chance_knobs(std::string revisit, std::string queue) {
  return knob::list(
      knob::real("second_chance_revisit", 60000, {100, 3.6e6, knob::log}, Unit::milliseconds,
                 std::move(revisit),
                 "time after which a page that got a second chance is looked at again"),
      knob::real("second_chance_queue", 10000, {1, 1e8, knob::log}, Unit::pages, std::move(queue),
                 "most pages that wait for a second look; others of high frequency stay where "
                 "they are"));
}

}  // namespace tt::migrate
