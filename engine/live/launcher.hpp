// SPDX-License-Identifier: MIT

// Launcher: runs a program as if it had been run without us: its streams, signals and exit status
// are its own.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "perf/ring.hpp"

namespace tt::live {

/// The signals that end us or tell of a child, as something that can be waited for. They are
/// blocked while this lives.
class Signals {
 public:
  /// std::system_error.
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  /// Waits for a signal or, with a `file` of 0 or more, until that can be read; at most so long.
  /// Returns the signal, or 0.
  [[nodiscard]] int wait(int milliseconds, int file = -1) const;
  /// The mask as it was: a program that we start has it.
  [[nodiscard]] const sigset_t& before() const { return before_; }

 private:
  sigset_t before_{};
  perf::File file_;
};

/// Starts a program; returns its process. std::system_error naming the program when it cannot be
/// run.
[[nodiscard]] int launch(const std::vector<std::string>& command, const Signals& signals);
/// Whether the child has ended, and its status as waitpid(2) tells it.
[[nodiscard]] bool ended(int pid, int& status);
/// Ends as the child did: with its exit status, or by its signal.
[[noreturn]] void end_as(int status, const Signals& signals);

}  // namespace tt::live
