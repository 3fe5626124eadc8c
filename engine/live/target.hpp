// SPDX-License-Identifier: MIT

// Target: which processes are followed: some with their descendants, or those of a cgroup.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "live/kernel_calls.hpp"

namespace tt::live {

class Target {
 public:
  /// These processes and, as they come, their descendants. One whose parent ends before it was
  /// seen is missed.
  static Target processes(std::vector<int> pids);
  /// Those of a cgroup and of all below it: a folder of /sys/fs/cgroup, or its name there.
  static Target cgroup(const std::string& name);

  /// Looks which there are now. A process that comes later is told of when it has been there at two
  /// looks: most live for an instant, and watching them costs more than it brings. A number that
  /// another process has now is not told of as the one that it was of. Returns an errno if the
  /// processes cannot be listed, at first also where there is no such cgroup: then those of the
  /// last time are told of.
  int find(KernelCalls& kernel);
  /// As of the last look, in order.
  [[nodiscard]] const std::vector<int>& pids() const { return pids_; }
  /// None is left, and none can come any more.
  [[nodiscard]] bool over() const { return over_; }
  /// In words.
  [[nodiscard]] std::string text() const;

 private:
  struct Process {
    std::uint64_t started = 0;  // clock ticks since boot
    bool followed = false;
  };
  /// All that are of it now, by number, with when they started.
  int list_cgroup(KernelCalls& kernel, const std::string& folder, unsigned depth,
                  std::map<int, std::uint64_t>& out);
  int list_descendants(KernelCalls& kernel, std::map<int, std::uint64_t>& out);

  std::vector<int> roots_;
  std::string cgroup_;
  std::map<int, Process> known_;
  std::vector<int> pids_;
  bool looked_ = false, over_ = false;
};

}  // namespace tt::live
