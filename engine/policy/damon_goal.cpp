// SPDX-License-Identifier: MIT

// DAMON's self-tuned tiering: S. Park, "mm/damon: auto-tune DAMOS for NUMA setups including tiered
// memory", Linux 6.16, on intervals that tune themselves, Linux 6.15
// (Documentation/mm/damon/design.rst, "Monitoring Intervals Auto-tuning" and "Aim-oriented
// Feedback-driven Auto-tuning"). It is set up as by damo's scripts/mem_tier.sh and the kernel's
// samples/damon/mtier.c, which are alike but for weights (the latter's) and promotion (from one
// access on there; from 5 % here, as the script has it):
//
//     monitoring    intervals by which 4 % of all possible accesses are seen, looked at every 3
//                   aggregations, between 5 ms and 10 s; 10 to 1,000 regions (DAMON's default)
//     each second   demotion: access 0 %, pages that are not young; as much as keeps 0.5 % of the
//                   fast tier free, at most 200 MiB
//                   promotion: access 5 % and more, young pages; as much as keeps 99.7 % of it in
//                   use, at most 200 MiB
//     priority      by count and age alike
//
// Design: https://docs.kernel.org/mm/damon/design.html;
// script: https://github.com/damonitor/damo/blob/next/scripts/mem_tier.sh;
// DAMON: https://doi.org/10.1145/3502181.3531466
//
// A quota follows its goal in proportion to the distance, from one byte up or down again
// (migrate/quota.hpp). As it has no limit but 2^64, a promotion quota that has grown while the fast
// tier was nearly empty stays above its 200 MiB for good: on a machine where DAMON runs before the
// program does, room is what limits promotions. Inferred: that it ran for a minute before
// (head_start), and that one monitor stands for one of each node, with intervals of its own
// (damon_policy.hpp).
//
// monitor_   regions, their counts and ages, intervals (track/region_monitor.hpp)
// demote_    what may go down, and its quota by feedback (migrate/scheme.hpp)
// promote_   likewise, up
#include "core/make_policy.hpp"
#include "policy/damon_policy.hpp"
#include "regulate/aol.hpp"

namespace tt {
namespace {

class DamonGoal final : public DamonPolicy {
 public:
  explicit DamonGoal(const PolicyContext& context) : DamonPolicy(context, options(context)) {}

 private:
  static Options options(const PolicyContext& context) {
    const Knobs& knobs = context.knobs;
    Options all = common_options(knobs);
    all.monitor.aggregation = all.monitor.sampling * knobs.integer("aggregation_samples");
    const Nanos least = millis(knobs, "sampling_min");
    all.monitor.goal = {.share = knobs.real("access_goal"),
                        .aggregations = static_cast<unsigned>(knobs.integer("goal_aggregations")),
                        .least = least,
                        .most = std::max(least, millis(knobs, "sampling_max"))};
    all.apply = millis(knobs, "apply_interval");
    migrate::Quota::Options quota;
    quota.window = millis(knobs, "quota_interval");
    quota.pages = pages(context, "quota_size");
    quota.least = pages(context, "quota_least");
    all.demote.quota = all.promote.quota = quota;
    all.demote.goal = migrate::Scheme::Goal::free;
    all.demote.goal_share = knobs.real("fast_free_goal");
    all.promote.goal = migrate::Scheme::Goal::used;
    all.promote.goal_share = knobs.real("fast_used_goal");
    all.promote.quota.head_start = from_seconds(knobs.real("head_start"));
    return all;
  }
};

std::vector<KnobDecl> damon_goal_knobs() {
  using namespace knob;
  const std::string script = "damo, scripts/mem_tier.sh";
  const std::string kernel = "Linux 6.16, mm/damon";
  return list(
      real("access_goal", 0.04, {0, 1}, ratio, script,
           "share of samples, weighted by size, that are to find an access; 0: fixed intervals"),
      integer("goal_aggregations", 3, {1, 1000, log}, none, script,
              "aggregations between two changes of the intervals"),
      real("sampling_min", 5, {0.1, 10000, log}, milliseconds, script,
           "shortest sampling interval"),
      real("sampling_max", 10000, {1, 100000, log}, milliseconds, script,
           "longest sampling interval"),
      real("sampling_interval", 5, {0.1, 100000, log}, milliseconds, kernel + ": default",
           "sampling interval that tuning begins with"),
      integer("aggregation_samples", 20, {1, 1000, log}, none, kernel + ": 100 ms of 5 ms",
              "samples that are counted together"),
      real("update_interval", 1000, {10, 1000000, log}, milliseconds, kernel + ": default",
           "time after which what is mapped is looked at again"),
      integer("min_regions", 10, {3, 100000, log}, none, kernel + ": default",
              "least number of regions"),
      integer("max_regions", 1000, {10, 1000000, log}, none, kernel + ": default",
              "most regions; not below min_regions"),
      real("demote_access_max", 0, {0, 1}, ratio, script,
           "share of samples with an access up to which a region is cold"),
      real("promote_access_min", 0.05, {0, 1}, ratio, script,
           "share of samples with an access from which a region is hot"),
      real("apply_interval", 1000, {10, 100000, log}, milliseconds, script,
           "time between two looks at all regions"),
      real("quota_interval", 1000, {10, 100000, log}, milliseconds, script,
           "time after which the quotas begin anew, as large as their goals ask for"),
      real("quota_size", 200, {1, 1e7, log}, mebibytes, script,
           "most that is tried in a quota_interval, in each direction"),
      real("quota_least", 1.0 / (1 << 20), {1e-7, 1e6, log}, mebibytes, kernel + ": one byte",
           "quota that feedback begins with, and the least that it leaves"),
      real("head_start", 60, {0, 1000}, Unit::seconds, "inferred",
           "time for which the system ran on an empty fast tier before the program began"),
      real("fast_free_goal", 0.005, {0.0001, 1, log}, ratio, script,
           "share of the fast tier that demotion is to keep free"),
      real("fast_used_goal", 0.997, {0.01, 1}, ratio, script,
           "share of the fast tier that promotion is to keep in use"),
      real("access_weight", 0.1, {0, 1}, ratio, "Linux 6.16, samples/damon/mtier.c",
           "weight of the count in the score of a region, which orders them under a quota"),
      real("age_weight", 0.1, {0, 1}, ratio, "Linux 6.16, samples/damon/mtier.c",
           "weight of the age in it"),
      flag(
          "young_filter", true, script,
          "of a hot region, only pages whose own accessed bit is set; of a cold one, only others"));
}

const RegisterPolicy damon_goal_policy{regulate::with_aol<make_policy<DamonGoal>>({
    .name = "damon-goal",
    .family = "region",
    .summary = "DAMON's regions; quotas follow the fast tier's use, intervals what is seen",
    .citation =
        "Park, DAMON-based memory tiering with auto-tuned quotas and intervals, Linux 6.16, "
        "2025; damo, scripts/mem_tier.sh; DAMON: Park et al., HPDC 2022",
    .addresses = {"https://docs.kernel.org/mm/damon/design.html",
                  "https://github.com/damonitor/damo/blob/next/scripts/mem_tier.sh",
                  "https://doi.org/10.1145/3502181.3531466"},
    .knobs = damon_goal_knobs(),
    .traits = {.needs = Need::probes | Need::accessed_bits},
})};

}  // namespace
}  // namespace tt
