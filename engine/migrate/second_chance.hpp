// SecondChance: pages that look cold for now but were hot for long are remembered and looked at
// again later (HybridTier, ASPLOS'25, §3.1, §4.3).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_set>

#include "core/types.hpp"

namespace tt::migrate {

class SecondChance {
 public:
  /// Waits `revisit` before a page is looked at again; holds at most `limit` pages (fractional in
  /// a miniature: rounded, but never to 0 unless it is 0).
  SecondChance(Nanos revisit, double limit);

  struct Marked {
    PageId page;
    std::uint32_t frequency = 0;  // when it was marked
    std::uint64_t epoch = 0;      // halvings of the frequency tracker until then
    Nanos due{};
  };

  /// Remembers a page. False if it is remembered already, or there is no room.
  bool mark(PageId page, std::uint32_t frequency, std::uint64_t epoch, Nanos now);
  /// The next page whose time has come, which is forgotten by this call.
  std::optional<Marked> due(Nanos now);

  /// "If a marked page was not accessed after the revisit time" it is demoted: whether its count
  /// now exceeds what is left of the remembered one. Halvings in between shrink both; comparing
  /// without them would take every page that a cooling passed over for one that was accessed or was
  /// not.
  [[nodiscard]] static bool grew(const Marked& marked, std::uint32_t frequency,
                                 std::uint64_t epoch);

  [[nodiscard]] std::size_t size() const { return queue_.size(); }
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  Nanos revisit_;
  std::size_t limit_;
  std::deque<Marked> queue_;  // all wait equally long, so it is in order of due time
  std::unordered_set<PageId> members_;
};

}  // namespace tt::migrate
