// SPDX-License-Identifier: MIT

// What the kernel's DAMON has seen: the records of its tracepoint damon:damon_aggregated, as perf
// rings hold them (Documentation/admin-guide/mm/damon/usage.rst, "Tracepoints").
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tt::live {

/// Where the records of a tracepoint have their fields: the text of its `format` file.
class TraceFormat {
 public:
  struct Field {
    std::size_t offset = 0, size = 0;
  };
  /// std::runtime_error naming the line that is not as Documentation/trace/events.rst says.
  explicit TraceFormat(std::string_view text);

  /// As perf_event_attr::config takes it.
  [[nodiscard]] std::uint64_t id() const { return id_; }
  /// std::runtime_error naming a field that it does not have, or that is no number.
  [[nodiscard]] Field number(const std::string& name) const;

 private:
  std::uint64_t id_ = 0;
  std::map<std::string, Field> fields_;
};

/// A part of a process in which pages are alike.
struct DamonRegion {
  std::uint64_t begin = 0, end = 0;  // addresses
  std::uint64_t accesses = 0;        // of the samples in the aggregation, those that found one
  std::uint64_t age = 0;             // aggregations for which it has been so
  friend bool operator==(const DamonRegion&, const DamonRegion&) = default;
};

/// All regions of a target at the end of an aggregation.
struct DamonAggregation {
  std::uint64_t target = 0;  // index of the process, as it was given to DAMON
  std::uint64_t time = 0;    // of its first record, ns
  std::vector<DamonRegion> regions;
  bool whole = false;  // none of them was lost
};

class DamonDecoder {
 public:
  /// sample_type of the event: PERF_SAMPLE_TIME and PERF_SAMPLE_RAW.
  static const std::uint64_t sample_type;

  /// std::runtime_error when the format lacks a field.
  explicit DamonDecoder(const TraceFormat& format);

  /// Records of a ring; returns the bytes dealt with: one that is cut off is left.
  /// std::runtime_error for an invalid record.
  std::size_t feed(std::span<const std::byte> bytes);
  /// Aggregations that are over.
  [[nodiscard]] std::vector<DamonAggregation> take();
  /// What has come so far, but for what was lost.
  void forget();
  [[nodiscard]] std::uint64_t lost() const { return lost_; }

 private:
  void region(std::uint64_t time, std::span<const std::byte> raw);
  void close();

  TraceFormat::Field target_, count_, begin_, end_, accesses_, age_;
  std::vector<DamonAggregation> over_;
  DamonAggregation open_;
  std::uint64_t expected_ = 0;  // regions of the open one
  std::uint64_t lost_ = 0;
};

}  // namespace tt::live
