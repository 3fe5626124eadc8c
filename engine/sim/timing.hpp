// SPDX-License-Identifier: MIT

// What time costs: the equations of the simulated machine, free of any state.
//
// All times are in nanoseconds, all bytes and accesses full-scale.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/types.hpp"
#include "sim/profile.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

/// Virtual time as a policy is told it.
[[nodiscard]] constexpr Nanos whole_ns(double ns) { return Nanos{static_cast<std::int64_t>(ns)}; }

/// Bytes of a line: a load reads one; a store writes one back, and reads it before unless it was in
/// the cache (StreamClass::store_fill).
inline constexpr double line_bytes = trace::line_bytes;

/// Bytes read from and written to a tier.
struct Traffic {
  double read = 0;
  double written = 0;
  Traffic& operator*=(double times) {
    read *= times;
    written *= times;
    return *this;
  }
  Traffic& operator+=(const Traffic& more) {
    read += more.read;
    written += more.written;
    return *this;
  }
  /// Share of reads; 1 of no traffic.
  [[nodiscard]] double reads() const {
    const double all = read + written;
    return all > 0 ? read / all : 1;
  }
};

/// What the device moves for these lines of a class. A granule larger than a line is moved whole
/// for a line alone; the lines of a run, which are those that a prefetcher follows, share theirs.
[[nodiscard]] Traffic moved(const TierProfile& tier, const trace::StreamClass& stream_class,
                            const Traffic& lines);

/// The least time in which a tier can move this traffic: the tightest of its read, write and joint
/// limits (GB/s are bytes per nanosecond), the last of them at the traffic's mix. A limit of 0 does
/// not exist.
[[nodiscard]] double transfer_ns(const TierProfile& tier, const Traffic& traffic);

/// Accesses of one stream class and kind to one tier. Each is overlapped with `issue_ns` of
/// computation, and waits for `wait_ns` at the tier's idle latency: latency / MLP for a load, the
/// share of it that fills the write buffers for a store.
struct Term {
  double accesses = 0;
  double issue_ns = 0;
  double wait_ns = 0;
  Tier tier = Tier::fast;
};

/// What a lane (a group of threads) has to do in a block.
struct LaneWork {
  double threads = 1;
  double compute_ns = 0;    // thread time apart from the accesses
  double migration_ns = 0;  // thread time lost to page moves (shootdowns, movers on our cores)
  double sampling_ns = 0;   // thread time lost to sampling
  double policy_ns = 0;     // thread time lost to the policy's own work on our cores
  double fault_ns = 0;      // thread time in hint faults, and for protecting pages
  double refetched = 0;     // accesses that miss for tiering's sake, relative to all
  std::vector<Term> terms;
  std::array<Traffic, tier_count> traffic{};    // own accesses and page moves
  std::array<double, tier_count> background{};  // utilisation by the other lanes
  /// Accesses to pages in flight: a page is away for d of the block's T, so a share d/T of its
  /// accesses finds it away and waits d/2 on average. Sum over accesses of d * d / 2: thread time
  /// lost is this over T, at most in_flight_limit_ns.
  double in_flight_ns2 = 0;
  double in_flight_limit_ns = 0;
};

/// Where a lane's time in a block went. The parts add up to `total`.
struct LaneTime {
  double total = 0;
  double compute = 0;
  std::array<double, tier_count> stall{};
  double bandwidth = 0;
  double migration = 0;
  double sampling = 0;
  double policy = 0;
  double faults = 0;
  std::array<double, tier_count> factor{1, 1};  // on the idle latencies, under this block's load
  Tier limiting = Tier::fast;                   // the tier whose bandwidth is waited for, if any
  LaneTime& operator+=(const LaneTime& more);   // the parts only
  [[nodiscard]] LaneTime since(const LaneTime& earlier) const;  // likewise
};

/// Solves time and utilisation together: utilisation = transfer time / T + background raises
/// latency, latency lengthens T, and T lowers utilisation. The time that the threads need is a
/// falling function f(T), so that T = f(T) has exactly one solution, found to a relative 1e-10.
/// Below the transfer time T cannot go: the rest is waiting for bandwidth. `guess_ns` (the last
/// block's time; 0: none) only saves steps.
[[nodiscard]] LaneTime solve(const LaneWork& work, const std::array<TierProfile, tier_count>& tiers,
                             double guess_ns = 0);

/// What the application does to the tiers, by what it did last: how much of each tier's bandwidth
/// its own accesses take, and how many threads compete for it.
struct Load {
  double threads = 0;
  std::array<double, tier_count> utilisation{};
};

/// How long one real page of `page_bytes` is away when `movers` threads copy at a time: the fixed
/// cost and the copy, at the mover's speed or that of the slower end. The movers have what the
/// application leaves of an end's bandwidth; where it leaves less than their share among all
/// threads, they have that share, since a memory controller serves whoever asks.
[[nodiscard]] double move_ns(const MachineProfile& machine, Tier to, double page_bytes,
                             double movers, const Load& load, double together = 1);

/// Thread time per load during which at least one demand read is outstanding (A1 of Soar/Alto,
/// OSDI'25, Table 1, per read): misses are issued every max(issue, latency / MLP); a latency longer
/// than the issue interval leaves no gap between them.
[[nodiscard]] double outstanding_ns(double latency_ns, double mlp, double issue_ns);

}  // namespace tt::sim
