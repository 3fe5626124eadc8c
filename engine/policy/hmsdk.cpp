// SPDX-License-Identifier: MIT

// HMSDK: SK hynix, Heterogeneous Memory Software Development Kit, v4.0 (github.com/skhynix/hmsdk),
// as tuned in "From Good to Great: Improving Memory Tiering Performance Through Parameter Tuning",
// 2025, §4.5. It is a configuration of the kernel's DAMON and its migrate_hot and migrate_cold
// (Linux 6.11), which HMSDK's authors wrote. Values are those that tools/gen_migpol.py writes:
//
//     monitoring    intervals 100 ms, 2 s, 20 s; 100 to 10,000 regions of a node
//     demotion      access 0 %, for 30 s and more; 1 s and 50 GiB in 20 s; pages that are not young
//     promotion     access 5 % to 100 %, of any age; 2 s and 50 GiB in 20 s; pages that are young
//     priority      by age alone (weights 0, 0, 1 %)
//
// Code: https://github.com/skhynix/hmsdk; "From Good to Great": https://arxiv.org/abs/2504.18714;
// DAMON: https://doi.org/10.1145/3502181.3531466
//
// Published: all of these, and the algorithms of the kernel (mm/damon/core.c). Inferred: that one
// monitor of virtual addresses stands for one of each node's physical ones (damon_policy.hpp), so
// that the update interval, at which new mappings are found, matters; that time quotas are shares
// of a thread; and that a page's own bit ("young") is looked at when its region is tried, so that a
// page that nobody has looked at before counts as young, as in the kernel.
//
// monitor_   regions, their counts and ages (track/region_monitor.hpp)
// demote_    what may go down, and the state of its quota (migrate/scheme.hpp); the first time that
//            a region is cold for long enough only clears its pages' bits
// promote_   likewise, up
#include "core/make_policy.hpp"
#include "policy/damon_policy.hpp"
#include "regulate/aol.hpp"

namespace tt {
namespace {

class Hmsdk final : public DamonPolicy {
 public:
  explicit Hmsdk(const PolicyContext& context) : DamonPolicy(context, options(context)) {}

 private:
  static Options options(const PolicyContext& context) {
    const Knobs& knobs = context.knobs;
    Options all = common_options(knobs);
    all.monitor.aggregation = millis(knobs, "aggregation_interval");
    all.demote.quota.window = all.promote.quota.window = from_seconds(knobs.real("quota_interval"));
    all.demote.least_age = from_seconds(knobs.real("demote_age"));
    all.demote.quota.cores = knobs.real("demote_quota_cores");
    all.demote.quota.pages = pages(context, "demote_quota_size");
    all.demote.gate = {.high = knobs.real("demote_free_high"),
                       .mid = knobs.real("demote_free_mid")};
    all.promote.most_access = knobs.real("promote_access_max");
    all.promote.least_age = from_seconds(knobs.real("promote_age"));
    all.promote.quota.cores = knobs.real("promote_quota_cores");
    all.promote.quota.pages = pages(context, "promote_quota_size");
    return all;
  }
};

std::vector<KnobDecl> hmsdk_knobs() {
  using namespace knob;
  const std::string tool = "HMSDK v4.0, tools/gen_migpol.py";
  const std::string damos = "Linux, Documentation/mm/damon/design.rst";
  return list(
      real("sampling_interval", 100, {1, 10000, log}, milliseconds, tool,
           "time in which one page of each region may be accessed"),
      real("aggregation_interval", 2000, {10, 100000, log}, milliseconds, tool,
           "time over which accesses are counted; not below sampling_interval"),
      real("update_interval", 20000, {100, 1000000, log}, milliseconds, tool,
           "time after which what is mapped is looked at again"),
      integer("min_regions", 100, {3, 100000, log}, none, tool, "least number of regions"),
      integer("max_regions", 10000, {10, 1000000, log}, none, tool,
              "most regions; not below min_regions"),
      real("demote_access_max", 0, {0, 1}, ratio, tool,
           "share of samples with an access up to which a region is cold"),
      real("demote_age", 30, {0, 3600}, Unit::seconds, tool, "time for which it has to be"),
      real("promote_access_min", 0.05, {0, 1}, ratio, tool,
           "share of samples with an access from which a region is hot"),
      real("promote_access_max", 1, {0, 1}, ratio, tool, "share up to which it is"),
      real("promote_age", 0, {0, 3600}, Unit::seconds, tool, "time for which it has to be"),
      real("demote_quota_cores", 0.05, {0.0001, 64, log}, cores, tool + ": 1 s in 20 s",
           "share of a thread's time that demotions may take"),
      real("promote_quota_cores", 0.1, {0.0001, 64, log}, cores, tool + ": 2 s in 20 s",
           "share of a thread's time that promotions may take"),
      real("demote_quota_size", 51200, {1, 1e7, log}, mebibytes, tool,
           "most that is tried for demotion in a quota_interval"),
      real("promote_quota_size", 51200, {1, 1e7, log}, mebibytes, tool,
           "most that is tried for promotion in a quota_interval"),
      real("quota_interval", 20, {0.1, 1000, log}, Unit::seconds, tool,
           "time after which the quotas begin anew"),
      real("access_weight", 0, {0, 1}, ratio, tool,
           "weight of the count in the score of a region, which orders them under a quota"),
      real("age_weight", 0.01, {0, 1}, ratio, tool, "weight of the age in it"),
      flag("young_filter", true, tool,
           "of a hot region, only pages whose own accessed bit is set; of a cold one, only others"),
      real("demote_free_high", 1, {0, 1}, ratio, damos + ", Watermarks; HMSDK has none",
           "share of the fast tier that is free above which nothing is demoted"),
      real("demote_free_mid", 1, {0, 1}, ratio, damos + ", Watermarks; HMSDK has none",
           "share below which demotion begins again; not above demote_free_high"));
}

const RegisterPolicy hmsdk_policy{regulate::with_aol<make_policy<Hmsdk>>({
    .name = "hmsdk",
    .family = "region",
    .summary = "DAMON's regions by sampled accessed bits; hot and cold by fixed shares and ages",
    .citation = "SK hynix, HMSDK v4.0; From Good to Great, 2025, §4.5; DAMON: Park et al., "
                "HPDC 2022",
    .addresses = {"https://github.com/skhynix/hmsdk", "https://arxiv.org/abs/2504.18714",
                  "https://doi.org/10.1145/3502181.3531466"},
    .knobs = hmsdk_knobs(),
    .traits = {.needs = Need::probes | Need::accessed_bits},
})};

}  // namespace
}  // namespace tt
