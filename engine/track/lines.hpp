// SPDX-License-Identifier: MIT

// LineArray: zeroed memory in whole 64-byte lines, on huge pages where the system grants them; and
// the staging loop that hides memory latency behind a batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace tt::track {

inline constexpr std::size_t line_bytes = 64;

/// Owns `lines` zeroed 64-byte lines. Random access to a filter of hundreds of MiB is bound by TLB
/// misses on 4 KiB pages, so large arrays ask for 2 MiB pages and are touched here, not later.
class LineArray {
 public:
  /// Throws std::bad_alloc.
  explicit LineArray(std::uint64_t lines);
  [[nodiscard]] std::uint8_t* data() const { return memory_.get(); }
  [[nodiscard]] std::uint64_t lines() const { return lines_; }
  [[nodiscard]] std::uint8_t* line(std::uint64_t index) const {
    return memory_.get() + index * line_bytes;
  }

 private:
  struct Free {
    void operator()(std::uint8_t* memory) const;
  };
  std::unique_ptr<std::uint8_t, Free> memory_;
  std::uint64_t lines_;
};

/// Walks a batch in chunks: stage(item) says where an item's data is and prefetches it; then, when
/// the next chunk is on its way too, use(keys, begin) handles the chunk of items from `begin` on.
template <typename Key, typename Item, typename Stage, typename Use>
[[gnu::always_inline]] inline void for_each_chunk(std::span<const Item> items, Stage stage,
                                                  Use use) {
  // More than a core's outstanding L1 misses (10 to 24), so that none of them idles.
  constexpr std::size_t chunk = 32;
  Key keys[2][chunk];
  const auto stage_chunk = [&](std::size_t begin, Key* out) {
    const std::size_t end = std::min(begin + chunk, items.size());
    for (std::size_t i = begin; i < end; ++i) out[i - begin] = stage(items[i]);
  };
  unsigned current = 0;
  stage_chunk(0, keys[current]);
  for (std::size_t begin = 0; begin < items.size(); begin += chunk, current ^= 1) {
    stage_chunk(begin + chunk, keys[current ^ 1]);
    use(std::span<const Key>(keys[current], std::min(chunk, items.size() - begin)), begin);
  }
}

}  // namespace tt::track
