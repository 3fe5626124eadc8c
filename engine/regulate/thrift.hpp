// SPDX-License-Identifier: MIT

// How a tiering system saves its own work, as HybridTier's published code does (ASPLOS'25): it
// notices that promotions, or cold pages, have run out, samples nothing until the hit ratio falls,
// samples full counters less, and pauses after fast demotion. Thrift is all of them together.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "core/seam.hpp"
#include "migrate/allowance.hpp"
#include "migrate/demotion_scan.hpp"
#include "regulate/hit_ratio.hpp"
#include "track/sample_batch.hpp"

namespace tt::regulate {

/// Tells when promotions have run dry.
class PromotionPlateau {
 public:
  /// Batches of samples over which promotions are summed.
  static constexpr unsigned window = 20;

  /// A window with at most so many promotions is on a plateau, after the first `batches`.
  PromotionPlateau(double promotions, std::uint64_t batches)
      : promotions_(promotions), patience_(batches) {}

  void promoted(std::uint64_t pages) { promoted_ += pages; }
  /// A batch was processed. Returns whether it ended a window that is on a plateau.
  bool end_batch() {
    if (++batches_ % window != 0) return false;
    return static_cast<double>(std::exchange(promoted_, 0)) <= promotions_ && batches_ > patience_;
  }

 private:
  double promotions_;
  std::uint64_t patience_;
  std::uint64_t promoted_ = 0;  // in this window
  std::uint64_t batches_ = 0;
};

/// Stops sampling, lets the hit ratio settle for two minutes, and then fits a line to the ratios of
/// the last five minutes. It ends when that falls by more than `slope` a minute.
class Monitoring {
 public:
  Monitoring(Memory& memory, double slope)
      : memory_(memory), slope_(slope), ratio_(from_seconds(60)) {}

  void begin(Nanos now);
  /// Looks at the hit ratio. True if that ended the monitoring: the caller samples again.
  bool tick(Nanos now);
  [[nodiscard]] bool active() const { return active_; }

 private:
  Memory& memory_;
  double slope_;
  bool active_ = false, settled_ = false;
  Nanos begun_{};
  HitRatioWindow ratio_;
  std::deque<double> ratios_;  // of the last minutes
};

/// Two demotions in a row that were short of their mark after a whole pass: there are no cold pages
/// left. Or ten times one of them, followed by one that found enough: there are always some.
class BarrenSweeps {
 public:
  /// A demotion has ended. Returns whether to give up; counts from the start again then.
  bool ended(bool short_of_mark);

 private:
  bool barren_ = false;
  unsigned recoveries_ = 0;
};

/// Samples the fast tier half as often, twice at most, when more than four fifths of a batch's
/// samples there met counters that cannot grow any more.
class LocalSampling {
 public:
  LocalSampling(Memory& memory, SamplingRequest::Event loads) : memory_(memory), loads_(loads) {
    restart();
  }

  /// Samples both tiers at the full rate.
  void restart();
  /// Samples of fast pages, counted in a tracker that saturates at `max`.
  void counted(const track::Counted& fast, std::uint32_t max);
  void end_batch();
  /// As granted: a substrate need not be able to leave samples out.
  [[nodiscard]] double fast_share() const { return granted_.fast_share; }
  /// Samples per second, as granted.
  [[nodiscard]] double hz() const { return granted_.loads.value; }

 private:
  void request();
  Memory& memory_;
  SamplingRequest granted_;
  SamplingRequest::Event loads_;
  double share_ = 1;
  std::uint64_t samples_ = 0, useless_ = 0;  // in this batch
};

class Thrift {
 public:
  /// Samples loads so from now on.
  Thrift(Memory& memory, const Knobs& knobs, SamplingRequest::Event loads, double slope);

  /// Nothing is sampled.
  [[nodiscard]] bool monitoring() const { return monitoring_.active(); }
  /// Samples per second otherwise, as granted.
  [[nodiscard]] double sampling_hz() const { return local_.hz(); }
  void begin_monitoring(Nanos now) { monitoring_.begin(now); }
  /// True if that ended the monitoring; both tiers are sampled at the full rate again.
  bool tick(Nanos now);
  void counted(const track::Counted& fast, std::uint32_t max) { local_.counted(fast, max); }
  void promoted(std::uint64_t pages) { plateau_.promoted(pages); }
  /// Returns whether promotions have run dry.
  bool end_batch();
  /// A run of the demotion scan. Monitoring begins if it shows that there are no cold pages left.
  void demoted(const migrate::DemotionScan::Result& result, Nanos now);
  [[nodiscard]] bool demotion_paused(Nanos now) const { return pause_.paused(now); }
  void gauges(Gauges& out) const;

 private:
  PromotionPlateau plateau_;
  BarrenSweeps sweeps_;
  Monitoring monitoring_;
  LocalSampling local_;
  migrate::DemotionPause pause_;
};

/// plateau_promotions, plateau_batches, demotion_pause_rate: active where `parent` has the value.
[[nodiscard]] std::vector<KnobDecl> thrift_knobs(const std::string& parent,
                                                 const std::string& value);

}  // namespace tt::regulate
