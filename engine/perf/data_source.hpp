// SPDX-License-Identifier: MIT

// What a sample's data source (perf_mem_data_src in linux/perf_event.h) says of an access.
#pragma once

#include <linux/perf_event.h>

#include <cstdint>

namespace tt::perf {

constexpr std::uint64_t level_bit(std::uint64_t bits) { return bits << PERF_MEM_LVL_SHIFT; }

[[nodiscard]] constexpr bool is_load(std::uint64_t source) {
  return (source >> PERF_MEM_OP_SHIFT & PERF_MEM_OP_LOAD) != 0;
}
[[nodiscard]] constexpr bool is_store(std::uint64_t source) {
  return (source >> PERF_MEM_OP_SHIFT & PERF_MEM_OP_STORE) != 0;
}
/// Memory served it, near or far, or another socket's cache.
[[nodiscard]] constexpr bool from_memory(std::uint64_t source) {
  constexpr std::uint64_t level_cxl = 0x09;  // PERF_MEM_LVLNUM_CXL, later than many headers
  constexpr std::uint64_t beyond =
      level_bit(PERF_MEM_LVL_LOC_RAM | PERF_MEM_LVL_REM_RAM1 | PERF_MEM_LVL_REM_RAM2 |
                PERF_MEM_LVL_REM_CCE1 | PERF_MEM_LVL_REM_CCE2);
  if ((source & beyond) != 0 && (source & level_bit(PERF_MEM_LVL_MISS)) == 0) return true;
  const std::uint64_t number = source >> PERF_MEM_LVLNUM_SHIFT & 0xf;
  return number == PERF_MEM_LVLNUM_RAM || number == PERF_MEM_LVLNUM_PMEM || number == level_cxl;
}
[[nodiscard]] constexpr bool first_level_hit(std::uint64_t source) {
  return (source & level_bit(PERF_MEM_LVL_L1)) != 0 && (source & level_bit(PERF_MEM_LVL_HIT)) != 0;
}

}  // namespace tt::perf
