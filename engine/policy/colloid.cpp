// SPDX-License-Identifier: MIT

// Colloid on TPP: Vuppalapati and Agarwal, "Tiered Memory Management: Access Latency is the Key!",
// SOSP'24, with TPP (tpp.hpp) below it.
//
// Paper: https://doi.org/10.1145/3694715.3695968;
// artifact: https://github.com/host-architecture/colloid
//
// §3.1: pages belong in the tier that answers sooner, as loaded as it is. Each quantum the tiers'
// latencies and the share of accesses that should move are measured (latency_balance.hpp). While
// the fast tier is the faster one, pages are promoted as TPP does; while it is the slower one,
// nothing is promoted, and hot pages that fault in it are demoted; while they balance, neither.
// §3.2: the pages of a quantum have no more than the share dp of the accesses, and
// no more bytes than those accesses read, nor than a fixed limit. TPP counts no accesses: a page
// that faults a time t after it was protected is taken to be accessed 1 / t times a second.
// kswapd keeps room for promotions as below TPP.
//
// balance_      what the counters say: where to, and what share
// shift_left_   share of accesses that may still move in this quantum
// pages_left_   pages, likewise; a miniature's fraction of a page is carried over
//
// Both tiers are scanned: without faults in the fast one nothing could go back.
//
// Inferred: a page's rate from its fault (the published code of the TPP variant uses the direction
// only, and no shares), and that demotion asks for an active page as promotion does.
#include <algorithm>
#include <vector>

#include "core/make_policy.hpp"
#include "policy/tpp.hpp"
#include "regulate/aol.hpp"
#include "regulate/latency_balance.hpp"

namespace tt {
namespace {

class Colloid final : public TppPolicy {
 public:
  explicit Colloid(const PolicyContext& context)
      : TppPolicy(context, Tiers::both),
        balance_(context.knobs),
        quantum_(from_millis(context.knobs.real("quantum"))),
        most_pages_(context.knobs.real("migration_limit") * (1 << 20) /
                    static_cast<double>(memory_.page_bytes())) {}

  void on_faults(std::span<const Fault> faults, Nanos now) override {
    moves_.clear();
    const auto to = balance_.toward();
    const double room =
        to == Tier::fast ? static_cast<double>(room_above(marks_.min)) : pages_left_;
    for (const Fault& fault : faults) {
      count(fault);
      if (!clock_.space().contains(fault.page) || !touch(fault)) continue;
      if (!to || fault.tier == *to || pages_left_ < 1) continue;
      const double share = share_of(fault);
      if (share > shift_left_) continue;
      if (static_cast<double>(moves_.size()) + 1 > room) {
        count_failed();
        continue;
      }
      moves_.push_back(fault.page);
      shift_left_ -= share;
      pages_left_ -= 1;
    }
    if (!moves_.empty()) memory_.request(*to, moves_, Way::in_fault);
    keep_room(now);
  }
  void tick(Nanos now) override {
    const double quanta = seconds(now - measured_) / seconds(quantum_);
    if (quanta >= 1 && balance_.update(memory_.counters(), quanta)) {
      measured_ = now;
      shift_left_ = balance_.shift();
      const double read_pages = balance_.shift() * balance_.reads() * line_bytes /
                                static_cast<double>(memory_.page_bytes());
      // Late by some quanta, it may move as much as in all of them.
      pages_left_ = std::min(pages_left_, 1.0) + quanta * std::min(most_pages_, read_pages);
    }
    TppPolicy::tick(now);
  }
  [[nodiscard]] Nanos tick_period() const override {
    return std::min(quantum_, TppPolicy::tick_period());
  }
  void gauges(Gauges& out) const override {
    TppPolicy::gauges(out);
    out["fast_latency_ns"] = balance_.latency_ns(Tier::fast);
    out["slow_latency_ns"] = balance_.latency_ns(Tier::slow);
    out["access_shift"] = balance_.toward() == Tier::slow ? -balance_.shift() : balance_.shift();
  }

 private:
  static constexpr double line_bytes = 64;

  /// Of all accesses, those to the page.
  [[nodiscard]] double share_of(const Fault& fault) const {
    const double since = std::max(seconds(fault.since), 0.001);  // kernels keep milliseconds
    return seconds(quantum_) / (since * balance_.reads());
  }

  regulate::LatencyBalance balance_;
  const Nanos quantum_;
  const double most_pages_;  // of a quantum
  Nanos measured_{};
  double shift_left_ = 0, pages_left_ = 0;
  std::vector<PageId> moves_;  // scratch
};

std::vector<KnobDecl> colloid_knobs() {
  using namespace knob;
  return list(regulate::latency_balance_knobs(),
              real("quantum", 10, {1, 10000, log}, milliseconds, "Colloid, SOSP'24, §4; artifact",
                   "time over which latencies are measured, and after which pages may move again"),
              real("migration_limit", 100, {1, 10000, log}, mebibytes, "artifact: 50 huge pages",
                   "most memory that moves in a quantum"),
              tpp_knobs());
}

const RegisterPolicy colloid_policy{
    regulate::with_aol<make_policy<Colloid>, regulate::Thins::windows>({
        .name = "colloid",
        .family = "hint faults",
        .summary = "moves what faults toward the tier with the lower loaded latency, on TPP",
        .citation =
            "Vuppalapati and Agarwal, Tiered Memory Management: Access Latency is the Key!, "
            "SOSP 2024",
        .addresses = {"https://doi.org/10.1145/3694715.3695968"},
        .knobs = colloid_knobs(),
        .traits = {.needs = Need::faults | Need::accessed_bits | Need::tier_counters},
    })};

}  // namespace
}  // namespace tt
