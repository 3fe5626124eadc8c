// SPDX-License-Identifier: MIT

// A policy that writes down what it is told.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/policy.hpp"

namespace tt::test {

/// Remembers what it is told, and asks for nothing by itself.
class Listener final : public Policy {
 public:
  std::vector<PageRange> mapped, unmapped;
  std::vector<MigrationResult> results;
  int pressed = 0, budgets = 0;
  std::function<void(Nanos)> ticked;  // may change the period
  std::function<void()> on_mapped;
  Nanos period = from_millis(10);

  void on_map(PageRange range, std::uint32_t, Nanos) override {
    mapped.push_back(range);
    if (on_mapped) on_mapped();
  }
  void on_unmap(PageRange range, Nanos) override { unmapped.push_back(range); }
  Tier placement(PageRange) const override { return Tier::fast; }
  void on_samples(std::span<const Sample>, Nanos) override {}
  void on_pressure(Tier, Nanos) override { ++pressed; }
  void on_capacity(Tier, Nanos) override { ++budgets; }
  void tick(Nanos now) override {
    if (ticked) ticked(now);
  }
  Nanos tick_period() const override { return period; }
  void on_migrated(std::span<const MigrationResult> told, Nanos) override {
    results.insert(results.end(), told.begin(), told.end());
  }
  std::uint64_t metadata_bytes() const override { return 0; }
  void gauges(Gauges&) const override {}
  Heat heat(PageId) const override { return Heat::cold; }

  [[nodiscard]] std::vector<std::uint64_t> with(Outcome outcome) const {
    std::vector<std::uint64_t> pages;
    for (const MigrationResult& result : results)
      if (result.outcome == outcome) pages.push_back(result.page.value);
    return pages;
  }
};

}  // namespace tt::test
