// SPDX-License-Identifier: MIT

#include "core/registry.hpp"

#include <stdexcept>
#include <utility>

#include "core/policy_list.hpp"

namespace tt {
namespace {

// Constructed on first use: registration runs before main, in no order.
PolicyList& policy_list() {
  static PolicyList all;
  return all;
}

}  // namespace

RegisterPolicy::RegisterPolicy(PolicyInfo info) { policy_list().add(std::move(info)); }

std::span<const PolicyInfo> policies() { return policy_list().all(); }

const PolicyInfo& policy(std::string_view name) {
  std::string known;
  for (const auto& info : policies()) {
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
