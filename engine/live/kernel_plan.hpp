// SPDX-License-Identifier: MIT

// KernelPlan: what has to be written to the kernel's files so that a policy of Linux's own runs as
// a configuration says, and what of the configuration Linux cannot do.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/knob.hpp"
#include "core/registry.hpp"
#include "live/changes.hpp"
#include "live/kernel_calls.hpp"

namespace tt::live {

struct KernelPlan {
  struct Write {
    std::string file, value;
    /// What undoes it: the old value. None for a file that comes and goes with a monitor.
    std::optional<std::string> before;
    std::string knob;   // that it comes from; empty: it is the policy's rule
    std::string note;   // what else has to be known of it
    std::string takes;  // what a kernel lacks that does not have the file, or refuses the value
  };
  /// A knob that no file of the kernel stands for.
  struct Left {
    std::string knob, reason;
    bool same = false;  // the kernel does as the configuration says all the same
  };

  std::string policy;
  std::string kernel;         // its version
  std::vector<Write> writes;  // in their order
  std::vector<Left> left;
  std::vector<std::string> notes;
  Knobs knobs;
};

/// Lines for a reader.
[[nodiscard]] std::string text_of(const KernelPlan& plan);
/// {"policy": ..., "kernel": ..., "applied": ..., "writes": [...], "not_settable": [...],
/// "notes": [...]}
[[nodiscard]] std::string json_of(const KernelPlan& plan, bool applied);

/// Writes all of it, and reads back whether it is there. NotAllowed naming file and value when one
/// is refused; what was written before is undone then, or named if that was not possible.
void write_plan(KernelCalls& kernel, const KernelPlan& plan, Changes& changes);

/// Where a value comes from, as KernelPlan::Write tells it.
struct From {
  std::string knob = {}, note = {}, takes = {};
};

/// Puts a plan together. Each active knob of the policy is in a write or is left.
class KernelPlanner {
 public:
  KernelPlanner(KernelCalls& kernel, const PolicyInfo& policy, const Knobs& knobs);

  /// A file that is there now. NotAllowed when it cannot be read.
  void set(const std::string& file, const std::string& value, const From& from = {});
  /// The same; nothing if there is no such file.
  void set_if_there(const std::string& file, const std::string& value, const From& from = {});
  /// A file that a write before brings along; `before` undoes it, or its end does.
  void set_new(const std::string& file, const std::string& value, const From& from = {},
               const std::optional<std::string>& before = std::nullopt);
  void leave(const std::string& knob, const std::string& reason, bool same = false);
  void note(const std::string& text) { plan_.notes.push_back(text); }

  [[nodiscard]] KernelCalls& kernel() const { return kernel_; }
  [[nodiscard]] const Knobs& knobs() const { return plan_.knobs; }
  [[nodiscard]] const std::string& policy() const { return plan_.policy; }
  /// A whole number for the kernel, at least `least`; the note tells where it is not what the knob
  /// says.
  [[nodiscard]] std::string whole(double value, From& from, double least = 0) const;
  /// What a file holds, without the newline. NotAllowed, with a hint of what it takes.
  [[nodiscard]] std::string text(const std::string& file, const std::string& takes = {}) const;

  /// std::logic_error for a knob that was forgotten.
  [[nodiscard]] KernelPlan finish();

 private:
  KernelCalls& kernel_;
  const PolicyInfo& info_;
  KernelPlan plan_;
};

}  // namespace tt::live
