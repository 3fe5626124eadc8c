// SPDX-License-Identifier: MIT

// What waits for the next access to a page: protection, accessed bits, probes.
//
// A page is armed in the page table; the replay loop tells each entry that touches an armed page. A
// clear accessed bit is set at once, and one that is cleared after that within the block by what
// follows in it (accessed_again.hpp). First accesses of protected pages are drawn when the block
// has been played; they get their times when it is solved and probes are answered, too, and reach
// the policy one by one, in order of time, each with what it takes of its thread's time. Draws are
// made in order of pages, or of probes, so that results do not depend on the order in which entries
// are found.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/rng.hpp"
#include "core/seam.hpp"
#include "sim/accessed_again.hpp"
#include "sim/interference.hpp"
#include "sim/lanes.hpp"
#include "sim/ledger.hpp"
#include "sim/pages.hpp"
#include "sim/per_page.hpp"
#include "sim/profile.hpp"
#include "trace/stream.hpp"

namespace tt::sim {

/// The time of the first of n accesses that are spread evenly and independently over a block, as a
/// share of the block: it is later than x with probability (1 - x)^n. `u` in [0, 1) is the draw.
/// sim/README.md, equation (1).
[[nodiscard]] double first_access(std::uint64_t n, double u);
/// How many of n such accesses lie within a share x of the block: binomial, by inversion of `u`, so
/// that there is none with probability (1 - x)^n; the mean where that is as good as impossible.
[[nodiscard]] std::uint32_t accesses_within(std::uint32_t n, double x, double u);

class Traps {
 public:
  /// Each simulated page stands for `scale` real ones; the application has `threads` threads.
  Traps(PageTable& pages, Ledger& ledger, const MachineProfile& profile, double scale,
        double threads, std::uint64_t seed);

  // As in Memory.
  std::uint64_t protect(PageRange range, Tiers which, PageMask untouched, double now_ns);
  void leave_protected(std::span<const PageId> pages, double now_ns);
  void accessed(PageRange range, PageMask out, bool clear);
  void accessed(std::span<const PageId> pages, PageMask out, bool clear);
  void probe(std::span<const Probe> probes, double now_ns);
  /// Work that the application's threads are made to do, felt in the next block.
  void charge_application(double thread_ns) { application_ns_ += thread_ns; }

  // The steps of a block.
  /// Pages that have just come into being, each with a fault, and cleared: README.md, (10).
  void first_touched(const PageTable::Placed& placed);
  /// Pages that are about to vanish.
  void forget(PageRange range);
  /// `count` accesses of the segment to an armed page.
  void touch(const trace::Segment& segment, std::uint64_t page, std::uint64_t count);
  /// After the last touch() of a block: draws which access to each protected page is the first.
  void draw();
  /// Adds what the application was charged since the last block.
  void disturb(Interference& out);
  /// A split leaves the probes of its pages to the next block, whose moves have begun.
  void arm_probes();
  /// During on_faults(): the class of the access that faulted on the page, if any did.
  [[nodiscard]] std::optional<std::uint32_t> faulted(PageId page) const;
  /// During on_faults(): the thread that faulted on the page faults so many times again.
  void fault_again(PageId page, std::uint32_t times, Lanes& lanes);
  /// The block has been played; and so much of it has passed.
  void begin(const trace::Block& block) { again_.begin(block); }
  void passed(double share) { again_.at(share); }
  /// The block has been solved and took `block_ns`: its faults get their times, and the policy the
  /// probes that are over.
  void settle(double block_ns, const Lanes& lanes, Policy& policy);
  /// The policy gets the block's next fault, if there is one until then; it is so late by now, and
  /// takes the time of its thread. Returns until when the policy has all.
  double deliver(double until_ns, double late_ns, Lanes& lanes, Policy& policy);
  /// Counters and probes are those of the pages that are armed. For assertions.
  [[nodiscard]] bool consistent() const;

 private:
  struct Touched {  // a protected page, in one segment
    std::uint32_t page = 0;
    std::uint32_t stream_class = 0;
    AccessKind kind = AccessKind::load;
    std::uint64_t count = 0;
  };
  struct First {  // a protected page's first access in the block
    std::uint32_t page = 0;
    std::uint32_t stream_class = 0;
    AccessKind kind = AccessKind::load;
    double place = 0;  // share of the block
    double at_ns = 0;
  };
  struct Unseen {  // of a probed page's accesses in a block: what no probe has looked at yet
    std::uint32_t accesses = 0;
    float seen_share = 0;  // of the block
  };
  struct Round {  // one call of probe()
    std::vector<Probe> probes;
    double end_ns = 0;
  };
  void arm(const Probe& probe);
  /// Takes the access rights, of a page each `entry_ns`, and keeps the times; the pages are in
  /// fresh_.
  std::uint64_t guard(PageRange range, Tiers which, PageMask untouched, double now_ns,
                      double entry_ns);
  void look(Probe& probe, double start_ns, double end_ns);
  void answer_probes(double block_ns, double now_ns, Policy& policy);

  PageTable& pages_;
  Ledger& ledger_;
  const MachineProfile& profile_;
  const double scale_;
  const double threads_;
  Rng rng_;
  PerPage<std::uint32_t> protected_at_ms_;
  std::vector<std::uint64_t> fresh_;  // mask of what a call of protect() has protected
  std::vector<Touched> touched_;
  std::vector<First> firsts_;           // by page
  std::vector<std::uint32_t> in_time_;  // indices into firsts_, by time
  std::size_t delivered_ = 0;           // of in_time_, before this delivery
  const First* faulted_ = nullptr;      // during on_faults()
  PerPage<Unseen> unseen_;              // since virtual time last went on
  std::vector<Round> rounds_;
  AccessedAgain again_;
  double application_ns_ = 0;
  double scan_ns_ = 0;     // of a thread in protect() since the last disturb()
  double scanned_ns_ = 0;  // and before that: the block that is played began with it
};

}  // namespace tt::sim
