// SPDX-License-Identifier: MIT

// all-fast: everything in a fast tier that is large enough. What tiering is measured against
// (e.g. HybridTier, ASPLOS'25, Fig. 11). It has no state.
//
// HybridTier: https://doi.org/10.1145/3676642.3736119
#include "policy/static_policy.hpp"

namespace tt {
namespace {

class AllFast final : public StaticPolicy {
 public:
  Tier placement(PageRange) const override { return Tier::fast; }
};

const RegisterPolicy all_fast_policy{{
    .name = "all-fast",
    .family = "reference",
    .summary = "everything in a fast tier that is large enough; an upper bound",
    .citation = "the all-DRAM reference of tiering papers (e.g. HybridTier, ASPLOS'25, Fig. 11)",
    .addresses = {"https://doi.org/10.1145/3676642.3736119"},
    .knobs = {},
    .traits = {.unbounded_fast = true, .migrates = false, .needs = Need::nothing},
    .make = make_policy<AllFast>,
}};

}  // namespace
}  // namespace tt
