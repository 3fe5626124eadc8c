// SPDX-License-Identifier: MIT

// What the systems have in common that a kernel drives by hint faults: NUMA balancing's scan, and
// for those that demote, page lists with a kswapd.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/seam.hpp"
#include "migrate/reclaim.hpp"
#include "migrate/scan_clock.hpp"
#include "track/lru_lists.hpp"

namespace tt {

class HintFaultPolicy : public Policy {
 public:
  void on_map(PageRange range, std::uint32_t, Nanos) override { clock_.map(range); }
  void on_unmap(PageRange range, Nanos) override { clock_.unmap(range); }
  [[nodiscard]] Tier placement(PageRange) const override { return Tier::fast; }
  void on_samples(std::span<const Sample>, Nanos) override {}
  [[nodiscard]] Nanos tick_period() const override { return clock_.pause(); }
  void on_migrated(std::span<const MigrationResult>, Nanos) override {}
  /// What it knows of a page stands in struct page.
  [[nodiscard]] std::uint64_t metadata_bytes() const override { return 0; }
  void gauges(Gauges& out) const override {
    out["scan_period_ms"] = 1e3 * seconds(clock_.period());
    out["scan_passes"] = static_cast<double>(clock_.passes());
  }
  [[nodiscard]] Heat heat(PageId) const override { return Heat::cold; }

 protected:
  explicit HintFaultPolicy(const PolicyContext& context)
      : memory_(context.memory), marks_(context.knobs), clock_(context.memory, context.knobs) {
    // A faulting thread promotes by itself; kswapd, which is the tiering thread, demotes by itself.
    memory_.set_movers({.threads = 0});
  }

  /// Protects the next window if it is due. With the first one of each pass the clock follows the
  /// faults that were counted in the last.
  void scan_by_faults(Nanos now, Tiers which, const migrate::ScanClock::Untouched& untouched = {}) {
    const std::uint64_t passes = clock_.passes();
    const bool due = clock_.due(now);
    clock_.run(now, which, untouched);
    if (!due || std::exchange(passes_, passes) == passes) return;
    clock_.adapt(faults_[index(Tier::fast)], faults_[index(Tier::slow)], failed_, now);
    faults_ = {};
    failed_ = false;
  }
  void count(const Fault& fault) { faults_[index(fault.tier)] += 1; }
  void count_failed() { failed_ = true; }

  struct Nothing {
    void operator()(const Fault&) const {}
  };
  /// Counts all faults, and promotes those of the slow tier that are `wanted`, in their order and
  /// up to so many pages. Each that finds no room goes to `refused`.
  template <typename Wanted, typename Refused = Nothing>
  void promote(std::span<const Fault> faults, std::uint64_t room, Way way, Wanted&& wanted,
               Refused&& refused = {}) {
    promotions_.clear();
    for (const Fault& fault : faults) {
      count(fault);
      if (!is_slow(fault) || !wanted(fault)) continue;
      if (promotions_.size() < room) {
        promotions_.push_back(fault.page);
      } else {
        count_failed();
        refused(fault);
      }
    }
    if (!promotions_.empty()) memory_.request(Tier::fast, promotions_, way);
  }
  /// Pages that `promote` has found so far.
  [[nodiscard]] std::uint64_t promoting() const { return promotions_.size(); }

  /// A page that faulted in the slow tier and is still mapped.
  [[nodiscard]] bool is_slow(const Fault& fault) const {
    return fault.tier == Tier::slow && clock_.space().contains(fault.page);
  }
  /// Pages that may be promoted while this share of the fast tier stays free.
  [[nodiscard]] std::uint64_t room_above(double share) const {
    const double spare = static_cast<double>(memory_.free_pages(Tier::fast)) -
                         share * static_cast<double>(memory_.capacity(Tier::fast));
    return spare > 0 ? static_cast<std::uint64_t>(spare) : 0;
  }

  Memory& memory_;
  const migrate::KernelMarks marks_;
  migrate::ScanClock clock_;

 private:
  std::array<double, tier_count> faults_{};  // of the pass that is under way
  bool failed_ = false;                      // a promotion of this pass found no room
  std::uint64_t passes_ = 0;                 // that have ended before the last window
  std::vector<PageId> promotions_;           // scratch
};

/// With the kernel's lists, or its generations, and kswapd up to the share `target` of the fast
/// tier.
class KswapdPolicy : public HintFaultPolicy {
 public:
  void on_map(PageRange range, std::uint32_t site, Nanos now) override {
    HintFaultPolicy::on_map(range, site, now);
    generations_ ? generations_->map(range) : lists_.map(range);
  }
  void on_unmap(PageRange range, Nanos now) override {
    HintFaultPolicy::on_unmap(range, now);
    generations_ ? generations_->unmap(range) : lists_.unmap(range);
  }
  void on_pressure(Tier, Nanos now) override { reclaim(now); }
  void on_capacity(Tier, Nanos now) override { reclaim(now); }
  void tick(Nanos now) override {
    const double share = std::min(1.0, seconds(now - ticked_));
    generations_ ? generations_->find_new(share) : lists_.find_new(share);
    ticked_ = now;
    kswapd_.run(now);
  }
  [[nodiscard]] Nanos tick_period() const override {
    return kswapd_.awake() ? std::min(migrate::Reclaim::period, clock_.pause()) : clock_.pause();
  }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    for (const MigrationResult& result : results) {
      if (result.outcome != Outcome::done) {
        if (generations_) generations_->stayed(result.page);
      } else if (generations_) {
        generations_->moved(result.page, result.to);
      } else {
        lists_.moved(result.page, result.to);
      }
    }
  }
  void gauges(Gauges& out) const override {
    using enum track::LruLists::List;
    HintFaultPolicy::gauges(out);
    out["kswapd_gave_up"] = kswapd_.gave_up() ? 1 : 0;
    if (generations_) {
      out["active_pages"] = static_cast<double>(generations_->active());
      out["inactive_pages"] = static_cast<double>(generations_->inactive());
      out["agings"] = static_cast<double>(generations_->agings());
      return;
    }
    out["active_pages"] = static_cast<double>(lists_.size(Tier::fast, active));
    out["inactive_pages"] = static_cast<double>(lists_.size(Tier::fast, inactive));
    out["slow_active_pages"] = static_cast<double>(lists_.size(Tier::slow, active));
  }
  [[nodiscard]] Heat heat(PageId page) const override {
    if (generations_) {
      const std::size_t age = generations_->age(page);
      return age == 0 ? Heat::hot : age < track::Generations::least ? Heat::warm : Heat::cold;
    }
    if (lists_.on(track::LruLists::List::active, page)) return Heat::hot;
    return lists_.referenced(page) ? Heat::warm : Heat::cold;
  }

 protected:
  KswapdPolicy(const PolicyContext& context, double target)
      : HintFaultPolicy(context),
        lists_(context.memory, context.knobs.real("lru_gib")),
        kswapd_(context.memory, lists_, context.knobs, target) {}
  struct EitherLists {};
  /// With the knobs of reclaim_or_generation_knobs().
  KswapdPolicy(const PolicyContext& context, double target, EitherLists)
      : HintFaultPolicy(context),
        generations_(generations(context)),
        lists_(context.memory, context.knobs.real("lru_gib")),
        kswapd_(generations_
                    ? migrate::Reclaim(context.memory, *generations_, context.knobs, target)
                    : migrate::Reclaim(context.memory, lists_, context.knobs, target,
                                       from_seconds(context.knobs.real("lru_sizes_age")))) {}

  /// kswapd begins at once.
  void reclaim(Nanos now) {
    kswapd_.wake();
    kswapd_.run(now);
  }

  std::optional<track::Generations> generations_;
  track::LruLists lists_;  // empty if there are generations
  migrate::Reclaim kswapd_;

 private:
  static std::optional<track::Generations> generations(const PolicyContext& context) {
    if (!context.knobs.flag("lru_gen")) return std::nullopt;
    return std::optional<track::Generations>{std::in_place, context.memory,
                                             context.knobs.real("lru_gen_batch")};
  }

  Nanos ticked_{};
};

}  // namespace tt
