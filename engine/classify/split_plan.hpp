// SPDX-License-Identifier: MIT

// SplitPlan: whether huge pages are to be split, how many, and which (MEMTIS, SOSP'23, §4.3).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/types.hpp"

namespace tt::classify {

class SplitPlan {
 public:
  struct Options {
    double benefit = 0.05;  // least gain of the hit ratio that is worth a split
    double beta = 0.4;      // scale factor of their number
    double estimate = 1;    // what is believed of the estimated hit ratio
    double end_below = -1;  // ends for good once the hit ratio has gained less after splits
  };
  explicit SplitPlan(const Options& options) : options_(options) {}

  /// A sample: whether the fast tier answered it (rHR), and whether it would have if only base
  /// pages were used (eHR).
  void sample(bool fast, bool fast_by_base_pages) {
    ++samples_;
    real_hits_ += fast ? 1 : 0;
    estimated_hits_ += fast_by_base_pages ? 1 : 0;
  }
  [[nodiscard]] std::uint64_t samples() const { return samples_; }
  /// Ends an interval. Returns N_s, equation (2); 0 if splitting does not pay. `gap` is the slow
  /// tier's further latency over the fast tier's.
  [[nodiscard]] double end_interval(double gap);
  // Of the last interval.
  [[nodiscard]] double real() const { return real_; }
  [[nodiscard]] double estimated() const { return estimated_; }

  /// Equation (3) of a huge page, from the sum of its subpages' squared hotness and the number of
  /// hot ones; 0 without any: there is nothing to gain.
  [[nodiscard]] static double skewness(double squares, std::uint64_t hot);
  // The array of skewness factors, each entry a list of the huge pages in a range.
  void clear();
  /// A huge page with so many samples, the sum of its subpages' squared hotness, and the number of
  /// its hot subpages.
  void add(PageId huge, double samples, double squares, std::uint64_t hot);
  /// Takes out the most skewed ones (of a range, any): so many, the fraction kept for the next
  /// time.
  [[nodiscard]] std::vector<PageId> take(double wanted);

 private:
  Options options_;
  std::uint64_t samples_ = 0, real_hits_ = 0, estimated_hits_ = 0;
  double real_ = 0, estimated_ = 0;
  bool has_split_ = false, ended_ = false;
  double huge_samples_ = 0, sampled_ = 0;            // of the huge pages, and how many have some
  double fraction_ = 0;                              // of a page that was not taken
  std::array<std::vector<PageId>, 64> by_skewness_;  // range n: [2^n, 2^(n+1))
};

}  // namespace tt::classify
