#include <algorithm>
#include <stdexcept>
#include <tuple>

#include "core/seam.hpp"

namespace tt {
namespace {

// Constructed on first use: registration runs before main, in no order.
std::vector<PolicyInfo>& all() {
  static std::vector<PolicyInfo> list;
  return list;
}

}  // namespace

RegisterPolicy::RegisterPolicy(PolicyInfo info) {
  auto& list = all();
  const auto key = [](const PolicyInfo& p) { return std::tie(p.family, p.name); };
  const auto at =
      std::ranges::find_if(list, [&](const PolicyInfo& other) { return key(info) < key(other); });
  list.insert(at, std::move(info));
}

std::span<const PolicyInfo> policies() { return all(); }

const PolicyInfo& policy(std::string_view name) {
  std::string known;
  for (const auto& info : all()) {
    if (info.name == name) return info;
    known += (known.empty() ? "" : ", ") + info.name;
  }
  throw std::invalid_argument("unknown policy " + std::string(name) + "; known: " + known);
}

}  // namespace tt
