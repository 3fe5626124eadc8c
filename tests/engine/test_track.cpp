// SPDX-License-Identifier: MIT

// Trackers: accuracy against theory, the increment rules, batches.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "isas.hpp"
#include "track/cbf.hpp"
#include "track/coalesce.hpp"
#include "track/exact.hpp"
#include "track/quad_line.hpp"
#include "track_checks.hpp"

using namespace tt;
using namespace tt::track;

namespace {

struct Error {
  double false_positives;  ///< share of pages never counted that have a count
  double over_counts;      ///< share of pages counted once that have a larger count
};

/// Counts pages 1 .. n once each, in an order without pattern, and asks for as many others.
Error measure_error(const CbfOptions& options) {
  const auto filter = make_cbf(options);
  auto pages = dense(0, options.pages);
  Rng rng(7);
  for (std::size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[rng.below(i)]);
  filter->increment(std::span<const PageId>(pages));
  Error error{};
  for (const std::uint32_t count : counts(*filter, pages)) error.over_counts += count > 1 ? 1 : 0;
  const auto others = dense(options.pages, options.pages);
  for (const std::uint32_t count : counts(*filter, others))
    error.false_positives += count > 0 ? 1 : 0;
  error.over_counts /= static_cast<double>(options.pages);
  error.false_positives /= static_cast<double>(options.pages);
  return error;
}

}  // namespace

TEST("track: filter size follows m = ceil(n r)") {
  // r for p = 0.001: k=4 gives 20.428 counters per page, k=3 gives 28.474 (from
  // r = -k / ln(1 - exp(ln(p) / k))).
  CHECK_EQ(cbf_counters(1'000'000, 0.001, 3), 28'473'665U);
  CHECK_NEAR(static_cast<double>(cbf_counters(1'000'000, 0.001, 4)), 20'427'936, 2'000);
  CHECK_NEAR(static_cast<double>(cbf_counters(1, 0.5, 1)), 2, 0);
  CHECK_THROWS(cbf_counters(0, 0.001, 4), "pages");
  CHECK_THROWS(cbf_counters(1, 1.0, 4), "error");
  CHECK_THROWS(cbf_counters(1, 0.0, 4), "error");
  CHECK_THROWS(cbf_counters(1, 0.001, 0), "hashes");
  CHECK_THROWS(cbf_counters(1, 0.001, 9), "hashes");
  CHECK_THROWS(make_cbf({.pages = 1, .counter_bits = 5}), "counter_bits");
}

TEST("track: a filter has whole lines, at least min_counters, and says its size") {
  const auto small = make_cbf({.pages = 1});
  CHECK_EQ(small->lines(), 1U);
  const auto floor = make_cbf({.pages = 1, .min_counters = 1025});
  CHECK_EQ(floor->lines(), 9U);  // 128 four-bit counters a line
  for (const unsigned bits : {4U, 8U, 16U}) {
    const auto filter = make_cbf({.pages = 100'000, .counter_bits = bits});
    const std::uint64_t per_line = 512 / bits;
    CHECK_EQ(filter->lines(), (cbf_counters(100'000, 0.001, 4) + per_line - 1) / per_line);
    CHECK_EQ(filter->max_count(), (1U << bits) - 1);
    CHECK(filter->bytes() >= filter->lines() * 64);
    CHECK(filter->bytes() <= filter->lines() * 64 + filter->lines() / 8 + 8);
  }
}

TEST("track: error rates at 1 Mi pages are those of theory") {
  for (const unsigned bits : {4U, 8U, 16U})
    for (const unsigned hashes : {3U, 4U})
      for (const bool blocked : {true, false}) {
        CbfOptions options{.pages = std::uint64_t{1} << 20,
                           .hashes = hashes,
                           .counter_bits = bits,
                           .blocked = blocked,
                           .conservative = false};
        const double theory = cbf_false_positive_rate(options, options.pages);
        const Error all = measure_error(options);
        options.conservative = true;
        const Error conservative = measure_error(options);
        // With all k raised, a page over-counts exactly when the others would make it a false
        // positive. Raising the least leaves the set of non-zero counters as it is.
        CHECK_NEAR(all.false_positives, theory, theory * 0.15);
        CHECK_NEAR(all.over_counts, theory, theory * 0.15);
        CHECK(conservative.false_positives <= all.false_positives);
        CHECK(conservative.over_counts <= all.over_counts / 2);
        if (!blocked) CHECK_NEAR(theory, 0.001, 0.0001);
      }
}

TEST("track: conservative counts lie between the truth and those of raising all") {
  Rng rng(11);
  CbfOptions options{.pages = 4'000, .error = 0.05, .counter_bits = 16};
  for (const bool blocked : {true, false}) {
    options.blocked = blocked;
    options.conservative = true;
    const auto least = make_cbf(options);
    options.conservative = false;
    const auto all = make_cbf(options);
    const auto truth = make_exact(options.pages);
    for (int round = 0; round < 20; ++round) {
      const auto batch = skewed(rng, options.pages * 2, 3'000);
      for (Tracker* tracker : {least.get(), all.get(), truth.get()})
        tracker->increment(std::span<const PageId>(batch));
    }
    std::uint64_t over_least = 0;
    std::uint64_t over_all = 0;
    for (const PageId page : dense(0, options.pages * 2)) {
      CHECK(least->get(page) >= truth->get(page));
      CHECK(least->get(page) <= all->get(page));
      over_least += least->get(page) - truth->get(page);
      over_all += all->get(page) - truth->get(page);
    }
    CHECK(over_all > 0);
    CHECK(over_least * 2 < over_all);
  }
}

TEST("track: a page never collides with itself") {
  // With all k raised, a page that met itself would count twice for one sample. One line or few
  // lines, so that every position is met.
  for_each_filter(1, [](const CbfOptions& base) {
    CbfOptions options = base;
    options.min_counters = 512;
    for (std::uint64_t page = 0; page < 2'000; ++page) {
      const auto filter = make_cbf(options);
      filter->increment(std::span<const PageId>(std::vector{PageId{page}}));
      CHECK_EQ(filter->get({page}), 1U);
    }
  });
}

TEST("track: counts saturate and stay") {
  for_each_filter(64, [](const CbfOptions& options) {
    const auto filter = make_cbf(options);
    const std::uint32_t max = filter->max_count();
    const std::vector<PageCount> nearly{{PageId{5}, max - 1}};
    const std::vector<PageId> one{PageId{5}};
    filter->increment(std::span<const PageCount>(nearly));
    CHECK_EQ(filter->get({5}), max - 1);
    filter->increment(std::span<const PageId>(one));
    CHECK_EQ(filter->get({5}), max);
    filter->increment(std::span<const PageId>(one));
    CHECK_EQ(filter->get({5}), max);
    const std::vector<PageCount> flood{{PageId{5}, 0xffffffffU}, {PageId{6}, 0xffffffffU}};
    filter->increment(std::span<const PageCount>(flood));
    CHECK_EQ(filter->get({5}), max);
    CHECK_EQ(filter->get({6}), max);
  });
  const auto exact = make_exact(4);
  const std::vector<PageCount> flood{{PageId{5}, 0xfffffff0U}};
  exact->increment(std::span<const PageCount>(flood));
  CHECK_EQ(exact->get({5}), 0xfffffff0U);
  exact->increment(std::span<const PageCount>(flood));
  CHECK_EQ(exact->get({5}), exact->max_count());
}

TEST("track: a batch does what its samples do one at a time") {
  for_each_filter(500, [](const CbfOptions& options) {
    Rng rng(options.hashes);
    const auto batched = make_cbf(options);
    const auto single = make_cbf(options);
    // Lengths around the size of a prefetch chunk and beyond.
    for (const std::size_t length : {0U, 1U, 31U, 32U, 33U, 64U, 65U, 700U}) {
      const auto batch = skewed(rng, 1'000, length);
      batched->increment(std::span<const PageId>(batch));
      for (const PageId& page : batch) single->increment(std::span<const PageId>(&page, 1));
    }
    const auto pages = dense(0, 1'000);
    const auto out = counts(*batched, pages);
    for (std::size_t i = 0; i < pages.size(); ++i) CHECK_EQ(out[i], single->get(pages[i]));
  });
}

TEST("track: adding a count does what as many samples in a row do") {
  for_each_filter(300, [](const CbfOptions& options) {
    Rng rng(options.hashes);
    const auto added = make_cbf(options);
    const auto sampled = make_cbf(options);
    for (int round = 0; round < 5; ++round) {
      std::vector<PageCount> batch;
      std::vector<PageId> samples;
      for (const PageId page : skewed(rng, 600, 100)) {
        batch.push_back({page, static_cast<std::uint32_t>(rng.below(5))});
        samples.insert(samples.end(), batch.back().count, page);
      }
      added->increment(std::span<const PageCount>(batch));
      sampled->increment(std::span<const PageId>(samples));
    }
    for (const PageId page : dense(0, 600)) CHECK_EQ(added->get(page), sampled->get(page));
  });
}

TEST("track: coalescing does not change what raising all counts, nor what is exact") {
  Rng rng(3);
  Coalescer coalescer;
  const CbfOptions options{.pages = 500, .conservative = false};
  const auto plain = make_cbf(options);
  const auto coalesced = make_cbf(options);
  const auto exact = make_exact(10);
  const auto exact_coalesced = make_exact(10);
  for (int round = 0; round < 10; ++round) {
    const auto batch = skewed(rng, 1'000, 300);
    plain->increment(std::span<const PageId>(batch));
    exact->increment(std::span<const PageId>(batch));
    const auto merged = coalescer.coalesce(batch);
    coalesced->increment(merged);
    exact_coalesced->increment(merged);
  }
  for (const PageId page : dense(0, 1'000)) {
    CHECK_EQ(plain->get(page), coalesced->get(page));
    CHECK_EQ(exact->get(page), exact_coalesced->get(page));
  }
}

namespace {

/// Random updates by the version in use and by the portable one.
template <unsigned Bits, bool Conservative>
void check_quad_line(Rng& rng) {
  constexpr std::uint64_t lines = 3;
  const LineArray portable(lines);
  const LineArray fast(lines);
  std::vector<LineKey> keys;
  std::vector<std::uint32_t> amounts;
  for (int i = 0; i < 3'000; ++i) {
    keys.push_back({rng.below(lines), rng.next()});
    amounts.push_back(rng.below(3) == 0 ? static_cast<std::uint32_t>(rng.next())
                                        : static_cast<std::uint32_t>(rng.below(4)));
    // Batches short and long; the amounts reach saturation.
    if (rng.below(20) != 0) continue;
    const auto amount = [&](std::size_t index) { return amounts[index]; };
    QuadLine<Bits>::template raise_portable<Conservative>(portable.data(), keys, amount);
    QuadLine<Bits>::template raise<Conservative>(fast.data(), keys, amount);
    CHECK(std::equal(portable.data(), portable.data() + lines * line_bytes, fast.data()));
    keys.clear();
    amounts.clear();
    if (rng.below(8) == 0) {  // start over, so that not everything ends saturated
      std::fill_n(portable.data(), lines * line_bytes, std::uint8_t{0});
      std::fill_n(fast.data(), lines * line_bytes, std::uint8_t{0});
    }
  }
}

}  // namespace

TEST("track: every variant of the four-counter line gives the bytes of the portable one") {
  check::on_each_isa([] {
    Rng rng(17);
    check_quad_line<4, true>(rng);
    check_quad_line<4, false>(rng);
    check_quad_line<8, true>(rng);
    check_quad_line<8, false>(rng);
    check_quad_line<16, true>(rng);
    check_quad_line<16, false>(rng);
  });
}

TEST("track: a count depends on the options alone, not on the machine") {
  // Counts after a fixed history, folded to one number per filter; any build must reproduce them.
  std::uint64_t fold = 0;
  for_each_filter(200, [&](const CbfOptions& options) {
    Rng rng(23);
    const auto filter = make_cbf(options);
    filter->increment(std::span<const PageId>(skewed(rng, 600, 2'000)));
    for (const PageId page : dense(0, 800)) fold = mix64(fold ^ filter->get(page)) + page.value;
  });
  CHECK_EQ(fold, 17754662321005482894U);
}

TEST("track: the seed chooses other collisions") {
  CbfOptions options{.pages = 2'000, .error = 0.1, .conservative = false};
  std::set<std::vector<std::uint32_t>> seen;
  const auto pages = dense(0, 2'000);
  for (options.seed = 0; options.seed < 3; ++options.seed) {
    const auto filter = make_cbf(options);
    filter->increment(std::span<const PageId>(pages));
    const auto first = counts(*filter, pages);
    const auto again = make_cbf(options);
    again->increment(std::span<const PageId>(pages));
    CHECK(first == counts(*again, pages));
    seen.insert(first);
  }
  CHECK_EQ(seen.size(), 3U);
}
