// SPDX-License-Identifier: MIT

// Pattern: blocks that a recorder keeps, to append them again, or others that are drawn like them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/rng.hpp"
#include "trace/stream.hpp"

namespace tt::trace {

class Pattern {
 public:
  using Append = std::function<void(const Block&)>;

  /// Numbers from `page` and `object` on are those of what the pattern maps itself. A repetition
  /// maps it anew, `pages` and `objects` higher.
  struct Shift {
    std::uint64_t page = 0;
    std::uint64_t object = 0;
    std::uint64_t pages = 0;
    std::uint64_t objects = 0;
  };

  void keep(const Block& block);
  /// Whether there are blocks, all of them timed or all not, and none maps or frees anything.
  [[nodiscard]] bool drawable(bool timed) const;
  /// Likewise, but they may map, and free what lies at `own` or above.
  [[nodiscard]] bool repeatable(bool timed, std::uint64_t own) const;

  /// The blocks as they were. What they touched of other mappings than their own is there already.
  void repeat(const Shift& shift, const Append& append) const;
  /// Blocks for `times` times the pattern's length, the last one shorter than the others, with
  /// counts that are Poisson with the pattern's means.
  void draw(double times, Rng& rng, const Append& append) const;

 private:
  struct Entries {
    std::uint32_t stream_class = 0;
    AccessKind kind = AccessKind::load;
    std::vector<std::uint32_t> pages;
    std::vector<std::uint16_t> counts;
  };
  struct Sampled {
    std::uint32_t kind = 0;
    double compute_ns = 0;
    std::vector<OpAccess> accesses;
  };
  struct Kept {
    bool timed = false;
    double nominal_ns = 0;
    std::vector<double> compute_ns;
    std::vector<std::uint64_t> operations;
    std::vector<Event> events;
    std::vector<Entries> entries;
    std::vector<Sampled> sampled;
  };
  [[nodiscard]] bool uniform(bool timed) const;
  [[nodiscard]] static std::vector<Operation> operations(const std::vector<Sampled>& sampled);

  std::vector<Kept> blocks_;
};

}  // namespace tt::trace
