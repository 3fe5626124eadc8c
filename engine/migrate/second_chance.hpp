// SPDX-License-Identifier: MIT

// SecondChance: pages that look cold now but were hot for long are remembered, and looked at again
// later (HybridTier, ASPLOS'25, §3.1, §4.3).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/seam.hpp"

namespace tt::migrate {

class SecondChance {
 public:
  /// Waits `revisit` before it looks at a page again. Holds at most `limit` pages: fractional in a
  /// miniature, so rounded, but to 0 only if it is 0.
  SecondChance(Nanos revisit, double limit);
  /// As the knobs second_chance_revisit and second_chance_queue say.
  explicit SecondChance(const Knobs& knobs);

  struct Marked {
    PageId page;
    std::uint32_t frequency = 0;  // when it was marked
    std::uint64_t epoch = 0;      // halvings of the frequency tracker until then
    Nanos due{};
  };

  /// Remembers a page. False if it is remembered already, or there is no room.
  bool mark(PageId page, std::uint32_t frequency, std::uint64_t epoch, Nanos now);
  /// Whether a page that is due is to be demoted.
  using Judge = std::function<bool(const Marked&)>;
  /// Forgets the pages whose time has come. Those that are still in the fast tier are judged, and
  /// the demotion of the victims is requested. Returns how many were due.
  std::size_t revisit(Memory& memory, Nanos now, const Judge& demote);

  /// Forgets all pages.
  void clear() {
    queue_.clear();
    members_.clear();
  }

  /// "If a marked page was not accessed after the revisit time" it is demoted. It was accessed if
  /// its count now exceeds what the halvings since then have left of the remembered count.
  [[nodiscard]] static bool grew(const Marked& marked, std::uint32_t frequency,
                                 std::uint64_t epoch);

  [[nodiscard]] std::size_t size() const { return queue_.size(); }
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  Nanos revisit_;
  std::size_t limit_;
  std::deque<Marked> queue_;  // all wait equally long, so it is in order of due time
  std::unordered_set<PageId> members_;
  std::vector<Marked> due_;  // scratch
  std::vector<PageId> pages_, victims_;
  std::vector<Residency> where_;
};

/// second_chance_revisit and second_chance_queue, with the places where they are published.
[[nodiscard]] std::vector<KnobDecl> second_chance_knobs(std::string revisit, std::string queue);

}  // namespace tt::migrate
