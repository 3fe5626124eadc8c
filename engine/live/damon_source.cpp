// SPDX-License-Identifier: MIT

#include "live/damon_source.hpp"

namespace tt::live {

int DamonSource::follow(std::span<const int> pids) {
  samples_.follow(pids);
  return damon_.follow(pids);
}

void DamonSource::collect(const LiveMemory& memory, Nanos, std::vector<Sample>& out) {
  for (const DamonAggregation& each : damon_.collect())
    if (each.whole)
      samples_.draw(each, damon_.pid(each), seconds(damon_.aggregation()), memory, out);
}

std::string DamonSource::text() const {
  std::string out =
      "samples, and the tiers' shares of accesses, were estimated from DAMON's regions";
  if (lost() > 0) out += "; " + std::to_string(lost()) + " records of DAMON lost";
  return out;
}

}  // namespace tt::live
