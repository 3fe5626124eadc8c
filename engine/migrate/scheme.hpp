// SPDX-License-Identifier: MIT

// Scheme: moves the pages of regions that have been accessed so often, and for so long (DAMOS:
// Linux, Documentation/mm/damon/design.rst, "Operation Schemes"; actions migrate_hot and
// migrate_cold).
//
// Under a quota the regions with the highest scores are moved; a window goes on at the address
// where the quota of the last one ended.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/seam.hpp"
#include "migrate/mapped_ranges.hpp"
#include "migrate/quota.hpp"
#include "track/region_monitor.hpp"

namespace tt::migrate {

class Scheme {
 public:
  enum class Goal : std::uint8_t {
    none,
    used,  // share of the fast tier that is in use (node_mem_used_bp)
    free,  // that is free (node_mem_free_bp)
  };
  struct Options {
    Tier to = Tier::fast;
    // Which regions: shares of samples that found an access, and how long it has been like that.
    double least_access = 0, most_access = 1;
    Nanos least_age{};
    /// Only pages whose own accessed bit agrees: set for promotions, clear for demotions. A set one
    /// is cleared.
    bool ask_pages = false;
    // What counts in a region's score.
    double access_weight = 0, age_weight = 0;
    Quota::Options quota;
    Goal goal = Goal::none;
    double goal_share = 1;
    FreeGate::Marks gate;  // of the fast tier
  };

  Scheme(Memory& memory, const Options& options);

  /// Looks through all regions, and requests what is to move. A region that was tried is young
  /// again.
  void apply(track::RegionMonitor& monitor, const MappedRanges& space, Nanos now);
  void migrated(std::span<const MigrationResult> results);

  /// Pages of the last window's quota.
  [[nodiscard]] double quota() const { return quota_.size(); }
  /// Pages tried, and those of them that were asked to move.
  [[nodiscard]] std::uint64_t tried() const { return tried_; }
  [[nodiscard]] std::uint64_t requested() const { return requested_; }

  /// From 0, the coldest, to 99 (damon_hot_score): the weighted mean of the share of samples that
  /// found an access and of the logarithm of the age in seconds, which counts as cold where no
  /// sample did.
  [[nodiscard]] static int hot_score(double access, double age_seconds, double access_weight,
                                     double age_weight);

 private:
  [[nodiscard]] bool fits(const track::Region& region, const track::RegionMonitor& monitor) const;
  [[nodiscard]] int score(const track::Region& region, const track::RegionMonitor& monitor) const;
  [[nodiscard]] std::optional<double> goal_score() const;
  /// Pages of the region that the scheme is about, in order; of what is mapped still.
  void find_pages(PageRange region, const MappedRanges& space);
  void ask_pages();
  [[nodiscard]] double fast_free() const;

  Memory& memory_;
  Options options_;
  Quota quota_;
  FreeGate gate_;
  PageId resume_;  // where the quota ended
  bool resumes_ = false;
  std::uint64_t tried_ = 0, requested_ = 0;
  // Scratch.
  struct Candidate {
    std::size_t region = 0;
    int score = 0;
  };
  std::vector<Candidate> candidates_;
  std::vector<PageId> pages_, moves_;
  std::vector<Residency> where_;
  std::vector<std::uint64_t> mask_;
};

}  // namespace tt::migrate
