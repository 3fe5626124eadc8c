// SPDX-License-Identifier: MIT

#include "live/nodes.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>

#include "live/words.hpp"

namespace tt::live {
namespace {

constexpr int most_nodes = 1024;  // MAX_NUMNODES of the kernels that allow the most

bool node_number(std::string_view text, int& out) {
  const auto found = number<int>(text);
  out = found.value_or(-1);
  return out >= 0 && out < most_nodes;
}

std::string error_text(int error) { return std::generic_category().message(error); }

/// "Node 0 MemFree:  1234 kB": the number behind `name`.
bool kilobytes(std::string_view text, std::string_view name, std::uint64_t& out) {
  std::size_t at = text.find(name);
  if (at == std::string_view::npos) return false;
  at = std::min(text.find_first_not_of(' ', at + name.size()), text.size());
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data() + at, end, out);
  return error == std::errc{} && std::string_view{behind, end}.starts_with(" kB");
}

std::string of_all_nodes(const char* name) {
  return std::string{"/sys/devices/system/node/"} + name;
}

/// Which of the nodes are of which tier, as far as one can guess: memory without processors is what
/// a CXL device or persistent memory adds.
std::string by_processors(KernelCalls& kernel, const std::vector<int>& all) {
  std::string text;
  std::vector<int> near, far;
  if (kernel.read(of_all_nodes("has_cpu"), text) == 0)
    std::ranges::set_intersection(all, node_list(text), std::back_inserter(near));
  std::ranges::set_difference(all, near, std::back_inserter(far));
  if (near.empty() || far.empty())
    return "--fast NODES --slow NODES; `numactl --hardware` tells their distances";
  return "--fast " + node_text(near) + " --slow " + node_text(far) +
         ", of which the latter have no processors";
}

}  // namespace

NoTiers::NoTiers(std::string why_not, std::string what_helps)
    : std::runtime_error(what_helps.empty() ? why_not : why_not + "; what helps: " + what_helps),
      why(std::move(why_not)),
      cure(std::move(what_helps)) {}

std::string level_name(std::size_t level, std::size_t levels) {
  if (level == 0) return "fast";
  return levels == 2 ? "slow" : "slow" + std::to_string(level);
}

std::vector<int> Nodes::slower() const {
  std::vector<int> out;
  for (std::size_t i = 1; i < of.size(); ++i) out.insert(out.end(), of[i].begin(), of[i].end());
  return out;
}

Level Nodes::level(int node) const {
  for (std::size_t i = 0; i < of.size(); ++i)
    if (std::ranges::find(of[i], node) != of[i].end()) return static_cast<Level>(i);
  return nowhere;
}

std::string Nodes::text() const {
  std::string out;
  for (std::size_t i = 0; i < of.size(); ++i) {
    out += (i == 0 ? "" : ", ") + level_name(i, of.size());
    for (const int node : of[i]) out += ' ' + std::to_string(node);
  }
  return out;
}

std::vector<int> node_list(std::string_view text) {
  std::vector<int> out;
  const std::string whole = stripped(text);
  std::string_view rest = whole;
  while (!rest.empty()) {
    const std::size_t length = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, length);
    rest.remove_prefix(std::min(length + 1, rest.size()));
    const std::size_t dash = item.find('-');
    int first = 0, last = 0;
    const bool read =
        dash == std::string_view::npos
            ? node_number(item, first) && node_number(item, last)
            : node_number(item.substr(0, dash), first) && node_number(item.substr(dash + 1), last);
    if (!read || first > last || (!out.empty() && first <= out.back()))
      throw std::runtime_error("a list of nodes: found " + std::string(text.substr(0, 100)));
    for (int node = first; node <= last; ++node) out.push_back(node);
  }
  return out;
}

int node_pages(KernelCalls& kernel, int node, NodePages& out) {
  std::string text;
  const std::string path = "/sys/devices/system/node/node" + std::to_string(node) + "/meminfo";
  if (const int error = kernel.read(path, text); error != 0) return error;
  std::uint64_t total = 0, free = 0;
  if (!kilobytes(text, "MemTotal:", total) || !kilobytes(text, "MemFree:", free)) return EINVAL;
  out = {total / 4, free / 4};
  return 0;
}

Nodes nodes_of(std::vector<std::vector<int>> tiers) {
  if (tiers.size() < 2 || tiers.size() > most_levels)
    throw std::invalid_argument("found " + std::to_string(tiers.size()) +
                                " memory tiers, expected 2 to " + std::to_string(most_levels));
  const Nodes out{std::move(tiers)};
  for (std::size_t i = 0; i < out.of.size(); ++i) {
    if (out.of[i].empty())
      throw std::invalid_argument("found no node in the tier " + level_name(i, out.of.size()));
    for (const int node : out.of[i])
      if (out.level(node) != i)
        throw std::invalid_argument("node " + std::to_string(node) + " is in two tiers");
  }
  return out;
}

std::string node_text(const std::vector<int>& nodes) {
  std::string out;
  for (const int node : nodes) {
    if (!out.empty()) out += ',';
    out += std::to_string(node);
  }
  return out;
}

Nodes find_nodes(KernelCalls& kernel) {
  std::string text;
  if (const int error = kernel.read(of_all_nodes("has_memory"), text); error != 0)
    throw NoTiers("this machine's nodes are not known: " + error_text(error) + " for " +
                      of_all_nodes("has_memory"),
                  "mount -t sysfs none /sys");
  const std::vector<int> all = node_list(text);
  if (all.size() < 2)
    throw NoTiers("this machine has one memory node: there is nothing to move between", {});
  // Tiers are numbered from the fastest on: memory_tier4 is DRAM where nothing else is said.
  std::map<int, std::vector<int>> tiers;
  const std::string folder = "/sys/devices/virtual/memory_tiering", start = "memory_tier";
  std::vector<std::string> names;
  if (kernel.folders(folder, names) != 0) names.clear();  // as before 6.1
  for (const std::string& name : names) {
    if (!name.starts_with(start)) continue;
    const auto tier = number<int>(std::string_view{name}.substr(start.size()));
    if (tier && kernel.read(folder + "/" + name + "/nodelist", text) == 0)
      tiers[*tier] = node_list(text);
  }
  if (tiers.empty())
    throw NoTiers(
        "this kernel tells no memory tiers (/sys/devices/virtual/memory_tiering, since 6.1)",
        by_processors(kernel, all));
  if (tiers.size() == 1)
    throw NoTiers("all memory nodes stand in one memory tier (memory_tier" +
                      std::to_string(tiers.begin()->first) +
                      "): the firmware tells no difference between them (HMAT), and the kernel "
                      "promotes and demotes nothing",
                  by_processors(kernel, all));
  Nodes out;
  for (const auto& [tier, nodes] : tiers) {
    if (out.of.size() < most_levels) out.of.emplace_back();
    out.of.back().insert(out.of.back().end(), nodes.begin(), nodes.end());
  }
  return out;
}

std::vector<int> empty_nodes(KernelCalls& kernel) {
  std::string possible, memory, processors;
  if (kernel.read(of_all_nodes("possible"), possible) != 0 ||
      kernel.read(of_all_nodes("has_memory"), memory) != 0 ||
      kernel.read(of_all_nodes("has_cpu"), processors) != 0)
    return {};  // of a kernel without NUMA
  std::vector<int> without, out;
  std::ranges::set_difference(node_list(possible), node_list(memory), std::back_inserter(without));
  std::ranges::set_difference(without, node_list(processors), std::back_inserter(out));
  return out;
}

}  // namespace tt::live
