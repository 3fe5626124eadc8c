// Distributions given by a few published points: how skewed popularity is, how large values are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

}  // namespace tt::kernels
