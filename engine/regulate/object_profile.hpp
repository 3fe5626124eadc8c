// SPDX-License-Identifier: MIT

// Which objects are worth fast memory, by what a profiling run saw of them.
//
// Soar: Liu et al., "Tiered Memory Management Beyond Hotness", OSDI'25, §4.1, §4.2, Algorithm 1.
// An object is all that one site allocates. In each period it gets a score: its share R of the
// sampled accesses times the slowdown p that slow memory is predicted to cause in this period,
//
//     p = stall cycles / cycles * 1 / (a + b / AOL)                             (§3.3)
//
// scaled by a factor F where accesses overlap (AOL below L0): seldom accessed objects are likely
// to overlap less than the average and often accessed ones more.
//
//     R < R_min:  s = R * p * F        R > R_max:  s = R * p / F        else:  s = R * p
//
// Scores add up over the run. An object's rank is its score per page, of as many pages as it had at
// most.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/seam.hpp"

namespace tt::regulate {

/// F(AOL). The paper amplifies by 2 to 8, in steps that its text does not state ("higher AOL
/// corresponds to a larger factor"; those of Alto's Algorithm 2 are taken), and divides by 8. The
/// artifact uses one function for both, which falls: 12 up to 40 cycles, 8 to 45, 4 to 60, 2 to 80.
struct OverlapFactor {
  enum class Kind : std::uint8_t { paper, artifact };
  Kind kind = Kind::paper;
  [[nodiscard]] double amplify(double aol) const;
  [[nodiscard]] double divide(double aol) const;
};

struct ObjectRules {
  double least_share = 0.03, most_share = 0.7;  // R_min, R_max
  double overlap_aol = 100;                     // L0
  OverlapFactor factor;
  double a = 0.87, b = 24.67;  // of the predictor

  /// Algorithm 1 for one object in one period.
  [[nodiscard]] double score(double share, double slowdown, double aol) const;
  [[nodiscard]] double slowdown(double stall_share, double aol) const;
};

class ObjectProfile {
 public:
  explicit ObjectProfile(const ObjectRules& rules) : rules_(rules) {}

  struct Object {
    std::uint32_t site = 0;
    double score = 0;
    double accesses = 0;             // samples
    std::uint64_t live = 0;          // pages mapped now
    std::uint64_t pages = 0;         // the most at a time
    double first = 0, last = 0;      // seconds in which it was there
    std::vector<std::uint32_t> met;  // objects that were there at the same time, by index
  };

  void map(PageRange range, std::uint32_t site, Nanos now);
  void unmap(PageRange range, Nanos now);
  void count(std::span<const Sample> samples);
  /// The end of a period: scores its accesses. `memory` tells how much of each object is resident.
  void close(const Memory& memory, Nanos now);

  [[nodiscard]] double aol() const { return aol_; }
  [[nodiscard]] double slowdown() const { return slowdown_; }
  [[nodiscard]] const std::vector<Object>& objects() const { return objects_; }
  /// By rank. Objects that were never there together share a slot (§4.3: of short-lived objects
  /// that take turns, the largest counts).
  [[nodiscard]] Placement placement(const Memory& memory) const;

 private:
  struct Live {
    PageRange range;
    std::uint32_t object;
  };
  std::vector<Live>::iterator find(PageId page);
  std::uint32_t object_of(std::uint32_t site, Nanos now);

  ObjectRules rules_;
  std::vector<Object> objects_;
  std::vector<Live> live_;      // by address
  std::vector<double> period_;  // samples of each object since it began
  std::size_t last_ = 0;        // where the last sample was found, in live_
  Counters before_;
  double aol_ = 0, slowdown_ = 0;
};

}  // namespace tt::regulate
