// SPDX-License-Identifier: MIT

// The application: how its threads spend a block's time.
//
// A lane is a group of threads that runs on its own, while it has something to do. The lanes own
// the virtual clock, what each access costs on the machine, the current block's accesses by class,
// kind and tier, and where the time went since the start. The replay loop counts the accesses of a
// block; solve() turns the counts into work and the work into time (sim/timing.hpp has the
// equations).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/assert.hpp"
#include "core/types.hpp"
#include "sim/interference.hpp"
#include "sim/ledger.hpp"
#include "sim/profile.hpp"
#include "sim/timing.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

/// Time out of `total_ns` during which at least one thread has a read outstanding. All threads
/// together spend `outstanding_ns` of thread time with a read outstanding, independently of each
/// other. sim/README.md, equation (6).
[[nodiscard]] double busy_ns(double outstanding_ns, double threads, double total_ns);

class Lanes {
 public:
  struct Lane {
    double threads = 1;
    bool works = false;  // in the current block
    bool waits = false;  // had nothing to do in the last block in which others had
    double clock_ns = 0;
    LaneTime section;                         // since the timed part (or set-up) began
    std::array<double, tier_count> demand{};  // utilisation that its accesses cause
    LaneWork work;                            // of the current block
    std::array<Traffic, tier_count> lines;    // likewise: what its own accesses ask for
    LaneTime time;                            // likewise
    double last_ns = 0;                       // its time in the last block in which it worked
    // Thread time in the current block with a read outstanding, by tier.
    std::array<double, tier_count> outstanding_ns{};
    double samples = 0;                        // taken in the current block
    double samples_ns = 0;                     // thread time that they take
    double faults = 0;                         // faults on shadows in the current block
    double in_faults_ns = 0;                   // hint faults and moves in them, not felt yet
    double accesses_by_tier[tier_count] = {};  // likewise
  };

  /// `threads` of the application in all. `huge` pages save a share of the latency, as
  /// far as the accesses of a class need translation.
  Lanes(Ledger& ledger, const MachineProfile& profile, const trace::StreamInfo& info,
        double threads, bool huge);

  // Virtual time, that of the latest lane.
  [[nodiscard]] double now_ns() const { return now_ns_; }
  /// Of the timed part so far.
  [[nodiscard]] double timed_ns() const { return timed_before_ns_ + now_ns_ - section_start_ns_; }
  /// Expected length of a block, from the actual and the nominal length of the last one of its part
  /// of the run.
  [[nodiscard]] double expected_ns(const trace::Block& block) const {
    return block.nominal_ns * pace_;
  }

  /// Of the last block.
  [[nodiscard]] Load load() const;

  // Called by the replay loop, segment by segment.
  void clear_counts();
  /// Each sample takes `sample_ns` of the thread that it hits.
  void count(const trace::Segment& segment, std::uint64_t in_slow, std::uint64_t samples,
             double sample_ns) {
    TT_ASSERT(in_slow <= segment.sum);
    auto& by = counts_[segment.stream_class].by[index(segment.kind)];
    by[index(Tier::slow)] += in_slow;
    by[index(Tier::fast)] += segment.sum - in_slow;
    if (samples == 0) return;
    Lane& lane = lanes_[info_.classes[segment.stream_class].lane];
    lane.samples += static_cast<double>(samples) * scale_;
    lane.samples_ns += static_cast<double>(samples) * scale_ * sample_ns;
  }
  /// Of the accesses of a segment that were counted, those to huge pages, by tier: they save
  /// translation where page sizes are mixed.
  void count_huge(const trace::Segment& segment,
                  const std::array<std::uint64_t, tier_count>& accesses) {
    auto& huge = counts_[segment.stream_class].huge[index(segment.kind)];
    for (std::size_t t = 0; t < tier_count; ++t) huge[t] += accesses[t];
  }
  /// A thread of the class writes to a page with a shadow, which faults.
  void count_fault(std::uint32_t stream_class) {
    lanes_[info_.classes[stream_class].lane].faults += scale_;
  }
  /// Hint faults of a thread of the class; and pages that it moves in one.
  void take_faults(std::uint32_t stream_class, double count) {
    move_in_fault(stream_class, count * profile_.hint_fault_us * 1e3 * scale_);
  }
  void move_in_fault(std::uint32_t stream_class, double thread_ns) {
    lanes_[info_.classes[stream_class].lane].in_faults_ns += thread_ns;
  }
  /// The block that has been solved lasts longer by what its faults, and moves in them, have taken
  /// since the last call. Returns by how much virtual time has advanced.
  double extend();
  /// Accesses of the segment to pages of which `moving_share` move in this block, each away for
  /// `away_ns`.
  void count_in_flight(const trace::Segment& segment, std::uint64_t accesses, double moving_share,
                       double away_ns) {
    lanes_[info_.classes[segment.stream_class].lane].work.in_flight_ns2 +=
        static_cast<double>(accesses) * scale_ * moving_share * away_ns * away_ns / 2;
  }

  /// Turns counts into work and solves every lane's time. Returns by how much virtual time (the
  /// latest of the lanes' clocks) has advanced.
  double solve(const trace::Block& block, const Interference& interference);

  /// Set-up and timed parts alternate at barriers: all lanes wait for the last one. `timed`: the
  /// part that ends here is a timed one.
  void meet(bool timed);

  // The current block once it is solved, and the timed part once it has ended.
  [[nodiscard]] const Lane& of_class(std::uint32_t stream_class) const {
    return lanes_[info_.classes[stream_class].lane];
  }
  /// Wait of an access at the tier's idle latency.
  [[nodiscard]] double wait_ns(std::uint32_t stream_class, AccessKind kind, Tier tier) const {
    return wait_[stream_class][index(kind)][index(tier)];
  }
  /// What is left of it with huge pages, where page sizes are mixed.
  [[nodiscard]] double huge_share(std::uint32_t stream_class) const {
    return 1 - profile_.huge_page_gain * info_.classes[stream_class].translation;
  }
  [[nodiscard]] const LaneTime& timed_time() const { return timed_time_; }

 private:
  struct ClassCounts {
    std::uint64_t by[2][tier_count] = {};    // [kind][tier]
    std::uint64_t huge[2][tier_count] = {};  // of these, where page sizes are mixed
  };
  void collect(const trace::Block& block);
  void start_lanes();
  void evict(Lane& lane, double lines);
  void run(Lane& lane, const Interference& interference);
  void count_outstanding();
  void count_traffic(const Interference& interference);

  Ledger& ledger_;
  const MachineProfile& profile_;
  const trace::StreamInfo& info_;
  const double scale_;
  std::vector<Lane> lanes_;
  double total_threads_ = 0;
  double running_threads_ = 0;  // of the lanes that work in the current block
  std::vector<std::array<std::array<double, tier_count>, 2>> wait_;  // [class][kind][tier], idle
  std::vector<ClassCounts> counts_;                                  // per stream class

  double now_ns_ = 0;
  double nominal_ns_ = 0;  // of the last block
  double pace_ = 1;        // its actual length over that
  LaneTime timed_time_;
  double section_start_ns_ = 0;
  double timed_before_ns_ = 0;  // timed time of earlier timed sections
};

}  // namespace tt::sim
