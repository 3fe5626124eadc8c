// SPDX-License-Identifier: MIT

// Lengthening: how many times as long sampling periods are as policies ask for, because samples
// were lost on their way here: twice as many after each window with a loss, half as many after some
// time without one. What was lost tells how many samples are too many, not how many times too many
// a policy asks for: where it asks for fewer, periods need not be so many times as long.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/sampling.hpp"
#include "core/types.hpp"

namespace tt::live {

class Lengthening {
 public:
  static constexpr unsigned most = 1024;

  /// `calm`: time without losses until periods are halved.
  explicit Lengthening(Nanos calm) : calm_(calm) {}

  /// Something was lost, or the kernel has held back some.
  void disturb() { disturbed_ = true; }
  /// A policy asks for this. A kind that it does not ask for now stays as it was asked for last.
  void ask(const SamplingRequest& now) {
    double times = std::numeric_limits<double>::infinity();
    for (const auto kind : {&SamplingRequest::loads, &SamplingRequest::stores}) {
      const SamplingRequest::Event& event = now.*kind;
      if (event.mode == SamplingRequest::Mode::off || !(event.value > 0)) continue;
      times = std::min(times, event.coarser_than(asked_.*kind));
      asked_.*kind = event;
    }
    if (times > 1 && std::isfinite(times))
      times_ = static_cast<unsigned>(std::max(1.0, times_ / times));
  }
  /// A window has ended.
  void update(Nanos now) {
    if (std::exchange(disturbed_, false)) {
      times_ = std::min(2 * times_, most);
      changed_ = now;
    } else if (times_ > 1 && now - changed_ >= calm_) {
      times_ /= 2;
      changed_ = now;
    }
  }
  [[nodiscard]] unsigned times() const { return times_; }

 private:
  const Nanos calm_;
  unsigned times_ = 1;
  bool disturbed_ = false;  // in this window
  Nanos changed_{};
  SamplingRequest asked_;
};

}  // namespace tt::live
