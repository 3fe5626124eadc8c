// SPDX-License-Identifier: MIT

// static-hot: the hottest pages of the whole run in the fast tier from their first touch on.
//
// An oracle: it knows every page's accesses over the whole run, as a profiling run could tell (the
// "static" bound of tiering studies). No online policy knows that, but one that follows a moving
// hot set can beat it.
//
// State: hot_, the pages that belong in the fast tier: the hottest by total accesses, as many as
// it holds, ties by page number. Pages that are never accessed are not among them.
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "core/oracle.hpp"
#include "policy/static_policy.hpp"

namespace tt {
namespace {

class StaticHot final : public StaticPolicy {
 public:
  explicit StaticHot(const PolicyContext& context) {
    if (context.oracle == nullptr) {
      throw std::invalid_argument("policy static-hot needs the accesses of the whole run (Oracle)");
    }
    const auto accesses = context.oracle->accesses;
    std::vector<std::uint64_t> order;
    for (std::uint64_t page = 0; page < accesses.size(); ++page) {
      if (accesses[page] > 0) order.push_back(page);
    }
    const auto fits = std::min<std::uint64_t>(order.size(), context.memory.capacity(Tier::fast));
    const auto hotter = [&](std::uint64_t a, std::uint64_t b) {
      return accesses[a] != accesses[b] ? accesses[a] > accesses[b] : a < b;
    };
    std::ranges::nth_element(order, order.begin() + static_cast<std::ptrdiff_t>(fits), hotter);
    hot_.resize(accesses.size());
    for (std::uint64_t i = 0; i < fits; ++i) hot_[order[i]] = true;
    hot_pages_ = fits;
  }

  Tier placement(PageRange range) const override {
    return is_hot(range.first) ? Tier::fast : Tier::slow;
  }
  Heat heat(PageId page) const override { return is_hot(page) ? Heat::hot : Heat::cold; }
  std::uint64_t metadata_bytes() const override { return hot_.capacity() / 8; }
  void gauges(Gauges& out) const override { out["hot_pages"] = static_cast<double>(hot_pages_); }

 private:
  bool is_hot(PageId page) const { return page.value < hot_.size() && hot_[page.value]; }
  std::vector<bool> hot_;
  std::uint64_t hot_pages_ = 0;
};

const RegisterPolicy static_hot_policy{{
    .name = "static-hot",
    .family = "oracle",
    .summary =
        "oracle: the hottest pages by total accesses placed fast at first touch, no migration",
    .citation = "static oracle placement by access frequency",
    .knobs = {},
    .traits = {.migrates = false,
               .needs = Need::future | Need::placement,
               .placement = Granularity::page},
    .make = make_policy<StaticHot>,
}};

}  // namespace
}  // namespace tt
