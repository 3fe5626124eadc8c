// SPDX-License-Identifier: MIT

// SampledOperations: of the operations of the open block, those that are kept whole for latency
// percentiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/assert.hpp"
#include "core/math.hpp"
#include "core/rng.hpp"
#include "trace/stream.hpp"

namespace tt::trace {

class SampledOperations {
 public:
  SampledOperations(double probability, Rng& rng)
      : probability_(probability), until_next_(draw(rng)) {}

  /// Whether the operation that is under way is sampled.
  [[nodiscard]] bool sampling() const { return sampling_; }

  void begin(std::uint32_t kind, Rng& rng) {
    if (until_next_-- > 0) return;
    sampling_ = true;
    until_next_ = draw(rng);
    sampled_.push_back({kind, 0, accesses_.size(), 0});
  }
  void end() {
    if (sampling_) sampled_.back().count = accesses_.size() - sampled_.back().first;
    sampling_ = false;
  }

  /// What the sampled operation under way does: accesses of one page, at most 64, and computation.
  void note(std::uint32_t page, std::uint32_t count, std::uint32_t stream_class, AccessKind kind) {
    constexpr std::uint32_t most = std::numeric_limits<std::uint16_t>::max();
    TT_ASSERT(sampling_ && count <= page_lines);
    const auto added = static_cast<std::uint16_t>(count);
    if (accesses_.size() > sampled_.back().first) {
      OpAccess& last = accesses_.back();
      if (last.page == page && last.stream_class == stream_class && last.kind == kind &&
          last.count <= most - added) {
        last.count = static_cast<std::uint16_t>(last.count + added);
        return;
      }
    }
    accesses_.push_back({page, added, static_cast<std::uint8_t>(stream_class), kind});
  }
  void note_compute(double nanoseconds) { sampled_.back().compute_ns += nanoseconds; }

  /// Valid until clear().
  void describe(Block& block) const {
    for (const Kept& operation : sampled_)
      block.sampled.push_back({operation.kind, operation.compute_ns,
                               std::span(accesses_).subspan(operation.first, operation.count)});
  }
  void clear() {
    TT_ASSERT(!sampling_);  // an operation is in one block
    sampled_.clear();
    accesses_.clear();
  }

 private:
  struct Kept {
    std::uint32_t kind;
    double compute_ns;
    std::size_t first;  // in accesses_
    std::size_t count;
  };

  /// Operations until the next sampled one: geometric, so that one draw serves many operations.
  [[nodiscard]] std::uint64_t draw(Rng& rng) const {
    if (probability_ >= 1) return 0;
    if (probability_ <= 0) return std::numeric_limits<std::uint64_t>::max();
    const double skipped = math::log1p(-rng.uniform()) / math::log1p(-probability_);
    return static_cast<std::uint64_t>(std::min(skipped, 1e18));
  }

  double probability_;
  std::uint64_t until_next_;
  bool sampling_ = false;
  std::vector<Kept> sampled_;
  std::vector<OpAccess> accesses_;
};

}  // namespace tt::trace
