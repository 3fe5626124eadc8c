// SPDX-License-Identifier: MIT

// Damon: the kernel's monitor of data accesses, set up by its files in sysfs to watch the virtual
// addresses of processes (Documentation/admin-guide/mm/damon/usage.rst).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "live/changes.hpp"
#include "live/damon_trace.hpp"
#include "live/kernel_calls.hpp"

namespace tt::live {

/// Its threads, each with a folder of files.
inline const std::string kdamonds = "/sys/kernel/mm/damon/admin/kdamonds/";

class Damon {
 public:
  struct Options {
    Nanos sampling = from_millis(5), aggregation = from_millis(100), update = from_millis(1000);
    // Ten regions tell as much of a hot half as a hundred, for a quarter of the processor time.
    unsigned min_regions = 10, max_regions = 1000;
  };

  /// What it writes is noted in `changes`, which has to outlive it.
  Damon(KernelCalls& kernel, Changes& changes, const Options& options)
      : kernel_(kernel), changes_(changes), options_(options) {}
  /// Ends it, and gives back what it took.
  ~Damon() { stop(); }
  Damon(const Damon&) = delete;
  Damon& operator=(const Damon&) = delete;

  /// Watches these processes from now on. NotAllowed naming what this kernel lacks, what refuses,
  /// or who uses DAMON already; nothing has changed then.
  void start(std::span<const int> pids);
  /// Watches these and no others, from now on. It starts again where its last process had ended,
  /// and stops without any. Returns an errno when the kernel refuses the new ones, as it does where
  /// one has just ended: those before are watched then. NotAllowed as start().
  int follow(std::span<const int> pids);
  /// Undoes all of `changes`.
  void stop();
  [[nodiscard]] bool runs() const { return ring_ != nullptr; }

  /// Aggregations that are over since the last call.
  [[nodiscard]] std::vector<DamonAggregation> collect();
  /// Of an aggregation: the process that it is of; 0 if it is of none that was started.
  [[nodiscard]] int pid(const DamonAggregation& aggregation) const {
    return aggregation.target < pids_.size() ? pids_[aggregation.target] : 0;
  }
  /// Records, also before another start.
  [[nodiscard]] std::uint64_t lost() const {
    return lost_before_ + (decoder_ ? decoder_->lost() : 0);
  }
  /// Intervals so many times as long as the options' from now on, also after another start.
  /// NotAllowed when the kernel refuses.
  void stretch(unsigned times);
  [[nodiscard]] Nanos aggregation() const { return options_.aggregation * stretched_; }
  /// Processor time of the kernel's threads, in steps of 10 ms; false if it cannot be read.
  [[nodiscard]] bool thread_time(Nanos& out);

 private:
  void set_up(std::span<const int> pids);
  [[nodiscard]] int commit(std::span<const int> pids);
  void write_intervals();
  void write(const std::string& path, const std::string& text, const char* hint = "");
  void noted(int error, const std::string& path) const;
  [[nodiscard]] std::string read(const std::string& path, const char* hint = "");

  KernelCalls& kernel_;
  Changes& changes_;
  const Options options_;
  unsigned stretched_ = 1;
  std::vector<int> pids_;
  bool written_ = false;  // pids_ are what its files name
  int thread_ = 0;
  Nanos time_before_{};  // of earlier threads
  std::uint64_t lost_before_ = 0;
  std::unique_ptr<DamonDecoder> decoder_;
  std::unique_ptr<TraceRing> ring_;
  std::vector<std::byte> bytes_;
};

}  // namespace tt::live
