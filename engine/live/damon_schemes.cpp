// SPDX-License-Identifier: MIT

#include "live/damon_schemes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/types.hpp"
#include "live/damon.hpp"
#include "live/mover.hpp"
#include "live/node_addresses.hpp"

namespace tt::live {
namespace {

const std::string most_bytes = std::to_string(std::numeric_limits<std::uint64_t>::max());
const std::string most_count = std::to_string(std::numeric_limits<std::uint32_t>::max());
constexpr double thousandths = 1000, basis_points = 10000, mebibyte = 1 << 20;

/// The kernel's intervals: a sample's in microseconds, and how many are counted together.
struct Intervals {
  std::uint64_t sampling_us = 0, samples = 0;
  Nanos aggregation{};
};

/// One monitor with one scheme.
struct Monitor {
  std::string context;  // its folder
  std::string scheme;
  Tier tier = Tier::fast;  // that it looks at
  int node = 0, target = 0;
};

class Schemes {
 public:
  Schemes(KernelPlanner& plan, const Nodes& nodes) : plan_(plan), nodes_(nodes) {}

  /// `each` writes what is the policy's own of one monitor, between its targets and its start.
  void run(const std::function<void(const Monitor&)>& each) {
    // Nobody else moves pages: it is the policy alone that was simulated.
    plan_.set_if_there("/proc/sys/kernel/numa_balancing", "0");
    plan_.set_if_there("/sys/kernel/mm/numa/demotion_enabled", "false");
    const std::string used =
        plan_.text(kdamonds + "nr_kdamonds", "a kernel with CONFIG_DAMON_SYSFS");
    if (used != "0")
      throw NotAllowed("policy " + plan_.policy() +
                       ": DAMON is in use by somebody else: " + kdamonds + "nr_kdamonds is " +
                       used + "; end what uses it, or write 0 there");
    std::map<int, std::vector<AddressRange>> addresses;
    try {
      addresses = node_addresses(plan_.text("/proc/zoneinfo"));
    } catch (const NotAllowed&) {
      throw;
    } catch (const std::runtime_error& error) {
      throw NotAllowed("policy " + plan_.policy() + ": " + error.what());
    }
    std::string stat;
    const std::string stat_enabled = "/sys/module/damon_stat/parameters/enabled";
    // Since 6.17 the kernel watches itself by default, and keeps others out.
    if (plan_.kernel().read(stat_enabled, stat) == 0 && stat.starts_with('Y'))
      plan_.set(stat_enabled, "N");
    const std::vector<int>& fast = nodes_.fast();
    const std::vector<int> slow = nodes_.slower();
    plan_.set(kdamonds + "nr_kdamonds", std::to_string(fast.size() + slow.size()));
    std::size_t number = 0;
    // Demotion first, to make room.
    for (std::size_t i = 0; i < fast.size(); ++i)
      monitor(number++, Tier::fast, fast[i], slow[i % slow.size()], addresses, each);
    for (std::size_t i = 0; i < slow.size(); ++i)
      monitor(number++, Tier::slow, slow[i], fast[i % fast.size()], addresses, each);
    for (std::size_t i = 0; i < number; ++i)
      plan_.set_new(kdamonds + std::to_string(i) + "/state", "on",
                    {.takes = "DAMON for itself: damon_reclaim and damon_lru_sort off"}, "off");
    plan_.note(
        "every process's pages are moved, and memory that is plugged in later is not looked at");
  }

  /// The intervals, and the limits of regions.
  void monitoring(const Monitor& to, const Intervals& intervals, const From& sampling,
                  const std::string& aggregation_knob) {
    const std::string folder = to.context + "monitoring_attrs/";
    plan_.set_new(folder + "intervals/sample_us", std::to_string(intervals.sampling_us), sampling);
    plan_.set_new(folder + "intervals/aggr_us",
                  std::to_string(intervals.aggregation.count() / 1000), {.knob = aggregation_knob});
    microseconds(folder + "intervals/update_us", "update_interval");
    if (real("max_regions") < real("min_regions"))
      throw std::invalid_argument("knob max_regions: must not be below min_regions");
    number(folder + "nr_regions/min", "min_regions", 1);
    number(folder + "nr_regions/max", "max_regions", 1);
  }

  /// Which regions, from counts of samples that found an access and from ages in aggregations. An
  /// empty knob: any.
  void pattern(const Monitor& to, const Intervals& intervals, const std::string& least,
               const std::string& most, const std::string& age) {
    const std::string folder = to.scheme + "access_pattern/";
    const auto samples = static_cast<double>(intervals.samples);
    const std::string of = "of " + std::to_string(intervals.samples) + " samples";
    plan_.set_new(folder + "sz/min", "0");
    plan_.set_new(folder + "sz/max", most_bytes);
    if (least.empty()) {
      plan_.set_new(folder + "nr_accesses/min", "0");
    } else {
      plan_.set_new(folder + "nr_accesses/min", count(std::ceil(real(least) * samples)),
                    {.knob = least, .note = of});
    }
    if (most.empty()) {
      plan_.set_new(folder + "nr_accesses/max", most_count);
    } else {
      plan_.set_new(folder + "nr_accesses/max", count(std::floor(real(most) * samples)),
                    {.knob = most, .note = of});
    }
    if (age.empty()) {
      plan_.set_new(folder + "age/min", "0");
    } else {
      const Nanos wanted = from_seconds(real(age));
      const auto ages =
          (wanted + intervals.aggregation - Nanos{1}).count() / intervals.aggregation.count();
      plan_.set_new(folder + "age/min", std::to_string(ages),
                    {.knob = age, .note = "in aggregation intervals"});
    }
    plan_.set_new(folder + "age/max", most_count);
  }

  void quota(const Monitor& to, const std::string& size_knob, double window_ms) {
    const std::string folder = to.scheme + "quotas/";
    From size{.knob = size_knob};
    plan_.set_new(folder + "bytes", plan_.whole(real(size_knob) * mebibyte, size, 1), size);
    From window{.knob = "quota_interval"};
    plan_.set_new(folder + "reset_interval_ms", plan_.whole(window_ms, window, 1), window);
    plan_.set_new(folder + "weights/sz_permil", "0");
    for (const auto& [file, knob] : {std::pair{"nr_accesses_permil", "access_weight"},
                                     std::pair{"age_permil", "age_weight"}}) {
      From weight{.knob = knob};
      plan_.set_new(folder + "weights/" + file, plan_.whole(real(knob) * thousandths, weight),
                    weight);
    }
  }

  /// Of a hot region only pages that are young, of a cold one only others.
  void young(const Monitor& to) {
    if (!plan_.knobs().flag("young_filter")) {
      if (to.tier == Tier::fast)
        plan_.leave("young_filter", "no filter is what a scheme has at first", true);
      return;
    }
    const std::string folder = to.scheme + "filters/";
    const std::string takes = "filters by a page's accessed bit (Linux 6.10 or newer)";
    plan_.set_new(folder + "nr_filters", "1", {.takes = takes});
    plan_.set_new(folder + "0/type", "young", {.knob = "young_filter", .takes = takes});
    plan_.set_new(folder + "0/matching", to.tier == Tier::fast ? "Y" : "N",
                  {.knob = "young_filter",
                   .note = to.tier == Tier::fast ? "young pages stay" : "others stay"});
  }

  void microseconds(const std::string& file, const std::string& knob) {
    From from{.knob = knob};
    plan_.set_new(file, plan_.whole(real(knob) * 1000, from, 1), from);
  }
  void number(const std::string& file, const std::string& knob, double factor,
              const std::string& takes = {}) {
    From from{.knob = knob, .takes = takes};
    plan_.set_new(file, plan_.whole(real(knob) * factor, from, 1), from);
  }
  [[nodiscard]] double real(const std::string& knob) const { return plan_.knobs().real(knob); }
  [[nodiscard]] static std::string count(double value) {
    return std::to_string(static_cast<std::uint64_t>(value));
  }

 private:
  void monitor(std::size_t number, Tier tier, int node, int target,
               const std::map<int, std::vector<AddressRange>>& addresses,
               const std::function<void(const Monitor&)>& each) {
    const auto found = addresses.find(node);
    if (found == addresses.end())
      throw NotAllowed("policy " + plan_.policy() + ": /proc/zoneinfo tells of no memory of node " +
                       std::to_string(node));
    const std::string kdamond = kdamonds + std::to_string(number) + "/";
    const Monitor to{kdamond + "contexts/0/", kdamond + "contexts/0/schemes/0/", tier, node,
                     target};
    plan_.set_new(kdamond + "contexts/nr_contexts", "1");
    plan_.set_new(to.context + "operations", "paddr",
                  {.note = "node " + std::to_string(node), .takes = "CONFIG_DAMON_PADDR"});
    plan_.set_new(to.context + "targets/nr_targets", "1");
    const std::string regions = to.context + "targets/0/regions/";
    plan_.set_new(regions + "nr_regions", std::to_string(found->second.size()));
    for (std::size_t i = 0; i < found->second.size(); ++i) {
      const std::string region = regions + std::to_string(i) + "/";
      plan_.set_new(region + "start", std::to_string(found->second[i].begin));
      plan_.set_new(region + "end", std::to_string(found->second[i].end));
    }
    plan_.set_new(to.context + "schemes/nr_schemes", "1");
    plan_.set_new(to.scheme + "action", tier == Tier::fast ? "migrate_cold" : "migrate_hot",
                  {.takes = "schemes that migrate (Linux 6.11 or newer)"});
    plan_.set_new(to.scheme + "target_nid", std::to_string(target));
    each(to);
  }

  KernelPlanner& plan_;
  const Nodes& nodes_;
};

}  // namespace

void plan_damon_goal(KernelPlanner& plan, const Nodes& nodes) {
  Schemes schemes{plan, nodes};
  const Knobs& knobs = plan.knobs();
  const bool tuned = knobs.real("access_goal") > 0;
  const double least = knobs.real("sampling_min");
  const double most = std::max(least, knobs.real("sampling_max"));
  From sampling{.knob = "sampling_interval"};
  double first = knobs.real("sampling_interval");
  if (tuned && (first < least || first > most)) {
    // The kernel refuses to start elsewhere; the tuning would bring it there at its first step.
    first = std::clamp(first, least, most);
    sampling.note = "begins within sampling_min and sampling_max";
  }
  Intervals intervals;
  intervals.sampling_us = std::stoull(plan.whole(first * 1000, sampling, 1));
  intervals.samples = static_cast<std::uint64_t>(knobs.integer("aggregation_samples"));
  intervals.aggregation =
      Nanos{static_cast<std::int64_t>(intervals.sampling_us * intervals.samples * 1000)};
  const std::string takes =
      "goals by the use of a node, and intervals that tune themselves (Linux 6.16 or newer)";
  schemes.run([&](const Monitor& to) {
    schemes.monitoring(to, intervals, sampling, "aggregation_samples");
    if (tuned) {
      const std::string goal = to.context + "monitoring_attrs/intervals/intervals_goal/";
      schemes.number(goal + "access_bp", "access_goal", basis_points, takes);
      schemes.number(goal + "aggrs", "goal_aggregations", 1, takes);
      schemes.microseconds(goal + "min_sample_us", "sampling_min");
      From longest{.knob = "sampling_max"};
      plan.set_new(goal + "max_sample_us", plan.whole(most * 1000, longest, 1), longest);
    }
    if (to.tier == Tier::fast) {
      schemes.pattern(to, intervals, "", "demote_access_max", "");
    } else {
      schemes.pattern(to, intervals, "promote_access_min", "", "");
    }
    schemes.microseconds(to.scheme + "apply_interval_us", "apply_interval");
    schemes.quota(to, "quota_size", knobs.real("quota_interval"));
    const std::string goals = to.scheme + "quotas/goals/";
    const bool demotes = to.tier == Tier::fast;
    plan.set_new(goals + "nr_goals", "1", {.takes = takes});
    plan.set_new(goals + "0/target_metric", demotes ? "node_mem_free_bp" : "node_mem_used_bp",
                 {.takes = takes});
    schemes.number(goals + "0/target_value", demotes ? "fast_free_goal" : "fast_used_goal",
                   basis_points);
    plan.set_new(goals + "0/nid", std::to_string(demotes ? to.node : to.target), {.takes = takes});
    schemes.young(to);
  });
  if (!tuned) {
    plan.leave("access_goal", "intervals stay as they are", true);
    for (const char* const knob : {"goal_aggregations", "sampling_min", "sampling_max"})
      plan.leave(knob, "without an access_goal nothing follows it", true);
  }
  plan.leave("quota_least", "a quota under a goal begins at one byte, and leaves no less",
             knobs.real("quota_least") * mebibyte == 1);
  plan.leave("head_start", "the quotas begin when this is applied");
}

void plan_hmsdk(KernelPlanner& plan, const Nodes& nodes) {
  Schemes schemes{plan, nodes};
  const Knobs& knobs = plan.knobs();
  From sampling{.knob = "sampling_interval"};
  const Nanos aggregation = from_millis(knobs.real("aggregation_interval"));
  if (aggregation < from_millis(knobs.real("sampling_interval")))
    throw std::invalid_argument("knob aggregation_interval: must not be below sampling_interval");
  Intervals intervals;
  intervals.sampling_us =
      std::stoull(plan.whole(knobs.real("sampling_interval") * 1000, sampling, 1));
  intervals.aggregation = Nanos{aggregation.count() / 1000 * 1000};
  intervals.samples = std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(intervals.aggregation.count()) / 1000 / intervals.sampling_us);
  const double window_ms = knobs.real("quota_interval") * 1000;
  schemes.run([&](const Monitor& to) {
    const std::string way = to.tier == Tier::fast ? "demote_" : "promote_";
    schemes.monitoring(to, intervals, sampling, "aggregation_interval");
    schemes.pattern(to, intervals, to.tier == Tier::fast ? "" : "promote_access_min",
                    way + "access_max", way + "age");
    plan.set_new(to.scheme + "apply_interval_us", "0", {.note = "once in each aggregation"});
    schemes.number(to.scheme + "quotas/ms", way + "quota_cores", window_ms);
    schemes.quota(to, way + "quota_size", window_ms);
    schemes.young(to);
  });
  for (const char* const knob : {"demote_free_high", "demote_free_mid"})
    plan.leave(knob, "DAMON's watermarks are about the free memory of the whole machine",
               knobs.real("demote_free_high") == 1 && knobs.real("demote_free_mid") == 1);
}

}  // namespace tt::live
