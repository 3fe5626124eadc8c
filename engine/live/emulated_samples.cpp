// SPDX-License-Identifier: MIT

#include "live/emulated_samples.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "live/hardware_sample.hpp"

namespace tt::live {
namespace {

constexpr std::array both_kinds{AccessKind::load, AccessKind::store};
constexpr double longest_wait = 1e18;  // misses or nanoseconds: 31 years of the latter

/// By how much a count has grown. One that has gone back began anew.
std::uint64_t growth(std::uint64_t now, std::uint64_t& before) {
  const std::uint64_t was = std::exchange(before, now);
  return now >= was ? now - was : 0;
}

}  // namespace

EmulatedSamples::EmulatedSamples(std::unique_ptr<EmulatedRing> ring, const Options& options)
    : ring_(std::move(ring)), options_(options), longer_(options.calm) {}

EmulatedSamples::~EmulatedSamples() {
  if (started_)
    for (const AccessKind kind : both_kinds) ring_->set(kind, 0, 0);
}

void EmulatedSamples::start(std::span<const int> pids) {
  pids_.assign(pids.begin(), pids.end());
  ring_->skip();
  lost_before_ = ring_->lost();
  for (const AccessKind kind : both_kinds)
    for (const Tier tier : {Tier::fast, Tier::slow})
      misses_before_[index(kind)][index(tier)] = ring_->misses(kind, tier);
  started_ = true;
  for (const AccessKind kind : both_kinds) (void)set(kind);
}

int EmulatedSamples::follow(std::span<const int> pids) {
  pids_.assign(pids.begin(), pids.end());
  if (!started_ && !pids.empty()) start(pids);
  return 0;
}

void EmulatedSamples::spare(unsigned times) {
  spared_ = times;
  for (const AccessKind kind : both_kinds) (void)set(kind);
}

SamplingRequest EmulatedSamples::grant(const SamplingRequest& request) {
  asked_ = {request.loads, request.stores};
  longer_.ask(request);
  SamplingRequest granted;
  granted.loads = set(AccessKind::load);
  granted.stores = set(AccessKind::store);
  return granted;
}

SamplingRequest::Event EmulatedSamples::set(AccessKind kind) {
  using Mode = SamplingRequest::Mode;
  const SamplingRequest::Event& asked = asked_[index(kind)];
  const Mode mode = asked.value > 0 ? asked.mode : Mode::off;
  const auto whole = [](double value) { return std::clamp(std::ceil(value), 1.0, longest_wait); };
  SamplingRequest::Event granted{.mode = mode};
  std::uint64_t period = 0, interval = 0;
  if (mode == Mode::period) {
    granted.value = whole(asked.value * stretched());
    period = static_cast<std::uint64_t>(granted.value);
  } else if (mode == Mode::frequency) {
    const double hertz = std::min(asked.value, options_.most_hertz);
    const double wait = whole(1e9 / hertz * stretched());
    granted.value = std::min(1e9 / wait, hertz);
    interval = static_cast<std::uint64_t>(wait);
  }
  if (started_) ring_->set(kind, period, interval);
  return granted;
}

void EmulatedSamples::sample(const emulate::SampleRecord& record, const LiveMemory& memory,
                             std::vector<Sample>& out) {
  if (record.kind > 1) {
    ++invalid_;
    return;
  }
  if (!in_user_space(record.address)) {
    ++kernels_;
    return;
  }
  if (record.pid == 0) {
    ++nobodys_;
    return;
  }
  const int pid = static_cast<int>(record.pid);
  // In which tier it was is LiveMemory's to say, as of every source.
  Sample found;
  if (memory.sample(pid, record.address, record.kind == 0 ? AccessKind::load : AccessKind::store,
                    found)) {
    ++taken_;
    out.push_back(found);
  } else {
    ++(std::ranges::find(pids_, pid) == pids_.end() ? foreign_ : unknown_);
  }
}

void EmulatedSamples::read_counts() {
  for (const AccessKind kind : both_kinds)
    for (const Tier tier : {Tier::fast, Tier::slow})
      misses_[index(kind)][index(tier)] +=
          growth(ring_->misses(kind, tier), misses_before_[index(kind)][index(tier)]);
  const std::uint64_t lost = growth(ring_->lost(), lost_before_);
  lost_ += lost;
  if (lost > 0) longer_.disturb();
}

void EmulatedSamples::collect(const LiveMemory& memory, Nanos now, std::vector<Sample>& out) {
  if (!started_) return;
  records_.clear();
  ring_->read(records_);
  for (const emulate::SampleRecord& record : records_) sample(record, memory, out);
  read_counts();
  if (now - window_ < options_.window) return;
  window_ = now;
  const unsigned before = longer();
  longer_.update(now);
  if (longer() != before)
    for (const AccessKind kind : both_kinds) (void)set(kind);
}

void EmulatedSamples::count(Counters& counters) const {
  counters.samples_taken += static_cast<double>(taken_);
  counters.samples_lost += static_cast<double>(lost_);
  for (std::size_t t = 0; t < tier_count; ++t) {
    counters.loads[t] += static_cast<double>(misses_[index(AccessKind::load)][t]);
    counters.stores[t] += static_cast<double>(misses_[index(AccessKind::store)][t]);
  }
}

std::string EmulatedSamples::text() const {
  std::string out = std::to_string(taken_) + " samples by the emulated machine";
  for (const auto& [count, what] :
       {std::pair{foreign_, "of other processes"}, std::pair{kernels_, "of the kernel"},
        std::pair{nobodys_, "of a process that is not told"},
        std::pair{unknown_, "of pages that are not known"},
        std::pair{invalid_, "neither loads nor stores"}})
    if (count > 0) out += ", " + std::to_string(count) + " " + what;
  if (lost_ > 0) out += "; " + std::to_string(lost_) + " lost for want of room";
  if (longer() > 1) out += "; periods are " + std::to_string(longer()) + " times as long for that";
  if (ring_->restarts() > 0)
    out += "; its ring contradicted itself " + std::to_string(ring_->restarts()) +
           " times, and what was in it was skipped";
  if (ring_->is_shared()) out += "; somebody else has taken samples from it, too";
  return out + "; the tiers' shares of accesses are those of the whole machine";
}

}  // namespace tt::live
