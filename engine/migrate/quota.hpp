// SPDX-License-Identifier: MIT

// Quota: how much a scheme may move in a window of time, by size, by time, and as feedback on a
// goal asks for. FreeGate: whether it may move anything, by free memory. (DAMOS: Linux,
// Documentation/mm/damon/design.rst, "Quotas" and "Watermarks"; mm/damon/core.c.)
#pragma once

#include <cstdint>
#include <optional>

#include "core/types.hpp"

namespace tt::migrate {

/// The input that is expected to bring a score to 1, if the score is in proportion to it: it grows
/// or shrinks by the distance to 1, and is never below `least` (damon_feed_loop_next_input).
[[nodiscard]] double next_input(double input, double score, double least);

class Quota {
 public:
  struct Options {
    Nanos window{};
    double pages = 0;  // a window; 0: no limit
    double cores = 0;  // a thread's time, as a share of the window's; 0: no limit
    /// With a goal: pages a window that feedback begins with, and the least that it leaves. A head
    /// start is time in which the score was 0 before.
    double least = 0;
    Nanos head_start{};
  };
  explicit Quota(const Options& options);

  /// Begins a window if the last one is over. `score`: how near the goal is, 1 when it is reached.
  void open(Nanos now, std::optional<double> score = {});
  /// Whole pages that may still be tried in this window.
  [[nodiscard]] std::uint64_t left() const;
  /// Pages have been tried, moved or not.
  void charge(std::uint64_t pages);
  /// Time that pages took.
  void spent(Nanos time) { spent_ns_ += static_cast<double>(time.count()); }
  /// Pages of this window.
  [[nodiscard]] double size() const { return size_; }

 private:
  Options options_;
  double fed_;  // pages a window by feedback
  double size_ = 0, used_ = 0, carried_ = 0;
  double charged_ = 0, spent_ns_ = 0;  // since the start
  std::optional<Nanos> opened_;
};

/// DAMOS watermarks: off when more than `high` of memory is free or less than `low`, and from then
/// on until less than `mid` is. All at 1, 1 and 0: always on.
class FreeGate {
 public:
  struct Marks {
    double high = 1, mid = 1, low = 0;
  };
  /// Throws std::invalid_argument unless low <= mid <= high.
  explicit FreeGate(const Marks& marks);
  /// At this share of free memory.
  [[nodiscard]] bool open(double free);

 private:
  Marks marks_;
  bool open_ = true;
};

}  // namespace tt::migrate
