// PromotionPlateau: stops sampling when promotions have run dry for long, until the fast tier's hit
// ratio shows that the accesses have changed (HybridTier, ASPLOS'25, published code).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/seam.hpp"
#include "regulate/hit_ratio.hpp"

namespace tt::regulate {

class PromotionPlateau {
 public:
  /// Batches of samples over which promotions are summed.
  static constexpr unsigned window = 20;

  struct Options {
    double promotions = 0;      // a window with at most so many is on a plateau
    std::uint64_t batches = 0;  // on a plateau without a break, after which sampling stops
  };
  /// Samples as `sampling` asks from now on.
  PromotionPlateau(Memory& memory, const SamplingRequest& sampling, const Options& options);
  PromotionPlateau(Memory& memory, const SamplingRequest& sampling, const Knobs& knobs);

  void promoted(std::uint64_t pages) { promoted_ += pages; }
  /// A batch was processed. Returns whether it ended a window that is on a plateau. If that has
  /// lasted, sampling stops.
  bool end_batch(Nanos now);
  /// While nothing is sampled: looks at the hit ratio, and samples again once it has changed.
  void tick(Nanos now);

  /// Only the hit ratio is watched; nothing is sampled.
  [[nodiscard]] bool monitoring() const { return monitoring_; }

 private:
  Memory& memory_;
  SamplingRequest sampling_;
  Options options_;
  std::uint64_t promoted_ = 0;    // in this window
  unsigned batches_ = 0;          // in this window
  std::uint64_t on_plateau_ = 0;  // batches since promotions ran dry
  bool monitoring_ = false;
  HitRatioWindow ratio_;
  std::optional<double> reference_;  // hit ratio of the first window of monitoring
};

/// plateau_promotions and plateau_batches, for a system where `parent` has the value.
[[nodiscard]] std::vector<KnobDecl> plateau_knobs(const std::string& parent,
                                                  const std::string& value);

}  // namespace tt::regulate
