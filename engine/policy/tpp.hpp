// SPDX-License-Identifier: MIT

// TPP's rules, for itself and for the systems that are built on it: which faults promote, and when
// kswapd demotes. What is published, and what not: tpp.cpp.
#pragma once

#include <algorithm>
#include <vector>

#include "policy/hint_fault.hpp"

namespace tt {

class TppPolicy : public KswapdPolicy {
 public:
  void tick(Nanos now) override {
    KswapdPolicy::tick(now);
    keep_room(now);
    scan_by_faults(now, scanned_);
  }

 protected:
  TppPolicy(const PolicyContext& context, Tiers scanned)
      : TppPolicy(context, scanned, demote_mark(context.knobs)) {}

  /// §5.3: whether the page that faulted is on the active list. If not, the fault counts as an
  /// access.
  bool touch(const Fault& fault) {
    using enum track::LruLists::List;
    lists_.found(fault.page, fault.tier);
    if (lists_.on(active, fault.page)) return true;
    lists_.mark_accessed(fault.page);
    if (at_once_) lists_.put(fault.page, active);
    return false;
  }
  /// §5.2: kswapd is woken below the demotion mark.
  void keep_room(Nanos now) {
    if (!kswapd_.awake() && !migrate::is_free(memory_, demote_mark_)) reclaim(now);
  }

 private:
  static double demote_mark(const Knobs& knobs) {
    return std::max(knobs.real("demote_scale_factor"), 2 * migrate::KernelMarks(knobs).high);
  }
  TppPolicy(const PolicyContext& context, Tiers scanned, double demote_mark)
      : KswapdPolicy(context, demote_mark),
        scanned_(scanned),
        at_once_(context.knobs.choice("activation") == "paper"),
        demote_mark_(demote_mark) {
    memory_.set_watermarks({.reserve = marks_.low, .wake = demote_mark_});
  }

  const Tiers scanned_;
  const bool at_once_;
  const double demote_mark_;
};

/// scan_clock_knobs(), demote_scale_factor, activation, kernel_marks_knobs(), reclaim_knobs().
[[nodiscard]] std::vector<KnobDecl> tpp_knobs();

}  // namespace tt
