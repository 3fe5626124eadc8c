// SPDX-License-Identifier: MIT

#include "sim/tiering.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "core/assert.hpp"
#include "sim/timing.hpp"

namespace tt::sim {

void TieringThread::start(const Policy& policy) { ticker_ = Ticker<Time>(policy.tick_period()); }

/// What the policy has done since the last call.
double TieringThread::take_charged() {
  const double cost = std::exchange(charged_ns_, 0.0);
  policy_ns_ += cost;
  return cost;
}

/// From what is left of the block; the rest is owed.
void TieringThread::pay(double cost) {
  TT_ASSERT(cost >= 0 && left_ns_ >= 0 && debt_ns_ >= 0);
  const double paid = std::min(cost, left_ns_);
  left_ns_ -= paid;
  debt_ns_ += cost - paid;
  ledger_.sums()[Sum::tiering_cpu_seconds] += cost * 1e-9;
}

void TieringThread::begin(double block_ns, double now_ns, std::vector<Sample>& fresh,
                          const Policy& policy) {
  left_ns_ = block_ns_ = block_ns;
  now_ns_ = now_ns;
  sampling_ns_ = policy_ns_ = 0;
  const double paid = std::min(debt_ns_, left_ns_);
  debt_ns_ -= paid;
  left_ns_ -= paid;
  pay(take_charged());  // of callbacks at the border
  free_ns_ = now_ns - block_ns + paid;
  ticker_.set_period(period(policy));
  fresh_ = &fresh;
  rest_ = fresh;
}

TieringThread::Time TieringThread::period(const Policy& policy) const {
  return std::max(
      {Time{policy.tick_period()}, Time{block_ns_ / static_cast<double>(most_ticks)}, Time{1.0}});
}

void TieringThread::hurry(double at_ns, const Policy& policy) {
  ticker_.hurry(Time{at_ns}, period(policy));
}

void TieringThread::run(double until_ns, Policy& policy) {
  while (ticker_.due(Time{until_ns}) && debt_ns_ <= 0) {
    const double at_ns = std::max(ticker_.next().count(), free_ns_);
    // The samples are spread evenly over the block.
    const double later = block_ns_ > 0 ? (now_ns_ - at_ns) / block_ns_ : 0;
    const auto kept = static_cast<std::size_t>(later * static_cast<double>(fresh_->size()));
    const std::size_t due = rest_.size() - std::min(kept, rest_.size());
    drain(rest_.first(due), at_ns, policy);
    rest_ = rest_.subspan(due);
    if (debt_ns_ > 0) break;  // a busy thread ticks late, never early
    policy.tick(whole_ns(at_ns));
    pay(take_charged());
    ticker_.set_period(period(policy));  // what the tick has made of it
    ticker_.tick(Time{at_ns});
  }
}

void TieringThread::end(Policy& policy) {
  drain(rest_, now_ns_, policy);
  fresh_->clear();
  idle_share_ = block_ns_ > 0 ? left_ns_ / block_ns_ : 1;
}

/// The rings: fresh samples join those that wait; what fits neither the thread's time nor the rings
/// is lost, evenly over the block.
void TieringThread::drain(std::span<const Sample> fresh, double now_ns, Policy& policy) {
  const double drain_ns = profile_.sample_drain_ns * scale_;
  const double each = drain_ns + sample_work_ns_;
  const std::size_t ready = waiting_.size() + fresh.size();
  std::size_t deliver = 0;
  if (left_ns_ > 0) {
    const double can = each > 0 ? std::ceil(left_ns_ / each) : static_cast<double>(ready);
    deliver = can < static_cast<double>(ready) ? static_cast<std::size_t>(can) : ready;
  }
  const auto ring = static_cast<std::size_t>(std::max(1.0, profile_.sample_queue / scale_));
  const std::size_t stays = ready - deliver;
  const std::size_t lost = stays > ring ? std::min(stays - ring, fresh.size()) : 0;
  if (lost > 0) {
    ledger_.counters().samples_lost += static_cast<double>(lost);
    ledger_.sums()[Sum::samples_lost] += static_cast<double>(lost) * scale_;
  }
  waiting_.insert(waiting_.end(), fresh.begin(), fresh.end() - static_cast<std::ptrdiff_t>(lost));
  deliver = std::min(deliver, waiting_.size());
  TT_ASSERT(waiting_.size() - deliver <= ring);
  if (deliver == 0) return;
  policy.on_samples(std::span{waiting_}.first(deliver), whole_ns(now_ns));
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(deliver));
  const double work = take_charged();
  const double drained = drain_ns * static_cast<double>(deliver);
  lines_ += profile_.sample_lines * scale_ * static_cast<double>(deliver);
  sampling_ns_ += drained;
  ledger_.counters().sampling_seconds += (work + drained) * 1e-9;
  pay(work + drained);
  const double weight = 1.0 / 16;
  sample_work_ns_ += weight * (work / static_cast<double>(deliver) - sample_work_ns_);
}

}  // namespace tt::sim
