// SPDX-License-Identifier: MIT

// LineFilter: which of the lines that a kernel touches reach memory, and what their order says of
// its classes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/assert.hpp"
#include "trace/llc.hpp"
#include "trace/overlap.hpp"
#include "trace/seen.hpp"
#include "trace/stream.hpp"

namespace tt::trace {

class LineFilter {
 public:
  LineFilter(double llc_bytes, unsigned llc_ways, std::size_t classes)
      : llc_(llc_bytes, llc_ways), seen_(classes) {}

  /// Caches and prefetchers know base pages, whatever the pages of the stream are.
  void resize(std::uint64_t frames) { runs_.resize(frames); }
  /// A new object has no runs.
  void forget(std::uint64_t first_frame, std::uint64_t frames) {
    std::ranges::fill(std::span(runs_).subspan(first_frame, frames), Run{});
  }

  void retire_stores(std::uint32_t stream_class, std::uint64_t bytes) {
    seen_[stream_class].stores += (bytes + store_bytes - 1) / store_bytes;
  }
  /// Of lines: entries of the stream, and those that were fetched.
  struct Counted {
    std::uint32_t entries = 0;
    std::uint32_t fetched = 0;
  };
  /// Accesses to lines [first, first + lines) of a frame, in order.
  Counted touch(std::uint32_t stream_class, AccessKind kind, std::uint64_t frame,
                std::uint32_t first, std::uint32_t lines) {
    TT_ASSERT(frame < runs_.size() && first + lines <= page_lines);
    const bool load = kind == AccessKind::load;
    const LlcFilter::Count found =
        llc_.touch(static_cast<std::uint32_t>(frame), first, lines, !load);
    const Run::Followed followed = runs_[frame].follow(first, lines);
    const std::uint32_t entries = load ? found.missed : found.dirtied;
    if (entries == 0) return {};
    Seen& seen = seen_[stream_class];
    if (!load) {
      seen.dirtied += entries;
      seen.filled += found.missed;
    }
    if (found.missed > 0) {
      const double share = static_cast<double>(found.missed) / lines;
      seen.fetched += found.missed;
      seen.prefetched += share * followed.prefetched;
      if (followed.started) seen.started += share;
    }
    return {entries, found.missed};
  }

  /// By class.
  [[nodiscard]] const std::vector<Seen>& seen() const { return seen_; }
  void add_seen(std::span<const Seen> of, double times) {
    for (std::size_t c = 0; c < seen_.size(); ++c) seen_[c].add(of[c], times);
  }

 private:
  LlcFilter llc_;
  std::vector<Run> runs_;  // by frame
  std::vector<Seen> seen_;
};

}  // namespace tt::trace
