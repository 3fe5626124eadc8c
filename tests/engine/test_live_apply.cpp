// SPDX-License-Identifier: MIT

// The kernel's own policies: what is planned, written and undone, whatever fails, and what is
// refused.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "check.hpp"
#include "fake_kernel.hpp"
#include "live/applied.hpp"
#include "live/changes.hpp"
#include "live/kernel_policies.hpp"
#include "live/node_addresses.hpp"
#include "scratch.hpp"

using namespace tt;
using live::Changes;
using live::KernelPlan;
using live::Nodes;
using test::FakeKernel;

namespace {

using Files = std::map<std::string, std::string>;

const std::string balancing = "/proc/sys/kernel/numa_balancing";
const std::string rate_limit = "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps";
const std::string demotion = "/sys/kernel/mm/numa/demotion_enabled";
const std::string scan = "/sys/kernel/debug/sched/numa_balancing/";
const std::string lru_gen = "/sys/kernel/mm/lru_gen/enabled";
const std::string watermarks = "/proc/sys/vm/watermark_scale_factor";
const std::string kdamonds = FakeKernel::kdamonds;
const std::string stat_enabled = "/sys/module/damon_stat/parameters/enabled";

// Of a guest of 384 and 768 MiB; lines that nobody reads are left out.
const std::string zoneinfo =
    "Node 0, zone      DMA\n"
    "  per-node stats\n"
    "      nr_inactive_anon 0\n"
    "  pages free     3840\n"
    "        spanned  4095\n"
    "        present  3998\n"
    "        managed  3840\n"
    "  node_unreclaimable:  0\n"
    "  start_pfn:           1\n"
    "Node 0, zone    DMA32\n"
    "        spanned  94208\n"
    "        present  94208\n"
    "  start_pfn:           4096\n"
    "Node 0, zone   Normal\n"
    "        spanned  0\n"
    "        present  0\n"
    "  start_pfn:           0\n"
    "Node 1, zone    DMA32\n"
    "        spanned  196608\n"
    "        present  196576\n"
    "  start_pfn:           98304\n"
    "Node 1, zone   Device\n"
    "        spanned  32768\n"
    "        present  32768\n"
    "  start_pfn:           4194304\n";

/// With all that Linux 7.3 has; 6.12 has no goals.
FakeKernel machine(bool has_goals = true) {
  FakeKernel kernel{{98304, 196608}};
  kernel.files = {
      {"/proc/sys/kernel/osrelease", has_goals ? "7.3.4\n" : "6.12.117\n"},
      {"/proc/mounts", "none /sys/kernel/debug debugfs rw 0 0\n"},
      {"/proc/zoneinfo", zoneinfo},
      {"/sys/devices/system/node/has_memory", "0-1\n"},
      {"/sys/devices/system/node/has_cpu", "0\n"},
      {"/sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0\n"},
      {"/sys/devices/virtual/memory_tiering/memory_tier22/nodelist", "1\n"},
      {balancing, "3\n"},
      {rate_limit, "65536\n"},
      {demotion, "false\n"},
      {watermarks, "10\n"},
      {lru_gen, "0x0003\n"},
      {scan + "scan_size_mb", "256\n"},
      {scan + "scan_period_min_ms", "1000\n"},
      {scan + "scan_period_max_ms", "60000\n"},
      {scan + "hot_threshold_ms", "1000\n"},
      {kdamonds + "nr_kdamonds", "0\n"},
  };
  if (has_goals) {
    kernel.files[stat_enabled] = "Y\n";
  } else {
    kernel.judge = [](const std::string& path, const std::string& text) {
      if (path.find("/intervals_goal/") != std::string::npos) return ENOENT;
      return text.starts_with("node_mem_") ? EINVAL : 0;
    };
  }
  return kernel;
}

KernelPlan plan_of(FakeKernel& kernel, const std::string& name, const KnobMap& knobs = {},
                   const std::optional<Nodes>& nodes = {}) {
  return live::kernel_plan(kernel, policy(name), knobs, nodes);
}

std::string stripped(const std::string& text) { return text.substr(0, text.find('\n')); }

/// What the files hold, without their newlines.
Files settings(const FakeKernel& kernel) {
  Files out;
  for (const auto& [path, text] : kernel.files) out[path] = stripped(text);
  return out;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in{path};
  return {std::istreambuf_iterator<char>{in}, {}};
}
void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream{path} << text;
  std::filesystem::permissions(path, std::filesystem::perms{0600});
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A value of a knob, and what becomes of it.
struct Case {
  std::string knob;
  KnobValue value;
  std::string file = {};  // none: it is left
  std::string text = {};
  KnobMap with = {};
};

/// Each knob of the policy has a case, and does what the case says.
void check_knobs(const std::string& name, const std::vector<Case>& cases) {
  std::set<std::string> known;
  for (const Case& each : cases) {
    FakeKernel kernel = machine();
    KnobMap knobs = each.with;
    knobs[each.knob] = each.value;
    const KernelPlan plan = plan_of(kernel, name, knobs);
    known.insert(each.knob);
    const auto found = std::ranges::find_if(plan.writes, [&](const KernelPlan::Write& write) {
      return write.knob == each.knob && write.file == each.file;
    });
    const auto left = std::ranges::find(plan.left, each.knob, &KernelPlan::Left::knob);
    if (each.file.empty()) {
      CHECK_EQ(each.knob + (left == plan.left.end() ? "" : " left"), each.knob + " left");
      if (left != plan.left.end()) CHECK(!left->reason.empty());
    } else {
      CHECK_EQ(each.knob + (found == plan.writes.end() ? ": none" : " " + found->value),
               each.knob + " " + each.text);
      CHECK(left == plan.left.end());
    }
    // Both for a reader and a program.
    const std::string text = to_string(each.value);
    CHECK(contains(live::text_of(plan), each.knob + " = " + text));
    const bool is_text = std::holds_alternative<std::string>(each.value);
    CHECK(contains(live::json_of(plan, false), "\"knob\": \"" + each.knob + "\", \"knob_value\": " +
                                                   (is_text ? '"' + text + '"' : text)));
  }
  for (const KnobDecl& knob : policy(name).knobs)
    CHECK_EQ(knob.name + (known.contains(knob.name) ? "" : " has no case"), knob.name);
}

std::vector<Case> with_regulation(std::vector<Case> cases) {
  cases.push_back({"aol.enabled", true});
  for (const char* const knob : {"aol.low", "aol.high", "aol.interval"})
    cases.push_back({knob, 41.0, {}, {}, {{"aol.enabled", true}}});
  return cases;
}

std::vector<Case> with_scan(std::vector<Case> cases) {
  cases.push_back({"scan_size", 128.4, scan + "scan_size_mb", "128"});
  cases.push_back({"scan_period_min", 250.0, scan + "scan_period_min_ms", "250"});
  cases.push_back({"scan_period_max", 90000.0, scan + "scan_period_max_ms", "90000"});
  cases.push_back({"max_scan_rate", 5.0});
  cases.push_back({"watermark_scale", 0.02, watermarks, "200"});
  cases.push_back({"watermark_min", 0.001});
  return with_regulation(std::move(cases));
}

const std::vector<std::string> own{"autonuma", "nbt", "tpp", "damon-goal", "hmsdk"};

}  // namespace

TEST("live apply: each knob of NUMA balancing is written, or listed with a reason") {
  check_knobs("autonuma", with_scan({}));
  check_knobs("nbt", with_scan({{"hot_threshold", 333.0, scan + "hot_threshold_ms", "333"},
                                {"promote_rate_limit", 0.5, rate_limit, "512"},
                                {"free_space", 64.0},
                                {"reclaim_scan_rate", 8.0},
                                {"lru_gen", false, lru_gen, "0x0000"},
                                {"lru_gen", true, lru_gen, "0x0003"},
                                {"lru_gen_batch", 32.0},
                                {"lru_gib", 512.0, {}, {}, {{"lru_gen", false}}},
                                {"lru_batch", 16.0, {}, {}, {{"lru_gen", false}}},
                                {"lru_sizes_age", 0.0, {}, {}, {{"lru_gen", false}}}}));
  check_knobs("tpp", with_scan({{"demote_scale_factor", 0.05},
                                {"port", "linux-5.15"},
                                {"activation", "code"},
                                {"reclaim_scan_rate", 8.0},
                                {"lru_gib", 512.0},
                                {"lru_batch", 16.0}}));
}

TEST("live apply: generations of pages are left as they are, switched, or named as missing") {
  const auto written = [](FakeKernel& kernel, bool wanted) {
    const KernelPlan plan = plan_of(kernel, "nbt", {{"lru_gen", wanted}});
    const auto found = std::ranges::find(plan.writes, lru_gen, &KernelPlan::Write::file);
    return found == plan.writes.end() ? "none" : found->value;
  };
  const auto left = [](FakeKernel& kernel, bool wanted) {
    const KernelPlan plan = plan_of(kernel, "nbt", {{"lru_gen", wanted}});
    const auto found = std::ranges::find(plan.left, "lru_gen", &KernelPlan::Left::knob);
    return found != plan.left.end() && found->same == !wanted;
  };
  FakeKernel kernel = machine();
  kernel.files[lru_gen] = "0x0005\n";  // an operator's choice of its parts
  CHECK_EQ(written(kernel, true), "0x0005");
  CHECK_EQ(written(kernel, false), "0x0000");
  kernel.files[lru_gen] = "0x0000\n";
  CHECK_EQ(written(kernel, true), "0x0007");
  CHECK_EQ(written(kernel, false), "0x0000");
  kernel.files.erase(lru_gen);
  CHECK_EQ(written(kernel, true), "none");
  CHECK(left(kernel, true) && left(kernel, false));
}

TEST("live apply: each knob of DAMON's policies is written, or listed with a reason") {
  const std::string cold = kdamonds + "0/contexts/0/", hot = kdamonds + "1/contexts/0/";
  const std::string attributes = cold + "monitoring_attrs/";
  const std::string goal = attributes + "intervals/intervals_goal/";
  const std::string down = cold + "schemes/0/", up = hot + "schemes/0/";
  check_knobs(
      "damon-goal",
      with_regulation(
          {{"access_goal", 0.1, goal + "access_bp", "1000"},
           {"access_goal", 0.0},
           {"goal_aggregations", std::int64_t{7}, goal + "aggrs", "7"},
           {"goal_aggregations", std::int64_t{7}, {}, {}, {{"access_goal", 0.0}}},
           {"sampling_min", 2.5, goal + "min_sample_us", "2500"},
           {"sampling_max", 500.0, goal + "max_sample_us", "500000"},
           // Never below the least, as the simulated policy has it.
           {"sampling_max", 2.0, goal + "max_sample_us", "5000"},
           {"sampling_interval", 8.0, attributes + "intervals/sample_us", "8000"},
           // It begins where the kernel allows it to.
           {"sampling_interval", 2.0, attributes + "intervals/sample_us", "5000"},
           {"sampling_interval",
            2.0,
            attributes + "intervals/sample_us",
            "2000",
            {{"access_goal", 0.0}}},
           {"aggregation_samples", std::int64_t{40}, attributes + "intervals/aggr_us", "200000"},
           {"update_interval", 2000.0, attributes + "intervals/update_us", "2000000"},
           {"min_regions", std::int64_t{30}, attributes + "nr_regions/min", "30"},
           {"max_regions", std::int64_t{500}, hot + "monitoring_attrs/nr_regions/max", "500"},
           {"demote_access_max", 0.13, down + "access_pattern/nr_accesses/max", "2"},
           {"promote_access_min", 0.11, up + "access_pattern/nr_accesses/min", "3"},
           {"apply_interval", 300.0, up + "apply_interval_us", "300000"},
           {"quota_interval", 250.0, down + "quotas/reset_interval_ms", "250"},
           {"quota_size", 100.0, up + "quotas/bytes", "104857600"},
           {"quota_least", 1.0},
           {"head_start", 10.0},
           {"fast_free_goal", 0.02, down + "quotas/goals/0/target_value", "200"},
           {"fast_used_goal", 0.98, up + "quotas/goals/0/target_value", "9800"},
           {"access_weight", 0.25, up + "quotas/weights/nr_accesses_permil", "250"},
           {"age_weight", 0.5, down + "quotas/weights/age_permil", "500"},
           {"young_filter", true, up + "filters/0/matching", "N"},
           {"young_filter", true, down + "filters/0/matching", "Y"},
           {"young_filter", false}}));
  check_knobs(
      "hmsdk",
      with_regulation(
          {{"sampling_interval", 50.0, attributes + "intervals/sample_us", "50000"},
           {"aggregation_interval", 1000.0, attributes + "intervals/aggr_us", "1000000"},
           {"update_interval", 5000.0, attributes + "intervals/update_us", "5000000"},
           {"min_regions", std::int64_t{30}, attributes + "nr_regions/min", "30"},
           {"max_regions", std::int64_t{500}, hot + "monitoring_attrs/nr_regions/max", "500"},
           {"demote_access_max", 0.13, down + "access_pattern/nr_accesses/max", "2"},
           {"demote_age", 31.0, down + "access_pattern/age/min", "16"},
           {"promote_access_min", 0.11, up + "access_pattern/nr_accesses/min", "3"},
           {"promote_access_max", 0.5, up + "access_pattern/nr_accesses/max", "10"},
           {"promote_age", 4.0, up + "access_pattern/age/min", "2"},
           {"demote_quota_cores", 0.01, down + "quotas/ms", "200"},
           // 0 would be no limit.
           {"promote_quota_cores", 0.0001, up + "quotas/ms", "1", {{"quota_interval", 1.0}}},
           {"demote_quota_size", 100.0, down + "quotas/bytes", "104857600"},
           {"promote_quota_size", 200.0, up + "quotas/bytes", "209715200"},
           {"quota_interval", 5.0, up + "quotas/reset_interval_ms", "5000"},
           {"access_weight", 0.25, up + "quotas/weights/nr_accesses_permil", "250"},
           {"age_weight", 0.5, down + "quotas/weights/age_permil", "500"},
           {"young_filter", false},
           {"young_filter", true, down + "filters/0/type", "young"},
           {"demote_free_high", 0.5, {}, {}, {{"demote_free_mid", 0.4}}},
           {"demote_free_mid", 0.4}}));
}

TEST("live apply: published values are the kernel's own, where it has them") {
  FakeKernel kernel = machine();
  const KernelPlan plan = plan_of(kernel, "nbt");
  for (const KernelPlan::Write& each : plan.writes)
    CHECK_EQ(each.file + (each.before == each.value ? " is " : " becomes ") + each.value,
             each.file == balancing  ? each.file + " becomes 2"
             : each.file == demotion ? each.file + " becomes true"
                                     : each.file + " is " + *each.before);
  // The mode comes last, when all that it goes by is there.
  CHECK_EQ(plan.writes.back().file, balancing);
  for (const KernelPlan::Left& each : plan.left)
    CHECK_EQ(each.knob + (each.same ? " same" : ""),
             each.knob == "watermark_min" || each.knob == "reclaim_scan_rate"
                 ? each.knob
                 : each.knob + " same");
  CHECK(kernel.written.empty());
}

TEST("live apply: a plan says for readers and programs what is written, and what cannot be") {
  FakeKernel kernel = machine(false);
  const std::string text = live::text_of(plan_of(kernel, "nbt", {{"scan_size", 100.5}}));
  for (const std::string& line :
       {std::string{"policy nbt on Linux 6.12.117\n"},
        "  " + scan + "scan_size_mb: 256 -> 101  (scan_size = 100.5)  rounded from 100.5\n",
        "  " + scan + "hot_threshold_ms: is 1000  (hot_threshold = 1000)\n",
        "  " + balancing + ": 3 -> 2\n",
        std::string{"not settable here:\n  watermark_min = 0.0005: the kernel's own reserve"},
        std::string{"as this kernel does anyway:\n  max_scan_rate = 2.5: 2.5 GiB/s"},
        std::string{"note: fast 0, slow 1, by the kernel's memory tiers\n"}})
    CHECK_EQ(contains(text, line) ? line : text, line);
  const std::string json = live::json_of(plan_of(kernel, "nbt", {{"scan_size", 100.5}}), true);
  for (const std::string& part :
       {std::string{"{\"policy\": \"nbt\",\n \"kernel\": \"6.12.117\",\n \"applied\": true,\n"},
        "{\"file\": \"" + scan +
            "scan_size_mb\", \"value\": \"101\", \"before\": \"256\", \"knob\": \"scan_size\", "
            "\"knob_value\": 100.5, \"note\": \"rounded from 100.5\"}",
        std::string{"\"knob\": \"aol.enabled\", \"knob_value\": false, \"reason\": \"the kernel "
                    "does not regulate by latency\", \"same\": true}"}})
    CHECK_EQ(contains(json, part) ? part : json, part);
  // What only a write can tell is said.
  const std::string goal = live::text_of(plan_of(kernel, "damon-goal"));
  CHECK(contains(goal,
                 "known when it is written: this kernel needs goals by the use of a node, and"));
  CHECK(contains(goal, kdamonds + "0/contexts/0/operations: paddr  node 0\n"));
  CHECK(kernel.written.empty());
}

TEST("live apply: what is applied stays, and is restored") {
  for (const std::string& name : own) {
    const check::Scratch scratch;
    FakeKernel kernel = machine();
    const Files before = settings(kernel);
    const KernelPlan plan = plan_of(kernel, name, {{"aol.enabled", true}});
    CHECK(live::apply_plan(kernel, plan, scratch.path));
    for (const KernelPlan::Write& each : plan.writes)
      CHECK_EQ(each.file + " " + stripped(kernel.files[each.file]), each.file + " " + each.value);
    CHECK(settings(kernel) != before);
    // Nothing else moves pages meanwhile, and the values of before are not lost.
    CHECK_THROWS(live::require_none_applied(scratch.path), "`tierd restore`");
    CHECK_THROWS(live::apply_plan(kernel, plan, scratch.path), "`tierd restore`");
    const auto restored = live::restore_changes(kernel, scratch.path);
    CHECK_EQ(restored.size(), 1u);
    CHECK(restored[0].name == "applied" && restored[0].left.empty() && restored[0].error.empty());
    CHECK(settings(kernel) == before);
    live::require_none_applied(scratch.path);
    CHECK(live::restore_changes(kernel, scratch.path).empty());
  }
}

TEST("live apply: whichever call fails, all is as it was, and the error says where") {
  for (const std::string& name : own) {
    bool over = false;
    for (int which = 0; !over; ++which) {
      for (const int error : {EIO, ENOENT}) {
        const check::Scratch scratch;
        FakeKernel kernel = machine();
        const Files before = settings(kernel);
        int calls = 0;
        kernel.fail = [&](FakeKernel::Call) {
          // Of the 1,022 memory tiers that are not there nothing can be told.
          if (kernel.asked.find("/memory_tier") != std::string::npos &&
              !kernel.files.contains(kernel.asked))
            return 0;
          return calls++ == which ? error : 0;
        };
        std::string said;
        try {
          live::apply_plan(kernel, plan_of(kernel, name), scratch.path);
        } catch (const std::runtime_error& failure) {
          said = failure.what();
        }
        over = calls <= which;
        // Some files may be missing: the settings that only have to be off, and damon_stat's.
        if (said.empty()) continue;
        CHECK(contains(said, "/") || contains(said, "one memory tier"));
        CHECK(settings(kernel) == before);
        CHECK_EQ(scratch.files(), 0u);
      }
      CHECK(over || which < 500);
    }
  }
}

TEST("live apply: what cannot be undone at once is named, and restored later") {
  const check::Scratch scratch;
  FakeKernel kernel = machine();
  const Files before = settings(kernel);
  int writes = 0;
  kernel.fail = [&](FakeKernel::Call call) {
    return call == FakeKernel::Call::write && ++writes > 2 ? EIO : 0;
  };
  CHECK_THROWS(
      live::apply_plan(kernel, plan_of(kernel, "nbt", {{"scan_size", 64.0}}), scratch.path),
      "scan_size_mb could not be written back: `tierd restore` tries again");
  CHECK_THROWS(live::apply_plan(kernel, plan_of(kernel, "nbt"), scratch.path), "`tierd restore`");
  const auto still = live::restore_changes(kernel, scratch.path);
  CHECK_EQ(still.size(), 1u);
  CHECK((still[0].left == std::vector<std::string>{demotion, scan + "scan_size_mb"}));
  kernel.fail = nullptr;
  CHECK(live::restore_changes(kernel, scratch.path).at(0).left.empty());
  CHECK(settings(kernel) == before);
}

TEST("live apply: killed between any two steps, all can be restored") {
  for (const std::string& name : own) {
    FakeKernel kernel = machine();
    const Files before = settings(kernel);
    const KernelPlan plan = plan_of(kernel, name);
    // What a kill at each call leaves: before it, and after what the last one did to the kernel.
    struct Left {
      std::map<std::string, std::string> files;
      std::string noted;
    };
    std::vector<Left> all;
    const check::Scratch scratch;
    const auto file = scratch.file("applied");
    std::string noted;
    kernel.fail = [&](FakeKernel::Call) {
      all.push_back({kernel.files, noted});
      noted = text_of(file);
      all.push_back({kernel.files, noted});
      return 0;
    };
    CHECK(live::apply_plan(kernel, plan, scratch.path));
    all.push_back({kernel.files, text_of(file)});
    // Each is written and read back; what is there already is not.
    const auto changed = std::ranges::count_if(
        plan.writes, [](const KernelPlan::Write& each) { return each.before != each.value; });
    CHECK(changed > 0);
    CHECK_EQ(all.size(), 4 * static_cast<std::size_t>(changed) + 1);
    for (const Left& each : all) {
      FakeKernel later = machine();
      later.files = each.files;
      if (each.noted.empty()) {
        CHECK(settings(later) == before);
        continue;
      }
      write(file, each.noted);
      // One that is cut off while it is replaced is not read.
      write(scratch.file("applied.partial"), each.noted.substr(0, 5));
      const auto restored = live::restore_changes(later, scratch.path);
      CHECK(restored.size() == 1 && restored[0].left.empty() && restored[0].error.empty());
      CHECK(settings(later) == before);
    }
  }
}

TEST("live apply: a value that the kernel does not keep is an error") {
  const check::Scratch scratch;
  FakeKernel kernel = machine();
  const Files before = settings(kernel);
  kernel.judge = [](const std::string& path, std::string& text) {
    if (path == rate_limit && text == "1024") text = "1000";
    return 0;
  };
  CHECK_THROWS(
      live::apply_plan(kernel, plan_of(kernel, "nbt", {{"promote_rate_limit", 1.0}}), scratch.path),
      "writing 1024 to " + rate_limit +
          ": 1000 is there now (this is Linux 7.3.4); nothing has changed");
  CHECK(settings(kernel) == before);
}

TEST("live apply: what this kernel lacks is refused by name") {
  const check::Scratch scratch;
  // With intervals that tune themselves, and without.
  for (const double goal : {0.04, 0.0}) {
    FakeKernel kernel = machine(false);
    const Files before = settings(kernel);
    CHECK_THROWS(
        live::apply_plan(kernel, plan_of(kernel, "damon-goal", {{"access_goal", goal}}),
                         scratch.path),
        "policy damon-goal: writing " +
            (goal > 0 ? "400 to " + kdamonds +
                            "0/contexts/0/monitoring_attrs/intervals/"
                            "intervals_goal/access_bp: No such file or directory"
                      : "node_mem_free_bp to " + kdamonds +
                            "0/contexts/0/schemes/0/quotas/goals/0/target_metric: Invalid "
                            "argument") +
            "; it takes goals by the use of a node, and intervals that tune themselves (Linux 6.16 "
            "or newer) (this is Linux 6.12.117); nothing has changed");
    CHECK(settings(kernel) == before);
  }
  const auto lacks = [&](const std::string& name, const std::string& file,
                         const std::string& fragment) {
    FakeKernel kernel = machine();
    kernel.files.erase(file);
    CHECK_THROWS(plan_of(kernel, name), fragment);
  };
  lacks("nbt", rate_limit, "it takes hot page selection (Linux 6.1 or newer)");
  lacks("nbt", scan + "hot_threshold_ms", "it takes hot page selection");
  lacks("nbt", balancing, "it takes NUMA balancing with memory tiering");
  lacks("autonuma", balancing, "it takes CONFIG_NUMA_BALANCING");
  lacks("tpp", demotion, "it takes demotion between memory tiers (Linux 5.15 or newer)");
  lacks("nbt", "/sys/devices/virtual/memory_tiering/memory_tier22/nodelist",
        "--slow do not change them; all memory nodes stand in one memory tier");
  lacks("hmsdk", "/sys/devices/virtual/memory_tiering/memory_tier22/nodelist",
        "policy hmsdk: all memory nodes stand in one memory tier");
  lacks("hmsdk", kdamonds + "nr_kdamonds", "it takes a kernel with CONFIG_DAMON_SYSFS");
  lacks("hmsdk", "/proc/zoneinfo", "reading /proc/zoneinfo");

  FakeKernel kernel = machine();
  kernel.files[kdamonds + "nr_kdamonds"] = "1\n";
  CHECK_THROWS(plan_of(kernel, "hmsdk"), "DAMON is in use by somebody else");
  kernel.files[kdamonds + "nr_kdamonds"] = "0\n";
  kernel.files["/proc/zoneinfo"] = zoneinfo.substr(0, zoneinfo.find("Node 1"));
  CHECK_THROWS(plan_of(kernel, "hmsdk"), "/proc/zoneinfo tells of no memory of node 1");
  kernel.files["/proc/zoneinfo"] = "Node x\n";
  CHECK_THROWS(plan_of(kernel, "hmsdk"), "policy hmsdk: /proc/zoneinfo: found 'Node x'");
  kernel.files["/sys/devices/system/node/has_memory"] = "0\n";
  CHECK_THROWS(plan_of(kernel, "autonuma"), "one memory node");
  // Files of debugfs that are not there at all.
  kernel = machine();
  std::erase_if(kernel.files, [](const auto& file) { return file.first.starts_with(scan); });
  CHECK_THROWS(plan_of(kernel, "autonuma"), "it takes CONFIG_NUMA_BALANCING, and Linux 5.13");
  kernel.files["/proc/mounts"] = "none /proc proc rw 0 0\n";
  CHECK_THROWS(plan_of(kernel, "autonuma"), "mount -t debugfs none /sys/kernel/debug");
  kernel = machine();
  kernel.fail = [](FakeKernel::Call call) { return call == FakeKernel::Call::write ? EACCES : 0; };
  CHECK_THROWS(live::apply_plan(kernel, plan_of(kernel, "nbt"), scratch.path), "it takes root");
}

TEST("live apply: a kernel with TPP's patches has its mark, others say what they have instead") {
  FakeKernel kernel = machine();
  CHECK(contains(live::text_of(plan_of(kernel, "tpp")), "TPP's patches are not in this kernel"));
  kernel.files["/proc/sys/vm/demote_scale_factor"] = "200\n";
  const KernelPlan plan = plan_of(kernel, "tpp", {{"demote_scale_factor", 0.05}});
  const auto found =
      std::ranges::find(plan.writes, "demote_scale_factor", &KernelPlan::Write::knob);
  CHECK(found != plan.writes.end() && found->value == "500" && found->before == "200");
  CHECK(!contains(live::text_of(plan), "not in this kernel"));
}

TEST("live apply: nodes and knobs that cannot be had are refused") {
  FakeKernel kernel = machine();
  const Nodes swapped{{std::vector{1}, std::vector{0}}}, same{{std::vector{0}, std::vector{1}}};
  CHECK_THROWS(plan_of(kernel, "nbt", {}, swapped),
               "found fast 1, slow 0, but Linux goes by its own memory tiers: fast 0, slow 1");
  CHECK_THROWS(plan_of(kernel, "autonuma", {}, swapped), "node 0 has processors");
  CHECK_EQ(plan_of(kernel, "nbt", {}, same).writes.size(), plan_of(kernel, "nbt").writes.size());
  for (const Nodes& wrong : {Nodes{{std::vector{0}, {}}}, Nodes{{std::vector{0, 1}, {1}}}})
    CHECK_THROWS(plan_of(kernel, "hmsdk", {}, wrong), "expected one node or more of each");
  CHECK_THROWS(plan_of(kernel, "nbt", {{"scan_size", 1.0}}), "scan_size");
  CHECK_THROWS(plan_of(kernel, "hmsdk",
                       {{"max_regions", std::int64_t{10}}, {"min_regions", std::int64_t{20}}}),
               "max_regions: must not be below min_regions");
  CHECK_THROWS(
      plan_of(kernel, "hmsdk", {{"sampling_interval", 50.0}, {"aggregation_interval", 20.0}}),
      "aggregation_interval: must not be below sampling_interval");
}

TEST("live apply: DAMON looks at each node apart, and moves to one of the other tier") {
  FakeKernel kernel = machine();
  // Node 1 is fast, and 0 slow: whatever the kernel's tiers are.
  const KernelPlan plan = plan_of(kernel, "hmsdk", {}, Nodes{{std::vector{1}, std::vector{0}}});
  Files values;
  for (const KernelPlan::Write& each : plan.writes) values[each.file] = each.value;
  const std::string first = kdamonds + "0/contexts/0/", second = kdamonds + "1/contexts/0/";
  CHECK_EQ(values[kdamonds + "nr_kdamonds"], std::string{"2"});
  CHECK_EQ(values[first + "schemes/0/action"], std::string{"migrate_cold"});
  CHECK_EQ(values[first + "schemes/0/target_nid"], std::string{"0"});
  CHECK_EQ(values[first + "targets/0/regions/nr_regions"], std::string{"1"});
  CHECK_EQ(values[first + "targets/0/regions/0/start"], std::to_string(98304 * 4096));
  CHECK_EQ(values[first + "targets/0/regions/0/end"], std::to_string(294912 * 4096));
  CHECK_EQ(values[second + "schemes/0/action"], std::string{"migrate_hot"});
  CHECK_EQ(values[second + "schemes/0/target_nid"], std::string{"1"});
  // All are set up before the first starts.
  CHECK_EQ(plan.writes[plan.writes.size() - 2].file, kdamonds + "0/state");
  CHECK_EQ(plan.writes.back().file, kdamonds + "1/state");
}

TEST("live apply: policies that Linux does not have are told their way") {
  FakeKernel kernel = machine();
  for (const PolicyInfo& info : policies()) {
    if (live::is_kernels_own(info.name)) continue;
    CHECK_THROWS(live::kernel_plan(kernel, info, {}, {}),
                 "policy " + info.name + " is not one that Linux has itself; it ");
  }
  CHECK_THROWS(plan_of(kernel, "hemem"),
               "`tierd run` and `tierd attach` are its way, where they have that");
  CHECK_THROWS(plan_of(kernel, "nomad"), "it takes a kernel with its patches");
  CHECK_THROWS(plan_of(kernel, "offline-optimal"), "which no kernel has");
}

TEST("live apply: changes of other processes are in the way, and are restored if those are dead") {
  const check::Scratch scratch;
  FakeKernel kernel = machine();
  const std::string noted = "tierd changes 1\n" + balancing + "\t1\n";
  const std::string ours = std::to_string(::getpid()) + ".balancing";
  write(scratch.file(ours), noted);
  write(scratch.file("unknown"), noted);
  CHECK_THROWS(live::apply_plan(kernel, plan_of(kernel, "nbt"), scratch.path), "a tierd runs");
  auto restored = live::restore_changes(kernel, scratch.path);
  CHECK(restored.size() == 1 && restored[0].runs && restored[0].name == ours);
  CHECK_EQ(kernel.files[balancing], std::string{"3\n"});
  std::filesystem::remove(scratch.file(ours));
  // No process has this number: it is beyond what Linux gives out.
  write(scratch.file("4194305.balancing"), noted);
  CHECK_THROWS(live::apply_plan(kernel, plan_of(kernel, "nbt"), scratch.path), "left changes");
  write(scratch.file("4194306"), "damaged");
  restored = live::restore_changes(kernel, scratch.path);
  CHECK(restored.size() == 2 && !restored[0].runs && restored[0].error.empty());
  CHECK(contains(restored[1].error, "is no file of changes"));
  CHECK_EQ(kernel.files[balancing], std::string{"1"});
  CHECK(std::filesystem::exists(scratch.file("unknown")));
  CHECK_THROWS(live::restore_changes(kernel, scratch.file("missing")), "missing: No such file");
}

TEST("live node addresses: what zones span, and texts that make no sense") {
  using live::AddressRange;
  const auto found = live::node_addresses(zoneinfo);
  CHECK_EQ(found.size(), 2u);
  CHECK((found.at(0) == std::vector<AddressRange>{{4096, 98304ULL * 4096}}));
  CHECK((found.at(1) == std::vector<AddressRange>{{98304ULL * 4096, 294912ULL * 4096}}));
  CHECK(live::node_addresses("").empty());
  const auto zone = [](int node, int start, int pages) {
    return "Node " + std::to_string(node) + ", zone Normal\n  spanned " + std::to_string(pages) +
           "\n  present 1\n  start_pfn: " + std::to_string(start) + "\n";
  };
  CHECK_EQ(live::node_addresses(zone(0, 0, 10) + zone(0, 20, 10)).at(0).size(), 2u);
  CHECK_THROWS(live::node_addresses(zone(0, 0, 10) + zone(1, 9, 10)), "lie between each other");
  CHECK_THROWS(live::node_addresses("Node 0 zone\n"), "expected a node and a zone");
  CHECK_THROWS(live::node_addresses("Node -1, zone Normal"), "expected a node and a zone");
  CHECK_THROWS(live::node_addresses(zone(0, 0, -1)), "expected a number of pages");
  CHECK_THROWS(live::node_addresses("start_pfn: 1\n"), "a start without a zone");
  CHECK_THROWS(live::node_addresses("spanned 99999999999999999999\n"), "a number of pages");
}
