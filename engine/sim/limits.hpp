// SPDX-License-Identifier: MIT

// What the figures of a machine may be. Declared once: runs refuse what is outside, and the front
// end refuses it in the document.
#pragma once

#include <string>
#include <vector>

#include "sim/profile.hpp"

namespace tt::sim {

struct Problem {
  /// Where a machine's document has the figure, such as tiering.hint_fault_us.
  std::string name;
  /// "must be from 0 to 1"
  std::string wanted;
};

/// All figures that are outside their limits.
[[nodiscard]] std::vector<Problem> problems(const MachineProfile& machine);

}  // namespace tt::sim
