// SPDX-License-Identifier: MIT

// The figures of the simulated machine that nobody has measured on it: each with the range in which
// it plausibly lies. `tune sim --sensitivity` varies them, and machine documents may set them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "sim/profile.hpp"

namespace tt::sim {

struct Estimate {
  /// Where a machine's document has it, such as tiering.hint_fault_us. A document may leave out
  /// what MachineProfile has a default for.
  std::string name;
  double low = 0, high = 0;
  /// low and high are multiples of the machine's own value.
  bool relative = false;
  std::string_view source;  // of the range
  std::function<double&(MachineProfile&)> field;
};

/// In order of names. Each is declared once: in estimates.cpp, or for a kind of work in work.hpp.
[[nodiscard]] std::span<const Estimate> estimates();

/// What a document that leaves it out gets; 0: it must not.
[[nodiscard]] double default_of(const Estimate& estimate);

}  // namespace tt::sim
