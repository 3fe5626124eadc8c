// SPDX-License-Identifier: MIT

#include "emulate/sampler.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

namespace tt::emulate {
namespace {

std::uint64_t told(std::uint64_t& word) {
  return std::atomic_ref(word).load(std::memory_order_relaxed);
}

void tell(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

}  // namespace

Sampler::Sampler(void* memory)
    : ring_(*new (std::memset(memory, 0, ring_bytes)) SampleRing{}),
      records_(reinterpret_cast<SampleRecord*>(static_cast<char*>(memory) + ring_header_bytes)) {
  ring_.version = ring_version;
  ring_.record_bytes = sizeof(SampleRecord);
  ring_.records = ring_records;
  tell(ring_.magic, ring_magic);
}

Sampler::Wants Sampler::wants(const Miss& miss) {
  const unsigned kind = miss.store;
  ++ring_.misses[kind][miss.tier];
  if (const std::uint64_t period = told(ring_.period[kind]); period > 0) {
    if (left_[kind] > period) left_[kind] = period;  // a shorter one holds at once
    if (left_[kind] > 1) {
      --left_[kind];
      return Wants::nothing;
    }
    left_[kind] = period;
    return Wants::by_number;
  }
  const std::uint64_t interval = told(ring_.interval_ns[kind]);
  return interval > 0 && pace_[kind].due(miss.time_ns, interval) ? Wants::by_time : Wants::nothing;
}

bool Sampler::Pace::due(std::uint64_t now, std::uint64_t interval) {
  if (now >= tick_ + tick_ns) {
    // Those that passed without a miss change nothing.
    if (seen_ > 0) adjust(interval, tick_ns, seen_);
    seen_ = 0;
    tick_ = now - now % tick_ns;
    if (left_ > 8 * period_) left_ = 1;
  }
  ++seen_;
  if (left_ > 1) {
    --left_;
    return false;
  }
  if (const std::uint64_t between = now - last_; between > 0 && between < 2 * tick_ns)
    adjust(interval, between, period_);
  last_ = now;
  left_ = period_;
  return true;
}

void Sampler::Pace::adjust(std::uint64_t interval, std::uint64_t time, std::uint64_t misses) {
  // In floating point, where the product cannot overflow.
  const double ideal =
      static_cast<double>(misses) * static_cast<double>(interval) / static_cast<double>(time);
  const auto wanted = static_cast<std::int64_t>(std::min(ideal, 1e18));
  const std::int64_t apart = wanted - static_cast<std::int64_t>(period_);
  const std::int64_t step = (apart + (apart >= 0 ? 7 : -7)) / 8;
  period_ = static_cast<std::uint64_t>(std::max<std::int64_t>(1, wanted - apart + step));
}

void Sampler::take(const Miss& miss, std::uint32_t pid, std::uint32_t tid) {
  const std::uint64_t head = ring_.head;
  if (head - told(ring_.tail) >= ring_records) {
    tell(ring_.lost, ring_.lost + 1);
    return;
  }
  records_[head % ring_records] = {miss.time_ns, miss.address, miss.physical, pid,
                                   tid,          miss.store,   miss.tier};
  tell(ring_.head, head + 1);
}

}  // namespace tt::emulate
