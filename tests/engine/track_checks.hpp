// SPDX-License-Identifier: MIT

// What the tests of trackers share: pages, skewed samples, and filters of every kind.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "track/cbf.hpp"

namespace tt::track {

/// Pages of a dense region, as the simulator numbers them.
inline std::vector<PageId> dense(std::uint64_t first, std::uint64_t count) {
  std::vector<PageId> pages(count);
  for (std::uint64_t i = 0; i < count; ++i) pages[i] = {first + i};
  return pages;
}

/// Skewed samples: page = n u^3, so that low numbers are hot.
inline std::vector<PageId> skewed(Rng& rng, std::uint64_t pages, std::size_t count) {
  std::vector<PageId> batch(count);
  for (auto& page : batch) {
    const double u = rng.uniform();
    page = {static_cast<std::uint64_t>(u * u * u * static_cast<double>(pages))};
  }
  return batch;
}

inline std::vector<std::uint32_t> counts(const Tracker& tracker, std::span<const PageId> pages) {
  std::vector<std::uint32_t> out(pages.size());
  tracker.get(pages, out);
  return out;
}

inline std::string describe(const CbfOptions& o) {
  return std::to_string(o.counter_bits) + " bits, k=" + std::to_string(o.hashes) +
         (o.blocked ? ", blocked" : ", standard") + (o.conservative ? ", conservative" : ", all");
}

/// Every width, both layouts, both rules; k = 1 and 8 (extremes), 3 (uneven slices), 4 (default).
inline std::vector<CbfOptions> all_filters(std::uint64_t pages) {
  std::vector<CbfOptions> all;
  for (const unsigned bits : {4U, 8U, 16U})
    for (const unsigned hashes : {1U, 3U, 4U, 5U, 8U})
      for (const bool blocked : {true, false})
        for (const bool conservative : {true, false})
          all.push_back({.pages = pages,
                         .hashes = hashes,
                         .counter_bits = bits,
                         .blocked = blocked,
                         .conservative = conservative});
  return all;
}

inline void for_each_filter(std::uint64_t pages,
                            const std::function<void(const CbfOptions&)>& body) {
  for (const CbfOptions& options : all_filters(pages)) {
    const int before = check::failures();
    body(options);
    if (check::failures() != before) {
      check::fail(__FILE__, __LINE__, "with " + describe(options));
      return;
    }
  }
}

}  // namespace tt::track
