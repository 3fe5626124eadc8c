// SPDX-License-Identifier: MIT

// Coalescing of samples: each page once, with its count.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "track/coalesce.hpp"
#include "track_checks.hpp"

using namespace tt;
using namespace tt::track;

TEST("track: coalescing gives each page once, in order of first occurrence") {
  Coalescer coalescer;
  const std::vector<PageId> batch{{7}, {3}, {7}, {9}, {3}, {7}, {~std::uint64_t{0}}};
  for (int round = 0; round < 3; ++round) {
    const auto merged = coalescer.coalesce(batch);
    CHECK_EQ(merged.size(), 4U);
    const std::vector<std::pair<std::uint64_t, std::uint32_t>> expected{
        {7, 3}, {3, 2}, {9, 1}, {~std::uint64_t{0}, 1}};
    for (std::size_t i = 0; i < merged.size(); ++i) {
      CHECK_EQ(merged[i].page.value, expected[i].first);
      CHECK_EQ(merged[i].count, expected[i].second);
    }
  }
  CHECK(coalescer.coalesce({}).empty());
}

TEST("track: coalescing keeps its buffers and forgets earlier batches") {
  Rng rng(1);
  Coalescer coalescer;
  const void* buffer = nullptr;
  for (int round = 0; round < 50; ++round) {
    const auto batch = skewed(rng, 5'000, round == 0 ? 4'000 : 1 + rng.below(4'000));
    const auto merged = coalescer.coalesce(batch);
    if (round == 0) buffer = merged.data();
    CHECK(merged.data() == buffer);
    std::unordered_map<std::uint64_t, std::uint32_t> truth;
    for (const PageId page : batch) ++truth[page.value];
    CHECK_EQ(merged.size(), truth.size());
    for (const PageCount& entry : merged) CHECK_EQ(entry.count, truth[entry.page.value]);
  }
}

TEST("track: coalescing a Zipf batch saves what theory says") {
  // The saving depends on skew and pages alone: N samples have sum(1 - (1 - p_i)^N) distinct pages.
  // FreqTier (2024, §V-C(c)) saw 4 times fewer updates; Zipf 0.99 gives 4.5 at 64 Ki pages.
  constexpr std::size_t pages = 64 * 1024;
  constexpr std::size_t samples = 100'000;
  std::vector<double> cumulative(pages);
  double total = 0;
  for (std::size_t i = 0; i < pages; ++i)
    cumulative[i] = total += std::pow(static_cast<double>(i + 1), -0.99);
  double distinct = 0;
  for (std::size_t i = 0; i < pages; ++i) {
    const double p = (cumulative[i] - (i == 0 ? 0 : cumulative[i - 1])) / total;
    distinct -= std::expm1(static_cast<double>(samples) * std::log1p(-p));
  }
  Rng rng(2);
  std::vector<PageId> batch(samples);
  for (auto& page : batch) {
    const auto at = std::upper_bound(cumulative.begin(), cumulative.end(), rng.uniform() * total);
    page = {static_cast<std::uint64_t>(at - cumulative.begin())};
  }
  Coalescer coalescer;
  const double saving =
      static_cast<double>(samples) / static_cast<double>(coalescer.coalesce(batch).size());
  CHECK_NEAR(saving, static_cast<double>(samples) / distinct, 0.1);
  CHECK(saving > 4);
}
