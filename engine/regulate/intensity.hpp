// IntensityLadder: samples less while the fast tier's hit ratio is stable, not at all once it stays
// so, and at full rate again when the access distribution changes (FreqTier, 2024, §IV-C, §V-B2).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/seam.hpp"
#include "regulate/hit_ratio.hpp"

namespace tt::regulate {

class IntensityLadder {
 public:
  struct Options {
    std::vector<double> levels;  // samples per second, highest first; at least one
    Nanos window{};              // time between two looks at the hit ratio
    double stable_band = 0;      // largest change of the hit ratio that counts as stable
  };

  explicit IntensityLadder(Options options);

  /// Looks at the hit ratio if a window has ended. Returns whether level or mode changed, so that
  /// the caller sets the sampling anew.
  bool update(Nanos now, const Counters& counters);

  /// Pages promoted; a window without any is a promotion plateau.
  void promoted(std::uint64_t pages) { promotions_ += pages; }
  /// A whole pass of the address space found nothing to demote. Returns whether the mode changed.
  bool empty_scan(Nanos now, const Counters& counters);

  [[nodiscard]] bool monitoring() const { return monitoring_; }
  /// 0 is the highest; stays where it was while monitoring.
  [[nodiscard]] std::size_t level() const { return level_; }
  /// Samples per second wanted now; 0 while monitoring.
  [[nodiscard]] double frequency() const { return monitoring_ ? 0 : options_.levels[level_]; }
  /// Hit ratio of the last whole window, if there was one.
  [[nodiscard]] std::optional<double> hit_ratio() const { return last_; }

 private:
  Options options_;
  HitRatioWindow ratio_;
  std::size_t level_ = 0;
  bool monitoring_ = false;
  std::optional<double> last_;  // ratio that the next one is compared to
  std::uint64_t promotions_ = 0;
};

}  // namespace tt::regulate
