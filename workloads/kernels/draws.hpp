// SPDX-License-Identifier: MIT

// Independent draws: operations whose accesses follow one law, however many there are of them.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/kernel.hpp"
#include "trace/recorder.hpp"

namespace tt::kernels {

/// Accesses per huge page that are made one by one, before others like them are drawn: a page
/// that gets a tenth of the mean has 800 of them, so that its rate is known to 3.5 %.
inline constexpr double accesses_per_huge_page = 8000;

/// How many operations of some `accesses` accesses each, over an area of `bytes`, show their law.
inline std::uint64_t operations_for_law(const RecordRequest& request, double accesses,
                                        double bytes) {
  return static_cast<std::uint64_t>(
      accesses_per_huge_page * (bytes / static_cast<double>(request.page_bytes) + 1) / accesses);
}

/// Runs `operations` independent operations, step(i) each, of some `accesses` accesses, over an
/// area of `bytes`. In a stream of base pages each of them is made. A stream of huge pages stands
/// for so small an R that this would take hours: there the first ones are made, and the others are
/// drawn by the law that they show (Recorder::draw_pattern).
template <typename Step>
void independent_operations(trace::Recorder& recorder, const RecordRequest& request,
                            std::uint64_t operations, double accesses, double bytes, Step step) {
  const std::uint64_t law = operations_for_law(request, accesses, bytes);
  const bool draws = request.page_bytes != trace::base_page_bytes && operations > 2 * law;
  const std::uint64_t made = draws ? law : operations;
  if (draws) recorder.begin_pattern();
  for (std::uint64_t i = 0; i < made; ++i) step(i);
  if (!draws) return;
  recorder.end_pattern();
  recorder.draw_pattern(static_cast<double>(operations - made) / static_cast<double>(made));
}

/// The same, as many as it takes until the timed part has `seconds`.
template <typename Step>
void independent_operations_until(trace::Recorder& recorder, const RecordRequest& request,
                                  double seconds, double accesses, double bytes, Step step) {
  const bool draws = request.page_bytes != trace::base_page_bytes;
  std::uint64_t left = draws ? operations_for_law(request, accesses, bytes)
                             : std::numeric_limits<std::uint64_t>::max();
  const double start = recorder.timed_seconds();
  if (draws) recorder.begin_pattern();
  for (; left > 0 && recorder.timed_seconds() < seconds; --left) step();
  if (!draws) return;
  recorder.end_pattern();
  const double end = recorder.timed_seconds();
  if (end < seconds) recorder.draw_pattern((seconds - end) / (end - start));
}

}  // namespace tt::kernels
