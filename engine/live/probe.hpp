// SPDX-License-Identifier: MIT

// Probe: what this machine can do for a live engine, by trying it, and what is missing.
#pragma once

#include <string>
#include <vector>

#include "live/kernel_calls.hpp"

namespace tt::live {

struct Finding {
  enum class Kind : std::uint8_t { works, lacks, note };
  Kind kind = Kind::works;
  std::string subject;
  std::string what;  // what was seen
  std::string cure;  // the command or change that would help; empty if there is none to give
};

/// Looks at nodes and tiers, page moves of this process's own memory, what is told of populated
/// pages, DAMON, hardware samples, an emulated machine's sampler, and the kernel's own tiering.
/// Changes nothing that is not undone.
[[nodiscard]] std::vector<Finding> probe(KernelCalls& kernel);

/// A line for each.
[[nodiscard]] std::string text_of(const std::vector<Finding>& findings);
/// [{"subject": ..., "works": true, false or null for a note, "found": ..., "cure": ...}, ...]
[[nodiscard]] std::string json_of(const std::vector<Finding>& findings);

}  // namespace tt::live
