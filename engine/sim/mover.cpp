#include "sim/mover.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "sim/timing.hpp"

namespace tt::sim {
namespace {

constexpr double ping_pong_ns = 10e9;

/// The sum for demotions that belongs to one for promotions, if the move is one.
Sum directed(Sum promotion, Tier to) {
  constexpr auto step =
      static_cast<int>(Sum::demotions_requested) - static_cast<int>(Sum::promotions_requested);
  return static_cast<Sum>(static_cast<int>(promotion) + (to == Tier::fast ? 0 : step));
}

}  // namespace

Mover::Mover(PageTable& pages, Ledger& ledger, const MachineProfile& profile,
             const PolicyTraits& traits, double scale)
    : pages_(pages),
      ledger_(ledger),
      profile_(profile),
      scale_(scale),
      threads_(traits.mover_threads),
      copy_(traits.write_protected_moves ? Copy::write_protected : Copy::blocking),
      queue_(1024 + 2 * pages.capacity(Tier::fast)),
      queued_{PageBits{pages.size()}, PageBits{pages.size()}},
      moved_at_ms_(static_cast<std::uint32_t*>(
          std::calloc(std::max<std::uint64_t>(pages.size(), 1), sizeof(std::uint32_t)))) {
  if (!moved_at_ms_) throw std::bad_alloc();
}

std::size_t Mover::request(Tier to, std::span<const PageId> pages) {
  std::size_t taken = 0;
  for (; taken < pages.size(); ++taken) {
    const PageId page = pages[taken];
    if (pages_.where(page.value) == Residency::absent) {
      report(page, to, Outcome::gone);
      continue;
    }
    if (queued_[index(to)].test(page.value)) continue;
    // Where it will be once what it is doing now, and what is queued for it, is done.
    const Tier here = pages_.tier_of(page.value);
    Tier destination = pages_.in_flight(page.value) ? other(here) : here;
    if (queued_[index(other(to))].test(page.value)) destination = other(to);
    if (destination == to) continue;
    if (queue_.full()) break;
    queue_.push({page, to});
    queued_[index(to)].set(page.value);
    ledger_.sums()[directed(Sum::promotions_requested, to)] += scale_;
  }
  ledger_.sums()[directed(Sum::promotions_rejected, to)] +=
      static_cast<double>(pages.size() - taken) * scale_;
  return taken;
}

void Mover::report(PageId page, Tier to, Outcome outcome) {
  results_.push_back({page, to, outcome});
  Sum sum = Sum::promotions;
  if (outcome == Outcome::no_space) sum = Sum::promotions_no_space;
  if (outcome == Outcome::gone) sum = Sum::promotions_gone;
  ledger_.sums()[directed(sum, to)] += scale_;
}

void Mover::finish(double now_ns, Policy& policy) {
  const auto arrived = [&](const InFlight& moving) {
    if (moving.left > 0) return false;
    const auto [page, to] = moving.move;
    --moving_to_[index(to)];
    pages_.arrive(page, to);
    std::uint32_t& last = moved_at_ms_[page.value];
    const auto stamp = static_cast<std::uint32_t>(now_ns / 1e6) + 1;
    if (last != 0 && (stamp - last) * 1e6 < ping_pong_ns) ledger_.sums()[Sum::ping_pongs] += scale_;
    last = stamp;
    ledger_.sums()[Sum::migrated_bytes] += static_cast<double>(pages_.page_bytes()) * scale_;
    report(page, to, Outcome::done);
    return true;
  };
  std::erase_if(in_flight_, arrived);
  moved_now_ = {};
  if (results_.empty()) return;
  // The policy may ask for more while it reads them: what that reports belongs to the next border.
  std::swap(results_, delivered_);
  policy.on_migrated(delivered_, whole_ns(now_ns));
  delivered_.clear();
}

void Mover::forget(PageRange range) {
  const auto [first, count] = range;
  for (std::uint64_t page = first.value; page < range.end().value; ++page)
    if (moved_at_ms_[page] != 0) moved_at_ms_[page] = 0;
  bool was_queued = false;
  for (PageBits& queued : queued_) {
    was_queued = was_queued || queued.count(first.value, count) > 0;
    queued.clear(first.value, count);
  }
  std::erase_if(in_flight_, [&](const InFlight& moving) {
    const auto [page, to] = moving.move;
    if (!range.contains(page)) return false;
    --moving_to_[index(to)];
    pages_.vacate(to);  // the slot that it was to have
    report(page, to, Outcome::gone);
    return true;
  });
  if (!was_queued) return;
  queue_.remove_if([&](const Move& move) {
    if (!range.contains(move.page)) return false;
    report(move.page, move.to, Outcome::gone);
    return true;
  });
}

/// Copies as many of the real pages as there is time for; says whether all of them are copied.
bool Mover::copy(InFlight& moving, double budget_ns) {
  const Tier to = moving.move.to;
  const double each_ns = move_ns_[index(to)] * scale_;
  const double time_ns = std::max(0.0, budget_ns - used_ns_);
  const bool all = moving.left * each_ns <= time_ns;
  const double part = all ? moving.left : time_ns / each_ns;
  used_ns_ += part * each_ns;
  moved_now_[index(to)] += part;
  moving.left = all ? 0 : moving.left - part;
  if (all) pages_.vacate(other(to));
  return all;
}

void Mover::start(double expected_ns, double idle_share, const Load& load) {
  used_ns_ = 0;
  idle_ = true;
  if (queue_.empty() && in_flight_.empty()) return;
  const double movers = std::max(1.0, static_cast<double>(threads_));
  for (const Tier to : {Tier::fast, Tier::slow})
    move_ns_[index(to)] =
        move_ns(profile_, to, static_cast<double>(pages_.page_bytes()), movers, load);
  const double budget = credit_ns_ + expected_ns * (threads_ > 0 ? threads_ : idle_share);
  if (!in_flight_.empty() && !copy(in_flight_.back(), budget)) {
    idle_ = false;
    return;
  }
  while (!queue_.empty() && used_ns_ < budget) {
    const auto [page, to] = queue_.front();
    // A page that still moves has to arrive before it can move again.
    if (pages_.in_flight(page.value)) break;
    queued_[index(to)].clear(page.value);
    queue_.pop();
    if (pages_.tier_of(page.value) == to) continue;
    if (pages_.free(to) == 0) {
      report(page, to, Outcome::no_space);
      continue;
    }
    pages_.depart(page, to, copy_);
    ++moving_to_[index(to)];
    in_flight_.push_back({{page, to}});
    ledger_.sums()[directed(Sum::promotions_started, to)] += scale_;
    if (!copy(in_flight_.back(), budget)) break;
  }
  idle_ = used_ns_ < budget;
}

void Mover::settle(double block_ns, double left_ns) {
  const double time_ns = threads_ > 0 ? block_ns * threads_ : left_ns;
  credit_ns_ += time_ns - used_ns_;
  // A block that lasted longer than expected is made up for in the next one, unless the mover was
  // idle.
  if (idle_) credit_ns_ = std::min(credit_ns_, 0.0);
  ledger_.sums()[Sum::mover_cpu_seconds] += used_ns_ * 1e-9;
  worked_ns_ = used_ns_;
}

void Mover::disturb(Interference& out) const {
  for (const Tier to : {Tier::fast, Tier::slow}) {
    const double pages = moved_now_[index(to)] * scale_;
    const double bytes = pages * static_cast<double>(pages_.page_bytes());
    out.traffic[index(to)].written += bytes;
    out.traffic[index(other(to))].read += bytes;
    out.moves += pages;
    out.away_ns += pages * move_ns_[index(to)];
  }
  out.moves_ns += worked_ns_;
}

}  // namespace tt::sim
