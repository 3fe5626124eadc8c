// SPDX-License-Identifier: MIT

#include "sim/flights.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/assert.hpp"
#include "core/math.hpp"

namespace tt::sim {
namespace {

/// A move to a page's shadow changes mappings and copies nothing. Estimate: a quarter of the fixed
/// cost, which includes the system call, allocation and two page-table updates.
constexpr double remap_share = 0.25;

}  // namespace

double abort_probability(double share, std::uint64_t stores) {
  if (stores == 0) return 0;
  if (share >= 1) return 1;
  return -math::expm1(static_cast<double>(stores) * math::log1p(-share));
}

Moved& Moved::operator+=(const Moved& more) {
  for (const MoveSize size : move_sizes)
    for (const Tier to : {Tier::fast, Tier::slow}) copied.of(size, to) += more.copied.of(size, to);
  remapped += more.remapped;
  flushed += more.flushed;
  return *this;
}

Flights::Flights(PageTable& pages, Ledger& ledger, MoveResults& results,
                 const MachineProfile& profile, double scale, std::uint64_t seed)
    : pages_(pages),
      ledger_(ledger),
      results_(results),
      profile_(profile),
      scale_(scale),
      rng_(mix64(seed ^ 0x6d6f766572ULL)),  // not the sampler's numbers
      last_moves_(pages.size()) {}

void Flights::price(const Load& load, const Movers& movers) {
  const double threads = std::max(1.0, static_cast<double>(movers.threads));
  for (const MoveSize size : move_sizes) {
    if (size == MoveSize::unit && !pages_.mixed()) break;
    const double bytes = size == MoveSize::page ? static_cast<double>(pages_.page_bytes())
                                                : static_cast<double>(huge_page_bytes);
    for (const Tier to : {Tier::fast, Tier::slow})
      move_ns_.of(size, to) = move_ns(profile_, to, bytes, threads, load, movers.together);
  }
}

Flight* Flights::depart(PageId page, Tier to, const Movers& movers, bool in_fault) {
  const std::uint64_t count = pages_.unit(page.value).count;
  const bool remap = to == Tier::slow && pages_.armed(Trap::shadowed, page.value);
  if (!remap && pages_.free(to) < count) {
    results_.report({page, to, count}, Outcome::no_space);
    return nullptr;
  }
  if (!remap) pages_.take(to, count);  // else it has its slot
  // Only promotions in the background are transactional: a thread that waits for its copy leaves
  // nobody to write to the page meanwhile, and kswapd demotes as it always does.
  Movers how = movers;
  if (remap || ((in_fault || to == Tier::slow) && how.copy == Copy::transactional))
    how.copy = Copy::blocking;
  pages_.depart(page, how.copy);
  Flight& flight =
      flights_.emplace_back(Flight{{page, to, count}, how, in_fault, remap, true, 1, how.retries});
  flight.flush = !pages_.armed(Trap::guarded, page.value);
  ++toward_.of(flight.move);
  ledger_.sums()[sums_of(to).started] += scale_ * static_cast<double>(count);
  return &flight;
}

double Flights::all_ns(const Flight& flight) const {
  if (flight.remap) return remap_share * profile_.migration_fixed_us * 1e3 * scale_;
  return move_ns_.of(flight.move) * scale_;
}

bool Flights::copy(Flight& flight, MoverTime& time, Moved& moved) {
  TT_ASSERT(flight.left > 0 && flight.left <= 1);  // else its slot would be vacated twice
  const double all = all_ns(flight);
  const double left_ns = time.left_ns();
  const bool whole = flight.in_fault || flight.left * all <= left_ns;
  const double part = whole ? flight.left : left_ns / all;
  if (!flight.in_fault) time.use(part * all);
  (flight.remap ? moved.remapped : moved.copied.of(flight.move)) += part;
  if (flight.flush) moved.flushed += part;
  flight.left = whole ? 0 : flight.left - part;
  if (whole && !flight.keeps_slot()) pages_.vacate(other(flight.move.to), flight.move.pages);
  return whole;
}

bool Flights::copy(MoverTime& time, Moved& moved, bool played) {
  bool all = true;
  for (Flight& flight : flights_)
    if (flight.left > 0 && !(played && waits(flight.move.page, flight.how)))
      all = copy(flight, time, moved) && all;
  return all;
}

void Flights::land(double now_ns, bool played) {
  std::erase_if(flights_, [&](Flight& flight) {
    return !(played && waits(flight.move.page, flight.how)) && over(flight, now_ns);
  });
}

/// Whether a move has ended, one way or the other.
bool Flights::over(Flight& flight, double now_ns) {
  if (flight.left > 0) return false;
  if (!voided(flight)) {
    arrive(flight, now_ns);
    return true;
  }
  ledger_.sums()[Sum::copies_voided] += scale_ * static_cast<double>(flight.move.pages);
  if (flight.retries > 0) {
    --flight.retries;
    flight.left = 1;
    return false;
  }
  pages_.vacate(flight.move.to, flight.move.pages);
  pages_.stay(flight.move.page);
  ended(flight);
  results_.report(flight.move, Outcome::busy);
  return true;
}

/// Whether a store of this block has hit the copy.
bool Flights::voided(Flight& flight) {
  if (flight.how.copy != Copy::transactional) return false;
  const auto found = stores_.find(flight.move.page.value);
  if (found == stores_.end() || found->second == 0) return false;
  const double share = block_ns_ > 0 ? std::min(1.0, move_ns_.of(flight.move) / block_ns_) : 1;
  return rng_.uniform() < abort_probability(share, found->second);
}

void Flights::arrive(const Flight& flight, double now_ns) {
  const auto [page, to, pages] = flight.move;
  const auto count = static_cast<double>(pages);
  ended(flight);
  pages_.arrive(page, to);
  if (flight.remap) {
    pages_.disarm(Trap::shadowed, page.value);
    ledger_.counters().shadow_pages -= count;
  }
  if (to == Tier::fast && flight.how.shadows) {
    pages_.arm(Trap::shadowed, page.value);
    ledger_.counters().shadow_pages += count;
  } else if (flight.how.copy == Copy::transactional) {
    pages_.vacate(other(to), pages);
  }
  if (last_moves_.move(page, now_ns)) ledger_.sums()[Sum::ping_pongs] += scale_ * count;
  if (!flight.remap)
    ledger_.sums()[Sum::migrated_bytes] +=
        static_cast<double>(pages_.page_bytes() * pages) * scale_;
  results_.report(flight.move, Outcome::done, move_ns_.of(flight.move));
}

void Flights::ended(const Flight& flight) {
  TT_ASSERT(toward_.of(flight.move) > 0);
  --toward_.of(flight.move);
}

bool Flights::let_go_of_shadow(std::uint64_t page) {
  // A page on its way to its shadow is there before anybody writes to it.
  if (!pages_.armed(Trap::shadowed, page) || pages_.in_flight(page)) return false;
  const std::uint64_t pages = pages_.unit(page).count;
  pages_.disarm(Trap::shadowed, page);
  pages_.vacate(Tier::slow, pages);
  ledger_.counters().shadow_pages -= static_cast<double>(pages);
  return true;
}

void Flights::forget(PageRange range) {
  last_moves_.forget(range);
  std::erase_if(flights_, [&](const Flight& flight) {
    if (!range.contains(flight.move.page)) return false;
    ended(flight);
    if (!flight.remap) pages_.vacate(flight.move.to, flight.move.pages);  // that it was to have
    results_.report(flight.move, Outcome::gone);
    return true;
  });
  ledger_.counters().shadow_pages -= static_cast<double>(pages_.count(Trap::shadowed, range));
}

void Flights::cancel(PageRange unit) {
  std::erase_if(flights_, [&](const Flight& flight) {
    const auto [page, to, pages] = flight.move;
    if (page != unit.first) return false;
    ended(flight);
    if (!flight.remap) pages_.vacate(to, pages);
    // What has been copied whole has left its slot already.
    if (flight.left <= 0 && !flight.keeps_slot()) pages_.take(other(to), pages);
    pages_.stay(page);
    results_.report(flight.move, Outcome::busy);
    return true;
  });
}

bool Flights::consistent() const {
  ByMove<std::uint64_t> toward;
  std::uint64_t pages = 0;
  std::array<std::uint64_t, tier_count> slots{pages_.present(Tier::fast),
                                              pages_.present(Tier::slow)};
  slots[index(Tier::slow)] += pages_.count(Trap::shadowed);
  for (const Flight& flight : flights_) {
    const auto [page, to, count] = flight.move;
    if (!flight.remap) slots[index(to)] += count;
    if (flight.left <= 0 && !flight.keeps_slot()) slots[index(other(to))] -= count;
    if (!pages_.in_flight(page.value) || pages_.tier_of(page.value) != other(to)) return false;
    if (pages_.unit(page.value) != PageRange{page, count}) return false;
    ++toward.of(flight.move);
    pages += count;
  }
  for (const MoveSize size : move_sizes)
    for (const Tier to : {Tier::fast, Tier::slow})
      if (toward.of(size, to) != toward_.of(size, to)) return false;
  for (const Tier tier : {Tier::fast, Tier::slow})
    if (slots[index(tier)] != pages_.used(tier)) return false;
  return pages == pages_.in_flight();
}

}  // namespace tt::sim
