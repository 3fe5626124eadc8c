#include "core/registry.hpp"

#include <algorithm>
#include <stdexcept>
#include <tuple>
#include <utility>

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

void require_needs(const PolicyInfo& policy, const Knobs& knobs, Need offered,
                   std::string_view substrate) {
  Need needs = policy.traits.needs;
  if (goes_by_placement(policy, knobs)) needs = needs | Need::sites | Need::placement;
  const Need missing = needs & ~offered;
  if (missing != Need::nothing)
    throw std::invalid_argument("policy " + policy.name + " needs " + names(missing) + ", which " +
                                std::string(substrate) + " does not have");
}

bool goes_by_placement(const PolicyInfo& policy, const Knobs& knobs) {
  const auto& when = policy.traits.profiled_when;
  return policy.traits.profiled && (!when || holds(*when, policy.knobs, knobs));
}

}  // namespace tt
