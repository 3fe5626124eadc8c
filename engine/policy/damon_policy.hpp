// SPDX-License-Identifier: MIT

// What policies by DAMON share: a monitor of the address space, one scheme for each direction, and
// the knobs that both of them read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/seam.hpp"
#include "migrate/mapped_ranges.hpp"
#include "migrate/scheme.hpp"
#include "track/region_monitor.hpp"

namespace tt {

/// Both systems monitor physical addresses, of each node apart. Here there is one monitor, of the
/// application's addresses, and a scheme looks at those pages of a region that are in its tier.
/// (Inferred to be alike: neighbours in one are mostly neighbours in the other, until pages have
/// moved; what regions there are is shared by both tiers.)
class DamonPolicy : public Policy {
 public:
  struct Options {
    track::RegionMonitor::Options monitor;
    migrate::Scheme::Options demote, promote;
    Nanos apply{};  // time between two looks at all regions; 0: once in each aggregation
  };

  DamonPolicy(const PolicyContext& context, const Options& options)
      : apply_(options.apply),
        monitor_(context.memory, options.monitor, context.seed),
        demote_(context.memory, options.demote),
        promote_(context.memory, options.promote),
        hot_(options.promote.least_access) {
    // The monitoring thread moves the pages itself, as migrate_pages() does: nothing reaches them.
    context.memory.set_movers({.threads = 0});
  }

  void on_map(PageRange range, std::uint32_t, Nanos) override { space_.map(range); }
  void on_unmap(PageRange range, Nanos) override { space_.unmap(range); }
  Tier placement(PageRange) const override { return Tier::fast; }
  void on_samples(std::span<const Sample>, Nanos) override {}
  void on_probed(std::span<const Probe> probes, Nanos now) override {
    const bool over = monitor_.answered(probes);
    if (apply_ > Nanos{} ? now - applied_ >= apply_ : over) {
      applied_ = now;
      demote_.apply(monitor_, space_, now);  // first, to make room
      promote_.apply(monitor_, space_, now);
    }
    if (over) monitor_.next(now, space_.ranges());
  }
  void tick(Nanos now) override { monitor_.tick(now, space_.ranges()); }
  Nanos tick_period() const override { return monitor_.tick_period(); }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    demote_.migrated(results);
    promote_.migrated(results);
  }

  /// 56 bytes for each region, of which there are no more than max_regions however large the system
  /// is: next to nothing of a full system, which the miniature's bytes stand for.
  std::uint64_t metadata_bytes() const override { return 0; }
  void gauges(Gauges& out) const override {
    double hot = 0;
    for (const track::Region& region : monitor_.regions())
      if (is_hot(region)) hot += static_cast<double>(region.range.count);
    out["regions"] = static_cast<double>(monitor_.regions().size());
    out["hot_pages"] = hot;
    out["sampling_interval_ms"] = seconds(monitor_.sampling()) * 1e3;
    // A quota without a limit is shown as the largest number that is one.
    out["promote_quota_pages"] = std::min(promote_.quota(), 1e15);
    out["demote_quota_pages"] = std::min(demote_.quota(), 1e15);
    out["promotions_tried"] = static_cast<double>(promote_.tried());
    out["demotions_tried"] = static_cast<double>(demote_.tried());
  }
  Heat heat(PageId page) const override {
    const track::Region* region = monitor_.find(page);
    if (region == nullptr || track::RegionMonitor::accesses(*region) == 0) return Heat::cold;
    return is_hot(*region) ? Heat::hot : Heat::warm;
  }

 protected:
  /// What the knobs say that both systems have by the same names.
  static Options common_options(const Knobs& knobs) {
    Options all;
    all.monitor.sampling = millis(knobs, "sampling_interval");
    all.monitor.update = millis(knobs, "update_interval");
    all.monitor.min_regions = knobs.real("min_regions");
    all.monitor.max_regions = knobs.real("max_regions");
    for (migrate::Scheme::Options* scheme : {&all.demote, &all.promote}) {
      scheme->ask_pages = knobs.flag("young_filter");
      scheme->access_weight = knobs.real("access_weight");
      scheme->age_weight = knobs.real("age_weight");
    }
    all.demote.to = Tier::slow;
    all.demote.most_access = knobs.real("demote_access_max");
    all.promote.to = Tier::fast;
    all.promote.least_access = knobs.real("promote_access_min");
    return all;
  }
  static Nanos millis(const Knobs& knobs, const char* name) {
    return from_millis(knobs.real(name));
  }
  /// Of a knob in mebibytes.
  static double pages(const PolicyContext& context, const char* name) {
    return context.knobs.real(name) * (1 << 20) / static_cast<double>(context.memory.page_bytes());
  }

 private:
  bool is_hot(const track::Region& region) const {
    const std::uint32_t accesses = track::RegionMonitor::accesses(region);
    return accesses > 0 && accesses >= hot_ * monitor_.samples();
  }

  Nanos apply_, applied_{};
  migrate::MappedRanges space_;
  track::RegionMonitor monitor_;
  migrate::Scheme demote_, promote_;
  double hot_;
};

}  // namespace tt
