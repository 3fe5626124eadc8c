// SPDX-License-Identifier: MIT

// AOL regulation: fewer promotions while the application hides memory latency by parallelism
// (Soar and Alto, OSDI'25, §5, Algorithm 2).
//
// A policy that asks for promotions has its requests thinned out; one that promotes what faults has
// its protected windows cut down, so that less of them can fault.
#pragma once

#include <memory>
#include <span>

#include "core/seam.hpp"

namespace tt::regulate {

/// Turns the amortized offcore latency (AOL = A1 / A3, in cycles) of an interval into the share of
/// promotion candidates that pass, in tenths, and that of a window which may be protected, in
/// sixteenths.
class AolRegulator {
 public:
  static constexpr unsigned all = 10;
  static constexpr unsigned whole = 16;

  /// Throws std::invalid_argument if `high` is below `low`.
  AolRegulator(double low, double high);

  /// Algorithm 2: at or below `low` none, at or above `high` all, stepwise between. The steps are
  /// those of the published TPP variant on its 40..100 cycles (up to 50: 1, 60: 1, 80: 3, 100: 5 of
  /// 10), moved and stretched to low..high.
  [[nodiscard]] unsigned tenths(double aol) const;
  /// The same steps for windows, those of the published NBT, Nomad and Colloid variants: up to 50
  /// cycles 1, 60: 2, 80: 4, 100: 8 of 16.
  [[nodiscard]] unsigned sixteenths(double aol) const;

  /// Ends an interval at these counters. An interval without demand reads keeps the shares; before
  /// the first interval all pass.
  void update(const Counters& counters);
  [[nodiscard]] unsigned tenths() const { return tenths_; }
  [[nodiscard]] unsigned sixteenths() const { return sixteenths_; }
  [[nodiscard]] double aol() const { return aol_; }

 private:
  [[nodiscard]] std::size_t step(double aol) const;

  double low_, high_;
  double aol_ = 0;
  unsigned tenths_ = all;
  unsigned sixteenths_ = whole;
  double last_a1_ = 0, last_a3_ = 0;
};

/// Where a policy is regulated: its promotion requests are thinned out (any policy), or its
/// protected windows, if it promotes what faults. Not both: what may fault has been thinned out.
enum class Thins : std::uint8_t { requests, windows };

using MakePolicy = std::unique_ptr<Policy> (*)(const PolicyContext&);

/// The policy of `make` behind a Memory that lets only the regulated share of its promotion
/// requests and of its protected windows through; the plain policy while aol.enabled is false. The
/// inner policy knows nothing of it.
[[nodiscard]] std::unique_ptr<Policy> make_aol_regulated(MakePolicy make,
                                                         const PolicyContext& context,
                                                         Thins thins = Thins::requests);

/// The knobs aol.enabled, aol.low, aol.high and aol.interval.
[[nodiscard]] std::span<const KnobDecl> aol_knobs();

/// A description of the same policy with AOL regulation on offer:
/// `static const RegisterPolicy registered{with_aol<make_it>({...})};`
template <MakePolicy make, Thins thins = Thins::requests>
[[nodiscard]] PolicyInfo with_aol(PolicyInfo info) {
  info.knobs.insert(info.knobs.end(), aol_knobs().begin(), aol_knobs().end());
  info.make = [](const PolicyContext& context) { return make_aol_regulated(make, context, thins); };
  return info;
}

}  // namespace tt::regulate
