// SPDX-License-Identifier: MIT

#include "live/damon_source.hpp"

#include <algorithm>

namespace tt::live {

void DamonSource::start(std::span<const int> pids) {
  damon_.start(pids);
  pids_.assign(pids.begin(), pids.end());
  grown_ = false;
}

void DamonSource::follow(int pid) {
  if (std::ranges::find(pids_, pid) != pids_.end()) return;
  pids_.push_back(pid);
  grown_ = true;
}

/// DAMON lets go of a process that ends by itself, and a restart would cost it the others' regions.
void DamonSource::leave(int pid) { std::erase(pids_, pid); }

void DamonSource::restart(Nanos now) {
  started_ = now;
  // The kernel refuses all of them when one has ended.
  std::erase_if(pids_, [this](int pid) {
    std::string text;
    return kernel_.read("/proc/" + std::to_string(pid) + "/stat", text) != 0;
  });
  grown_ = false;
  lost_before_ = lost();
  (void)kernel_time(time_before_);  // its thread ends
  if (!pids_.empty()) damon_.start(pids_);
}

void DamonSource::collect(const LiveMemory& memory, Nanos now, std::vector<Sample>& out) {
  for (const DamonAggregation& each : damon_.collect()) {
    const int pid = damon_.pid(each);
    if (each.whole && std::ranges::find(pids_, pid) != pids_.end())
      samples_.draw(each, pid, seconds(damon_.aggregation()), memory, out);
  }
  if (grown_ && now - started_ >= from_seconds(1)) restart(now);
}

bool DamonSource::kernel_time(Nanos& out) {
  Nanos now{};
  if (!damon_.thread_time(now)) return false;
  out = time_before_ + now;
  return true;
}

std::string DamonSource::text() const {
  std::string out =
      "samples, and the tiers' shares of accesses, were estimated from DAMON's regions";
  if (lost() > 0) out += "; " + std::to_string(lost()) + " records of DAMON lost";
  return out;
}

}  // namespace tt::live
