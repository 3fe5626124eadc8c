// SPDX-License-Identifier: MIT

// The replay loop: plays a stream's blocks on the simulated machine under a policy, and collects
// what is reported: a row per virtual second, latencies, and the peak of the policy's metadata.
#pragma once

#include <cstdint>

#include "core/seam.hpp"
#include "sim/machine.hpp"
#include "sim/report.hpp"
#include "sim/simulate.hpp"
#include "sim/watch.hpp"
#include "trace/reader.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

class Replay {
 public:
  /// `policy` is attached to the machine already; `traits` are its own. `score_after`: see
  /// RunOptions.
  Replay(const trace::Reader& stream, Machine& machine, const PolicyTraits& traits,
         const Policy& policy, double score_after, Watch& watch);

  /// May be called once.
  [[nodiscard]] RunResult run();

 private:
  void play(const trace::Block& block);
  void start_score();
  void end_second();
  [[nodiscard]] Occupancy occupancy() const;
  RunResult result();

  const trace::Reader& stream_;
  const trace::StreamInfo& info_;
  Machine& machine_;
  const Policy& policy_;
  Watch& watch_;
  const bool by_faults_;    // the policy needs hint faults: report what became of them
  double unscored_ns_ = 0;  // nominal time of the timed part that is left before anything counts
  Sums before_score_;       // as they were then
  LaneTime time_before_score_;
  double peak_metadata_bytes_ = 0;
  Series series_;
  Latencies latencies_;
};

}  // namespace tt::sim
