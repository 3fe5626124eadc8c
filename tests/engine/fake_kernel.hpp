// SPDX-License-Identifier: MIT

// A kernel for tests of the live engine: processes with mappings and pages on nodes, and move_pages
// as Linux 6.12 and 7.3 were seen to behave in guests with two nodes. Any call can be made to fail.
#pragma once

#include <cerrno>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "live/kernel_calls.hpp"

namespace tt::test {

class FakeKernel final : public live::KernelCalls {
 public:
  static constexpr std::uint64_t page = live::base_page_bytes, huge = live::block_bytes;

  struct Page {
    int node = 0;
    bool pinned = false;  // under I/O: does not move
    int mapped_by = 1;    // processes
    bool zero = false;    // read, never written
  };
  struct Process {
    std::map<std::uint64_t, std::uint64_t> mappings;  // begin, end
    std::map<std::uint64_t, Page> pages;              // by address
    std::set<std::uint64_t> huge;                     // addresses of huge pages
    std::set<int> nodes{0, 1};                        // its cpuset
    bool foreign = false;                             // another user's
  };
  /// What a call is, for the one that lets it fail.
  enum class Call : std::uint8_t { read, populated, move, query };

  explicit FakeKernel(std::vector<std::uint64_t> node_pages) : sizes(std::move(node_pages)) {}

  // What the test does to it.

  std::map<int, Process> processes;
  std::vector<std::uint64_t> sizes;  // pages of each node
  bool has_scan = true;              // tells huge pages and zeros
  std::function<int(Call)> fail;     // an errno instead of the call, or 0
  Nanos clock{};

  void map(int pid, std::uint64_t begin, std::uint64_t end) {
    processes[pid].mappings[begin] = end;
  }
  void unmap(int pid, std::uint64_t begin) {
    Process& process = processes.at(pid);
    const auto mapping = process.mappings.find(begin);
    const auto from = process.pages.lower_bound(begin);
    process.pages.erase(from, process.pages.lower_bound(mapping->second));
    process.huge.erase(process.huge.lower_bound(begin), process.huge.lower_bound(mapping->second));
    process.mappings.erase(mapping);
  }
  /// First touch: on node 0 as long as that has room, as a kernel does.
  void touch(int pid, std::uint64_t address, int node = 0) {
    Process& process = processes.at(pid);
    if (process.pages.contains(address)) return;
    process.pages[address] = {.node = free(node) > 0 ? node : 1 - node};
  }
  void touch_huge(int pid, std::uint64_t address, int node = 0) {
    for (std::uint64_t at = address; at < address + huge; at += page) touch(pid, at, node);
    processes.at(pid).huge.insert(address);
  }

  // What the test looks at.

  [[nodiscard]] std::uint64_t used(int node) const {
    std::uint64_t sum = 0;
    for (const auto& [pid, process] : processes)
      for (const auto& [address, each] : process.pages) sum += !each.zero && each.node == node;
    return sum;
  }
  [[nodiscard]] std::uint64_t free(int node) const {
    const std::uint64_t size = sizes[static_cast<std::size_t>(node)];
    return size - std::min(size, used(node));
  }
  [[nodiscard]] int where(int pid, std::uint64_t address) const {
    return processes.at(pid).pages.at(address).node;
  }
  struct Moved {
    int pid = 0, node = 0;
    std::size_t addresses = 0;
  };
  std::vector<Moved> moves;          // calls that moved
  std::uint64_t queries = 0;         // calls that asked
  std::uint64_t most_on_node_0 = 0;  // right after a call that moved pages there

  // The kernel.

  Nanos now() override { return clock; }

  int read(const std::string& path, std::string& text) override {
    text.clear();
    if (const int error = failed(Call::read)) return error;
    for (std::size_t node = 0; node < sizes.size(); ++node) {
      const std::string number = std::to_string(node);
      if (path != "/sys/devices/system/node/node" + number + "/meminfo") continue;
      const auto kilobytes = [](std::uint64_t pages) {
        return std::to_string(4 * pages) + " kB\n";
      };
      text = "\nNode " + number + " MemTotal:       " + kilobytes(sizes[node]) + "Node " + number +
             " MemFree:        " + kilobytes(free(static_cast<int>(node)));
      return 0;
    }
    const auto file = files.find(path);
    if (file != files.end()) {
      text = file->second;
      return 0;
    }
    for (const auto& [pid, process] : processes) {
      if (path != "/proc/" + std::to_string(pid) + "/maps") continue;
      for (const auto& [begin, end] : process.mappings) {
        char line[100];
        std::snprintf(line, sizeof line, "%lx-%lx rw-p 00000000 00:00 0 \n", begin, end);
        text += line;
      }
      return 0;
    }
    return ENOENT;
  }
  std::map<std::string, std::string> files;  // others, by path

  int populated(int pid, std::uint64_t begin, std::uint64_t end,
                std::vector<live::Populated>& out) override {
    if (const int error = failed(Call::populated)) return error;
    const auto at = processes.find(pid);
    if (at == processes.end()) return ENOENT;
    const Process& process = at->second;
    const std::size_t from = out.size();
    for (auto each = process.pages.lower_bound(begin); each != process.pages.end(); ++each) {
      const auto& [address, found] = *each;
      if (address >= end) break;
      if (found.zero && has_scan) continue;
      const bool is_huge = has_scan && process.huge.contains(address - address % huge);
      if (out.size() > from && out.back().end == address && out.back().huge == is_huge) {
        out.back().end += page;
      } else {
        out.push_back({address, address + page, is_huge});
      }
    }
    return 0;
  }

  long move_pages(int pid, std::span<const std::uint64_t> addresses, std::span<const int> nodes,
                  std::span<int> statuses) override {
    const bool asks = nodes.empty();
    if (const int error = failed(asks ? Call::query : Call::move)) return -error;
    const auto at = processes.find(pid);
    if (at == processes.end()) return -ESRCH;
    Process& process = at->second;
    if (process.foreign) return -EPERM;
    if (asks) {
      ++queries;
      for (std::size_t i = 0; i < addresses.size(); ++i)
        statuses[i] = node_of(process, addresses[i]);
      return 0;
    }
    moves.push_back({pid, nodes[0], addresses.size()});
    bool silent = false;  // behind a pinned page nothing is reported
    long unreported = 0;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      if (static_cast<std::size_t>(nodes[i]) >= sizes.size()) return -ENODEV;
      if (!process.nodes.contains(nodes[i])) return -EACCES;
      int status = move(process, addresses[i], nodes[i]);
      if (status == -ENOMEM) return -ENOMEM;  // without a word about those before
      if (status == -EBUSY) silent = true;
      if (silent) {
        ++unreported;
      } else {
        statuses[i] = status;
      }
    }
    if (nodes[0] == 0) most_on_node_0 = std::max(most_on_node_0, used(0));
    return unreported;
  }

 private:
  int failed(Call call) { return fail ? fail(call) : 0; }

  static int node_of(const Process& process, std::uint64_t address) {
    const auto at = process.pages.find(address);
    if (at == process.pages.end()) return is_mapped(process, address) ? -ENOENT : -EFAULT;
    return at->second.zero ? -EFAULT : at->second.node;
  }
  static bool is_mapped(const Process& process, std::uint64_t address) {
    const auto after = process.mappings.upper_bound(address);
    return after != process.mappings.begin() && address < std::prev(after)->second;
  }
  /// One address, and with it the whole of a huge page.
  int move(Process& process, std::uint64_t address, int node) {
    const int before = node_of(process, address);
    if (before < 0 || before == node) return before;
    const bool is_huge = process.huge.contains(address - address % huge);
    const std::uint64_t begin = is_huge ? address - address % huge : address;
    const std::uint64_t end = begin + (is_huge ? huge : page);
    const auto first = process.pages.lower_bound(begin);
    const auto last = process.pages.lower_bound(end);
    for (auto each = first; each != last; ++each) {
      if (each->second.mapped_by > 1) return -EACCES;
      if (each->second.pinned) return -EBUSY;
    }
    const auto count = static_cast<std::uint64_t>(std::distance(first, last));
    clock += Nanos{20000} * static_cast<std::int64_t>(count);
    if (free(node) < count) return -ENOMEM;
    for (auto each = first; each != last; ++each) each->second.node = node;
    return node;
  }
};

}  // namespace tt::test
