// SPDX-License-Identifier: MIT

// Nomad: Xiang et al., "Nomad: Non-Exclusive Memory Tiering via Transactional Page Migration",
// OSDI'24, which is built on TPP (tpp.hpp): its scan, its rule of active pages and its kswapd.
//
// Paper: https://www.usenix.org/conference/osdi24/presentation/xiang;
// artifact: https://github.com/lingfenghsiang/Nomad
//
// §3.1: no fault waits for a migration. A page that is to be promoted is queued, and a kernel
// thread copies it while it stays mapped; if it is written meanwhile, the copy is void and is made
// again, up to `passes` times in all. §3.2: the old page stays behind as a shadow, until the new
// one is written. Demoting a page that has a shadow changes mappings and copies nothing.
//
// It keeps nothing of a page beyond the kernel's lists, and an index of shadows: 16 bytes for each.
//
// Not kept: the list of recent faults on which a page waits for up to 20 further ones, and the
// queue of 512 pages. At the rates at which a large memory faults both last a millisecond, which
// the blocks of a stream do not resolve; the fault itself leaves the accessed bit set that is then
// looked for. Nor the freeing of shadows when the slow tier is full, which has room for all pages
// here.
// Inferred: that kswapd and the promoting thread copy at the same time, a page each.
#include <algorithm>
#include <vector>

#include "core/make_policy.hpp"
#include "policy/tpp.hpp"
#include "regulate/aol.hpp"

namespace tt {
namespace {

class Nomad final : public TppPolicy {
 public:
  explicit Nomad(const PolicyContext& context) : TppPolicy(context, Tiers::slow) {
    memory_.set_movers({.threads = 2,
                        .copy = Copy::transactional,
                        .retries = static_cast<unsigned>(context.knobs.integer("passes") - 1),
                        .shadows = context.knobs.flag("shadows")});
  }

  void on_faults(std::span<const Fault> faults, Nanos now) override {
    const std::uint64_t free = room_above(marks_.min);
    const std::uint64_t room = free - std::min(free, memory_.pending(Tier::fast));
    promote(faults, room, Way::background, [this](const Fault& fault) { return touch(fault); });
    keep_room(now);
  }
  [[nodiscard]] std::uint64_t metadata_bytes() const override {
    return 16 * static_cast<std::uint64_t>(memory_.counters().shadow_pages);
  }
  void gauges(Gauges& out) const override {
    TppPolicy::gauges(out);
    out["shadow_pages"] = memory_.counters().shadow_pages;
  }
};

std::vector<KnobDecl> nomad_knobs() {
  using namespace knob;
  return list(integer("passes", 10, {1, 100, log}, none, "artifact",
                      "copies of a page that stores may make void, before it stays"),
              flag("shadows", true, "Nomad, OSDI'24, §3.2",
                   "a promoted page leaves its old copy until it is written"),
              tpp_knobs());
}

const RegisterPolicy nomad_policy{regulate::with_aol<make_policy<Nomad>, regulate::Thins::windows>({
    .name = "nomad",
    .family = "hint faults",
    .summary = "promotes as TPP, by copies that nobody waits for; clean pages keep a shadow",
    .citation = "Xiang et al., Nomad: Non-Exclusive Memory Tiering via Transactional Page "
                "Migration, OSDI 2024",
    .addresses = {"https://www.usenix.org/conference/osdi24/presentation/xiang"},
    .knobs = nomad_knobs(),
    .traits = {.needs = Need::faults | Need::accessed_bits | Need::shadows | Need::copies},
})};

}  // namespace
}  // namespace tt
