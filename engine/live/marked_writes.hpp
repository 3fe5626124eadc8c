// SPDX-License-Identifier: MIT

// MarkedWrites: estimated samples of which those on pages that were written to lately count as
// stores. How many of a page's accesses are stores, nobody tells.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "live/access_source.hpp"
#include "live/written_pages.hpp"

namespace tt::live {

class MarkedWrites final : public AccessSource {
 public:
  MarkedWrites(KernelCalls& kernel, std::unique_ptr<AccessSource> of)
      : of_(std::move(of)), written_(kernel, {}) {}

  std::string_view name() const override { return of_->name(); }
  Need serves() const override { return of_->serves(); }
  void start(std::span<const int> pids) override { of_->start(pids); }
  int follow(std::span<const int> pids) override { return of_->follow(pids); }
  void collect(const LiveMemory& memory, Nanos now, std::vector<Sample>& out) override;
  bool takes_balancing() const override { return of_->takes_balancing(); }
  void spare(unsigned times) override { of_->spare(times); }
  bool kernel_time(Nanos& out) override { return of_->kernel_time(out); }
  std::uint64_t lost() const override { return of_->lost(); }
  std::string text() const override;

  /// Stores are granted as loads are, if these are: a sample is the one or the other.
  SamplingRequest grant(const SamplingRequest& request) override;
  void count(Counters& counters) const override { of_->count(counters); }

 private:
  const std::unique_ptr<AccessSource> of_;
  WrittenPages written_;
  bool wanted_ = false;  // a policy wants stores
  std::uint64_t stores_ = 0;
};

}  // namespace tt::live
