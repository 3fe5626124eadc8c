// SPDX-License-Identifier: MIT

// first-touch (NoTier): a page goes to the fast tier while that has room, and stays where it is.
//
// Soar and Alto: https://www.usenix.org/conference/osdi25/presentation/liu
//
// Linux' own placement without tiering; the baseline of the tiering papers (e.g. Soar and Alto,
// OSDI'25, §6.1). It has no state.
#include "policy/static_policy.hpp"

namespace tt {
namespace {

class FirstTouch final : public StaticPolicy {
 public:
  Tier placement(PageRange) const override { return Tier::fast; }
};

const RegisterPolicy first_touch_policy{{
    .name = "first-touch",
    .family = "static",
    .summary = "Linux' default: the fast tier while it has room, then the slow one; no migration",
    .citation = "the NoTier baseline of tiering papers (e.g. Soar and Alto, OSDI'25, §6.1)",
    .addresses = {"https://www.usenix.org/conference/osdi25/presentation/liu"},
    .knobs = {},
    .traits = {.migrates = false, .needs = Need::nothing},
    .make = make_policy<FirstTouch>,
}};

}  // namespace
}  // namespace tt
