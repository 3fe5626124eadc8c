// SPDX-License-Identifier: MIT

// Whether, how many and which huge pages are split.
#include "check.hpp"
#include "classify/split_plan.hpp"

using namespace tt;
using classify::SplitPlan;

namespace {

void samples(SplitPlan& plan, int count, double real, double estimated) {
  for (int i = 0; i < count; ++i) plan.sample(i < real * count, i < estimated * count);
}

}  // namespace

TEST("split plan: so many as the gain, the latency gap and the accessed huge pages say") {
  SplitPlan plan({});
  plan.add({0}, 10, 100, 1);
  plan.add({512}, 30, 100, 1);  // 20 samples on average
  samples(plan, 1000, 0.4, 0.7);
  // (2): 0.3 * 2 * 0.4 * 1000 / 20
  CHECK_NEAR(plan.end_interval(2), 12, 1e-9);
  CHECK_NEAR(plan.real(), 0.4, 1e-9);
  CHECK_NEAR(plan.estimated(), 0.7, 1e-9);
  CHECK_EQ(plan.samples(), 0u);
  samples(plan, 1000, 0.4, 0.7);
  CHECK_NEAR(plan.end_interval(20), 50, 1e-9);  // no more than there are
}

TEST("split plan: none below the least benefit, and none before huge pages have been looked at") {
  SplitPlan plan({.benefit = 0.05});
  samples(plan, 1000, 0.4, 0.9);
  CHECK_NEAR(plan.end_interval(2), 0, 0);
  plan.add({0}, 10, 100, 1);
  samples(plan, 1000, 0.4, 0.449);
  CHECK_NEAR(plan.end_interval(2), 0, 0);
  samples(plan, 1000, 0.4, 0.451);
  CHECK(plan.end_interval(2) > 0);
  samples(plan, 1000, 0.4, 0.2);  // base pages would be worse
  CHECK_NEAR(plan.end_interval(2), 0, 0);
  samples(plan, 1000, 0.4, 0.9);
  CHECK_NEAR(plan.end_interval(0), 0, 0);  // tiers alike
}

TEST("split plan: the code believes less of the estimate, and gives up when nothing was gained") {
  SplitPlan plan({.estimate = 0.95, .end_below = 0.03});
  plan.add({0}, 10, 100, 1);
  samples(plan, 1000, 0.89, 1);
  CHECK_NEAR(plan.estimated(), 0, 0);
  CHECK(plan.end_interval(2) > 0);  // 0.95 - 0.89
  CHECK_NEAR(plan.estimated(), 0.95, 1e-9);
  samples(plan, 1000, 0.9, 1);
  CHECK_NEAR(plan.end_interval(2), 0, 0);
  samples(plan, 1000, 0.1, 1);
  CHECK_NEAR(plan.end_interval(2), 0, 0);  // for good
}

TEST("split plan: takes the most skewed first, and keeps fractions of a page") {
  CHECK_NEAR(SplitPlan::skewness(600, 10), 6, 0);
  CHECK_NEAR(SplitPlan::skewness(600, 0), 0, 0);
  SplitPlan plan({});
  plan.add({0}, 1, 600, 10);      // 6
  plan.add({512}, 1, 1e6, 2);     // 250,000
  plan.add({1024}, 1, 1e6, 100);  // 100
  plan.add({1536}, 1, 1e6, 0);    // nothing in it is hot
  plan.add({2048}, 0, 1e9, 1);    // not sampled
  CHECK((plan.take(0.6).empty()));
  CHECK((plan.take(0.6) == std::vector<PageId>{{512}}));
  CHECK((plan.take(5) == std::vector<PageId>{{1024}, {0}}));
  plan.add({0}, 1, 600, 10);
  plan.clear();
  CHECK(plan.take(5).empty());
}
