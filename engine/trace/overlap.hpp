// How far misses overlap where nothing can measure it: in recorded programs, and on the nominal
// clock of kernels. Estimates, declared here only; Python reads them from the engine.
#pragma once

namespace tt::trace {

/// Misses in flight at a time. Out-of-order execution finds about four independent ones in its
/// window of some 200 instructions.
inline constexpr double random_mlp = 4;
/// Prefetchers keep eight to ten lines in flight.
inline constexpr double sequential_mlp = 8;
/// A pointer that has not arrived cannot be followed.
inline constexpr double dependent_mlp = 1;

/// Share of a load's latency that a store costs its thread: stores retire into a buffer, which is
/// full now and then.
inline constexpr double store_stall = 0.25;

}  // namespace tt::trace
