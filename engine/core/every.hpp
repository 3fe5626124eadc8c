// SPDX-License-Identifier: MIT

// Every: what is to be done once in a period, by whoever looks more often than that.
#pragma once

#include "core/ticker.hpp"
#include "core/types.hpp"

namespace tt {

/// By the rules of ticks: deadlines do not slip when a look comes late; those that were missed
/// altogether are not made up for.
class Every {
 public:
  /// First due after a period.
  explicit Every(Nanos period) : ticker_(period) {}

  [[nodiscard]] bool due(Nanos now) {
    if (!ticker_.due(now)) return false;
    ticker_.tick(now);
    return true;
  }
  [[nodiscard]] Nanos period() const { return ticker_.period(); }

 private:
  Ticker<Nanos> ticker_;
};

}  // namespace tt
