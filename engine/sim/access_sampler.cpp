#include "sim/access_sampler.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace tt::sim {

void AccessSampler::set(const SamplingRequest& request) {
  for (const auto& event : {request.loads, request.stores})
    if (event.mode != SamplingRequest::Mode::off && !(event.value > 0))
      throw std::invalid_argument("a sampling period or frequency must be positive");
  if (!(request.fast_share > 0 && request.fast_share <= 1))
    throw std::invalid_argument("the share of samples in the fast tier must be in (0, 1]");
  request_ = request;
  apply(AccessKind::load);
  apply(AccessKind::store);
}

void AccessSampler::observe(AccessKind kind, double events, double nanoseconds) {
  if (nanoseconds <= 0) return;
  const std::size_t k = index(kind);
  const double now = events / nanoseconds * 1e9;
  constexpr double window_ns = 50e6;
  const double weight = rate_[k] > 0 && now > 0 ? nanoseconds / (nanoseconds + window_ns) : 1;
  rate_[k] += weight * (now - rate_[k]);
  const auto& event = kind == AccessKind::load ? request_.loads : request_.stores;
  if (event.mode == SamplingRequest::Mode::frequency) apply(kind);
}

void AccessSampler::apply(AccessKind kind) {
  const std::size_t k = index(kind);
  const auto& event = kind == AccessKind::load ? request_.loads : request_.stores;
  double period = off;
  if (event.mode == SamplingRequest::Mode::period) period = event.value;
  // More samples than events cannot be had.
  if (event.mode == SamplingRequest::Mode::frequency && rate_[k] > 0)
    period = std::max(1.0, rate_[k] / event.value);
  // The gap has no memory: what is left of it stretches with the period.
  if (period == off) {
    next_[k] = off;
  } else if (period_[k] == off) {
    next_[k] = rng_.exponential(period);
  } else {
    next_[k] *= period / period_[k];
  }
  period_[k] = period;
}

std::uint64_t AccessSampler::hit(const trace::Segment& segment, unsigned shift,
                                 const PageBits& slow, std::vector<Sample>& out) {
  const std::size_t k = index(segment.kind);
  double next = next_[k];
  const auto sum = static_cast<double>(segment.sum);
  std::uint64_t taken = 0;
  std::size_t chunk = 0;
  std::uint64_t chunk_start = 0;  // events before the chunk
  while (next < sum) {
    const auto event = static_cast<std::uint64_t>(next);
    while (chunk < segment.chunk_sums.size() && event - chunk_start >= segment.chunk_sums[chunk])
      chunk_start += segment.chunk_sums[chunk++];
    std::size_t entry = chunk * trace::chunk;
    const std::size_t end = std::min(entry + trace::chunk, segment.pages.size());
    if (entry >= end) break;  // sums and counts disagree: verify() reports such a stream
    // Four at a time: most steps of the walk inside a chunk then wait for one sum, not for four.
    auto left = static_cast<std::uint32_t>(event - chunk_start);
    while (entry + 4 < end) {
      const std::uint32_t four = std::uint32_t{segment.counts[entry]} + segment.counts[entry + 1] +
                                 segment.counts[entry + 2] + segment.counts[entry + 3];
      if (left < four) break;
      left -= four;
      entry += 4;
    }
    while (entry + 1 < end && left >= segment.counts[entry]) left -= segment.counts[entry++];
    next += rng_.exponential(period_[k]);
    const PageId page{segment.pages[entry] >> shift};
    const Tier tier = slow.test(page.value) ? Tier::slow : Tier::fast;
    const bool thinned =
        request_.fast_share < 1 && tier == Tier::fast && segment.kind == AccessKind::load;
    if (thinned && rng_.uniform() >= request_.fast_share) continue;
    out.push_back({page, tier, segment.kind});
    ++taken;
  }
  next_[k] = std::max(0.0, next - sum);
  return taken;
}

void AccessSampler::shuffle(std::vector<Sample>& samples) {
  for (std::size_t i = samples.size(); i > 1; --i)
    std::swap(samples[i - 1], samples[rng_.below(i)]);
}

}  // namespace tt::sim
