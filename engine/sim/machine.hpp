// The simulated tiered machine: what a policy runs on when there is no live process.
//
// It only wires the rooms. The page table knows where pages are, the mover moves them, the lanes
// are the application and the clock, the sampler sees some of the accesses, the tiering thread runs
// the policy, and the ledger adds up. The mover works on the page table; mover and tiering thread
// hand the lanes what they cost (Interference); all of them write into the ledger. Nobody else
// talks, except through the steps below.
//
// One simulated page stands for R real pages, one simulated access for R accesses to R different
// pages: every sum that leaves this class is multiplied by R, and virtual time is full-scale time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/seam.hpp"
#include "sim/interference.hpp"
#include "sim/lanes.hpp"
#include "sim/ledger.hpp"
#include "sim/mover.hpp"
#include "sim/pages.hpp"
#include "sim/profile.hpp"
#include "sim/sampler.hpp"
#include "sim/simulate.hpp"
#include "sim/tiering.hpp"
#include "sim/timing.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

class Machine final : public Memory {
 public:
  /// Throws std::invalid_argument if it cannot have pages of the size that is asked for.
  Machine(const trace::Reader& stream, const MachineProfile& profile, const PolicyTraits& traits,
          const RunOptions& options);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// The policy that it runs: made with this machine as its memory, so the machine is there first.
  void attach(Policy& policy);

  // Memory: what the policy sees.
  [[nodiscard]] std::uint64_t page_bytes() const override { return pages_.page_bytes(); }
  [[nodiscard]] std::uint64_t capacity(Tier tier) const override { return pages_.capacity(tier); }
  [[nodiscard]] std::uint64_t free_pages(Tier tier) const override { return pages_.free(tier); }
  void residency(std::span<const PageId> pages, std::span<Residency> out) const override {
    for (std::size_t i = 0; i < pages.size(); ++i) out[i] = pages_.where(pages[i].value);
  }
  void residency(PageId first, std::span<Residency> out) const override {
    pages_.residency(first, out);
  }
  std::size_t request(Tier to, std::span<const PageId> pages) override {
    return mover_.request(to, pages);
  }
  [[nodiscard]] std::uint64_t pending(Tier to) const override { return mover_.pending(to); }
  void set_sampling(const SamplingRequest& request) override { sampler_.set(request); }
  [[nodiscard]] Counters counters() const override { return ledger_.counters(); }
  void charge(Work kind, std::uint64_t times) override { tiering_.charge(kind, times); }

  // The steps of a block, in this order; sim/replay.cpp takes them.
  /// The border: the moves of the last block take effect.
  void finish_moves() { mover_.finish(lanes_.now_ns(), *policy_); }
  /// From set-up to a timed part or back.
  void enter_section(bool timed);
  /// What is mapped, touched and unmapped, in order.
  void apply(std::span<const trace::Event> events);
  void start_moves(const trace::Block& block) {
    mover_.start(lanes_.expected_ns(block), tiering_.idle_share(), lanes_.load());
  }
  /// Counts the accesses by tier, and samples them.
  void play(const trace::Block& block);
  /// Returns how long the block takes.
  double solve(const trace::Block& block);
  /// Of an operation that belongs to the block.
  [[nodiscard]] double operation_ns(const trace::Operation& operation) const;
  /// Samples, and the tick when it is due, reach the policy.
  void run_tiering_thread(double block_ns);

  // What the report is made of.
  [[nodiscard]] const PageTable& pages() const { return pages_; }
  [[nodiscard]] const Lanes& lanes() const { return lanes_; }
  [[nodiscard]] const Ledger& ledger() const { return ledger_; }
  /// Real pages for each simulated one: R.
  [[nodiscard]] double scale() const { return scale_; }

 private:
  template <bool InFlight>
  void play_segments(const trace::Block& block);
  [[nodiscard]] Nanos now() const { return whole_ns(lanes_.now_ns()); }

  const trace::StreamInfo& info_;
  const double scale_;
  Ledger ledger_;
  PageTable pages_;
  Mover mover_;
  Lanes lanes_;
  Sampler sampler_;
  TieringThread tiering_;
  std::vector<Sample> samples_;  // of the current block, until the tiering thread has them
  Policy* policy_ = nullptr;
};

}  // namespace tt::sim
