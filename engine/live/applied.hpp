// SPDX-License-Identifier: MIT

// What outlives its tierd: a kernel's policy that was applied, and what killed processes have left.
// Files of changes (changes.hpp) in one folder tell: "applied", or named by their process.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "live/kernel_calls.hpp"
#include "live/kernel_plan.hpp"

namespace tt::live {

/// NotAllowed if a kernel's policy is applied: nothing else is to move pages then.
void require_none_applied(const std::filesystem::path& folder);

/// Writes the plan, to stay. Returns whether anything had to be changed. NotAllowed as
/// write_plan(), and when a policy is applied already, another tierd runs, or one has left changes.
bool apply_plan(KernelCalls& kernel, const KernelPlan& plan, const std::filesystem::path& folder);

struct Restored {
  std::string name;               // of the file of changes
  bool runs = false;              // its process does: nothing was done
  std::vector<std::string> left;  // files that could not be written
  std::string error;              // why the file of changes could not be used; else empty
};
/// Undoes what is applied, and what processes have left that do not run any more. NotAllowed while
/// another does.
[[nodiscard]] std::vector<Restored> restore_changes(KernelCalls& kernel,
                                                    const std::filesystem::path& folder);

}  // namespace tt::live
