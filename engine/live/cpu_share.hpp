// SPDX-License-Identifier: MIT

// CpuShare: keeps what an engine itself takes of a processor below a limit, by sampling less often.
// A policy may have a budget of its own (regulate/cpu_budget.hpp); this one is the operator's, and
// holds for all of them.
#pragma once

#include <algorithm>

#include "core/assert.hpp"
#include "core/types.hpp"

namespace tt::live {

class CpuShare {
 public:
  /// Time over which the share is taken: kernels count their threads' time in steps of 10 ms.
  static constexpr Nanos window = from_seconds(5);
  static constexpr unsigned most = 64;

  /// `limit`: of one processor; 0 for none.
  explicit CpuShare(double limit) : limit_(limit) {}

  void begin(Nanos now, Nanos used) {
    first_ = last_ = now;
    first_used_ = last_used_ = used;
  }
  [[nodiscard]] bool due(Nanos now) const { return now - last_ >= window; }
  /// A window has ended: so much processor time has been used, in all. Returns whether times() has
  /// changed.
  bool update(Nanos now, Nanos used) {
    TT_ASSERT(due(now));
    const double share = seconds(used - last_used_) / seconds(now - last_);
    last_ = now;
    last_used_ = used;
    if (!(limit_ > 0)) return false;
    const unsigned before = times_;
    // Twice the samples cost twice as much at most: that has to fit, with room to spare.
    calm_ = share < 0.4 * limit_ ? calm_ + 1 : 0;
    exceeded_ = share > limit_;
    if (exceeded_) {
      times_ = std::min(2 * times_, most);
    } else if (calm_ >= 3 && times_ > 1) {
      times_ /= 2;
      calm_ = 0;
    }
    return times_ != before;
  }
  /// How many times as seldom as it is asked for samples are to be taken.
  [[nodiscard]] unsigned times() const { return times_; }
  /// Of one processor since it began, until the last window's end; 0 before the first.
  [[nodiscard]] double share() const {
    return last_ > first_ ? seconds(last_used_ - first_used_) / seconds(last_ - first_) : 0;
  }
  [[nodiscard]] double limit() const { return limit_; }
  /// Whether the last window was above the limit.
  [[nodiscard]] bool exceeded() const { return exceeded_; }

 private:
  double limit_;
  Nanos first_{}, last_{};
  Nanos first_used_{}, last_used_{};
  unsigned times_ = 1, calm_ = 0;
  bool exceeded_ = false;
};

}  // namespace tt::live
