// SPDX-License-Identifier: MIT

#include "live/estimated_samples.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tt::live {

SamplingRequest EstimatedSamples::grant(const SamplingRequest& request) {
  using Mode = SamplingRequest::Mode;
  SamplingRequest granted;
  hertz_ = 0;
  if (request.loads.mode == Mode::off || !(request.loads.value > 0)) return granted;
  const bool by_period = request.loads.mode == Mode::period;
  const double asked =
      by_period ? options_.assumed_events / request.loads.value : request.loads.value;
  hertz_ = std::min(asked, options_.most_hertz);
  granted.loads = {request.loads.mode, by_period ? options_.assumed_events / hertz_ : hertz_};
  return granted;
}

void EstimatedSamples::count(Counters& counters) const {
  counters.samples_taken += static_cast<double>(taken_);
  for (std::size_t t = 0; t < tier_count; ++t) counters.loads[t] += loads_[t];
}

double EstimatedSamples::weight(const DamonRegion& region) {
  const std::uint64_t pages = (region.end - region.begin) / base_page_bytes;
  return static_cast<double>(region.accesses) * static_cast<double>(pages);
}

template <typename Visit>
void EstimatedSamples::spread(const DamonAggregation& aggregation, double all, double parts,
                              Visit visit) {
  const double part = all / parts;
  double next = part * rng_.uniform(), before = 0;
  for (const DamonRegion& region : aggregation.regions) {
    const double until = before + weight(region);
    const std::uint64_t pages = (region.end - region.begin) / base_page_bytes;
    for (; next < until; next += part) visit(region.begin + rng_.below(pages) * base_page_bytes);
    before = until;
  }
}

void EstimatedSamples::follow(std::span<const int> pids) {
  std::erase_if(accessed_, [&](const auto& process) {
    return std::ranges::find(pids, process.first) == pids.end();
  });
}

void EstimatedSamples::draw(const DamonAggregation& aggregation, int pid, double seconds,
                            const LiveMemory& memory, std::vector<Sample>& out) {
  constexpr double looked_up = 256;  // pages, for the shares of the tiers
  double all = 0, of_all_processes = 0;
  for (const DamonRegion& region : aggregation.regions) all += weight(region);
  accessed_[pid] = all;
  for (const auto& [process, accessed] : accessed_) of_all_processes += accessed;
  if (all <= 0) return;
  const double share = all / of_all_processes;
  owed_ += hertz_ * seconds * share;
  Sample sample{};
  spread(aggregation, all, looked_up, [&](std::uint64_t address) {
    if (memory.sample(pid, address, AccessKind::load, sample))
      loads_[index(sample.tier)] += options_.assumed_events * seconds * share / looked_up;
  });
  const double count = std::floor(owed_);
  if (count < 1) return;
  owed_ -= count;
  // One for each equal part: a region's share is met to a sample.
  const std::size_t from = out.size();
  spread(aggregation, all, count, [&](std::uint64_t address) {
    if (memory.sample(pid, address, AccessKind::load, sample)) out.push_back(sample);
  });
  taken_ += out.size() - from;
  for (std::size_t left = out.size() - from; left > 1; --left)
    std::swap(out[from + left - 1], out[from + rng_.below(left)]);
}

}  // namespace tt::live
