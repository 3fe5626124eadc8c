// SPDX-License-Identifier: MIT

// Records of Arm's Statistical Profiling Extension, as a processor writes them into the AUX area of
// a perf event (Arm Architecture Reference Manual for A-profile, DDI 0487, "Statistical Profiling
// Extension Sample Record Specification").
//
// A record is of one operation, and consists of packets: a header of one or two bytes, which says
// what it is and in bits 5:4 how long its value is (1, 2, 4 or 8 bytes), and the value. It ends
// with an end packet or a timestamp. Bytes are taken from anywhere: whatever they are, nothing
// behind them is read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tt::perf {

struct SpePacket {
  enum class Type : std::uint8_t {
    padding,
    end,
    timestamp,
    events,
    source,     // where the data came from; what a value means, a processor's manual says
    context,    // CONTEXTIDR: of the thread that ran
    operation,  // its class is the index
    address,    // which one is the index
    counter,    // which one is the index
    unknown,    // of a later version
  };
  Type type = Type::unknown;
  unsigned index = 0;
  std::uint64_t value = 0;
  std::size_t bytes = 0;  // of header and value
};

/// The packet with which `bytes` begin; `at` is how far into the area they stand, which tells how
/// long an alignment is. Nothing if it is cut off, or if no packet begins so.
[[nodiscard]] std::optional<SpePacket> spe_packet(std::span<const std::byte> bytes,
                                                  std::uint64_t at);

struct SpeRecord {
  enum class Operation : std::uint8_t { other, load, store };
  // Bits of `events`.
  static constexpr std::uint64_t retired = 1U << 1, first_level_miss = 1U << 3,
                                 last_level_access = 1U << 8, last_level_miss = 1U << 9,
                                 remote = 1U << 10;

  Operation operation = Operation::other;
  std::optional<std::uint64_t> address;  // of data, virtual: 56 bits, without a tag
  std::uint64_t events = 0;
  std::uint64_t cycles = 0;  // from when the operation was chosen until it was done
  std::optional<std::uint16_t> source;
  std::optional<std::uint32_t> thread;  // its number in the kernel's first PID namespace
};

/// Takes in what a packet tells of its record.
void add(const SpePacket& packet, SpeRecord& record);

/// visit(record) for each record that is whole, in order. `at`: how far into the area they begin,
/// where a record begins, too. False if the last one is cut off, or if no packet begins where one
/// must: what follows is then left, since nothing tells where the next record begins.
template <typename Visit>
[[nodiscard]] bool each_spe_record(std::span<const std::byte> bytes, std::uint64_t at,
                                   Visit visit) {
  using Type = SpePacket::Type;
  SpeRecord record;
  bool begun = false;
  while (!bytes.empty()) {
    const std::optional<SpePacket> packet = spe_packet(bytes, at);
    if (!packet) return false;
    bytes = bytes.subspan(packet->bytes);
    at += packet->bytes;
    if (packet->type == Type::padding) continue;
    if (packet->type != Type::end && packet->type != Type::timestamp) {
      add(*packet, record);
      begun = true;
      continue;
    }
    visit(static_cast<const SpeRecord&>(record));
    record = {};
    begun = false;
  }
  return !begun;
}

}  // namespace tt::perf
