// SPDX-License-Identifier: MIT

// The physical addresses of memory nodes.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

namespace tt::live {

/// Addresses [begin, end).
struct AddressRange {
  std::uint64_t begin = 0, end = 0;
  friend bool operator==(const AddressRange&, const AddressRange&) = default;
};

/// By node, in order and apart: what the zones of /proc/zoneinfo span, holes among them. Devices'
/// memory that is no node's to allocate is left out. std::runtime_error for a text that cannot be
/// read, and for nodes that lie between each other.
[[nodiscard]] std::map<int, std::vector<AddressRange>> node_addresses(std::string_view zoneinfo);

}  // namespace tt::live
