#include "regulate/plateau.hpp"

#include <cmath>
#include <utility>

namespace tt::regulate {
namespace {

// The published code does not say for how long and how much the hit ratio must move. These are the
// values of FreqTier (2024, §V-B2), HybridTier's predecessor.
constexpr double ratio_window_seconds = 60;
constexpr double ratio_band = 0.005;

}  // namespace

PromotionPlateau::PromotionPlateau(Memory& memory, const SamplingRequest& sampling,
                                   const Options& options)
    : memory_(memory),
      sampling_(sampling),
      options_(options),
      ratio_(from_seconds(ratio_window_seconds)) {
  memory_.set_sampling(sampling_);
}

PromotionPlateau::PromotionPlateau(Memory& memory, const SamplingRequest& sampling,
                                   const Knobs& knobs)
    : PromotionPlateau(
          memory, sampling,
          Options{.promotions = knobs.real("plateau_promotions"),
                  .batches = static_cast<std::uint64_t>(knobs.integer("plateau_batches"))}) {}

bool PromotionPlateau::end_batch(Nanos now) {
  if (++batches_ < window) return false;
  batches_ = 0;
  if (static_cast<double>(std::exchange(promoted_, 0)) > options_.promotions) {
    on_plateau_ = 0;
    return false;
  }
  on_plateau_ += window;
  if (on_plateau_ >= options_.batches) {
    monitoring_ = true;
    reference_.reset();
    ratio_.restart(now, memory_.counters());
    memory_.set_sampling({});
  }
  return true;
}

void PromotionPlateau::tick(Nanos now) {
  if (!monitoring_) return;
  const auto ratio = ratio_.update(now, memory_.counters());
  if (!ratio) return;
  if (!reference_) {
    reference_ = ratio;
  } else if (std::abs(*ratio - *reference_) > ratio_band) {
    monitoring_ = false;
    promoted_ = on_plateau_ = batches_ = 0;
    memory_.set_sampling(sampling_);
  }
}

std::vector<KnobDecl> plateau_knobs(const std::string& parent, const std::string& value) {
  return knob::list(
      knob::real("plateau_promotions", 25000, {0, 1e8}, Unit::pages, "artifact",
                 "promotions within 20 batches up to which promotion is on a plateau")
          .when(parent, value),
      knob::integer("plateau_batches", 500, {20, 1000000}, Unit::none, "artifact",
                    "batches on a plateau after which sampling stops until the hit ratio changes")
          .when(parent, value));
}

}  // namespace tt::regulate
