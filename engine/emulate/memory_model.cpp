// SPDX-License-Identifier: MIT

#include "emulate/memory_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

namespace tt::emulate {
namespace {

constexpr std::uint64_t line_bytes = 1 << MemoryModel::line_shift;
constexpr std::uint64_t no_line = ~std::uint64_t{0};
/// Over which bandwidth is taken, and how much of the load before stays: what one window would undo
/// and the next do again comes to rest.
constexpr Picos load_window = 20'000'000;
constexpr double load_kept = 0.875;
/// In a row, until the prefetcher asks for the next.
constexpr unsigned prefetched_from = 2;
constexpr std::int64_t longest_stride = 2;  // lines
/// How far from a value that was read a dependent address lies: an object's fields.
constexpr std::uint64_t object_bytes = 256;

double interpolated(const std::vector<std::pair<double, double>>& curve, double at) {
  if (curve.empty()) return 1;
  const auto next = std::ranges::upper_bound(curve, at, {}, &std::pair<double, double>::first);
  if (next == curve.begin()) return curve.front().second;
  if (next == curve.end()) return curve.back().second;
  const auto& [x1, y1] = *(next - 1);
  const auto& [x2, y2] = *next;
  return y1 + (y2 - y1) * (at - x1) / (x2 - x1);
}

}  // namespace

TagCache::TagCache(std::uint64_t bytes)
    : sets_(std::bit_ceil(std::max<std::uint64_t>(1, bytes / line_bytes / ways))),
      mask_(sets_.size() - 1),
      shift_(static_cast<unsigned>(std::bit_width(mask_))) {
  clear();
}

void TagCache::clear() {
  for (Set& set : sets_) set.fill(no_line);
}

MemoryModel::MemoryModel(MemoryOptions options)
    : options_(std::move(options)), l2_(options_.l2_bytes), llc_(options_.llc_bytes) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
  };
  require(options_.end > 0 && options_.slow_from <= options_.end, "memory ends before it begins");
  require(options_.buffers > 0 && options_.window > 0, "no miss can be in flight");
  for (std::size_t i = 0; i < options_.tiers.size(); ++i) {
    const auto& tier = options_.tiers[i];
    require(tier.latency > 0, "a latency of 0");
    require(tier.gbps >= 0 && tier.store_stall >= 0, "a figure below 0");
    for (std::size_t k = 1; k < tier.loaded.size(); ++k)
      require(tier.loaded[k].first > tier.loaded[k - 1].first, "load must ascend");
    latency_[i] = tier.latency;
  }
  clear_filter();
}

bool MemoryModel::streams(Site& site, std::uint64_t line) const {
  const auto stride = static_cast<std::int64_t>(line - site.last);
  site.last = line;
  if (stride != site.stride) {
    site.stride = stride;
    site.run = 0;
    return false;
  }
  if (stride == 0 || stride < -longest_stride || stride > longest_stride) return false;
  return ++site.run >= prefetched_from;
}

bool MemoryModel::depends(std::uint64_t address) const {
  return std::ranges::any_of(values_, [&](std::uint64_t value) {
    return address - value + object_bytes < 2 * object_bytes;
  });
}

Picos MemoryModel::overlapped(const Access& access, unsigned tier) {
  const Picos latency = latency_[tier], transfer = latency / options_.buffers;
  const bool dependent = !access.store && depends(access.address);
  if (access.has_value && !access.store) values_[value_++ % values_.size()] = access.value;
  counters_.dependent += dependent;
  if (!dependent && in_flight_ > 0 && in_flight_ < options_.buffers &&
      access.instructions - first_at_ < options_.window) {
    ++in_flight_;
    ++counters_.overlapped;
    // What the first one's latency has not covered, but never less than the transfer.
    const Picos more = latency > longest_ ? latency - longest_ : 0;
    longest_ = std::max(longest_, latency);
    return std::max(more, transfer);
  }
  first_at_ = access.instructions;
  in_flight_ = 1;
  longest_ = latency;
  return latency;
}

MemoryModel::Cost MemoryModel::access(const Access& access, Site& site) {
  if (access.physical >= options_.end) return {};
  const std::uint64_t line = access.physical >> line_shift;
  const bool judged = access.overlap == 0;
  if (l2_.access(line)) {
    ++counters_.l2_hits;
    return {Outcome::l2, 0, judged ? options_.l2_hit : 0};
  }
  const bool prefetched = judged && streams(site, access.address >> line_shift);
  if (llc_.access(line)) {
    ++counters_.llc_hits;
    const Picos hit = prefetched ? options_.llc_hit / options_.buffers : options_.llc_hit;
    return {Outcome::llc, 0, judged ? hit : 0};
  }
  const unsigned tier = access.physical >= options_.slow_from;
  ++lines_[tier];
  if (prefetched) {
    ++counters_.prefetched[tier];
    return {Outcome::prefetched, tier, latency_[tier] / options_.buffers};
  }
  ++counters_.misses[tier];
  counters_.stores[tier] += access.store;
  Picos cost = judged ? overlapped(access, tier)
                      : latency_[tier] * 1000 / std::max<Picos>(1000, access.overlap);
  if (access.store)
    cost = static_cast<Picos>(static_cast<double>(cost) * options_.tiers[tier].store_stall);
  else
    cost = std::max(cost, access.issue);
  return {Outcome::miss, tier, cost};
}

void MemoryModel::passed(Picos now) {
  const Picos elapsed = now - window_began_;
  if (elapsed < load_window) return;
  for (std::size_t i = 0; i < options_.tiers.size(); ++i) {
    const auto& tier = options_.tiers[i];
    if (tier.gbps <= 0 || tier.loaded.empty()) continue;
    const double gbps = static_cast<double>(lines_[i] * line_bytes) * 1000 /
                        static_cast<double>(elapsed);  // bytes / ps is 1000 GB/s
    load_[i] = load_kept * load_[i] + (1 - load_kept) * gbps / tier.gbps;
    latency_[i] =
        static_cast<Picos>(static_cast<double>(tier.latency) * interpolated(tier.loaded, load_[i]));
  }
  lines_ = {};
  window_began_ = now;
}

}  // namespace tt::emulate
