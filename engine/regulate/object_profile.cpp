// SPDX-License-Identifier: MIT

#include "regulate/object_profile.hpp"

#include <algorithm>
#include <numeric>
#include <string>

namespace tt::regulate {

double OverlapFactor::amplify(double aol) const {
  if (kind == Kind::artifact) return divide(aol);
  if (aol <= 50) return 2;
  if (aol <= 60) return 4;
  if (aol <= 80) return 6;
  return 8;
}

double OverlapFactor::divide(double aol) const {
  if (kind == Kind::paper) return 8;
  if (aol <= 40) return 12;
  if (aol <= 45) return 8;
  if (aol <= 60) return 4;
  if (aol <= 80) return 2;
  return 1;
}

double ObjectRules::slowdown(double stall_share, double aol) const {
  return aol > 0 ? stall_share / (a + b / aol) : 0;
}

double ObjectRules::score(double share, double slowdown, double aol) const {
  const double even = share * slowdown;
  if (aol >= overlap_aol) return even;
  if (share < least_share) return even * factor.amplify(aol);
  if (share > most_share) return even / factor.divide(aol);
  return even;
}

std::vector<ObjectProfile::Live>::iterator ObjectProfile::find(PageId page) {
  if (last_ < live_.size() && live_[last_].range.contains(page))
    return live_.begin() + static_cast<std::ptrdiff_t>(last_);
  auto after =
      std::ranges::upper_bound(live_, page, {}, [](const Live& l) { return l.range.first; });
  if (after == live_.begin() || !(--after)->range.contains(page)) return live_.end();
  last_ = static_cast<std::size_t>(after - live_.begin());
  return after;
}

std::uint32_t ObjectProfile::object_of(std::uint32_t site, Nanos now) {
  const auto known = std::ranges::find(objects_, site, &Object::site);
  if (known != objects_.end()) return static_cast<std::uint32_t>(known - objects_.begin());
  objects_.push_back({.site = site, .first = seconds(now), .last = seconds(now)});
  period_.push_back(0);
  return static_cast<std::uint32_t>(objects_.size() - 1);
}

void ObjectProfile::map(PageRange range, std::uint32_t site, Nanos now) {
  if (range.count == 0) return;
  unmap(range, now);  // a live process may report a range twice
  const std::uint32_t object = object_of(site, now);
  const auto after =
      std::ranges::upper_bound(live_, range.first, {}, [](const Live& l) { return l.range.first; });
  live_.insert(after, {range, object});
  const bool appears = objects_[object].live == 0;
  objects_[object].live += range.count;
  if (!appears) return;
  for (std::uint32_t o = 0; o < objects_.size(); ++o) {
    if (o == object || objects_[o].live == 0) continue;
    for (const auto& [from, to] : {std::pair{o, object}, std::pair{object, o}}) {
      auto& met = objects_[from].met;
      if (std::ranges::find(met, to) == met.end()) met.push_back(to);
    }
  }
}

void ObjectProfile::unmap(PageRange range, Nanos now) {
  auto at =
      std::ranges::upper_bound(live_, range.first, {}, [](const Live& l) { return l.range.first; });
  if (at != live_.begin() && std::prev(at)->range.contains(range.first)) --at;
  while (at != live_.end() && at->range.first < range.end()) {
    const Live old = *at;
    Object& object = objects_[old.object];
    object.last = seconds(now);
    // One that came and went between two looks is taken to have been touched whole.
    if (object.pages == 0) object.pages = object.live;
    at = live_.erase(at);
    const PageId from = std::max(old.range.first, range.first);
    const PageId to = std::min(old.range.end(), range.end());
    object.live -= to.value - from.value;
    if (to < old.range.end())
      at = live_.insert(at, {{to, old.range.end().value - to.value}, old.object});
    if (old.range.first < from)
      at =
          live_.insert(at, {{old.range.first, from.value - old.range.first.value}, old.object}) + 1;
    if (to == range.end()) break;
  }
}

void ObjectProfile::count(std::span<const Sample> samples) {
  for (const Sample& sample : samples)
    if (const auto at = find(sample.page); at != live_.end()) ++period_[at->object];
}

void ObjectProfile::close(const Memory& memory, Nanos now) {
  const Counters counters = memory.counters();
  const double reads = counters.a3_reads - before_.a3_reads;
  const double cycles = counters.cycles - before_.cycles;
  aol_ = reads > 0 ? (counters.a1_cycles - before_.a1_cycles) / reads : 0;
  slowdown_ = cycles > 0
                  ? rules_.slowdown((counters.stall_cycles - before_.stall_cycles) / cycles, aol_)
                  : 0;
  before_ = counters;
  const double all = std::accumulate(period_.begin(), period_.end(), 0.0);
  std::vector<std::uint64_t> resident(objects_.size());
  std::vector<Residency> where;
  for (const auto& [range, object] : live_) {
    where.resize(range.count);
    memory.residency(range.first, where);
    resident[object] +=
        range.count - static_cast<std::uint64_t>(std::ranges::count(where, Residency::absent));
  }
  for (std::size_t o = 0; o < objects_.size(); ++o) {
    Object& object = objects_[o];
    object.pages = std::max(object.pages, resident[o]);
    if (object.live > 0) object.last = seconds(now);
    if (period_[o] > 0) object.score += rules_.score(period_[o] / all, slowdown_, aol_);
    object.accesses += period_[o];
    period_[o] = 0;
  }
}

Placement ObjectProfile::placement(const Memory& memory) const {
  const auto per_page = [](const Object& object) {
    return object.pages > 0 ? object.score / static_cast<double>(object.pages) : 0;
  };
  std::vector<std::uint32_t> order(objects_.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, [&](std::uint32_t x, std::uint32_t y) {
    return per_page(objects_[x]) > per_page(objects_[y]);
  });
  Placement placement;
  std::vector<std::vector<std::uint32_t>> slots;  // their objects
  for (const std::uint32_t o : order) {
    const Object& object = objects_[o];
    const auto strangers = [&](const std::vector<std::uint32_t>& slot) {
      return std::ranges::none_of(slot, [&](std::uint32_t other) {
        return std::ranges::find(object.met, other) != object.met.end();
      });
    };
    auto slot = std::ranges::find_if(slots, strangers);
    if (slot == slots.end()) slot = slots.insert(slot, std::vector<std::uint32_t>{});
    slot->push_back(o);
    placement.objects.push_back({std::string(memory.site(object.site)), per_page(object),
                                 static_cast<double>(object.pages),
                                 static_cast<std::uint32_t>(slot - slots.begin())});
  }
  return placement;
}

}  // namespace tt::regulate
