// SPDX-License-Identifier: MIT

#include "aol_effects.hpp"
#include "check.hpp"
#include "classify/change_point.hpp"
#include "classify/top_set.hpp"
#include "core/every.hpp"
#include "fake_memory.hpp"
#include "knob_effects.hpp"
#include "migrate/move_cost.hpp"
#include "sim/scale.hpp"
#include "track/moving_averages.hpp"

using namespace tt;
using test::Entry;
using test::Rig;
using test::span_of;
using test::Then;
using test::whole;
using Pages = std::vector<std::uint64_t>;

namespace {

constexpr std::uint64_t huge = 2 << 20;

/// Half a second in which these pages are sampled, and slow memory takes 200 ns longer.
void round(Rig& r, const Pages& pages, unsigned times, AccessKind kind = AccessKind::load) {
  for (const Tier tier : {Tier::fast, Tier::slow}) {
    TierCounters& counters = r.memory.now.tier[index(tier)];
    counters.reads += 1000;
    counters.occupancy_ns += 1000 * (tier == Tier::fast ? 100 : 300);
  }
  r.sample(pages, times, kind);
  r.run(0.5);
}
void rounds(Rig& r, unsigned count, const Pages& pages, unsigned times,
            AccessKind kind = AccessKind::load) {
  for (; count > 0; --count) round(r, pages, times, kind);
}
/// So many seconds with this bandwidth of the slow tier.
void bandwidth(Rig& r, double gib_per_second, unsigned seconds) {
  for (; seconds > 0; --seconds) {
    TierCounters& slow = r.memory.now.tier[index(Tier::slow)];
    slow.reads += 1;
    slow.occupancy_ns += 300;
    slow.read_bytes += gib_per_second * (1 << 30);
    r.run(1);
  }
}
void report(Rig& r, double cost_ms) {
  const MigrationResult result{.page = {0}, .to = Tier::fast, .cost = from_millis(cost_ms)};
  r.policy->on_migrated({&result, 1}, r.now);
}

// Ten fast pages 0..9, thirty slow ones.
Rig arms(const KnobMap& given = {}, const KnobMap& scaled = {}) {
  Rig rig("arms", given, scaled, 10, 100, huge);
  rig.map(0, 40);
  return rig;
}

auto promoted(unsigned times, AccessKind kind = AccessKind::load) {
  return [=](Rig& r) {
    rounds(r, 2, span_of(30, 10), times, kind);
    return test::promotions(r);
  };
}
double recency(Rig& r) {
  bandwidth(r, 0, 1);
  bandwidth(r, 100, 5);
  return r.gauge("recency_mode");
}
double cost_after(Rig& r, unsigned rounds_without) {
  report(r, 10);
  r.run(0.5 + 0.5 * rounds_without);
  return r.gauge("promotion_cost_us");
}

std::vector<Entry> entries() {
  std::vector<Entry> all{
      {"sampling_period", 1000.0, 2000.0, Then::more, test::load_rate},
      {"recency_sampling_period", 1000.0, 2000.0, Then::more,
       [](Rig& r) {
         recency(r);
         return test::load_rate(r);
       }},
      {"write_weight", 1.0, 4.0, Then::more, promoted(1, AccessKind::store)},
      {"round", 500.0, 5000.0, Then::less, promoted(10)},
      {"short_window", 1000.0, 10000.0, Then::less, promoted(3)},
      {"long_window", 10000.0, 1000.0, Then::more, promoted(2)},
      {"history_weight", 0.4, 0.9, Then::more, promoted(2)},
      {"recency_weight", 0.1, 0.9, Then::more,
       [](Rig& r) {
         recency(r);
         return promoted(2)(r);
       }},
      {"hot_age", whole(1), whole(5), Then::less, promoted(10)},
      {"benefit_margin", 1.5, 15.0, Then::less, promoted(5)},
      {"accesses_per_sample", 5003.0, 500.0, Then::less, promoted(5)},
      {"cost_rounds", 1.0, 100.0, Then::less, [](Rig& r) { return cost_after(r, 0); }},
      {"cost_decay", 1.0, 2.0, Then::less, [](Rig& r) { return cost_after(r, 1); }},
      {"least_cost", 0.7, 7.0, Then::more, [](Rig& r) { return r.gauge("promotion_cost_us"); }},
      {"migration_cores", 0.01, 0.05, Then::more, promoted(10)},
      {"measure_period", 1000.0, 5000.0, Then::less,
       [](Rig& r) {
         rounds(r, 2, {}, 0);
         return r.gauge("latency_gain_ns");
       }},
      {"change_mean_weight", 0.1, 1.0, Then::less, recency},
      {"change_deviation_weight", 0.2, 1.0, Then::less, recency},
      {"change_slack", 0.5, 5.0, Then::less, recency},
      {"change_limit", 6.0, 60.0, Then::less, recency},
      {"change_bandwidth", 0.3, 1000.0, Then::less, recency},
      {"change_unit", 1.0, 1000.0, Then::less, recency},
      {"recency_time", 20000.0, 0.0, Then::less,
       [](Rig& r) {
         recency(r);
         bandwidth(r, 0, 5);
         return r.gauge("recency_mode");
       }},
  };
  for (Entry& entry : all) entry.page_bytes = huge;
  return test::joined(std::move(all), test::aol_entries(test::asked_at(promoted(10)), {}, huge));
}
const test::RegisterEffects effects{"arms", {}, entries()};

}  // namespace

TEST("every: deadlines do not slip, and missed ones are not made up for") {
  Every every(from_millis(10));
  CHECK(!every.due(from_millis(9)));
  CHECK(every.due(from_millis(14)));
  CHECK(!every.due(from_millis(19)));
  CHECK(every.due(from_millis(20)));
  CHECK(every.due(from_millis(75)));
  CHECK(!every.due(from_millis(76)));
  CHECK(every.due(from_millis(85)));
}

TEST("moving averages: weights 2/(n+1), pages without samples decay or are blank") {
  track::MovingAverages averages(2, 20);
  averages.count({600}, 3);
  std::vector<std::uint64_t> seen;
  averages.end_round({{598}, 4}, [&](PageId page, const auto&) { seen.push_back(page.value); });
  CHECK((seen == Pages{598, 599, 600, 601}));
  CHECK_NEAR(averages.get({600}).recent, 2.0, 1e-6);
  CHECK_NEAR(averages.get({600}).lasting, 6.0 / 21, 1e-6);
  seen.clear();
  averages.end_round({{0}, 1000}, [&](PageId page, const auto&) { seen.push_back(page.value); });
  CHECK((seen == span_of(0, 1000)));
  CHECK_NEAR(averages.get({600}).recent, 2.0 / 3, 1e-6);
  averages.erase({{600}, 1});
  CHECK_EQ(averages.get({600}).recent, 0.0F);
}

TEST("top set: the highest scores, how long they have been so, and whether they fall") {
  classify::TopSet top;
  const auto choose = [&](std::vector<float> scores) {
    std::vector<classify::TopSet::Item> items;
    for (std::size_t i = 0; i < scores.size(); ++i)
      items.push_back({.page = {i}, .score = scores[i]});
    CHECK_EQ(top.choose(items, 2), std::min<std::size_t>(2, scores.size()));
    std::ranges::sort(items, {}, &classify::TopSet::Item::page);
    return items;
  };
  auto items = choose({1, 5, 3, 0});
  CHECK_EQ(items[1].age, 1U);
  CHECK_EQ(items[2].age, 1U);
  CHECK_EQ(items[0].age + items[3].age, 0U);
  items = choose({4, 5, 3, 0});  // page 0 takes the place of page 2
  CHECK_EQ(items[1].age, 2U);
  CHECK_EQ(items[0].age, 1U);
  CHECK_EQ(items[2].age, 0U);
  items = choose({4, 4, 4, 0});  // the lowest numbers of equals
  CHECK_EQ(items[0].age, 2U);
  CHECK_EQ(items[1].age, 3U);
  CHECK(items[1].falling && !items[0].falling);
  CHECK(top.contains({0}) && !top.contains({2}));
  items = choose({0, 0, 0, 0});
  CHECK(!top.contains({0}));  // never sampled lately: not hot, even if it would fit
}

TEST("change point: a lasting rise is found, noise and a fall are not") {
  classify::ChangePoint change({});
  for (int n = 0; n < 200; ++n) CHECK(!change.add(5 + (n % 2)));
  int found = 0;
  for (int n = 0; n < 10; ++n) found += change.add(30);
  CHECK(found >= 1);
  for (int n = 0; n < 50; ++n) found += change.add(30);
  CHECK(change.calm());
  const int before = found;
  for (int n = 0; n < 50; ++n) found += change.add(2);
  CHECK_EQ(found, before);
  classify::ChangePoint small({.least = 100});
  for (int n = 0; n < 50; ++n) CHECK(!small.add(n < 5 ? 5 : 30));
}

TEST("move cost: rounds are averaged, and one without moves makes them cheaper") {
  migrate::MoveCost cost({.weight = 0.5, .decay = 2, .least_ns = 100});
  CHECK_EQ(cost.exchange_ns(), 200.0);
  std::vector<MigrationResult> results(3);
  for (auto& result : results) result.cost = Nanos{500};
  results[2].outcome = Outcome::no_space;
  results[2].cost = Nanos{9000};
  cost.moved(results);
  cost.end_round();
  CHECK_EQ(cost.promotion_ns(), 300.0);  // half of 500, whatever the number of moves
  CHECK_EQ(cost.demotion_ns(), 100.0);
  cost.end_round();
  CHECK_EQ(cost.promotion_ns(), 150.0);
  cost.end_round();
  CHECK_EQ(cost.promotion_ns(), 100.0);
}

TEST("arms: a page is promoted once it has been at the top for more than a round") {
  auto rig = arms();
  round(rig, {20}, 20);
  CHECK_EQ(rig.memory.queue.size(), 0U);
  CHECK(rig.policy->heat({20}) == Heat::hot);
  round(rig, {20}, 20);
  CHECK((rig.memory.queued(Tier::fast) == Pages{20}));
  CHECK_EQ(rig.memory.queued(Tier::slow).size(), 1U);
  CHECK(rig.memory.queue.front().second == Tier::slow);  // room first
  rig.settle();
  rounds(rig, 5, {20}, 20);
  CHECK_EQ(rig.memory.queue.size(), 0U);
}

TEST("arms: the hottest pages take the places of the coldest") {
  auto rig = arms();
  for (int n = 0; n < 2; ++n) {
    rig.sample(span_of(2, 8), 5);
    rig.sample({30}, 10);
    round(rig, {31}, 40);
  }
  CHECK((rig.memory.queued(Tier::fast) == Pages{31, 30}));
  Pages victims = rig.memory.queued(Tier::slow);
  std::ranges::sort(victims);
  CHECK((victims == Pages{0, 1}));
}

TEST("arms: what falls is not promoted, nor what does not pay") {
  auto rig = arms();
  round(rig, {20}, 40);
  round(rig, {20}, 1);
  CHECK_EQ(rig.memory.queue.size(), 0U);
  auto poor = arms();
  rounds(poor, 2, {20}, 1);  // saves 0.9 us, for 1.4 ms
  CHECK_EQ(poor.memory.queue.size(), 0U);
  auto idle = arms();  // memory is not read: nothing is known to be slow
  for (int n = 0; n < 4; ++n) {
    idle.sample({20}, 40);
    idle.run(0.5);
  }
  CHECK_EQ(idle.memory.queue.size(), 0U);
}

TEST("arms: with free room a promotion has to pay for itself only, and needs no victim") {
  auto rig = arms();
  rig.unmap(0, 5);
  rounds(rig, 2, {20}, 2);  // 1.9 samples are worth 1.9 ms: too little for an exchange
  CHECK((rig.memory.queued(Tier::fast) == Pages{20}));
  CHECK_EQ(rig.memory.queued(Tier::slow).size(), 0U);
  auto full = arms();
  rounds(full, 2, {20}, 2);
  CHECK_EQ(full.memory.queue.size(), 0U);
}

TEST("arms: both averages of the hot page must be above both of the cold one") {
  auto rig = arms();
  // The fast pages were hot for long: their long averages are high. The new ones' are not yet.
  rounds(rig, 30, span_of(0, 10), 20);
  round(rig, span_of(20, 10), 60);
  round(rig, span_of(20, 10), 60);
  CHECK_EQ(rig.memory.queue.size(), 0U);
  rounds(rig, 8, span_of(20, 10), 60);
  CHECK_EQ(rig.memory.queued(Tier::fast).size(), 10U);
}

TEST("arms: measured costs bound the moves of a round and what pays") {
  auto rig = arms({}, {{"migration_cores", 0.005}});  // 1.8 exchanges of 1.4 ms in a round
  rounds(rig, 2, span_of(20, 8), 40);
  CHECK_EQ(rig.memory.queued(Tier::fast).size(), 2U);  // 0.8 were carried over from the first
  auto dear = arms();
  report(dear, 1e6);
  rounds(dear, 2, span_of(20, 8), 40);
  CHECK(dear.gauge("promotion_cost_us") > 1000);
  CHECK_EQ(dear.memory.queue.size(), 0U);
  for (int n = 0; n < 40; ++n) round(dear, span_of(20, 8), 40);
  CHECK_EQ(dear.memory.queued(Tier::fast).size(), 8U);  // each round without moves: tried sooner
}

TEST("arms: a rise of slow-tier bandwidth turns to recency until it has been calm for 20 s") {
  auto rig = arms();
  using Mode = SamplingRequest::Mode;
  CHECK(rig.memory.sampling.back().loads == (SamplingRequest::Event{Mode::period, 10007}));
  CHECK(rig.memory.sampling.back().stores == (SamplingRequest::Event{Mode::period, 10007}));
  bandwidth(rig, 2, 10);
  CHECK_EQ(rig.gauge("recency_mode"), 0.0);
  bandwidth(rig, 60, 6);
  CHECK_EQ(rig.gauge("recency_mode"), 1.0);
  CHECK(rig.memory.sampling.back().loads == (SamplingRequest::Event{Mode::period, 5003}));
  bandwidth(rig, 1, 10);
  CHECK_EQ(rig.gauge("recency_mode"), 1.0);
  bandwidth(rig, 1, 12);
  CHECK_EQ(rig.gauge("recency_mode"), 0.0);
  CHECK(rig.memory.sampling.back().loads == (SamplingRequest::Event{Mode::period, 10007}));
}

TEST("arms: copies as HeMem does; 48 bytes describe a page; what is shared by pages is scaled") {
  auto rig = arms();
  const Movers expected{.threads = 4, .together = 4, .copy = Copy::write_protected};
  CHECK(rig.memory.movers.back() == expected);
  CHECK_EQ(rig.policy->metadata_bytes(), 40U * 48);
  const auto& declared = policy("arms").knobs;
  const Knobs scaled = sim::scale_knobs(declared, resolve(declared, {}), 8, 1e6);
  CHECK_NEAR(scaled.real("migration_cores"), 1.0 / 8, 0);
  CHECK_NEAR(scaled.real("change_unit"), 1.0 / 8, 0);
  CHECK_NEAR(scaled.real("least_cost"), 0.7, 0);
}
