// SPDX-License-Identifier: MIT

#include "live/node_addresses.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <string>

#include "live/kernel_calls.hpp"
#include "live/words.hpp"

namespace tt::live {
namespace {

constexpr std::uint64_t most_frames = std::uint64_t{1} << 46;  // of 58 bits of address

/// The number behind `name`, if the line begins with it.
std::optional<std::uint64_t> number_behind(std::string_view line, std::string_view name) {
  if (!line.starts_with(name)) return std::nullopt;
  const std::string_view rest = trimmed(line.substr(name.size()));
  std::uint64_t number = 0;
  const char* const end = rest.data() + rest.size();
  const auto [at, error] = std::from_chars(rest.data(), end, number);
  if (error != std::errc{} || at != end || number > most_frames)
    throw std::runtime_error("/proc/zoneinfo: found '" + std::string(line.substr(0, 60)) +
                             "', expected a number of pages");
  return number;
}

struct Zone {
  int node = -1;
  bool of_device = false;
  std::uint64_t spanned = 0, present = 0;
};

/// "Node 0, zone   Normal"
Zone zone_of(std::string_view line) {
  Zone zone;
  const std::string_view rest = line.substr(std::min(line.size(), std::size_t{5}));
  const auto [at, error] = std::from_chars(rest.data(), rest.data() + rest.size(), zone.node);
  const std::string_view behind = rest.substr(static_cast<std::size_t>(at - rest.data()));
  if (error != std::errc{} || zone.node < 0 || !behind.starts_with(", zone "))
    throw std::runtime_error("/proc/zoneinfo: found '" + std::string(line.substr(0, 60)) +
                             "', expected a node and a zone");
  zone.of_device = trimmed(behind.substr(7)) == "Device";
  return zone;
}

/// Sorted, and joined where they meet.
void join(std::vector<AddressRange>& ranges) {
  std::ranges::sort(ranges, {}, &AddressRange::begin);
  std::vector<AddressRange> joined;
  for (const AddressRange& each : ranges) {
    if (!joined.empty() && each.begin <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, each.end);
    } else {
      joined.push_back(each);
    }
  }
  ranges = std::move(joined);
}

}  // namespace

std::map<int, std::vector<AddressRange>> node_addresses(std::string_view zoneinfo) {
  std::map<int, std::vector<AddressRange>> out;
  Zone zone;
  while (!zoneinfo.empty()) {
    const std::size_t length = std::min(zoneinfo.find('\n'), zoneinfo.size());
    const std::string_view line = trimmed(zoneinfo.substr(0, length));
    zoneinfo.remove_prefix(std::min(length + 1, zoneinfo.size()));
    if (line.starts_with("Node ")) {
      zone = zone_of(line);
    } else if (const auto spanned = number_behind(line, "spanned ")) {
      zone.spanned = *spanned;
    } else if (const auto present = number_behind(line, "present ")) {
      zone.present = *present;
    } else if (const auto start = number_behind(line, "start_pfn:")) {
      if (zone.node < 0) throw std::runtime_error("/proc/zoneinfo: found a start without a zone");
      if (!zone.of_device && zone.present > 0)
        out[zone.node].push_back(
            {*start * base_page_bytes, (*start + zone.spanned) * base_page_bytes});
    }
  }
  std::vector<AddressRange> all;
  for (auto& [node, ranges] : out) {
    join(ranges);
    all.insert(all.end(), ranges.begin(), ranges.end());
  }
  std::ranges::sort(all, {}, &AddressRange::begin);
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i].begin < all[i - 1].end)
      throw std::runtime_error("/proc/zoneinfo: the addresses of nodes lie between each other");
  return out;
}

}  // namespace tt::live
