// SPDX-License-Identifier: MIT

// Schedules of a known future: bounds, the two extremes of the cost of a move, and all schedules of
// small cases tried one by one.
#include "classify/schedule.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "check.hpp"
#include "core/rng.hpp"

using namespace tt;
using classify::Schedule;
using classify::ScheduleProblem;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

ScheduleProblem problem(std::uint64_t pages, std::uint64_t epochs, std::uint64_t capacity,
                        double move_cost) {
  return {.pages = pages,
          .epochs = epochs,
          .capacity = capacity,
          .value = std::vector<float>(pages * epochs),
          .born = std::vector<std::uint32_t>(pages, 0),
          .gone = std::vector<std::uint32_t>(pages, static_cast<std::uint32_t>(epochs)),
          .move_cost = move_cost};
}

ScheduleProblem random_problem(std::uint64_t pages, std::uint64_t epochs, std::uint64_t capacity,
                               double move_cost, std::uint64_t seed) {
  ScheduleProblem p = problem(pages, epochs, capacity, move_cost);
  Rng rng(seed);
  for (std::uint64_t page = 0; page < pages; ++page) {
    if (rng.below(3) == 0) {
      p.born[page] = static_cast<std::uint32_t>(rng.below(epochs));
      p.gone[page] =
          p.born[page] + static_cast<std::uint32_t>(rng.below(epochs - p.born[page] + 1));
    }
    for (std::uint64_t e = p.born[page]; e < p.gone[page]; ++e)
      p.value[e * pages + page] = static_cast<float>(rng.below(10));
  }
  return p;
}

/// The best gain of all schedules.
double brute_force(const ScheduleProblem& p) {
  const std::uint32_t sets = 1U << p.pages;
  std::vector<double> best(sets, -infinite), next(sets);
  for (std::uint64_t e = 0; e < p.epochs; ++e) {
    std::uint32_t there = 0, before = 0;  // pages that are, and that were in the epoch before too
    for (std::uint64_t page = 0; page < p.pages; ++page) {
      const bool now = e >= p.born[page] && e < p.gone[page];
      there |= static_cast<std::uint32_t>(now) << page;
      before |= static_cast<std::uint32_t>(now && e > p.born[page]) << page;
    }
    for (std::uint32_t set = 0; set < sets; ++set) {
      next[set] = -infinite;
      if ((set & ~there) != 0 || std::popcount(set) > static_cast<int>(p.capacity)) continue;
      double value = 0;
      for (std::uint64_t page = 0; page < p.pages; ++page)
        if ((set >> page & 1U) != 0) value += static_cast<double>(p.value[e * p.pages + page]);
      if (e == 0) {
        next[set] = value;
        continue;
      }
      for (std::uint32_t from = 0; from < sets; ++from) {
        const int moves = std::popcount((from ^ set) & before);
        if (best[from] == -infinite || (!p.moves.empty() && moves > p.moves[e])) continue;
        next[set] = std::max(next[set], best[from] + value - (moves > 0 ? moves * p.move_cost : 0));
      }
    }
    std::swap(best, next);
  }
  return *std::ranges::max_element(best);
}

/// What a schedule gains, counted again, within its limits.
double played(const ScheduleProblem& p, const Schedule& schedule) {
  double gain = 0;
  for (std::uint64_t e = 0; e < p.epochs; ++e) {
    std::uint64_t used = 0, moves = 0;
    for (std::uint64_t page = 0; page < p.pages; ++page) {
      const bool there = e >= p.born[page] && e < p.gone[page];
      CHECK(there || !schedule.fast(page, e));
      used += schedule.fast(page, e);
      if (schedule.fast(page, e)) gain += static_cast<double>(p.value[e * p.pages + page]);
      if (there && e > p.born[page]) moves += schedule.fast(page, e) != schedule.fast(page, e - 1);
    }
    CHECK(used <= p.capacity);
    if (!p.moves.empty()) CHECK(static_cast<double>(moves) <= p.moves[e]);
    if (moves > 0) gain -= static_cast<double>(moves) * p.move_cost;
  }
  return gain;
}

/// Two halves of the run with other pages each.
ScheduleProblem two_phases(double move_cost) {
  ScheduleProblem p = problem(200, 20, 40, move_cost);
  for (std::uint64_t e = 0; e < 20; ++e)
    for (std::uint64_t page = 0; page < 40; ++page)
      p.value[e * 200 + page + (e < 10 ? 0 : 100)] = 5;
  return p;
}

}  // namespace

TEST("schedule: follows two phases if a move costs less than it saves, and else stays") {
  const Schedule cheap(two_phases(1), 30);
  CHECK_NEAR(cheap.gain(), 40 * 5 * 20 - 80.0, 1e-3);
  CHECK_NEAR(cheap.bound(), cheap.gain(), 1e-3 * cheap.gain());
  CHECK_NEAR(cheap.static_gain(), 40 * 5 * 10, 1e-6);
  CHECK_EQ(cheap.moves(), 80u);
  const Schedule dear(two_phases(26), 30);
  CHECK_EQ(dear.moves(), 0u);
  CHECK_NEAR(dear.gain(), dear.static_gain(), 1e-6);
}

TEST("schedule: the bound is never below the optimum, and the schedule close to it") {
  double worst = 1, sum = 0;
  constexpr int cases = 60;
  for (std::uint64_t seed = 1; seed <= cases; ++seed) {
    for (const bool limited : {false, true}) {
      ScheduleProblem p =
          random_problem(7, 5, 1 + seed % 4, 0.5 * static_cast<double>(seed % 7), seed);
      if (limited) p.moves.assign(5, static_cast<double>(seed % 5));
      const Schedule schedule(p, 100);
      const double best = brute_force(p);
      CHECK(schedule.bound() >= best - 1e-4);
      CHECK(schedule.gain() <= best + 1e-4);
      CHECK(schedule.gain() >= schedule.static_gain() - 1e-4);
      CHECK_NEAR(played(p, schedule), schedule.gain(), 1e-4);
      const double share = best > 0 ? schedule.gain() / best : 1;
      worst = std::min(worst, share);
      sum += share;
    }
  }
  CHECK(sum / (2 * cases) > 0.97);
  CHECK(worst > 0.8);
}

TEST("schedule: without a cost each epoch has its best pages, exactly") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const ScheduleProblem p = random_problem(7, 5, 3, 0, seed);
    const Schedule schedule(p, 30);
    CHECK_NEAR(schedule.gain(), brute_force(p), 1e-4);
    CHECK_NEAR(schedule.bound(), schedule.gain(), 1e-3);
  }
}

TEST("schedule: where a move costs more than anything, the best set that never changes") {
  for (const bool forbidden : {false, true}) {
    ScheduleProblem p = problem(300, 12, 60, forbidden ? 1 : infinite);
    if (forbidden) p.moves.assign(12, 0);
    Rng rng(5);
    for (float& value : p.value) value = static_cast<float>(rng.uniform());
    const Schedule schedule(p, 60);
    CHECK_EQ(schedule.moves(), 0u);
    CHECK_NEAR(schedule.gain(), schedule.static_gain(), 1e-9);
    if (!forbidden) CHECK_NEAR(schedule.bound(), schedule.gain(), 1e-3 * schedule.gain());
    const std::vector<bool> set = classify::best_static(p);
    for (std::uint64_t page = 0; page < p.pages; ++page)
      for (std::uint64_t e = 0; e < p.epochs; ++e) CHECK_EQ(schedule.fast(page, e), set[page]);
  }
}

TEST("schedule: more steps never loosen the bound") {
  const ScheduleProblem p = random_problem(500, 30, 60, 4, 9);
  double before = infinite;
  for (const unsigned steps : {1U, 3U, 10U, 30U, 100U}) {
    const Schedule schedule(p, steps);
    CHECK(schedule.bound() <= before + 1e-6);
    CHECK(schedule.gain() <= schedule.bound());
    before = schedule.bound();
  }
  const Schedule schedule(p, 100);
  CHECK(schedule.gain() > 0.97 * schedule.bound());
}

TEST(
    "schedule: a page is placed for nothing where it is born, and its place is free when it goes") {
  ScheduleProblem p = problem(2, 4, 1, 100);
  p.born = {0, 2};
  p.gone = {2, 4};
  for (std::uint64_t e = 0; e < 4; ++e) p.value[e * 2 + e / 2] = 3;
  const Schedule schedule(p, 30);
  CHECK_NEAR(schedule.gain(), 12, 1e-6);
  CHECK_EQ(schedule.moves(), 0u);
}

TEST("schedule: no page, no place, no value") {
  CHECK_EQ(Schedule(problem(0, 1, 4, 1), 5).gain(), 0.0);
  CHECK_EQ(Schedule(problem(5, 1, 4, 1), 5).gain(), 0.0);
  ScheduleProblem none = random_problem(6, 4, 0, 1, 3);
  CHECK_NEAR(Schedule(none, 5).bound(), 0, 1e-4);
  CHECK_EQ(Schedule(none, 5).gain(), 0.0);
}
