// SPDX-License-Identifier: MIT

// Lengthening: how many times as long sampling periods are as policies ask for, because samples
// were lost on their way here: twice as many after each window with a loss, half as many after some
// time without one. What was lost tells how many samples are too many, not how many times too many
// a policy asks for: where it asks for fewer, periods need not be so many times as long.
#pragma once

#include <algorithm>
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
  /// Something else is asked for than before.
  void ask(const SamplingRequest& now) {
    const SamplingRequest before = std::exchange(asked_, now);
    double times = static_cast<double>(most);
    for (const auto kind : {&SamplingRequest::loads, &SamplingRequest::stores})
      if ((now.*kind).mode != SamplingRequest::Mode::off)
        times = std::min(times, (now.*kind).coarser_than(before.*kind));
    if (times > 1) times_ = static_cast<unsigned>(std::max(1.0, times_ / times));
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
