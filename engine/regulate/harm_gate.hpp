// SPDX-License-Identifier: MIT

// HarmGate: holds migration back while it does no good. Ours.
//
// Where the hot set does not fit the fast tier, or changes faster than it can be followed, a policy
// goes on moving pages for nothing, and the moves cost bandwidth and time. The gate looks at what
// migration is for: the fast tier's share of loads. It closes when pages were promoted for some
// windows on end and the share has not risen, and opens again when the share falls, since then the
// hot set has changed, or after a pause, for another try. What it may lose is about the band.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/seam.hpp"
#include "regulate/hit_ratio.hpp"

namespace tt::regulate {

class HarmGate {
 public:
  struct Options {
    Nanos window{};         // over which the share is taken
    double band = 0;        // change of it that counts
    unsigned patience = 1;  // windows with promotions that may be for nothing
    double promotions = 0;  // in a window, up to which they do no harm
    Nanos pause{};          // closed for so long; twice as long after each try in vain
  };
  explicit HarmGate(const Options& options)
      : options_(options),
        promotions_(options.promotions),
        ratio_(options.window),
        pause_(options.pause) {}
  /// As gate_window, gate_band, gate_patience, gate_promotions and gate_pause say.
  HarmGate(const Knobs& knobs, double fast_pages);

  void promoted(std::uint64_t pages) { promoted_ += pages; }
  void tick(Nanos now, const Counters& counters) {
    const auto ratio = ratio_.update(now, counters);
    if (!ratio) return;
    const auto promoted = static_cast<double>(std::exchange(promoted_, 0));
    if (closed_) {
      const bool fell = *ratio < reference_ - options_.band;
      if (fell) pause_ = options_.pause;
      if (fell || now >= until_) open(*ratio);
      return;
    }
    if (promoted <= options_.promotions || *ratio > reference_ + options_.band) {
      if (*ratio > reference_ + options_.band) pause_ = options_.pause;
      open(*ratio);
    } else if (++vain_ >= options_.patience) {
      closed_ = true;
      reference_ = *ratio;
      until_ = now + pause_;
      pause_ *= 2;
    }
  }
  [[nodiscard]] bool closed() const { return closed_; }
  /// The fast tier holds so many times the pages that it held at first.
  void stretch(double times) { options_.promotions = promotions_ * times; }

 private:
  void open(double ratio) {
    closed_ = false;
    vain_ = 0;
    reference_ = ratio;
  }

  Options options_;
  double promotions_;  // Options::promotions, at first
  HitRatioWindow ratio_;
  Nanos pause_, until_{};
  bool closed_ = false;
  unsigned vain_ = 0;           // windows in a row
  double reference_ = 0;        // the share that later ones are compared with
  std::uint64_t promoted_ = 0;  // in this window
};

/// Its knobs, active while `parent` is on.
[[nodiscard]] std::vector<KnobDecl> gate_knobs(const std::string& parent);

}  // namespace tt::regulate
