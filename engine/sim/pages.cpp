#include "sim/pages.hpp"

#include <algorithm>

namespace tt::sim {

PageTable::PageTable(const Layout& layout)
    : layout_(layout),
      space_(layout.base_pages, page_shift(layout.page_bytes)),
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

void PageTable::place(const trace::Event& event, const Policy& policy) {
  const PageRange range = space_.cover(event);
  const std::uint64_t run = layout_.placed_at_once;
  for (std::uint64_t first = range.first.value; first < range.end().value; first += run) {
    const PageRange part{PageId{first}, std::min(run, range.end().value - first)};
    first_touch(present_, slow_, first, part.count, policy.placement(part), free_);
  }
}

void PageTable::remove(PageRange range) {
  const auto [first, count] = range;
  const std::uint64_t in_slow = slow_.count(first.value, count);
  free_[index(Tier::slow)] += in_slow;
  free_[index(Tier::fast)] += present_.count(first.value, count) - in_slow;
  present_.clear(first.value, count);
  slow_.clear(first.value, count);
}

}  // namespace tt::sim
