// SPDX-License-Identifier: MIT

// IntensityLadder: samples less while the fast tier's hit ratio is stable, not at all once it stays
// so, and at full rate again when the access distribution changes (FreqTier, 2024, §IV-C, §V-B2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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

  /// Samples loads at the highest level from now on.
  IntensityLadder(Memory& memory, Options options);
  IntensityLadder(Memory& memory, const Knobs& knobs);

  /// Looks at the hit ratio if a window has ended, and samples at another level if it asks for one.
  /// Until things have `settled` it may sample less, but does not stop. Returns whether it has
  /// begun to sample again.
  bool tick(Nanos now, bool settled = true);
  /// Pages promoted; a window without any is a promotion plateau.
  void promoted(std::uint64_t pages) { promotions_ += pages; }
  /// A whole pass of the address space found nothing to demote: begins monitoring.
  void empty_scan(Nanos now);

  /// Only the hit ratio is watched; nothing is sampled.
  [[nodiscard]] bool monitoring() const { return monitoring_; }
  /// 0 is the highest; stays where it was while monitoring.
  [[nodiscard]] std::size_t level() const { return level_; }
  /// Samples per second, as granted; 0 while monitoring, or where samples are not to be had.
  [[nodiscard]] double frequency() const { return granted_; }

 private:
  void set_sampling();
  /// The next level that samples less than is granted now; the number of levels if there is none.
  [[nodiscard]] std::size_t below() const;

  Memory& memory_;
  Options options_;
  HitRatioWindow ratio_;
  std::size_t level_ = 0;
  double granted_ = 0;
  bool monitoring_ = false;
  std::optional<double> last_;  // ratio that the next one is compared to
  std::uint64_t promotions_ = 0;
};

/// sampling_frequency, sampling_levels, sampling_step, window, stable_band.
[[nodiscard]] std::vector<KnobDecl> ladder_knobs(const std::string& source);

}  // namespace tt::regulate
