// SPDX-License-Identifier: MIT

#include "classify/schedule.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

namespace tt::classify {
namespace {

/// Pages that are looked at together: their advantages over all epochs stay in the cache.
constexpr std::uint64_t strip = 256;

double at(const std::vector<double>& limits, std::uint64_t epoch) {
  return limits.empty() ? std::numeric_limits<double>::infinity() : limits[epoch];
}

/// The nth largest, counted from 0; 0 if there are not so many positive ones.
template <typename T>
T nth_largest(std::vector<T> values, std::uint64_t n) {
  std::erase_if(values, [](T value) { return !(value > 0); });
  if (n >= values.size()) return 0;
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(n);
  std::ranges::nth_element(values, place, std::greater{});
  return *place;
}

std::vector<double> totals(const ScheduleProblem& problem) {
  std::vector<double> sums(problem.pages);
  for (std::uint64_t e = 0; e < problem.epochs; ++e)
    for (std::uint64_t p = 0; p < problem.pages; ++p)
      sums[p] += static_cast<double>(problem.value[e * problem.pages + p]);
  return sums;
}

/// Advantages of pages [first, first + count): D of the header, row by row. `out` is called for
/// each with what being slow is worth beside.
void advantages(const ScheduleProblem& problem, const std::vector<float>& place,
                const std::vector<float>& move, std::uint64_t first, std::uint64_t count, float* d,
                std::uint64_t stride, double* slow) {
  const std::uint32_t* born = problem.born.data() + first;
  const std::uint32_t* gone = problem.gone.data() + first;
  std::array<float, strip> ahead{};  // D of the next epoch
  std::fill_n(slow, count, 0.0);
  for (std::uint64_t e = problem.epochs; e-- > 0;) {
    const float* value = problem.value.data() + e * problem.pages + first;
    float* row = d + e * stride;
    const float lambda = place[e];
    const float cost = e + 1 < problem.epochs ? move[e + 1] : 0;
    const auto epoch = static_cast<std::uint32_t>(e);
    for (std::uint64_t p = 0; p < count; ++p) {
      const bool goes_on = epoch + 1 < gone[p];
      const float next = ahead[p];
      const float carried = std::min(std::max(next, -cost), cost);
      const bool enters = goes_on && epoch >= born[p] && next > cost;
      slow[p] += enters ? static_cast<double>(next - cost) : 0.0;
      row[p] = ahead[p] = value[p] - lambda + (goes_on ? carried : 0.0F);
    }
  }
}

std::vector<float> to_float(const std::vector<double>& prices, double more = 0) {
  std::vector<float> out;
  for (const double price : prices) out.push_back(static_cast<float>(price + more));
  return out;
}

}  // namespace

std::vector<bool> best_static(const ScheduleProblem& problem) {
  const std::vector<double> sums = totals(problem);
  std::vector<std::uint64_t> order;
  for (std::uint64_t page = 0; page < problem.pages; ++page)
    if (sums[page] > 0) order.push_back(page);
  const auto fits = std::min<std::uint64_t>(order.size(), problem.capacity);
  std::ranges::nth_element(order, order.begin() + static_cast<std::ptrdiff_t>(fits),
                           [&](std::uint64_t a, std::uint64_t b) {
                             return sums[a] != sums[b] ? sums[a] > sums[b] : a < b;
                           });
  std::vector<bool> set(problem.pages);
  for (std::uint64_t i = 0; i < fits; ++i) set[order[i]] = true;
  return set;
}

Schedule::Schedule(const ScheduleProblem& problem, unsigned steps)
    : words_((problem.pages + 63) / 64), rows_(words_ * problem.epochs) {
  const std::vector<bool> set = best_static(problem);
  keep(problem, set);
  static_gain_ = gain_;
  const Prices prices = descend(problem, steps);
  repair(problem, prices);
  if (gain_ < static_gain_) keep(problem, set);
}

Schedule::Demand Schedule::ask(const ScheduleProblem& problem, const Prices& prices) const {
  Demand demand{0, std::vector<double>(problem.epochs), std::vector<double>(problem.epochs)};
  for (std::uint64_t e = 0; e < problem.epochs; ++e) {
    demand.bound += static_cast<double>(problem.capacity) * prices.place[e];
    if (prices.move[e] > 0) demand.bound += at(problem.moves, e) * prices.move[e];
  }
  const std::vector<float> place = to_float(prices.place);
  const std::vector<float> move = to_float(prices.move, problem.move_cost);
  std::vector<float> d(problem.epochs * strip);
  std::array<double, strip> slow;
  std::array<std::uint32_t, strip> state;
  for (std::uint64_t first = 0; first < problem.pages; first += strip) {
    const std::uint64_t count = std::min(strip, problem.pages - first);
    advantages(problem, place, move, first, count, d.data(), strip, slow.data());
    const std::uint32_t* born = problem.born.data() + first;
    const std::uint32_t* gone = problem.gone.data() + first;
    for (std::uint64_t p = 0; p < count; ++p) {
      if (born[p] >= gone[p]) continue;
      demand.bound += slow[p] + std::max(0.0, static_cast<double>(d[born[p] * strip + p]));
    }
    state.fill(0);
    for (std::uint64_t e = 0; e < problem.epochs; ++e) {
      const float* row = d.data() + e * strip;
      const float cost = move[e];
      const auto epoch = static_cast<std::uint32_t>(e);
      std::uint32_t places = 0;
      std::uint32_t moves = 0;
      for (std::uint64_t p = 0; p < count; ++p) {
        const bool there = epoch >= born[p] && epoch < gone[p];
        const bool placed = epoch == born[p];
        const float limit = placed ? 0.0F : cost;
        const std::uint32_t kept = placed ? 0U : state[p];
        const std::uint32_t wanted = row[p] > limit ? 1U : row[p] < -limit ? 0U : kept;
        const std::uint32_t next = there ? wanted : 0U;
        moves += there && !placed && next != state[p] ? 1U : 0U;
        places += next;
        state[p] = next;
      }
      demand.places[e] += places;
      demand.moves[e] += moves;
    }
  }
  return demand;
}

/// Exact where moves cost nothing: in each epoch the value of the first page without a place.
Schedule::Prices Schedule::by_epoch(const ScheduleProblem& problem) const {
  Prices prices{std::vector<double>(problem.epochs), std::vector<double>(problem.epochs)};
  for (std::uint64_t e = 0; e < problem.epochs; ++e) {
    const auto row = problem.value.begin() + static_cast<std::ptrdiff_t>(e * problem.pages);
    prices.place[e] = static_cast<double>(
        nth_largest(std::vector<float>(row, row + static_cast<std::ptrdiff_t>(problem.pages)),
                    problem.capacity));
  }
  return prices;
}

/// Exact where nothing can move: a place for ever costs what the first page without one is worth.
Schedule::Prices Schedule::forever(const ScheduleProblem& problem) const {
  Prices prices{std::vector<double>(problem.epochs), std::vector<double>(problem.epochs)};
  const double price = nth_largest(totals(problem), problem.capacity);
  double sum = 0;
  for (std::uint64_t e = 0; e < problem.epochs; ++e) {
    double row = 0;
    for (std::uint64_t p = 0; p < problem.pages; ++p)
      row += static_cast<double>(problem.value[e * problem.pages + p]);
    prices.place[e] = price * row;
    sum += row;
  }
  for (double& place : prices.place) place = sum > 0 ? place / sum : 0;
  return prices;
}

/// Polyak's steps from the better one of two starts, toward the gain of the static set; shorter
/// ones, from the best prices so far, whenever three have not helped.
Schedule::Prices Schedule::descend(const ScheduleProblem& problem, unsigned steps) {
  Prices best = by_epoch(problem);
  Demand demand = ask(problem, best);
  Prices other = forever(problem);
  Demand other_demand = ask(problem, other);
  if (other_demand.bound < demand.bound) {
    std::swap(best, other);
    std::swap(demand, other_demand);
  }
  bound_ = demand.bound;
  Prices prices = best;
  Demand best_demand = demand;
  double length = 1;
  unsigned failed = 0;
  for (unsigned step = 0; step < steps; ++step) {
    double norm = 0;
    const auto slope = [](double wanted, double limit, double price) {
      const double gap = wanted - limit;
      return price <= 0 && gap <= 0 ? 0 : gap;  // a price cannot fall below nothing
    };
    for (std::uint64_t e = 0; e < problem.epochs; ++e) {
      const double place =
          slope(demand.places[e], static_cast<double>(problem.capacity), prices.place[e]);
      const double move = slope(demand.moves[e], at(problem.moves, e), prices.move[e]);
      norm += place * place + move * move;
    }
    if (norm <= 0 || demand.bound <= static_gain_) break;
    const double size = length * (demand.bound - static_gain_) / norm;
    for (std::uint64_t e = 0; e < problem.epochs; ++e) {
      const double place =
          slope(demand.places[e], static_cast<double>(problem.capacity), prices.place[e]);
      const double move = slope(demand.moves[e], at(problem.moves, e), prices.move[e]);
      prices.place[e] = std::max(0.0, prices.place[e] + size * place);
      prices.move[e] = std::max(0.0, prices.move[e] + size * move);
    }
    demand = ask(problem, prices);
    if (demand.bound < bound_) {
      bound_ = demand.bound;
      best = prices;
      best_demand = demand;
      failed = 0;
    } else if (++failed == 3) {
      length /= 2;
      prices = best;
      demand = best_demand;
      failed = 0;
    }
  }
  return best;
}

void Schedule::keep(const ScheduleProblem& problem, const std::vector<bool>& set) {
  std::ranges::fill(rows_, 0);
  gain_ = 0;
  moves_ = 0;
  for (std::uint64_t e = 0; e < problem.epochs; ++e) {
    for (std::uint64_t p = 0; p < problem.pages; ++p) {
      if (!set[p] || e < problem.born[p] || e >= problem.gone[p]) continue;
      put(p, e);
      gain_ += static_cast<double>(problem.value[e * problem.pages + p]);
    }
  }
}

void Schedule::repair(const ScheduleProblem& problem, const Prices& prices) {
  const std::vector<float> place = to_float(prices.place);
  const std::vector<float> move = to_float(prices.move, problem.move_cost);
  std::vector<float> d(problem.epochs * problem.pages);
  std::array<double, strip> slow;
  for (std::uint64_t first = 0; first < problem.pages; first += strip)
    advantages(problem, place, move, first, std::min(strip, problem.pages - first),
               d.data() + first, problem.pages, slow.data());

  struct Candidate {
    float score;  // of taking a place in this epoch
    std::uint32_t page;
    bool operator<(const Candidate& than) const {  // better ones first
      return score != than.score ? score > than.score : page < than.page;
    }
  };
  std::ranges::fill(rows_, 0);
  gain_ = 0;
  moves_ = 0;
  std::vector<Candidate> wanted, entering, leaving;
  std::vector<std::uint8_t> in(problem.pages);
  for (std::uint64_t e = 0; e < problem.epochs; ++e) {
    const float* advantage = d.data() + e * problem.pages;
    const float cost = move[e];
    wanted.clear();
    entering.clear();
    leaving.clear();
    std::uint64_t used = 0;
    for (std::uint32_t p = 0; p < problem.pages; ++p) {
      if (e >= problem.gone[p]) in[p] = 0;
      if (e < problem.born[p] || e >= problem.gone[p]) continue;
      used += in[p];
      const bool born = e == problem.born[p];
      const float score = advantage[p] + (born ? 0 : in[p] != 0 ? cost : -cost);
      // Where there is room, a page may stay, or come for its value in this epoch alone.
      const double alone = (born ? 1 : 2) * problem.move_cost;
      const auto value = static_cast<double>(problem.value[e * problem.pages + p]);
      if (score > 0 || in[p] != 0 || value > alone) wanted.push_back({score, p});
    }
    if (wanted.size() > problem.capacity) {
      const auto end = wanted.begin() + static_cast<std::ptrdiff_t>(problem.capacity);
      std::nth_element(wanted.begin(), end, wanted.end());
      for (auto beyond = end; beyond != wanted.end(); ++beyond)
        if (in[beyond->page] != 0) leaving.push_back(*beyond);
      wanted.erase(end, wanted.end());
    }
    for (const Candidate& page : wanted)
      if (in[page.page] == 0) entering.push_back(page);
    std::sort(entering.begin(), entering.end());
    std::sort(leaving.begin(), leaving.end());
    // The best come in, and the worst are replaced, while there are moves left.
    double left = at(problem.moves, e);
    const auto leave = [&] {
      in[leaving.back().page] = 0;
      leaving.pop_back();
      --left;
      ++moves_;
      --used;
    };
    for (const Candidate& page : entering) {
      const bool born = e == problem.born[page.page];
      const bool full = used == problem.capacity;
      if ((born ? 0 : 1) + (full ? 1 : 0) > left) continue;
      if (full && leaving.empty()) break;
      if (full) leave();
      in[page.page] = 1;
      ++used;
      if (born) continue;
      --left;
      ++moves_;
    }
    for (std::uint64_t p = 0; p < problem.pages; ++p) {
      if (in[p] == 0) continue;
      put(p, e);
      gain_ += static_cast<double>(problem.value[e * problem.pages + p]);
    }
  }
  if (moves_ > 0) gain_ -= static_cast<double>(moves_) * problem.move_cost;
}

}  // namespace tt::classify
