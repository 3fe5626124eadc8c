// SPDX-License-Identifier: MIT

#include "core/needs.hpp"

#include <utility>

namespace tt {
namespace {

constexpr std::pair<Need, const char*> need_names[] = {
    {Need::samples, "samples"},
    {Need::faults, "hint faults"},
    {Need::accessed_bits, "accessed bits"},
    {Need::probes, "probes"},
    {Need::tier_counters, "tier counters"},
    {Need::mixed_pages, "mixed page sizes"},
    {Need::shadows, "shadow pages"},
    {Need::sites, "allocation sites"},
    {Need::future, "accesses of the whole run"},
    {Need::copies, "copies that do not block"},
    {Need::placement, "placement of first touches"},
};

}  // namespace

std::string names(Need needs) {
  std::string text;
  for (const auto& [need, name] : need_names)
    if (includes(needs, need)) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

}  // namespace tt
