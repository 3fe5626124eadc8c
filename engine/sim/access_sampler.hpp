// Hardware access sampling: which accesses of the stream are seen by the policy.
//
// In the full system the accesses to a simulated page are interleaved with those to R - 1 others,
// so that a counter of period P meets each access with probability 1 / P independently of the last
// one: gaps between the samples of a miniature are exponential with mean P. Whole segments and
// chunks are skipped by their sums, so that sampling costs per sample and not per access.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/rng.hpp"
#include "core/seam.hpp"
#include "sim/gather.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

class AccessSampler {
 public:
  explicit AccessSampler(std::uint64_t seed) : rng_(seed) {}

  /// Takes effect at once.
  void set(const SamplingRequest& request);
  [[nodiscard]] const SamplingRequest& request() const { return request_; }

  /// Simulated events of the block that is about to be played, and its expected length: the basis
  /// of frequency mode, which sets period = event rate / frequency. The rate is a moving average
  /// over about 50 ms, as a kernel adjusts the period from recent ticks; after silence it starts
  /// anew.
  void observe(AccessKind kind, double events, double nanoseconds);

  /// Events per sample now; infinite when off.
  [[nodiscard]] double period(AccessKind kind) const { return period_[index(kind)]; }

  /// Appends the samples of a segment; returns how many.
  std::uint64_t play(const trace::Segment& segment, unsigned shift, const PageBits& slow,
                     std::vector<Sample>& out) {
    double& next = next_[index(segment.kind)];
    if (next >= static_cast<double>(segment.sum)) {
      next -= static_cast<double>(segment.sum);
      return 0;
    }
    return hit(segment, shift, slow, out);
  }

  /// Puts the samples of a block into a random order: blocks do not keep the order of accesses.
  void shuffle(std::vector<Sample>& samples);

 private:
  std::uint64_t hit(const trace::Segment& segment, unsigned shift, const PageBits& slow,
                    std::vector<Sample>& out);
  void apply(AccessKind kind);

  static constexpr double off = std::numeric_limits<double>::infinity();
  Rng rng_;
  SamplingRequest request_;
  std::array<double, 2> period_{off, off};
  std::array<double, 2> next_{off, off};  // events until the next sample
  std::array<double, 2> rate_{0, 0};      // simulated events per second
};

}  // namespace tt::sim
