// SPDX-License-Identifier: MIT

#include "sim/mover.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/assert.hpp"

namespace tt::sim {

Mover::Mover(PageTable& pages, Ledger& ledger, const MachineProfile& profile, double scale,
             std::uint64_t seed)
    : pages_(pages),
      ledger_(ledger),
      scale_(scale),
      results_(ledger, scale),
      queue_(1024 + 2 * pages.capacity(Tier::fast), pages.size()),
      flights_(pages, ledger, results_, profile, scale, seed),
      reshapes_(pages, ledger, results_, profile, scale) {}

void Mover::set(const Movers& movers) {
  if (movers.together == 0 || movers.together > std::max(1U, movers.threads))
    throw std::invalid_argument("as many threads as copy one page together must be there");
  movers_ = movers;
  transactional_ = transactional_ || movers.copy == Copy::transactional;
}

std::size_t Mover::request(Tier to, std::span<const PageId> pages) {
  std::size_t taken = 0;
  for (; taken < pages.size(); ++taken) {
    const auto [page, count] = pages_.unit(pages[taken].value);
    const Move move{page, to, count};
    if (pages_.where(page.value) == Residency::absent) {
      results_.report(move, Outcome::gone);
      continue;
    }
    const Tier here = pages_.tier_of(page.value);
    const auto answer = queue_.ask(move, pages_.in_flight(page.value) ? other(here) : here);
    if (answer == MoveQueue::Answer::full) break;
    if (answer == MoveQueue::Answer::queued)
      ledger_.sums()[sums_of(to).requested] += scale_ * static_cast<double>(count);
  }
  ledger_.sums()[sums_of(to).rejected] += static_cast<double>(pages.size() - taken) * scale_;
  return taken;
}

std::size_t Mover::reshape(Change to, std::span<const PageId> units) {
  reshapes_.ask(to, units);
  return units.size();
}

double Mover::move_in_fault(PageId faulted, Tier to, bool mapped_first) {
  const auto [page, count] = pages_.unit(faulted.value);
  if (pages_.where(page.value) == Residency::absent) {
    results_.report({page, to, count}, Outcome::gone);
    return 0;
  }
  if (pages_.in_flight(page.value) || pages_.tier_of(page.value) == to) return 0;
  ledger_.sums()[sums_of(to).requested] += scale_ * static_cast<double>(count);
  Flight* flight = flights_.depart(page, to, movers_, true);
  if (flight == nullptr) return 0;
  flight->flush = mapped_first;
  return flights_.all_ns(*flight);
}

void Mover::finish(double now_ns, Policy& policy) {
  flights_.land(now_ns, false);
  moved_ = {};
  reshapes_.next_block();
  flights_.next_block();
  results_.deliver(now_ns, policy);
  TT_ASSERT_FULL(pages_.consistent() && consistent());
}

void Mover::forget(PageRange range) {
  flights_.forget(range);
  queue_.forget(range, [this](const Move& move) { results_.report(move, Outcome::gone); });
}

void Mover::cut(PageRange unit) {
  flights_.cancel(unit);
  reshapes_.split_at_once(unit);
}

void Mover::start(double expected_ns, double idle_share, const Load& load) {
  time_.start(expected_ns * (movers_.threads > 0 ? pages_at_a_time() : idle_share));
  flights_.price(load, movers_);
  if (queue_.empty() && flights_.empty() && reshapes_.empty()) return;
  bool in_time = flights_.copy(time_, moved_, false);
  if (in_time) reshapes_.work(time_);
  while (in_time && !queue_.empty() && time_.any_left()) {
    // A page that still moves has to arrive before it can move again.
    if (pages_.in_flight(pages_.unit(queue_.front().page.value).first.value)) break;
    in_time = begin(queue_.pop(), moved_);
  }
  time_.pause(in_time);
  TT_ASSERT_FULL(consistent());
}

/// The first part of a move; says whether there is time left for others.
bool Mover::begin(const Move& asked, Moved& moved) {
  if (pages_.where(asked.page.value) == Residency::absent) {  // freed by a split
    results_.report({asked.page, asked.to, 1}, Outcome::gone);
    return true;
  }
  const PageId page = pages_.unit(asked.page.value).first;  // it may be part of a unit by now
  if (pages_.tier_of(page.value) == asked.to) return true;
  Flight* flight = flights_.depart(page, asked.to, movers_, false);
  return flight == nullptr || flights_.copy(*flight, time_, moved);
}

bool Mover::touch(std::uint64_t page, AccessKind kind, std::uint64_t count) {
  const bool stores = kind == AccessKind::store;
  if (pages_.armed(Trap::copied, page) || (transactional_ && pages_.armed(Trap::guarded, page)))
    flights_.count_stores(page, stores ? count : 0);
  return stores && flights_.let_go_of_shadow(page);
}

void Mover::go_on(double part, double block_ns, double left_ns, double now_ns, Policy& policy) {
  flights_.last_block(block_ns);
  time_.go_on(part * (movers_.threads > 0 ? block_ns * pages_at_a_time() : left_ns));
  Moved moved;
  bool in_time = flights_.copy(time_, moved, true);
  const auto serve = [&](const Move& asked) {
    const PageId page = pages_.unit(asked.page.value).first;
    if (!in_time || !time_.any_left() || pages_.in_flight(page.value)) return false;
    if (asked.to == Tier::fast && flights_.waits(page, movers_)) return false;
    in_time = begin(asked, moved);
    return true;
  };
  if (in_time && time_.any_left() && !queue_.empty()) queue_.remove_if(serve);
  time_.waste(in_time);
  moved_late_ += moved;
  flights_.land(now_ns, true);
  results_.deliver(now_ns, policy);
}

void Mover::settle(double block_ns, double left_ns) {
  time_.settle(movers_.threads > 0 ? block_ns * pages_at_a_time() : left_ns, movers_.together);
  ledger_.sums()[Sum::mover_cpu_seconds] += time_.worked_ns() * 1e-9;
  flights_.last_block(block_ns);
}

void Mover::disturb(Interference& out) {
  const Moved late = std::exchange(moved_late_, {});
  const auto copied = [&](double bytes, Tier from, Tier to) {
    out.traffic[index(to)].written += bytes;
    out.traffic[index(from)].read += bytes;
    out.lines += 2 * bytes / line_bytes;
  };
  for (const MoveSize size : move_sizes) {
    if (size == MoveSize::unit && !pages_.mixed()) break;
    const std::uint64_t bytes = size == MoveSize::page ? pages_.page_bytes() : huge_page_bytes;
    for (const Tier to : {Tier::fast, Tier::slow}) {
      const double in_block = moved_.copied.of(size, to) * scale_;
      const double pages = in_block + late.copied.of(size, to) * scale_;
      copied(pages * static_cast<double>(bytes), other(to), to);
      out.away_ns += in_block * flights_.away_ns(size, to);
    }
  }
  for (const Tier tier : {Tier::fast, Tier::slow})
    if (reshapes_.collapsed(tier) > 0)
      copied(reshapes_.collapsed(tier) * scale_ * huge_page_bytes, tier, tier);
  out.flushed += (moved_.flushed + late.flushed + reshapes_.changed()) * scale_;
  out.moves_ns += time_.worked_ns();
}

}  // namespace tt::sim
