#include "sim/mover.hpp"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/math.hpp"
#include "sim/timing.hpp"

namespace tt::sim {
namespace {

constexpr double ping_pong_ns = 10e9;
/// A move to a page's shadow changes mappings and copies nothing. Estimate: a quarter of the fixed
/// cost, which includes the system call, allocation and two page-table updates.
constexpr double remap_share = 0.25;

/// The sum for demotions that belongs to one for promotions, if the move is one.
Sum directed(Sum promotion, Tier to) {
  constexpr auto step =
      static_cast<int>(Sum::demotions_requested) - static_cast<int>(Sum::promotions_requested);
  return static_cast<Sum>(static_cast<int>(promotion) + (to == Tier::fast ? 0 : step));
}

}  // namespace

double abort_probability(double share, std::uint64_t stores) {
  if (stores == 0) return 0;
  if (share >= 1) return 1;
  return -math::expm1(static_cast<double>(stores) * math::log1p(-share));
}

Mover::Mover(PageTable& pages, Ledger& ledger, const MachineProfile& profile, double scale,
             std::uint64_t seed)
    : pages_(pages),
      ledger_(ledger),
      profile_(profile),
      scale_(scale),
      rng_(mix64(seed ^ 0x6d6f766572ULL)),  // not the sampler's numbers
      queue_(1024 + 2 * pages.capacity(Tier::fast)),
      queued_{PageBits{pages.size()}, PageBits{pages.size()}},
      moved_at_ms_(static_cast<std::uint32_t*>(
          std::calloc(std::max<std::uint64_t>(pages.size(), 1), sizeof(std::uint32_t)))) {
  if (!moved_at_ms_) throw std::bad_alloc();
}

void Mover::set(const Movers& movers) {
  if (movers.together == 0 || movers.together > std::max(1U, movers.threads))
    throw std::invalid_argument("as many threads as copy one page together must be there");
  movers_ = movers;
  transactional_ = transactional_ || movers.copy == Copy::transactional;
}

/// What a move costs in this block, also one in a fault after it.
void Mover::price(const Load& load) {
  const double threads = std::max(1.0, static_cast<double>(movers_.threads));
  for (const Tier to : {Tier::fast, Tier::slow})
    move_ns_[0][index(to)] = move_ns(profile_, to, static_cast<double>(pages_.page_bytes()),
                                     threads, load, movers_.together);
  if (!pages_.mixed()) return;
  for (const Tier to : {Tier::fast, Tier::slow})
    move_ns_[1][index(to)] =
        move_ns(profile_, to, huge_page_bytes, threads, load, movers_.together);
}

std::size_t Mover::request(Tier to, std::span<const PageId> pages) {
  std::size_t taken = 0;
  for (; taken < pages.size(); ++taken) {
    const auto [page, count] = pages_.unit(pages[taken].value);
    if (pages_.where(page.value) == Residency::absent) {
      report({page, to, count}, Outcome::gone);
      continue;
    }
    if (queued_[index(to)].test(page.value)) continue;
    // Where it will be once what it is doing now, and what is queued for it, is done.
    const Tier here = pages_.tier_of(page.value);
    Tier destination = pages_.in_flight(page.value) ? other(here) : here;
    if (queued_[index(other(to))].test(page.value)) destination = other(to);
    if (destination == to) continue;
    if (queue_.full()) break;
    queue_.push({page, to, count});
    queued_[index(to)].set(page.value);
    ledger_.sums()[directed(Sum::promotions_requested, to)] += scale_ * static_cast<double>(count);
  }
  ledger_.sums()[directed(Sum::promotions_rejected, to)] +=
      static_cast<double>(pages.size() - taken) * scale_;
  return taken;
}

void Mover::report(const Move& move, Outcome outcome) {
  const auto [page, to, pages] = move;
  const auto count = static_cast<double>(pages);
  MigrationResult result{.page = page, .to = to, .outcome = outcome};
  if (outcome == Outcome::done)
    result.cost = whole_ns(move_ns_[pages > 1 ? 1 : 0][index(to)] / count);
  results_.push_back(result);
  if (outcome == Outcome::busy) return;  // counted as a started move that did not end
  Sum sum = Sum::promotions;
  if (outcome == Outcome::no_space) sum = Sum::promotions_no_space;
  if (outcome == Outcome::gone) sum = Sum::promotions_gone;
  ledger_.sums()[directed(sum, to)] += scale_ * count;
}

/// Puts a page into flight, if there is room where it goes.
bool Mover::depart(PageId page, Tier to, bool in_fault) {
  const std::uint64_t count = pages_.unit(page.value).count;
  const bool remap = to == Tier::slow && pages_.armed(Trap::shadowed, page.value);
  if (!remap && pages_.free(to) < count) {
    report({page, to, count}, Outcome::no_space);
    return false;
  }
  if (!remap) pages_.take(to, count);  // else it has its slot
  // Only promotions in the background are transactional: a thread that waits for its copy leaves
  // nobody to write to the page meanwhile, and kswapd demotes as it always does.
  Movers how = movers_;
  if (remap || ((in_fault || to == Tier::slow) && how.copy == Copy::transactional))
    how.copy = Copy::blocking;
  pages_.depart(page, how.copy);
  in_flight_.push_back({{page, to, count}, how, in_fault, remap, 1, how.retries});
  ++moving_to_[in_flight_.back().size()][index(to)];
  ledger_.sums()[directed(Sum::promotions_started, to)] += scale_ * static_cast<double>(count);
  return true;
}

double Mover::move_in_fault(PageId faulted, Tier to) {
  const auto [page, count] = pages_.unit(faulted.value);
  if (pages_.where(page.value) == Residency::absent) {
    report({page, to, count}, Outcome::gone);
    return 0;
  }
  if (pages_.in_flight(page.value) || pages_.tier_of(page.value) == to) return 0;
  ledger_.sums()[directed(Sum::promotions_requested, to)] += scale_ * static_cast<double>(count);
  return depart(page, to, true) ? each_ns(in_flight_.back()) : 0;
}

/// At the border: whether a move is over, one way or the other.
bool Mover::over(InFlight& moving, double now_ns) {
  if (moving.left > 0) return false;
  const auto [page, to, pages] = moving.move;
  const auto count = static_cast<double>(pages);
  const double move_ns = move_ns_[moving.size()][index(to)];
  if (moving.how.copy == Copy::transactional) {
    const auto found = stores_.find(page.value);
    const double share = block_ns_ > 0 ? std::min(1.0, move_ns / block_ns_) : 1;
    const std::uint64_t stores = found == stores_.end() ? 0 : found->second;
    if (stores > 0 && rng_.uniform() < abort_probability(share, stores)) {
      ledger_.sums()[Sum::copies_voided] += scale_ * count;
      if (moving.retries-- > 0) {
        moving.left = 1;
        return false;
      }
      pages_.vacate(to, pages);
      pages_.stay(page);
      --moving_to_[moving.size()][index(to)];
      report(moving.move, Outcome::busy);
      return true;
    }
  }
  --moving_to_[moving.size()][index(to)];
  pages_.arrive(page, to);
  if (moving.remap) {
    pages_.disarm(Trap::shadowed, page.value);
    ledger_.counters().shadow_pages -= count;
  }
  if (to == Tier::fast && moving.how.shadows) {
    pages_.arm(Trap::shadowed, page.value);
    ledger_.counters().shadow_pages += count;
  } else if (moving.how.copy == Copy::transactional) {
    pages_.vacate(other(to), pages);
  }
  std::uint32_t& last = moved_at_ms_[page.value];
  const auto stamp = static_cast<std::uint32_t>(now_ns / 1e6) + 1;
  if (last != 0 && (stamp - last) * 1e6 < ping_pong_ns)
    ledger_.sums()[Sum::ping_pongs] += scale_ * count;
  last = stamp;
  if (!moving.remap)
    ledger_.sums()[Sum::migrated_bytes] +=
        static_cast<double>(pages_.page_bytes() * pages) * scale_;
  report(moving.move, Outcome::done);
  return true;
}

void Mover::finish(double now_ns, Policy& policy) {
  std::erase_if(in_flight_, [&](InFlight& moving) { return over(moving, now_ns); });
  moved_now_ = {};
  remapped_now_ = reshaped_now_ = 0;
  std::ranges::fill(collapsed_now_, 0.0);
  stores_.clear();
  tell(now_ns, policy);
}

void Mover::tell(double now_ns, Policy& policy) {
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
    const auto [page, to, pages] = moving.move;
    if (!range.contains(page)) return false;
    --moving_to_[moving.size()][index(to)];
    if (!moving.remap) pages_.vacate(to, pages);  // the slot that it was to have
    report(moving.move, Outcome::gone);
    return true;
  });
  ledger_.counters().shadow_pages -= static_cast<double>(pages_.count(Trap::shadowed, range));
  if (!was_queued) return;
  queue_.remove_if([&](const Move& move) {
    if (!range.contains(move.page)) return false;
    report(move, Outcome::gone);
    return true;
  });
}

void Mover::cancel(PageRange unit) {
  std::erase_if(in_flight_, [&](const InFlight& moving) {
    const auto [page, to, pages] = moving.move;
    if (page != unit.first) return false;
    --moving_to_[moving.size()][index(to)];
    if (!moving.remap) pages_.vacate(to, pages);
    // What has been copied whole has left its slot already.
    const bool left = moving.left <= 0 && moving.how.copy != Copy::transactional &&
                      !(to == Tier::fast && moving.how.shadows);
    if (left) pages_.take(other(to), pages);
    pages_.stay(page);
    report(moving.move, Outcome::busy);
    return true;
  });
}

std::size_t Mover::reshape(Change to, std::span<const PageId> units) {
  for (const PageId page : units) reshapes_.emplace_back(to, page);
  return units.size();
}

void Mover::split_at_once(PageRange unit) {
  const auto guarded = static_cast<double>(pages_.count(Trap::guarded, unit));
  const auto shadowed = static_cast<double>(pages_.count(Trap::shadowed, unit));
  pages_.split(unit);
  ledger_.counters().protected_pages -=
      guarded - static_cast<double>(pages_.count(Trap::guarded, unit));
  ledger_.counters().shadow_pages -=
      shadowed - static_cast<double>(pages_.count(Trap::shadowed, unit));
}

/// At once, as far as there is time: a split changes mappings alone, a collapse copies what is
/// there into a new huge page.
void Mover::reshape_units(double budget_ns) {
  while (!reshapes_.empty() && used_ns_ < budget_ns) {
    const auto [change, page] = reshapes_.front();
    reshapes_.pop_front();
    MigrationResult result{.page = page, .outcome = Outcome::gone, .change = change};
    const PageRange unit = pages_.unit(page.value);
    const PageRange group{PageId{page.value / PageTable::unit_pages * PageTable::unit_pages},
                          PageTable::unit_pages};
    double cost_ns = 0;
    if (pages_.where(page.value) != Residency::absent) {
      result.to = pages_.tier_of(page.value);
      if (change == Change::split) {
        const bool held = pages_.in_flight(page.value) || pages_.armed(Trap::shadowed, page.value);
        result.outcome = held ? Outcome::busy : Outcome::done;
        if (unit.count > 1 && !held) {
          split_at_once(unit);
          cost_ns = profile_.split_us * 1e3;
        }
      } else {
        result.outcome = unit.count > 1 ? Outcome::done : pages_.collapse(group);
        if (unit.count == 1 && result.outcome == Outcome::done) {
          cost_ns = profile_.split_us * 1e3 + huge_page_bytes / profile_.migration_copy_gbps;
          collapsed_now_[index(result.to)] += 1;
        }
      }
    }
    result.cost = whole_ns(cost_ns / PageTable::unit_pages);
    if (cost_ns > 0) {
      used_ns_ += cost_ns * scale_;
      reshaped_now_ += 1;
      ledger_.sums()[change == Change::split ? Sum::units_split : Sum::units_collapsed] += scale_;
    }
    results_.push_back(result);
  }
}

bool Mover::accessed(std::uint64_t page, AccessKind kind, std::uint64_t count) {
  const bool stores = kind == AccessKind::store;
  if (pages_.armed(Trap::copied, page) || (transactional_ && pages_.armed(Trap::guarded, page)))
    stores_[page] += stores ? count : 0;
  if (!stores) return false;
  // A page on its way to its shadow is there before anybody writes to it.
  if (!pages_.armed(Trap::shadowed, page) || pages_.in_flight(page)) return false;
  const std::uint64_t pages = pages_.unit(page).count;
  pages_.disarm(Trap::shadowed, page);
  pages_.vacate(Tier::slow, pages);
  ledger_.counters().shadow_pages -= static_cast<double>(pages);
  return true;
}

/// Of all real pages behind the simulated one.
double Mover::each_ns(const InFlight& moving) const {
  if (moving.remap) return remap_share * profile_.migration_fixed_us * 1e3 * scale_;
  return move_ns_[moving.size()][index(moving.move.to)] * scale_;
}

/// Moves as many of the real pages as there is time for; says whether all of them have moved.
bool Mover::copy(InFlight& moving, double budget_ns) {
  const Tier to = moving.move.to;
  const double all_ns = each_ns(moving);
  const double time_ns = std::max(0.0, budget_ns - used_ns_);
  const bool all = moving.in_fault || moving.left * all_ns <= time_ns;
  const double part = all ? moving.left : time_ns / all_ns;
  if (!moving.in_fault) used_ns_ += part * all_ns;
  (moving.remap ? remapped_now_ : moved_now_[moving.size()][index(to)]) += part;
  moving.left = all ? 0 : moving.left - part;
  // A copy that may turn out void, or will stay behind as a shadow, keeps its slot.
  const bool stays = to == Tier::fast && moving.how.shadows;
  if (all && moving.how.copy != Copy::transactional && !stays)
    pages_.vacate(other(to), moving.move.pages);
  return all;
}

void Mover::start(double expected_ns, double idle_share, const Load& load) {
  used_ns_ = 0;
  granted_ns_ = credit_ns_;
  idle_ = true;
  price(load);
  if (queue_.empty() && in_flight_.empty() && reshapes_.empty()) return;
  const double time = movers_.threads > 0 ? pages_at_a_time() : idle_share;
  const double budget = credit_ns_ + expected_ns * time;
  bool in_time = true;
  for (InFlight& moving : in_flight_) in_time = copy(moving, budget) && in_time;
  if (in_time) reshape_units(budget);
  while (in_time && !queue_.empty() && used_ns_ < budget) {
    // A page that still moves has to arrive before it can move again.
    if (pages_.in_flight(pages_.unit(queue_.front().page.value).first.value)) break;
    const Move asked = queue_.front();
    queue_.pop();
    in_time = begin(asked, budget);
  }
  idle_ = in_time && used_ns_ < budget;
}

/// The first part of a move; says whether there is time left for others.
bool Mover::begin(const Move& asked, double budget_ns) {
  const Tier to = asked.to;
  queued_[index(to)].clear(asked.page.value);
  if (pages_.where(asked.page.value) == Residency::absent) {  // freed by a split
    report({asked.page, to, 1}, Outcome::gone);
    return true;
  }
  const PageId page = pages_.unit(asked.page.value).first;  // it may be part of a unit by now
  if (pages_.tier_of(page.value) == to || !depart(page, to, false)) return true;
  return copy(in_flight_.back(), budget_ns);
}

void Mover::go_on(double part, double block_ns, double left_ns, double now_ns, Policy& policy) {
  if (block_ns > 0) block_ns_ = block_ns;
  granted_ns_ += part * (movers_.threads > 0 ? block_ns * pages_at_a_time() : left_ns);
  const double budget = granted_ns_ - wasted_ns_;
  const auto waits = [this](const Movers& how, PageId page) {
    return how.copy == Copy::transactional && !stores_.contains(page.value);
  };
  // What the block has been played with stays as it is.
  const auto moved = std::exchange(moved_now_, {});
  const double remapped = std::exchange(remapped_now_, 0.0);
  bool in_time = true;
  for (InFlight& moving : in_flight_)
    if (moving.left > 0 && !waits(moving.how, moving.move.page))
      in_time = copy(moving, budget) && in_time;
  const auto serve = [&](const Move& asked) {
    const PageId page = pages_.unit(asked.page.value).first;
    if (!in_time || used_ns_ >= budget || pages_.in_flight(page.value)) return false;
    if (asked.to == Tier::fast && waits(movers_, page)) return false;
    in_time = begin(asked, budget);
    return true;
  };
  if (in_time && used_ns_ < budget && !queue_.empty()) queue_.remove_if(serve);
  idle_ = in_time && used_ns_ < budget;
  if (idle_) wasted_ns_ += budget - used_ns_;
  for (const std::size_t size : {0, 1})
    for (const std::size_t to : {0, 1}) moved_late_[size][to] += moved_now_[size][to];
  remapped_late_ += remapped_now_;
  moved_now_ = moved;
  remapped_now_ = remapped;
  std::erase_if(in_flight_, [&](InFlight& moving) {
    return !waits(moving.how, moving.move.page) && over(moving, now_ns);
  });
  tell(now_ns, policy);
}

void Mover::settle(double block_ns, double left_ns) {
  const double time_ns = movers_.threads > 0 ? block_ns * pages_at_a_time() : left_ns;
  credit_ns_ += time_ns - used_ns_ - wasted_ns_;
  wasted_ns_ = 0;
  // A block that lasted longer than expected is made up for in the next one, unless the mover was
  // idle.
  if (idle_) credit_ns_ = std::min(credit_ns_, 0.0);
  ledger_.sums()[Sum::mover_cpu_seconds] += used_ns_ * movers_.together * 1e-9;
  worked_ns_ = used_ns_ * movers_.together;
  if (block_ns > 0) block_ns_ = block_ns;
}

void Mover::disturb(Interference& out) {
  const auto copied = [&](double bytes, Tier from, Tier to) {
    out.traffic[index(to)].written += bytes;
    out.traffic[index(from)].read += bytes;
    out.lines += 2 * bytes / line_bytes;
  };
  for (const std::size_t size : {0, 1}) {
    if (size == 1 && !pages_.mixed()) break;
    for (const Tier to : {Tier::fast, Tier::slow}) {
      const double in_block = moved_now_[size][index(to)] * scale_;
      const double pages = in_block + std::exchange(moved_late_[size][index(to)], 0.0) * scale_;
      copied(pages * static_cast<double>(size == 0 ? pages_.page_bytes() : huge_page_bytes),
             other(to), to);
      out.moves += pages;
      out.away_ns += in_block * move_ns_[size][index(to)];
    }
  }
  for (const Tier tier : {Tier::fast, Tier::slow})
    if (collapsed_now_[index(tier)] > 0)
      copied(collapsed_now_[index(tier)] * scale_ * huge_page_bytes, tier, tier);
  out.moves += (remapped_now_ + std::exchange(remapped_late_, 0.0) + reshaped_now_) * scale_;
  out.moves_ns += worked_ns_;
}

}  // namespace tt::sim
