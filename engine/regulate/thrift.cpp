// SPDX-License-Identifier: MIT

#include "regulate/thrift.hpp"

#include <utility>

namespace tt::regulate {
namespace {

constexpr double settle_seconds = 120;
constexpr std::size_t points = 5;
constexpr double most_useless = 0.8;
constexpr double least_share = 0.25;

/// Slope of the line that fits the values best, at x = 0, 1, 2, ...
double slope_of(const std::deque<double>& values) {
  const auto n = static_cast<double>(values.size());
  double x = 0, sum_x = 0, sum_xx = 0, sum_y = 0, sum_xy = 0;
  for (const double y : values) {
    sum_x += x;
    sum_xx += x * x;
    sum_y += y;
    sum_xy += x * y;
    x += 1;
  }
  return (n * sum_xy - sum_x * sum_y) / (n * sum_xx - sum_x * sum_x);
}

}  // namespace

void Monitoring::begin(Nanos now) {
  active_ = true;
  settled_ = false;
  begun_ = now;
  ratios_.clear();
  memory_.set_sampling({});
}

bool Monitoring::tick(Nanos now) {
  if (!active_ || now - begun_ < from_seconds(settle_seconds)) return false;
  if (!std::exchange(settled_, true)) ratio_.restart(now, memory_.counters());
  const auto ratio = ratio_.update(now, memory_.counters());
  if (!ratio) return false;
  ratios_.push_back(*ratio);
  if (ratios_.size() <= points) return false;
  ratios_.pop_front();
  if (slope_of(ratios_) >= slope_) return false;
  active_ = false;
  return true;
}

bool BarrenSweeps::ended(bool short_of_mark) {
  constexpr unsigned most_recoveries = 10;
  const bool before = std::exchange(barren_, short_of_mark);
  const bool give_up = before && (short_of_mark || ++recoveries_ == most_recoveries);
  if (give_up) {
    barren_ = false;
    recoveries_ = 0;
  }
  return give_up;
}

void LocalSampling::request() {
  granted_ = memory_.set_sampling({.loads = loads_, .stores = {}, .fast_share = share_});
}

void LocalSampling::restart() {
  share_ = 1;
  samples_ = useless_ = 0;
  request();
}

void LocalSampling::counted(const track::Counted& fast, std::uint32_t max) {
  for (std::size_t i = 0; i < fast.counts.size(); ++i) {
    samples_ += fast.counts[i].count;
    if (fast.before[i] == max) useless_ += fast.counts[i].count;
  }
}

void LocalSampling::end_batch() {
  const auto samples = static_cast<double>(std::exchange(samples_, 0));
  const auto useless = static_cast<double>(std::exchange(useless_, 0));
  // One that did not leave out what it was asked to will not leave out more.
  if (granted_.fast_share > share_) return;
  if (useless <= most_useless * samples || share_ <= least_share) return;
  share_ /= 2;
  request();
}

Thrift::Thrift(Memory& memory, const Knobs& knobs, SamplingRequest::Event loads, double slope)
    : plateau_(knobs.real("plateau_promotions"),
               static_cast<std::uint64_t>(knobs.integer("plateau_batches"))),
      monitoring_(memory, slope),
      local_(memory, loads),
      pause_(knobs.real("demotion_pause_rate") * static_cast<double>(1ULL << 30) /
             static_cast<double>(memory.page_bytes())) {}

bool Thrift::tick(Nanos now) {
  if (!monitoring_.tick(now)) return false;
  local_.restart();
  return true;
}

bool Thrift::end_batch() {
  if (!monitoring()) local_.end_batch();
  return plateau_.end_batch() && !monitoring();
}

void Thrift::demoted(const migrate::DemotionScan::Result& result, Nanos now) {
  if (!result.triggered) return;
  pause_.demoted(result.requested, now);
  if (result.ended && sweeps_.ended(result.short_of_mark)) monitoring_.begin(now);
}

void Thrift::gauges(Gauges& out) const { out["fast_sample_share"] = local_.fast_share(); }

std::vector<KnobDecl> thrift_knobs(const std::string& parent, const std::string& value) {
  return knob::list(
      knob::real("plateau_promotions", 25000, {0, 1e8}, Unit::pages, "artifact",
                 "promotions within 20 batches up to which promotion is on a plateau")
          .when(parent, value),
      knob::integer("plateau_batches", 500, {0, 1000000}, Unit::none, "artifact",
                    "batches until a plateau may lower the threshold or stop sampling")
          .when(parent, value),
      knob::real("demotion_pause_rate", 100.0 / 1024, {1e-4, 1000, knob::log}, Unit::gib_per_second,
                 "artifact", "demotion rate above which a second's pause follows each demotion")
          .when(parent, value));
}

}  // namespace tt::regulate
