#include "sim/pages.hpp"

#include <algorithm>
#include <stdexcept>

namespace tt::sim {
namespace {

/// Pages that are placed between two checks of the watermarks. A policy with Granularity::range is
/// asked once for each run, so that it can go by the pages that are still free.
constexpr std::uint64_t run = 512;

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

}  // namespace

PageTable::PageTable(const Layout& layout)
    : layout_(layout),
      space_(layout.base_pages, page_shift(layout.page_bytes, layout.stream_page_bytes)),
      free_{layout.fast_pages, layout.slow_pages},
      present_(space_.pages()),
      slow_(space_.pages()) {}

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
    for (; i < end; ++i, is_there >>= 1, is_slow >>= 1)
      out[i] = static_cast<Residency>(
          (is_there & 1U) != 0 ? is_slow & 1U : static_cast<unsigned>(Residency::absent));
  }
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(known), out.end(), Residency::absent);
}

void PageTable::place(const trace::Event& event, Policy& policy, Nanos now) {
  const PageRange range = space_.cover(event);
  const std::uint64_t end = range.end().value;
  const bool by_page = layout_.placement == Granularity::page;
  Tier wanted = Tier::fast;
  for (std::uint64_t first = range.first.value; first < end; first += run) {
    if (short_of_fast()) policy.on_pressure(Tier::fast, now);
    const PageRange part{PageId{first}, std::min(run, end - first)};
    if (by_page) {
      for (std::uint64_t page = first; page < part.end().value; ++page)
        first_touch(present_, slow_, page, 1, policy.placement({PageId{page}, 1}), free_, reserve_);
      continue;
    }
    if (layout_.placement == Granularity::range) {
      wanted = policy.placement(part);
    } else if (first == range.first.value) {
      wanted = policy.placement(range);
    }
    first_touch(present_, slow_, first, part.count, wanted, free_, reserve_);
  }
}

void PageTable::remove(PageRange range) {
  const auto [first, count] = range;
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
  const auto [first, count] = known(range);
  allocate(trap);
  std::uint32_t* plane = planes_[index(trap)].words();
  std::uint64_t sum = 0;
  PageBits::each_word(first.value, count, [&](std::size_t word, std::uint32_t mask) {
    std::uint32_t meant = present_.words()[word] & mask;
    if (!includes(which, Tier::fast)) meant &= slow_.words()[word];
    if (!includes(which, Tier::slow)) meant &= ~slow_.words()[word];
    const auto place =
        static_cast<std::int64_t>(word * 32) - static_cast<std::int64_t>(first.value);
    const std::uint32_t more = meant & ~plane[word];
    add_bits(before, place, meant & plane[word]);
    add_bits(fresh, place, more);
    plane[word] |= more;
    sum += static_cast<std::uint64_t>(std::popcount(more));
    if (!several()) return;
    for (const AccessKind kind : {AccessKind::load, AccessKind::store})
      if (catches(trap, kind)) armed_[index(kind)].words()[word] |= more;
  });
  pages_in_[index(trap)] += sum;
  return sum;
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

std::uint64_t PageTable::count(Trap trap, PageRange range) const {
  const auto [first, count] = known(range);
  const PageBits& plane = planes_[index(trap)];
  return plane.empty() ? 0 : plane.count(first.value, count);
}

}  // namespace tt::sim
