// SPDX-License-Identifier: MIT

#include "sim/pages.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

namespace tt::sim {
namespace {

/// Pages that are placed between two checks of the watermarks. A policy with Granularity::range is
/// asked once for each run, so that it can go by the pages that are still free.
constexpr std::uint64_t run = 512;

constexpr auto absent = static_cast<std::uint64_t>(Residency::absent);
static_assert(Residency{0} == Residency::fast && Residency{1} == Residency::slow);
static_assert(std::endian::native == std::endian::little, "the first page is the lowest byte");

/// Eight bits as bytes that are 0 or 1.
constexpr std::uint64_t in_bytes(std::uint64_t bits) {
  const std::uint64_t apart = (bits * 0x0101010101010101) & 0x8040201008040201;
  return ((apart + 0x7f7f7f7f7f7f7f7f) >> 7) & 0x0101010101010101;
}
static_assert(in_bytes(0x81) == 0x0100000000000001 && in_bytes(0xff) == 0x0101010101010101);

/// Adds 32 bits to a mask, the lowest of them at `place`; those before the mask's start are 0.
void add_bits(PageMask mask, std::int64_t place, std::uint64_t bits) {
  if (bits == 0 || mask.empty()) return;
  if (place < 0) {
    bits >>= -place;
    place = 0;
  }
  const auto word = static_cast<std::size_t>(place / 64);
  mask[word] |= bits << (place % 64);
  if (place % 64 > 32 && bits >> (64 - place % 64) != 0)
    mask[word + 1] |= bits >> (64 - place % 64);
}

/// The bits of a word whose lowest is at `place` that lie before `limit`.
std::uint32_t within(std::int64_t place, std::int64_t limit) {
  const std::int64_t bits = limit - place;
  if (bits >= 32) return ~std::uint32_t{0};
  return bits <= 0 ? 0 : (std::uint32_t{1} << bits) - 1;
}

}  // namespace

PageTable::PageTable(const Layout& layout)
    : layout_(layout),
      space_(layout.base_pages, page_shift(layout.page_bytes, layout.stream_page_bytes)),
      free_{layout.fast_pages, layout.slow_pages},
      present_(space_.pages()),
      slow_(space_.pages()),
      huge_(layout.mixed ? space_.pages() / unit_pages + 1 : 0),
      whole_(layout.mixed ? space_.pages() / unit_pages + 1 : 0),
      touched_(layout.mixed ? space_.pages() : 0) {}

PageRange PageTable::map(const trace::Event& event) {
  const PageRange range = space_.map(event);
  if (!layout_.mixed) return range;
  const std::uint64_t first = (range.first.value + unit_pages - 1) / unit_pages;
  const std::uint64_t end = range.end().value / unit_pages;
  if (first < end) {
    huge_.set(first, end - first);
    whole_.set(first, end - first);
  }
  return range;
}

double PageTable::huge_share() const {
  std::uint64_t in_units = 0;
  for (std::uint64_t first = 0; first + unit_pages <= size(); first += unit_pages)
    if (huge_.test(first / unit_pages)) in_units += present_.count(first, unit_pages);
  const std::uint64_t all = present_.count(0, size());
  return all == 0 ? 0 : static_cast<double>(in_units) / static_cast<double>(all);
}

std::array<PageRange, 2> PageTable::cut_by(PageRange range) const {
  std::array<PageRange, 2> cut{};
  if (range.count == 0) return cut;
  const PageRange low = unit(range.first.value);
  const PageRange high = unit(range.end().value - 1);
  if (low.first < range.first || low.end() > range.end()) cut[0] = low;
  if (high.first != low.first && high.end() > range.end()) cut[1] = high;
  return cut;
}

std::uint64_t PageTable::split(PageRange unit) {
  const auto [first, count] = unit;
  TT_ASSERT(count == unit_pages && this->unit(first.value) == unit && !in_flight(first.value));
  const Tier tier = tier_of(first.value);
  std::uint64_t freed = 0, shadows = 0;
  disarm(Trap::probed, first.value);  // Traps arms those that it probes
  huge_.clear(first.value / unit_pages);
  PageBits::each_word(first.value, count, [&](std::size_t word, std::uint32_t mask) {
    const std::uint32_t gone = present_.words()[word] & mask & ~touched_.words()[word];
    freed += static_cast<std::uint64_t>(std::popcount(gone));
    present_.words()[word] &= ~gone;
    slow_.words()[word] &= ~gone;
    for (std::size_t t = 0; t < trap_count; ++t) {
      if (planes_[t].empty()) continue;
      std::uint32_t& plane = planes_[t].words()[word];
      const auto cleared = static_cast<std::uint64_t>(std::popcount(plane & gone));
      if (t == index(Trap::shadowed)) shadows += cleared;
      pages_in_[t] -= cleared;
      plane &= ~gone;
    }
    for (PageBits& armed : armed_)
      if (!armed.empty()) armed.words()[word] &= ~gone;
  });
  vacate(tier, freed);
  vacate(Tier::slow, shadows);
  return freed;
}

Outcome PageTable::collapse(PageRange group) {
  const auto [first, count] = group;
  if (!whole_.test(first.value / unit_pages)) return Outcome::gone;
  const std::uint64_t there = present_.count(first.value, count);
  const std::uint64_t in_slow = slow_.count(first.value, count);
  if (there == 0) return Outcome::gone;
  if (in_slow != 0 && in_slow != there) return Outcome::busy;
  for (const Trap trap :
       {Trap::away, Trap::write_away, Trap::copied, Trap::shadowed, Trap::guarded, Trap::probed})
    if (this->count(trap, group) > 0) return Outcome::busy;
  const Tier tier = in_slow == 0 ? Tier::fast : Tier::slow;
  if (free(tier) < unit_pages) return Outcome::no_space;
  take(tier, unit_pages - there);
  present_.set(first.value, count);
  if (tier == Tier::slow) slow_.set(first.value, count);
  // One accessed bit: set if that of any page was.
  const std::uint64_t idle = this->count(Trap::idle, group);
  huge_.set(first.value / unit_pages);
  if (idle == there && idle > 0) {
    arm(Trap::idle, group, Tiers::both);
  } else if (idle > 0) {
    disarm(Trap::idle, group);
  }
  return Outcome::done;
}

/// By words: policies scan their whole address space.
void PageTable::residency(PageId first, std::span<Residency> out) const {
  const std::uint64_t known =
      first.value < size() ? std::min<std::uint64_t>(out.size(), size() - first.value) : 0;
  std::uint64_t i = 0;
  while (i < known) {
    const std::uint64_t page = first.value + i;
    const std::uint64_t end = std::min(known, i + 32 - page % 32);
    std::uint32_t is_there = present_.word(page) >> (page % 32);
    std::uint32_t is_slow = slow_.word(page) >> (page % 32);
    for (; i + 8 <= end; i += 8, is_there >>= 8, is_slow >>= 8) {
      const std::uint64_t there = in_bytes(is_there & 0xff), slow = in_bytes(is_slow & 0xff);
      const std::uint64_t eight = (there & slow) | (there ^ in_bytes(0xff)) * absent;
      std::memcpy(&out[i], &eight, 8);
    }
    for (; i < end; ++i, is_there >>= 1, is_slow >>= 1)
      out[i] = static_cast<Residency>(
          (is_there & 1U) != 0 ? is_slow & 1U : static_cast<unsigned>(Residency::absent));
  }
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(known), out.end(), Residency::absent);
}

PageTable::Placed PageTable::place(const trace::Event& event, Policy& policy, Nanos now) {
  const PageRange range = space_.cover(event);
  const std::uint64_t end = range.end().value;
  const bool by_page = layout_.placement == Granularity::page;
  if (layout_.mixed) return place_mixed(range, policy, now);
  Tier wanted = Tier::fast;
  Placed placed;
  for (std::uint64_t first = range.first.value; first < end; first += run) {
    if (short_of_fast()) policy.on_pressure(Tier::fast, now);
    const PageRange part{PageId{first}, std::min(run, end - first)};
    if (by_page) {
      for (std::uint64_t page = first; page < part.end().value; ++page)
        placed.add(first_touch(present_, slow_, page, 1, policy.placement({PageId{page}, 1}), free_,
                               reserve_));
      continue;
    }
    if (layout_.placement == Granularity::range) {
      wanted = policy.placement(part);
    } else if (first == range.first.value) {
      wanted = policy.placement(range);
    }
    placed.add(first_touch(present_, slow_, first, part.count, wanted, free_, reserve_));
  }
  return placed;
}

/// By groups: a unit is placed whole when one of its pages is touched, in the tier that has room
/// for all of it.
PageTable::Placed PageTable::place_mixed(PageRange range, Policy& policy, Nanos now) {
  const std::uint64_t end = range.end().value;
  Placed placed;
  for (std::uint64_t first = range.first.value; first < end;) {
    if (short_of_fast()) policy.on_pressure(Tier::fast, now);
    const std::uint64_t next = std::min(end, (first / unit_pages + 1) * unit_pages);
    const PageRange part{PageId{first}, next - first};
    const PageRange all = unit(first);
    touched_.set(first, part.count);
    if (all.count == 1) {
      placed.add(
          first_touch(present_, slow_, first, part.count, policy.placement(part), free_, reserve_));
    } else if (!present_.test(first)) {
      const Tier wanted = policy.placement(all);
      const std::uint64_t kept = wanted == Tier::fast ? reserve_ : 0;
      const Tier tier = free(wanted) >= kept + unit_pages ? wanted : other(wanted);
      take(tier, unit_pages);
      present_.set(all.first.value, unit_pages);
      if (tier == Tier::slow) slow_.set(all.first.value, unit_pages);
      placed.pages[index(tier)] += unit_pages;
      ++placed.faults;
    }
    first = next;
  }
  return placed;
}

void PageTable::remove(PageRange range) {
  const auto [first, count] = range;
  if (layout_.mixed && count > 0) {
    touched_.clear(first.value, count);
    const std::uint64_t group = first.value / unit_pages;
    const std::uint64_t groups = (range.end().value - 1) / unit_pages + 1 - group;
    huge_.clear(group, groups);
    whole_.clear(group, groups);
  }
  const std::uint64_t in_slow = slow_.count(first.value, count);
  free_[index(Tier::slow)] += in_slow;
  free_[index(Tier::fast)] += present_.count(first.value, count) - in_slow;
  free_[index(Tier::slow)] += this->count(Trap::shadowed, range);
  present_.clear(first.value, count);
  slow_.clear(first.value, count);
  for (std::size_t t = 0; t < trap_count; ++t) {
    if (pages_in_[t] == 0) continue;
    pages_in_[t] -= planes_[t].count(first.value, count);
    planes_[t].clear(first.value, count);
  }
  for (PageBits& armed : armed_)
    if (!armed.empty()) armed.clear(first.value, count);
}

void PageTable::hold(std::uint64_t pages) {
  std::uint64_t& free = free_[index(Tier::fast)];
  if (pages < held_) {
    free += held_ - pages;
    held_ = pages;
    return;
  }
  const std::uint64_t more = std::min(pages - held_, free);
  free -= more;
  held_ += more;
}

void PageTable::set_watermarks(const Watermarks& marks) {
  for (const double share : {marks.reserve, marks.wake})
    if (!(share >= 0 && share <= 1))
      throw std::invalid_argument("a watermark must be a share of the fast tier's capacity");
  marks_ = marks;
  reserve_ = static_cast<std::uint64_t>(marks.reserve * static_cast<double>(capacity(Tier::fast)));
}

void PageTable::allocate(Trap trap) {
  if (!planes_[index(trap)].empty()) return;
  planes_[index(trap)] = PageBits{size()};
  const unsigned before = used_;
  used_ |= bit(trap);
  if (!std::has_single_bit(before)) return;
  const auto only = static_cast<Trap>(std::countr_zero(before));
  for (const AccessKind kind : {AccessKind::load, AccessKind::store})
    armed_[index(kind)] = catches(only, kind) ? planes_[index(only)] : PageBits{size()};
}

bool PageTable::trapped(std::uint64_t page, AccessKind kind) const {
  for (std::size_t t = 0; t < trap_count; ++t)
    if (catches(static_cast<Trap>(t), kind) && armed(static_cast<Trap>(t), page)) return true;
  return false;
}

std::uint64_t PageTable::arm(Trap trap, PageRange range, Tiers which, PageMask before,
                             PageMask fresh) {
  std::ranges::fill(before, 0);
  std::ranges::fill(fresh, 0);
  const std::uint64_t origin = range.first.value;
  const auto limit = static_cast<std::int64_t>(range.count);
  const auto [first, count] = whole_units(known(range));
  allocate(trap);
  std::uint32_t* plane = planes_[index(trap)].words();
  std::uint64_t sum = 0;
  PageBits::each_word(first.value, count, [&](std::size_t word, std::uint32_t mask) {
    std::uint32_t meant = present_.words()[word] & mask;
    if (!includes(which, Tier::fast)) meant &= slow_.words()[word];
    if (!includes(which, Tier::slow)) meant &= ~slow_.words()[word];
    const auto place = static_cast<std::int64_t>(word * 32) - static_cast<std::int64_t>(origin);
    const std::uint32_t more = meant & ~plane[word];
    add_bits(before, place, meant & plane[word] & within(place, limit));
    add_bits(fresh, place, more & within(place, limit));
    plane[word] |= more;
    sum += static_cast<std::uint64_t>(std::popcount(more));
    if (!several()) return;
    for (const AccessKind kind : {AccessKind::load, AccessKind::store})
      if (catches(trap, kind)) armed_[index(kind)].words()[word] |= more;
  });
  pages_in_[index(trap)] += sum;
  return sum;
}

void PageTable::disarm(Trap trap, PageRange range) {
  const auto [first, count] = range;
  PageBits::each_word(first.value, count, [&](std::size_t word, std::uint32_t mask) {
    std::uint32_t& plane = planes_[index(trap)].words()[word];
    pages_in_[index(trap)] -= static_cast<std::uint64_t>(std::popcount(plane & mask));
    plane &= ~mask;
    if (!several()) return;
    for (const AccessKind kind : {AccessKind::load, AccessKind::store}) {
      std::uint32_t left = 0;
      for (std::size_t t = 0; t < trap_count; ++t)
        if (catches(static_cast<Trap>(t), kind) && !planes_[t].empty())
          left |= planes_[t].words()[word];
      armed_[index(kind)].words()[word] &= ~mask | left;
    }
  });
}

/// A unit belongs to the range that holds its first page.
PageRange PageTable::whole_units(PageRange range) const {
  if (!layout_.mixed || range.count == 0) return range;
  const PageRange low = unit(range.first.value);
  const std::uint64_t first = low.first < range.first ? low.end().value : range.first.value;
  const PageRange high = unit(range.end().value - 1);
  const std::uint64_t end = high.first.value < first ? first : high.end().value;
  return {PageId{first}, end - first};
}

void PageTable::unarmed(Trap trap, PageRange range, PageMask out) const {
  std::ranges::fill(out, 0);
  const auto [first, count] = known(range);
  const PageBits& plane = planes_[index(trap)];
  PageBits::each_word(first.value, count, [&](std::size_t word, std::uint32_t mask) {
    const std::uint32_t armed = plane.empty() ? 0 : plane.words()[word];
    add_bits(out, static_cast<std::int64_t>(word * 32) - static_cast<std::int64_t>(first.value),
             present_.words()[word] & mask & ~armed);
  });
}

bool PageTable::consistent() const {
  // In none of them, or in all: of a unit.
  const auto alike = [](const PageBits& plane, PageRange unit) {
    const std::uint64_t in = plane.empty() ? 0 : plane.count(unit.first.value, unit.count);
    return in == 0 || in == unit.count;
  };
  for (std::uint64_t word = 0; word < (size() + 31) / 32; ++word) {
    const std::uint32_t there = present_.words()[word], in_slow = slow_.words()[word];
    const auto plane = [&](Trap trap) {
      return planes_[index(trap)].empty() ? 0 : planes_[index(trap)].words()[word];
    };
    const std::uint32_t away = plane(Trap::away), write_away = plane(Trap::write_away),
                        copied = plane(Trap::copied);
    if ((in_slow & ~there) != 0 || (plane(Trap::shadowed) & in_slow) != 0) return false;
    if (((away & write_away) | (away & copied) | (write_away & copied)) != 0) return false;
    if (layout_.mixed && (touched_.words()[word] & ~there) != 0) return false;
    std::array<std::uint32_t, 2> armed{};
    for (std::size_t t = 0; t < trap_count; ++t) {
      const auto trap = static_cast<Trap>(t);
      if ((plane(trap) & ~there) != 0) return false;
      for (const AccessKind kind : {AccessKind::load, AccessKind::store})
        if (catches(trap, kind)) armed[index(kind)] |= plane(trap);
    }
    for (const AccessKind kind : {AccessKind::load, AccessKind::store})
      if (several() && armed_[index(kind)].words()[word] != armed[index(kind)]) return false;
  }
  for (std::size_t t = 0; t < trap_count; ++t)
    if (pages_in_[t] != (planes_[t].empty() ? 0 : planes_[t].count())) return false;
  for (std::uint64_t group = 0; layout_.mixed && group * unit_pages < size(); ++group) {
    const PageRange unit = this->unit(group * unit_pages);
    if (unit.count == 1) continue;
    if (!alike(present_, unit) || !alike(slow_, unit)) return false;
    for (const PageBits& plane : planes_)
      if (!alike(plane, unit)) return false;
  }
  return true;
}

std::uint64_t PageTable::count(Trap trap, PageRange range) const {
  const auto [first, count] = known(range);
  const PageBits& plane = planes_[index(trap)];
  return plane.empty() ? 0 : plane.count(first.value, count);
}

}  // namespace tt::sim
