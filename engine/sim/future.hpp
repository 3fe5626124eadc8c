// SPDX-License-Identifier: MIT

// The future, as oracles are told it: read ahead from the stream that will be replayed.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/oracle.hpp"
#include "sim/machine.hpp"
#include "sim/profile.hpp"
#include "trace/reader.hpp"

namespace tt::sim {

class Future {
 public:
  /// All of them must live as long as this.
  Future(const trace::Reader& stream, const MachineProfile& profile, const Machine& machine);
  Future(const Future&) = delete;
  Future& operator=(const Future&) = delete;

  /// Valid as long as this.
  [[nodiscard]] const Oracle& oracle() const { return oracle_; }

 private:
  void look_ahead();
  void add_saved(std::uint64_t first, std::uint64_t last, std::span<float> out) const;

  const trace::Reader& stream_;
  const Machine& machine_;
  std::vector<std::uint64_t> accesses_;
  std::vector<double> block_ns_;
  std::vector<Oracle::Life> lives_;
  std::vector<std::array<double, 2>> access_ns_;  // that fast memory saves, by class and kind
  Oracle oracle_;
};

}  // namespace tt::sim
