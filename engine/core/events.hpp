// SPDX-License-Identifier: MIT

// Events: what a policy is told of single pages, in batches: samples, hint faults, answered probes.
#pragma once

#include "core/types.hpp"

namespace tt {

/// One sampled access (PEBS, IBS): which page, which tier answered, load or store.
struct Sample {
  PageId page;
  Tier tier = Tier::fast;
  AccessKind kind = AccessKind::load;
};

/// The first access to a page since protect() took its access rights away.
struct Fault {
  PageId page;
  Tier tier = Tier::slow;
  AccessKind kind = AccessKind::load;
  Nanos since{};  // how long the page had been protected
};

/// A question: is the page accessed within [from, from + length)? DAMON's sampled accessed bit.
struct Probe {
  PageId page;
  Nanos from{}, length{};
  bool accessed = false;  // the answer
};

}  // namespace tt
