// SPDX-License-Identifier: MIT

// A policy that uses every part of the seam that the sample-only policies leave alone: it protects
// one window after the other, promotes what faults soon, clears accessed bits and demotes idle
// pages, asks probes, and makes room when it is woken. With `units` it also splits and collapses.
// It is the one that stands for the fault-based and scanning systems in the tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/rng.hpp"
#include "core/seam.hpp"

namespace tt::test {

class Watcher final : public Policy {
 public:
  struct Seen {
    std::uint64_t faults = 0, probes = 0, probed_yes = 0, woken = 0, idle = 0, untouched = 0;
    std::uint64_t digest = 0;  // of everything that it was told
  };

  explicit Watcher(const PolicyContext& context)
      : memory_(context.memory), rng_(context.seed), units_(context.knobs.flag("units")) {
    memory_.set_watermarks({.reserve = 0.02, .wake = 0.1});
    if (units_) memory_.set_movers({.threads = 2, .copy = Copy::transactional, .retries = 1});
  }

  void on_map(PageRange range, std::uint32_t site, Nanos) override {
    note(site);
    for (std::uint64_t page = range.first.value; page < range.end().value; ++page)
      pages_.insert(page);
  }
  void on_unmap(PageRange range, Nanos) override {
    pages_.erase(pages_.lower_bound(range.first.value), pages_.lower_bound(range.end().value));
  }
  Tier placement(PageRange) const override { return Tier::fast; }
  void on_samples(std::span<const Sample>, Nanos) override {}
  void on_faults(std::span<const Fault> faults, Nanos now) override {
    std::vector<PageId> hot;
    for (const Fault& fault : faults) {
      ++seen.faults;
      note(fault.page.value ^ static_cast<std::uint64_t>(fault.since.count()) << 16 ^
           static_cast<std::uint64_t>(fault.kind) << 8 ^ static_cast<std::uint64_t>(fault.tier));
      // The fault may be stale: the page has gone, and perhaps come back.
      if (pages_.contains(fault.page.value) && fault.since < from_seconds(1))
        hot.push_back(fault.page);
    }
    memory_.request(Tier::fast, hot, units_ ? Way::in_fault : Way::background);
    memory_.charge(Work::lru_step, faults.size(), Payer::application);
    note(static_cast<std::uint64_t>(now.count()));
  }
  void on_probed(std::span<const Probe> probes, Nanos) override {
    seen.probes += probes.size();
    for (const Probe& probe : probes) {
      seen.probed_yes += probe.accessed ? 1 : 0;
      note(probe.page.value * 2 + (probe.accessed ? 1 : 0));
    }
  }
  void on_pressure(Tier tier, Nanos) override {
    ++seen.woken;
    note(static_cast<std::uint64_t>(tier));
    demote(20);
  }
  void tick(Nanos now) override {
    if (pages_.empty()) return;
    const PageRange window = next_window(scanned_);
    untouched_.assign(mask_words(window.count), 0);
    memory_.protect(window, Tiers::slow, untouched_);
    for (std::uint64_t i = 0; i < window.count; ++i)
      seen.untouched += in_mask(untouched_, i) ? 1 : 0;
    memory_.charge(Work::pte_scan, window.count);
    demote(20);
    std::vector<Probe> probes;
    for (int i = 0; i < 8; ++i) {
      const PageId page{window.first.value + rng_.below(window.count)};
      for (int round = 0; round < 4; ++round)
        probes.push_back({page, now + round * from_millis(5), from_millis(5)});
    }
    memory_.probe(probes);
    if (!units_) return;
    const PageRange unit = memory_.unit(window.first);
    const PageId first = unit.first;
    if (pages_.contains(first.value))
      memory_.reshape(unit.count > 1 ? Change::split : Change::collapse, {&first, 1});
  }
  Nanos tick_period() const override { return from_millis(20); }
  void on_migrated(std::span<const MigrationResult> results, Nanos) override {
    for (const MigrationResult& result : results)
      note(result.page.value ^ static_cast<std::uint64_t>(result.outcome) << 32 ^
           static_cast<std::uint64_t>(result.change) << 40);
  }
  std::uint64_t metadata_bytes() const override { return untouched_.capacity() * 8; }
  void gauges(Gauges& out) const override {
    out["faults"] = static_cast<double>(seen.faults);
    out["busy_ns"] = memory_.counters().tier[1].busy_ns;
  }
  Heat heat(PageId) const override { return Heat::cold; }
  void report(Rows& out) const override {
    // The digest by halves, which a number holds without loss.
    out.push_back({"watcher",
                   {{"faults", static_cast<double>(seen.faults)},
                    {"probes", static_cast<double>(seen.probes)},
                    {"probed_yes", static_cast<double>(seen.probed_yes)},
                    {"woken", static_cast<double>(seen.woken)},
                    {"idle", static_cast<double>(seen.idle)},
                    {"untouched", static_cast<double>(seen.untouched)},
                    {"digest_high", static_cast<double>(seen.digest >> 32)},
                    {"digest_low", static_cast<double>(seen.digest & 0xffffffffU)}}});
  }

  Seen seen;

 private:
  void note(std::uint64_t value) { seen.digest = mix64(seen.digest ^ value) + 1; }
  PageRange next_window(std::uint64_t& cursor) const {
    auto at = pages_.lower_bound(cursor);
    if (at == pages_.end()) at = pages_.begin();
    cursor = *at + 64;
    return {{*at}, 64};
  }
  /// Idle pages of the next stretch of the address space, as far as there are some.
  void demote(std::size_t most) {
    if (pages_.empty()) return;
    const PageRange range = next_window(cleared_);
    std::vector<std::uint64_t> mask(mask_words(range.count));
    memory_.accessed(range, mask, true);
    std::vector<PageId> idle;
    for (std::uint64_t i = 0; i < range.count && idle.size() < most; ++i)
      if (!in_mask(mask, i) && pages_.contains(range.first.value + i))
        idle.push_back({range.first.value + i});
    seen.idle += idle.size();
    memory_.request(Tier::slow, idle);
  }

  Memory& memory_;
  Rng rng_;
  const bool units_;
  std::set<std::uint64_t> pages_;
  std::uint64_t scanned_ = 0, cleared_ = 0;  // where the next window of each begins
  std::vector<std::uint64_t> untouched_;
};

/// Not registered: it is no published system.
inline PolicyInfo watcher(bool units = false) {
  PolicyInfo info;
  info.name = "watcher";
  info.family = "test";
  info.knobs = {{.name = "units",
                 .type = KnobType::boolean,
                 .initial = units,
                 .meaning = "splits and collapses huge pages",
                 .source = "a test"}};
  info.traits.needs = Need::faults | Need::accessed_bits | Need::probes;
  if (units) info.traits.needs = info.traits.needs | Need::mixed_pages | Need::copies;
  info.make = [](const PolicyContext& context) -> std::unique_ptr<Policy> {
    return std::make_unique<Watcher>(context);
  };
  return info;
}

}  // namespace tt::test
