// SPDX-License-Identifier: MIT

#include <cmath>
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "classify/neighbour_prior.hpp"

using namespace tt;
using classify::NeighbourPrior;

namespace {

constexpr std::uint32_t full = 1000;  // what a counter can hold

NeighbourPrior::Options options() {
  return {.fast_pages = 100,
          .neighbourhoods = 10,  // of ten pages
          .memory = 1e9,
          .period = 1e9,
          .max_count = full};
}

/// A prior and the counts of an exact tracker.
struct Counted {
  explicit Counted(const NeighbourPrior::Options& options) : prior(options), counts(10000) {
    prior.map({{0}, counts.size()});
  }
  void sample(std::uint64_t page, std::uint32_t times = 1) {
    const PageCount count{{page}, times};
    const std::uint32_t before = counts[page];
    counts[page] += times;
    prior.advance(times);
    prior.add({&count, 1}, {&before, 1}, {&counts[page], 1});
  }
  double rate(std::uint64_t page) const { return prior.rate({page}, counts[page]); }

  NeighbourPrior prior;
  std::vector<std::uint32_t> counts;
};

}  // namespace

TEST("neighbour prior: pages that are sampled alike are as hot as their neighbourhood") {
  Counted c(options());
  for (int round = 0; round < 20; ++round)
    for (std::uint64_t page = 0; page < 9; ++page) c.sample(page);
  // All of 180 samples fall into ten pages, of which one happens to have had none.
  CHECK(std::abs(c.rate(0) - 10) < 1.5);
  CHECK(c.rate(9) > 2);
  CHECK_EQ(c.rate(10), 0.0);  // the next neighbourhood has nobody who was sampled
}

TEST("neighbour prior: where few pages have all samples, each is as hot as its own count says") {
  Counted c(options());
  for (int round = 0; round < 200; ++round) c.sample(3);
  // 100 times what it would have if the samples fell into 100 pages.
  CHECK(c.rate(3) > 80);
  CHECK(c.rate(4) < 1.5);
}

TEST("neighbour prior: pages above the threshold fill the fast tier") {
  auto given = options();
  given.period = 2000;
  Counted c(given);
  CHECK(std::isinf(c.prior.threshold()));
  for (int round = 0; round < 10; ++round) {
    for (std::uint64_t page = 0; page < 80; ++page) c.sample(page, 2);
    for (std::uint64_t page = 1000; page < 1400; page += 1)
      if (page % 10 == static_cast<std::uint64_t>(round)) c.sample(page);
  }
  CHECK_EQ(c.prior.version(), 1U);
  CHECK(c.rate(40) > c.prior.threshold());
  CHECK(c.rate(1200) < c.prior.threshold());
  CHECK(std::abs(c.prior.hot_pages() - 80) < 25);
}

TEST("neighbour prior: forgets by halves") {
  auto given = options();
  given.memory = 50;
  Counted c(given);
  for (int round = 0; round < 10; ++round)
    for (std::uint64_t page = 0; page < 10; ++page) c.sample(page);
  const double before = c.rate(5);
  for (std::uint64_t page = 1000; page < 1400; ++page) c.sample(page);
  CHECK(c.prior.rate({5}, 1) < before / 50);  // a fifth of all samples, had it not forgotten
}

TEST("neighbour prior: memory that is new is judged by the samples since then") {
  Counted c(options());
  for (std::uint64_t page = 0; page < 1000; ++page) c.sample(page, 2);
  c.prior.unmap({{2000}, 10});
  c.prior.map({{2000}, 10});
  for (int round = 0; round < 5; ++round)
    for (std::uint64_t page = 2000; page < 2010; ++page) c.sample(page);
  // All of the last fifty; but one in forty of all that there ever were.
  CHECK(c.rate(2005) > 5);
  CHECK(c.rate(5) < 0.2);
}

TEST("neighbour prior: a tracker that halves its counts changes no rate by much") {
  Counted c(options());
  for (int round = 0; round < 32; ++round)
    for (std::uint64_t page = 0; page < 20; ++page) c.sample(page);
  const double before = c.rate(5);
  c.prior.cool();
  CHECK(std::abs(c.prior.rate({5}, c.counts[5] / 2) - before) < 0.1 * before);
}

TEST("neighbour prior: a full counter says only that there were more") {
  auto given = options();
  given.max_count = 4;
  NeighbourPrior prior(given);
  prior.map({{0}, 20});
  const PageCount hot{{0}, 1};
  for (int n = 0; n < 100; ++n) {
    const std::uint32_t before = n < 4 ? static_cast<std::uint32_t>(n) : 4;
    const std::uint32_t after = n < 3 ? before + 1 : 4;
    prior.advance(1);
    prior.add({&hot, 1}, {&before, 1}, {&after, 1});
  }
  CHECK(prior.rate({0}, 4) >= prior.rate({0}, 3));
}
