// SPDX-License-Identifier: MIT

// Meter: figures of a running session, summed up and by the second.
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <vector>

#include "core/policy.hpp"
#include "core/ticker.hpp"
#include "live/kernel_calls.hpp"
#include "live/loop.hpp"
#include "live/status.hpp"

namespace tt::live {

class Meter {
 public:
  /// `series` may be null; else it gets a row every second, with the columns of a simulated run's
  /// series where they mean the same.
  Meter(KernelCalls& kernel, const std::vector<Loop::Step>& steps, std::ostream* series);

  [[nodiscard]] bool due(Nanos now) const { return seconds_.due(now); }
  /// A second has gone by. `monitor`: processor time of threads of the kernel that watch for us.
  /// `lost`: samples or records. Both since the start.
  void second(Nanos now, Nanos monitor, std::uint64_t lost);
  /// Appends what it knows, at this time.
  void figures(Nanos now, std::vector<Figure>& out) const;

 private:
  struct Sums {
    std::array<double, most_levels> accesses{}, arrived{};  // arrived: pages that were moved there
    double up = 0, down = 0;                                // pages
    double samples = 0, lost = 0;
    double seconds = 0, own = 0, monitor = 0;  // of the clock; of processors
    [[nodiscard]] double fast_share_since(const Sums& before, double otherwise) const;
  };
  [[nodiscard]] Sums sums(Nanos now) const;
  [[nodiscard]] double metadata() const;

  KernelCalls& kernel_;
  const std::vector<Loop::Step> steps_;
  const LiveMemory& top_;
  std::optional<SeriesFile> series_;
  const Nanos processor_before_;
  Ticker<Nanos> seconds_{from_seconds(1)};
  Sums last_;             // at the last full second
  double hit_ratio_ = 0;  // of the second before it
  double shares_[2]{};    // of a processor, in that second: own, the monitor's
  Nanos monitor_{};
  double lost_ = 0;
};

}  // namespace tt::live
