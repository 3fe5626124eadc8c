// SPDX-License-Identifier: MIT

// EstimateWriter: writes the expected cache misses of every page to the spool.
//
// Leaves are written in rounds, a part of them per tick; a page's record stands for the misses
// since its last one. A round is as long as its share of the budget requires. Records that would
// stand for few misses are written less often, so that their rate stays bounded. Misses for which
// the program had no time are scaled down, and what they do not explain of its processor time is
// written as computing.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/rng.hpp"
#include "record/preload/budget.hpp"
#include "record/preload/evidence.hpp"
#include "record/preload/heat.hpp"
#include "record/preload/recording.hpp"
#include "trace/overlap.hpp"

namespace tt::record {

class EstimateWriter {
 public:
  /// Share of the budget that writing may cost.
  static constexpr double budget_share = 0.2;

  EstimateWriter(Evidence& evidence, const Budget& budget, Recording& recording, Rng& rng,
                 double cache_bytes, double latency_ns)
      : evidence_(evidence),
        budget_(budget),
        recording_(recording),
        rng_(rng),
        cache_(cache_bytes),
        latency_s_(latency_ns * 1e-9) {}

  /// The part of the leaves that is due in this tick.
  void write_some() {
    Leaves& leaves = evidence_.leaves();
    if (leaves.size() == 0) return;
    due_ += static_cast<double>(leaves.size()) * budget_.used_s() / round_s_;
    const auto part = std::min(static_cast<std::size_t>(due_), leaves.size());
    if (part == 0) return;
    due_ -= static_cast<double>(part);
    const double began = own_seconds();
    recording_.stamp();
    write_compute();
    for (std::size_t i = 0; i < part; ++i) {
      if (cursor_ >= leaves.size()) {
        end_round();
        break;
      }
      write(leaves[cursor_++]);
    }
    note_error();
    round_cost_s_ += own_seconds() - began;
  }
  /// Everything, at the end of the recording.
  void write_all() {
    recording_.stamp();
    Leaves& leaves = evidence_.leaves();
    for (std::size_t i = 0; i < leaves.size(); ++i) write(leaves[i]);
    write_compute();
    if (all_ == 0) recording_.spool.header()->error_share = 0;
    note_error();
  }

 private:
  static constexpr double forget_s = 30;  // mean life of a page's evidence
  static constexpr double records_per_second = 20'000;

  /// The program may end at any moment: what is written is never without an uncertainty.
  void note_error() {
    if (all_ > 0) recording_.spool.header()->error_share = doubt_ / all_;
  }
  /// Processor time that the misses written so far do not explain.
  void write_compute() {
    compute_s_ += budget_.program_s() - computed_s_;
    computed_s_ = budget_.program_s();
    if (compute_s_ <= 0) return;
    recording_.spool.compute(compute_s_ * 1e9);
    compute_s_ = 0;
  }
  void write(Leaf& leaf) {
    const double span = budget_.program_s() - leaf.counted;
    leaf.counted = budget_.program_s();
    if (span <= 0 || leaf.present == 0) return;
    const std::uint64_t base = leaf.key << leaf_shift;
    const std::uint64_t first =
        base + static_cast<std::uint64_t>(std::countr_zero(leaf.present)) * kernel::page_bytes;
    Region* const region = evidence_.regions().find(first);
    if (region == nullptr) return;
    const Rates& near = evidence_.around(*region, first);
    leaf.forget(rng_, span / (forget_s * std::max(budget_.busy(), 1.0)));
    leaf.fit(near);  // what is around may have become better known
    const double stores = evidence_.stores(*region);
    const double sweeps = evidence_.sweeps(*region);
    double written = 0;
    for (std::uint64_t rest = leaf.present; rest != 0; rest &= rest - 1) {
      const auto page = static_cast<unsigned>(std::countr_zero(rest));
      const std::uint64_t address = base + page * kernel::page_bytes;
      const Misses misses = cache_.miss(leaf.rate(page, near), sweeps);
      stall_s_ += (misses.random / trace::random_pattern.mlp +
                   misses.sequential / trace::sequential_pattern.mlp) *
                  span * latency_s_;
      written += put(address, misses.random * span * plausible_, stores, 0);
      written += put(address, misses.sequential * span * plausible_, stores, 1);
    }
    total_ += written;
    all_ += written;
    doubt_ += written / square_root(leaf.evidence() + 1);
  }
  /// A record stands for `least_` accesses at least: what is expected to be less is written less
  /// often.
  double put(std::uint64_t address, double count, double stores, std::uint32_t stream_class) {
    if (count <= 0) return 0;
    const double kept = std::max(count, least_);
    if (kept == count || rng_.uniform() * kept < count) {
      const bool store = rng_.uniform() < stores;
      recording_.spool.access(address, store, stream_class, kept);
      const double mlp =
          (stream_class == 0 ? trace::random_pattern : trace::sequential_pattern).mlp;
      compute_s_ -= kept * (store ? trace::store_stall : 1) * latency_s_ / mlp;
    }
    return count;
  }
  void end_round() {
    SpoolHeader& header = *recording_.spool.header();
    const std::uint64_t at = monotonic_ns();
    const double wall = static_cast<double>(at - round_ns_) * 1e-9;
    const double used = budget_.program_s() - round_program_s_;
    if (wall > 0) {
      least_ = std::max(1.0, total_ / (records_per_second * wall));
      // Threads that run, not those that wait: processors used, rounded.
      const auto running = static_cast<std::uint32_t>(used / wall + 0.5);
      header.threads = std::max(header.threads, std::min(running, budget_.threads()));
    }
    if (used > 0) plausible_ = std::min(1.0, used / std::max(stall_s_, 1e-12));
    round_s_ = std::max(0.1 * std::max(budget_.busy(), 1.0),
                        round_cost_s_ / (budget_share * budget_.overhead()));
    cache_.round();
    total_ = stall_s_ = round_cost_s_ = 0;
    round_ns_ = at;
    round_program_s_ = budget_.program_s();
    cursor_ = 0;
  }
  static double square_root(double x) {  // without the C library
    double y = x < 1 ? 1 : x;
    for (int i = 0; i < 40 && y * y - x > 1e-9 * x; ++i) y = 0.5 * (y + x / y);
    return y;
  }

  Evidence& evidence_;
  const Budget& budget_;
  Recording& recording_;
  Rng& rng_;
  Cache cache_;
  double latency_s_;  // of a miss

  std::size_t cursor_ = 0;  // leaves written in this round
  double due_ = 0;          // leaves to be written by now
  double round_s_ = 0.1;    // of the program's processor time, per round
  double round_cost_s_ = 0;
  double round_program_s_ = 0;  // the program's processor time when it began
  std::uint64_t round_ns_ = 0;
  double least_ = 1;
  double plausible_ = 1;   // share of the expected misses for which there was time
  double total_ = 0;       // accesses written in this round
  double stall_s_ = 0;     // and what all expected ones would have stalled
  double all_ = 0;         // accesses written in all
  double doubt_ = 0;       // and expected errors of them
  double compute_s_ = 0;   // computed, and not written yet; less than 0: written too early
  double computed_s_ = 0;  // processor time up to which that is
};

}  // namespace tt::record
