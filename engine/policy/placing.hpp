// SPDX-License-Identifier: MIT

// A policy that places pages where a placement says, or fast first, and never moves one: Soar's
// (soar.cpp), and unified's without its counting.
#pragma once

#include <algorithm>
#include <optional>

#include "migrate/placement_plan.hpp"
#include "policy/static_policy.hpp"

namespace tt {

class Placing final : public StaticPolicy {
 public:
  explicit Placing(const PolicyContext& context) {
    if (context.placement != nullptr) plan_.emplace(context.memory, *context.placement);
  }

  void on_map(PageRange range, std::uint32_t site, Nanos) override {
    if (plan_) plan_->map(range, site);
  }
  void on_unmap(PageRange range, Nanos) override {
    if (plan_) plan_->unmap(range);
  }
  void on_capacity(Tier, Nanos) override {
    if (plan_) plan_->divide();
  }
  Tier placement(PageRange range) const override {
    return !plan_ || plan_->fast(range.first) ? Tier::fast : Tier::slow;
  }
  Heat heat(PageId page) const override {
    return plan_ && plan_->fast(page) ? Heat::hot : Heat::cold;
  }
  std::uint64_t metadata_bytes() const override { return plan_ ? plan_->bytes() : 0; }
  void gauges(Gauges& out) const override {
    if (!plan_) return;
    out["fast_objects"] = static_cast<double>(std::ranges::count_if(
        plan_->objects(), [](const auto& o) { return o.pages > 0 && o.fast >= o.pages; }));
  }
  void report(Rows& out) const override {
    if (!plan_) return;
    double rank = 0;
    for (const auto& object : plan_->objects())
      out.push_back({"objects",
                     {{"rank", ++rank},
                      {"site", object.site},
                      {"score", object.score},
                      {"pages", object.pages},
                      {"fast_pages", std::min(object.fast, object.pages)}}});
  }

 private:
  std::optional<migrate::PlacementPlan> plan_;
};

}  // namespace tt
