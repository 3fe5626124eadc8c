// Trackers: accuracy against theory, the increment rules, batches, cooling in slices, coalescing.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
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

using namespace tt;
using namespace tt::track;

namespace {

/// Pages of a dense region, as the simulator numbers them.
std::vector<PageId> dense(std::uint64_t first, std::uint64_t count) {
  std::vector<PageId> pages(count);
  for (std::uint64_t i = 0; i < count; ++i) pages[i] = {first + i};
  return pages;
}

/// Skewed samples: page = n u^3, so that low numbers are hot.
std::vector<PageId> skewed(Rng& rng, std::uint64_t pages, std::size_t count) {
  std::vector<PageId> batch(count);
  for (auto& page : batch) {
    const double u = rng.uniform();
    page = {static_cast<std::uint64_t>(u * u * u * static_cast<double>(pages))};
  }
  return batch;
}

std::vector<std::uint32_t> counts(const Tracker& tracker, std::span<const PageId> pages) {
  std::vector<std::uint32_t> out(pages.size());
  tracker.get(pages, out);
  return out;
}

std::string describe(const CbfOptions& o) {
  return std::to_string(o.counter_bits) + " bits, k=" + std::to_string(o.hashes) +
         (o.blocked ? ", blocked" : ", standard") + (o.conservative ? ", conservative" : ", all");
}

/// Every width, both layouts, both rules; k = 1 and 8 (extremes), 3 (uneven slices), 4 (default).
std::vector<CbfOptions> all_filters(std::uint64_t pages) {
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

void for_each_filter(std::uint64_t pages, const std::function<void(const CbfOptions&)>& body) {
  for (const CbfOptions& options : all_filters(pages)) {
    const int before = check::failures();
    body(options);
    if (check::failures() != before) {
      check::fail(__FILE__, __LINE__, "with " + describe(options));
      return;
    }
  }
}

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
    const std::vector<Count> nearly{{PageId{5}, max - 1}};
    const std::vector<PageId> one{PageId{5}};
    filter->increment(std::span<const Count>(nearly));
    CHECK_EQ(filter->get({5}), max - 1);
    filter->increment(std::span<const PageId>(one));
    CHECK_EQ(filter->get({5}), max);
    filter->increment(std::span<const PageId>(one));
    CHECK_EQ(filter->get({5}), max);
    const std::vector<Count> flood{{PageId{5}, 0xffffffffU}, {PageId{6}, 0xffffffffU}};
    filter->increment(std::span<const Count>(flood));
    CHECK_EQ(filter->get({5}), max);
    CHECK_EQ(filter->get({6}), max);
  });
  const auto exact = make_exact(4);
  const std::vector<Count> flood{{PageId{5}, 0xfffffff0U}};
  exact->increment(std::span<const Count>(flood));
  CHECK_EQ(exact->get({5}), 0xfffffff0U);
  exact->increment(std::span<const Count>(flood));
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
      std::vector<Count> batch;
      std::vector<PageId> samples;
      for (const PageId page : skewed(rng, 600, 100)) {
        batch.push_back({page, static_cast<std::uint32_t>(rng.below(5))});
        samples.insert(samples.end(), batch.back().count, page);
      }
      added->increment(std::span<const Count>(batch));
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

namespace {

/// Random increments, slices of cooling and queries on `sliced`; `at_once` gets the same increments
/// but finishes each halving where it begins. They must agree on every page at every moment.
void check_cooling_equivalence(Tracker& sliced, Tracker& at_once, std::uint64_t pages, Rng& rng) {
  const auto every_page = dense(0, pages);
  std::uint64_t checked_while_cooling = 0;
  for (int step = 0; step < 120; ++step) {
    switch (rng.below(6)) {
      case 0:
        sliced.begin_cooling();
        at_once.begin_cooling();
        CHECK(at_once.cooling());
        CHECK_EQ(at_once.cool(at_once.lines()), at_once.lines());
        CHECK(!at_once.cooling());
        CHECK_EQ(at_once.cool(1), 0U);
        break;
      case 1:
      case 2: {
        const std::uint64_t lines = rng.below(sliced.lines() / 3 + 2);
        CHECK(sliced.cool(lines) <= lines);
        break;
      }
      case 3: {
        std::vector<Count> batch;
        for (const PageId page : skewed(rng, pages, rng.below(60)))
          batch.push_back({page, static_cast<std::uint32_t>(rng.below(7))});
        sliced.increment(std::span<const Count>(batch));
        at_once.increment(std::span<const Count>(batch));
        break;
      }
      default: {
        const auto batch = skewed(rng, pages, rng.below(120));
        sliced.increment(std::span<const PageId>(batch));
        at_once.increment(std::span<const PageId>(batch));
      }
    }
    checked_while_cooling += sliced.cooling() ? 1 : 0;
    const auto out = counts(sliced, every_page);
    for (std::size_t i = 0; i < out.size(); ++i) {
      CHECK_EQ(out[i], at_once.get(every_page[i]));
      CHECK_EQ(sliced.get(every_page[i]), out[i]);
    }
  }
  CHECK(checked_while_cooling > 20);
}

}  // namespace

TEST("track: cooling in slices equals halving all at once") {
  for_each_filter(150, [](const CbfOptions& options) {
    Rng rng(options.hashes * 100 + options.counter_bits);
    // Sized for fewer pages than are used, so that lines and counters are shared.
    const auto sliced = make_cbf(options);
    const auto at_once = make_cbf(options);
    check_cooling_equivalence(*sliced, *at_once, 400, rng);
  });
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Rng rng(seed);
    const auto sliced = make_exact(1'000);
    const auto at_once = make_exact(1'000);
    check_cooling_equivalence(*sliced, *at_once, 400 + 20 * seed, rng);
  }
}

TEST("track: halving rounds down and never leaks into a neighbour") {
  for_each_filter(2'000, [](const CbfOptions& options) {
    const auto filter = make_cbf(options);
    std::vector<Count> batch;
    for (std::uint64_t page = 0; page < 1'000; ++page)
      batch.push_back({PageId{page}, static_cast<std::uint32_t>(1 + page % filter->max_count())});
    filter->increment(std::span<const Count>(batch));
    const auto pages = dense(0, 1'000);
    const auto before = counts(*filter, pages);
    filter->begin_cooling();
    filter->cool(filter->lines());
    const auto after = counts(*filter, pages);
    for (std::size_t i = 0; i < pages.size(); ++i) CHECK_EQ(after[i], before[i] / 2);
  });
}

TEST("track: a halving begun while one is under way finishes that first") {
  std::vector<std::unique_ptr<Tracker>> trackers;
  trackers.push_back(make_cbf({.pages = 10'000}));
  trackers.push_back(make_cbf({.pages = 10'000, .blocked = false}));
  trackers.push_back(make_exact(10'000));
  for (const auto& tracker : trackers) {
    const std::vector<Count> batch{{PageId{1}, 15}, {PageId{77}, 14}};
    tracker->increment(std::span<const Count>(batch));
    tracker->begin_cooling();
    CHECK_EQ(tracker->cool(3), 3U);
    tracker->begin_cooling();
    CHECK_EQ(tracker->get({1}), 3U);
    CHECK_EQ(tracker->get({77}), 3U);
    CHECK_EQ(tracker->cool(tracker->lines() + 5), tracker->lines());
    CHECK(!tracker->cooling());
    CHECK_EQ(tracker->get({1}), 3U);
  }
}

TEST("track: there is nothing to cool until a halving begins, nor after growth has ended one") {
  for_each_filter(5'000, [](const CbfOptions& options) {
    const auto filter = make_cbf(options);
    CHECK(!filter->cooling());
    CHECK_EQ(filter->cool(10), 0U);
  });
  const auto table = make_exact(100);
  CHECK(!table->cooling());
  CHECK_EQ(table->cool(10), 0U);
  const std::vector<Count> batch{{PageId{1}, 9}};
  table->increment(std::span<const Count>(batch));
  table->begin_cooling();
  const std::uint64_t lines = table->lines();
  table->increment(std::span<const PageId>(dense(100, 10'000)));
  CHECK(table->lines() > lines);
  CHECK(!table->cooling());
  CHECK_EQ(table->cool(10), 0U);
  CHECK_EQ(table->get({1}), 4U);
}

TEST("track: the exact table agrees with a map, across growth and cooling") {
  Rng rng(5);
  const auto table = make_exact(16);
  std::unordered_map<std::uint64_t, std::uint32_t> map;
  for (int round = 0; round < 60; ++round) {
    std::vector<PageId> batch(500);
    // Few distinct low bits, sparse high bits, and the extremes of the range.
    for (auto& page : batch)
      page = {rng.below(8) == 0 ? ~rng.below(50) : rng.below(300) << rng.below(40)};
    table->increment(std::span<const PageId>(batch));
    for (const PageId page : batch) ++map[page.value];
    if (round % 7 == 6) {
      table->begin_cooling();
      for (auto& [page, count] : map) count /= 2;
    }
    table->cool(table->lines() / 4);
    for (const auto& [page, count] : map) CHECK_EQ(table->get({page}), count);
  }
  CHECK_EQ(table->get({123'456'789'123'456'789ULL}), 0U);
}

TEST("track: the exact table drops cooled pages, so it follows the working set") {
  const auto table = make_exact(10'000);
  const std::uint64_t bytes = table->bytes();
  // 100 working sets of 5 000 pages, one after the other: 500 000 pages in all.
  for (std::uint64_t set = 0; set < 100; ++set) {
    table->increment(std::span<const PageId>(dense(set * 5'000, 5'000)));
    table->begin_cooling();
    while (table->cool(7) != 0) {
    }
  }
  CHECK_EQ(table->bytes(), bytes);
  table->increment(std::span<const PageId>(dense(0, 50'000)));
  CHECK(table->bytes() > bytes);
}

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
    for (const Count& entry : merged) CHECK_EQ(entry.count, truth[entry.page.value]);
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
