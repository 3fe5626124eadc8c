// SPDX-License-Identifier: MIT

#include "live/hardware_sample.hpp"

#include <stdexcept>
#include <string>

#include "perf/data_source.hpp"
#include "perf/records.hpp"

namespace tt::live {
namespace {

using Fate = HardwareSample::Fate;
using perf::get;

/// What they begin with, in the order of linux/perf_event.h.
struct DataSourceRecord {
  std::uint32_t pid, tid;
  std::uint64_t address, period, source;
};
struct FaultRecord {
  std::uint32_t pid, tid;
  std::uint64_t address, period;
};
struct IbsRecord {
  std::uint32_t pid, tid;
  std::uint64_t period;
  std::uint32_t raw_bytes;
  std::uint32_t caps;  // raw data begins here: what the processor can do
};
// Behind it the registers, each of 64 bits, which lie at multiples of four bytes.
constexpr std::size_t ibs_registers = 24;
enum Register : std::uint8_t { op_ctl, op_rip, op_data, op_data2, op_data3, linear_address, count };
constexpr std::size_t ibs_raw_bytes = 4 + 8 * Register::count;

constexpr std::uint32_t caps_zen4 = 1U << 11;
// Of IbsOpData3.
constexpr std::uint64_t load_op = 1U << 0, store_op = 1U << 1, uncacheable = 1U << 14,
                        linear_address_valid = 1U << 17, l2_miss = 1U << 20,
                        software_prefetch = 1U << 21;
/// Of IbsOpData2, where the data came from: memory of the machine, persistent memory, and memory
/// behind an extension (CXL). Before Zen 4 the field has three bits.
constexpr std::uint64_t source_dram = 3, source_pmem = 6, source_extension = 8, source_peer = 12;

bool by_user(const perf_event_header& header) {
  return (header.misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_USER;
}

}  // namespace

std::uint64_t sample_type(SampleLayout layout) {
  switch (layout) {
    case SampleLayout::data_source:
      return PERF_SAMPLE_TID | PERF_SAMPLE_ADDR | PERF_SAMPLE_PERIOD | PERF_SAMPLE_DATA_SRC;
    case SampleLayout::ibs:
      return PERF_SAMPLE_TID | PERF_SAMPLE_PERIOD | PERF_SAMPLE_RAW;
    case SampleLayout::spe:
      return 0;  // the processor writes what it has, elsewhere
    case SampleLayout::fault:
      return PERF_SAMPLE_TID | PERF_SAMPLE_ADDR | PERF_SAMPLE_PERIOD;
  }
  return 0;
}

Fate decode_data_source(const perf_event_header& header, std::span<const std::byte> body,
                        HardwareSample& out) {
  const auto record = get<DataSourceRecord>(body);
  if (!by_user(header)) return Fate::outside;
  const bool store = perf::is_store(record.source);
  if ((!store && !perf::is_load(record.source)) || !in_user_space(record.address))
    return Fate::other;
  if (store ? perf::first_level_hit(record.source) : !perf::from_memory(record.source))
    return Fate::cached;
  out = {static_cast<int>(record.pid), store ? AccessKind::store : AccessKind::load, record.address,
         record.period};
  return Fate::access;
}

Fate decode_fault(std::span<const std::byte> body, HardwareSample& out) {
  const auto record = get<FaultRecord>(body);
  if (!in_user_space(record.address)) return Fate::outside;
  out = {static_cast<int>(record.pid), AccessKind::load, record.address, record.period};
  return Fate::access;
}

Fate decode_ibs(const perf_event_header& header, std::span<const std::byte> body,
                HardwareSample& out) {
  const auto record = get<IbsRecord>(body);
  if (record.raw_bytes < ibs_raw_bytes || record.raw_bytes > body.size() - 20)
    throw std::runtime_error("a sample of IBS with " + std::to_string(record.raw_bytes) +
                             " bytes of registers in a perf record of " +
                             std::to_string(body.size()));
  const auto value = [&](Register which) {
    return get<std::uint64_t>(body, ibs_registers + 8 * std::size_t{which});
  };
  if (!by_user(header)) return Fate::outside;
  const std::uint64_t data3 = value(op_data3), address = value(linear_address);
  const bool store = (data3 & store_op) != 0;
  // What is not cacheable is a device's, and what a prefetch fetches nobody may want.
  if ((data3 & (load_op | store_op)) == 0 || (data3 & linear_address_valid) == 0 ||
      (data3 & (uncacheable | software_prefetch)) != 0 || !in_user_space(address))
    return Fate::other;
  if ((data3 & l2_miss) == 0) return Fate::cached;
  if (!store) {  // of stores it is not told
    const std::uint64_t data2 = value(op_data2);
    const bool zen4 = (record.caps & caps_zen4) != 0;
    const std::uint64_t source = (data2 & 7) | (zen4 ? (data2 >> 6 & 3) << 3 : 0);
    const bool memory =
        source == source_dram ||
        (zen4 && (source == source_pmem || source == source_extension || source == source_peer));
    if (!memory) return Fate::cached;
  }
  out = {static_cast<int>(record.pid), store ? AccessKind::store : AccessKind::load, address,
         record.period};
  return Fate::access;
}

Fate decode_spe(const perf::SpeRecord& record, bool knows_sources, std::uint64_t period,
                HardwareSample& out) {
  using perf::SpeRecord;
  constexpr std::uint64_t upper_half = std::uint64_t{1} << 55;  // of 56 bits: the kernel's
  if (record.operation == SpeRecord::Operation::other || !record.thread ||
      record.address.value_or(0) == 0)
    return Fate::other;
  if ((*record.address & upper_half) != 0) return Fate::outside;
  const bool store = record.operation == SpeRecord::Operation::store;
  const auto has = [&](std::uint64_t bits) { return (record.events & bits) != 0; };
  bool missed = has(SpeRecord::first_level_miss);
  if (!store && knows_sources && record.source) {
    // As the manuals of Neoverse cores have it, and synth_data_source of Linux's tools/perf.
    constexpr std::uint16_t other_socket = 0xd, dram = 0xe;
    missed = *record.source == other_socket || *record.source == dram;
  } else if (!store &&
             has(SpeRecord::last_level_access | SpeRecord::last_level_miss | SpeRecord::remote)) {
    missed = has(SpeRecord::last_level_miss | SpeRecord::remote);
  } else if (!store) {
    missed = record.cycles >= memory_cycles;
  }
  if (!missed) return Fate::cached;
  out = {static_cast<int>(*record.thread), store ? AccessKind::store : AccessKind::load,
         *record.address, period};
  return Fate::access;
}

}  // namespace tt::live
