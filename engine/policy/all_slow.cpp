// SPDX-License-Identifier: MIT

// all-slow: everything in the slow tier. The other end of the scale that all-fast opens (e.g. Soar
// and Alto, OSDI'25, Fig. 1). It has no state.
//
// Soar and Alto: https://www.usenix.org/conference/osdi25/presentation/liu
#include "policy/static_policy.hpp"

namespace tt {
namespace {

class AllSlow final : public StaticPolicy {
 public:
  Tier placement(PageRange) const override { return Tier::slow; }
};

const RegisterPolicy all_slow_policy{{
    .name = "all-slow",
    .family = "reference",
    .summary = "everything in the slow tier; what a machine without fast memory does",
    .citation = "the all-CXL reference of tiering papers (e.g. Soar and Alto, OSDI'25, Fig. 1)",
    .addresses = {"https://www.usenix.org/conference/osdi25/presentation/liu"},
    .knobs = {},
    .traits = {.migrates = false, .needs = Need::placement},
    .make = make_policy<AllSlow>,
}};

}  // namespace
}  // namespace tt
