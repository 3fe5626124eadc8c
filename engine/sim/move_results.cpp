// SPDX-License-Identifier: MIT

#include "sim/move_results.hpp"

#include <utility>

#include "sim/timing.hpp"

namespace tt::sim {

void MoveResults::report(const Move& move, Outcome outcome, double took_ns) {
  const auto [page, to, pages] = move;
  const auto count = static_cast<double>(pages);
  results_.push_back(
      {.page = page, .to = to, .outcome = outcome, .cost = whole_ns(took_ns / count)});
  const MoveSums& sums = sums_of(to);
  Sums& total = ledger_.sums();
  switch (outcome) {
    case Outcome::done:
      total[sums.done] += scale_ * count;
      break;
    case Outcome::no_space:
      total[sums.no_space] += scale_ * count;
      break;
    case Outcome::gone:
      total[sums.gone] += scale_ * count;
      break;
    case Outcome::busy:
      break;  // counted as a started move that did not end
  }
}

void MoveResults::deliver(double now_ns, Policy& policy) {
  if (results_.empty()) return;
  // The policy may ask for more while it reads them: what that reports belongs to the next
  // delivery.
  std::swap(results_, delivered_);
  policy.on_migrated(delivered_, whole_ns(now_ns));
  delivered_.clear();
}

}  // namespace tt::sim
