// SPDX-License-Identifier: MIT

// PageSampler: the hint-fault sampler's thread. It takes pages away for a moment and learns from
// the threads that touch them.
//
// One thread does everything, so that nothing needs a lock. In turn it does:
//
//   take     a random present page goes to the stash (stash.hpp)
//   serve    a thread that touches it waits until the page is back; the wait tells the rate
//            (evidence.hpp, heat.hpp)
//   expire   a page that was not touched for `window_ns` comes back by itself
//   write    expected cache misses per page go to the spool (estimate_writer.hpp)
//   look     now and then: what is mapped, which pages are present (survey.hpp)
//
// budget.hpp keeps account of what that costs. Pages are taken only while there is credit; looking
// and writing slow down by themselves to a fifth of the budget each.
//
// Never taken: shared and file-backed memory (which cannot be moved), pinned pages (the kernel
// refuses), pages with thread descriptors (survey.hpp), thread stacks, and what this thread
// touches: it must not wait for itself. Its descriptors live in a table of its own, where the
// program neither sees nor closes them.
#pragma once

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <limits>

#include "core/rng.hpp"
#include "record/preload/budget.hpp"
#include "record/preload/changes.hpp"
#include "record/preload/estimate_writer.hpp"
#include "record/preload/evidence.hpp"
#include "record/preload/kernel.hpp"
#include "record/preload/recording.hpp"
#include "record/preload/stash.hpp"
#include "record/preload/survey.hpp"

namespace tt::record {

struct HintFaultOptions {
  double overhead = 0.05;  // of the program's processor time
  double cache_bytes = 13.75 * 1024 * 1024;
  double latency_ns = 90;      // of a miss, all memory fast
  std::uint64_t begin_ns = 0;  // of the recording, CLOCK_MONOTONIC
  char folder[Recording::folder_bytes] = {};
};

class PageSampler {
 public:
  explicit PageSampler(const HintFaultOptions& options)
      : options_(options),
        budget_(options.overhead),
        recording_(options.begin_ns),
        evidence_(own_),
        stash_(own_, evidence_.leaves(), budget_),
        survey_(own_, evidence_, budget_, recording_),
        writer_(evidence_, budget_, recording_, rng_, options.cache_bytes, options.latency_ns) {}
  PageSampler(const PageSampler&) = delete;
  PageSampler& operator=(const PageSampler&) = delete;

  // --- Called by the program's threads ----------------------------------------------------------

  /// Memory that the sampler's thread uses besides what it maps itself.
  void adopt(const void* at, std::uint64_t bytes) { own_.note(at, bytes); }
  /// An address in the loader (AT_BASE), whose data is left alone.
  void set_loader(std::uint64_t address) { survey_.set_loader(address); }
  /// Waits until the thread has begun to record, or has given up.
  void wait_until_started() {
    while (state_.load() == State::starting) {
      const timespec span{0, 1'000'000};
      ::syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, State::starting, &span, nullptr, 0);
    }
  }
  void report(const Change& change) {
    if (running()) (void)changes_.push(change);
  }
  /// Returns when all pages are back; none is taken before resume().
  void pause() {
    paused_.fetch_add(1);
    ask();
  }
  void resume() { paused_.fetch_sub(1); }
  /// In the child of a fork: the spool is the parent's.
  void abandon() { recording_.spool.abandon(); }
  /// Returns when all pages are back and the spool is closed; the thread ends.
  void stop() {
    stopping_.store(true);
    ask();
  }

  // --- The thread -------------------------------------------------------------------------------

  /// False: the process cannot be recorded.
  bool run() {
    const bool can = set_up();
    state_.store(can ? State::running : State::over);
    ::syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    if (!can) {
      close_files();
      return false;
    }
    const auto pause = [this] { serve(); };
    survey_.look(changes_, pause);
    std::uint64_t next = monotonic_ns() + tick_ns;
    while (!stopping_.load() && !recording_.spool.failed()) {
      wait(next);
      budget_.account();
      // A program that hardly runs is not worth a look every tick.
      next = monotonic_ns() + static_cast<std::uint64_t>(static_cast<double>(tick_ns) /
                                                         std::clamp(budget_.busy(), 0.1, 1.0));
      survey_.learn(changes_, pause);
      if (stash_.rung()) answer();
      if (stopping_.load()) break;
      expire();
      if (survey_.due()) survey_.look(changes_, pause);
      take_some();
      writer_.write_some();
    }
    finish();
    return true;
  }

 private:
  enum class State : std::uint32_t { starting, running, over };
  [[nodiscard]] bool running() const {
    return state_.load(std::memory_order_relaxed) == State::running;
  }

  static constexpr std::uint64_t tick_ns = 10'000'000;
  static constexpr std::uint64_t window_ns = 500'000'000;

  bool set_up() {
    // A descriptor table of our own, empty: the program's pipes must end when it closes them.
    if (::syscall(SYS_close_range, 0U, ~0U, 1U << 1 /* CLOSE_RANGE_UNSHARE */) != 0) return false;
    // A high priority, if we may: threads wait for us. Each of our steps is short.
    const sched_param lowest{.sched_priority = 1};
    if (::syscall(SYS_sched_setscheduler, 0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest) != 0)
      ::syscall(SYS_setpriority, PRIO_PROCESS, 0, -20);
    if (!survey_.open() || !stash_.open() || !recording_.open(options_.folder)) return false;
    recording_.spool.header()->threads = 1;
    recording_.spool.header()->error_share = 1;  // until the writer knows better
    rng_ = Rng{static_cast<std::uint64_t>(::getpid()) ^ options_.begin_ns};
    budget_.begin();
    return true;
  }
  void close_files() {
    stash_.close();
    survey_.close();
  }

  /// Serves until `until`.
  void wait(std::uint64_t until) {
    while (!stash_.rung()) {
      const std::uint64_t at = monotonic_ns();
      if (at >= until) return;
      const timespec span{0, static_cast<long>(until - at)};
      pollfd file{stash_.descriptor(), POLLIN, 0};
      if (::syscall(SYS_ppoll, &file, 1, &span, nullptr, 0) == 0) {
        const std::uint64_t late = monotonic_ns();
        if (late > until) budget_.woke_late(late - until);
        return;
      }
      serve();
    }
  }

  /// Gives back all pages that threads wait for now.
  void serve() {
    stash_.read_events();
    for (Stash::Fault fault{}; stash_.next_fault(fault);) {
      const std::uint16_t slot = stash_.holder(fault.address);
      if (slot == Stash::none)
        stash_.let_kernel_serve(fault.address);
      else
        observe(stash_.give_back(slot), slot, fault.ns, fault.address, fault.store);
      budget_.fault_served(fault.ns);
      stash_.read_events();
    }
  }
  void expire() {
    const std::uint64_t at = monotonic_ns();
    for (std::uint16_t slot; (slot = stash_.expired(at, window_ns)) != Stash::none;) {
      observe(stash_.give_back(slot), slot, at, 0, false);
      serve();
    }
  }

  /// Learns from a page that was away. `touched` 0: it was not accessed.
  void observe(const Stash::Slot& held, std::uint16_t index, std::uint64_t at,
               std::uint64_t touched, bool store) {
    const double exposed = std::max(budget_.program_s_at(at) - held.taken_s, 1e-6);
    evidence_.observe(held.address, held.address + held.bytes, exposed, touched, store);
    if (touched != 0) recording_.spool.header()->sampled += 1;
    if (held.partner == Stash::none) return;
    // The first of a pair to come back leaves its wait with the other.
    const double waited = touched == 0 ? -1 : exposed / std::max(budget_.busy(), 1.0);
    if (waits_[index] == pending) {
      waits_[held.partner] = waited;
      waits_[index] = 0;
    } else if (const double swept = Pair::swept(waits_[index], waited); swept != Pair::unknown) {
      evidence_.observe_pair(held.address, swept);
    }
  }

  // --- Taking -----------------------------------------------------------------------------------

  void take_some() {
    const std::uint64_t pages = evidence_.leaves().pages();
    if (paused_.load() > 0 || pages == 0 || budget_.credit() <= 0) return;
    const double cost =
        takes_ < 100 ? 50e-6 : std::max(1e-6, budget_.spent_s() / static_cast<double>(takes_));
    auto wanted = static_cast<std::uint64_t>(budget_.credit() / cost) + 1;
    wanted = std::min<std::uint64_t>(wanted, 128);
    const std::uint64_t most =
        std::min<std::uint64_t>(Stash::small_slots + Stash::huge_slots * 512, pages / 8 + 1);
    for (std::uint64_t i = 0; i < wanted && stash_.away() < most; ++i) {
      take_one();
      serve();
      if (stash_.rung()) return;
    }
  }
  void take_one() {
    Leaves& leaves = evidence_.leaves();
    for (unsigned attempt = 0; attempt < 64; ++attempt) {
      const Leaf& leaf = leaves[rng_.below(leaves.size())];
      const auto page = static_cast<unsigned>(rng_.below(leaf_pages));
      const std::uint64_t bit = std::uint64_t{1} << page;
      if ((leaf.present & ~leaf.away & bit) == 0) continue;
      const std::uint64_t address = (leaf.key << leaf_shift) + page * kernel::page_bytes;
      ++takes_;
      if ((leaf.huge & bit) != 0) {
        const std::uint64_t base = address & ~(kernel::huge_bytes - 1);
        if (allowed(base, kernel::huge_bytes)) (void)stash_.take(base, true, survey_.pagemap());
        return;
      }
      if (!allowed(address, kernel::page_bytes)) return;
      const std::uint16_t first = stash_.take(address, false, survey_.pagemap());
      // Now and then with its neighbour: were they swept?
      if (first == Stash::none || rng_.below(4) != 0 || page + 1 == leaf_pages) return;
      const std::uint64_t next = address + kernel::page_bytes;
      if ((leaf.present & ~leaf.away & ~leaf.huge & (bit << 1)) == 0 ||
          !allowed(next, kernel::page_bytes))
        return;
      ++takes_;
      const std::uint16_t second = stash_.take(next, false, survey_.pagemap());
      if (second == Stash::none || stash_.slot(first).address != address) return;
      stash_.pair(first, second);
      waits_[first] = waits_[second] = pending;
      return;
    }
  }
  [[nodiscard]] bool allowed(std::uint64_t address, std::uint64_t bytes) {
    return survey_.may_take(address, address + bytes) &&
           !stash_.in_quarantine(address, address + bytes);
  }

  // --- Answering the program's threads ----------------------------------------------------------

  /// Called by them: rings the bell and waits for the answer, for two seconds at most.
  void ask() {
    if (!running()) return;
    const std::uint32_t mine = asked_.fetch_add(1) + 1;
    if (!stash_.ring()) return;
    for (unsigned i = 0; i < 200; ++i) {
      const std::uint32_t answered = answered_.load();
      if (static_cast<std::int32_t>(answered - mine) >= 0) return;
      const timespec span{0, 10'000'000};
      ::syscall(SYS_futex, &answered_, FUTEX_WAIT_PRIVATE, answered, &span, nullptr, 0);
    }
  }
  void answer() {
    stash_.clear_bell();
    const std::uint32_t asked = asked_.load();
    if (paused_.load() > 0) stash_.give_all_back();
    if (stopping_.load()) return;  // finish() answers
    reply(asked);
  }
  void reply(std::uint32_t asked) {
    answered_.store(asked);
    ::syscall(SYS_futex, &answered_, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max(), nullptr,
              nullptr, 0);
  }

  void finish() {
    stash_.give_all_back();
    budget_.account();
    survey_.learn(changes_, [this] { serve(); });
    survey_.count_threads();
    writer_.write_all();
    state_.store(State::over);
    serve();
    recording_.spool.close(SpoolState::closed);
    stash_.read_events();
    close_files();
    reply(asked_.load() + (1u << 16));  // no thread needs to wait any more
  }

  static constexpr double pending = -2;

  HintFaultOptions options_;
  kernel::OwnMemory own_;
  Changes changes_;
  std::atomic<State> state_{State::starting};
  std::atomic<bool> stopping_{false};
  std::atomic<int> paused_{0};
  std::atomic<std::uint32_t> asked_{0};
  std::atomic<std::uint32_t> answered_{0};

  Rng rng_{0};
  Budget budget_;
  Recording recording_;
  Evidence evidence_;
  Stash stash_;
  Survey survey_;
  EstimateWriter writer_;
  double waits_[Stash::slots] = {};  // of a pair's other page: s, -1: untouched, `pending`
  std::uint64_t takes_ = 0;
};

}  // namespace tt::record
