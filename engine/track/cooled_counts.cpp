// SPDX-License-Identifier: MIT

#include "track/cooled_counts.hpp"

#include <algorithm>

namespace tt::track {

std::uint32_t CooledCounts::settle(State& state, std::uint32_t factor) const {
  state.count >>= std::min<unsigned>(static_cast<std::uint16_t>(clock_ - state.clock), 31);
  state.clock = clock_;
  return state.count * factor;
}

std::optional<std::uint32_t> CooledCounts::hotness(PageId page) const {
  State huge = mixed_ ? huge_.get(group_of(page)) : State{};
  if (huge.mapped) return settle(huge, 1);
  State state = states_.get(page);
  if (!state.mapped) return std::nullopt;
  return settle(state, factor_);
}

CooledCounts::Entry CooledCounts::entry(PageId page) {
  if (mixed_)
    if (State& huge = huge_[group_of(page)]; huge.mapped)
      return {group(page).first, &huge, 1, subpages};
  return of(page, states_[page]);
}

void CooledCounts::map(PageRange range, std::uint32_t hotness, bool huge) {
  const State state{.count = huge ? 0 : hotness / factor_, .clock = clock_, .mapped = true};
  for (std::uint64_t page = range.first.value; page < range.end().value; ++page)
    states_[{page}] = state;
  if (huge && !mixed_) base_histogram_ = histogram_;
  if (!huge) {
    histogram_.add(state.count * factor_, range.count);
    if (mixed_) base_histogram_.add(state.count * factor_, range.count);
    return;
  }
  make_huge(range.first, hotness);
}

void CooledCounts::make_huge(PageId page, std::uint32_t samples) {
  mixed_ = true;
  ++huge_pages_;
  huge_[group_of(page)] = {.count = samples, .clock = clock_, .mapped = true};
  histogram_.add(samples, subpages);
}

void CooledCounts::unmap(PageRange range) {
  if (mixed_) each_group(range, [this](PageRange part) { split(part.first); });
  each_run(range, [this](PageId, std::span<State> states) {
    for (State& state : states) {
      if (!state.mapped) continue;
      const std::uint32_t hotness = settle(state, factor_);
      histogram_.remove(hotness);
      if (mixed_) base_histogram_.remove(hotness);
    }
  });
  states_.erase(range);
}

std::uint32_t CooledCounts::increment(State& state, std::uint32_t factor, std::uint64_t pages,
                                      Histogram& histogram) {
  const std::uint32_t before = settle(state, factor);
  state.count = std::min(state.count + 1, most_count);
  const std::uint32_t after = state.count * factor;
  histogram.move(before, after, pages);
  return after;
}

std::optional<CooledCounts::Counted> CooledCounts::count(PageId page) {
  State& state = states_[page];
  if (!state.mapped) return std::nullopt;
  if (!mixed_) return Counted{of(page, state), increment(state, factor_, 1, histogram_)};
  const std::uint32_t hotness = increment(state, factor_, 1, base_histogram_);
  const Entry whole = entry(page);
  if (whole.pages > 1) {
    increment(*whole.state, whole.factor, whole.pages, histogram_);
  } else {
    histogram_.move(hotness - factor_, hotness);
  }
  return Counted{whole, hotness};
}

void CooledCounts::cool() {
  ++clock_;
  ++coolings_;
  histogram_.cool();
  base_histogram_.cool();
}

void CooledCounts::recount(PageId first, std::span<State> states) {
  const bool part = huge(first);
  for (State& state : states) {
    const std::uint32_t hotness = settle(state, factor_);
    if (mixed_) base_histogram_.add(hotness);
    if (!part) histogram_.add(hotness);
  }
  if (part && group(first).first == first) histogram_.add(settle(entry(first)), subpages);
}

/// Its samples are those of its subpages.
void CooledCounts::join(PageId page) {
  if (huge(page)) return;
  if (!mixed_) base_histogram_ = histogram_;
  std::uint32_t samples = 0;
  each_run(group(page), [&](PageId, std::span<State> states) {
    for (State& state : states) {
      if (state.mapped) histogram_.remove(settle(state, factor_));
      samples = std::min(samples + state.count, most_count);
    }
  });
  make_huge(page, samples);
}

void CooledCounts::split(PageId page) {
  if (!huge(page)) return;
  State& huge = huge_[group_of(page)];
  histogram_.remove(settle(huge, 1), subpages);
  huge = {};
  --huge_pages_;
  each_run(group(page), [this](PageId, std::span<State> states) {
    for (State& state : states)
      if (state.mapped) histogram_.add(settle(state, factor_));
  });
}

}  // namespace tt::track
