// LineArray: zeroed memory in whole 64-byte lines, on huge pages where the system grants them; and
// the staging loop that hides memory latency behind a batch.
#pragma once

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

/// Calls stage(item) for each item — which says where the item's data is and prefetches it — and
/// use(key, item, index) a chunk later, when the data has arrived.
template <typename Key, typename Item, typename Stage, typename Use>
inline void for_each_prefetched(std::span<const Item> items, Stage stage, Use use) {
  // Twice a core's outstanding L1 misses (10 to 24), so that none of them idles.
  constexpr std::size_t chunk = 32;
  Key keys[2][chunk];
  const std::size_t n = items.size();
  const auto stage_chunk = [&](std::size_t begin, Key* out) {
    const std::size_t end = begin + chunk < n ? begin + chunk : n;
    for (std::size_t i = begin; i < end; ++i) out[i - begin] = stage(items[i]);
  };
  unsigned current = 0;
  stage_chunk(0, keys[current]);
  for (std::size_t begin = 0; begin < n; begin += chunk, current ^= 1) {
    stage_chunk(begin + chunk, keys[current ^ 1]);
    const std::size_t end = begin + chunk < n ? begin + chunk : n;
    for (std::size_t i = begin; i < end; ++i) use(keys[current][i - begin], items[i], i);
  }
}

}  // namespace tt::track
