// SPDX-License-Identifier: MIT

#include "track/region_monitor.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "core/assert.hpp"

namespace tt::track {

RegionMonitor::RegionMonitor(Memory& memory, const Options& options, std::uint64_t seed)
    : memory_(memory),
      options_(options),
      rng_(seed),
      sampling_(std::max(options.sampling, Nanos{1})),
      samples_(
          static_cast<std::uint32_t>(std::max<std::int64_t>(1, options.aggregation / sampling_))) {
  if (options.aggregation < options.sampling)
    throw std::invalid_argument("the aggregation interval must not be below the sampling interval");
  if (options.max_regions < options.min_regions)
    throw std::invalid_argument(
        "knob max_regions: found " + to_string(KnobValue{options.max_regions}) +
        ", must not be below min_regions (" + to_string(KnobValue{options.min_regions}) + ")");
}

Nanos RegionMonitor::tick_period() const { return std::max(sampling_, memory_.quantum()); }

void RegionMonitor::tick(Nanos now, std::span<const PageRange> mapped) {
  if (regions_.empty()) {
    updated_ = now;
    update(mapped);
  }
  ask(now);
}

/// Asks for the samples that begin until the tick after the next, so that they follow each other
/// without a gap. Between two aggregations there is one: the regions have to be known.
void RegionMonitor::ask(Nanos now) {
  if (regions_.empty()) return;
  from_ = std::max(from_, now);
  const Nanos until = now + tick_period() + memory_.quantum();
  probes_.clear();
  for (; asked_ < samples_ && from_ <= until; ++asked_, from_ += sampling_)
    for (const Region& region : regions_)
      probes_.push_back({.page = {region.range.first.value + rng_.below(region.range.count)},
                         .from = from_,
                         .length = sampling_});
  if (probes_.empty()) return;
  memory_.charge(Work::probe, probes_.size());
  memory_.probe(probes_);
}

bool RegionMonitor::answered(std::span<const Probe> probes) {
  const float each = 1 / static_cast<float>(samples_);
  for (const Probe& probe : probes) {
    TT_ASSERT(at_ < regions_.size());
    Region& region = regions_[at_];
    const std::uint32_t hit = probe.accessed ? 1 : 0;
    region.accesses += hit;
    region.moving += static_cast<float>(hit) - static_cast<float>(region.last) * each;
    if (++at_ < regions_.size()) continue;
    at_ = 0;
    ++answered_;
  }
  if (answered_ < samples_ || regions_.empty()) return false;
  merge();
  return true;
}

void RegionMonitor::next(Nanos now, std::span<const PageRange> mapped) {
  tune();
  for (Region& region : regions_) region.last = std::exchange(region.accesses, 0);
  split();
  if (now - updated_ >= options_.update) {
    updated_ = now;
    update(mapped);
  }
  asked_ = answered_ = 0;
  ask(now);
}

/// Neighbours whose counts differ by no more than a tenth of the largest one become one region, of
/// the mean count and age; a region whose count has not changed by more than that gets older,
/// unless it changed from none to some or back. While there are too many, more differing ones are
/// merged.
void RegionMonitor::merge() {
  std::uint32_t largest = 0;
  for (const Region& region : regions_) largest = std::max(largest, region.accesses);
  std::uint32_t threshold = largest / 10;
  const auto apart = [](std::uint32_t a, std::uint32_t b) { return a > b ? a - b : b - a; };
  for (Region& region : regions_) {
    const bool changed = apart(region.accesses, region.last) > threshold ||
                         (region.accesses == 0) != (region.last == 0);
    region.age = changed ? 0 : region.age + 1;
  }
  for (;; threshold = std::max(1U, 2 * threshold)) {
    std::size_t kept = 0;
    for (std::size_t i = 1; i < regions_.size(); ++i) {
      Region& left = regions_[kept];
      const Region& right = regions_[i];
      const std::uint64_t pages = left.range.count + right.range.count;
      if (left.range.end() != right.range.first || pages > most_pages_ ||
          apart(left.accesses, right.accesses) > threshold) {
        regions_[++kept] = right;
        continue;
      }
      const auto mean = [&](std::uint64_t a, std::uint64_t b) {
        return static_cast<std::uint32_t>((a * left.range.count + b * right.range.count) / pages);
      };
      left.accesses = mean(left.accesses, right.accesses);
      left.age = mean(left.age, right.age);
      left.range.count = pages;
    }
    if (!regions_.empty()) regions_.resize(kept + 1);
    if (static_cast<double>(regions_.size()) <= options_.max_regions || threshold >= samples_)
      break;
  }
  for (Region& region : regions_) region.moving = static_cast<float>(region.accesses);
  TT_ASSERT_FULL(consistent());
}

void RegionMonitor::tune() {
  const Goal& goal = options_.goal;
  if (goal.share <= 0 || ++untuned_ < goal.aggregations) return;
  untuned_ = 0;
  double pages = 0;
  double accesses = 0;
  for (const Region& region : regions_) {
    const auto size = static_cast<double>(region.range.count);
    pages += size * samples_;
    accesses += size * region.accesses;
  }
  if (pages <= 0) return;
  const double score = accesses / (pages * goal.share);
  double factor = std::max(0.0, 2 - score);
  if (factor < 1) factor = (1 + factor) / 2;  // so that the overhead does not jump
  const auto wanted =
      Nanos{static_cast<std::int64_t>(static_cast<double>(sampling_.count()) * factor)};
  const Nanos old = std::exchange(sampling_, std::clamp(wanted, goal.least, goal.most));
  // An age is counted in aggregations, and means a time.
  const double aged =
      static_cast<double>(old.count()) / static_cast<double>(std::max(sampling_, Nanos{1}).count());
  for (Region& region : regions_)
    region.age = static_cast<std::uint32_t>(static_cast<double>(region.age) * aged);
}

/// In two at a tenth to nine tenths, or in three if the last split has led nowhere; only while
/// there is room for twice as many regions.
void RegionMonitor::split() {
  const std::size_t before = regions_.size();
  const auto count = static_cast<double>(before);
  if (count > options_.max_regions / 2) return;
  const int parts = last_count_ == before && count < options_.max_regions / 3 ? 3 : 2;
  last_count_ = before;
  other_.clear();
  for (Region region : regions_) {
    const std::size_t first = other_.size();
    for (int i = 1; i < parts && region.range.count > 1; ++i) {
      const std::uint64_t left = std::clamp<std::uint64_t>(
          region.range.count * (1 + rng_.below(9)) / 10, 1, region.range.count - 1);
      Region right = region;
      right.range = {{region.range.first.value + left}, region.range.count - left};
      other_.push_back(right);
      region.range.count = left;
    }
    other_.push_back(region);
    std::reverse(other_.begin() + static_cast<std::ptrdiff_t>(first), other_.end());
  }
  regions_.swap(other_);
  TT_ASSERT_FULL(consistent());
}

/// What is mapped now: regions keep what is left of them; new memory gets new ones.
void RegionMonitor::update(std::span<const PageRange> mapped) {
  std::uint64_t pages = 0;
  for (const PageRange& range : mapped) pages += range.count;
  most_pages_ = static_cast<std::uint64_t>(
      std::max(1.0, std::ceil(static_cast<double>(pages) / std::max(1.0, options_.min_regions))));
  other_.clear();
  auto old = regions_.cbegin();
  for (const PageRange& range : mapped) {
    PageId from = range.first;
    while (from < range.end()) {
      while (old != regions_.cend() && old->range.end() <= from) ++old;
      if (old == regions_.cend() || old->range.first >= range.end()) {
        cover(from, range.end());
        break;
      }
      if (from < old->range.first) {
        cover(from, old->range.first);
        from = old->range.first;
      }
      Region& part = other_.emplace_back(*old);
      part.range = {from, std::min(old->range.end(), range.end()).value - from.value};
      from = part.range.end();
    }
  }
  regions_.swap(other_);
  at_ = 0;
  TT_ASSERT_FULL(consistent());
}

bool RegionMonitor::consistent() const {
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    const Region& region = regions_[i];
    if (region.range.count == 0 || region.accesses > samples_) return false;
    if (i > 0 && region.range.first < regions_[i - 1].range.end()) return false;
  }
  return true;
}

void RegionMonitor::cover(PageId from, PageId to) {
  while (from < to) {
    Region& region = other_.emplace_back();
    region.range = {from, std::min(most_pages_, to.value - from.value)};
    from = region.range.end();
  }
}

const Region* RegionMonitor::find(PageId page) const {
  const auto has = [&](std::size_t i) {
    return i < regions_.size() && regions_[i].range.contains(page);
  };
  if (!has(found_) && !has(++found_)) {
    const auto after = std::ranges::upper_bound(
        regions_, page, {}, [](const Region& region) { return region.range.first; });
    found_ = static_cast<std::size_t>(after - regions_.begin());
    if (found_ > 0) --found_;
  }
  return has(found_) ? &regions_[found_] : nullptr;
}

}  // namespace tt::track
