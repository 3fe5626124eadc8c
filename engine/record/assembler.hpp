// SPDX-License-Identifier: MIT

// Assembler: turns what was observed of a real process into a stream.
//
// Observations carry real addresses and real time; a stream has dense page numbers, blocks and
// objects. The assembler gives every mapped range pages of its own (an address that is mapped again
// gets new ones) when it is first accessed. A range above 64 MiB, which may be a reservation, is
// placed in pieces, so that an object is memory that was used: the first ones within 64 MiB have
// 64 KiB, and every fifth is twice as large as those before it, so that neither pages here and
// there nor all of them make many page numbers or many objects. The assembler turns expected counts
// into whole ones by unbiased rounding, and ends blocks by the observation's clock. Unmapping takes
// effect at the end of the block.
//
// Time. An observation either says how long its threads computed (`compute`, an emulator that
// counts instructions), or it does not (a sampler of a program at full speed). Then the wall time
// of a block on its `threads` is what the program took with all memory fast, and what is not
// explained by its misses at the nominal latency was computing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "core/types.hpp"
#include "trace/stream.hpp"

namespace tt::record {

struct AssemblerOptions {
  double block_ms = 10;
  double threads = 1;      // that the program ran on; assemble() takes 0 for what the spools say
  bool wall_time = false;  // compute time is what the clock leaves; else only compute() counts
  double scale = 1;        // one page in so many is observed, and stands for them; times are of all
  double nominal_latency_ns = 90;
  bool consume = false;  // of assemble(): a spool's disk space is given back as it is read
  double set_up_s = 0;   // of the observation's clock: what came before is not timed
  /// The program has operations: without `set_up_s`, what came before the first and after the last
  /// is not timed.
  bool operations = false;
  std::uint64_t last_operation_ns = 0;
  std::uint32_t operation_level = 0;  // those below are left out (spool.hpp)
  double offered_per_s = 0;  // operations that clients ask for; what is left of the time is idle
  std::uint64_t seed = 0;
};

class Assembler {
 public:
  /// `info`: workload, input, parameters, classes, one lane, op_kinds empty.
  Assembler(std::filesystem::path file, trace::StreamInfo info, AssemblerOptions options);
  ~Assembler();
  Assembler(const Assembler&) = delete;
  Assembler& operator=(const Assembler&) = delete;

  /// The process whose addresses the following calls mean.
  void process(std::uint32_t number);
  /// The clock; times earlier than the last one are ignored (buffers of several threads).
  void time(std::uint64_t ns);
  /// Whole pages that [address, address + bytes) touches. Replaces what lay there. `shared`, if it
  /// is not 0, names memory that several processes (or places) may map, from `offset` bytes on:
  /// they have the same pages, which are freed when the last mapping of that memory is gone.
  void map(std::uint64_t address, std::uint64_t bytes, std::string_view site,
           std::uint64_t shared = 0, std::uint64_t offset = 0);
  void unmap(std::uint64_t address, std::uint64_t bytes);
  void discard(std::uint64_t address, std::uint64_t bytes);
  /// An address outside of all mappings gets a piece of its own, "unknown".
  /// std::invalid_argument for a class that the stream does not have, or a count that is negative,
  /// not finite or above 1e12.
  void access(std::uint64_t address, AccessKind kind, std::uint32_t stream_class, double count);
  void compute(double thread_ns);
  void phase(bool timed);

  // Operations. Those under way have a slot each, of their process.
  /// The first one begins now.
  void operations_begin();
  /// What the operation in that slot has just done. std::invalid_argument as access().
  void operation_access(std::uint32_t slot, std::uint64_t address, AccessKind kind,
                        std::uint32_t stream_class, std::uint32_t count);
  /// It has ended, or was given up (`abandoned_operation`), after so much computation.
  void operation(std::uint32_t slot, std::uint32_t level, double compute_ns);
  /// So many have ended, those with a slot among them.
  void operations(std::uint64_t count);

  /// The process is over: its memory is gone, and the operations that were under way.
  void ended();
  /// std::runtime_error when nothing was observed: there is nothing to replay.
  trace::StreamInfo finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tt::record
