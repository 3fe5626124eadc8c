// SPDX-License-Identifier: MIT

// Observer: what an instrumented program's loads and stores become before they are written down.
//
// Every load and store of every thread comes in; what goes out to the spool is, per interval and
// page, how many lines were missed by the last-level cache or made dirty (the recorder's
// definition, trace/recorder.hpp), by class:
//
//   access -> recent lines (per thread) -> batch (per thread) -> cache filter -> cells -> spool
//
//  - Recent lines: a direct-mapped table of 512 lines. It answers nearly all accesses and stands
//    for the first-level cache; what it answers does not refresh the line in the LLC's LRU order,
//    as in a processor.
//  - Batch: misses of that table, with their class. A full batch goes through the LLC filter, which
//    all threads share, under one lock.
//  - Cells: counts per page, class and kind of the open interval. An interval is as long as a
//    sixteenth of what came before, up to `interval_ms`: whenever the program is killed, at most
//    that much is lost.
//
// Classes. Sequential: a neighbouring line was missed lately (as a hardware streamer would notice).
// Dependent: the address lies in an object to which one of the last lines that were missed holds a
// pointer, unless that line is part of a longer sequential run, for then the pointers were there
// long before they were needed. Random: all others.
//
// Operations. A thread says when it begins one and when it has ended it. All are counted; some are
// kept whole, with what reached the cells meanwhile, and written down as they end, or with the
// interval for what they have done until then.
//
// Clock. Threads have clocks of their own: instructions times cycles per instruction, plus what
// their misses stall at the nominal latency. The recording's clock is the furthest of all threads
// of all processes (in a page that they share); a thread that has waited for others takes it over.
// So time is that of the imagined machine with idle time left out, and the same for every run of a
// single-threaded program.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/types.hpp"
#include "record/spool.hpp"
#include "trace/llc.hpp"
#include "trace/overlap.hpp"

namespace tt::record {

/// Index into the stream's classes; the sampler's Python side declares them in this order.
/// `resident`: a store to a line that was in the cache, which costs its write-back alone.
enum class Pattern : std::uint8_t { random = 0, sequential = 1, dependent = 2, resident = 3 };
inline constexpr std::size_t pattern_count = 4;

struct ObserverOptions {
  std::string folder;
  std::string sampler = "emulation";
  double llc_mib = 13.75;
  double ghz = 2.2;
  double cpi = 0.5;
  double latency_ns = 90;
  double interval_ms = 5;
  std::uint64_t until_ns = 0;  // of CLOCK_MONOTONIC: the recording's end; 0: the program's
  void (*ended)() = nullptr;   // called once, when that has come
  /// Of each Pattern but `resident`, for which no thread waits.
  std::array<double, pattern_count - 1> mlp = {
      trace::random_pattern.mlp, trace::sequential_pattern.mlp, trace::dependent_pattern.mlp};
};

/// One thread of the program.
class alignas(64) ObservedThread {
  friend class Observer;

  static constexpr std::size_t recent_lines = 512;
  static constexpr std::size_t stream_lines = 256;
  static constexpr std::size_t batch_size = 256;
  static constexpr std::size_t pointer_lines = 4;
  static constexpr std::uint64_t none = ~std::uint64_t{0};

  struct Missed {
    std::uint64_t line;
    Pattern pattern;
    bool store;
  };
  struct StreamLine {
    std::uint64_t line = none;
    std::uint32_t run = 0;  // lines before it in its sequence
  };

  std::int64_t left_ = 0;                           // instructions until the next drain
  std::array<std::uint64_t, recent_lines> recent_;  // line << 1 | known to be dirty
  std::array<StreamLine, stream_lines> streams_;
  std::array<std::array<std::uint64_t, 8>, pointer_lines> pointers_{};
  std::size_t next_pointers_ = 0;
  std::array<Missed, batch_size> batch_;
  std::size_t used_ = 0;
  double clock_ns_ = 0;

  struct OperationAccess {
    std::uint32_t cell;
    std::uint32_t count;
  };
  bool in_operation_ = false;
  bool kept_ = false;                  // whole
  std::uint32_t level_ = 0;            // of the operation (spool.hpp)
  std::uint32_t slot_ = 0;             // given with the first operation, from 1 on
  std::int64_t instructions_ = 0;      // until the last drain
  std::int64_t began_ = 0;             // of these
  std::vector<OperationAccess> done_;  // of an operation that is kept, not written yet

 public:
  /// Whether the table of recent lines answers an access to the line of the address: then nothing
  /// changes.
  [[nodiscard]] bool answers(std::uint64_t address, bool store) const {
    const std::uint64_t line = address / trace::line_bytes;
    // The least that answers, or one more: a load may find the line dirty. (One more than a store's
    // would be the next line, which has another place.)
    return recent_[line % recent_lines] - (line << 1 | (store ? 1U : 0U)) <= 1;
  }
  /// Instructions were executed. True: the thread is to be drained now.
  [[nodiscard]] bool executed(std::uint64_t count) {
    return (left_ -= static_cast<std::int64_t>(count)) <= 0;
  }
};

class Observer {
 public:
  explicit Observer(ObserverOptions options);
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  ~Observer();

  /// Guest address + base = our address; what is mapped so far becomes known. Called once, before
  /// the first access.
  void adopt(std::uint64_t base);

  // The fast path. No two threads may use one ObservedThread at the same time.
  void load(ObservedThread& thread, std::uint64_t address) {
    if (!thread.answers(address, false)) [[unlikely]]
      missed_load(thread, address);
  }
  void store(ObservedThread& thread, std::uint64_t address) {
    if (!thread.answers(address, true)) [[unlikely]]
      missed_store(thread, address);
  }
  void instructions(ObservedThread& thread, std::uint64_t count) {
    if (thread.executed(count)) [[unlikely]]
      drain(thread);
  }

  /// A copy by the kernel: all lines of a buffer.
  void touch(ObservedThread& thread, std::uint64_t address, std::uint64_t bytes, bool store);

  /// A thread begins, with nothing pending, at its creator's time, or where there is none at the
  /// time that the recording has come to.
  void begin(ObservedThread& thread, ObservedThread* creator = nullptr);
  /// It has waited for others: their time is its own now.
  void waited(ObservedThread& thread);

  // Operations: one at a time for each thread. One that has not ended when the next begins is given
  // up, and counted.
  void begin_operation(ObservedThread& thread);
  void end_operation(ObservedThread& thread);
  [[nodiscard]] static bool in_operation(const ObservedThread& thread) {
    return thread.in_operation_;
  }
  /// The thread is over; so is its operation.
  void end_thread(ObservedThread& thread);
  /// A USDT probe was found at which operations begin or end.
  void probe() { ++probes_; }

  // Mappings, in bytes of the program's addresses. `thread`'s accesses so far came before.
  /// `site`: the caller that asked for it, or the file; `offset`: in that file; `code`: of a
  /// program or library; `shared`: names memory that is shared with others, 0: it is not.
  void map(ObservedThread& thread, std::uint64_t address, std::uint64_t bytes,
           const std::string& site, std::uint64_t offset = 0, bool code = false,
           std::uint64_t shared = 0);
  /// What names a file that processes map shared.
  [[nodiscard]] static std::uint64_t shared_file(unsigned major, unsigned minor,
                                                 std::uint64_t inode) {
    return mix64(inode ^ std::uint64_t{major} << 44 ^ std::uint64_t{minor} << 24) | 1;
  }
  void unmap(ObservedThread& thread, std::uint64_t address, std::uint64_t bytes);
  void discard(ObservedThread& thread, std::uint64_t address, std::uint64_t bytes);
  /// End of the mapping that holds the address, 0 if none does.
  [[nodiscard]] std::uint64_t mapping_end(std::uint64_t address);
  struct Place {
    std::string site;  // empty: not mapped
    std::uint64_t offset = 0;
    bool code = false;
    std::uint64_t shared = 0;
  };
  [[nodiscard]] Place place(std::uint64_t address);

  /// What the thread has pending goes through the cache filter.
  [[gnu::noinline]] void drain(ObservedThread& thread);
  /// The same, and the interval is written down.
  void flush(ObservedThread& thread);
  /// The same, and closes the spool; from now on nothing is recorded.
  void finish(ObservedThread* thread);
  /// This process is about to execute another program (true), or could not (false).
  void leave(bool leaving);
  /// Whether this process, with the rights that it has now, could begin a spool.
  [[nodiscard]] bool reachable() const;
  /// This process is about to execute a program that is not recorded (true), or could not (false).
  void unseen(bool leaving) { leaving ? unseen_.count() : unseen_.take_back(); }
  [[nodiscard]] std::uint64_t now_ns() const;
  /// Whether the recording's end has come.
  [[nodiscard]] bool past_end() const;

  /// Around fork(): nobody writes while the process is copied; the child gets a spool of its own,
  /// in which all mappings are written again.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();

 private:
  struct Mapping {
    std::uint64_t end;
    std::string site;
    std::uint64_t offset;
    bool code;
    std::uint64_t shared;
  };
  using Mappings = std::map<std::uint64_t, Mapping>;
  static constexpr std::uint32_t no_page = 0xffffffff;
  static constexpr std::size_t kinds = 2 * pattern_count;

  [[gnu::noinline]] void missed_load(ObservedThread& thread, std::uint64_t address);
  [[gnu::noinline]] void missed_store(ObservedThread& thread, std::uint64_t address);
  /// Notes the line; its place in a sequential run, 0: none.
  static std::uint32_t run_of(ObservedThread& thread, std::uint64_t line);
  static bool pointed_to(const ObservedThread& thread, std::uint64_t address);

  // All that follows needs the lock.
  void drain_locked(ObservedThread& thread);
  void write_interval();
  void finish_locked();
  void give_up_operation(ObservedThread& thread);
  void write_operation(ObservedThread& thread);
  bool open_spool();
  std::uint32_t page_of(std::uint64_t page);
  [[nodiscard]] std::uint32_t* leaf(std::uint64_t page, bool make);
  bool any_pages(std::uint64_t address, std::uint64_t bytes, bool forget);
  Mappings::iterator find(std::uint64_t address);
  Mappings::iterator look_up(std::uint64_t address);
  void cut_out(std::uint64_t from, std::uint64_t to);

  ObserverOptions options_;
  std::uint64_t base_ = 0;  // the program's address + base = ours
  double instruction_ns_;
  std::array<double, kinds> stall_ns_{};  // per counted line, by kind of cell

  std::mutex lock_;
  trace::LlcFilter llc_;
  Unseen unseen_;
  SpoolWriter* spool_ = nullptr;  // made when there is something to write
  bool finished_ = false;
  std::atomic<std::uint64_t>* clock_ = nullptr;  // two words, of all processes
  std::uint64_t start_ns_ = 0;                   // of this process
  double interval_begin_ns_ = 0;
  double compute_ns_ = 0;  // of all threads, not written yet
  double thread_ns_ = 0;   // of all threads, compute and stalls, since the process began
  double sampled_ = 0;

  struct Operations {
    std::uint64_t begun = 0, ended = 0, abandoned = 0, unbegun = 0;
    std::uint64_t told = 0;                // of `ended`, those in the spool
    std::uint64_t kept = 0, accesses = 0;  // kept whole since the level rose, about
    std::uint64_t last_ns = 0;             // the last one ended
    std::uint32_t level = 0;
    std::uint32_t slots = 0;
    std::vector<ObservedThread*> under_way;  // and kept
  };
  Operations operations_;
  std::atomic<std::uint64_t> probes_ = 0;

  Mappings mappings_;
  std::uint32_t** roots_ = nullptr;  // 1 GiB each: page -> number + 1
  std::uint64_t* addresses_ = nullptr;
  std::uint32_t* cells_ = nullptr;
  std::vector<std::uint32_t> touched_;  // cells that are not 0
  std::deque<std::uint32_t> free_;      // page numbers, longest free first
  std::uint32_t pages_ = 0;
};

}  // namespace tt::record
