// SPDX-License-Identifier: MIT

// AccessedAgain: pages whose accessed bits were cleared within a block that has been played, and
// whether the block's accesses after that have set them again.
//
// A block's accesses are counted by page, without their order: n of them are spread evenly, so that
// one lies between two shares x and y of the block with the probability 1 - (1 - (y - x))^n. They
// are only counted if somebody asks.
#pragma once

#include <cstdint>

#include "core/math.hpp"
#include "core/rng.hpp"
#include "sim/page_bits.hpp"
#include "sim/pages.hpp"
#include "sim/per_page.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

class AccessedAgain {
 public:
  explicit AccessedAgain(const PageTable& pages) : pages_(pages) {}

  /// The block, which outlives its share of time, has been played; so far all of it has passed.
  void begin(const trace::Block& block) {
    block_ = &block;
    ++number_;
    now_ = 1;
    counted_ = false;
  }
  /// So much of it has passed.
  void at(double share) { now_ = static_cast<float>(share); }
  /// Whether no bit can have been set again: nothing was ever cleared within a block.
  [[nodiscard]] bool is_idle() const { return now_ >= 1 && !seen_; }
  void cleared(std::uint64_t page) {
    if (!seen_) seen_ = PerPage<Seen>{pages_.size()};
    of(page).since = now_;
  }
  /// Of a page whose bit is clear.
  [[nodiscard]] bool is_accessed(std::uint64_t page, Rng& rng) {
    if (!seen_ || seen_[page].block != number_ || seen_[page].since >= now_) return false;
    if (!counted_) count();
    const Seen& seen = seen_[page];
    if (seen.accesses == 0) return false;
    const double apart = double{now_} - double{seen.since};
    return rng.uniform() < -math::expm1(static_cast<double>(seen.accesses) * math::log1p(-apart));
  }

 private:
  struct Seen {
    std::uint32_t block = 0;
    std::uint32_t accesses = 0;
    float since = never;  // share of the block at which it was cleared
  };
  static constexpr float never = 2;

  Seen& of(std::uint64_t page) {
    Seen& seen = seen_[page];
    if (seen.block != number_) seen = {.block = number_};
    return seen;
  }
  void count() {
    counted_ = true;
    for (const trace::Segment& segment : block_->segments)
      for (std::size_t i = 0; i < segment.pages.size(); ++i)
        of(pages_.unit(segment.pages[i] >> pages_.shift()).first.value).accesses +=
            segment.counts[i];
  }

  const PageTable& pages_;
  const trace::Block* block_ = nullptr;
  std::uint32_t number_ = 0;
  float now_ = 1;
  bool counted_ = false;
  PerPage<Seen> seen_;
};

}  // namespace tt::sim
