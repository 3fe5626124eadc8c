// SPDX-License-Identifier: MIT

// Heat: estimates how often a page is touched, from pages that were taken away for a while.
//
// Evidence. A page that is away until it is touched after a time t, or that comes back untouched
// after t, is a (censored) draw of an exponential waiting time: k = 1 or 0 touches in the exposure
// t. Time is the program's processor time, so that a program that waits touches nothing.
//
// Model. The naive estimate 1 / t has no finite mean. Instead a page's rate has a prior: a
// distribution over ten rates, each four times the one before, learnt from the pages around it
// (empirical Bayes with a non-parametric prior; Kiefer and Wolfowitz, 1956). A page's expected rate
// is that of the posterior
//
//     P(rate | k, T) ~ P(rate) * rate^k * exp(-rate * T)
//
// with its own touches k and exposure T; without evidence it is that of the prior. The distribution
// of a leaf (64 neighbours, 256 KiB) is fitted by expectation maximisation: it is the mean of its
// pages' posteriors. As long as it has little evidence of its own it leans on what is around (a
// 64th of the mapping, the mapping, the program); those are fitted page by page. The model can
// represent any mixture of hot and cold pages. A parametric family, or touches over exposures (a
// harmonic mean), misses a few hot pages among many cold ones.
//
// Change. A page remembers its last four or so exposures, for half a minute or so. If one
// contradicts them (probability below one per cent) they are forgotten at once: hot sets move.
//
// Sweeps. A sweep over memory touches a page once per pass and then all of its lines. Two
// neighbours taken away together that come back right after each other, long after they were taken,
// were swept (less those that do so by chance). The share of such pairs splits a mapping's touches
// into sequential ones, which stand for all 64 lines, and random ones, which stand for one.
//
// Cache. Touches are not misses. Che's approximation of an LRU cache (Che, Tung, Wang, 2002) says
// what misses: a line that is touched at rate r misses r * exp(-r * age), where `age`, the time
// that an untouched line survives, is such that all lines expected in the cache fill it.
#pragma once

#include <bit>
#include <cstdint>

#include "core/rng.hpp"

namespace tt::record {

inline constexpr double memory = 0.75;     // of evidence, per new exposure of the page
inline constexpr double own_evidence = 2;  // pages that outweigh the mean of what is around
inline constexpr double lines_per_page = 64;
inline constexpr unsigned leaf_pages = 64;
inline constexpr unsigned leaf_shift = 18;

/// exp(-x), x >= 0, within 0.0001: without the C library's tables, and the same everywhere.
inline double decay(double x) {
  if (x > 60) return 0;
  double y = 1 - x / 4096;
  for (int i = 0; i < 12; ++i) y *= y;
  return y;
}

/// Distribution of a page's rate: how likely each rate of a grid is.
struct Rates {
  static constexpr std::size_t size = 10;
  static constexpr double lowest = 1.0 / 16;  // touches per second; the highest is 16,384
  static constexpr float least = 1e-5F;       // no rate is impossible: hot sets move
  float share[size] = {};

  /// Before any evidence: each rate half as likely as the one before.
  static Rates unknown() {
    Rates out;
    for (std::size_t i = 0; i < size; ++i) out.share[i] = 1.0F / static_cast<float>(2u << i);
    out.settle();
    return out;
  }
  [[nodiscard]] double mean() const {
    double sum = 0;
    double rate = lowest;
    for (const float s : share) {
      sum += static_cast<double>(s) * rate;
      rate *= 4;
    }
    return sum;
  }
  /// After k touches in an exposure of t seconds.
  [[nodiscard]] Rates given(double k, double t) const {
    Rates out;
    double sum = 0;
    double weight[size];
    double survives = decay(lowest * t);
    const double step = k == 0 ? 1 : k == 1 ? 4 : 1 / decay(k * 1.3862943611198906);  // 4^k
    double touches = 1;
    for (std::size_t i = 0; i < size; ++i) {
      weight[i] = static_cast<double>(share[i]) * touches * survives;
      sum += weight[i];
      touches *= step;
      survives *= survives;
      survives *= survives;
    }
    for (std::size_t i = 0; i < size; ++i) out.share[i] = static_cast<float>(weight[i] / sum);
    return out;
  }
  void add(const Rates& other, double weight) {
    for (std::size_t i = 0; i < size; ++i) share[i] += static_cast<float>(weight) * other.share[i];
  }
  /// Shares add up to one again (or slightly more), and none is zero.
  void settle() {
    float sum = 0;
    for (const float s : share) sum += s;
    for (float& s : share) {
      s /= sum;
      if (s < least) s = least;
    }
  }
};

/// Rates of many pages; the last `window` of them count.
struct Level {
  Rates rates;
  double weight = 0;
  void observe(double seconds, bool touched, const Rates& above, double window) {
    if (weight == 0) {
      rates = above;
      weight = own_evidence;
    }
    if (weight < window) weight += 1;
    const Rates seen = rates.given(touched ? 1 : 0, seconds);
    for (float& s : rates.share) s *= static_cast<float>(1 - 1 / weight);
    rates.add(seen, 1 / weight);
    rates.settle();
  }
};

/// Share of yes among answers, leant towards a prior; the last hundred or so answers count.
struct Share {
  float yes = 0;
  float all = 0;
  void add(double answer) {
    if (all >= 100) {
      yes *= 0.5F;
      all *= 0.5F;
    }
    yes += static_cast<float>(answer);
    all += 1;
  }
  [[nodiscard]] double value(double prior) const {
    return (static_cast<double>(yes) + 4 * prior) / (static_cast<double>(all) + 4);
  }
};

/// 64 neighbouring pages.
struct Leaf {
  std::uint64_t key = 0;      // address >> leaf_shift
  std::uint64_t present = 0;  // pages that are mapped in, including those that are away
  std::uint64_t huge = 0;     // mapped by a huge page
  std::uint64_t away = 0;
  double counted = 0;  // processor time up to which its accesses are written
  bool known = false;  // has evidence
  Rates rates;         // of its pages
  float k[leaf_pages] = {};
  float t[leaf_pages] = {};

  /// Touches per second. `around`: the distribution of the surroundings.
  [[nodiscard]] double rate(unsigned page, const Rates& around) const {
    const Rates& prior = known ? rates : around;
    if (t[page] <= 0) return prior.mean();
    return prior.given(static_cast<double>(k[page]), static_cast<double>(t[page])).mean();
  }

  /// The pages of `exposed` were away for t seconds; `touched` (64: none) ended that.
  void observe(std::uint64_t exposed, double seconds, unsigned touched, const Rates& around) {
    for (std::uint64_t rest = exposed; rest != 0; rest &= rest - 1) {
      const auto page = static_cast<unsigned>(std::countr_zero(rest));
      const bool fault = page == touched;
      const double expected = rate(page, around) * seconds;
      const float keep =
          static_cast<float>((fault ? expected < 0.01 : expected > 5) ? 0.0 : memory);
      k[page] = k[page] * keep + (fault ? 1.0F : 0.0F);
      t[page] = t[page] * keep + static_cast<float>(seconds);
    }
    if (!known) rates = around;
    known = true;
    for (int step = 0; step < 3; ++step) fit(around);
  }
  /// A step of expectation maximisation.
  void fit(const Rates& around) {
    if (!known) return;
    Rates next{};
    next.add(around, own_evidence);
    for (std::uint64_t rest = present; rest != 0; rest &= rest - 1) {
      const auto page = static_cast<unsigned>(std::countr_zero(rest));
      if (t[page] > 0)
        next.add(rates.given(static_cast<double>(k[page]), static_cast<double>(t[page])), 1);
    }
    next.settle();
    rates = next;
  }

  /// Each page's evidence is dropped with this probability: no knowledge lasts.
  void forget(Rng& rng, double probability) {
    for (std::uint64_t rest = present; rest != 0; rest &= rest - 1) {
      const auto page = static_cast<unsigned>(std::countr_zero(rest));
      if (t[page] <= 0 || rng.uniform() >= probability) continue;
      k[page] = 0;
      t[page] = 0;
    }
  }

  /// Touches that the estimate rests on.
  [[nodiscard]] double evidence() const {
    double sum = 0;
    for (std::uint64_t rest = present; rest != 0; rest &= rest - 1)
      sum += static_cast<double>(k[std::countr_zero(rest)]);
    return sum;
  }
};

/// Neighbours taken together: were they swept?
struct Pair {
  static constexpr double far = 5e-3;   // s: a shorter wait says nothing
  static constexpr double near = 5e-4;  // s: two faults that follow each other
  static constexpr double unknown = -1;
  static constexpr double chance = 0.25;  // a smaller share of sweeps is taken for chance
  /// Waits in seconds of one running processor, negative: not touched. Answers that add up to the
  /// pairs that were swept: 1, or less than 0 for one that followed a little late: as many as those
  /// follow each other by chance.
  static double swept(double a, double b) {
    if (a < 0 && b < 0) return unknown;
    const double first = a < 0 ? b : b < 0 ? a : a < b ? a : b;
    if (first < far) return unknown;
    if (a < 0 || b < 0) return 0;
    const double apart = a > b ? a - b : b - a;
    return apart < near ? 1 : apart < 4 * near ? -1.0 / 3 : 0;
  }
};

/// Touches of a page that miss the cache, per second.
struct Misses {
  double random = 0;
  double sequential = 0;
};

class Cache {
 public:
  explicit Cache(double bytes) : lines_(bytes / 64) {}

  /// `swept`: share of touches that are part of sweeps. Also notes the lines that the page is
  /// expected to keep in the cache.
  Misses miss(double touches, double swept) {
    const double random = touches * (1 - swept);
    const double sequential = touches * swept;
    const double stay = random / lines_per_page + sequential;  // touches of one line, per second
    const double lost = decay(stay * age_);
    resident_ += lines_per_page * (1 - lost);
    return {random * lost, sequential * lines_per_page * lost};
  }
  /// All pages were seen once: adapts the age so that the next round fills the cache.
  void round() {
    if (resident_ > lines_)
      age_ *= resident_ > 2 * lines_ ? 0.5 : 0.9;
    else if (age_ < longest)
      age_ *= resident_ < 0.5 * lines_ ? 2.0 : 1.1;
    resident_ = 0;
  }
  [[nodiscard]] double age() const { return age_; }

 private:
  static constexpr double longest = 100;  // s
  double lines_;
  double age_ = 0.01;
  double resident_ = 0;
};

}  // namespace tt::record
