// SPDX-License-Identifier: MIT

#include "track/cooled_counts.hpp"

#include <algorithm>

namespace tt::track {

std::uint32_t CooledCounts::settle(State& state) const {
  state.hotness >>= std::min<unsigned>(static_cast<std::uint16_t>(clock_ - state.clock), 31);
  state.clock = clock_;
  return state.hotness;
}

std::optional<std::uint32_t> CooledCounts::hotness(PageId page) const {
  State huge = mixed_ ? huge_.get(group_of(page)) : State{};
  if (huge.mapped) return settle(huge);
  State state = states_.get(page);
  if (!state.mapped) return std::nullopt;
  return settle(state);
}

CooledCounts::Entry CooledCounts::entry(PageId page) {
  if (mixed_)
    if (State& huge = huge_[group_of(page)]; huge.mapped)
      return {group(page).first, &huge, subpages};
  return of(page, states_[page]);
}

void CooledCounts::map(PageRange range, std::uint32_t hotness, bool huge) {
  const State state{.hotness = huge ? 0 : hotness, .clock = clock_, .mapped = true};
  for (std::uint64_t page = range.first.value; page < range.end().value; ++page)
    states_[{page}] = state;
  if (huge && !mixed_) base_histogram_ = histogram_;
  if (!huge) {
    histogram_.add(hotness, range.count);
    if (mixed_) base_histogram_.add(hotness, range.count);
    return;
  }
  make_huge(range.first, hotness);
}

void CooledCounts::make_huge(PageId page, std::uint32_t samples) {
  mixed_ = true;
  ++huge_pages_;
  huge_[group_of(page)] = {.hotness = samples, .clock = clock_, .mapped = true};
  histogram_.add(samples, subpages);
}

void CooledCounts::unmap(PageRange range) {
  if (mixed_) each_group(range, [this](PageRange part) { split(part.first); });
  each_run(range, [this](PageId, std::span<State> states) {
    for (State& state : states) {
      if (!state.mapped) continue;
      const std::uint32_t hotness = settle(state);
      histogram_.remove(hotness);
      if (mixed_) base_histogram_.remove(hotness);
    }
  });
  states_.erase(range);
}

std::uint32_t CooledCounts::increment(State& state, std::uint32_t factor, std::uint64_t pages,
                                      Histogram& histogram) {
  const std::uint32_t before = settle(state);
  state.hotness = std::min(before + factor, most_hotness);
  histogram.move(before, state.hotness, pages);
  return state.hotness;
}

std::optional<CooledCounts::Counted> CooledCounts::count(PageId page) {
  State& state = states_[page];
  if (!state.mapped) return std::nullopt;
  if (!mixed_) return Counted{of(page, state), increment(state, factor_, 1, histogram_)};
  const std::uint32_t before = settle(state);
  const std::uint32_t hotness = increment(state, factor_, 1, base_histogram_);
  const Entry whole = entry(page);
  if (whole.pages > 1) {
    increment(*whole.state, 1, whole.pages, histogram_);
  } else {
    histogram_.move(before, hotness);
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
    const std::uint32_t hotness = settle(state);
    if (mixed_) base_histogram_.add(hotness);
    if (!part) histogram_.add(hotness);
  }
  if (part && group(first).first == first) histogram_.add(settle(entry(first)), subpages);
}

/// Its samples are those of its subpages.
void CooledCounts::join(PageId page) {
  if (huge(page)) return;
  if (!mixed_) base_histogram_ = histogram_;
  std::uint64_t hotness = 0;
  each_run(group(page), [&](PageId, std::span<State> states) {
    for (State& state : states) {
      if (!state.mapped) continue;
      histogram_.remove(settle(state));
      hotness += state.hotness;
    }
  });
  make_huge(page,
            static_cast<std::uint32_t>(std::min<std::uint64_t>(hotness / factor_, most_hotness)));
}

void CooledCounts::split(PageId page) {
  if (!huge(page)) return;
  State& huge = huge_[group_of(page)];
  histogram_.remove(settle(huge), subpages);
  huge = {};
  --huge_pages_;
  each_run(group(page), [this](PageId, std::span<State> states) {
    for (State& state : states)
      if (state.mapped) histogram_.add(settle(state));
  });
}

}  // namespace tt::track
