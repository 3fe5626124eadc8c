// SPDX-License-Identifier: MIT

// Records as the rings of perf events hold them, made by hand.
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "live/damon_trace.hpp"

namespace tt::test {

using Bytes = std::vector<std::byte>;

template <typename T>
void put(Bytes& out, T value) {
  const auto* const at = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), at, at + sizeof value);
}
inline void record(Bytes& out, std::uint32_t type, const Bytes& body,
                   std::uint16_t misc = PERF_RECORD_MISC_USER) {
  put(out, perf_event_header{type, misc, static_cast<std::uint16_t>(8 + body.size())});
  out.insert(out.end(), body.begin(), body.end());
}
inline void region(Bytes& out, std::uint64_t time, std::uint64_t target, std::uint32_t count,
                   const live::DamonRegion& each) {
  Bytes body;
  put(body, time);
  put(body, std::uint32_t{52});  // the fields, and four bytes of padding
  put(body, std::uint64_t{533});
  put(body, target);
  put(body, std::uint64_t{count});
  put(body, each.begin);
  put(body, each.end);
  put(body, static_cast<std::uint32_t>(each.accesses));
  put(body, static_cast<std::uint32_t>(each.age));
  put(body, std::uint32_t{0});
  record(out, PERF_RECORD_SAMPLE, body);
}
inline void lost(Bytes& out, std::uint64_t count) {
  Bytes body;
  put(body, std::uint64_t{1});
  put(body, count);
  record(out, PERF_RECORD_LOST, body);
}

/// A sample as PEBS's events are opened: with process, address, period and data source.
inline void pebs_sample(Bytes& out, int pid, std::uint64_t address, std::uint64_t source,
                        std::uint64_t period, std::uint16_t misc = PERF_RECORD_MISC_USER) {
  Bytes body;
  put(body, pid);
  put(body, pid + 1);  // the thread
  put(body, address);
  put(body, period);
  put(body, source);
  record(out, PERF_RECORD_SAMPLE, body, misc);
}
inline constexpr std::uint64_t source_of(std::uint64_t operation, std::uint64_t levels) {
  return operation << PERF_MEM_OP_SHIFT | levels << PERF_MEM_LVL_SHIFT;
}
inline constexpr std::uint64_t memory_load =
    source_of(PERF_MEM_OP_LOAD, PERF_MEM_LVL_LOC_RAM | PERF_MEM_LVL_HIT);
inline constexpr std::uint64_t missing_store =
    source_of(PERF_MEM_OP_STORE, PERF_MEM_LVL_L1 | PERF_MEM_LVL_MISS);

/// A page fault, which is of the process also where the kernel accessed its page.
inline void fault(Bytes& out, int pid, std::uint64_t address, std::uint64_t period,
                  std::uint16_t misc = PERF_RECORD_MISC_USER) {
  Bytes body;
  put(body, pid);
  put(body, pid + 1);
  put(body, address);
  put(body, period);
  record(out, PERF_RECORD_SAMPLE, body, misc);
}

/// Registers of IBS in the order of their numbers, IbsOpCtl first.
struct IbsRegisters {
  std::uint64_t data2 = 3;                               // memory of the machine
  std::uint64_t data3 = 1 | 1 << 7 | 1 << 17 | 1 << 20;  // a load with an address that missed
  std::uint64_t address = 0;
  std::uint32_t caps = 1 << 11;  // Zen 4
};
inline void ibs_sample(Bytes& out, int pid, std::uint64_t period, const IbsRegisters& registers,
                       std::uint16_t misc = PERF_RECORD_MISC_USER) {
  Bytes body;
  put(body, pid);
  put(body, pid + 1);
  put(body, period);
  put(body, std::uint32_t{4 + 8 * 7});
  put(body, registers.caps);
  for (const std::uint64_t value :
       {std::uint64_t{0}, std::uint64_t{0x401000}, std::uint64_t{0}, registers.data2,
        registers.data3, registers.address, std::uint64_t{0}})
    put(body, value);
  record(out, PERF_RECORD_SAMPLE, body, misc);
}

/// A record of SPE, in the order in which processors write its packets; 64 bytes.
struct SpeFields {
  int thread = 0;
  std::uint64_t address = 0;
  bool store = false;
  std::uint64_t events = 0b1110;  // done, and missed the first cache
  int source = -1;                // none
  std::uint16_t cycles = 300;
  bool timed = false;
};
inline void spe_record(Bytes& out, const SpeFields& fields) {
  const std::size_t begin = out.size();
  const auto packet = [&](std::uint8_t header, auto value) {
    put(out, header);
    put(out, value);
  };
  packet(0xb0, std::uint64_t{0x401000});  // the instruction
  if (fields.thread > 0) packet(0x65, static_cast<std::uint32_t>(fields.thread));
  packet(0x49, static_cast<std::uint8_t>(fields.store ? 1 : 0));
  packet(0x62, static_cast<std::uint32_t>(fields.events));
  packet(0x99, std::uint16_t{7});  // until it was issued
  packet(0x98, fields.cycles);
  packet(0xb2, fields.address);
  packet(0x9a, std::uint16_t{1});  // of translation
  if (fields.source >= 0) packet(0x43, static_cast<std::uint8_t>(fields.source));
  if (fields.timed)
    packet(0x71, std::uint64_t{0x123456789});
  else
    put(out, std::uint8_t{1});
  out.resize(begin + 64);
}
/// That there is more in an area.
inline void area_record(Bytes& out, std::uint64_t begin, std::uint64_t bytes,
                        std::uint64_t flags = 0) {
  Bytes body;
  for (const std::uint64_t value : {begin, bytes, flags}) put(body, value);
  record(out, PERF_RECORD_AUX, body);
}

}  // namespace tt::test
