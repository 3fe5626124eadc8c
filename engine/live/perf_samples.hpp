// SPDX-License-Identifier: MIT

// PerfSamples: accesses that the processor samples (Intel PEBS, AMD IBS, Arm SPE), or the kernel by
// NUMA hinting faults, from perf's rings.
//
// An event is opened on each processor for all processes, not on each thread of those that are
// watched: threads and processes come and go without a call, an event of a thread takes a file and
// a ring on each processor, and before Linux 6.2 IBS knows no other way. What other processes do is
// sampled with it, and thrown away.
//
// Periods are fixed and set anew, as rates change, where a policy asks for a frequency: a processor
// that counts down from a fixed period fills a buffer before it interrupts (track/
// steered_sampling.hpp). When records are lost, or the kernel throttles an event, all periods are
// doubled, and halved again after ten seconds without that.
//
// SPE writes into an area beside the ring, in which a record tells what is new. How many operations
// a sample stands for, it does not say: the kernel ends what it tells of when a period changes, so
// that each piece is of one. Samples are of threads, of which those of the processes are looked up
// once a second. A piece that was cut short, or in which samples collided, counts as a loss of one:
// how many were lost, nobody knows.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "live/access_source.hpp"
#include "live/hardware_sample.hpp"
#include "live/lengthening.hpp"
#include "live/pmu.hpp"

namespace tt::live {

class PerfSamples final : public AccessSource {
 public:
  struct Options {
    double most_hertz = 1e5;     // samples a second of a kind, where a frequency is asked for
    double watched_hertz = 1e3;  // while a policy wants none: for the tiers' shares of accesses
    Nanos window = from_millis(250);  // over which rates are taken
    Nanos calm = from_seconds(10);    // without losses, until periods are halved
    Nanos threads = from_seconds(1);  // until those of the processes are looked up again
  };
  PerfSamples(KernelCalls& kernel, Pmu pmu, const Options& options);

  std::string_view name() const override { return pmu_.name; }
  Need serves() const override { return Need::samples; }
  bool takes_balancing() const override { return pmu_.layout == SampleLayout::fault; }
  void start(std::span<const int> pids) override;
  int follow(std::span<const int> pids) override;
  void collect(const LiveMemory& memory, Nanos now, std::vector<Sample>& out) override;
  void spare(unsigned times) override;
  /// The kernel writes records in interrupts, which it counts for whom they interrupt.
  bool kernel_time(Nanos& out) override {
    out = {};
    return true;
  }
  std::uint64_t lost() const override { return lost_; }
  std::string text() const override;

  /// A period is granted from the processor's least one on, times what losses have made of it; a
  /// frequency is of the whole system. The fast tier's samples are all taken.
  SamplingRequest grant(const SamplingRequest& request) override;
  /// Accesses by the tier and kind of what was sampled, each for as many events as it stands for;
  /// also while a policy wants no samples.
  void count(Counters& counters) const override;

  /// Records of a ring; returns the bytes dealt with. std::runtime_error for an invalid record.
  /// Without its ring, no area can be read.
  std::size_t feed(std::span<const std::byte> bytes, const LiveMemory& memory,
                   std::vector<Sample>& out, SampleRing* ring = nullptr);
  /// Events between two samples of this kind now, before any are left out; 0 if it has none.
  [[nodiscard]] std::uint64_t period(AccessKind kind) const;
  /// What losses have made of periods: 1 or more.
  [[nodiscard]] unsigned longer() const { return longer_.times(); }

 private:
  struct Kind {
    std::optional<std::size_t> event;  // its index
    SamplingRequest::Event asked;
    double wanted = 0;  // occurrences between two samples that are handed on
    double events = 0;  // occurrences in this window
    double owed = 0;    // of a sample
  };
  SamplingRequest::Event grant(Kind& kind, const SamplingRequest::Event& asked);
  [[nodiscard]] const Pmu::Event& event(const Kind& kind) const { return pmu_.events[*kind.event]; }
  void sample(const perf_event_header& header, std::span<const std::byte> body,
              const LiveMemory& memory, std::vector<Sample>& out);
  void read_area(std::span<const std::byte> body, SampleRing* ring, const LiveMemory& memory,
                 std::vector<Sample>& out);
  /// Of what a ring's area has there.
  std::uint64_t period_at(SampleRing* ring, std::uint64_t begin);
  /// What has been decoded to waiting_[waiting_count_].
  void count(HardwareSample::Fate fate, const LiveMemory& memory, std::vector<Sample>& out);
  void find_threads();
  void look_up(const LiveMemory& memory, std::vector<Sample>& out);
  void hand_on(const HardwareSample& found, const Sample& known, std::vector<Sample>& out);
  void steer(Nanos now);
  void set_periods();
  /// Times as long as is asked for.
  [[nodiscard]] double stretched() const { return static_cast<double>(longer()) * spared_; }

  KernelCalls& kernel_;
  const Pmu pmu_;
  const Options options_;
  std::vector<std::unique_ptr<SampleRing>> rings_;
  std::vector<std::byte> bytes_;
  static constexpr std::size_t waiting_most = 64;
  std::array<HardwareSample, waiting_most> waiting_;  // decoded, not looked up yet
  std::size_t waiting_count_ = 0;
  std::vector<int> pids_;
  std::array<Kind, 2> kinds_;           // by AccessKind
  std::vector<std::uint64_t> periods_;  // of each event, as set
  Lengthening longer_;
  unsigned spared_ = 1;
  Nanos window_{};
  int period_error_ = 0, resume_error_ = 0;
  struct Period {
    std::uint64_t end = 0;  // where another one begins in the area
    std::uint64_t period = 0;
  };
  std::map<const SampleRing*, std::deque<Period>> periods_before_;
  std::vector<std::byte> area_;
  std::unordered_map<int, int> processes_;  // by thread
  Nanos threads_found_{};

  std::array<std::array<double, tier_count>, 2> events_{};  // by kind and tier
  std::uint64_t taken_ = 0, lost_ = 0, throttled_ = 0;
  std::uint64_t cached_ = 0, other_ = 0, outside_ = 0, foreign_ = 0, unknown_ = 0;
};

}  // namespace tt::live
