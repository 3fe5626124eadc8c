// SPDX-License-Identifier: MIT

// Latency of the operations that the stream holds whole: a request as its client sees it.
#pragma once

#include "sim/lanes.hpp"
#include "sim/mover.hpp"
#include "sim/pages.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

/// Of an operation of the block that has just been solved: its own accesses at the pages' tiers and
/// the block's loaded latencies, with what a wait for bandwidth or for a page in flight adds.
[[nodiscard]] double operation_ns(const trace::Operation& operation, const trace::StreamInfo& info,
                                  const PageTable& pages, const Mover& mover, const Lanes& lanes);

}  // namespace tt::sim
