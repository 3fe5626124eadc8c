// SPDX-License-Identifier: MIT

#include "track/exact.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <utility>

#include "track/lines.hpp"

namespace tt::track {
namespace {

/// Linear probing, at most 5/8 full. A slot with raw count 0 is free.
class Exact final : public Tracker {
  struct Slot {
    PageId page;
    std::uint32_t raw = 0;
    /// Halving that `raw` has last seen; it is one behind in slots that the sweep has not reached.
    std::uint32_t epoch = 0;
  };
  static constexpr std::uint64_t slots_per_line = line_bytes / sizeof(Slot);
  /// Room is made for a chunk of a batch at a time, so that its staged homes stay valid.
  static constexpr std::size_t chunk = 1024;
  static constexpr std::uint32_t max = std::numeric_limits<std::uint32_t>::max();

 public:
  explicit Exact(std::uint64_t expected_pages) { resize(capacity_for(expected_pages + chunk)); }

  void increment(std::span<const PageId> batch) override {
    update(batch, [](PageId page) { return PageCount{page, 1}; });
  }
  void increment(std::span<const PageCount> batch) override {
    update(batch, [](const PageCount& entry) { return entry; });
  }
  void get(std::span<const PageId> pages, std::span<std::uint32_t> out) const override {
    if (out.size() < pages.size()) throw std::invalid_argument("get: out is shorter than pages");
    for_each_chunk<std::uint64_t>(
        pages, [&](PageId page) { return stage<false>(page); },
        [&](std::span<const std::uint64_t> homes, std::size_t begin) {
          for (std::size_t i = 0; i < homes.size(); ++i)
            out[begin + i] = count(find(homes[i], pages[begin + i]));
        });
  }
  [[nodiscard]] std::uint32_t get(PageId page) const override {
    return count(find(home_of(page), page));
  }

  void begin_cooling() override {
    cool(lines());
    ++epoch_;
    cursor_ = 0;
  }
  std::uint64_t cool(std::uint64_t lines) override {
    const std::uint64_t done = std::min(lines, (slots_.size() - cursor_) / slots_per_line);
    const std::uint64_t end = cursor_ + done * slots_per_line;
    while (cursor_ < end) {
      Slot& slot = slots_[cursor_];
      if (slot.raw != 0) {
        slot.raw = count(slot);
        slot.epoch = epoch_;
        if (slot.raw == 0) {
          erase(cursor_);
          continue;  // a later page may stand here now
        }
      }
      ++cursor_;
    }
    return done;
  }
  [[nodiscard]] bool cooling() const override { return cursor_ < slots_.size(); }
  [[nodiscard]] std::uint64_t lines() const override { return slots_.size() / slots_per_line; }
  [[nodiscard]] std::uint32_t max_count() const override { return max; }
  [[nodiscard]] std::uint64_t bytes() const override { return slots_.size() * sizeof(Slot); }

 private:
  static std::uint64_t capacity_for(std::uint64_t pages) {
    if (pages > std::uint64_t{1} << 44)
      throw std::invalid_argument("exact tracker: too many pages");
    return std::bit_ceil(std::max<std::uint64_t>(pages + pages * 3 / 5 + 1, 64));
  }

  [[nodiscard]] std::uint64_t home_of(PageId page) const { return mix64(page.value) >> shift_; }
  [[nodiscard]] std::uint64_t after(std::uint64_t at) const { return (at + 1) & mask_; }

  template <bool Write>
  std::uint64_t stage(PageId page) const {
    const std::uint64_t home = home_of(page);
    __builtin_prefetch(&slots_[home], Write);
    return home;
  }

  /// The page's slot, or the free slot where it would go.
  [[nodiscard]] Slot& find(std::uint64_t home, PageId page) const {
    std::uint64_t at = home;
    while (slots_[at].raw != 0 && slots_[at].page != page) at = after(at);
    return slots_[at];
  }
  [[nodiscard]] std::uint32_t count(const Slot& slot) const {
    return slot.raw >> ((epoch_ - slot.epoch) & 1);
  }

  template <typename Item, typename CountOf>
  void update(std::span<const Item> batch, CountOf count_of) {
    for (std::size_t begin = 0; begin < batch.size(); begin += chunk) {
      const auto part = batch.subspan(begin, std::min(chunk, batch.size() - begin));
      reserve(used_ + part.size());
      for_each_chunk<std::uint64_t>(
          part, [&](const Item& item) { return stage<true>(count_of(item).page); },
          [&](std::span<const std::uint64_t> homes, std::size_t at) {
            for (std::size_t i = 0; i < homes.size(); ++i) add(homes[i], count_of(part[at + i]));
          });
    }
  }
  void add(std::uint64_t home, PageCount entry) {
    if (entry.count == 0) return;
    Slot& slot = find(home, entry.page);
    if (slot.raw == 0) {
      ++used_;
      slot = {entry.page, entry.count, epoch_};
      return;
    }
    const std::uint32_t old = count(slot);
    slot.raw = old + std::min(entry.count, max - old);
    slot.epoch = epoch_;
  }

  /// Frees a slot and closes the gap: pages behind it move back unless that would put them before
  /// their home. Whatever moves comes from behind the sweep's cursor and keeps its epoch, so the
  /// sweep misses nothing and halves nothing twice.
  void erase(std::uint64_t at) {
    std::uint64_t gap = at;
    for (std::uint64_t next = after(gap); slots_[next].raw != 0; next = after(next)) {
      const std::uint64_t home = home_of(slots_[next].page);
      if (((next - home) & mask_) < ((next - gap) & mask_)) continue;
      slots_[gap] = slots_[next];
      gap = next;
    }
    slots_[gap].raw = 0;
    --used_;
  }

  void reserve(std::uint64_t pages) {
    const std::uint64_t capacity = capacity_for(pages);
    if (capacity > slots_.size()) resize(capacity);
  }
  /// Moves all pages to a new table; this visits every slot and so ends a halving under way.
  void resize(std::uint64_t capacity) {
    const LineArray old_memory = std::exchange(memory_, LineArray(capacity / slots_per_line));
    const std::span<const Slot> old = std::exchange(slots_, {slots_in(memory_), capacity});
    mask_ = capacity - 1;
    shift_ = 64U - static_cast<unsigned>(std::countr_zero(capacity));
    cursor_ = capacity;
    used_ = 0;
    for (const Slot& slot : old)
      if (count(slot) != 0) add(home_of(slot.page), {slot.page, count(slot)});
  }
  static Slot* slots_in(const LineArray& memory) { return reinterpret_cast<Slot*>(memory.data()); }

  LineArray memory_{0};
  std::span<Slot> slots_;
  std::uint64_t mask_ = 0;
  unsigned shift_ = 0;
  std::uint64_t used_ = 0;
  std::uint64_t cursor_ = 0;
  std::uint32_t epoch_ = 0;
};

}  // namespace

std::unique_ptr<Tracker> make_exact(std::uint64_t expected_pages) {
  return std::make_unique<Exact>(expected_pages);
}

}  // namespace tt::track
