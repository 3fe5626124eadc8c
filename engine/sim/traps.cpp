// SPDX-License-Identifier: MIT

#include "sim/traps.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <numeric>
#include <unordered_set>
#include <utility>

#include "core/assert.hpp"
#include "core/math.hpp"
#include "sim/timing.hpp"

namespace tt::sim {

double first_access(std::uint64_t n, double u) {
  return -math::expm1(math::log1p(-u) / static_cast<double>(n));
}

std::uint32_t accesses_within(std::uint32_t n, double x, double u) {
  if (x >= 1) return n;
  double probability = 1;  // of none, by squaring
  std::uint32_t left = n;
  for (double power = 1 - x; left != 0; left >>= 1, power *= power)
    if ((left & 1) != 0) probability *= power;
  if (probability < 1e-300) return static_cast<std::uint32_t>(std::lround(n * x));
  std::uint32_t k = 0;
  for (double sum = probability; u >= sum && k < n; sum += probability) {
    probability *= (n - k) / (k + 1.0) * x / (1 - x);
    ++k;
  }
  return k;
}

Traps::Traps(PageTable& pages, Ledger& ledger, const MachineProfile& profile, double scale,
             double threads, std::uint64_t seed)
    : pages_(pages),
      ledger_(ledger),
      profile_(profile),
      scale_(scale),
      threads_(threads),
      rng_(mix64(seed ^ 0x7472617073ULL)),  // not the sampler's numbers
      again_(pages) {
  ledger_.counters().threads = threads;
}

std::uint64_t Traps::guard(PageRange range, Tiers which, PageMask untouched, double now_ns,
                           double entry_ns) {
  if (!protected_at_ms_) protected_at_ms_ = PerPage<std::uint32_t>{pages_.size()};
  fresh_.resize(mask_words(range.count));
  const std::uint64_t count = pages_.arm(Trap::guarded, range, which, untouched, fresh_);
  double at_ns = now_ns;
  for (std::size_t word = 0; word < fresh_.size(); ++word)
    for (std::uint64_t bits = fresh_[word]; bits != 0; bits &= bits - 1, at_ns += entry_ns)
      protected_at_ms_[range.first.value + word * 64 +
                       static_cast<std::uint64_t>(std::countr_zero(bits))] =
          static_cast<std::uint32_t>(std::llround(at_ns / 1e6));
  ledger_.counters().protected_pages += static_cast<double>(count);
  return count;
}

void Traps::leave_protected(std::span<const PageId> pages, double now_ns) {
  for (const PageId page : pages) (void)guard(pages_.unit(page.value), Tiers::both, {}, now_ns, 0);
}

std::uint64_t Traps::protect(PageRange range, Tiers which, PageMask untouched, double now_ns) {
  range = pages_.known(range);
  // One entry after the other, behind what this scan has done before.
  const std::uint64_t count =
      guard(range, which, untouched, now_ns + scan_ns_, scale_ * profile_.pte_ns);
  if (count == 0) return 0;
  // A unit has one entry.
  std::uint64_t entries = count;
  if (pages_.mixed())
    for (std::size_t word = 0; word < fresh_.size(); ++word)
      for (std::uint64_t bits = fresh_[word]; bits != 0; bits &= bits - 1) {
        const std::uint64_t page =
            range.first.value + word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
        const PageRange unit = pages_.unit(page);
        if (unit.first.value == page) entries -= unit.count - 1;
      }
  const double real = static_cast<double>(entries) * scale_;
  application_ns_ += real * profile_.pte_ns + threads_ * profile_.tlb_flush_us * 1e3;
  const double took_ns = real * profile_.pte_ns + profile_.tlb_flush_us * 1e3;
  scan_ns_ += took_ns;
  ledger_.counters().protect_seconds += took_ns * 1e-9;
  ledger_.sums()[Sum::pages_protected] += real;
  return count;
}

void Traps::first_touched(const PageTable::Placed& placed) {
  double each_line_ns = 0;
  for (std::size_t t = 0; t < tier_count; ++t)
    each_line_ns += static_cast<double>(placed.pages[t]) * profile_.tiers[t].latency_ns;
  const double lines = static_cast<double>(pages_.page_bytes()) / line_bytes;
  application_ns_ += scale_ * (static_cast<double>(placed.faults) * profile_.first_touch_us * 1e3 +
                               each_line_ns * lines / profile_.clear_overlap);
}

void Traps::accessed(PageRange range, PageMask out, bool clear) {
  pages_.unarmed(Trap::idle, range, out);
  for (std::uint64_t i = 0; !again_.is_idle() && i < range.count; ++i) {
    const std::uint64_t page = pages_.unit(range.first.value + i).first.value;
    if (!in_mask(out, i) && again_.is_accessed(page, rng_)) {
      out[i / 64] |= std::uint64_t{1} << (i % 64);
      if (!clear) pages_.disarm(Trap::idle, page);
    }
    if (clear) again_.cleared(page);
  }
  if (clear) pages_.arm(Trap::idle, range, Tiers::both);
}

void Traps::accessed(std::span<const PageId> pages, PageMask out, bool clear) {
  std::ranges::fill(out, 0);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    std::uint64_t bit = 0;
    accessed({pages[i], 1}, {&bit, 1}, clear);
    out[i / 64] |= bit << (i % 64);
  }
}

void Traps::probe(std::span<const Probe> probes, double now_ns) {
  if (probes.empty()) return;
  if (!unseen_) unseen_ = PerPage<Unseen>{pages_.size()};
  Round& round = rounds_.emplace_back();
  round.probes.assign(probes.begin(), probes.end());
  // A tick within a block asks from its own time on, but the block has been played: the whole call
  // is put off until now.
  const Nanos first = std::ranges::min(round.probes, {}, &Probe::from).from;
  const Nanos late = std::max(Nanos{0}, whole_ns(now_ns) - first);
  for (Probe& probe : round.probes) {
    probe.accessed = false;
    probe.from += late;
    const auto end_ns = static_cast<double>((probe.from + probe.length).count());
    round.end_ns = std::max(round.end_ns, end_ns);
    arm(probe);
  }
}

void Traps::arm_probes() {
  if (!pages_.mixed()) return;
  for (const Round& round : rounds_)
    for (const Probe& probe : round.probes) arm(probe);
}

void Traps::arm(const Probe& probe) {
  const std::uint64_t page = pages_.unit(probe.page.value).first.value;
  if (pages_.where(page) == Residency::absent || pages_.armed(Trap::probed, page)) return;
  unseen_[page] = {};
  pages_.arm(Trap::probed, page);
}

void Traps::forget(PageRange range) {
  ledger_.counters().protected_pages -= static_cast<double>(pages_.count(Trap::guarded, range));
}

void Traps::touch(const trace::Segment& segment, std::uint64_t page, std::uint64_t count) {
  if (count == 0) return;  // a stream may hold such entries; they are no accesses
  pages_.disarm(Trap::idle, page);
  if (pages_.armed(Trap::probed, page)) unseen_[page].accesses += static_cast<std::uint32_t>(count);
  if (pages_.armed(Trap::guarded, page))
    touched_.push_back(
        {static_cast<std::uint32_t>(page), segment.stream_class, segment.kind, count});
}

/// One access of each page is the first, any of them with the same probability. The places come
/// from an additive golden-ratio sequence, which varies less than random numbers do; it starts anew
/// at random in each block, so that no page meets the same numbers again.
void Traps::draw() {
  if (touched_.empty()) return;
  std::ranges::stable_sort(touched_, {}, &Touched::page);
  constexpr double golden = 0.6180339887498949;
  double u = rng_.uniform();
  for (auto at = touched_.begin(); at != touched_.end();) {
    std::uint64_t sum = 0;
    auto end = at;
    for (; end != touched_.end() && end->page == at->page; ++end) sum += end->count;
    auto first = at;
    if (end - at > 1)
      for (std::uint64_t pick = rng_.below(sum); pick >= first->count; ++first)
        pick -= first->count;
    firsts_.push_back({first->page, first->stream_class, first->kind, first_access(sum, u)});
    u += golden;
    u -= std::floor(u);
    at = end;
  }
  touched_.clear();
}

void Traps::disturb(Interference& out) {
  out.application_ns += std::exchange(application_ns_, 0.0);
  scanned_ns_ = std::exchange(scan_ns_, 0.0);
}

void Traps::settle(double block_ns, const Lanes& lanes, Policy& policy) {
  for (First& first : firsts_) {  // the lane's block ends now, and began with a thread's scan
    const double block = lanes.of_class(first.stream_class).time.total;
    first.at_ns =
        lanes.now_ns() - (1 - first.place) * std::max(block - scanned_ns_ / threads_, 0.0);
  }
  in_time_.resize(firsts_.size());
  std::iota(in_time_.begin(), in_time_.end(), 0U);
  std::ranges::stable_sort(in_time_, {}, [this](std::uint32_t i) { return firsts_[i].at_ns; });
  if (!rounds_.empty()) answer_probes(block_ns, lanes.now_ns(), policy);
}

double Traps::deliver(double until_ns, double late_ns, Lanes& lanes, Policy& policy) {
  if (firsts_.empty() || firsts_[in_time_[delivered_]].at_ns > until_ns) return until_ns;
  const First& first = firsts_[in_time_[delivered_]];
  TT_ASSERT(pages_.armed(Trap::guarded, first.page));
  const double since_ns = first.at_ns + late_ns - protected_at_ms_[first.page] * 1e6;
  const Fault fault{PageId{first.page}, pages_.tier_of(first.page), first.kind,
                    whole_ns(std::max(since_ns, 0.0))};
  pages_.disarm(Trap::guarded, first.page);
  lanes.take_faults(first.stream_class, 1);
  ledger_.counters().hint_faults += 1;
  ledger_.counters().protected_pages -= static_cast<double>(pages_.unit(first.page).count);
  ledger_.sums()[Sum::hint_faults] += scale_;
  until_ns = first.at_ns;
  faulted_ = &first;
  policy.on_faults({&fault, 1}, whole_ns(until_ns + late_ns));
  faulted_ = nullptr;
  if (++delivered_ == firsts_.size()) {
    firsts_.clear();
    delivered_ = 0;
  }
  return until_ns;
}

std::optional<std::uint32_t> Traps::faulted(PageId page) const {
  if (faulted_ == nullptr || pages_.unit(page.value).first.value != faulted_->page)
    return std::nullopt;
  return faulted_->stream_class;
}

void Traps::fault_again(PageId page, std::uint32_t times, Lanes& lanes) {
  const auto stream_class = faulted(page);
  if (!stream_class)
    throw std::logic_error("Memory::fault_again: for a page that has not just faulted");
  lanes.take_faults(*stream_class, times);
  ledger_.counters().hint_faults += times;
  ledger_.sums()[Sum::hint_faults] += times * scale_;
}

bool Traps::consistent() const {
  std::uint64_t probed = 0;
  std::unordered_set<std::uint64_t> seen;
  for (const Round& round : rounds_)
    for (const Probe& probe : round.probes) {
      const PageRange unit = pages_.unit(probe.page.value);
      if (!pages_.armed(Trap::probed, unit.first.value)) continue;  // absent, or new since
      if (seen.insert(unit.first.value).second) probed += unit.count;
    }
  return delivered_ <= in_time_.size() && (firsts_.empty() || in_time_.size() == firsts_.size()) &&
         probed == pages_.count(Trap::probed) &&
         ledger_.counters().protected_pages == static_cast<double>(pages_.count(Trap::guarded));
}

/// The part of the probe that lies in the block.
void Traps::look(Probe& probe, double start_ns, double end_ns) {
  if (probe.accessed || !pages_.armed(Trap::probed, probe.page.value)) return;
  Unseen& page = unseen_[pages_.unit(probe.page.value).first.value];
  if (page.accesses == 0) return;
  const double from = std::max(start_ns, static_cast<double>(probe.from.count()));
  const double to = std::min(end_ns, static_cast<double>((probe.from + probe.length).count()));
  if (to <= from) return;
  const double share = (to - from) / (end_ns - start_ns);
  const double unseen = 1 - page.seen_share;
  const std::uint32_t found =
      accesses_within(page.accesses, share < unseen ? share / unseen : 1, rng_.uniform());
  page.accesses -= found;
  page.seen_share += static_cast<float>(share);
  probe.accessed = found > 0;
}

/// A page's accesses fall into the windows of its probes like balls into boxes: those in one window
/// are not in the next. So successive probes are as independent as the application's accesses are.
void Traps::answer_probes(double block_ns, double now_ns, Policy& policy) {
  // In a block of a lane that is behind, virtual time does not advance: its accesses count in the
  // next block in which it does.
  if (block_ns > 0) {
    for (Round& round : rounds_)
      for (Probe& probe : round.probes) look(probe, now_ns - block_ns, now_ns);
    for (const Round& round : rounds_)
      for (const Probe& probe : round.probes)
        if (pages_.armed(Trap::probed, probe.page.value))
          unseen_[pages_.unit(probe.page.value).first.value] = {};
  }
  const auto over = std::ranges::stable_partition(
      rounds_, [&](const Round& round) { return round.end_ns > now_ns; });
  if (over.empty()) return;
  const std::vector<Round> answered(std::make_move_iterator(over.begin()),
                                    std::make_move_iterator(over.end()));
  rounds_.erase(over.begin(), over.end());
  for (const Round& round : answered)
    for (const Probe& probe : round.probes) pages_.disarm(Trap::probed, probe.page.value);
  for (const Round& round : rounds_)  // a page may be asked for by several rounds
    for (const Probe& probe : round.probes)
      if (pages_.where(probe.page.value) != Residency::absent)
        pages_.arm(Trap::probed, probe.page.value);
  for (const Round& round : answered) policy.on_probed(round.probes, whole_ns(now_ns));
}

}  // namespace tt::sim
