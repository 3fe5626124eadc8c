// SPDX-License-Identifier: MIT

#include "regulate/cpu_budget.hpp"

#include <array>
#include <span>
#include <utility>

namespace tt::regulate {
namespace {

// The steps of the published code (htmm.h), as it starts with 199 and 100003.
constexpr std::array load_steps{199.0,   293.0,   401.0,   499.0,   599.0,   701.0,  797.0,  907.0,
                                997.0,   1201.0,  1399.0,  1601.0,  1801.0,  1999.0, 2503.0, 3001.0,
                                3499.0,  4001.0,  4507.0,  4999.0,  6007.0,  7001.0, 7993.0, 9001.0,
                                10007.0, 12007.0, 13999.0, 16001.0, 17989.0, 19997.0};
constexpr std::array store_steps{100003.0, 300007.0, 600011.0, 1000003.0, 1500003.0};

double period(double first, std::span<const double> steps, std::size_t step) {
  return first * steps[step] / steps[0];
}
/// The next step whose period is longer than what is granted; the last one if there is none.
std::size_t beyond(double granted, double first, std::span<const double> steps, std::size_t step) {
  do {
    if (step + 1 == steps.size()) return step;
    ++step;
  } while (period(first, steps, step) <= granted);
  return step;
}

/// Weight of the last window in the moving average (published code).
constexpr double weight = 0.8;

}  // namespace

CpuBudget::CpuBudget(Memory& memory, const Knobs& knobs)
    : memory_(memory),
      first_load_(knobs.real("load_sampling_period")),
      first_store_(knobs.real("store_sampling_period")),
      limit_(knobs.real("cpu_limit")),
      hysteresis_(knobs.real("cpu_hysteresis")),
      window_(from_seconds(knobs.real("cpu_window"))) {
  set_sampling();
}

void CpuBudget::set_sampling() {
  using Mode = SamplingRequest::Mode;
  granted_ = memory_.set_sampling(
      {.loads = {Mode::period, period(first_load_, load_steps, load_step_)},
       .stores = {Mode::period, period(first_store_, store_steps, store_step_)}});
}

void CpuBudget::tick(Nanos now) {
  if (now - last_ < window_) return;
  const double seconds_now = memory_.counters().sampling_seconds;
  const double share = (seconds_now - last_seconds_) / seconds(now - last_);
  last_ = now;
  last_seconds_ = seconds_now;
  share_ = known_ ? share_ + weight * (share - share_) : share;
  known_ = true;
  // "It increments or decrements the period if the CPU usage and its upper limit are separated by
  // 0.5%." The stores' ladder is shorter: either moves as far as it can.
  const auto before = std::pair{load_step_, store_step_};
  if (share_ > limit_ + hysteresis_) {
    load_step_ = beyond(granted_.loads.value, first_load_, load_steps, load_step_);
    store_step_ = beyond(granted_.stores.value, first_store_, store_steps, store_step_);
  } else if (share_ < limit_ - hysteresis_) {
    if (load_step_ > 0) --load_step_;
    if (store_step_ > 0) --store_step_;
  }
  if (before != std::pair{load_step_, store_step_}) set_sampling();
}

std::vector<KnobDecl> cpu_budget_knobs(const std::string& source) {
  return knob::list(
      knob::real("load_sampling_period", 200, {20, 20000, knob::log}, Unit::events_per_sample,
                 source, "load misses between two samples, at first and at least"),
      knob::real("store_sampling_period", 100000, {1000, 1e7, knob::log}, Unit::events_per_sample,
                 source, "stores between two samples, at first and at least"),
      knob::real("cpu_limit", 0.03, {0.001, 1, knob::log}, Unit::ratio, source,
                 "share of a processor that sampling may take before it samples less"),
      knob::real("cpu_hysteresis", 0.005, {0, 0.5}, Unit::ratio, source,
                 "distance from the limit within which the periods stay as they are"),
      knob::real("cpu_window", 15, {0.5, 3600, knob::log}, Unit::seconds, "artifact",
                 "time between two looks at the share of a processor that sampling takes"));
}

}  // namespace tt::regulate
