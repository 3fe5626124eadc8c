// SPDX-License-Identifier: MIT

// One trial on the simulated machine: replay a stream under a policy and account for time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/seam.hpp"
#include "sim/profile.hpp"
#include "trace/reader.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

/// A Placement as a file has it: sizes at full scale.
struct PlacedObject {
  std::string site;
  double score = 0;  // per byte
  double bytes = 0;
  std::uint32_t slot = 0;
  friend bool operator==(const PlacedObject&, const PlacedObject&) = default;
};

struct RunOptions {
  double fast_share = 1.0 / 9;   // fast-tier capacity as a share of the footprint (1:8 is 1/9)
  std::uint64_t fast_bytes = 0;  // overrides fast_share when not 0; full scale
  double threads = 0;            // 0: the profile's
  std::uint64_t page_bytes = 0;  // 0: the policy's native managed page
  // Base pages, of which 512 at a time are mapped as a huge page where one mapping covers them; a
  // policy that needs mixed page sizes gets them anyway.
  bool mixed = false;
  // Accepts fast tiers of fewer than least_fast_pages (sim/scale.hpp): smoke runs, and tests of
  // mechanics on a few pages.
  bool coarse = false;
  bool start_slow = false;  // all first touches go to the slow tier, whatever the policy wants
  /// The share of the timed part, by the work in it, that passes before anything is scored.
  double score_after = 0;
  std::uint64_t seed = 0;
  /// What a profiled policy goes by. Without it the stream is played twice: the first time on fast
  /// memory alone, as a profiling run.
  std::optional<std::vector<PlacedObject>> placement;
  std::optional<double> deadline_seconds;  // wall clock; DeadlineExceeded is thrown beyond it
  std::function<bool(double)> progress;    // fraction done; false stops (Interrupted is thrown)
};

struct DeadlineExceeded {};
struct Interrupted {};

/// Latency of one kind of operation, in ns.
struct LatencySummary {
  std::uint64_t operations = 0;  // sampled
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, p999 = 0;
};

/// Of the scored part, which is the timed one or what RunOptions::score_after leaves of it.
struct RunResult {
  double seconds = 0;                             // virtual
  double total_seconds = 0;                       // virtual, of the whole run, set-up included
  double operations = 0;                          // full scale
  std::map<std::string, LatencySummary> latency;  // by op kind
  /// Totals, full scale: each Sum (sim/report.hpp) under its name, and ratios and sizes
  /// (sim/replay.cpp has their derivation).
  std::map<std::string, double> metrics;
  /// Seconds by where they went: compute, fast_stall, slow_stall, bandwidth, migration, sampling,
  /// policy, and with hint faults or work in the application's time, faults. They add up to
  /// `seconds`.
  std::map<std::string, double> breakdown;
  /// One value per virtual second of the whole timed part (all columns the same length), column
  /// "second" first by name.
  std::map<std::string, std::vector<double>> series;
  Rows rows;  // the policy's own tables
};

/// Knobs are full-scale; they are resolved and scaled here. Throws std::invalid_argument for a bad
/// knob or option, and for a policy that needs what the simulated machine does not have.
[[nodiscard]] RunResult simulate(const trace::Reader& stream, const MachineProfile& machine,
                                 const PolicyInfo& policy, const KnobMap& knobs,
                                 const RunOptions& options);

/// The profiling run of a policy that goes by a Placement: everything in fast memory.
struct ProfileResult {
  std::vector<PlacedObject> placement;
  RunResult run;
};
/// Throws as simulate(), and for a policy that does not profile.
[[nodiscard]] ProfileResult profile(const trace::Reader& stream, const MachineProfile& machine,
                                    const PolicyInfo& policy, const KnobMap& knobs,
                                    const RunOptions& options);

}  // namespace tt::sim
