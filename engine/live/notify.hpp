// SPDX-License-Identifier: MIT

// What a service manager is told (sd_notify(3)), by the protocol of its socket.
#pragma once

#include <string>

#include "core/types.hpp"

namespace tt::live {

class Notify {
 public:
  /// By NOTIFY_SOCKET and WATCHDOG_USEC of the environment, which are removed from it: a program
  /// that is run is no service. Without them nobody is told.
  Notify();
  /// KEY=VALUE lines: "READY=1".
  void tell(const std::string& text) const;
  /// That we live, as often as the manager wants to hear it. To be called in each turn.
  void alive(Nanos now);
  /// How long until it wants to hear it again.
  [[nodiscard]] Nanos patience() const { return every_; }

 private:
  std::string socket_;
  Nanos every_{Nanos::max()}, next_{};
};

}  // namespace tt::live
