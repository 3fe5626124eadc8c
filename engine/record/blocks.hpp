// SPDX-License-Identifier: MIT

// Blocks: what was observed, block by block, as a stream. Unlike a kernel's accesses
// (trace/recorder.hpp) observed ones have missed the cache already, and operations of several
// threads overlap.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/types.hpp"
#include "trace/open_block.hpp"
#include "trace/recorded_space.hpp"
#include "trace/stream.hpp"
#include "trace/writer.hpp"

namespace tt::record {

struct BlocksOptions {
  double scale = 1;
  double threads = 1;  // for nominal time only
  double nominal_latency_ns = 90;
};

class Blocks {
 public:
  /// `info` has one lane.
  Blocks(std::filesystem::path file, trace::StreamInfo info, const BlocksOptions& options);

  /// Reserves whole pages for an object; the first one.
  [[nodiscard]] std::uint32_t map(const std::string& site, std::uint64_t bytes);
  /// Frees pages of one object, none of which is free. Ends the open block if anything is in it.
  void unmap(std::uint32_t page, std::uint64_t count);
  /// Blocks from now on count toward the objective, or do not. Ends the open block likewise.
  void set_timed(bool timed);
  /// Accesses to a page.
  void miss(std::uint32_t stream_class, AccessKind kind, std::uint32_t page, std::uint64_t count);
  /// Thread time, of one simulated share.
  void compute(double nanoseconds);
  /// Operations that ended.
  void operations(std::uint64_t count) { operations_ += count; }
  /// One of these, kept whole for latency percentiles.
  void sampled(double compute_ns, std::vector<trace::OpAccess> accesses);
  void end_block();

  /// Nominal full-scale nanoseconds of the open block.
  [[nodiscard]] double nominal_ns() const { return block_.nominal_ns(); }
  trace::StreamInfo finish();

 private:
  struct Sampled {
    double compute_ns;
    std::vector<trace::OpAccess> accesses;
  };
  [[nodiscard]] bool busy() const { return block_.busy() || operations_ > 0; }
  void close();

  trace::StreamInfo info_;
  double thread_ns_;              // nominal time of a nanosecond of a simulated thread
  std::vector<double> entry_ns_;  // likewise of an entry, by way: class * 2 + kind
  trace::RecordedSpace space_;
  trace::OpenBlock block_;
  std::uint64_t operations_ = 0;
  std::vector<Sampled> sampled_;
  bool timed_ = true;
  double timed_ns_ = 0;
  trace::Writer writer_;
};

}  // namespace tt::record
