// SPDX-License-Identifier: MIT

// The books of a run: everything that is added up in it.
//
// Every room of the machine enters here what happened in it. The counters run from the start and
// are the policy's to read, who lives in the miniature: they count simulated accesses. The sums are
// what the report is made of, at full scale. Set-up has sums of its own, so
// that no room needs to ask whether it counts.
#pragma once

#include "core/seam.hpp"
#include "sim/report.hpp"

namespace tt::sim {

class Ledger {
 public:
  /// Of the part that is running, set-up or timed.
  [[nodiscard]] Sums& sums() { return timed_ ? timed_sums_ : set_up_sums_; }
  [[nodiscard]] const Sums& timed_sums() const { return timed_sums_; }
  [[nodiscard]] Counters& counters() { return counters_; }
  [[nodiscard]] const Counters& counters() const { return counters_; }

  [[nodiscard]] bool timed() const { return timed_; }
  void enter_section(bool timed) { timed_ = timed; }

 private:
  bool timed_ = false;
  Counters counters_;
  Sums timed_sums_;
  Sums set_up_sums_;
};

}  // namespace tt::sim
