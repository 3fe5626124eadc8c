// SPDX-License-Identifier: MIT

// From the stream's base pages to managed pages: which appear, which are touched, which vanish.
#pragma once

#include <cstdint>
#include <vector>

#include "core/types.hpp"
#include "trace/reader.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

/// A managed page holds 2^shift base pages. It exists while any of its base pages is mapped:
/// objects that share a huge page share its fate.
class AddressSpace {
 public:
  AddressSpace(std::uint64_t base_pages, unsigned shift)
      : pages_((base_pages + (std::uint64_t{1} << shift) - 1) >> shift),
        shift_(shift),
        mapped_(shift == 0 ? 0 : pages_) {}

  [[nodiscard]] std::uint64_t pages() const { return pages_; }
  [[nodiscard]] unsigned shift() const { return shift_; }
  /// Managed pages that the event's range overlaps.
  [[nodiscard]] PageRange cover(const trace::Event& event) const {
    if (event.count == 0) return {};
    const std::uint64_t first = event.first >> shift_;
    const std::uint64_t last = (std::uint64_t{event.first} + event.count - 1) >> shift_;
    return {PageId{first}, last - first + 1};
  }
  /// Applies a map event; returns the managed pages that did not exist before.
  PageRange map(const trace::Event& event) {
    return change(event, [](std::uint32_t& mapped, std::uint32_t base) {
      mapped += base;
      return mapped == base;
    });
  }
  /// Applies an unmap event; returns the managed pages that exist no longer.
  PageRange unmap(const trace::Event& event) {
    return change(event, [](std::uint32_t& mapped, std::uint32_t base) {
      mapped -= base < mapped ? base : mapped;
      return mapped == 0;
    });
  }

 private:
  /// Inner pages of a range belong to it alone; only the two at its ends can be shared, so that
  /// what changes state is one range.
  template <typename Update>
  PageRange change(const trace::Event& event, Update update) {
    PageRange range = cover(event);
    if (shift_ == 0 || range.count == 0) return range;
    const std::uint64_t end = std::uint64_t{event.first} + event.count;
    std::uint64_t first = range.end().value;
    std::uint64_t changed = 0;
    for (std::uint64_t page = range.first.value; page < range.end().value; ++page) {
      const std::uint64_t from = page << shift_;
      const std::uint64_t to = from + (std::uint64_t{1} << shift_);
      const std::uint64_t base =
          (to < end ? to : end) - (from > event.first ? from : std::uint64_t{event.first});
      if (!update(mapped_[page], static_cast<std::uint32_t>(base))) continue;
      if (changed++ == 0) first = page;
    }
    return {PageId{first}, changed};
  }

  std::uint64_t pages_;
  unsigned shift_;
  std::vector<std::uint32_t> mapped_;  // base pages per managed page
};

/// Most managed pages that the stream holds at a time: its footprint.
[[nodiscard]] std::uint64_t peak_pages(const trace::Reader& stream, unsigned shift);

}  // namespace tt::sim
