// SPDX-License-Identifier: MIT

#include "migrate/scheme.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace tt::migrate {
namespace {

constexpr int most_score = 99;

}  // namespace

Scheme::Scheme(Memory& memory, const Options& options)
    : memory_(memory), options_(options), quota_(options.quota), gate_(options.gate) {}

int Scheme::hot_score(double access, double age_seconds, double access_weight, double age_weight) {
  constexpr int most_log = 32;
  const int frequency = static_cast<int>(access * 100);
  const auto whole = static_cast<std::uint64_t>(age_seconds);
  int log = std::min(most_log, static_cast<int>(std::bit_width(whole)));
  if (frequency == 0) log = -log;
  const int age = (log + most_log) * 100 / most_log / 2;
  const double weights = access_weight + age_weight;
  const double hotness = weights > 0 ? (access_weight * frequency + age_weight * age) / weights : 0;
  return std::clamp(static_cast<int>(hotness * most_score / 100), 0, most_score);
}

bool Scheme::fits(const track::Region& region, const track::RegionMonitor& monitor) const {
  const double accesses = track::RegionMonitor::accesses(region);
  const double samples = monitor.samples();
  return accesses >= options_.least_access * samples &&
         accesses <= options_.most_access * samples &&
         monitor.aggregation() * region.age >= options_.least_age;
}

int Scheme::score(const track::Region& region, const track::RegionMonitor& monitor) const {
  const double access = track::RegionMonitor::accesses(region);
  const int hot = hot_score(access / monitor.samples(), seconds(monitor.aggregation()) * region.age,
                            options_.access_weight, options_.age_weight);
  return options_.to == Tier::fast ? hot : most_score - hot;
}

double Scheme::fast_free() const {
  const auto capacity = static_cast<double>(memory_.capacity(Tier::fast));
  return capacity > 0 ? static_cast<double>(memory_.free_pages(Tier::fast)) / capacity : 0;
}

std::optional<double> Scheme::goal_score() const {
  switch (options_.goal) {
    case Goal::used:
      return (1 - fast_free()) / options_.goal_share;
    case Goal::free:
      return fast_free() / options_.goal_share;
    case Goal::none:
      break;
  }
  return std::nullopt;
}

void Scheme::apply(track::RegionMonitor& monitor, const MappedRanges& space, Nanos now) {
  if (!gate_.open(fast_free())) return;
  quota_.open(now, goal_score());
  // Scores are only looked at as far as the quota makes it necessary.
  const std::span<track::Region> regions = monitor.regions();
  std::array<double, most_score + 1> pages_of{};
  candidates_.clear();
  for (std::size_t i = 0; i < regions.size(); ++i) {
    if (!fits(regions[i], monitor)) continue;
    find_pages(regions[i].range, space);
    if (pages_.empty()) continue;
    const int found = score(regions[i], monitor);
    candidates_.push_back({i, found});
    pages_of[static_cast<std::size_t>(found)] += static_cast<double>(pages_.size());
  }
  int least = most_score;
  for (double sum = pages_of[most_score]; sum < quota_.size() && least > 0;)
    sum += pages_of[static_cast<std::size_t>(--least)];

  moves_.clear();
  for (const Candidate& candidate : candidates_) {
    track::Region& region = regions[candidate.region];
    if (resumes_ && region.range.end() <= resume_) continue;
    if (candidate.score < least) continue;
    find_pages(region.range, space);
    if (resumes_) std::erase_if(pages_, [&](PageId page) { return page < resume_; });
    resumes_ = false;
    const std::uint64_t left = quota_.left();
    const bool all = pages_.size() <= left;
    if (!all) {
      resumes_ = true;
      resume_ = pages_[left];
      pages_.resize(left);
    }
    quota_.charge(pages_.size());
    tried_ += pages_.size();
    if (options_.ask_pages) ask_pages();
    moves_.insert(moves_.end(), pages_.begin(), pages_.end());
    if (!all) break;
    region.age = 0;
  }
  // Behind the place where it was to go on there was nothing: the next time begins at the front.
  if (resumes_ && moves_.empty() && quota_.left() > 0) resumes_ = false;
  if (moves_.empty()) return;
  requested_ += memory_.request(options_.to, moves_);
}

void Scheme::find_pages(PageRange region, const MappedRanges& space) {
  pages_.clear();
  PageId from = region.first;
  while (from < region.end()) {
    const PageRange run = space.next(from, region.end().value - from.value);
    if (run.count == 0 || run.first < from || run.first >= region.end()) return;
    const std::uint64_t count = std::min(run.count, region.end().value - run.first.value);
    where_.resize(count);
    memory_.residency(run.first, where_);
    const auto source = static_cast<Residency>(other(options_.to));
    for (std::uint64_t i = 0; i < count; ++i)
      if (where_[i] == source) pages_.push_back({run.first.value + i});
    from = {run.first.value + count};
  }
}

/// Keeps the pages whose accessed bit agrees. Looked at by page, as a kernel that comes from
/// physical addresses does.
void Scheme::ask_pages() {
  const bool wanted = options_.to == Tier::fast;
  memory_.charge(Work::lru_step, pages_.size());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < pages_.size();) {
    std::size_t end = i + 1;
    while (end < pages_.size() && pages_[end].value == pages_[end - 1].value + 1) ++end;
    const PageRange run{pages_[i], end - i};
    mask_.assign(mask_words(run.count), 0);
    memory_.accessed(run, mask_, true);
    for (std::uint64_t n = 0; n < run.count; ++n)
      if (in_mask(mask_, n) == wanted) pages_[kept++] = {run.first.value + n};
    i = end;
  }
  pages_.resize(kept);
}

void Scheme::migrated(std::span<const MigrationResult> results) {
  for (const MigrationResult& result : results)
    if (result.to == options_.to && result.outcome == Outcome::done) quota_.spent(result.cost);
}

}  // namespace tt::migrate
