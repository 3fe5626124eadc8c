// SPDX-License-Identifier: MIT

// SampleRing: what the emulated machine's sampler and its reader in the guest share, 4 MiB that the
// guest sees as BAR 2 of an ivshmem device (vendor 0x1af4, device 0x1110).
//
// The machine has one processor, so one writer and one reader, which take turns: a record is whole
// before `head` tells of it. The reader says which misses it wants, and how often; numbers that
// only grow tell the machine's counters by kind of access and tier.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tt::emulate {

inline constexpr std::size_t ring_bytes = std::size_t{4} << 20;
inline constexpr std::uint64_t ring_magic = 0x676e6972'72656974;  // "tierring"
inline constexpr std::uint32_t ring_version = 1;

/// A miss of the last-level cache that was sampled.
struct SampleRecord {
  std::uint64_t time_ns;   // of the guest's virtual clock, from the machine's start
  std::uint64_t address;   // as the program sees it
  std::uint64_t physical;  // in the guest
  std::uint32_t pid;       // of the process (thread group); 0 when it is not known
  std::uint32_t tid;
  std::uint32_t kind;  // 0 a load, 1 a store
  std::uint32_t tier;  // 0 fast, 1 slow
};
static_assert(sizeof(SampleRecord) == 40);

struct SampleRing {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t record_bytes;
  std::uint64_t records;  // room

  // Written by the machine.
  std::uint64_t head;                                  // records written
  std::uint64_t lost;                                  // for want of room
  std::array<std::array<std::uint64_t, 2>, 2> misses;  // by kind and tier, of the whole machine

  // Written by the reader.
  std::uint64_t tail;  // records read
  /// By kind: every so many misses one is sampled; 0: none, unless an interval is set.
  std::array<std::uint64_t, 2> period;
  /// By kind, where no period is set: as many are sampled as one in so many nanoseconds is.
  std::array<std::uint64_t, 2> interval_ns;
};
inline constexpr std::size_t ring_header_bytes = 4096;
static_assert(sizeof(SampleRing) <= ring_header_bytes);
inline constexpr std::size_t ring_records = (ring_bytes - ring_header_bytes) / sizeof(SampleRecord);

}  // namespace tt::emulate
