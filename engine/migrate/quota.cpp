// SPDX-License-Identifier: MIT

#include "migrate/quota.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "core/assert.hpp"

namespace tt::migrate {
namespace {

/// What a page is taken to cost before any has moved (core.c: 1,024 pages a millisecond).
constexpr double first_cost_ns = 1e6 / 1024;
/// The input is kept in ten-thousandths of a byte, as an unsigned number of 64 bits.
constexpr double most_inputs = 18446744073709551615.0 / 1e4;

}  // namespace

double next_input(double input, double score, double least) {
  const double next = input * std::max(0.0, 2 - score);
  return std::clamp(next, least, least * most_inputs);
}

Quota::Quota(const Options& options) : options_(options), fed_(options.least) {
  if (options.window <= Nanos{}) return;
  for (auto left = std::min<std::int64_t>(options.head_start / options.window, 1000); left > 0;
       --left)
    fed_ = next_input(fed_, 0, options.least);
}

void Quota::open(Nanos now, std::optional<double> score) {
  if (opened_ && now - *opened_ < options_.window) return;
  // A fraction of a page, which is some pages of the full system, is not lost.
  carried_ = std::clamp(size_ + carried_ - used_, 0.0, 1.0);
  if (carried_ == 1) carried_ = 0;
  opened_ = now;
  used_ = 0;
  size_ = std::numeric_limits<double>::max();
  if (score) {
    fed_ = next_input(fed_, *score, options_.least);
    size_ = fed_;
  }
  if (options_.cores > 0) {
    const double each_ns = spent_ns_ > 0 && charged_ > 0 ? spent_ns_ / charged_ : first_cost_ns;
    const auto window_ns = static_cast<double>(options_.window.count());
    size_ = std::min(size_, options_.cores * window_ns / each_ns);
  }
  if (options_.pages > 0) size_ = std::min(size_, options_.pages);
  TT_ASSERT(size_ >= 0 && carried_ >= 0 && carried_ < 1);
}

std::uint64_t Quota::left() const {
  const double left = std::min(size_ + carried_ - used_, 1e15);
  return left < 1 ? 0 : static_cast<std::uint64_t>(left);
}

void Quota::charge(std::uint64_t pages) {
  used_ += static_cast<double>(pages);
  charged_ += static_cast<double>(pages);
}

FreeGate::FreeGate(const Marks& marks) : marks_(marks) {
  if (marks.low > marks.mid || marks.mid > marks.high)
    throw std::invalid_argument("watermarks must not cross: low <= mid <= high");
}

bool FreeGate::open(double free) {
  if (free > marks_.high || free < marks_.low) {
    open_ = false;
  } else if (free < marks_.mid) {
    open_ = true;
  }
  return open_;
}

}  // namespace tt::migrate
