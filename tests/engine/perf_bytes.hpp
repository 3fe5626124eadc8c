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
inline void record(Bytes& out, std::uint32_t type, const Bytes& body) {
  put(out, perf_event_header{type, 0, static_cast<std::uint16_t>(8 + body.size())});
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

}  // namespace tt::test
