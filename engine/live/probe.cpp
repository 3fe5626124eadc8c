// SPDX-License-Identifier: MIT

#include "live/probe.hpp"

#include <unistd.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "live/changes.hpp"
#include "live/emulated_ring.hpp"
#include "live/json_text.hpp"
#include "live/nodes.hpp"
#include "live/own_pages.hpp"
#include "live/pmu.hpp"
#include "live/words.hpp"
#include "live/written_pages.hpp"

namespace tt::live {
namespace {

Finding tiers(KernelCalls& kernel) {
  Finding out{Finding::Kind::works, "memory tiers", {}, {}};
  try {
    out.what = find_nodes(kernel).text();
  } catch (const NoTiers& error) {
    out.kind = Finding::Kind::lacks;
    out.what = error.why;
    out.cure = error.cure;
  } catch (const std::runtime_error& error) {
    out.kind = Finding::Kind::lacks;
    out.what = error.what();
  }
  return out;
}

/// Memory that the firmware has announced and that is not there, if any.
void absent(KernelCalls& kernel, std::vector<Finding>& out) {
  Finding found{Finding::Kind::note, "nodes without memory", {}, {}};
  try {
    const std::vector<int> nodes = empty_nodes(kernel);
    if (nodes.empty()) return;
    found.what = node_text(nodes) + ", which could have some";
    found.cure =
        "`cxl list` and `daxctl list` show memory of CXL devices that is not in use; "
        "daxctl reconfigure-device --mode=system-ram DEVICE takes it into use";
  } catch (const std::runtime_error& error) {
    found.what = error.what();
  }
  out.push_back(found);
}

Finding moves(KernelCalls& kernel) {
  const OwnPages own;
  const std::vector<std::uint64_t> addresses{own.address()};
  std::vector<int> status{-1};
  const int pid = ::getpid();
  long result = kernel.move_pages(pid, addresses, {}, status);
  if (result == 0 && status[0] >= 0) {
    const std::vector<int> nodes{status[0]};
    result = kernel.move_pages(pid, addresses, nodes, status);
    if (result == 0 && status[0] >= 0)
      return {Finding::Kind::works,
              "moving pages",
              "of our own; another user's take CAP_SYS_PTRACE",
              {}};
  }
  const int error = result < 0 ? static_cast<int>(-result) : -status[0];
  return {Finding::Kind::lacks, "moving pages", message(error),
          "in a container: --security-opt seccomp=... that allows move_pages, and CAP_SYS_PTRACE"};
}

Finding populated(KernelCalls& kernel) {
  const OwnPages own;
  std::vector<Populated> runs;
  const int error =
      kernel.populated(::getpid(), own.address(), own.address() + OwnPages::bytes, runs);
  if (error == 0 && !runs.empty())
    return {Finding::Kind::works, "populated pages", "are told by /proc/PID/pagemap", {}};
  return {
      Finding::Kind::lacks, "populated pages", error == 0 ? "none is told" : message(error), {}};
}

Finding damon(KernelCalls& kernel) {
  std::string text;
  Finding out{Finding::Kind::lacks, "DAMON", {}, {}};
  int error = kernel.read("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", text);
  if (error != 0) {
    out.what = "its sysfs: " + message(error);
    out.cure = "a kernel with CONFIG_DAMON_SYSFS and CONFIG_DAMON_VADDR, and root";
    return out;
  }
  if (stripped(text) != "0") {
    out.what = "is in use by somebody else (" + stripped(text) + " kdamonds)";
    out.cure = "end what uses it; it writes 0 to /sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds";
    return out;
  }
  error = kernel.read("/sys/kernel/tracing/events/damon/damon_aggregated/id", text);
  if (error != 0) {
    out.what = "its tracepoint: " + message(error);
    out.cure = "mount -t tracefs none /sys/kernel/tracing";
    return out;
  }
  std::unique_ptr<TraceRing> ring;
  try {
    error = kernel.trace(std::stoul(text), ::getpid(), 0, ring);
  } catch (const std::logic_error&) {
    error = EINVAL;
  }
  if (error != 0) {
    out.what = "a ring for its tracepoint: " + message(error);
    out.cure =
        "CAP_PERFMON (on Debian and Ubuntu with sysctl kernel.perf_event_paranoid=2), or sysctl "
        "kernel.perf_event_paranoid=-1";
    return out;
  }
  return {Finding::Kind::works,
          "DAMON",
          "regions by its tracepoint; samples of pages are estimated",
          {}};
}

/// Not by what sysfs lists: a hypervisor may show what it does not have.
Finding sampling(KernelCalls& kernel) {
  std::string missing;
  for (const char* const name : {"pebs", "ibs", "spe"}) {
    const std::string lacks = lacking(kernel, name);
    if (lacks.empty())
      return {Finding::Kind::works,
              "hardware samples",
              std::string{name} + " sampled our own accesses",
              {}};
    missing += (missing.empty() ? "" : "; ") + (name + (": " + lacks));
  }
  return {Finding::Kind::lacks, "hardware samples", missing,
          "tierd estimates samples from DAMON's regions instead"};
}

Finding hints(KernelCalls& kernel) {
  const std::string lacks = lacking(kernel, "hints");
  if (!lacks.empty()) return {Finding::Kind::lacks, "hinting faults", lacks, {}};
  return {Finding::Kind::works,
          "hinting faults",
          "of programs that `tierd run --source hints` starts; it has its price",
          {}};
}

Finding writes(KernelCalls& kernel) {
  const std::string lacks = lacking_written_pages(kernel);
  if (!lacks.empty()) return {Finding::Kind::note, "written pages", lacks, {}};
  return {Finding::Kind::works,
          "written pages",
          "are told by soft-dirty bits: `--writes soft-dirty` where samples are estimated",
          {}};
}

/// Only where there is such a device: of other machines it says nothing.
void emulated(KernelCalls& kernel, std::vector<Finding>& out) {
  Changes changes{kernel, {}};  // undone at the end
  const FoundRing found = find_emulated_ring(kernel, changes);
  if (!found.is_there) return;
  if (found.ring) {
    out.push_back({Finding::Kind::works, "emulated machine", "samples misses into its ring", {}});
  } else {
    out.push_back({Finding::Kind::lacks, "emulated machine", found.missing, {}});
  }
}

Finding kernels_policies(KernelCalls& kernel) {
  std::string balancing, demotion;
  const int first = kernel.read(balancing_file, balancing);
  const int second = kernel.read("/sys/kernel/mm/numa/demotion_enabled", demotion);
  std::string what = "numa_balancing " + (first == 0 ? stripped(balancing) : "is not there") +
                     ", demotion " + (second == 0 ? stripped(demotion) : "is not there");
  Finding out{Finding::Kind::note, "the kernel's own tiering", what, {}};
  if (first == 0 && stripped(balancing) != "0")
    out.cure = "sysctl kernel.numa_balancing=0, while pages are moved from outside";
  return out;
}

}  // namespace

std::vector<Finding> probe(KernelCalls& kernel) {
  std::vector<Finding> out{tiers(kernel)};
  absent(kernel, out);
  for (const auto& look : {moves, populated, damon, sampling, hints, writes})
    out.push_back(look(kernel));
  emulated(kernel, out);
  out.push_back(kernels_policies(kernel));
  return out;
}

std::string text_of(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& finding : findings) {
    out += finding.kind == Finding::Kind::works   ? "yes   "
           : finding.kind == Finding::Kind::lacks ? "no    "
                                                  : "      ";
    out += finding.subject + ": " + finding.what;
    if (!finding.cure.empty()) out += "\n      -> " + finding.cure;
    out += '\n';
  }
  return out;
}

std::string json_of(const std::vector<Finding>& findings) {
  std::string out = "[";
  for (const Finding& finding : findings) {
    const char* const works = finding.kind == Finding::Kind::works   ? "true"
                              : finding.kind == Finding::Kind::lacks ? "false"
                                                                     : "null";
    out += (out.size() > 1 ? ",\n " : "") + ("{\"subject\": " + json_text(finding.subject)) +
           ", \"works\": " + works + ", \"found\": " + json_text(finding.what) +
           ", \"cure\": " + (finding.cure.empty() ? "null" : json_text(finding.cure)) + "}";
  }
  return out + "]\n";
}

}  // namespace tt::live
