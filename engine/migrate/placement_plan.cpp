// SPDX-License-Identifier: MIT

#include "migrate/placement_plan.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>

namespace tt::migrate {

PlacementPlan::PlacementPlan(const Memory& memory, const Placement& placement)
    : memory_(memory), placement_(placement) {
  for (const Placement::Object& object : placement.objects)
    objects_.push_back({object.site, object.score, object.pages, 0});
  objects_.push_back({"", 0, 0, 0});
  divide();
}

void PlacementPlan::divide() {
  auto left = static_cast<double>(memory_.capacity(Tier::fast));
  std::unordered_map<std::uint32_t, double> slots;  // their size so far
  for (std::size_t o = 0; o < placement_.objects.size(); ++o) {
    const Placement::Object& object = placement_.objects[o];
    double& slot = slots[object.slot];
    const double more = std::min(std::max(0.0, object.pages - slot), left);
    slot += more;
    left -= more;
    const bool whole = object.pages <= slot;
    objects_[o].fast = whole ? std::numeric_limits<double>::infinity() : slot;
  }
  objects_.back().fast = left;
}

void PlacementPlan::map(PageRange range, std::uint32_t site) {
  unmap(range);
  const std::size_t object = object_of(site);
  live_.insert(live_.begin() + after(range.first), {range, object, objects_[object].live});
  objects_[object].live += range.count;
}

void PlacementPlan::unmap(PageRange range) {
  auto at = live_.begin() + after(range.first);
  if (at != live_.begin() && std::prev(at)->range.contains(range.first)) --at;
  while (at != live_.end() && at->range.first < range.end()) {
    const Live old = *at;
    at = live_.erase(at);
    const PageId from = std::max(old.range.first, range.first);
    const PageId to = std::min(old.range.end(), range.end());
    objects_[old.object].live -= to.value - from.value;
    if (to < old.range.end())
      at = live_.insert(at, {{to, old.range.end().value - to.value},
                             old.object,
                             old.before + (to.value - old.range.first.value)});
    if (old.range.first < from)
      at =
          live_.insert(
              at, {{old.range.first, from.value - old.range.first.value}, old.object, old.before}) +
          1;
  }
}

bool PlacementPlan::fast(PageId page) const {
  auto at = live_.begin() + after(page);
  if (at == live_.begin() || !(--at)->range.contains(page)) return false;
  return static_cast<double>(at->before + page.value - at->range.first.value) <
         objects_[at->object].fast;
}

std::ptrdiff_t PlacementPlan::after(PageId page) const {
  const auto first = [](const Live& live) { return live.range.first; };
  return std::ranges::upper_bound(live_, page, {}, first) - live_.begin();
}

std::size_t PlacementPlan::object_of(std::uint32_t site) const {
  const std::string_view name = memory_.site(site);
  std::size_t object = 0;
  while (object + 1 < objects_.size() && objects_[object].site != name) ++object;
  return object;
}

}  // namespace tt::migrate
