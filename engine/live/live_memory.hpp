// SPDX-License-Identifier: MIT

// LiveMemory: the seam's Memory on real pages of running processes.
//
// A policy knows two tiers. On a machine with more of them each pair of neighbours has a policy of
// its own, and a LiveMemory for it: what is in the lower of two tiers is slow to the one, fast to
// the one below, and absent to all others. So a page goes up and down a step at a time. They share
// what is known of pages; the topmost one looks at the processes for all.
//
// Between two calls into the policy it answers from what it has looked up: look() finds what the
// processes have populated, verify() asks again where pages are, a few at a time, and moves tell of
// theirs. One thread makes all calls.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "core/one_thread.hpp"
#include "core/seam.hpp"
#include "live/blocks.hpp"
#include "live/kernel_calls.hpp"
#include "live/level_accesses.hpp"
#include "live/mover.hpp"
#include "live/nodes.hpp"

namespace tt::live {

/// What tells which pages are accessed.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  /// As Memory::set_sampling.
  virtual SamplingRequest grant(const SamplingRequest& request) = 0;
  /// Adds what it has counted.
  virtual void count(Counters& counters) const = 0;
};

class LiveMemory final : public Memory {
 public:
  static constexpr std::uint64_t no_limit = std::numeric_limits<std::uint64_t>::max();
  struct Options {
    std::uint64_t fast_limit = no_limit;  // pages of all processes in the fastest tier
    Nanos quantum = from_millis(10);      // between two turns of the loop
    Mover::Options mover;
  };

  /// std::runtime_error when the size of a node cannot be read. `source` may be null: then nothing
  /// is sampled.
  LiveMemory(KernelCalls& kernel, const Nodes& nodes, const Options& options,
             SampleSource* source = nullptr);
  /// The step below `above`, which has to outlive it.
  LiveMemory(LiveMemory& above, SampleSource* source);

  // For the loop, of the topmost one.

  /// From the next look on these processes, and no others. One that has ended is forgotten by
  /// itself.
  void follow(std::span<const int> pids);
  [[nodiscard]] std::span<const int> pids() const { return pids_; }
  /// Looks at all processes. What has come and gone joins `changes`: of that all steps are told.
  /// Returns the first errno of a process that could not be looked at and has not ended; what is
  /// known of it stays.
  int look(BlockChanges& changes);
  /// How much of the last look's time was for asking where new pages are, which is asked once.
  [[nodiscard]] Nanos placing_time() const { return placing_time_; }
  /// Asks where the next pages are that a look has found and that are not known yet, some 50 ms of
  /// them; until then they count as absent. Returns whether there are more. The look asks for the
  /// first ones.
  bool place_some();
  /// Asks where so many of the known pages are, in turn.
  void verify(std::uint64_t pages);
  /// The source's counts are shared among the tiers below the fastest, where there are several.
  void share_accesses();
  /// The sample of an access, if it went to a page that is known. Below the fastest tier all is
  /// slow.
  [[nodiscard]] bool sample(int pid, std::uint64_t address, AccessKind kind, Sample& out) const;

  // For the loop, of each step.

  /// Tells the policy what a look has found.
  void tell(const BlockChanges& changes, Policy& policy, Nanos now);
  /// Those of the samples that are of this step's tiers; `room` may be used for them.
  [[nodiscard]] std::span<const Sample> own(std::span<const Sample> samples,
                                            std::vector<Sample>& room) const;
  /// Moves a batch and tells the policy; returns whether anything waited.
  bool move(Policy& policy, Nanos now);
  /// Policy::on_pressure, if free pages are below the policy's watermark.
  void press(Policy& policy, Nanos now);
  /// An operator changes what the fast tier may hold.
  void limit_fast(std::uint64_t pages, Policy& policy, Nanos now);
  /// Draining samples, and telling the policy of them, has taken so much more processor time.
  void sampling_took(Nanos time) { sampling_time_ += time; }
  [[nodiscard]] const Blocks& blocks() const { return shared_->blocks; }
  /// Known pages in the tier.
  [[nodiscard]] std::uint64_t used(Tier tier) const {
    return shared_->blocks.used(mover_.level(tier));
  }
  /// The level of its fast tier, and how many levels the machine has.
  [[nodiscard]] Level level() const { return mover_.level(Tier::fast); }
  [[nodiscard]] std::size_t levels() const { return shared_->nodes.of.size(); }
  [[nodiscard]] const MoveCounts& moves() const { return mover_.counts(); }

  // The seam.

  std::uint64_t page_bytes() const override { return base_page_bytes; }
  std::uint64_t capacity(Tier tier) const override;
  std::uint64_t free_pages(Tier tier) const override;
  std::uint64_t excess_pages(Tier tier) const override;
  void residency(std::span<const PageId> pages, std::span<Residency> out) const override;
  void residency(PageId first, std::span<Residency> out) const override;
  PageRange unit(PageId page) const override { return shared_->blocks.unit(page); }
  /// What is asked for inside a fault is queued like the rest: the fault is over.
  std::size_t request(Tier to, std::span<const PageId> pages, Way way) override;
  std::uint64_t pending(Tier to) const override { return mover_.pending(to); }
  /// Pages move by the loop's own thread, and a program that touches one waits.
  Movers set_movers(const Movers& movers) override;
  /// First touches are the kernel's: of a reserve it knows nothing.
  void set_watermarks(const Watermarks& marks) override { marks_ = marks; }
  SamplingRequest set_sampling(const SamplingRequest& request) override;
  Counters counters() const override;
  Nanos quantum() const override { return options_.quantum; }
  void charge(Work, std::uint64_t, Payer) override {}

 private:
  /// What all steps have in common.
  struct Shared {
    const Nodes nodes;
    Blocks blocks;
    LevelAccesses accesses;
    double moved_by_others = 0;  // pages
  };

  LiveMemory(KernelCalls& kernel, std::shared_ptr<Shared> shared, Level fast,
             const Options& options, SampleSource* source);
  int look_at(int pid, BlockChanges& changes, bool& ended);
  void read_nodes();

  OneThread thread_;
  KernelCalls& kernel_;
  const std::shared_ptr<Shared> shared_;
  const Options options_;
  SampleSource* const source_;
  std::vector<int> pids_, left_;  // followed; not any more, since the last look
  Mover mover_;
  Watermarks marks_;
  std::uint64_t fast_limit_;
  std::array<NodePages, tier_count> nodes_have_{};
  std::vector<PageId> unplaced_;  // the last one is the next
  int place_error_ = 0;
  Nanos placing_time_{};
  std::uint64_t next_verified_ = 0;
  Nanos sampling_time_{};
};

}  // namespace tt::live
