// SPDX-License-Identifier: MIT

// What load does to a tier: how its latency grows, and how much of its bandwidth is left when part
// of the traffic is writes.
#pragma once

#include <initializer_list>
#include <utility>
#include <vector>

namespace tt::sim {

/// Latency against load at one mix of reads and writes.
struct LoadedCurve {
  double reads = 1;  // share of reads in the traffic
  double peak = 1;   // the most traffic at this mix, as a share of the most at any measured mix
  /// (utilisation of that peak, factor on the idle latency), ascending, first (0, 1); piecewise
  /// linear, constant beyond the last point.
  std::vector<std::pair<double, double>> points;
};

/// The curves of a tier, ascending by their share of reads. Between two mixes, factors at the same
/// utilisation and peaks are interpolated; beyond the outermost ones, those hold.
class LoadedLatency {
 public:
  LoadedLatency() = default;
  /// One curve, whatever the mix.
  LoadedLatency(std::initializer_list<std::pair<double, double>> points)
      : LoadedLatency(std::vector<LoadedCurve>{{1, 1, points}}) {}
  /// Throws std::invalid_argument if the curves or their points do not ascend.
  explicit LoadedLatency(std::vector<LoadedCurve> curves);

  /// The tier at one mix.
  class Mix {
   public:
    /// Factor on the idle latency.
    [[nodiscard]] double factor(double utilisation) const;
    [[nodiscard]] double peak() const;

   private:
    friend class LoadedLatency;
    const LoadedCurve* fewer_reads_ = nullptr;  // null: load does nothing
    const LoadedCurve* more_reads_ = nullptr;
    double weight_ = 0;  // of the latter
  };
  /// Valid while this object lives unchanged.
  [[nodiscard]] Mix at(double reads) const;

 private:
  std::vector<LoadedCurve> curves_;
};

}  // namespace tt::sim
