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
      scale_(scale),
      threads_(traits.mover_threads),
      copy_(traits.write_protected_moves ? Copy::write_protected : Copy::blocking),
      queue_(1024 + 2 * pages.capacity(Tier::fast)),
      queued_{PageBits{pages.size()}, PageBits{pages.size()}},
      moved_at_ms_(static_cast<std::uint32_t*>(
          std::calloc(std::max<std::uint64_t>(pages.size(), 1), sizeof(std::uint32_t)))) {
  if (!moved_at_ms_) throw std::bad_alloc();
  const double movers = std::max(1.0, static_cast<double>(threads_));
  for (const Tier to : {Tier::fast, Tier::slow})
    move_ns_[index(to)] = move_ns(profile, to, static_cast<double>(pages.page_bytes()), movers);
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
  for (const auto& [page, to] : in_flight_) {
    pages_.arrive(page, to);
    std::uint32_t& last = moved_at_ms_[page.value];
    const auto stamp = static_cast<std::uint32_t>(now_ns / 1e6) + 1;
    if (last != 0 && (stamp - last) * 1e6 < ping_pong_ns) ledger_.sums()[Sum::ping_pongs] += scale_;
    last = stamp;
    ledger_.sums()[Sum::migrated_bytes] += static_cast<double>(pages_.page_bytes()) * scale_;
    report(page, to, Outcome::done);
  }
  in_flight_.clear();
  moving_to_ = {};
  if (results_.empty()) return;
  // The policy may ask for more while it is told: what that reports belongs to the next border.
  std::swap(results_, told_);
  policy.on_migrated(told_, whole_ns(now_ns));
  told_.clear();
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
  if (!was_queued) return;
  queue_.remove_if([&](const Move& move) {
    if (!range.contains(move.page)) return false;
    report(move.page, move.to, Outcome::gone);
    return true;
  });
}

void Mover::start(double expected_ns, double idle_share) {
  used_ns_ = 0;
  if (queue_.empty()) return;
  const double budget = credit_ns_ + expected_ns * (threads_ > 0 ? threads_ : idle_share);
  while (!queue_.empty()) {
    const auto [page, to] = queue_.front();
    // A page that still moves has to arrive before it can move again.
    if (pages_.in_flight(page.value)) break;
    const auto dequeue = [&, page = page, to = to] {
      queued_[index(to)].clear(page.value);
      queue_.pop();
    };
    if (pages_.tier_of(page.value) == to) {
      dequeue();
      continue;
    }
    if (pages_.free(to) == 0) {
      report(page, to, Outcome::no_space);
      dequeue();
      continue;
    }
    const double cost = move_ns_[index(to)] * scale_;
    if (used_ns_ + cost > budget) break;
    used_ns_ += cost;
    pages_.depart(page, to, copy_);
    ++moving_to_[index(to)];
    in_flight_.push_back({page, to});
    ledger_.sums()[directed(Sum::promotions_started, to)] += scale_;
    dequeue();
  }
}

void Mover::settle(double block_ns, double left_ns) {
  const double time_ns = threads_ > 0 ? block_ns * threads_ : left_ns;
  credit_ns_ += time_ns - used_ns_;
  // An idle mover saves nothing up; a waiting one at most what the page in front of it costs.
  const double most = queue_.empty() ? 0 : move_ns_[index(queue_.front().to)] * scale_;
  credit_ns_ = std::min(credit_ns_, most);
  ledger_.sums()[Sum::mover_cpu_seconds] += used_ns_ * 1e-9;
  worked_ns_ = used_ns_;
}

void Mover::disturb(Interference& out) const {
  for (const Tier to : {Tier::fast, Tier::slow}) {
    const auto pages = static_cast<double>(moving_to_[index(to)]) * scale_;
    const double bytes = pages * static_cast<double>(pages_.page_bytes());
    out.traffic[index(to)].written += bytes;
    out.traffic[index(other(to))].read += bytes;
    out.moves += pages;
    out.away_ns += pages * move_ns_[index(to)];
  }
  out.moves_ns += worked_ns_;
}

}  // namespace tt::sim
