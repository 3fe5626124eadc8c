// SPDX-License-Identifier: MIT

// TwoQ: Johnson and Shasha, "2Q: A Low Overhead High Performance Buffer Management Replacement
// Algorithm", VLDB'94, full version (§3.1), as a tiering system on samples, as which HybridTier
// (ASPLOS'25, §5.2) compares with it.
//
// Paper: https://www.vldb.org/conf/1994/P439.PDF;
// HybridTier: https://doi.org/10.1145/3676642.3736119
//
// lists_  a1in: pages of the fast tier that came lately, in the order in which they came;
//         a1out: ghosts, the pages that left a1in last;
//         am: pages of the fast tier that returned as ghosts, in order of the last sample
//
// How a cache is a tiering system: cache_policy.hpp. HybridTier, §5.3: "The default values provided
// by the original paper worked well": a1in a quarter, a1out half of the size.
#include "policy/cache_policy.hpp"
#include "regulate/aol.hpp"

namespace tt {
namespace {

class TwoQ final : public CachePolicy<1> {
 public:
  explicit TwoQ(const PolicyContext& context)
      : CachePolicy(context),
        in_(context.knobs.real("in_share")),
        out_(context.knobs.real("out_share")) {}

  void on_samples(std::span<const Sample> samples, Nanos) override {
    serve(
        samples,
        [&](PageId page, unsigned list) {
          // "If X is in A1in, do nothing": samples that come soon after the first are correlated.
          if (list == am) lists_.put(am, page);
        },
        [&](PageId page, unsigned list, std::uint64_t size) {
          while (lists_.size(a1in) + lists_.size(am) >= size) reclaim(static_cast<double>(size));
          lists_.put(list == a1out ? am : a1in, page);
        });
  }
  void gauges(Gauges& out) const override {
    out["a1in_pages"] = pages(a1in);
    out["a1out_pages"] = pages(a1out);
    out["am_pages"] = pages(am);
  }

 private:
  enum List : std::uint8_t { a1in = once, am = often, a1out = first_ghosts };

  void shrink(std::uint64_t size) override {
    while (lists_.size(a1in) + lists_.size(am) > size) reclaim(static_cast<double>(size));
    while (pages(a1out) > out_ * static_cast<double>(size)) lists_.remove(lists_.oldest(a1out));
  }
  /// The victim is the tail of a1in, if that is larger than K_in, and becomes a ghost; else that of
  /// am, which does not: "it hasn't been accessed for a while".
  void reclaim(double size) {
    const bool first = pages(a1in) > in_ * size || lists_.size(am) == 0;
    const PageId page = evict(first ? a1in : am);
    if (!first) return;
    lists_.put(a1out, page);
    if (pages(a1out) > out_ * size) lists_.remove(lists_.oldest(a1out));
  }

  const double in_, out_;  // K_in and K_out, as shares of the size
};

std::vector<KnobDecl> twoq_knobs() {
  using namespace knob;
  return list(cache_knobs(),
              real("in_share", 0.25, {0.001, 1, log}, ratio, "VLDB'94, §3.1; HybridTier, §6.1",
                   "share of the fast tier that new pages may keep (K_in)"),
              real("out_share", 0.5, {0.001, 16, log}, ratio, "VLDB'94, §3.1; HybridTier, §6.1",
                   "how many ghosts are remembered, as a share of the fast tier's pages (K_out)"));
}

const RegisterPolicy twoq_policy{regulate::with_aol<make_policy<TwoQ>>({
    .name = "twoq",
    .family = "cache",
    .summary = "a cache that keeps what returns after it left; promotes at first sample",
    .citation = "Johnson and Shasha, 2Q: A Low Overhead High Performance Buffer Management "
                "Replacement Algorithm, VLDB 1994; as a tiering system in HybridTier, ASPLOS 2025",
    .addresses = {"https://www.vldb.org/conf/1994/P439.PDF",
                  "https://doi.org/10.1145/3676642.3736119"},
    .knobs = twoq_knobs(),
    .traits = {.needs = Need::samples | Need::placement},
})};

}  // namespace
}  // namespace tt
