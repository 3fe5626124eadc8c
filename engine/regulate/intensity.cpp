// SPDX-License-Identifier: MIT

#include "regulate/intensity.hpp"

#include <cmath>
#include <stdexcept>
#include <utility>

#include "core/assert.hpp"

namespace tt::regulate {
namespace {

std::vector<double> levels(const Knobs& knobs) {
  std::vector<double> result{knobs.real("sampling_frequency")};
  while (static_cast<std::int64_t>(result.size()) < knobs.integer("sampling_levels")) {
    result.push_back(result.back() / knobs.real("sampling_step"));
  }
  return result;
}

}  // namespace

IntensityLadder::IntensityLadder(Memory& memory, Options options)
    : memory_(memory), options_(std::move(options)), ratio_(options_.window) {
  if (options_.levels.empty()) throw std::invalid_argument("IntensityLadder: no sampling level");
  set_sampling();
}

IntensityLadder::IntensityLadder(Memory& memory, const Knobs& knobs)
    : IntensityLadder(memory, {.levels = levels(knobs),
                               .window = from_seconds(knobs.real("window")),
                               .stable_band = knobs.real("stable_band")}) {}

void IntensityLadder::set_sampling() {
  TT_ASSERT(level_ < options_.levels.size());
  using Mode = SamplingRequest::Mode;
  const SamplingRequest::Event loads{Mode::frequency, options_.levels[level_]};
  granted_ = memory_.set_sampling(monitoring_ ? SamplingRequest{} : SamplingRequest{.loads = loads})
                 .loads.value;
}

std::size_t IntensityLadder::below() const {
  std::size_t level = level_ + 1;
  while (level < options_.levels.size() && options_.levels[level] >= granted_) ++level;
  return level;
}

bool IntensityLadder::tick(Nanos now, bool settled) {
  const auto ratio = ratio_.update(now, memory_.counters());
  if (!ratio) return false;
  const bool plateau = std::exchange(promotions_, 0) == 0;
  if (!last_) {  // nothing to compare with yet
    last_ = ratio;
    return false;
  }
  const bool stable = std::abs(*ratio - *last_) <= options_.stable_band;
  // A substrate that grants less than a level asks for has fewer levels.
  const std::size_t below = this->below();
  const bool lowest = below == options_.levels.size();
  // Monitoring compares with the ratio on entry, so that slow drift is seen too.
  if (monitoring_ && stable) return false;
  last_ = ratio;
  if (monitoring_) {
    // "If the local DRAM hit ratio becomes unstable, FreqTier considers the access distribution to
    // have changed, returns to the promotion state, and restarts sampling with the highest
    // frequency."
    monitoring_ = false;
    level_ = 0;
    set_sampling();
    return true;
  }
  if (settled && (plateau || (stable && lowest))) {
    monitoring_ = true;  // "(1) Promotion plateau", or stable at the lowest level
  } else if (!lowest && (plateau || stable)) {
    level_ = below;  // "reduces the sampling frequency by one level"
  } else if (!plateau && !stable && level_ > 0) {
    --level_;  // "increases the sampling frequency by one level"
  } else {
    return false;
  }
  set_sampling();
  return false;
}

void IntensityLadder::empty_scan(Nanos now) {
  if (monitoring_) return;
  // "(2) Empty demotion scan". The window in progress saw another intensity: start a new one, whose
  // ratio is what later ones are compared to.
  monitoring_ = true;
  last_.reset();
  promotions_ = 0;
  ratio_.restart(now, memory_.counters());
  set_sampling();
}

std::vector<KnobDecl> ladder_knobs(const std::string& source) {
  return knob::list(
      knob::real("sampling_frequency", 100000, {100, 1e7, knob::log}, Unit::hertz, source,
                 "samples per second at the highest sampling level"),
      knob::integer("sampling_levels", 3, {1, 6}, Unit::none, source,
                    "number of sampling levels (100, 10 and 1 kHz by default)"),
      knob::real("sampling_step", 10, {1.1, 100, knob::log}, Unit::ratio, source,
                 "factor by which a level samples less than the one above it"),
      knob::real("window", 60, {1, 3600, knob::log}, Unit::seconds, source,
                 "time between two decisions on the sampling level"),
      knob::real("stable_band", 0.005, {0, 0.5}, Unit::ratio, source,
                 "largest change of the hit ratio between windows that counts as stable"));
}

}  // namespace tt::regulate
