// SPDX-License-Identifier: MIT

// EmulatedSamples: misses that an emulated machine samples as a processor would, from its ring
// (emulate/ring.hpp).
//
// The machine samples all that runs on it, as events of a processor do; what other processes do is
// thrown away. It counts every miss by tier, of the kernel and of all processes, whether or not
// anything is sampled. When it has no room for samples, all periods are doubled, and halved again
// after ten seconds without that.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "live/access_source.hpp"
#include "live/emulated_ring.hpp"
#include "live/lengthening.hpp"

namespace tt::live {

class EmulatedSamples final : public AccessSource {
 public:
  struct Options {
    Nanos window = from_millis(250);  // after which losses are answered
    Nanos calm = from_seconds(10);    // without losses, until periods are halved
    double most_hertz = 1e5;          // samples a second of a kind, as of a processor by Linux
  };
  EmulatedSamples(std::unique_ptr<EmulatedRing> ring, const Options& options);
  /// Nothing is sampled any more.
  ~EmulatedSamples() override;

  std::string_view name() const override { return "emulated"; }
  /// No Need::tier_counters: the machine counts accesses of each tier, but not how long they take.
  Need serves() const override { return Need::samples; }
  void start(std::span<const int> pids) override;
  int follow(std::span<const int> pids) override;
  void collect(const LiveMemory& memory, Nanos now, std::vector<Sample>& out) override;
  void spare(unsigned times) override;
  /// No thread of the kernel's takes part.
  bool kernel_time(Nanos& out) override {
    out = {};
    return true;
  }
  std::uint64_t lost() const override { return lost_; }
  std::string text() const override;

  /// A period is granted whole, a frequency to the nanosecond between two samples, of the whole
  /// system; both times what losses have made of them. The fast tier's samples are all taken.
  SamplingRequest grant(const SamplingRequest& request) override;
  /// Misses of the whole machine, since it was started.
  void count(Counters& counters) const override;

  /// What losses have made of periods: 1 or more.
  [[nodiscard]] unsigned longer() const { return longer_.times(); }

 private:
  /// Asks the machine for it. Returns what it gives.
  SamplingRequest::Event set(AccessKind kind);
  void sample(const emulate::SampleRecord& record, const LiveMemory& memory,
              std::vector<Sample>& out);
  void read_counts();
  /// Times as long as is asked for.
  [[nodiscard]] double stretched() const { return static_cast<double>(longer()) * spared_; }

  const std::unique_ptr<EmulatedRing> ring_;
  const Options options_;
  std::vector<emulate::SampleRecord> records_;  // of a collect
  std::vector<int> pids_;
  bool started_ = false;
  std::array<SamplingRequest::Event, 2> asked_;  // by AccessKind
  Lengthening longer_;
  unsigned spared_ = 1;
  Nanos window_{};

  using Misses = std::array<std::array<std::uint64_t, tier_count>, 2>;  // by kind and tier
  Misses misses_{}, misses_before_{};  // since it was started; as the machine told them last
  std::uint64_t lost_before_ = 0;
  std::uint64_t taken_ = 0, lost_ = 0;
  std::uint64_t foreign_ = 0, nobodys_ = 0, kernels_ = 0, unknown_ = 0, invalid_ = 0;
};

}  // namespace tt::live
