// SPDX-License-Identifier: MIT

// What the policies that never migrate have in common: they choose where a page is first placed,
// and nothing else.
#pragma once

#include "core/make_policy.hpp"

namespace tt {

class StaticPolicy : public Policy {
 public:
  void on_map(PageRange, std::uint32_t, Nanos) override {}
  void on_unmap(PageRange, Nanos) override {}
  void on_samples(std::span<const Sample>, Nanos) override {}
  void tick(Nanos) override {}
  Nanos tick_period() const override { return from_seconds(3600); }
  void on_migrated(std::span<const MigrationResult>, Nanos) override {}
  std::uint64_t metadata_bytes() const override { return 0; }
  void gauges(Gauges&) const override {}
  Heat heat(PageId) const override { return Heat::cold; }
};

}  // namespace tt
