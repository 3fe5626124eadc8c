// SPDX-License-Identifier: MIT

// What comes out of a run: running sums, one row per virtual second, and latency percentiles.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/seam.hpp"
#include "sim/simulate.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

/// Running sums of the timed part, full-scale. One list: the totals of RunResult::metrics are these
/// under these names, and the columns of the series are their differences per second.
enum class Sum : std::uint8_t {
  loads_fast,
  loads_slow,
  stores_fast,
  stores_slow,
  demand_loads_fast,  // those that a demand-miss event counts
  demand_loads_slow,
  operations,
  promotions_requested,  // taken into the queue
  promotions_rejected,   // the queue was full
  promotions_started,
  promotions,  // completed
  promotions_no_space,
  promotions_gone,
  demotions_requested,
  demotions_rejected,
  demotions_started,
  demotions,
  demotions_no_space,
  demotions_gone,
  ping_pongs,  // completed moves of pages that had last moved less than 10 s ago
  migrated_bytes,
  samples,       // taken, lost ones included
  samples_lost,  // found the rings full
  a1_cycles,
  a3_reads,
  tiering_cpu_seconds,  // the tiering thread: draining samples, the policy's work
  mover_cpu_seconds,    // copying pages, whichever thread does it
  pages_protected,      // by protect()
  hint_faults,
  copies_voided,  // by a store under a transactional move, retries included
  tiering_lines,  // cache lines that tiering brought into the caches
  units_split,    // huge pages, where page sizes are mixed
  units_collapsed,
};
inline constexpr std::size_t sum_count = static_cast<std::size_t>(Sum::units_collapsed) + 1;

/// What becomes of moves in one direction.
struct MoveSums {
  Sum requested, rejected, started, done, no_space, gone;
};
inline constexpr MoveSums promotion_sums{
    .requested = Sum::promotions_requested,
    .rejected = Sum::promotions_rejected,
    .started = Sum::promotions_started,
    .done = Sum::promotions,
    .no_space = Sum::promotions_no_space,
    .gone = Sum::promotions_gone,
};
inline constexpr MoveSums demotion_sums{
    .requested = Sum::demotions_requested,
    .rejected = Sum::demotions_rejected,
    .started = Sum::demotions_started,
    .done = Sum::demotions,
    .no_space = Sum::demotions_no_space,
    .gone = Sum::demotions_gone,
};
[[nodiscard]] constexpr const MoveSums& sums_of(Tier to) {
  return to == Tier::fast ? promotion_sums : demotion_sums;
}
[[nodiscard]] std::string_view name(Sum sum);
/// Whether it is reported only of policies that need hint faults.
[[nodiscard]] constexpr bool of_faults(Sum sum) {
  return sum == Sum::pages_protected || sum == Sum::hint_faults;
}

/// Whether it is reported only where page sizes are mixed.
[[nodiscard]] constexpr bool of_units(Sum sum) {
  return sum == Sum::units_split || sum == Sum::units_collapsed;
}

struct Sums {
  std::array<double, sum_count> values{};
  double& operator[](Sum sum) { return values[static_cast<std::size_t>(sum)]; }
  double operator[](Sum sum) const { return values[static_cast<std::size_t>(sum)]; }
  [[nodiscard]] Sums since(const Sums& earlier) const;
};

/// Share of all accesses that went to the fast tier; `otherwise` if there were none.
[[nodiscard]] double fast_hit_ratio(const Sums& sums, double otherwise);
/// The same as hardware counts it, by demand-miss events.
[[nodiscard]] double demand_hit_ratio(const Sums& sums, double otherwise);

/// The q-quantile by nearest rank: the smallest value that at least a share q does not exceed.
/// Reorders `values`. 0 for none.
[[nodiscard]] float quantile(std::span<float> values, double q);

/// Latencies of sampled operations, all of them kept.
class Latencies {
 public:
  explicit Latencies(std::size_t kinds) : values_(kinds), second_(kinds) {}
  void add(std::uint32_t kind, double nanoseconds) {
    values_[kind].push_back(static_cast<float>(nanoseconds));
  }
  /// Median of those added since the last call; `otherwise` if none.
  [[nodiscard]] double second_median(std::size_t kind, double otherwise);
  /// Forgets what was added so far: summaries are of what comes. A second that has begun goes on
  /// with what is added from now on.
  void restart();
  [[nodiscard]] LatencySummary summary(std::size_t kind);

 private:
  std::vector<std::vector<float>> values_;
  std::vector<std::size_t> second_;  // first value of the current second
};

/// What the fast tier holds, from a sample of its pages.
struct Occupancy {
  double used_share = 0;
  std::array<double, 3> heat{};  // by Heat: cold, warm, hot
};

/// Collects the columns of RunResult::series.
class Series {
 public:
  /// `by_faults`: with a column of hint faults.
  Series(const std::vector<trace::OpKind>& kinds, bool by_faults);
  /// Appends the row of a second that has just ended. `sums` are the running sums.
  void row(const Sums& sums, const Occupancy& occupancy, double metadata_bytes,
           const Gauges& gauges, Latencies& latencies);
  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] std::map<std::string, std::vector<double>> take() { return std::move(columns_); }

 private:
  double& cell(const std::string& column);
  std::vector<std::string> latency_columns_;
  bool by_faults_;
  std::map<std::string, std::vector<double>> columns_;
  std::size_t rows_ = 0;
  Sums last_;
};

}  // namespace tt::sim
