// SPDX-License-Identifier: MIT

#include "migrate/scan_clock.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/timer_tick.hpp"

namespace tt::migrate {
namespace {

constexpr double mebibyte = 1 << 20;
constexpr std::uint64_t futile_windows = 8;  // fair.c: virtpages = pages * 8
constexpr int rest = 32;                     // fair.c: node_stamp += 32 * diff

double pages(const Memory& memory, double mebibytes) {
  return mebibytes * mebibyte / static_cast<double>(memory.page_bytes());
}

}  // namespace

ScanClock::ScanClock(Memory& memory, const Knobs& knobs)
    : memory_(memory),
      window_pages_(pages(memory, knobs.real("scan_size"))),
      least_(from_seconds(knobs.real("scan_size") / (1024 * knobs.real("max_scan_rate")))),
      pass_min_(from_millis(knobs.real("scan_period_min"))),
      pass_max_(from_millis(knobs.real("scan_period_max"))),
      budget_(window_pages_) {}

std::uint64_t ScanClock::run(Nanos now, Tiers which, const Untouched& untouched) {
  called_ = now;
  if (stamp_ == Nanos{}) {
    if (now < delay) return 0;
    adapted_ = period();
    stamp_ = delay;
    next_ = 2 * delay;
  }
  const bool is_due = due(now);
  if (const Nanos between = step(); now >= stamp_ + between)
    stamp_ += (now - stamp_) / between * between;
  if (!is_due) return 0;
  next_ = stamp_ + period();
  const double before = memory_.counters().protect_seconds;
  std::uint64_t left = budget_.next();
  std::uint64_t futile = left * futile_windows;
  std::uint64_t count = 0;
  bool begun = false;
  while (left > 0 && futile > 0) {
    const PageRange part = space_.next(cursor_, std::min(left, futile));
    if (part.count == 0) break;
    if (part.first < cursor_ && (begun || !ended_)) {  // the end of the address space ends it
      ended_ = true;
      ++passes_;
      cursor_ = PageId{};  // not at what has come meanwhile behind it
      break;
    }
    begun = true;
    ended_ = false;
    untouched_.assign(untouched ? mask_words(part.count) : 0, 0);
    const std::uint64_t more = memory_.protect(part, which, untouched_);
    if (untouched) untouched(part, untouched_);
    count += more;
    if (more > 0) left -= part.count;
    futile -= part.count;
    cursor_ = part.end();
  }
  const Counters after = memory_.counters();
  const Nanos took = from_seconds(after.protect_seconds - before);
  threads_ = std::max(1.0, after.threads);
  stamp_ += from_seconds(rest * seconds(took) / threads_);
  return count;
}

Nanos ScanClock::pause() const {
  if (stamp_ == Nanos{}) return std::max(delay - called_, timer_tick);
  const Nanos between = step();
  Nanos at = stamp_ + between;
  if (at < next_) at += (next_ - at + between - Nanos{1}) / between * between;
  return std::max(at - called_, timer_tick);
}

Nanos ScanClock::step() const {
  return std::max(from_seconds(seconds(period()) / threads_), Nanos{1});
}

Nanos ScanClock::period() const { return std::clamp(adapted_, shortest(), longest()); }

void ScanClock::adapt(double fast_faults, double slow_faults, bool failed, Nanos now) {
  // In tenths: above seven of ten in the fast tier scanning slows down, below it speeds up.
  constexpr double slots = 10, threshold = 7;
  const double faults = fast_faults + slow_faults;
  const Nanos old = period();
  double change = 0;
  if (faults == 0 || failed) {
    change = slots;
  } else if (const double local = std::floor(slots * fast_faults / faults); local >= threshold) {
    change = std::max(1.0, local - threshold);
  } else {
    change = local - threshold;
  }
  const auto next =
      Nanos{static_cast<std::int64_t>(static_cast<double>(old.count()) * (1 + change / slots))};
  adapted_ = std::clamp(next, shortest(), longest());
  if (faults == 0 || failed) next_ = now + adapted_;
}

double ScanClock::windows() const {
  std::uint64_t resident = 0;
  for (const Tier tier : {Tier::fast, Tier::slow})
    resident += memory_.capacity(tier) - memory_.free_pages(tier);
  return std::floor(static_cast<double>(resident) / window_pages_) + 1;
}

Nanos ScanClock::shortest() const {
  return std::max(least_, from_seconds(seconds(pass_min_) / windows()));
}

Nanos ScanClock::longest() const {
  return std::max(shortest(), from_seconds(seconds(pass_max_) / windows()));
}

std::vector<KnobDecl> scan_clock_knobs(std::string scan_period_max_meaning) {
  using namespace knob;
  const std::string linux_ = "Linux 6.3, numa_balancing";
  return list(
      real("scan_size", 256, {16, 4096, log}, mebibytes, linux_ + "/scan_size_mb",
           "memory whose access rights are taken away at a time"),
      real("scan_period_min", 1000, {100, 60000, log}, milliseconds, linux_ + "/scan_period_min_ms",
           "shortest time that a pass over the memory takes"),
      real("scan_period_max", 60000, {1000, 600000, log}, milliseconds,
           linux_ + "/scan_period_max_ms", std::move(scan_period_max_meaning)),
      real("max_scan_rate", 2.5, {0.1, 100, log}, gib_per_second, linux_ + ", MAX_SCAN_WINDOW",
           "most memory that is scanned in a second"));
}

}  // namespace tt::migrate
