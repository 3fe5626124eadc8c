// SPDX-License-Identifier: MIT

// What the tiering system takes from the application in a block.
//
// The mover and the tiering thread fill it in, the lanes pay: it is all that the lanes know of
// either. Whatever else will cost the application time or bandwidth enters here.
#pragma once

#include <array>

#include "core/types.hpp"
#include "sim/timing.hpp"

namespace tt::sim {

struct Interference {
  // The pages in flight in this block.
  std::array<Traffic, tier_count> traffic{};
  double flushed = 0;  // real pages and units whose mappings change with a shootdown
  double away_ns = 0;  // sum over them of how long each is away
  // Time of the tiering system's own threads in the last block: the part of it that was spent on
  // the application's cores is felt in this one.
  double moves_ns = 0;
  double sampling_ns = 0;
  double policy_ns = 0;
  double application_ns = 0;  // thread time: what it was made to do itself since the last block
  double lines = 0;           // that tiering brought into the caches since the last block
};

}  // namespace tt::sim
