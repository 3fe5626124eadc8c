// SPDX-License-Identifier: MIT

#include "sim/reshapes.hpp"

#include "sim/timing.hpp"

namespace tt::sim {

void Reshapes::work(MoverTime& time) {
  while (!waiting_.empty() && time.any_left()) {
    const auto [change, page] = waiting_.front();
    waiting_.pop_front();
    MigrationResult result{.page = page, .outcome = Outcome::gone, .change = change};
    double cost_ns = 0;
    if (pages_.where(page.value) != Residency::absent) {
      result.to = pages_.tier_of(page.value);
      cost_ns = change == Change::split ? split(page, result) : collapse(page, result);
    }
    result.cost = whole_ns(cost_ns / PageTable::unit_pages);
    if (cost_ns > 0) {
      time.use(cost_ns * scale_);
      changed_ += 1;
      ledger_.sums()[change == Change::split ? Sum::units_split : Sum::units_collapsed] += scale_;
    }
    results_.report(result);
  }
}

/// Returns what it takes for each real unit; nothing if there is nothing to do.
double Reshapes::split(PageId page, MigrationResult& result) {
  const bool held = pages_.in_flight(page.value) || pages_.armed(Trap::shadowed, page.value);
  result.outcome = held ? Outcome::busy : Outcome::done;
  const PageRange unit = pages_.unit(page.value);
  if (unit.count == 1 || held) return 0;
  split_at_once(unit);
  return profile_.split_us * 1e3;
}

double Reshapes::collapse(PageId page, MigrationResult& result) {
  result.outcome = Outcome::done;
  if (pages_.unit(page.value).count > 1) return 0;
  const PageId first{page.value / PageTable::unit_pages * PageTable::unit_pages};
  result.outcome = pages_.collapse({first, PageTable::unit_pages});
  if (result.outcome != Outcome::done) return 0;
  collapsed_[index(result.to)] += 1;
  return profile_.split_us * 1e3 + huge_page_bytes / profile_.migration_copy_gbps;
}

void Reshapes::split_at_once(PageRange unit) {
  const auto guarded = static_cast<double>(pages_.count(Trap::guarded, unit));
  const auto shadowed = static_cast<double>(pages_.count(Trap::shadowed, unit));
  pages_.split(unit);
  ledger_.counters().protected_pages -=
      guarded - static_cast<double>(pages_.count(Trap::guarded, unit));
  ledger_.counters().shadow_pages -=
      shadowed - static_cast<double>(pages_.count(Trap::shadowed, unit));
}

}  // namespace tt::sim
