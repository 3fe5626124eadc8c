// SPDX-License-Identifier: MIT

// What each kind of policy work (core/work.hpp) costs on the simulated machine: one row for each.
// The profile, its estimates and the documents of machines follow from it.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "core/assert.hpp"
#include "core/work.hpp"

namespace tt::sim {

struct WorkKind {
  Work work{};
  std::string_view name;  // a machine's document has its time as tiering.work_ns.NAME
  /// There is more of it the more pages there are, so that a miniature does less of it. What is
  /// left is done as often on a small system as on a large one, and is not scaled.
  bool per_page = true;
  /// Cache lines that it touches and that nothing else keeps in the cache: a counter, a line of
  /// counters, entries of 8 bytes in order of addresses; of a page on a list its own links, those
  /// of two neighbours and what the reverse map says. Histograms and sorts work in the cache.
  double lines = 0;
  double default_ns = 0;     // of a machine that does not say; 0: it has to
  double low = 0, high = 0;  // between which the time plausibly lies, and why
  std::string_view source;
};

inline constexpr std::array work_kinds{
    WorkKind{.work = Work::tracker_update,
             .name = "tracker_update",
             .lines = 1,
             .low = 17,
             .high = 125,
             .source = "published filters and tables reach 8 to 60 M updates a second"},
    WorkKind{.work = Work::tracker_lookup,
             .name = "tracker_lookup",
             .lines = 1,
             .low = 10,
             .high = 60,
             .source = "half of an update"},
    WorkKind{.work = Work::cooling_step,
             .name = "cooling_step",
             .lines = 1,
             .low = 2.5,
             .high = 10,
             .source = "a line of counters, by bandwidth"},
    WorkKind{.work = Work::scan_step,
             .name = "scan_step",
             .lines = 8.0 / 64,
             .low = 20,
             .high = 50,
             .source = "20 to 50 M entries of a pagemap a second"},
    WorkKind{.work = Work::threshold_pass,
             .name = "threshold_pass",
             .per_page = false,
             .low = 250,
             .high = 1000,
             .source = "a few dozen bins"},
    WorkKind{.work = Work::pte_scan,
             .name = "pte_scan",
             .lines = 8.0 / 64,
             .default_ns = 25,
             .low = 20,
             .high = 30,
             .source = "as pte_ns"},
    WorkKind{.work = Work::lru_step,
             .name = "lru_step",
             .lines = 4,
             .default_ns = 150,
             .low = 100,
             .high = 300,
             .source = "a page, by its reverse map"},
    WorkKind{.work = Work::probe,
             .name = "probe",
             .per_page = false,
             .lines = 1,
             .default_ns = 40,
             .low = 20,
             .high = 80,
             .source = "one page looked up twice"},
    WorkKind{.work = Work::sort_step,
             .name = "sort_step",
             .default_ns = 15,
             .low = 8,
             .high = 30,
             .source = "a comparison and an exchange"},
};

[[nodiscard]] constexpr const WorkKind& kind_of(Work work) {
  TT_ASSERT(static_cast<std::size_t>(work) < work_kinds.size());
  return work_kinds[static_cast<std::size_t>(work)];
}

namespace detail {
constexpr bool in_order() {
  for (std::size_t i = 0; i < work_kinds.size(); ++i)
    if (static_cast<std::size_t>(work_kinds[i].work) != i) return false;
  return work_kinds.size() == work_count;
}
static_assert(in_order(), "each kind of work has a row, in the order of the enumeration");
}  // namespace detail

/// Nanoseconds that an item of each kind takes.
class WorkCosts {
 public:
  /// The defaults.
  constexpr WorkCosts() {
    for (const WorkKind& kind : work_kinds) (*this)[kind.work] = kind.default_ns;
  }
  /// What is not in the list takes no time.
  constexpr WorkCosts(std::initializer_list<std::pair<Work, double>> costs) {
    for (const auto& [work, ns] : costs) (*this)[work] = ns;
  }
  /// Each takes as long.
  [[nodiscard]] static constexpr WorkCosts all(double ns) {
    WorkCosts costs;
    costs.ns_.fill(ns);
    return costs;
  }
  [[nodiscard]] constexpr double& operator[](Work work) {
    return ns_[static_cast<std::size_t>(work)];
  }
  [[nodiscard]] constexpr double operator[](Work work) const {
    return ns_[static_cast<std::size_t>(work)];
  }

 private:
  std::array<double, work_count> ns_{};
};

}  // namespace tt::sim
