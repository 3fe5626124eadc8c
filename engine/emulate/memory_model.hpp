// SPDX-License-Identifier: MIT

// MemoryModel: what an access costs the emulated processor. It knows no emulator: the plugin shows
// it the accesses of a guest, the tests those of their own.
//
// Caches: a filter of virtual lines, which is inline in every access and stands for the first level;
// a second and a last level, set-associative with LRU, of physical lines. A miss of the last level
// costs the latency of the memory node that the line lies on, times the factor that the node's load
// has on it (TierSpec.loaded of the machine's profile; the load is that of the windows before).
//
// Overlap, as an out-of-order core has it:
//  - the third line in a row of one instruction, forwards or backwards, was prefetched: it costs its
//    share of what the line-fill buffers hold in flight, latency / buffers, of either level;
//  - a load whose address lies near a value that one of the last loads read is dependent: it costs
//    the whole latency;
//  - other misses overlap with the first one of a window of `window` instructions, `buffers` at a
//    time: those after the first cost a transfer.
// Of a program that tells how many of its misses overlap (markers.hpp), each costs its share of the
// latency, and hits cost nothing, as in the simulator; nothing is judged then. A store waits for what `store_stall` says (simulator: the same key).
//
// Left out: translation (page walks of the processor), write-backs, and what hyper-threads share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tt::emulate {

/// Picoseconds of the guest's clock: all costs are whole, so that results are the same everywhere.
using Picos = std::uint64_t;

/// Tags of physical lines, least recently used out. Ways are kept in order of use.
class TagCache {
 public:
  static constexpr std::size_t ways = 8;
  explicit TagCache(std::uint64_t bytes);
  /// Whether the line was there; it is from now on.
  bool access(std::uint64_t line) {
    Set& set = sets_[(line ^ line >> shift_) & mask_];
    if (set[0] == line) return true;
    std::size_t way = 1;
    while (way < ways && set[way] != line) ++way;
    const bool hit = way < ways;
    for (std::size_t i = hit ? way : ways - 1; i > 0; --i) set[i] = set[i - 1];
    set[0] = line;
    return hit;
  }
  void clear();

 private:
  using Set = std::array<std::uint64_t, ways>;
  std::vector<Set> sets_;
  std::uint64_t mask_;
  unsigned shift_;
};

struct MemoryOptions {
  struct Tier {
    Picos latency = 90'000;
    double gbps = 0;  // reads, 10^9 bytes/s; 0: no limit
    /// Utilisation, and the factor on the latency there: ascending, from (0, 1).
    std::vector<std::pair<double, double>> loaded;
    double store_stall = 1;
  };
  std::array<Tier, 2> tiers;
  std::uint64_t slow_from = 0;  // physical address
  std::uint64_t end = 0;        // of memory: what lies behind is a device
  std::uint64_t l2_bytes = 256 << 10;
  std::uint64_t llc_bytes = 2 << 20;
  Picos l2_hit = 1'000;
  Picos llc_hit = 15'000;
  unsigned window = 192;  // instructions
  unsigned buffers = 10;
};

class MemoryModel {
 public:
  static constexpr std::size_t filter_lines = 512;
  static constexpr unsigned line_shift = 6;

  /// What one instruction has accessed.
  struct Site {
    std::uint64_t last = 0;
    std::int64_t stride = 0;
    unsigned run = 0;
  };
  /// An access that the filter did not catch.
  struct Access {
    std::uint64_t address = 0;
    std::uint64_t physical = 0;
    std::uint64_t instructions = 0;  // executed until now
    std::uint64_t value = 0;         // read, if `has_value`
    bool has_value = false;
    bool store = false;
    /// Where the program tells: misses that are outstanding together, in thousandths, else 0; and
    /// what a load takes at least.
    std::uint64_t overlap = 0;
    Picos issue = 0;
  };
  enum class Outcome : std::uint8_t { device, l2, llc, prefetched, miss };
  struct Cost {
    Outcome outcome = Outcome::device;
    unsigned tier = 0;  // of prefetched and miss
    Picos picos = 0;
  };
  struct Counters {
    std::uint64_t l2_hits = 0, llc_hits = 0;
    std::array<std::uint64_t, 2> prefetched{}, misses{};  // by tier
    std::array<std::uint64_t, 2> stores{};                // of the misses
    std::uint64_t dependent = 0, overlapped = 0;
  };

  /// std::invalid_argument naming what is impossible.
  explicit MemoryModel(MemoryOptions options);

  /// Whether the line is not in the filter; it is from now on.
  bool passes_filter(std::uint64_t address) {
    const std::uint64_t line = address >> line_shift;
    std::uint64_t& tag = filter_[line % filter_lines];
    if (tag == line) [[likely]]
      return false;
    tag = line;
    return true;
  }
  /// Another process runs: its virtual lines are others.
  void clear_filter() { filter_.fill(~std::uint64_t{0}); }

  [[nodiscard]] Cost access(const Access& access, Site& site);
  /// The time that has passed is the model's only clock: what load there was follows from it.
  void passed(Picos now);

  [[nodiscard]] const Counters& counters() const { return counters_; }
  void clear_counters() { counters_ = {}; }
  /// Latency of a miss now, with what load does to it.
  [[nodiscard]] Picos latency(unsigned tier) const { return latency_[tier]; }

 private:
  [[nodiscard]] bool streams(Site& site, std::uint64_t line) const;
  [[nodiscard]] bool depends(std::uint64_t address) const;
  Picos overlapped(const Access& access, unsigned tier);

  const MemoryOptions options_;
  std::array<std::uint64_t, filter_lines> filter_;
  TagCache l2_, llc_;
  std::array<Picos, 2> latency_{};
  std::array<std::uint64_t, 2> lines_{};  // fetched in this window
  std::array<double, 2> load_{};          // utilisation
  Picos window_began_ = 0;
  Counters counters_;
  // Misses in flight.
  std::uint64_t first_at_ = 0;
  unsigned in_flight_ = 0;
  Picos longest_ = 0;
  std::array<std::uint64_t, 8> values_{};
  std::size_t value_ = 0;
};

}  // namespace tt::emulate
