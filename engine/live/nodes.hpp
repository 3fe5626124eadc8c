// SPDX-License-Identifier: MIT

// Nodes: which NUMA nodes are the fast tier, and which the slower ones, each below the one before.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.hpp"
#include "live/kernel_calls.hpp"

namespace tt::live {

/// Pages of a node, of 4 KiB.
struct NodePages {
  std::uint64_t total = 0, free = 0;
};

/// Which tier of a machine: 0 is the fastest. What a policy calls fast and slow are two of them,
/// one right below the other.
using Level = std::uint8_t;
inline constexpr Level nowhere = 0xff;
inline constexpr std::size_t most_levels = 8;

/// "fast" and "slow" of two tiers; of more, "fast", "slow1", "slow2" and so on.
[[nodiscard]] std::string level_name(std::size_t level, std::size_t levels);

/// The nodes of each tier, from the fastest on; a page is moved to the first of them that has room.
struct Nodes {
  std::vector<std::vector<int>> of;

  [[nodiscard]] const std::vector<int>& fast() const { return of.front(); }
  /// The nodes of all other tiers.
  [[nodiscard]] std::vector<int> slower() const;
  /// Of which tier the node is; `nowhere` if of none.
  [[nodiscard]] Level level(int node) const;
  /// "fast 0, slow 2 3", with the names of levels.
  [[nodiscard]] std::string text() const;
};

/// There are not two tiers.
class NoTiers : public std::runtime_error {
 public:
  NoTiers(std::string why_not, std::string what_helps);
  std::string why;
  std::string cure;  // options of tierd, or a command; empty if nothing helps
};

/// The tiers that the kernel has found (/sys/devices/virtual/memory_tiering, 6.1 or newer), as far
/// as `most_levels`: what is slower still is of the last one. NoTiers on a machine with one node,
/// or one that has all its nodes in one tier (skhynix/hmsdk #2); std::runtime_error for a list that
/// is none.
[[nodiscard]] Nodes find_nodes(KernelCalls& kernel);
/// Nodes that the firmware has announced and that have neither memory nor processors: as those of
/// a CXL device whose memory is not online (skhynix/hmsdk #5).
[[nodiscard]] std::vector<int> empty_nodes(KernelCalls& kernel);
/// A list of numbers as the kernel writes them: "0-2,5". std::runtime_error for any other text.
[[nodiscard]] std::vector<int> node_list(std::string_view text);
/// Tiers of these nodes, from the fastest on. std::invalid_argument for a node that is in two, for
/// a tier without nodes, and unless there are two to `most_levels` of them.
[[nodiscard]] Nodes nodes_of(std::vector<std::vector<int>> tiers);
/// "0,1,2,5", which `node_list` reads.
[[nodiscard]] std::string node_text(const std::vector<int>& nodes);
/// What /sys/devices/system/node/nodeN/meminfo says. Returns an errno, EINVAL for an unknown text.
[[nodiscard]] int node_pages(KernelCalls& kernel, int node, NodePages& out);

}  // namespace tt::live
