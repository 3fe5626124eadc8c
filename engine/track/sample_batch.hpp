// SPDX-License-Identifier: MIT

// SampleBatch: gathers samples into batches and counts a batch in a tracker, part by part and tier
// by tier, with every page's count before and after.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/seam.hpp"
#include "track/coalesce.hpp"
#include "track/tracker.hpp"

namespace tt::track {

/// The distinct pages of some samples, and what counting them did: counts[i] says how often
/// pages[i] was sampled, before[i] and after[i] what the tracker held for it. Valid until the next
/// call.
struct Counted {
  std::span<const PageId> pages;
  std::span<const PageCount> counts;
  std::span<const std::uint32_t> before, after;
};

/// A full batch is used up by one loop, while the policy judges what was counted:
///
///     while (const auto part = batch.take(clock.room())) {
///       for (const Tier tier : {Tier::fast, Tier::slow}) judge(tier, batch.count(tier, tracker));
///       clock.advance(part, memory);
///     }
///
/// A batch may span a halving of the counters. Each part is counted and judged between two of them.
class SampleBatch {
 public:
  /// A batch has `size` samples: fractional in a miniature, so rounded, and at least one.
  explicit SampleBatch(double size);
  /// As the knob sample_batch says.
  explicit SampleBatch(const Knobs& knobs) : SampleBatch(knobs.real("sample_batch")) {}

  /// Adds samples and calls process() when a batch is full, which must take() all of it.
  template <typename Process>
  void add(std::span<const Sample> samples, Process process) {
    for (const Sample& sample : samples) {
      samples_.push_back(sample);
      if (samples_.size() < size_) continue;
      process();
      samples_.clear();
      part_ = {};
      taken_ = 0;
    }
  }

  /// Starts the next part of the batch, at most `limit` samples (> 0); returns how many. 0: the
  /// batch is used up.
  std::size_t take(std::uint64_t limit);

  /// The rest of the batch is not wanted.
  void drop() { taken_ = samples_.size(); }

  /// Counts the part's samples that `tier` answered: one increment per distinct page (FreqTier,
  /// 2024, §V-C(c)).
  [[nodiscard]] Counted count(Tier tier, Tracker& tracker);

  [[nodiscard]] std::uint64_t bytes() const { return samples_.capacity() * sizeof(Sample); }

 private:
  std::size_t size_;
  std::vector<Sample> samples_;
  std::size_t taken_ = 0;  // samples in parts so far, the current one included
  std::span<const Sample> part_;
  Coalescer coalescer_;
  std::vector<PageId> sampled_, pages_;  // scratch
  std::vector<std::uint32_t> before_, after_;
};

/// The knob sample_batch, with the place where a system's paper describes its batches.
[[nodiscard]] KnobDecl sample_batch_knob(std::string source);

}  // namespace tt::track
