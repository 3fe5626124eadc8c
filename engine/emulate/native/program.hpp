// SPDX-License-Identifier: MIT

// Program: what the native recorder needs of the command line, and tells on standard output.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tt::emulate {

struct Program {
  std::uint64_t operations = 0;  // of the recorded stream's timed part; 0: not given
  double seconds = 0;            // its nominal length
  std::uint64_t report_ns = 0;   // between two reports; 0: none
  std::vector<std::string> vmstat;
  bool emulated = false;  // markers are heard: computation need not be carried out

  /// The machine takes its time from now on: for the set-up, and then the timed part.
  void set_up();
  /// The timed part begins, or ends, after these operations by kind.
  void begin();
  void end(const std::vector<std::string>& kinds, const std::uint64_t* operations,
           const char* memory, std::uint64_t bytes);
  /// Tells how far it is, now and then.
  bool progress(double done);

 private:
  [[nodiscard]] std::vector<std::uint64_t> counters() const;
  void say_counters(const std::vector<std::uint64_t>& now) const;
  std::vector<std::uint64_t> before_;
  std::uint64_t set_up_ns_ = 0, begun_ns_ = 0, reported_ns_ = 0;
  double told_ = 0;
  long minor_ = 0, major_ = 0;
};

Program& program();

/// What the processor does in so many nanoseconds at an instruction each.
void spin(std::uint64_t nanoseconds);

}  // namespace tt::emulate
