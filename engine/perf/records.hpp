// SPDX-License-Identifier: MIT

// The records in a ring of perf events: going through them, and reading what they hold. Bytes are
// taken from anywhere: whatever they are, nothing behind them is read.
#pragma once

#include <linux/perf_event.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

namespace tt::perf {

/// What follows the header of a PERF_RECORD_AUX: there is more in the event's AUX area.
struct AreaRecord {
  std::uint64_t begin = 0, bytes = 0;  // of all that was ever written there
  std::uint64_t flags = 0;             // PERF_AUX_FLAG_TRUNCATED and the like
};

/// The value at a place of a record. std::runtime_error if the record ends before it does.
template <typename T>
[[nodiscard]] T get(std::span<const std::byte> record, std::size_t at = 0) {
  T out;
  if (record.size() < sizeof(T) || at > record.size() - sizeof(T))
    throw std::runtime_error("a perf record of " + std::to_string(record.size()) +
                             " bytes is too short for its type");
  std::memcpy(&out, record.data() + at, sizeof(T));
  return out;
}

/// visit(header, what follows it) for each record, in order; returns the bytes of all of them: one
/// that is cut off is left. std::runtime_error for a size that no record has.
template <typename Visit>
std::size_t each_record(std::span<const std::byte> bytes, Visit visit) {
  std::size_t at = 0;
  while (bytes.size() - at >= sizeof(perf_event_header)) {
    const auto header = get<perf_event_header>(bytes, at);
    if (header.size < sizeof header || header.size % 8 != 0)
      throw std::runtime_error("a perf record of " + std::to_string(header.size) +
                               " bytes at byte " + std::to_string(at));
    if (header.size > bytes.size() - at) break;
    visit(header, bytes.subspan(at + sizeof header, header.size - sizeof header));
    at += header.size;
  }
  return at;
}

}  // namespace tt::perf
