// SPDX-License-Identifier: MIT

#include "emulate/sampler.hpp"

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
  if (interval == 0 || miss.time_ns < due_[kind]) return Wants::nothing;
  due_[kind] = miss.time_ns + interval;
  return Wants::by_time;
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
