// SPDX-License-Identifier: MIT

// Session: a policy on running processes, and what tells it of their accesses. Of more than two
// tiers it has the policy once for each pair of neighbours.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/registry.hpp"
#include "live/access_source.hpp"
#include "live/changes.hpp"
#include "live/cpu_share.hpp"
#include "live/damon.hpp"
#include "live/joint_sampling.hpp"
#include "live/kernel_calls.hpp"
#include "live/live_memory.hpp"
#include "live/loop.hpp"
#include "live/meter.hpp"
#include "live/nodes.hpp"
#include "live/target.hpp"

namespace tt::live {

class Session {
 public:
  struct Options {
    std::string policy;
    KnobMap knobs;
    Nodes nodes;
    std::uint64_t fast_limit = LiveMemory::no_limit;  // pages
    std::uint64_t seed = 0;
    std::string source = "auto";  // of source_names
    std::string writes = "none";  // of writes_names
    Damon::Options damon;
    double cpu = 0;                 // of one processor that tierd itself may take; 0: no limit
    std::filesystem::path changes;  // the file that notes what is changed in the kernel
  };

  /// std::invalid_argument for an unknown policy, source or knob's value, and naming what the
  /// policy needs and cannot have of a running process; NotAllowed as make_source();
  /// std::runtime_error when a node cannot be read. `journals`: of each step between two tiers,
  /// from the fastest on, or none. `series` may be null; a row is written to it every second.
  Session(KernelCalls& kernel, const Options& options, std::span<std::ostream* const> journals,
          std::ostream* series = nullptr);
  ~Session();

  /// Watches the target's processes. NotAllowed as AccessSource::start, and where there is no such
  /// cgroup.
  void start(Target target);
  /// One turn; as Loop::turn. NotAllowed when there is no use in going on, also where the process
  /// may not be looked at.
  Nanos turn();
  /// Whether the target has ended.
  [[nodiscard]] bool over() const { return target_.over(); }
  /// What has been moved and what was in the way, in a few lines.
  [[nodiscard]] std::string summary() const;
  /// After start().
  [[nodiscard]] Status status() const;
  /// An operator changes what the fast tier may hold: pages.
  void limit_fast(std::uint64_t pages) {
    steps_.front()->memory.limit_fast(pages, *steps_.front()->policy, loop_->now());
  }

 private:
  [[nodiscard]] LiveMemory& top() { return steps_.front()->memory; }
  bool follow();
  /// Processor time that this process and its source's threads in the kernel have used.
  Nanos used();

  KernelCalls& kernel_;
  Changes source_changes_, balancing_;
  const std::unique_ptr<AccessSource> source_;
  JointSampling sampling_;
  /// Between two tiers.
  struct Step {
    LiveMemory memory;
    std::unique_ptr<Policy> policy{};
  };
  std::vector<std::unique_ptr<Step>> steps_;
  const std::string policy_name_;
  std::ostream* const series_;
  Target target_;
  std::unique_ptr<Meter> meter_;
  std::unique_ptr<Loop> loop_;
  CpuShare share_;
  bool kernel_time_known_ = true;
  int unwatched_ = 0;     // the errno for which some processes are not watched
  int scans_seldom_ = 0;  // the errno for which balancing's longest period stays
  int unseen_ = 0;        // the errno of the last look that failed
};

}  // namespace tt::live
