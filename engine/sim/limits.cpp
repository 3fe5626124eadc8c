// SPDX-License-Identifier: MIT

#include "sim/limits.hpp"

#include <array>
#include <sstream>
#include <string_view>

#include "sim/estimates.hpp"

namespace tt::sim {
namespace {

struct Range {
  double least = 0, most = 0;
  bool below = false;  // the largest value itself is not allowed
};

// Far beyond what any machine has, and near enough that no sum of a run overflows.
constexpr Range bandwidth{1e-6, 1e6};  // GB/s
constexpr Range latency{1e-3, 1e9};    // ns
constexpr Range cost{0, 1e9};          // ns or us
constexpr Range count{0, 1e9};
constexpr Range share{0, 1};

struct Measured {
  std::string_view name;
  Range range;
  double (*value)(const MachineProfile&);
};

template <double TierProfile::* member, Tier tier>
double of_tier(const MachineProfile& machine) {
  return machine.tiers[index(tier)].*member;
}

using T = TierProfile;

constexpr std::array measured{
    Measured{"ghz", {1e-3, 1e3}, [](const MachineProfile& m) { return m.ghz; }},
    Measured{"llc_mib", {0, 0x1p20}, [](const MachineProfile& m) { return m.llc_bytes / 0x1p20; }},
    Measured{"fast.latency_ns", latency, of_tier<&T::latency_ns, Tier::fast>},
    Measured{"fast.read_gbps", bandwidth, of_tier<&T::read_gbps, Tier::fast>},
    Measured{"fast.total_gbps", {0, bandwidth.most}, of_tier<&T::total_gbps, Tier::fast>},
    Measured{"fast.granule_bytes", {64, 0x1p21}, of_tier<&T::granule_bytes, Tier::fast>},
    Measured{"slow.latency_ns", latency, of_tier<&T::latency_ns, Tier::slow>},
    Measured{"slow.read_gbps", bandwidth, of_tier<&T::read_gbps, Tier::slow>},
    Measured{"slow.total_gbps", {0, bandwidth.most}, of_tier<&T::total_gbps, Tier::slow>},
    Measured{"slow.granule_bytes", {64, 0x1p21}, of_tier<&T::granule_bytes, Tier::slow>},
};

struct Estimated {
  std::string_view name;
  Range range;
};

/// Of estimates that are not the cost of something in time.
constexpr std::array estimated{
    Estimated{"fast.store_stall", share},
    Estimated{"fast.write_gbps", bandwidth},
    Estimated{"slow.store_stall", share},
    Estimated{"slow.write_gbps", bandwidth},
    Estimated{"tiering.clear_overlap", {1, count.most}},
    Estimated{"tiering.daemon_core_share", share},
    // Below 1: no page size makes an access free.
    Estimated{"tiering.huge_page_gain", {0, 1, true}},
    Estimated{"tiering.live_lines", share},
    Estimated{"tiering.migration_copy_gbps", bandwidth},
    Estimated{"tiering.migration_shootdown_pages", {1, count.most}},
    Estimated{"tiering.prefetch_shown", share},
    Estimated{"tiering.sample_lines", count},
    Estimated{"tiering.sample_queue", {1e-3, 1e15}},
};

Range range_of(std::string_view name) {
  for (const Estimated& estimate : estimated)
    if (estimate.name == name) return estimate.range;
  return cost;
}

}  // namespace

std::vector<Problem> problems(const MachineProfile& machine) {
  std::vector<Problem> found;
  const auto look = [&](std::string_view name, double value, const Range& range) {
    if (value >= range.least && (range.below ? value < range.most : value <= range.most)) return;
    std::ostringstream wanted;
    wanted << "must be " << (range.below ? "at least " : "from ") << range.least
           << (range.below ? " and below " : " to ") << range.most;
    found.push_back({std::string(name), wanted.str()});
  };
  for (const Measured& figure : measured) look(figure.name, figure.value(machine), figure.range);
  MachineProfile copy = machine;  // estimates are set through the same function
  for (const Estimate& estimate : estimates())
    look(estimate.name, estimate.field(copy), range_of(estimate.name));
  return found;
}

}  // namespace tt::sim
