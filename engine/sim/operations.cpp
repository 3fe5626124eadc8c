// SPDX-License-Identifier: MIT

#include "sim/operations.hpp"

#include <algorithm>

namespace tt::sim {

double operation_ns(const trace::Operation& operation, const trace::StreamInfo& info,
                    const PageTable& pages, const Mover& mover, const Lanes& lanes) {
  double latency = operation.compute_ns;
  for (const trace::OpAccess& access : operation.accesses) {
    const trace::StreamClass& stream_class = info.classes[access.stream_class];
    const Lanes::Lane& lane = lanes.of_class(access.stream_class);
    const std::uint64_t page = access.page >> pages.shift();
    const Tier tier = pages.tier_of(page);
    const std::size_t t = index(tier);
    const MoveSize size = move_size(pages.unit(page).count);
    const double wait = lanes.wait_ns(access.stream_class, access.kind, tier) *
                        (size == MoveSize::unit ? lanes.huge_share(access.stream_class) : 1);
    double each = std::max(stream_class.issue_ns, wait * lane.time.factor[t]);
    if (lane.time.bandwidth > 0 && tier == lane.time.limiting)
      each += lane.time.bandwidth * lane.threads / std::max(1.0, lane.accesses_by_tier[t]);
    if (mover.any_in_flight() && lane.time.total > 0 && pages.holds_up(page, access.kind)) {
      const Tier to = other(tier);
      const double away = mover.away_ns(size, to);
      each += std::min(1.0, mover.moving_share(size, to) * away / lane.time.total) * away / 2;
    }
    const double fetched =
        access.kind == AccessKind::load ? access.count : access.count * stream_class.store_fill;
    latency += fetched * (1 + lane.work.refetched) * each;
  }
  return latency;
}

}  // namespace tt::sim
