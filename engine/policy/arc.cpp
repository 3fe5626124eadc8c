// SPDX-License-Identifier: MIT

// ARC: Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST'03, as a
// tiering system on samples, as which HybridTier (ASPLOS'25, §5.2) compares with it. Cases are
// those of ARC's Figure 4; "artifact" is HybridTier's published code.
//
// Paper: https://www.usenix.org/conference/fast-03/arc-self-tuning-low-overhead-replacement-cache;
// HybridTier: https://doi.org/10.1145/3676642.3736119;
// artifact: https://github.com/kevins981/hybridtier-asplos25-artifact
//
// lists_  t1, t2: pages of the fast tier that were sampled once, or more often, since they came;
//         b1, b2: ghosts, pages that left t1 and t2 not long ago. All in order of the last sample.
// p_      the size that t1 is to have; ghosts that return tell whether it was too small
// c       the pages that the lists may fill the fast tier with
//
// How a cache is a tiering system: cache_policy.hpp. The artifact asks for the demotion of the page
// that comes, not of its victim: not taken from there.
#include <algorithm>

#include "policy/cache_policy.hpp"
#include "regulate/aol.hpp"

namespace tt {
namespace {

class Arc final : public CachePolicy<2> {
 public:
  explicit Arc(const PolicyContext& context) : CachePolicy(context) {}

  void on_samples(std::span<const Sample> samples, Nanos) override {
    serve(
        samples, [&](PageId page, unsigned) { lists_.put(t2, page); },  // case I
        [&](PageId page, unsigned list, std::uint64_t c) { admit(page, list, c); });
  }
  void gauges(Gauges& out) const override {
    out["t1_pages"] = pages(t1);
    out["t2_pages"] = pages(t2);
    out["b1_pages"] = pages(b1);
    out["b2_pages"] = pages(b2);
    out["t1_target_pages"] = p_;
  }

 private:
  enum List : std::uint8_t { t1 = once, t2 = often, b1 = first_ghosts, b2 };

  void admit(PageId page, unsigned list, std::uint64_t c) {
    if (list == b1) {  // case II
      p_ = std::min(static_cast<double>(c), p_ + std::max(1.0, pages(b2) / pages(b1)));
    } else if (list == b2) {  // case III
      p_ = std::max(0.0, p_ - std::max(1.0, pages(b1) / pages(b2)));
    } else {  // case IV
      forget(c);
    }
    while (lists_.size(t1) + lists_.size(t2) >= c) replace(list == b2);
    lists_.put(list == Lists::none ? t1 : t2, page);
  }
  /// Case IV: room for another page in the directory, where t1 and b1 have c places, and all lists
  /// 2 c.
  void forget(std::uint64_t c) {
    if (lists_.size(t1) + lists_.size(b1) >= c) {
      // With b1 empty, t1 fills the tier: its oldest page leaves without becoming a ghost.
      if (lists_.size(b1) > 0) {
        lists_.remove(lists_.oldest(b1));
      } else {
        evict(t1);
      }
    } else if (lists_.size(b2) > 0 &&
               lists_.size(t1) + lists_.size(t2) + lists_.size(b1) + lists_.size(b2) >= 2 * c) {
      lists_.remove(lists_.oldest(b2));
    }
  }
  void shrink(std::uint64_t c) override {
    p_ = std::min(p_, static_cast<double>(c));
    while (lists_.size(t1) + lists_.size(t2) > c) replace(false);
    while (lists_.size(t1) + lists_.size(b1) > c && lists_.size(b1) > 0)
      lists_.remove(lists_.oldest(b1));
    while (lists_.size(t1) + lists_.size(t2) + lists_.size(b1) + lists_.size(b2) > 2 * c)
      lists_.remove(lists_.oldest(b2));
  }
  /// REPLACE: of t1 if that is larger than it is to be, else of t2.
  void replace(bool wanted_by_b2) {
    const double first = pages(t1);
    const bool from_t1 =
        lists_.size(t1) > 0 && (first > p_ || (wanted_by_b2 && first >= p_) || pages(t2) == 0);
    const PageId page = evict(from_t1 ? t1 : t2);
    lists_.put(from_t1 ? b1 : b2, page);
  }

  double p_ = 0;
};

const RegisterPolicy arc_policy{regulate::with_aol<make_policy<Arc>>({
    .name = "arc",
    .family = "cache",
    .summary = "a cache that balances recency and frequency by ghosts; promotes at first sample",
    .citation = "Megiddo and Modha, ARC: A Self-Tuning, Low Overhead Replacement Cache, FAST 2003; "
                "as a tiering system in HybridTier, ASPLOS 2025",
    .addresses =
        {"https://www.usenix.org/conference/fast-03/arc-self-tuning-low-overhead-replacement-cache",
         "https://doi.org/10.1145/3676642.3736119"},
    .knobs = cache_knobs(),
    .traits = {.needs = Need::samples | Need::placement},
})};

}  // namespace
}  // namespace tt
