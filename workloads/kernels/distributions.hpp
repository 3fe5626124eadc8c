// SPDX-License-Identifier: MIT

// Distributions given by a few published points: how skewed popularity is, how large values are,
// and how objects change their popularity over time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/rng.hpp"

namespace tt::kernels {

/// Popularity from published shares: "the top x of all objects get share s of all accesses".
///
/// Between two points popularity falls as a power of rank. The exponent of each piece is as large
/// as it can be with popularity nowhere rising; where pieces meet, popularity is held between the
/// means of both. So every published share is met exactly, and the order of ranks is one of
/// popularity.
class Popularity {
 public:
  /// `top` and `share`: ascending in (0, 1]; (1, 1) is added when missing. Shares per object must
  /// not rise from piece to piece. Throws std::invalid_argument.
  Popularity(std::span<const double> top, std::span<const double> share);

  /// Position in [0, 1) of the object (0 the most popular) for a uniform draw in [0, 1).
  [[nodiscard]] double position(double uniform) const;
  /// Share of accesses that goes to the top x.
  [[nodiscard]] double share(double x) const;

 private:
  struct Piece {
    double from, to;              // positions
    double share_from, share_to;  // cumulative
    double exponent;              // popularity ~ position^-exponent within
    double low, high;             // from and to, raised to 1 - exponent
  };
  std::vector<Piece> pieces_;
};

/// Popularity that falls with the distance from the middle key as a normal distribution does, cut
/// off at the first and the last key (cachebench without a table of popularity). Positions count
/// from the middle outwards, in turns to both sides.
class NormalPopularity {
 public:
  /// `sigma`: standard deviation as a share of the number of keys. Throws std::invalid_argument
  /// unless it is above 0.
  explicit NormalPopularity(double sigma);

  /// As those of Popularity.
  [[nodiscard]] double position(double uniform) const;
  [[nodiscard]] double share(double x) const;

 private:
  double step_ = 0;            // between positions of which `share_` is known
  std::vector<double> share_;  // of accesses, up to i steps; rises from 0 to 1
};

/// Sizes from published percentiles and mean.
///
/// Between two percentiles the logarithm of the size rises in a straight line. That overstates the
/// mean, nearly all of which is in the tail: so in the pieces beyond the 90th percentile it rises
/// as a power of the quantile instead, one exponent for all, which is solved for the mean. Every
/// published percentile is met exactly.
class Sizes {
 public:
  /// `quantile`: from 0 to 1, ascending; `bytes`: ascending, positive. Throws
  /// std::invalid_argument when no exponent meets the mean.
  Sizes(std::span<const double> quantile, std::span<const double> bytes, double mean);

  /// Size at a quantile in [0, 1], at least 1.
  [[nodiscard]] double at(double quantile) const;
  [[nodiscard]] double exponent() const { return exponent_; }

 private:
  [[nodiscard]] double mean(double exponent) const;
  /// Logarithm of the size within piece i (from quantile i to i + 1), at `within` in [0, 1].
  [[nodiscard]] double log_size(std::size_t i, double within, double exponent) const;
  std::vector<double> quantile_;
  std::vector<double> log_bytes_;
  double exponent_ = 1;
};

/// Zipf's law: rank r of 1 to n is drawn with a weight of r^-exponent (0: uniform).
///
/// Rejection-inversion (Hörmann and Derflinger, ACM TOMACS 1996): no table and no sum over the
/// population, so that a miniature draws ranks of the full-scale population and divides them by its
/// scale. So one of its objects stands for objects of neighbouring ranks, and shares are the full
/// population's, which those of a smaller n would not be.
class Zipf {
 public:
  /// Throws std::invalid_argument unless n >= 1 and exponent >= 0.
  Zipf(double n, double exponent);
  /// A rank counted from 0, below n.
  [[nodiscard]] std::uint64_t rank(Rng& rng) const;

 private:
  [[nodiscard]] double density(double x) const;
  [[nodiscard]] double integral(double x) const;
  [[nodiscard]] double inverse(double y) const;  // of the integral
  double n_;
  double exponent_;
  double low_ = 0;  // draws are uniform between these two values of the integral
  double high_ = 0;
  double sure_ = 0;  // nearer than this to the rounded rank, a draw needs no test
};

/// Which object has which rank of popularity, over time. At first object i has rank i.
class Ranks {
 public:
  static constexpr double popular = 0.1;  // the top tenth of ranks

  /// After `half_life_s` half of the popular objects are no longer popular (0: ranks are fixed):
  /// at random moments two random objects exchange their ranks.
  Ranks(std::size_t objects, double half_life_s, std::uint64_t seed);

  /// Exchanges all that is due until now; `now_s` must not fall.
  void advance(double now_s);
  /// Exchanges each object of the top ranks `top`, with probability `share`, with one beyond them.
  /// `top` is at most one half.
  void shift(double top, double share);
  /// The object at a position of popularity in [0, 1).
  [[nodiscard]] std::uint32_t object(double position) const {
    return at_[static_cast<std::size_t>(position * static_cast<double>(at_.size()))];
  }

 private:
  std::vector<std::uint32_t> at_;
  Rng rng_;
  double mean_gap_s_ = 0;
  double next_s_ = 0;
};

}  // namespace tt::kernels
