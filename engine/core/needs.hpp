// SPDX-License-Identifier: MIT

// Need: what a policy cannot do without. A substrate says what it has, and refuses the others by
// name before the run (require_needs() in core/registry.hpp).
#pragma once

#include <cstdint>
#include <string>

namespace tt {

/// What a policy cannot do without (PolicyTraits::needs). A substrate refuses a policy by name,
/// before the run, when it lacks one of them: require_needs().
enum class Need : std::uint32_t {
  nothing = 0,
  samples = 1,         // set_sampling(), on_samples()
  faults = 2,          // protect(), on_faults()
  accessed_bits = 4,   // accessed()
  probes = 8,          // probe(), on_probed()
  tier_counters = 16,  // Counters::tier
  mixed_pages = 32,    // unit(), reshape()
  shadows = 64,        // Movers::shadows
  sites = 128,         // the site of on_map(), site()
  future = 256,        // Oracle
  copies = 512,        // Movers::copy other than blocking
  placement = 1024,    // first touches where Policy::placement() says, not the fast tier first
};
[[nodiscard]] constexpr Need operator|(Need a, Need b) {
  return static_cast<Need>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
[[nodiscard]] constexpr Need operator&(Need a, Need b) {
  return static_cast<Need>(static_cast<std::uint32_t>(a) & static_cast<std::uint32_t>(b));
}
[[nodiscard]] constexpr Need operator~(Need needs) {
  return static_cast<Need>(~static_cast<std::uint32_t>(needs));
}
/// Whether `all` has every need of `some`.
[[nodiscard]] constexpr bool includes(Need all, Need some) {
  return (some & ~all) == Need::nothing;
}
/// "hint faults, probes": their names, separated by commas.
[[nodiscard]] std::string names(Need needs);

}  // namespace tt
