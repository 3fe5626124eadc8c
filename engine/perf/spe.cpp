// SPDX-License-Identifier: MIT

#include "perf/spe.hpp"

#include <algorithm>
#include <cstring>

namespace tt::perf {
namespace {

using Type = SpePacket::Type;

constexpr unsigned extended = 0x20;   // bits 7:2 of the first of two bytes
constexpr unsigned has_value = 0xc0;  // one of these bits, in headers that a value follows

Type type_of(unsigned header) {
  if (header == 0x71) return Type::timestamp;
  if ((header & 0xcf) == 0x42) return Type::events;
  if ((header & 0xcf) == 0x43) return Type::source;
  if ((header & 0xfc) == 0x64) return Type::context;
  if ((header & 0xfc) == 0x48) return Type::operation;
  if ((header & 0xf8) == 0xb0) return Type::address;
  if ((header & 0xf8) == 0x98) return Type::counter;
  return Type::unknown;
}

}  // namespace

std::optional<SpePacket> spe_packet(std::span<const std::byte> bytes, std::uint64_t at) {
  if (bytes.empty()) return std::nullopt;
  SpePacket out;
  auto header = std::to_integer<unsigned>(bytes[0]);
  std::size_t value_at = 1;
  unsigned high_index = 0;
  if (header <= 1) {
    out.type = header == 0 ? Type::padding : Type::end;
    out.bytes = 1;
    return out;
  }
  if ((header & 0xfc) == extended) {
    if (bytes.size() < 2) return std::nullopt;
    high_index = (header & 3) << 3;
    const std::uint64_t alignment = std::uint64_t{2} << (header & 3);
    header = std::to_integer<unsigned>(bytes[1]);
    value_at = 2;
    if (header == 0) {  // nothing up to the next multiple
      out.type = Type::padding;
      out.bytes = std::max<std::size_t>(2, alignment - at % alignment);
      return out.bytes <= bytes.size() ? std::optional{out} : std::nullopt;
    }
  }
  if ((header & has_value) == 0) return std::nullopt;
  const std::size_t value_bytes = std::size_t{1} << (header >> 4 & 3);
  if (bytes.size() < value_at + value_bytes) return std::nullopt;
  out.type = type_of(header);
  if (out.type == Type::address || out.type == Type::counter) {
    out.index = high_index | (header & 7);
  } else if (value_at > 1) {  // nothing else has such a header
    out.type = Type::unknown;
  } else {
    out.index = header & 3;  // of a context or an operation
  }
  std::memcpy(&out.value, &bytes[value_at], value_bytes);  // the lowest byte first, as here
  out.bytes = value_at + value_bytes;
  return out;
}

void add(const SpePacket& packet, SpeRecord& record) {
  constexpr unsigned loads_and_stores = 1, data_address = 2, total_latency = 0;
  constexpr std::uint64_t stores = 1, address_bits = (std::uint64_t{1} << 56) - 1;
  using Operation = SpeRecord::Operation;
  switch (packet.type) {
    case Type::events:
      record.events = packet.value;
      break;
    case Type::source:
      record.source = static_cast<std::uint16_t>(packet.value);
      break;
    case Type::context:
      record.thread = static_cast<std::uint32_t>(packet.value);
      break;
    case Type::operation:
      record.operation = packet.index != loads_and_stores ? Operation::other
                         : (packet.value & stores) != 0   ? Operation::store
                                                          : Operation::load;
      break;
    case Type::address:
      if (packet.index == data_address) record.address = packet.value & address_bits;
      break;
    case Type::counter:
      if (packet.index == total_latency) record.cycles = packet.value;
      break;
    default:
      break;
  }
}

}  // namespace tt::perf
