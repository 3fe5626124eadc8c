#include "regulate/intensity.hpp"

#include <cmath>
#include <stdexcept>
#include <utility>

namespace tt::regulate {

IntensityLadder::IntensityLadder(Options options)
    : options_(std::move(options)), ratio_(options_.window) {
  if (options_.levels.empty()) throw std::invalid_argument("IntensityLadder: no sampling level");
}

bool IntensityLadder::update(Nanos now, const Counters& counters) {
  const auto ratio = ratio_.update(now, counters);
  if (!ratio) return false;
  const bool plateau = std::exchange(promotions_, 0) == 0;
  if (!last_) {  // nothing to compare with yet
    last_ = ratio;
    return false;
  }
  const bool stable = std::abs(*ratio - *last_) <= options_.stable_band;
  if (monitoring_) {
    // "If the local DRAM hit ratio becomes unstable, FreqTier considers the access distribution to
    // have changed, returns to the promotion state, and restarts sampling with the highest
    // frequency." Compared to the ratio on entry, so that slow drift is seen too.
    if (stable) return false;
    last_ = ratio;
    monitoring_ = false;
    level_ = 0;
    return true;
  }
  last_ = ratio;
  const bool lowest = level_ + 1 == options_.levels.size();
  if (plateau || (stable && lowest)) {
    monitoring_ = true;  // "(1) Promotion plateau", or stable at the lowest level
    return true;
  }
  if (stable) {
    ++level_;  // "reduces the sampling frequency by one level"
    return true;
  }
  if (level_ == 0) return false;
  --level_;  // "increases the sampling frequency by one level"
  return true;
}

bool IntensityLadder::empty_scan(Nanos now, const Counters& counters) {
  if (monitoring_) return false;
  // "(2) Empty demotion scan". The window in progress saw another intensity: start a new one, whose
  // ratio is what later ones are compared to.
  monitoring_ = true;
  last_.reset();
  promotions_ = 0;
  ratio_.restart(now, counters);
  return true;
}

}  // namespace tt::regulate
