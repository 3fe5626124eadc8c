// SPDX-License-Identifier: MIT

// The simulated tiered machine: what a policy runs on when there is no live process.
//
// It only wires its parts. The page table knows where pages are and which of them are armed, the
// mover moves them, the traps turn first accesses into faults, accessed bits and answered probes,
// the lanes are the application and the clock, the sampler sees some of the accesses, the tiering
// thread runs the policy, and the ledger adds up. Mover and traps work on the page table; mover,
// traps and tiering thread tell the lanes what they cost (Interference); all of them write into the
// ledger. Everything else goes through the steps below.
//
// One simulated page stands for R real pages, one simulated access for R accesses to R different
// pages: every sum that leaves this class is multiplied by R, and virtual time is full-scale time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/assert.hpp"
#include "core/one_thread.hpp"
#include "core/seam.hpp"
#include "sim/access_sampler.hpp"
#include "sim/interference.hpp"
#include "sim/lanes.hpp"
#include "sim/ledger.hpp"
#include "sim/mover.hpp"
#include "sim/pages.hpp"
#include "sim/profile.hpp"
#include "sim/simulate.hpp"
#include "sim/tiering.hpp"
#include "sim/timing.hpp"
#include "sim/traps.hpp"
#include "trace/reader.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

class Machine final : public Memory {
 public:
  /// The needs of a policy that this machine can meet.
  static constexpr Need offers = Need::samples | Need::faults | Need::accessed_bits | Need::probes |
                                 Need::tier_counters | Need::mixed_pages | Need::shadows |
                                 Need::sites | Need::future | Need::copies | Need::placement;

  /// Throws std::invalid_argument for a page size that it does not have.
  Machine(const trace::Reader& stream, const MachineProfile& profile, const PolicyTraits& traits,
          const RunOptions& options);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Sets the policy that it runs. The policy is made with this machine as its memory, so it cannot
  /// be an argument of the constructor.
  void attach(Policy& policy);

  // Memory: what the policy sees.
  [[nodiscard]] std::uint64_t page_bytes() const override { return pages_.page_bytes(); }
  [[nodiscard]] std::uint64_t capacity(Tier tier) const override { return pages_.capacity(tier); }
  [[nodiscard]] std::uint64_t free_pages(Tier tier) const override { return pages_.free(tier); }
  void residency(std::span<const PageId> pages, std::span<Residency> out) const override {
    TT_ASSERT(out.size() == pages.size());
    for (std::size_t i = 0; i < pages.size(); ++i) out[i] = pages_.where(pages[i].value);
  }
  void residency(PageId first, std::span<Residency> out) const override {
    pages_.residency(first, out);
  }
  [[nodiscard]] PageRange unit(PageId page) const override { return pages_.unit(page.value); }
  std::size_t reshape(Change to, std::span<const PageId> units) override;
  /// Throws std::logic_error for Way::in_fault outside on_faults() or for other pages.
  std::size_t request(Tier to, std::span<const PageId> pages, Way way) override;
  [[nodiscard]] std::uint64_t pending(Tier to) const override { return mover_.pending(to); }
  Movers set_movers(const Movers& movers) override {
    mover_.set(movers);
    return movers;
  }
  void set_watermarks(const Watermarks& marks) override { pages_.set_watermarks(marks); }
  SamplingRequest set_sampling(const SamplingRequest& request) override {
    sampler_.set(request);
    return sampler_.granted();
  }
  [[nodiscard]] Counters counters() const override { return ledger_.counters(); }
  /// Throws std::logic_error outside on_faults() and for other pages.
  void fault_again(PageId page, std::uint32_t times) override;
  void leave_protected(std::span<const PageId> pages) override {
    thread_.check();
    traps_.leave_protected(pages, lanes_.now_ns());
  }
  std::uint64_t protect(PageRange range, Tiers which, PageMask untouched) override {
    TT_ASSERT(untouched.empty() || untouched.size() == mask_words(range.count));
    return traps_.protect(range, which, untouched, lanes_.now_ns());
  }
  void accessed(PageRange range, PageMask out, bool clear) override {
    TT_ASSERT(out.size() == mask_words(range.count));
    traps_.accessed(range, out, clear);
  }
  void accessed(std::span<const PageId> pages, PageMask out, bool clear) override {
    traps_.accessed(pages, out, clear);
  }
  void probe(std::span<const Probe> probes) override { traps_.probe(probes, lanes_.now_ns()); }
  /// The length of the last block; 1 ms before the first one.
  [[nodiscard]] Nanos quantum() const override { return whole_ns(block_ns_); }
  [[nodiscard]] std::string_view site(std::uint32_t id) const override {
    return id < sites_.size() ? sites_[id] : std::string_view{};
  }
  void charge(Work kind, std::uint64_t times, Payer by) override;

  // The steps of a block, in this order; sim/replay.cpp takes them.
  /// The border: the moves of the last block take effect.
  void finish_moves() { mover_.finish(lanes_.now_ns(), *policy_); }
  /// From set-up to a timed part or back.
  void enter_section(bool timed);
  /// Maps, first touches and unmaps, in order.
  void apply(std::span<const trace::Event> events);
  void start_moves(const trace::Block& block) {
    mover_.start(lanes_.expected_ns(block), tiering_.idle_share(), lanes_.load());
    traps_.arm_probes();
  }
  /// Counts the accesses by tier, and samples them.
  void play(const trace::Block& block);
  /// Returns how long the block takes.
  double solve(const trace::Block& block);
  /// Latency of an operation of the block that has just been solved.
  [[nodiscard]] double operation_ns(const trace::Operation& operation) const;
  /// Answered probes reach the policy, then faults, samples and ticks when they are due.
  void call_policy(double block_ns);

  // What the report is made of.
  [[nodiscard]] const PageTable& pages() const { return pages_; }
  [[nodiscard]] const Mover& mover() const { return mover_; }
  [[nodiscard]] const Lanes& lanes() const { return lanes_; }
  [[nodiscard]] const Ledger& ledger() const { return ledger_; }
  [[nodiscard]] std::uint64_t blocks_played() const { return blocks_played_; }
  /// Real pages for each simulated one: R.
  [[nodiscard]] double scale() const { return scale_; }

 private:
  /// Of a block with faults, at most.
  static constexpr double most_part_ns = 10e6;
  std::uint64_t play_armed(const trace::Segment& segment);
  [[nodiscard]] double play_faults(double block_ns);
  [[nodiscard]] Nanos now() const { return whole_ns(lanes_.now_ns()); }

  const OneThread thread_;
  const trace::StreamInfo& info_;
  const double scale_;
  Ledger ledger_;
  PageTable pages_;
  Mover mover_;
  Traps traps_;
  Lanes lanes_;
  AccessSampler sampler_;
  TieringThread tiering_;
  const bool by_faults_;                 // the policy needs them
  const bool maps_first_;                // as PolicyTraits
  std::vector<Sample> samples_;          // of the current block, until the tiering thread has them
  std::vector<std::uint32_t> tripped_;   // room for the entries of a segment
  std::vector<std::string_view> sites_;  // each name once
  std::vector<std::uint32_t> site_of_object_;  // index into sites_
  double block_ns_ = 1e6;                      // of the last block
  std::uint64_t blocks_played_ = 0;
  Policy* policy_ = nullptr;
};

}  // namespace tt::sim
