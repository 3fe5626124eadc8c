// SPDX-License-Identifier: MIT

#include "live/target.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include "live/process_stat.hpp"
#include "live/words.hpp"

namespace tt::live {
namespace {

constexpr unsigned most_depth = 32;  // of cgroups

}  // namespace

Target Target::processes(std::vector<int> pids) {
  Target out;
  out.roots_ = std::move(pids);
  return out;
}

Target Target::cgroup(const std::string& name) {
  Target out;
  const std::string root = "/sys/fs/cgroup";
  const bool whole = name == root || name.starts_with(root + "/");
  out.cgroup_ = whole ? name : root + (name.starts_with('/') ? "" : "/") + name;
  return out;
}

int Target::list_cgroup(KernelCalls& kernel, const std::string& folder, unsigned depth,
                        std::map<int, std::uint64_t>& out) {
  std::string text;
  if (const int error = kernel.read(folder + "/cgroup.procs", text); error != 0) return error;
  each_part(text, '\n', [&](std::string_view line) {
    const auto pid = number<int>(line);  // 0: in another PID namespace
    if (!pid || *pid <= 0) return;
    if (const auto stat = process_stat(kernel, *pid)) out.emplace(*pid, stat->started);
  });
  std::vector<std::string> names;
  if (depth == most_depth || kernel.folders(folder, names) != 0) return 0;
  // One that has gone meanwhile has no processes.
  for (const std::string& name : names)
    (void)list_cgroup(kernel, folder + "/" + name, depth + 1, out);
  return 0;
}

int Target::list_descendants(KernelCalls& kernel, std::map<int, std::uint64_t>& out) {
  std::vector<std::string> names;
  if (const int error = kernel.folders("/proc", names); error != 0) return error;
  std::multimap<int, std::pair<int, std::uint64_t>> children;  // by parent
  std::map<int, std::uint64_t> all;
  for (const std::string& name : names) {
    const auto pid = number<int>(name);
    if (!pid) continue;
    const auto stat = process_stat(kernel, *pid);
    if (!stat) continue;
    all.emplace(*pid, stat->started);
    children.emplace(stat->parent, std::pair{*pid, stat->started});
  }
  std::vector<int> next;
  const auto add = [&](int pid, std::uint64_t started) {
    if (out.emplace(pid, started).second) next.push_back(pid);
  };
  for (const auto& [pid, process] : known_) {
    const auto now = all.find(pid);
    if (now != all.end() && now->second == process.started) add(pid, process.started);
  }
  if (!looked_) {
    for (const int pid : roots_)
      if (const auto now = all.find(pid); now != all.end()) add(pid, now->second);
  }
  while (!next.empty()) {
    const auto [first, last] = children.equal_range(next.back());
    next.pop_back();
    for (auto each = first; each != last; ++each) add(each->second.first, each->second.second);
  }
  return 0;
}

int Target::find(KernelCalls& kernel) {
  std::map<int, std::uint64_t> now;
  const int error =
      cgroup_.empty() ? list_descendants(kernel, now) : list_cgroup(kernel, cgroup_, 0, now);
  if (!cgroup_.empty() && looked_ && (error == ENOENT || error == ENODEV)) {
    over_ = true;  // it was removed, so it had no process
  } else if (error != 0) {
    return error;
  }
  std::map<int, Process> found;
  pids_.clear();
  for (const auto& [pid, started] : now) {
    const auto before = known_.find(pid);
    const bool known = before != known_.end() && before->second.started == started;
    found[pid] = {started, known || !looked_};
    if (found[pid].followed) pids_.push_back(pid);
  }
  known_ = std::move(found);
  looked_ = true;
  if (cgroup_.empty() && known_.empty()) over_ = true;
  return 0;
}

std::string Target::text() const {
  if (!cgroup_.empty()) return "cgroup " + cgroup_;
  std::string out = roots_.size() == 1 ? "process" : "processes";
  for (const int& pid : roots_)
    out.append(&pid == roots_.data() ? " " : ", ").append(std::to_string(pid));
  return out + " and descendants";
}

}  // namespace tt::live
