// SPDX-License-Identifier: MIT

// What trackers and priors are given of a batch.
#pragma once

#include <cstdint>

#include "core/types.hpp"

namespace tt {

/// A page and how often a batch of samples names it.
struct PageCount {
  PageId page;
  std::uint32_t count = 0;
};

}  // namespace tt
