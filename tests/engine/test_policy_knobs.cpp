// SPDX-License-Identifier: MIT

// Every knob does something: for each declared knob of each policy, a situation in which two of its
// values differ in what can be seen from outside, and in which direction. A knob without an entry
// fails the test.
#include "aol_effects.hpp"
#include "check.hpp"
#include "fake_memory.hpp"
#include "filter_effects.hpp"
#include "knob_effects.hpp"

using namespace tt;
using test::Effects;
using test::Entry;
using test::gauge_after;
using test::joined;
using test::load_rate;
using test::overcounted;
using test::promotions;
using test::Rig;
using test::sample_hot;
using test::sampled;
using test::span_of;
using test::Then;
using test::whole;
using test::with;

namespace {

double store_rate(Rig& r) { return r.memory.sampling.back().stores.value; }
auto sampled_in_turn(std::uint64_t page, unsigned times, AccessKind kind = AccessKind::load) {
  return [=](Rig& r) {
    sample_hot(r, {page}, times, kind);
    r.run(0.05);
    return promotions(r);
  };
}

Effects hybridtier() {
  const KnobMap artifact{{"variant", std::string{"artifact"}}};
  const KnobMap slow_momentum{{"huge_momentum_hot_threshold", whole(9)}};
  const std::uint64_t huge = 2 << 20;
  std::vector<Entry> own{
      {"variant",
       std::string{"paper"},
       std::string{"artifact"},
       Then::less,
       gauge_after("frequency_threshold", 3, 40),
       {{"plateau_batches", whole(0)}}},
      {"artifact_momentum_cooling_period", 20.0, 60.0, Then::less,
       gauge_after("momentum_coolings", 3, 100), artifact},
      {"huge_frequency_hot_threshold", whole(3), whole(4), Then::less, sampled(30, 3),
       slow_momentum, huge},
      {"huge_momentum_hot_threshold", whole(3), whole(4), Then::less, sampled(30, 3), {}, huge},
      {"huge_momentum_cbf_ratio",
       1.0,
       256.0,
       Then::more,
       overcounted,
       {{"huge_momentum_hot_threshold", whole(2)}},
       huge,
       false},
  };
  return {test::hybridtier_base(),
          joined(std::move(own), test::hybridtier_entries(), test::thrift_entries(artifact))};
}

Effects freqtier() {
  const KnobMap base{
      {"sample_batch", 1.0},    {"hot_threshold", whole(8)},           {"adaptation_period", 1e9},
      {"cooling_period", 1e9},  {"cbf_counters_per_fast_page", 256.0}, {"promote_watermark", 0.0},
      {"demote_watermark", 0.0}};
  std::vector<Entry> own{
      {"sampling_frequency", 1e4, 1e5, Then::more, load_rate},
      {"hot_threshold_floor",
       whole(2),
       whole(6),
       Then::more,
       gauge_after("hot_threshold", 3, 200),
       {{"adaptation_period", 10.0}}},
      {"adaptation_period", 10.0, 100.0, Then::more, gauge_after("hot_threshold", 3, 20)},
      {"cooling_period", 1.0, 3.0, Then::less, gauge_after("coolings", 3, 100)},
      {"cbf_blocked",
       true,
       false,
       Then::differs,
       overcounted,
       {{"hot_threshold", whole(2)}},
       4096,
       false},
  };
  return {base,
          joined(std::move(own), test::ladder_entries(), test::filter_entries("hot_threshold"))};
}

Effects hemem() {
  const KnobMap base{{"cooling_threshold", 1e9}};
  /// Eight hot fast pages; a halving makes all cold, and three passes go by.
  const auto hot_after_cooling = [](Rig& r) {
    sample_hot(r, span_of(0, 8), 8);
    r.run(0.05);
    sample_hot(r, {9}, 10);
    r.run(0.03);
    return r.gauge("hot_pages");
  };
  /// The same, where each page is found cold by a sample instead.
  const auto hot_after_cold_samples = [](Rig& r) {
    sample_hot(r, span_of(0, 8), 8);
    r.run(0.05);
    sample_hot(r, {9}, 10);
    r.run(0.05);
    r.sample(span_of(0, 8), 2);
    r.run(0.03);
    return r.gauge("hot_pages");
  };
  const auto hot_after_two_passes = [](Rig& r) {
    sample_hot(r, span_of(0, 8), 8);
    r.run(0.02);
    return r.gauge("hot_pages");
  };
  const auto moved = [](Rig& r) {
    sample_hot(r, span_of(20, 8), 8);
    r.run(0.1);
    return static_cast<double>(r.memory.queue.size());
  };
  const double page_rate = 2.0 / 1024;  // GiB/s: one 2 MiB page per second
  std::vector<Entry> entries{
      {"sampling_period", whole(100), whole(200), Then::more, load_rate},
      {"write_sampling_period", whole(1000), whole(2000), Then::more, store_rate},
      {"read_hot_threshold", whole(3), whole(4), Then::less, sampled_in_turn(30, 3)},
      {"write_hot_threshold", whole(2), whole(3), Then::less,
       sampled_in_turn(30, 2, AccessKind::store)},
      {"cooling_threshold", 5.0, 12.0, Then::less, gauge_after("coolings", 3, 10)},
      {"migration_period", whole(10), whole(500), Then::less, moved},
      {"max_migration_rate", 20 * page_rate, 60 * page_rate, Then::more, moved},
      {"cooling_pages", 1.0, 2.0, Then::less, hot_after_cooling, {{"cooling_threshold", 9.0}}},
      {"hot_ring_reqs_threshold", 1.0, 2.0, Then::more, hot_after_two_passes},
      {"cold_ring_reqs_threshold",
       1.0,
       2.0,
       Then::less,
       hot_after_cold_samples,
       {{"cooling_threshold", 9.0}, {"cooling_pages", 0.0}}},
  };
  entries = joined(std::move(entries), test::aol_entries(test::asked_at(test::ask_for_ten)));
  for (auto& e : entries) e.page_bytes = 2 << 20;
  return {base, entries};
}

void check_knob(const PolicyInfo& info, const KnobMap& base, const Entry& entry) {
  const auto observe = [&](const KnobValue& value) {
    auto raw = with(with(base, entry.others), {{entry.knob, value}});
    Rig rig(info.name, {}, raw, 20, 4000, entry.page_bytes);
    if (entry.mapped) rig.map(0, 100);
    return entry.observe(rig);
  };
  const double from = observe(entry.from);
  const double to = observe(entry.to);
  const bool as_expected = entry.then == Then::less   ? to < from
                           : entry.then == Then::more ? to > from
                                                      : to != from;
  if (!as_expected) {
    std::ostringstream what;
    what << info.name << " " << entry.knob << ": " << to_string(entry.from) << " gives " << from
         << ", " << to_string(entry.to) << " gives " << to;
    check::fail(__FILE__, __LINE__, what.str());
  }
}

}  // namespace

TEST("knobs: every declared knob changes what a policy does, in the direction it says") {
  std::map<std::string, Effects> table = test::effects();
  table["hybridtier"] = hybridtier();
  table["freqtier"] = freqtier();
  table["hemem"] = hemem();
  for (const auto& info : policies()) {
    std::set<std::string> covered;
    if (const auto it = table.find(info.name); it != table.end()) {
      for (const auto& entry : it->second.entries) {
        covered.insert(entry.knob);
        check_knob(info, it->second.base, entry);
      }
    }
    std::set<std::string> declared;
    for (const auto& knob : info.knobs) declared.insert(knob.name);
    for (const auto& name : declared) {
      if (!covered.contains(name)) {
        check::fail(__FILE__, __LINE__, info.name + ": no entry for knob " + name);
      }
    }
    for (const auto& name : covered) {
      if (!declared.contains(name)) {
        check::fail(__FILE__, __LINE__, info.name + ": no knob " + name + " is declared");
      }
    }
  }
}
