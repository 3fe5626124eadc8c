// SPDX-License-Identifier: MIT

// Registry: the policies that are linked into this program, and what each assumes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/knob.hpp"
#include "core/memory.hpp"
#include "core/needs.hpp"
#include "core/placement.hpp"
#include "core/policy.hpp"

namespace tt {

struct Oracle;  // core/oracle.hpp

/// What a policy assumes; part of the published system, not of the machine.
struct PolicyTraits {
  std::uint64_t page_bytes = 4096;  // its native managed page
  bool unbounded_fast = false;      // the fast tier holds everything (all-fast)
  bool migrates = true;             // it may ask for a move
  // It goes by a Placement. Without one it profiles: a substrate that is not given one runs the
  // program on fast memory alone first, and takes what Policy::profile() then says.
  bool profiled = false;
  // Only then, if there is a condition: then it needs Need::sites and Need::placement, whatever
  // `needs` says.
  std::optional<KnobCondition> profiled_when;
  Need needs = Need::samples;
  Granularity placement = Granularity::range;
  double standing_threads = 0;  // that spin, whether there is work or not
  // A hint fault makes its page accessible before it moves it, so that the move needs a shootdown:
  // Linux before 5.13 (mm/memory.c: do_numa_page; "reduce TLB flush via delaying mapping").
  bool maps_first = false;
};

struct PolicyContext {
  Memory& memory;
  const Knobs& knobs;  // scaled; copied by the policy if kept
  const Oracle* oracle = nullptr;
  std::uint64_t seed = 0;
  const Placement* placement = nullptr;
};

struct PolicyInfo {
  std::string name;
  std::string family;                       // "hybrid", "frequency", "static", "oracle", ...
  std::string summary;                      // one line
  std::string citation;                     // publication
  std::vector<std::string> addresses = {};  // of what it cites: DOIs, or where else it stands
  std::vector<KnobDecl> knobs;
  PolicyTraits traits;
  std::unique_ptr<Policy> (*make)(const PolicyContext&) = nullptr;
};

/// Whether it goes by a Placement with these knobs (PolicyTraits::profiled).
[[nodiscard]] bool goes_by_placement(const PolicyInfo& policy, const Knobs& knobs);

/// All policies linked into this program, sorted by family and name.
[[nodiscard]] std::span<const PolicyInfo> policies();
/// Throws std::invalid_argument naming the known ones.
[[nodiscard]] const PolicyInfo& policy(std::string_view name);
/// Throws std::invalid_argument naming what the policy needs with these knobs and the substrate
/// does not offer.
void require_needs(const PolicyInfo& policy, const Knobs& knobs, Need offered,
                   std::string_view substrate);

/// A policy file announces itself: `static const RegisterPolicy registered{{...}};`
class RegisterPolicy {
 public:
  explicit RegisterPolicy(PolicyInfo info);
};

}  // namespace tt
