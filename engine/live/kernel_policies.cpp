// SPDX-License-Identifier: MIT

#include "live/kernel_policies.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "live/damon_schemes.hpp"
#include "live/mover.hpp"

namespace tt::live {
namespace {

const std::string demotion = "/sys/kernel/mm/numa/demotion_enabled";

constexpr std::array<std::string_view, 5> kernels_own{"autonuma", "nbt", "tpp", "damon-goal",
                                                      "hmsdk"};

/// What would run the policies that neither Linux nor a daemon can.
struct Elsewhere {
  std::string_view policy, what;
};
constexpr Elsewhere elsewhere[] = {
    {"nomad",
     "a kernel with its patches (github.com/lingfenghsiang/Nomad): copies of mapped pages that are "
     "void when one is written, and shadows that stay in the slow tier"},
    {"colloid",
     "a kernel with its patches and TPP's (github.com/host-architecture/colloid), and counters of "
     "the processor that tell each tier's latency under load"},
    {"autotiering",
     "a kernel with its patches (github.com/csl-ajou/AutoTiering): histories of pages by NUMA "
     "balancing's scan, and demotion by them"},
    {"multiclock",
     "a kernel with its patches: a third page list, of pages to promote, and the thread kpromoted"},
    {"nimble",
     "a kernel with its patches (github.com/ysarch-lab/nimble_page_management_asplos_2019): a "
     "manager of pages that a launcher calls, and that exchanges them between nodes"},
    {"pghot",
     "patches that are proposed for Linux and not merged: records of hot pages, and the thread "
     "kmigrated"},
    {"offline-optimal",
     "knowledge of all later accesses, which no kernel has: it bounds what a policy could reach"},
    {"static-hot", "knowledge of all later accesses, which no kernel has"},
    {"all-fast", "memory that holds everything: numactl --membind binds a program to nodes"},
    {"all-slow", "nothing of tierd: numactl --membind binds a program to nodes"},
    {"first-touch",
     "nothing of tierd: it is what Linux does with kernel.numa_balancing=0 and demotion off"},
    {"soar", "a launcher that places allocation sites"},
};

void leave_regulation(KernelPlanner& plan) {
  if (!plan.knobs().flag("aol.enabled")) {
    plan.leave("aol.enabled", "the kernel does not regulate by latency", true);
    return;
  }
  for (const char* const knob : {"aol.enabled", "aol.low", "aol.high", "aol.interval"})
    plan.leave(knob, "the kernel does not regulate by latency");
}

void set_scan(KernelPlanner& plan) {
  for (const auto& [file, knob] :
       {std::pair{"scan_size_mb", "scan_size"}, std::pair{"scan_period_min_ms", "scan_period_min"},
        std::pair{"scan_period_max_ms", "scan_period_max"}}) {
    From from{.knob = knob, .takes = "CONFIG_NUMA_BALANCING, and Linux 5.13 or newer"};
    // A kernel divides by these: 0 is its end.
    const std::string value = plan.whole(plan.knobs().real(knob), from, 1);
    plan.set(scan_folder + file, value, from);
  }
  plan.leave("max_scan_rate", "2.5 GiB/s in every kernel (MAX_SCAN_WINDOW)",
             plan.knobs().real("max_scan_rate") == 2.5);
}

void set_marks(KernelPlanner& plan) {
  From from{.knob = "watermark_scale", .note = "of each zone, in both tiers"};
  const std::string value = plan.whole(plan.knobs().real("watermark_scale") * 10000, from, 1);
  plan.set("/proc/sys/vm/watermark_scale_factor", value, from);
  plan.leave("watermark_min",
             "the kernel's own reserve (vm.min_free_kbytes), which it sizes by the machine: the "
             "knob is an estimate of it");
}

void leave_lists(KernelPlanner& plan) {
  plan.leave("lru_gib", "the kernel sizes its inactive lists itself",
             plan.knobs().real("lru_gib") == 1024);
  plan.leave("lru_batch", "32 in every kernel (SWAP_CLUSTER_MAX)",
             plan.knobs().real("lru_batch") == 32);
}

void leave_reclaim(KernelPlanner& plan) {
  plan.leave("reclaim_scan_rate", "as fast as kswapd is");
  leave_lists(plan);
}

/// Generations of pages, or lists.
void set_reclaim(KernelPlanner& plan) {
  const std::string file = "/sys/kernel/mm/lru_gen/enabled";
  const bool wanted = plan.knobs().flag("lru_gen");
  std::string found;
  if (plan.kernel().read(file, found) == ENOENT) {
    plan.leave("lru_gen", "this kernel has lists alone (no CONFIG_LRU_GEN)", !wanted);
  } else {
    // Parts of it, as a mask: an operator who has some switched off keeps them so.
    const bool on = std::strtoul(found.c_str(), nullptr, 0) != 0;
    const std::string now = found.substr(0, found.find('\n'));
    plan.set(
        file,
        wanted == on ? now
        : wanted     ? "0x0007"
                     : "0x0000",
        {.knob = "lru_gen",
         .note =
             "of all programs on the machine; a kernel without CONFIG_LRU_GEN has lists alone"});
  }
  if (wanted)
    plan.leave("lru_gen_batch", "64 in every kernel (MIN_LRU_BATCH)",
               plan.knobs().real("lru_gen_batch") == 64);
  plan.leave("reclaim_scan_rate", "as fast as kswapd is");
  if (!wanted) {
    leave_lists(plan);
    plan.leave("lru_sizes_age", "two seconds from Linux 6.12 on, 0 before");
  }
}

/// Which mode; last, so that what it goes by is there already.
void set_balancing(KernelPlanner& plan, const char* mode, bool demotes, const std::string& takes) {
  plan.set(demotion, demotes ? "true" : "false",
           {.takes = "demotion between memory tiers (Linux 5.15 or newer)"});
  plan.set(balancing_file, mode, {.takes = takes});
}

/// Memory tiering goes by the kernel's tiers, whatever the user says.
void require_tiers(KernelPlanner& plan, const std::optional<Nodes>& named) {
  Nodes nodes;
  try {
    nodes = find_nodes(plan.kernel());
  } catch (const std::runtime_error& error) {
    throw NotAllowed("policy " + plan.policy() +
                     ": Linux goes by its own memory tiers, and --fast and --slow do not change "
                     "them; " +
                     error.what());
  }
  if (named && named->of != nodes.of)
    throw std::invalid_argument("policy " + plan.policy() + ": found " + named->text() +
                                ", but Linux goes by its own memory tiers: " + nodes.text());
  plan.note(nodes.text() + ", by the kernel's memory tiers");
}

const std::string tiering = "NUMA balancing with memory tiering (Linux 5.18 or newer)";

void plan_nbt(KernelPlanner& plan, const std::optional<Nodes>& named) {
  require_tiers(plan, named);
  set_scan(plan);
  const std::string takes = "hot page selection (Linux 6.1 or newer)";
  From hot{.knob = "hot_threshold", .takes = takes};
  const std::string threshold = plan.whole(plan.knobs().real("hot_threshold"), hot, 1);
  plan.set(scan_folder + "hot_threshold_ms", threshold, hot);
  From rate{.knob = "promote_rate_limit", .takes = takes};
  const std::string limit = plan.whole(plan.knobs().real("promote_rate_limit") * 1024, rate, 1);
  plan.set("/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps", limit, rate);
  plan.leave("free_space", "1024 MiB in every kernel (pgdat_free_space_enough)",
             plan.knobs().real("free_space") == 1024);
  set_marks(plan);
  set_reclaim(plan);
  leave_regulation(plan);
  set_balancing(plan, "2", true, tiering);
}

void plan_tpp(KernelPlanner& plan, const std::optional<Nodes>& named) {
  require_tiers(plan, named);
  set_scan(plan);
  const std::string scale = "/proc/sys/vm/demote_scale_factor";
  std::string found;
  if (plan.kernel().read(scale, found) == ENOENT) {
    plan.note(
        "TPP's patches are not in this kernel; what Linux has of it is NUMA balancing with memory "
        "tiering, and demotion: a page is promoted that faults soon after its scan (hot_threshold "
        "of nbt), whether its list is active or not");
    plan.leave("demote_scale_factor",
               "vm.demote_scale_factor is of TPP's patches; Linux demotes by its watermarks");
  } else {
    From from{.knob = "demote_scale_factor"};
    const std::string value = plan.whole(plan.knobs().real("demote_scale_factor") * 10000, from);
    plan.set(scale, value, from);
  }
  plan.leave("port", "what a fault does is the kernel's code",
             plan.knobs().choice("port") == "paper");
  plan.leave("activation", "when a fault makes a page active is the kernel's code");
  set_marks(plan);
  leave_reclaim(plan);
  leave_regulation(plan);
  set_balancing(plan, "2", true, tiering);
}

void plan_autonuma(KernelPlanner& plan, const std::optional<Nodes>& named) {
  const std::vector<int> memory = node_list(plan.text("/sys/devices/system/node/has_memory"));
  const std::vector<int> processors = node_list(plan.text("/sys/devices/system/node/has_cpu"));
  if (memory.size() < 2)
    throw NotAllowed("policy " + plan.policy() +
                     ": this machine has one memory node: there is nothing to move between");
  std::string near;
  for (const int node : memory) {
    const bool has = std::ranges::find(processors, node) != processors.end();
    const Level level = named ? named->level(node) : nowhere;
    if (level != nowhere && (level == 0) != has)
      throw std::invalid_argument(
          "policy " + plan.policy() + ": node " + std::to_string(node) + " has " +
          (has ? "" : "no ") + "processors, and NUMA balancing promotes to nodes that have some");
    if (has) near += ' ' + std::to_string(node);
  }
  plan.note("a page goes to the node of the processor that uses it: node" + near);
  set_scan(plan);
  set_marks(plan);
  leave_regulation(plan);
  set_balancing(plan, "1", false, "CONFIG_NUMA_BALANCING");
}

void require_two_tiers(const Nodes& named) {
  const std::vector<int> slower = named.slower();
  const bool apart = !slower.empty() && !named.fast().empty() &&
                     std::ranges::none_of(slower, [&](int node) { return named.level(node) == 0; });
  if (!apart)
    throw std::invalid_argument("--fast and --slow: found " + named.text() +
                                ", expected one node or more of each, and none of both");
}

Nodes nodes_of(const KernelPlanner& plan, const std::optional<Nodes>& named) {
  if (named) return *named;
  try {
    return find_nodes(plan.kernel());
  } catch (const std::runtime_error& error) {
    throw NotAllowed("policy " + plan.policy() + ": " + error.what());
  }
}

}  // namespace

bool is_kernels_own(std::string_view policy) {
  return std::ranges::find(kernels_own, policy) != kernels_own.end();
}

KernelPlan kernel_plan(KernelCalls& kernel, const PolicyInfo& policy, const KnobMap& given,
                       const std::optional<Nodes>& named) {
  const Knobs knobs = resolve(policy.knobs, given);
  const std::string head = "policy " + policy.name + " is not one that Linux has itself; ";
  if (!is_kernels_own(policy.name)) {
    for (const Elsewhere& each : elsewhere)
      if (each.policy == policy.name)
        throw std::invalid_argument(head + "it takes " + std::string{each.what});
    throw std::invalid_argument(
        head + "it goes by " + names(policy.traits.needs) +
        ": `tierd run` and `tierd attach` are its way, where they have that");
  }
  if (named) require_two_tiers(*named);
  KernelPlanner plan{kernel, policy, knobs};
  if (policy.name == "autonuma") {
    plan_autonuma(plan, named);
  } else if (policy.name == "nbt") {
    plan_nbt(plan, named);
  } else if (policy.name == "tpp") {
    plan_tpp(plan, named);
  } else {
    const Nodes nodes = nodes_of(plan, named);
    plan.note(nodes.text());
    (policy.name == "hmsdk" ? plan_hmsdk : plan_damon_goal)(plan, nodes);
    leave_regulation(plan);
  }
  return plan.finish();
}

}  // namespace tt::live
