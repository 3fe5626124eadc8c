// SPDX-License-Identifier: MIT

// PerfDecoder: the records of perf's ring buffers become one spool per process.
//
//  - A sample stands for `period` occurrences of its event. Its data source decides whether it
//    counts: what a cache served is no access of the stream.
//  - Mappings come from the kernel's own records (MMAP2), children begin with those of their parent
//    (FORK), a new program with none (COMM of an exec). The kernel does not report unmapping: a
//    mapping stays until another replaces it.
//  - Samples of one instruction in one thread whose addresses mostly go one way are a sweep; all
//    others are random. Neighbouring lines are never seen together at sampling rates.
//
// It takes bytes, so that it is tested on recorded ring buffers and hand-made records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace tt::record {

/// Which samples of an event are accesses to memory.
enum class PerfFilter : std::uint8_t {
  loads = 0,       // loads that the data source says memory served
  stores = 1,      // stores that missed the first-level cache (more is not known of them)
  operations = 2,  // both kinds, told apart by the data source (IBS)
  faults = 3       // all, as stores: the kernel's page-fault event
};

/// An event as perf_event_open takes it.
struct PerfEvent {
  std::string name;
  std::uint32_t type = 0;
  std::uint64_t config = 0;
  std::uint64_t config1 = 0;
  std::uint64_t config2 = 0;
  std::uint64_t leader = 0;  // config of an event that must lead the group; 0: none
  std::uint64_t period = 1;
  std::uint32_t precise = 0;  // precise_ip
  PerfFilter filter = PerfFilter::loads;
};

struct PerfCounts {
  std::uint64_t samples = 0;
  std::uint64_t kept = 0;      // written as accesses
  std::uint64_t filtered = 0;  // served by a cache, or without an address
  std::uint64_t lost = 0;      // the rings were full
};

/// What each sample holds: the `sample_type` that events must be opened with, besides
/// sample_id_all.
extern const std::uint64_t perf_sample_type;

class PerfDecoder {
 public:
  /// Spools are PID.spool in `folder`; times count from `begin_ns` (CLOCK_MONOTONIC) on.
  PerfDecoder(std::filesystem::path folder, std::string sampler, std::uint64_t begin_ns);
  ~PerfDecoder();
  PerfDecoder(const PerfDecoder&) = delete;
  PerfDecoder& operator=(const PerfDecoder&) = delete;

  /// Samples with this identifier (PERF_SAMPLE_IDENTIFIER) are of that event.
  void add(std::uint64_t id, const PerfEvent& event);
  /// Records of one ring; returns the bytes consumed (a record that is cut off is left).
  /// std::runtime_error for an invalid record.
  std::size_t feed(std::span<const std::byte> bytes);
  /// Writes what is older. std::system_error when a spool cannot be created.
  void flush(std::uint64_t until_ns);
  /// Writes everything and closes the spools.
  PerfCounts finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tt::record
