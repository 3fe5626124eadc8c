// SPDX-License-Identifier: MIT

#include "check.hpp"
#include "fault_rig.hpp"

using namespace tt;
using namespace tt::test;

namespace {

const KnobMap base =
    with(scanning(),
         {{"demote_scale_factor", 0.0}, {"watermark_min", 0.0}, {"watermark_scale", 0.0001}});
/// 20 fast pages 0..19, 80 slow ones; nothing is demoted for room.
Rig nomad(const KnobMap& scaled = {}) {
  Rig rig("nomad", {}, with(base, scaled), 20, 200);
  rig.map(0, 100);
  return rig;
}
double twice_faulted(Rig& r) {
  make_room(r, 8);
  for (int n = 0; n < 2; ++n) {
    r.run(1);
    access(r, span_of(30, 10));
  }
  return promotions(r);
}
double demoted_soon(Rig& r) {
  r.memory.accessed({{0}, 100}, {}, true);
  r.run(1.5);
  return demotions(r);
}

const RegisterEffects effects{
    "nomad", base,
    joined(scan_entries(), reclaim_entries(),
           std::vector<Entry>{
               {"passes", whole(2), whole(10), Then::more,
                [](Rig& r) { return static_cast<double>(r.memory.movers.back().retries); }},
               {"shadows", false, true, Then::more,
                [](Rig& r) { return r.memory.movers.back().shadows ? 1.0 : 0.0; }},
               {"scan_period_max", 1000.0, 4000.0, Then::more,
                [](Rig& r) {
                  r.run(30);
                  return r.gauge("scan_period_ms");
                }},
               {"demote_scale_factor", 0.05, 0.5, Then::more, demoted_soon},
               {"activation", std::string{"paper"}, std::string{"code"}, Then::less, twice_faulted},
               {"watermark_min", 0.0, 0.2, Then::less, twice_faulted},
               {"watermark_scale", 0.001, 0.1, Then::more, demoted_soon}},
           aol_entries(protected_at, scanning(20)))};

}  // namespace

TEST("nomad: a page is copied while it is mapped, as often as asked, and leaves a shadow") {
  Rig r = nomad({{"passes", whole(4)}});
  CHECK(r.memory.movers.back() ==
        (Movers{.threads = 2, .copy = Copy::transactional, .retries = 3, .shadows = true}));
}

TEST("nomad: promotes what TPP would, in the background") {
  Rig r = nomad();
  r.memory.queue.emplace_back(PageId{90}, Tier::slow);  // an older request stays in front
  CHECK_EQ(twice_faulted(r), 8.0);
  CHECK(r.memory.queue.front().first == PageId{90});
}

TEST("nomad: what is on its way counts against the room") {
  Rig r = nomad();
  CHECK_EQ(twice_faulted(r), 8.0);
  r.run(1);
  access(r, span_of(40, 5));
  r.run(1);
  access(r, span_of(40, 5));
  CHECK_EQ(promotions(r), 8.0);
}

TEST("nomad: sixteen bytes for each shadow") {
  Rig r = nomad();
  r.memory.now.shadow_pages = 5;
  CHECK_EQ(r.policy->metadata_bytes(), 80u);
}
