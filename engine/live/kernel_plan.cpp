// SPDX-License-Identifier: MIT

#include "live/kernel_plan.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "live/json_text.hpp"
#include "live/mover.hpp"
#include "live/words.hpp"

namespace tt::live {
namespace {

const std::string debugfs = "/sys/kernel/debug/";

/// What would help against this error.
std::string hint(KernelCalls& kernel, const std::string& file, int error,
                 const std::string& takes) {
  if (error == EACCES || error == EPERM)
    return file.starts_with(debugfs) ? "; it takes root, and a kernel that is not locked down"
                                     : "; it takes root";
  std::string mounts;
  if (error == ENOENT && file.starts_with(debugfs) && kernel.read("/proc/mounts", mounts) == 0 &&
      mounts.find(" debugfs ") == std::string::npos)
    return "; debugfs is not mounted: mount -t debugfs none /sys/kernel/debug";
  return takes.empty() ? "" : "; it takes " + takes;
}

/// "scan_size = 256"
std::string with_value(const KernelPlan& plan, const std::string& knob) {
  return knob + " = " + to_string(plan.knobs.values().at(knob));
}

}  // namespace

KernelPlanner::KernelPlanner(KernelCalls& kernel, const PolicyInfo& policy, const Knobs& knobs)
    : kernel_(kernel), info_(policy) {
  plan_.policy = policy.name;
  plan_.knobs = knobs;
  plan_.kernel = text("/proc/sys/kernel/osrelease");
}

std::string KernelPlanner::text(const std::string& file, const std::string& takes) const {
  std::string found;
  if (const int error = kernel_.read(file, found); error != 0)
    throw NotAllowed("policy " + plan_.policy + ": reading " + file + ": " + message(error) +
                     hint(kernel_, file, error, takes));
  return stripped(found);
}

void KernelPlanner::set(const std::string& file, const std::string& value, const From& from) {
  set_new(file, value, from, text(file, from.takes));
}

void KernelPlanner::set_if_there(const std::string& file, const std::string& value,
                                 const From& from) {
  std::string found;
  if (kernel_.read(file, found) != ENOENT) set(file, value, from);
}

void KernelPlanner::set_new(const std::string& file, const std::string& value, const From& from,
                            const std::optional<std::string>& before) {
  plan_.writes.push_back({file, value, before, from.knob, from.note, from.takes});
}

void KernelPlanner::leave(const std::string& knob, const std::string& reason, bool same) {
  plan_.left.push_back({knob, reason, same});
}

std::string KernelPlanner::whole(double value, From& from, double least) const {
  const double rounded = std::max(std::round(value), least);
  if (std::abs(rounded - value) > 1e-9 * std::abs(value)) {
    if (!from.note.empty()) from.note += "; ";
    from.note.append("rounded from ").append(to_string(KnobValue{value}));
  }
  return std::to_string(static_cast<std::uint64_t>(rounded));
}

KernelPlan KernelPlanner::finish() {
  for (const KnobDecl& knob : info_.knobs) {
    if (knob.condition && !holds(*knob.condition, info_.knobs, plan_.knobs)) continue;
    if (std::ranges::find(plan_.writes, knob.name, &KernelPlan::Write::knob) ==
            plan_.writes.end() &&
        std::ranges::find(plan_.left, knob.name, &KernelPlan::Left::knob) == plan_.left.end())
      throw std::logic_error("policy " + info_.name + ": nothing says what becomes of knob " +
                             knob.name);
  }
  return std::move(plan_);
}

void write_plan(KernelCalls& kernel, const KernelPlan& plan, Changes& changes) {
  for (const KernelPlan::Write& each : plan.writes) {
    int error = 0;
    std::string found = each.value;
    if (each.before != each.value) {
      error = each.before ? changes.write(each.file, each.value, *each.before)
                          : kernel.write(each.file, each.value);
      // Some files take any number, and hold another one.
      if (error == 0) error = kernel.read(each.file, found);
    }
    if (error == 0 && stripped(found) == each.value) continue;
    std::string what = "policy " + plan.policy + ": writing " + each.value + " to " + each.file;
    what.append(": ").append(error != 0 ? message(error) : stripped(found) + " is there now");
    if (error != 0) what.append(hint(kernel, each.file, error, each.takes));
    what.append(" (this is Linux ").append(plan.kernel).append(")");
    const std::vector<std::string> left = changes.undo();
    if (left.empty()) what += "; nothing has changed";
    for (const std::string& file : left)
      what.append("; ").append(file).append(
          " could not be written back: `tierd restore` tries again");
    throw NotAllowed(what);
  }
}

std::string text_of(const KernelPlan& plan) {
  std::string out = "policy " + plan.policy + " on Linux " + plan.kernel + "\n";
  std::set<std::string> takes;
  for (const KernelPlan::Write& each : plan.writes) {
    out.append("  ").append(each.file).append(": ");
    if (each.before == each.value) {
      out += "is ";
    } else if (each.before) {
      out.append(*each.before).append(" -> ");
    }
    out += each.value;
    if (!each.knob.empty()) out.append("  (").append(with_value(plan, each.knob)).append(")");
    if (!each.note.empty()) out.append("  ").append(each.note);
    out += '\n';
    if (!each.before && !each.takes.empty()) takes.insert(each.takes);
  }
  for (const bool same : {false, true}) {
    const char* head = same ? "as this kernel does anyway:\n" : "not settable here:\n";
    for (const KernelPlan::Left& each : plan.left) {
      if (each.same != same) continue;
      out.append(std::exchange(head, "")).append("  ").append(with_value(plan, each.knob));
      out.append(": ").append(each.reason).append("\n");
    }
  }
  for (const std::string& each : takes)
    out.append("known when it is written: this kernel needs ").append(each).append("\n");
  for (const std::string& each : plan.notes) out.append("note: ").append(each).append("\n");
  return out;
}

std::string json_of(const KernelPlan& plan, bool applied) {
  const auto knob_of = [&](const std::string& knob) -> std::string {
    if (knob.empty()) return R"("knob": null, "knob_value": null)";
    const KnobValue& value = plan.knobs.values().at(knob);
    std::string text = to_string(value);
    if (std::holds_alternative<std::string>(value)) text = json_text(text);
    return R"("knob": )" + json_text(knob) + R"(, "knob_value": )" + text;
  };
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  std::string out = R"({"policy": )" + json_text(plan.policy);
  out.append(",\n \"kernel\": ").append(json_text(plan.kernel));
  out.append(",\n \"applied\": ").append(truth(applied)).append(",\n \"writes\": [");
  const char* comma = "\n  ";
  for (const KernelPlan::Write& each : plan.writes) {
    out.append(std::exchange(comma, ",\n  ")).append(R"({"file": )").append(json_text(each.file));
    out.append(R"(, "value": )").append(json_text(each.value));
    out.append(R"(, "before": )").append(each.before ? json_text(*each.before) : "null");
    out.append(", ").append(knob_of(each.knob));
    out.append(R"(, "note": )").append(json_text(each.note)).append("}");
  }
  out += "],\n \"not_settable\": [";
  comma = "\n  ";
  for (const KernelPlan::Left& each : plan.left) {
    out.append(std::exchange(comma, ",\n  ")).append("{").append(knob_of(each.knob));
    out.append(R"(, "reason": )").append(json_text(each.reason));
    out.append(R"(, "same": )").append(truth(each.same)).append("}");
  }
  out += "],\n \"notes\": [";
  comma = "\n  ";
  for (const std::string& each : plan.notes)
    out.append(std::exchange(comma, ",\n  ")).append(json_text(each));
  return out + "]}\n";
}

}  // namespace tt::live
