// SPDX-License-Identifier: MIT

#include "sim/report.hpp"

#include <algorithm>
#include <cmath>

namespace tt::sim {

namespace {

struct SumName {
  Sum sum;
  std::string_view name;
};
constexpr std::array sum_names{
    SumName{Sum::loads_fast, "loads_fast"},
    SumName{Sum::loads_slow, "loads_slow"},
    SumName{Sum::stores_fast, "stores_fast"},
    SumName{Sum::stores_slow, "stores_slow"},
    SumName{Sum::demand_loads_fast, "demand_loads_fast"},
    SumName{Sum::demand_loads_slow, "demand_loads_slow"},
    SumName{Sum::operations, "operations"},
    SumName{Sum::promotions_requested, "promotions_requested"},
    SumName{Sum::promotions_rejected, "promotions_rejected"},
    SumName{Sum::promotions_started, "promotions_started"},
    SumName{Sum::promotions, "promotions"},
    SumName{Sum::promotions_no_space, "promotions_no_space"},
    SumName{Sum::promotions_gone, "promotions_gone"},
    SumName{Sum::demotions_requested, "demotions_requested"},
    SumName{Sum::demotions_rejected, "demotions_rejected"},
    SumName{Sum::demotions_started, "demotions_started"},
    SumName{Sum::demotions, "demotions"},
    SumName{Sum::demotions_no_space, "demotions_no_space"},
    SumName{Sum::demotions_gone, "demotions_gone"},
    SumName{Sum::ping_pongs, "ping_pongs"},
    SumName{Sum::migrated_bytes, "migrated_bytes"},
    SumName{Sum::samples, "samples"},
    SumName{Sum::samples_lost, "samples_lost"},
    SumName{Sum::a1_cycles, "a1_cycles"},
    SumName{Sum::a3_reads, "a3_reads"},
    SumName{Sum::tiering_cpu_seconds, "tiering_cpu_seconds"},
    SumName{Sum::mover_cpu_seconds, "mover_cpu_seconds"},
    SumName{Sum::pages_protected, "pages_protected"},
    SumName{Sum::hint_faults, "hint_faults"},
    SumName{Sum::copies_voided, "copies_voided"},
    SumName{Sum::tiering_lines, "tiering_lines"},
    SumName{Sum::units_split, "units_split"},
    SumName{Sum::units_collapsed, "units_collapsed"},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < sum_names.size(); ++i)
    if (static_cast<std::size_t>(sum_names[i].sum) != i) return false;
  return sum_names.size() == sum_count;
}
static_assert(in_order(), "each sum has a name, in the order of the enumeration");

}  // namespace

std::string_view name(Sum sum) { return sum_names[static_cast<std::size_t>(sum)].name; }

Sums Sums::since(const Sums& earlier) const {
  Sums difference;
  for (std::size_t i = 0; i < sum_count; ++i) difference.values[i] = values[i] - earlier.values[i];
  return difference;
}

double fast_hit_ratio(const Sums& sums, double otherwise) {
  const double fast = sums[Sum::loads_fast] + sums[Sum::stores_fast];
  const double all = fast + sums[Sum::loads_slow] + sums[Sum::stores_slow];
  return all > 0 ? fast / all : otherwise;
}

double demand_hit_ratio(const Sums& sums, double otherwise) {
  const double fast = sums[Sum::demand_loads_fast];
  const double all = fast + sums[Sum::demand_loads_slow];
  return all > 0 ? fast / all : otherwise;
}

float quantile(std::span<float> values, double q) {
  if (values.empty()) return 0;
  const double rank = std::ceil(q * static_cast<double>(values.size()));
  const auto at = std::min(values.size() - 1, static_cast<std::size_t>(std::max(rank, 1.0)) - 1);
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

double Latencies::second_median(std::size_t kind, double otherwise) {
  const auto fresh = std::span{values_[kind]}.subspan(second_[kind]);
  second_[kind] = values_[kind].size();
  return fresh.empty() ? otherwise : quantile(fresh, 0.5);
}

void Latencies::restart() {
  for (auto& values : values_) values.clear();
  std::ranges::fill(second_, std::size_t{0});
}

LatencySummary Latencies::summary(std::size_t kind) {
  auto& values = values_[kind];
  LatencySummary summary;
  summary.operations = values.size();
  if (values.empty()) return summary;
  // Sorted, so that the mean does not depend on the order that medians have left behind.
  std::ranges::sort(values);
  double sum = 0;
  for (const float value : values) sum += value;
  summary.mean = sum / static_cast<double>(values.size());
  summary.p50 = quantile(values, 0.50);
  summary.p90 = quantile(values, 0.90);
  summary.p99 = quantile(values, 0.99);
  summary.p999 = quantile(values, 0.999);
  return summary;
}

Series::Series(const std::vector<trace::OpKind>& kinds, bool by_faults) : by_faults_(by_faults) {
  for (const trace::OpKind& kind : kinds) latency_columns_.push_back(kind.name + "_p50_ns");
}

double& Series::cell(const std::string& column) {
  auto& values = columns_[column];
  values.resize(rows_ + 1);  // zero for the seconds before a gauge first appeared
  return values.back();
}

void Series::row(const Sums& sums, const Occupancy& occupancy, double metadata_bytes,
                 const Gauges& gauges, Latencies& latencies) {
  const auto last = [&](const std::string& column) {
    const auto found = columns_.find(column);
    return found == columns_.end() || found->second.empty() ? 0.0 : found->second.back();
  };
  const Sums second = sums.since(last_);
  last_ = sums;
  const double hit_ratio = fast_hit_ratio(second, last("fast_hit_ratio"));
  const double demand_ratio = demand_hit_ratio(second, last("demand_hit_ratio"));
  const double aol = second[Sum::a3_reads] > 0 ? second[Sum::a1_cycles] / second[Sum::a3_reads]
                                               : last("aol_cycles");
  std::vector<double> medians;
  for (std::size_t kind = 0; kind < latency_columns_.size(); ++kind)
    medians.push_back(latencies.second_median(kind, last(latency_columns_[kind])));

  cell("second") = static_cast<double>(rows_);
  cell("fast_hit_ratio") = hit_ratio;
  cell("demand_hit_ratio") = demand_ratio;
  cell("promotions") = second[Sum::promotions];
  cell("demotions") = second[Sum::demotions];
  cell("ping_pongs") = second[Sum::ping_pongs];
  cell("migrated_bytes") = second[Sum::migrated_bytes];
  cell("samples") = second[Sum::samples];
  cell("samples_lost") = second[Sum::samples_lost];
  if (by_faults_) cell("hint_faults") = second[Sum::hint_faults];
  cell("aol_cycles") = aol;
  cell("fast_used_share") = occupancy.used_share;
  cell("fast_hot_share") = occupancy.heat[static_cast<std::size_t>(Heat::hot)];
  cell("fast_warm_share") = occupancy.heat[static_cast<std::size_t>(Heat::warm)];
  cell("fast_cold_share") = occupancy.heat[static_cast<std::size_t>(Heat::cold)];
  cell("policy_cpu_share") = second[Sum::tiering_cpu_seconds];
  cell("metadata_bytes") = metadata_bytes;
  cell("operations_per_second") = second[Sum::operations];
  for (std::size_t kind = 0; kind < medians.size(); ++kind)
    cell(latency_columns_[kind]) = medians[kind];
  for (const auto& [gauge, value] : gauges) cell("policy." + gauge) = value;
  ++rows_;
  for (auto& [column, values] : columns_) values.resize(rows_);  // a gauge that has gone: zero
}

}  // namespace tt::sim
