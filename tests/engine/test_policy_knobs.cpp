// Every knob does something: for each declared knob of each policy, a situation in which two of its
// values differ in what can be seen from outside, and in which direction. A knob without an entry
// fails the test.
#include <functional>

#include "aol_effects.hpp"
#include "check.hpp"
#include "fake_memory.hpp"
#include "knob_effects.hpp"

using namespace tt;
using test::demotions;
using test::Effects;
using test::Entry;
using test::KnobMap;
using test::promotions;
using test::Rig;
using test::span_of;
using test::Then;
using test::whole;
using test::with;

namespace {

using Pages = std::vector<std::uint64_t>;
// Situations.
auto sampled(std::uint64_t page, unsigned times, AccessKind kind = AccessKind::load) {
  return [=](Rig& r) {  // promotions of a slow page after so many samples
    r.sample(Pages{page}, times, kind);
    r.run(0.05);
    return promotions(r);
  };
}
auto gauge_after(const char* gauge, std::uint64_t page, unsigned times) {
  return [=](Rig& r) {
    r.sample(Pages{page}, times);
    return r.gauge(gauge);
  };
}
/// Twenty pages sampled once fill the fast tier; the threshold may adapt from then on.
double adapted_threshold(Rig& r) {
  r.sample(span_of(0, 20));
  return r.gauge("frequency_threshold");
}
/// Likewise, by four batches a second.
double demoted_by_batches(Rig& r) {
  for (int n = 0; n < 12; ++n) {
    r.run(0.25);
    r.sample({3000});
  }
  return demotions(r);
}
double load_rate(Rig& r) { return r.memory.sampling.back().loads.value; }
/// Events that its frequency is split into.
double load_events(Rig& r) {
  const auto& loads = r.memory.sampling.back().loads;
  return 1.0 + loads.by_tier + 2 * loads.by_core;
}
double store_rate(Rig& r) { return r.memory.sampling.back().stores.value; }
double metadata(Rig& r) { return static_cast<double>(r.policy->metadata_bytes()); }
double scanned(Rig& r) {
  r.run(1);
  return static_cast<double>(r.memory.work(Work::scan_step));
}
double demoted(Rig& r) {
  r.run(1);
  return demotions(r);
}
/// Likewise, after as many runs as a whole pass of slices takes.
double demoted_in_a_pass(Rig& r) {
  r.run(60);
  return demotions(r);
}
/// Twenty pages with a count of two, not mapped before: no scan judges them on the way.
double demoted_of_lukewarm(Rig& r) {
  r.sample(span_of(0, 20), 2);
  r.map(0, 20);
  return demoted(r);
}
double marked(Rig& r) {
  r.sample(span_of(0, 20), 8);
  r.map(0, 20);
  r.run(1);
  return r.gauge("second_chance_pages");
}
double demoted_after_revisit(Rig& r) {
  marked(r);
  r.run(30);
  return demotions(r);
}
/// As hemem needs it: a sample that finds a page cold makes a request, which is to be served before
/// that of the last sample.
void sample_hot(Rig& r, const Pages& pages, unsigned times, AccessKind kind = AccessKind::load) {
  for (; times > 1; --times) {
    r.sample(pages, 1, kind);
    r.run(0.1);
  }
  r.sample(pages, 1, kind);
}
/// Promotions of ten hot pages, at an AOL.
void ask(Rig& r) {
  sample_hot(r, span_of(20, 10), 8);
  r.run(0.05);
  r.sample(span_of(20, 10), 32);
  r.run(0.05);
}
/// Two windows of a minute with a promotion in each and these hit ratios.
auto windows(double first, double second, std::function<double(Rig&)> observe) {
  return [=](Rig& r) {
    std::uint64_t page = 20;
    for (const double ratio : {first, second}) {
      r.memory.free({{page - 20}, 1});
      r.sample(Pages{page++}, 10);
      r.settle();
      r.memory.now.loads[0] += 1000 * ratio;
      r.memory.now.loads[1] += 1000 * (1 - ratio);
      r.run(60);
    }
    return observe(r);
  };
}
double sampling_hz(Rig& r) { return r.gauge("sampling_hz"); }
/// 40 batches of one page; three promotions complete in the first 20.
double threshold_after_plateau(Rig& r) {
  r.memory.free({{0}, 5});
  r.memory.queue = {{{20}, Tier::fast}, {{21}, Tier::fast}, {{22}, Tier::fast}};
  r.settle();
  r.sample({3}, 20);
  return r.gauge("frequency_threshold");
}
/// Pages promoted of 3000 that were sampled once, when two samples are asked for: over-counting.
double overcounted(Rig& r) {
  r.map(0, 3100);
  r.sample(span_of(100, 3000));
  return promotions(r);
}

auto sampled_in_turn(std::uint64_t page, unsigned times, AccessKind kind = AccessKind::load) {
  return [=](Rig& r) {
    sample_hot(r, {page}, times, kind);
    r.run(0.05);
    return promotions(r);
  };
}

std::vector<Entry> aol_entries(const KnobMap& others) {
  return test::aol_entries(test::asked_at(ask), others);
}

// Batches of one sample; nothing adapts, cools, collides or demotes unless the entry says so.
Effects hybridtier() {
  const KnobMap base{{"sample_batch", 1.0},
                     {"frequency_hot_threshold", whole(8)},
                     {"momentum_hot_threshold", whole(15)},
                     {"demote_momentum_below", whole(15)},
                     {"adaptation_period", 1e9},
                     {"frequency_cooling_period", 1e9},
                     {"momentum_cooling_period", 1e9},
                     {"cbf_counters_per_fast_page", 256.0},
                     {"momentum_cbf_ratio", 1.0},
                     {"promote_watermark", 0.0},
                     {"demote_watermark", 0.0}};
  const KnobMap full{{"promote_watermark", 0.1}, {"demote_watermark", 0.9}};
  const KnobMap artifact{{"variant", std::string{"artifact"}}};
  const KnobMap sized{{"cbf_counters_per_fast_page", 0.0}};
  const KnobMap soon{{"adaptation_period", 10.0}};
  std::vector<Entry> entries{
      {"variant",
       std::string{"paper"},
       std::string{"artifact"},
       Then::less,
       gauge_after("frequency_threshold", 3, 40),
       {{"plateau_batches", whole(0)}}},
      {"sampling_frequency", 1e4, 1e5, Then::more, load_rate},
      {"sampling_events", std::string{"system"}, std::string{"tier"}, Then::more, load_events},
      {"sampling_events", std::string{"tier"}, std::string{"tier_and_core"}, Then::more,
       load_events},
      {"sample_batch",
       1.0,
       10.0,
       Then::less,
       [](Rig& r) {
         r.sample(span_of(20, 10));
         return static_cast<double>(r.memory.request_calls);
       },
       {{"frequency_hot_threshold", whole(1)}}},
      {"frequency_hot_threshold", whole(3), whole(4), Then::less, sampled(30, 3)},
      {"frequency_threshold_floor", whole(2), whole(6), Then::more, adapted_threshold, soon},
      {"adaptation_period", 10.0, 100.0, Then::more, adapted_threshold},
      {"momentum_hot_threshold", whole(3), whole(4), Then::less, sampled(30, 3)},
      {"demote_momentum_below", whole(2), whole(3), Then::more, demoted_of_lukewarm, full, 4096,
       false},
      {"frequency_cooling_period", 1.0, 3.0, Then::less, gauge_after("frequency_coolings", 3, 100)},
      {"momentum_cooling_period", 1.0, 3.0, Then::less, gauge_after("momentum_coolings", 3, 100)},
      {"artifact_momentum_cooling_period", 20.0, 60.0, Then::less,
       gauge_after("momentum_coolings", 3, 100), artifact},
      {"cbf_error", 0.3, 0.0001, Then::less, overcounted,
       with(sized, {{"frequency_hot_threshold", whole(2)}}), 4096, false},
      {"cbf_hashes", whole(1), whole(8), Then::less, metadata, sized},
      {"cbf_counter_bits", std::string{"4"}, std::string{"8"}, Then::more, metadata},
      {"cbf_counters_per_fast_page",
       16.0,
       256.0,
       Then::less,
       overcounted,
       {{"frequency_hot_threshold", whole(2)}},
       4096,
       false},
      {"momentum_cbf_ratio",
       1.0,
       64.0,
       Then::more,
       overcounted,
       {{"momentum_hot_threshold", whole(2)}, {"frequency_hot_threshold", whole(15)}},
       4096,
       false},
      {"promote_watermark", 0.0, 0.1, Then::more, demoted, {{"demote_watermark", 0.5}}},
      {"demote_watermark",
       0.1,
       0.5,
       Then::more,
       demoted_in_a_pass,
       {{"promote_watermark", 0.1}, {"scan_chunk", 1.0}}},
      {"second_chance_revisit", 1000.0, 100000.0, Then::less, demoted_after_revisit, full, 4096,
       false},
      {"second_chance_queue", 3.0, 5.0, Then::more, marked, full, 4096, false},
      {"scan_chunk",
       1.0,
       8.0,
       Then::more,
       scanned,
       {{"promote_watermark", 0.1}, {"demote_watermark", 0.1}}},
      {"plateau_promotions", 2.0, 3.0, Then::less, threshold_after_plateau,
       with(artifact, {{"plateau_batches", whole(0)}})},
      {"plateau_batches", whole(20), whole(40), Then::more,
       gauge_after("frequency_threshold", 3, 40), artifact},
      {"demotion_pause_rate", 1e-6, 1.0, Then::more, demoted_by_batches,
       with(artifact,
            {{"promote_watermark", 0.1}, {"demote_watermark", 0.9}, {"scan_chunk", 1.0}})},
      {"huge_frequency_hot_threshold",
       whole(3),
       whole(4),
       Then::less,
       sampled(30, 3),
       {{"huge_momentum_hot_threshold", whole(9)}},
       2 << 20},
      {"huge_momentum_hot_threshold", whole(3), whole(4), Then::less, sampled(30, 3), {}, 2 << 20},
      {"huge_momentum_cbf_ratio",
       1.0,
       256.0,
       Then::more,
       overcounted,
       {{"huge_momentum_hot_threshold", whole(2)}},
       2 << 20,
       false},
  };
  for (auto& e : aol_entries({{"sample_batch", 400.0}})) entries.push_back(std::move(e));
  return {base, entries};
}

Effects freqtier() {
  const KnobMap base{
      {"sample_batch", 1.0},    {"hot_threshold", whole(8)},           {"adaptation_period", 1e9},
      {"cooling_period", 1e9},  {"cbf_counters_per_fast_page", 256.0}, {"promote_watermark", 0.0},
      {"demote_watermark", 0.0}};
  const KnobMap sized{{"cbf_counters_per_fast_page", 0.0}, {"hot_threshold", whole(2)}};
  std::vector<Entry> entries{
      {"sampling_frequency", 1e4, 1e5, Then::more, load_rate},
      {"sampling_levels", whole(1), whole(3), Then::more, windows(0.7, 0.7, sampling_hz)},
      {"sampling_step", 2.0, 10.0, Then::less, windows(0.7, 0.7, sampling_hz)},
      {"window", 60.0, 90.0, Then::more, windows(0.7, 0.7, sampling_hz)},
      {"stable_band", 0.01, 0.1, Then::less, windows(0.7, 0.75, sampling_hz)},
      {"sample_batch",
       1.0,
       10.0,
       Then::less,
       [](Rig& r) {
         r.sample(span_of(20, 10));
         return static_cast<double>(r.memory.request_calls);
       },
       {{"hot_threshold", whole(1)}}},
      {"hot_threshold", whole(3), whole(4), Then::less, sampled(30, 3)},
      {"hot_threshold_floor",
       whole(2),
       whole(6),
       Then::more,
       gauge_after("hot_threshold", 3, 200),
       {{"adaptation_period", 10.0}}},
      {"adaptation_period", 10.0, 100.0, Then::more, gauge_after("hot_threshold", 3, 20)},
      {"cooling_period", 1.0, 3.0, Then::less, gauge_after("coolings", 3, 100)},
      {"cbf_error", 0.3, 0.0001, Then::less, overcounted, sized, 4096, false},
      {"cbf_hashes", whole(1), whole(8), Then::less, metadata, sized},
      {"cbf_counter_bits", std::string{"4"}, std::string{"8"}, Then::more, metadata},
      {"cbf_counters_per_fast_page",
       16.0,
       256.0,
       Then::less,
       overcounted,
       {{"hot_threshold", whole(2)}},
       4096,
       false},
      {"cbf_blocked",
       true,
       false,
       Then::differs,
       overcounted,
       {{"hot_threshold", whole(2)}},
       4096,
       false},
      {"promote_watermark", 0.0, 0.1, Then::more, demoted, {{"demote_watermark", 0.5}}},
      {"demote_watermark",
       0.1,
       0.5,
       Then::more,
       demoted_in_a_pass,
       {{"promote_watermark", 0.1}, {"scan_chunk", 1.0}}},
      {"scan_chunk",
       1.0,
       8.0,
       Then::more,
       scanned,
       {{"promote_watermark", 0.1}, {"demote_watermark", 0.1}}},
  };
  for (auto& e : aol_entries({{"sample_batch", 400.0}})) entries.push_back(std::move(e));
  return {base, entries};
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
  for (auto& e : aol_entries({})) entries.push_back(std::move(e));
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
