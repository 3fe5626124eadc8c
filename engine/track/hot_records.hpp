// SPDX-License-Identifier: MIT

// HotRecords: how often a page was accessed lately, in a byte or four (Bharata B Rao, "mm: Hot page
// tracking and promotion infrastructure" (pghot), v7, 2026; proposed for Linux).
//
// An access within the window after the last one raises the page's frequency, a later one begins
// anew with 1. From the threshold on the page is ready to be promoted, until somebody takes it.
//
//     default   2 bits of frequency, 5 bits of time in steps of 128 ms, which wraps after 4 s
//     precise   3 bits of frequency, 14 bits of time in steps of 1 ms, which wraps after 16 s
//
// Times wrap as they do there: an access long ago looks like one within the window now and then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/types.hpp"
#include "track/page_index.hpp"

namespace tt::track {

class HotRecords {
 public:
  struct Format {
    unsigned frequency_bits, time_bits, step_bits;  // a step of time is 2^step_bits ms
    unsigned bytes;
  };
  static constexpr Format byte{2, 5, 7, 1};
  static constexpr Format precise{3, 14, 0, 4};

  /// A window or a threshold that the format cannot hold is cut to what it can.
  HotRecords(const Format& format, Nanos window, std::uint32_t threshold)
      : format_(format),
        most_((1U << format.frequency_bits) - 1),
        time_mask_((1U << format.time_bits) - 1),
        window_(static_cast<std::uint32_t>(
            std::min<std::int64_t>(window / step(), static_cast<std::int64_t>(time_mask_)))),
        threshold_(std::min(threshold, most_)) {}

  void map(PageRange range) {
    index_.map(range, [&](std::uint32_t i) {
      if (i >= records_.size()) records_.resize(index_.size());
      records_[i] = {};
    });
  }
  void unmap(PageRange range) {
    index_.unmap(range, [&](std::uint32_t i) { records_[i] = {}; });
  }
  [[nodiscard]] bool contains(PageId page) const { return index_.contains(page); }
  [[nodiscard]] std::uint64_t pages() const { return index_.pages(); }
  [[nodiscard]] unsigned bytes() const { return format_.bytes; }

  void accessed(PageId page, Nanos now) {
    const std::uint32_t i = index_.find(page);
    if (i == PageIndex::none) return;
    Record& record = records_[i];
    const std::uint16_t time = at(now);
    const bool again = ((time - record.time) & time_mask_) <= window_;
    record.frequency = static_cast<std::uint8_t>(
        again ? std::min<std::uint32_t>(record.frequency + 1U, most_) : 1U);
    record.time = time;
    if (record.frequency < threshold_ || record.ready) return;
    record.ready = true;
    ready_.push_back(page);
  }
  struct Ready {
    PageId page;
    Nanos since{};  // the last access
  };
  /// All pages that are ready, in order of addresses; their records begin anew.
  void take(Nanos now, std::vector<Ready>& out) {
    out.clear();
    std::ranges::sort(ready_);
    for (const PageId page : std::exchange(ready_, {})) {
      const std::uint32_t i = index_.find(page);
      if (i == PageIndex::none || !records_[i].ready) continue;
      out.push_back({page, step() * ((at(now) - records_[i].time) & time_mask_)});
      records_[i] = {};
    }
  }
  [[nodiscard]] std::uint32_t frequency(PageId page) const {
    const std::uint32_t i = index_.find(page);
    return i == PageIndex::none ? 0 : records_[i].frequency;
  }
  [[nodiscard]] std::uint32_t threshold() const { return threshold_; }

 private:
  struct Record {
    std::uint16_t time = 0;
    std::uint8_t frequency = 0;
    bool ready = false;
  };
  [[nodiscard]] Nanos step() const { return std::chrono::milliseconds{1LL << format_.step_bits}; }
  [[nodiscard]] std::uint16_t at(Nanos now) const {
    return static_cast<std::uint16_t>(static_cast<std::uint64_t>(now / step()) & time_mask_);
  }

  const Format format_;
  const std::uint32_t most_, time_mask_, window_, threshold_;
  PageIndex index_;
  std::vector<Record> records_;
  std::vector<PageId> ready_;
};

}  // namespace tt::track
