// SPDX-License-Identifier: MIT

#include <algorithm>

#include "check.hpp"
#include "fault_rig.hpp"
#include "track/hot_records.hpp"

using namespace tt;
using test::access;
using test::Entry;
using test::Numbers;
using test::Rig;
using test::span_of;
using test::Then;
using test::with;
using track::HotRecords;

namespace {

std::string text(const char* value) { return value; }

// 20 fast pages 0..19, 80 slow ones; more than two pages at the high mark, four at the promotion
// one.
const KnobMap base = with(
    test::scanning(), {{"watermark_min", 0.04}, {"watermark_scale", 0.04}, {"lru_gen_batch", 1.0}});
Rig pghot(const KnobMap& more = {}) {
  Rig rig("pghot", {}, with(base, more), 20, 4000);
  rig.map(0, 100);
  return rig;
}
/// The pages fault so often, with this time in between.
void fault(Rig& rig, const Numbers& pages, int times, double apart = 0.5) {
  for (; times > 0; --times) {
    for (const auto page : pages) {
      rig.memory.clock = rig.now;
      rig.memory.protect({{page}, 1}, Tiers::slow, {});
    }
    access(rig, pages);
    rig.now += from_seconds(apart);
  }
}
std::vector<std::uint64_t> taken(HotRecords& records, Nanos now) {
  std::vector<HotRecords::Ready> ready;
  records.take(now, ready);
  std::vector<std::uint64_t> pages;
  for (const auto& [page, since] : ready) pages.push_back(page.value);
  return pages;
}

}  // namespace

TEST("hot records: accesses within the window count together, later ones begin anew") {
  for (const auto& format : {HotRecords::byte, HotRecords::precise}) {
    HotRecords records(format, from_seconds(3), 2);
    records.map({{0}, 10});
    records.accessed({4}, from_seconds(1));
    records.accessed({3}, from_seconds(1));
    records.accessed({3}, from_seconds(2));
    CHECK_EQ(records.frequency({4}), 1u);
    CHECK((taken(records, from_seconds(2)) == Numbers{3}));
    CHECK_EQ(records.frequency({3}), 0u);  // its record begins anew
    records.accessed({4}, from_seconds(4.6));
    CHECK_EQ(records.frequency({4}), 1u);
    records.accessed({4}, from_seconds(7));
    CHECK((taken(records, from_seconds(7)) == Numbers{4}));
    records.accessed({11}, from_seconds(7));  // not mapped
    CHECK((taken(records, from_seconds(7)) == Numbers{}));
  }
}

TEST(
    "hot records: a byte counts to three and wraps after four seconds, four bytes to seven and "
    "16") {
  HotRecords small(HotRecords::byte, from_seconds(3), 7);
  HotRecords large(HotRecords::precise, from_seconds(3), 7);
  CHECK_EQ(small.threshold(), 3u);
  CHECK_EQ(large.threshold(), 7u);
  for (HotRecords* records : {&small, &large}) {
    records->map({{0}, 1});
    records->accessed({0}, from_seconds(1));
    records->accessed({0}, from_seconds(6));  // five seconds look like one
  }
  CHECK_EQ(small.frequency({0}), 2u);
  CHECK_EQ(large.frequency({0}), 1u);
}

TEST("hot records: pages come in order of addresses, with the time since the last access") {
  HotRecords records(HotRecords::precise, from_seconds(3), 1);
  records.map({{0}, 10});
  records.accessed({7}, from_millis(1000));
  records.accessed({2}, from_millis(1100));
  std::vector<HotRecords::Ready> ready;
  records.take(from_millis(1200), ready);
  CHECK_EQ(ready.size(), 2u);
  CHECK(ready[0].page == PageId{2} && ready[0].since == from_millis(100));
  CHECK(ready[1].page == PageId{7} && ready[1].since == from_millis(200));
  records.accessed({2}, from_millis(1300));
  records.unmap({{0}, 10});
  CHECK((taken(records, from_millis(1300)) == Numbers{}));
}

TEST("pghot: a slow page that faults twice within the window is promoted by the thread, later") {
  auto rig = pghot();
  test::make_room(rig, 8);
  fault(rig, {30}, 1);
  rig.run(0.2);
  CHECK_EQ(test::promotions(rig), 0.0);
  fault(rig, {30, 31}, 1, 0.01);
  CHECK_EQ(test::promotions(rig), 0.0);  // not in the fault
  rig.run(0.2);
  CHECK((rig.memory.queued(Tier::fast) == Numbers{30}));
  fault(rig, {0}, 2);
  rig.run(0.2);
  CHECK((rig.memory.queued(Tier::fast) == Numbers{30}));  // fast pages have no records
}

TEST("pghot: without room kswapd is woken, and makes it up to the promotion mark") {
  auto rig = pghot();
  fault(rig, {30, 31}, 2, 0.01);
  rig.run(0.5);
  CHECK_EQ(test::promotions(rig), 0.0);
  CHECK(test::demotions(rig) >= 4);
  rig.settle();
  fault(rig, {30, 31}, 2, 0.01);
  rig.run(0.2);
  CHECK_EQ(test::promotions(rig), 1.0);  // beyond the high mark
}

TEST("pghot: samples are another source, which needs no scan") {
  auto rig = pghot({{"source", text("samples")}});
  test::make_room(rig, 8);
  CHECK(rig.memory.sampling.back().loads.value == 10000);
  rig.sample({30, 30, 31, 5, 5});
  rig.run(0.2);
  CHECK((rig.memory.queued(Tier::fast) == Numbers{30}));
  CHECK_EQ(test::protected_among(rig, 100), 0u);
  CHECK(pghot().memory.sampling.empty());
  CHECK_EQ(pghot().policy->metadata_bytes(), 100u);
  CHECK_EQ(pghot({{"records", text("precise")}}).policy->metadata_bytes(), 400u);
}

namespace {

auto promoted(int faults, double apart, double then = 0.2) {
  return [=](Rig& r) {
    test::make_room(r, 8);
    fault(r, span_of(30, 3), faults, apart);
    r.run(then);
    return test::promotions(r);
  };
}
/// Six pages are hot at once; there is room for more, but not plenty of it.
double promoted_of_six(Rig& r) {
  test::make_room(r, 12);
  fault(r, span_of(30, 6), 2, 0.01);
  r.run(0.2);
  return test::promotions(r);
}
double sampled(Rig& r) {
  test::make_room(r, 8);
  r.sample({30}, 2);
  r.run(0.2);
  return test::promotions(r);
}
double threshold_after(Rig& r) {
  r.memory.free({{0}, 5});
  for (int n = 0; n < 8; ++n) {
    fault(r, {30}, 2, 0.01);
    r.run(1);
  }
  return r.gauge("hot_threshold_ms");
}
void ask(Rig& r) {
  test::make_room(r, 18);
  fault(r, span_of(20, 12), 2, 0.01);
  r.run(0.2);
}

const KnobMap no_plenty{{"free_space", 100 * test::page_mib}};

std::vector<Entry> scanned_entries() {
  auto entries = test::scan_entries();
  std::erase_if(entries, [](const Entry& entry) { return entry.knob == "scan_size"; });
  // A pass takes a second, in windows of this size: the first comes sooner if there are more.
  entries.push_back(
      {"scan_size", 30 * test::page_mib, 100 * test::page_mib, Then::less, [](test::Rig& r) {
         test::start_before_scans(r);
         r.run(1);
         for (std::uint64_t p = 0; p < 100; ++p)
           (void)r.memory.access({p}, AccessKind::load, r.now);
         return test::protected_in(0.5)(r);
       }});
  return entries;
}

const test::RegisterEffects effects{
    "pghot", base,
    test::joined(
        std::vector<Entry>{
            {"records", text("default"), text("precise"), Then::differs, promoted(2, 3.5)},
            {"source", text("hint_faults"), text("both"), Then::more, sampled},
            {"freq_threshold", test::whole(2), test::whole(3), Then::less, promoted(2, 0.1)},
            {"freq_window", 3000.0, 1000.0, Then::less, promoted(2, 2)},
            {"precise_window",
             5000.0,
             1000.0,
             Then::less,
             promoted(2, 2),
             {{"records", text("precise")}}},
            {"kmigrated_period", 100.0, 1000.0, Then::less, promoted(2, 0.01, 0.3)},
            {"sampling_period",
             10000.0,
             20000.0,
             Then::more,
             [](Rig& r) { return r.memory.sampling.back().loads.value; },
             {{"source", text("both")}}},
            {"promote_rate_limit", 3 * test::page_gib, 100.0, Then::more, promoted_of_six,
             no_plenty},
            {"free_space",
             2 * test::page_mib,
             100 * test::page_mib,
             Then::less,
             promoted_of_six,
             {{"promote_rate_limit", 3 * test::page_gib}}},
            {"scan_period_max", 1000.0, 60000.0, Then::less, threshold_after, no_plenty},
        },
        scanned_entries(), test::kswapd_entries(true), test::aol_entries(test::asked_at(ask)))};

}  // namespace
