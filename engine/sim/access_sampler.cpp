// SPDX-License-Identifier: MIT

#include "sim/access_sampler.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace tt::sim {
namespace {

using Mode = SamplingRequest::Mode;

/// Linux lets the handling of samples take so much of each processor's time, and lowers the highest
/// frequency accordingly (kernel.perf_cpu_time_max_percent, default 25).
constexpr double most_handling = 0.25;
/// And no more than this of each processor (kernel.perf_event_max_sample_rate, default 100,000).
constexpr double most_sampled = 1e5;
/// A tier that is hardly accessed is not sampled more densely than this multiple of the whole: a
/// kernel's period follows the rate with a delay, too.
constexpr double most_emphasis = 64;

}  // namespace

AccessSampler::AccessSampler(const trace::StreamInfo& info, const MachineProfile& profile,
                             double threads, std::uint64_t seed)
    : info_(info), profile_(profile), threads_(threads), rng_(seed) {
  for (const trace::StreamClass& each : info.classes)
    events_.push_back({demand_share(each, profile), each.store_events});
  set({});
}

void AccessSampler::set(const SamplingRequest& request) {
  for (const auto& event : {request.loads, request.stores})
    if (event.mode != Mode::off && !(event.value > 0))
      throw std::invalid_argument("a sampling period or frequency must be positive");
  if (!(request.fast_share >= 0 && request.fast_share <= 1))
    throw std::invalid_argument("the share of samples in the fast tier must be in [0, 1]");
  const SamplingRequest before = std::exchange(request_, request);
  for (const AccessKind kind : {AccessKind::load, AccessKind::store}) {
    const std::size_t k = index(kind);
    const SamplingRequest::Event& now = event(kind);
    const SamplingRequest::Event& last = kind == AccessKind::load ? before.loads : before.stores;
    // A rate is known only while it is needed.
    if (counters_[k].empty() || now.by_core != last.by_core ||
        (now.mode == Mode::frequency && last.mode != Mode::frequency)) {
      counters_[k].assign(now.by_core ? info_.lanes.size() : 1, Counter{});
      for (std::size_t lane = 0; lane < info_.lanes.size(); ++lane)
        counters_[k][now.by_core ? lane : 0].threads += lane_threads(info_.lanes[lane], threads_);
    }
    // A fixed period lets the processor fill a buffer of records; a changing one does not, so that
    // each sample is an interrupt.
    sample_ns_[k] = profile_.sample_assist_ns +
                    (now.mode == Mode::frequency ? profile_.sample_interrupt_ns : 0);
    for (Counter& counter : counters_[k]) apply(kind, counter);
  }
}

/// Samples per second that one processor can take.
double AccessSampler::most_hertz(AccessKind kind) const {
  const double sample_ns = sample_ns_[index(kind)];
  return sample_ns > 0 ? std::min(most_sampled, most_handling * 1e9 / sample_ns) : most_sampled;
}

SamplingRequest AccessSampler::granted() const {
  SamplingRequest granted = request_;
  for (const AccessKind kind : {AccessKind::load, AccessKind::store}) {
    SamplingRequest::Event& event = kind == AccessKind::load ? granted.loads : granted.stores;
    if (event.mode == Mode::off) event = {};
    if (event.mode != Mode::frequency) continue;
    const double processors = event.by_core ? 1 : counters_[index(kind)].front().threads;
    event.value = std::min(event.value, most_hertz(kind) * processors / info_.scale);
  }
  return granted;
}

void AccessSampler::begin(const trace::Block& block, double nanoseconds) {
  const std::array frequency{event(AccessKind::load).mode == Mode::frequency,
                             event(AccessKind::store).mode == Mode::frequency};
  if (!frequency[0] && !frequency[1]) return;  // nothing else follows the rate
  for (const AccessKind kind : {AccessKind::load, AccessKind::store})
    for (Counter& counter : counters_[index(kind)]) {
      // What the last block came to.
      if (counter.block_events > 0)
        counter.slow_share = std::min(1.0, counter.slow_events / counter.block_events);
      counter.block_events = counter.slow_events = 0;
    }
  for (const trace::Segment& segment : block.segments) {
    const std::size_t k = index(segment.kind);
    if (!frequency[k]) continue;
    counters_[k][group(segment.kind, segment.stream_class)].block_events +=
        events_[segment.stream_class][k] * static_cast<double>(segment.sum);
  }
  for (const AccessKind kind : {AccessKind::load, AccessKind::store})
    if (frequency[index(kind)])
      for (Counter& counter : counters_[index(kind)]) observe(kind, counter, nanoseconds);
}

void AccessSampler::observe(AccessKind kind, Counter& counter, double nanoseconds) {
  if (nanoseconds <= 0) return;
  const double now = counter.block_events / nanoseconds * 1e9;
  constexpr double window_ns = 50e6;
  const double weight = counter.rate > 0 && now > 0 ? nanoseconds / (nanoseconds + window_ns) : 1;
  counter.rate += weight * (now - counter.rate);
  apply(kind, counter);
}

void AccessSampler::apply(AccessKind kind, Counter& counter) {
  const SamplingRequest::Event& asked = event(kind);
  std::array<double, tier_count> period{off, off};
  if (asked.mode == Mode::period) period = {asked.value, asked.value};
  if (asked.mode == Mode::frequency && counter.rate > 0) {
    double hertz = asked.by_core ? asked.value * counter.threads : asked.value;
    hertz = std::min(hertz, most_hertz(kind) * counter.threads / info_.scale);
    const double whole = counter.rate / hertz;
    for (const Tier tier : {Tier::fast, Tier::slow}) {
      const double share = !asked.by_tier       ? 1
                           : tier == Tier::slow ? counter.slow_share
                                                : 1 - counter.slow_share;
      // More samples than events cannot be had.
      period[index(tier)] = std::max(1.0, whole * std::max(share, 1 / most_emphasis));
    }
  }
  const double shortest = std::min(period[0], period[1]);
  // The gap has no memory: what is left of it stretches with the period.
  if (shortest == off) {
    counter.next = off;
  } else if (counter.shortest == off) {
    counter.next = rng_.exponential(shortest);
  } else {
    counter.next *= shortest / counter.shortest;
  }
  counter.period = period;
  counter.shortest = shortest;
}

/// Of the fast tier's loads, the policy may want a share alone.
bool AccessSampler::keeps(AccessKind kind, Tier tier) {
  if (request_.fast_share >= 1 || tier == Tier::slow || kind == AccessKind::store) return true;
  return rng_.uniform() < request_.fast_share;
}

std::uint64_t AccessSampler::hit(Counter& counter, const trace::Segment& segment, unsigned shift,
                                 const PageBits& slow, std::vector<Sample>& out) {
  const double per_entry = events_[segment.stream_class][index(segment.kind)];
  const double events = per_entry * static_cast<double>(segment.sum);
  const bool by_tier = event(segment.kind).by_tier;
  double next = counter.next;
  std::uint64_t taken = 0;
  std::size_t chunk = 0;
  std::uint64_t chunk_start = 0;  // accesses before the chunk
  while (next < events) {
    const auto access = std::min(static_cast<std::uint64_t>(next / per_entry), segment.sum - 1);
    while (chunk < segment.chunk_sums.size() && access - chunk_start >= segment.chunk_sums[chunk])
      chunk_start += segment.chunk_sums[chunk++];
    std::size_t entry = chunk * trace::chunk;
    const std::size_t end = std::min(entry + trace::chunk, segment.pages.size());
    if (entry >= end) break;  // sums and counts disagree: verify() reports such a stream
    // Four at a time: most steps of the walk inside a chunk then wait for one sum, not for four.
    auto left = static_cast<std::uint32_t>(access - chunk_start);
    while (entry + 4 < end) {
      const std::uint32_t four = std::uint32_t{segment.counts[entry]} + segment.counts[entry + 1] +
                                 segment.counts[entry + 2] + segment.counts[entry + 3];
      if (left < four) break;
      left -= four;
      entry += 4;
    }
    while (entry + 1 < end && left >= segment.counts[entry]) left -= segment.counts[entry++];
    const PageId page{segment.pages[entry] >> shift};
    const Tier tier = slow.test(page.value) ? Tier::slow : Tier::fast;
    if (keeps(segment.kind, tier) &&
        (!by_tier || rng_.uniform() * counter.period[index(tier)] < counter.shortest)) {
      out.push_back({page, tier, segment.kind});
      ++taken;
    }
    next += rng_.exponential(counter.shortest);
  }
  counter.next = std::max(0.0, next - events);
  return taken;
}

void AccessSampler::shuffle(std::vector<Sample>& samples) {
  for (std::size_t i = samples.size(); i > 1; --i)
    std::swap(samples[i - 1], samples[rng_.below(i)]);
}

}  // namespace tt::sim
