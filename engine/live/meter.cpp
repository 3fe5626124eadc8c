// SPDX-License-Identifier: MIT

#include "live/meter.hpp"

#include <unistd.h>

#include <cstring>
#include <map>
#include <string>

#include "live/words.hpp"

namespace tt::live {
namespace {

double bytes(std::uint64_t pages) { return static_cast<double>(pages * base_page_bytes); }

/// Memory that this process holds, in bytes (/proc/self/statm, proc_pid_statm(5)); 0 if it is not
/// told.
double resident(KernelCalls& kernel) {
  std::string text;
  if (kernel.read("/proc/self/statm", text) != 0) return 0;
  std::vector<std::string_view> fields;
  each_part(text, ' ', [&](std::string_view field) { fields.push_back(field); });
  const auto pages = fields.size() < 2 ? std::nullopt : number<std::uint64_t>(fields[1]);
  return pages ? static_cast<double>(*pages) * static_cast<double>(::sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace

Meter::Meter(KernelCalls& kernel, const std::vector<Loop::Step>& steps, std::ostream* series)
    : kernel_(kernel),
      steps_(steps),
      top_(steps_.front().memory),
      processor_before_(kernel.processor_time()) {
  if (series != nullptr) series_.emplace(*series);
}

double Meter::Sums::fast_share_since(const Sums& before, double otherwise) const {
  double all = 0;
  for (std::size_t level = 0; level < most_levels; ++level)
    all += accesses[level] - before.accesses[level];
  return all > 0 ? (accesses[0] - before.accesses[0]) / all : otherwise;
}

Meter::Sums Meter::sums(Nanos now) const {
  const Counters counters = top_.counters();
  Sums out;
  for (const auto& [memory, policy] : steps_) {
    const Counters own = memory.counters();
    const MoveCounts& moves = memory.moves();
    for (std::size_t tier = 0; tier < tier_count; ++tier) {
      const std::size_t level = memory.level() + tier;
      out.accesses[level] = own.loads[tier] + own.stores[tier];
      out.arrived[level] += static_cast<double>(moves.moved[tier]);
    }
    out.up += static_cast<double>(moves.moved[index(Tier::fast)]);
    out.down += static_cast<double>(moves.moved[index(Tier::slow)]);
  }
  out.samples = counters.samples_taken;
  out.lost = lost_;  // with what counters tell of it
  out.seconds = seconds(now);
  out.own = seconds(kernel_.processor_time() - processor_before_);
  out.monitor = seconds(monitor_);
  return out;
}

void Meter::second(Nanos now, Nanos monitor, std::uint64_t lost) {
  seconds_.tick(now);
  monitor_ = monitor;
  lost_ = static_cast<double>(lost);
  const Sums here = sums(now);
  const double time = here.seconds - last_.seconds;
  hit_ratio_ = here.fast_share_since(last_, hit_ratio_);
  shares_[0] = (here.own - last_.own) / time;
  shares_[1] = (here.monitor - last_.monitor) / time;
  if (series_) {
    const double up = here.up - last_.up, down = here.down - last_.down;
    const auto used = static_cast<double>(top_.used(Tier::fast));
    const auto most = static_cast<double>(top_.capacity(Tier::fast));
    std::map<std::string, double> cells{
        {"second", here.seconds},
        {"fast_hit_ratio", hit_ratio_},
        {"promotions", up},
        {"demotions", down},
        {"migrated_bytes", (up + down) * static_cast<double>(base_page_bytes)},
        {"samples", here.samples - last_.samples},
        {"samples_lost", here.lost - last_.lost},
        {"fast_used_share", most > 0 ? used / most : 0},
        {"policy_cpu_share", shares_[0]},
        {"monitor_cpu_share", shares_[1]},
        {"metadata_bytes", metadata()},
    };
    Gauges gauges;
    steps_.front().policy.gauges(gauges);
    for (const auto& [gauge, value] : gauges) cells["policy." + gauge] = value;
    series_->row(cells);
  }
  last_ = here;
}

double Meter::metadata() const {
  double sum = 0;
  for (const auto& [memory, policy] : steps_) sum += static_cast<double>(policy.metadata_bytes());
  return sum;
}

void Meter::figures(Nanos now, std::vector<Figure>& out) const {
  const Sums here = sums(now);
  MoveCounts moves;
  for (const auto& [memory, policy] : steps_) moves += memory.moves();
  const auto add = [&](std::string name, std::string help, double value, std::string label = {}) {
    out.push_back({std::move(name), std::move(help), value, std::move(label)});
  };
  const std::size_t levels = top_.levels();
  const auto label = [&](std::size_t level) {
    return "tier=\"" + level_name(level, levels) + "\"";
  };
  // Of each tier; a step knows its own two.
  const auto by_level = [&](const std::string& figure, const std::string& help, auto value) {
    for (std::size_t level = 0; level < levels; ++level) {
      const bool is_last = level + 1 == levels;
      const LiveMemory& memory = steps_[is_last ? level - 1 : level].memory;
      add(figure, help, value(memory, is_last ? Tier::slow : Tier::fast), label(level));
    }
  };
  const auto by_tier = [&](const std::string& figure, const std::string& help, const auto& sums,
                           double unit) {
    for (std::size_t level = 0; level < levels; ++level)
      add(figure, help, sums[level] * unit, label(level));
  };
  add("uptime_seconds", "since the session began", here.seconds);
  add("processes", "that are followed", static_cast<double>(top_.pids().size()));
  by_level("used_bytes", "of the processes' known memory",
           [](const LiveMemory& memory, Tier tier) { return bytes(memory.used(tier)); });
  by_level("capacity_bytes", "that the tier may hold",
           [](const LiveMemory& memory, Tier tier) { return bytes(memory.capacity(tier)); });
  by_level("free_bytes", "that the tier has left",
           [](const LiveMemory& memory, Tier tier) { return bytes(memory.free_pages(tier)); });
  by_tier("accesses_total", "as the source counts or estimates them", here.accesses, 1);
  add("fast_hit_ratio", "share of accesses that went to the fast tier, in the last second",
      hit_ratio_);
  by_tier("moved_bytes_total", "by the tier that they went to", here.arrived, bytes(1));
  std::array<double, most_levels> pending{};
  for (const auto& [memory, policy] : steps_)
    for (const Tier tier : {Tier::fast, Tier::slow})
      pending[memory.level() + index(tier)] += static_cast<double>(memory.pending(tier));
  by_tier("pending_bytes", "that wait to be moved, by where to", pending, bytes(1));
  add("move_calls_total", "of move_pages(2)", static_cast<double>(moves.calls));
  add("move_seconds_total", "inside these calls", seconds(moves.busy));
  add("longest_move_seconds", "of one call: no page of it waited longer", seconds(moves.longest));
  for (const auto& [error, pages] : moves.failed)
    add("failed_moves_bytes_total", "by the kernel's reason", bytes(pages),
        std::string{"reason=\""} + std::strerror(error) + "\"");
  add("no_room_bytes_total", "not tried because the tier was full", bytes(moves.no_room));
  add("held_bytes_total", "not tried: refused lately, or mapped anew", bytes(moves.held));
  add("moved_by_others_bytes_total", "pages that somebody else has moved, as far as is known",
      top_.counters().moved_by_others * bytes(1));
  add("samples_total", "that the policy was given", here.samples);
  add("samples_lost_total", "samples or records that the kernel dropped", here.lost);
  add("processor_seconds_total", "of tierd itself", here.own);
  add("monitor_seconds_total", "of the kernel's thread that watches for it", here.monitor);
  add("processor_share", "of one processor, in the last second", shares_[0]);
  add("monitor_share", "of one processor, in the last second", shares_[1]);
  add("resident_bytes", "of tierd itself", resident(kernel_));
  add("metadata_bytes", "of the policy's tracking", metadata());
  for (const auto& [memory, policy] : steps_) {
    Gauges gauges;
    policy.gauges(gauges);
    const std::string below = levels == tier_count ? "" : label(memory.level());  // its fast tier
    for (const auto& [gauge, value] : gauges)
      add("policy_" + gauge, "as the policy shows it", value, below);
  }
}

}  // namespace tt::live
