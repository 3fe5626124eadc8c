// SPDX-License-Identifier: MIT

// The tick of a kernel's timer, in which NUMA balancing tells time.
#pragma once

#include "core/types.hpp"

namespace tt {

/// CONFIG_HZ = 250, as Debian has it.
inline constexpr Nanos timer_tick = from_millis(4);

}  // namespace tt
