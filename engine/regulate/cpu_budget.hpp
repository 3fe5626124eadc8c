// SPDX-License-Identifier: MIT

// CpuBudget: samples as often as a share of a processor allows (MEMTIS, SOSP'23, §4.1.1).
#pragma once

#include <cstddef>
#include <vector>

#include "core/seam.hpp"

namespace tt::regulate {

class CpuBudget {
 public:
  /// Samples loads and stores at the knobs' periods from now on.
  CpuBudget(Memory& memory, const Knobs& knobs);

  /// Looks at the time that sampling has taken if a window has ended. It samples one step less if
  /// that is above the limit by more than the hysteresis, one step more if it is as far below.
  void tick(Nanos now);

  /// Events between two samples now, as granted; 0 where such samples are not to be had. The
  /// published code has 30 steps for loads, up to a hundred times the first period, and 5 for
  /// stores, up to 15 times.
  [[nodiscard]] double load_period() const { return granted_.loads.value; }
  [[nodiscard]] double store_period() const { return granted_.stores.value; }
  /// Moving average of the share of a processor that sampling takes.
  [[nodiscard]] double share() const { return share_; }

 private:
  void set_sampling();

  Memory& memory_;
  const double first_load_, first_store_, limit_, hysteresis_;
  const Nanos window_;
  std::size_t load_step_ = 0, store_step_ = 0;
  SamplingRequest granted_;
  bool known_ = false;  // a window has ended
  double share_ = 0;
  double last_seconds_ = 0;
  Nanos last_{};
};

/// load_sampling_period, store_sampling_period, cpu_limit, cpu_hysteresis, cpu_window.
[[nodiscard]] std::vector<KnobDecl> cpu_budget_knobs(const std::string& source);

}  // namespace tt::regulate
