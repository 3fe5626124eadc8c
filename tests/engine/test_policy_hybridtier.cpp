// SPDX-License-Identifier: MIT

#include <algorithm>
#include <cmath>

#include "check.hpp"
#include "core/rng.hpp"
#include "fake_memory.hpp"
#include "sim/scale.hpp"

using namespace tt;
using test::Rig;

namespace {

using Pages = std::vector<std::uint64_t>;

// Batches of one sample, counters that never cool, filters without collisions: a page's counts are
// what the test gave it. Two pages of room are free, so nothing is demoted unasked.
KnobMap quiet(KnobMap more = {}) {
  KnobMap knobs{{"frequency_hot_threshold", std::int64_t{5}},
                {"adaptation_period", 1e8},
                {"momentum_hot_threshold", std::int64_t{15}},
                {"demote_momentum_below", std::int64_t{15}},
                {"frequency_cooling_period", 1e5},
                {"momentum_cooling_period", 1000.0},
                {"cbf_counters_per_fast_page", 256.0},
                {"momentum_cbf_ratio", 1.0},
                {"promote_watermark", 0.0},
                {"demote_watermark", 0.0}};
  for (auto& [name, value] : more) knobs.insert_or_assign(name, value);
  return knobs;
}
// As the simulator scales them.
KnobMap raw(KnobMap more = {}) {
  KnobMap knobs{{"sample_batch", 1.0}};
  for (auto& [name, value] : more) knobs.insert_or_assign(name, value);
  return knobs;
}

// 20 fast pages 0..19, 20 slow pages 20..39.
Rig hybrid(const KnobMap& knobs, const KnobMap& scaled = raw()) {
  Rig rig("hybridtier", knobs, scaled, 20, 100);
  rig.map(0, 40);
  return rig;
}

}  // namespace

TEST("hybridtier: Table 1, slow pages: promoted when frequency or momentum is high") {
  struct {
    std::int64_t frequency_threshold, momentum_threshold;
    bool promoted;
  } cases[] = {{4, 4, true}, {4, 5, true}, {5, 4, true}, {5, 5, false}};
  for (const auto& c : cases) {
    auto rig = hybrid(quiet({{"frequency_hot_threshold", c.frequency_threshold},
                             {"momentum_hot_threshold", c.momentum_threshold}}));
    rig.sample({30}, 4);
    CHECK_EQ(rig.memory.queued(Tier::fast).size(), c.promoted ? 1u : 0u);
  }
}

TEST(
    "hybridtier: Table 1, fast pages: demoted only if both are low; high frequency gets a chance") {
  struct {
    std::int64_t frequency_threshold, demote_momentum_below;
    bool demoted, marked;
  } cases[] = {{4, 4, false, false},  // frequency high, momentum high: no action
               {5, 4, false, false},  // low, high: no action ("recently promoted")
               {4, 5, false, true},   // high, low: second chance
               {5, 5, true, false}};  // low, low: demote
  for (const auto& c : cases) {
    auto rig = hybrid(quiet({{"frequency_hot_threshold", c.frequency_threshold},
                             {"demote_momentum_below", c.demote_momentum_below},
                             {"promote_watermark", 0.05},
                             {"demote_watermark", 0.9}}));
    Pages fast;
    for (std::uint64_t p = 0; p < 20; ++p) fast.push_back(p);
    rig.sample(fast, 4);
    rig.memory.queue.clear();  // the pages that were demoted before they had four samples
    rig.run(1);
    const auto demoted = rig.memory.queued(Tier::slow);
    CHECK_EQ(std::ranges::count(demoted, 19u), c.demoted ? 1 : 0);
    CHECK_EQ(rig.gauge("second_chance_pages"), c.marked ? 20.0 : 0.0);
    CHECK_EQ(rig.memory.queued(Tier::fast).size(), 0u);
  }
}

namespace {

// All fast pages have frequency 8 and low momentum, and were marked at second 1.
Rig marked(const KnobMap& more = {}, const KnobMap& scaled = raw()) {
  KnobMap knobs = quiet({{"promote_watermark", 0.05}, {"demote_watermark", 0.9}});
  for (auto& [name, value] : more) knobs.insert_or_assign(name, value);
  Rig rig("hybridtier", knobs, scaled, 20, 100);
  // Sampled before they are mapped, so that no scan judges them on the way.
  Pages fast;
  for (std::uint64_t p = 0; p < 20; ++p) fast.push_back(p);
  rig.sample(fast, 8);
  rig.map(0, 20);
  rig.run(1);
  CHECK_EQ(rig.gauge("second_chance_pages"), 20.0);
  return rig;
}

}  // namespace

TEST("hybridtier: a marked page that is not accessed is demoted after the revisit time") {
  auto rig = marked();
  rig.run(58);
  CHECK_EQ(rig.memory.queued(Tier::slow).size(), 0u);
  rig.run(3);
  CHECK_EQ(rig.memory.queued(Tier::slow).size(), 20u);
}

TEST("hybridtier: a marked page that grew is kept") {
  auto rig = marked();
  rig.sample({7, 8});
  rig.run(61);
  const auto demoted = rig.memory.queued(Tier::slow);
  CHECK_EQ(demoted.size(), 18u);
  CHECK_EQ(std::ranges::count(demoted, 7u), 0);
}

TEST("hybridtier: a cooling between mark and revisit keeps the comparison true") {
  // Frequency is halved every 200 samples; 160 made the pages hot, 8 -> 4 at the 200th.
  const auto scaled = raw({{"frequency_cooling_period", 10.0}});
  const KnobMap knobs{{"frequency_hot_threshold", std::int64_t{3}},
                      {"frequency_threshold_floor", std::int64_t{1}}};
  auto rig = marked(knobs, scaled);
  rig.sample({1000}, 40);  // some other page brings the cooling
  CHECK_EQ(rig.gauge("frequency_coolings"), 1.0);
  rig.sample({7});  // accessed since: 5 > 8 / 2, although below the remembered 8
  rig.run(61);
  const auto demoted = rig.memory.queued(Tier::slow);
  CHECK_EQ(std::ranges::count(demoted, 7u), 0);
  CHECK_EQ(std::ranges::count(demoted, 8u), 1);  // 4 is not above 8 / 2, although it differs from 8
}

TEST("hybridtier: a saturated page cannot grow; momentum tells whether it was accessed") {
  Rig rig("hybridtier",
          quiet({{"promote_watermark", 0.05},
                 {"demote_watermark", 0.9},
                 {"frequency_hot_threshold", std::int64_t{15}}}),
          raw({{"momentum_cooling_period", 200.0}}), 2, 10);
  rig.sample({0, 1}, 20);
  rig.sample({5}, 1960);  // momentum of 0 and 1 is gone
  rig.map(0, 2);
  rig.run(1);
  CHECK_EQ(rig.gauge("second_chance_pages"), 2.0);
  rig.sample({1});
  rig.run(61);
  CHECK((rig.memory.queued(Tier::slow) == Pages{0}));
}

TEST("hybridtier: a marked page that left the fast tier is forgotten") {
  auto rig = marked();
  rig.unmap(3, 1);
  rig.memory.queue.emplace_back(PageId{4}, Tier::slow);
  rig.settle();
  rig.run(61);
  CHECK_EQ(rig.memory.queued(Tier::slow).size(), 18u);
}

TEST("hybridtier: one promotion request per batch, demotions queued before it") {
  Rig rig("hybridtier",
          quiet({{"promote_watermark", 0.1},
                 {"demote_watermark", 0.1},
                 {"frequency_hot_threshold", std::int64_t{2}}}),
          raw({{"sample_batch", 6.0}}), 20, 100);
  rig.map(0, 40);
  rig.sample({20, 21, 22, 20, 21});
  CHECK_EQ(rig.memory.queue.size(), 0u);
  rig.sample({22});
  CHECK_EQ(rig.memory.request_calls, 2u);  // one chunk of demotions, one promotion
  CHECK((rig.memory.queued(Tier::fast) == Pages{20, 21, 22}));
  CHECK(rig.memory.queue.front().second == Tier::slow);
  CHECK(rig.memory.queue.back().second == Tier::fast);
}

TEST("hybridtier: the frequency threshold follows the distribution to fill the fast tier") {
  auto rig = hybrid(quiet(), raw({{"adaptation_period", 200.0}}));
  Pages hot, warm;
  for (std::uint64_t p = 0; p < 15; ++p) hot.push_back(p);
  for (std::uint64_t p = 15; p < 35; ++p) warm.push_back(p);
  rig.sample(hot, 10);
  rig.sample(warm, 8);  // 310 samples: adapted once on the way
  rig.sample(hot, 1);
  rig.sample({100}, 75);
  CHECK_EQ(rig.gauge("frequency_threshold"), 9.0);  // 16 pages above 8; 36 would be too many
  CHECK(rig.memory.work(Work::threshold_pass) == 2u);
}

TEST("hybridtier: the initial threshold stays until the sampled pages could fill the fast tier") {
  auto rig = hybrid(quiet(), raw({{"adaptation_period", 10.0}}));
  Pages few;
  for (std::uint64_t p = 0; p < 19; ++p) few.push_back(p);
  rig.sample(few, 4);
  CHECK_EQ(rig.gauge("frequency_threshold"), 5.0);  // 19 pages fit at any threshold
  rig.sample({30}, 10);
  CHECK_EQ(rig.gauge("frequency_threshold"), 3.0);  // so do 20, and the distribution is known
}

namespace {

// A miniature of a machine with so much fast memory, its knobs scaled as the simulator scales them.
// Pages of four times the fast tier are sampled uniformly for three cooling periods. The largest
// share of them that looked hot at any moment: by momentum alone, for frequency needs 15 samples.
double crowded(double fast_gib, const std::string& variant, std::uint64_t page_bytes = 4096) {
  constexpr std::uint64_t fast = 1 << 13;
  const bool huge = page_bytes > 4096;
  const double r = fast_gib * (1 << 30) / static_cast<double>(page_bytes) / fast;
  const auto& info = policy("hybridtier");
  KnobMap given{{"variant", variant}};
  given.emplace(huge ? "huge_frequency_hot_threshold" : "frequency_hot_threshold",
                std::int64_t{huge ? 65535 : 15});
  if (r > 1) given.emplace("sample_batch", 100 * r);
  const Knobs scaled =
      sim::scale_knobs(info.knobs, resolve(info.knobs, given), std::max(1.0, r), fast);
  KnobMap raw = scaled.values();
  raw["adaptation_period"] = 1e9;
  Rig rig("hybridtier", {}, raw, fast, 4 * fast, page_bytes);
  Rng rng(3);
  double most = 0;
  while (rig.gauge("momentum_coolings") < 3) {
    std::vector<Sample> samples;
    for (int n = 0; n < (huge ? 10000 : 100); ++n) samples.push_back({{rng.below(4 * fast)}});
    rig.policy->on_samples(samples, {});
    double hot = 0;
    for (int n = 0; n < 5000; ++n) hot += rig.policy->heat({rng.below(4 * fast)}) == Heat::hot;
    most = std::max(most, hot / 5000);
  }
  return most;
}

}  // namespace

TEST("hybridtier: momentum tells pages apart on fast tiers of any size") {
  for (const double gib : {1, 4, 16, 64, 256, 1024}) {
    CHECK(crowded(gib, "paper") < 0.002);
  }
  // The artifact's constant does so on the paper's larger tiers, not on small ones.
  CHECK(crowded(128, "artifact") < 0.002);
  CHECK(crowded(4, "artifact") > 0.99);
}

TEST("hybridtier: momentum tells huge pages apart") {
  for (const double gib : {16, 1024}) CHECK(crowded(gib, "paper", 2 << 20) < 0.002);
}

TEST("hybridtier: the default momentum period is the published one on the paper's middle tier") {
  const auto& knobs = policy("hybridtier").knobs;
  const auto it = std::ranges::find(knobs, "momentum_cooling_period", &KnobDecl::name);
  const double pages = std::ldexp(64, 18);  // 64 GiB
  CHECK_NEAR(std::get<double>(it->initial) * pages, 1.1e6, 1e3);
}

TEST("hybridtier: huge pages have 16-bit counters and thresholds of their own") {
  Rig rig("hybridtier",
          {{"huge_frequency_hot_threshold", std::int64_t{700}},
           {"huge_momentum_hot_threshold", std::int64_t{65535}},
           {"adaptation_period", 1e8}},
          raw({{"momentum_cooling_period", 1e9}}), 20, 100, 2 << 20);
  rig.map(0, 40);
  rig.sample({30}, 699);
  CHECK_EQ(rig.memory.queued(Tier::fast).size(), 0u);
  rig.sample({30}, 1);
  CHECK_EQ(rig.memory.queued(Tier::fast).size(), 1u);
}

TEST("hybridtier: thresholds that the counters cannot reach are refused") {
  Rig wide("hybridtier",
           {{"frequency_hot_threshold", std::int64_t{16}}, {"cbf_counter_bits", std::string{"8"}}},
           20, 100);
  CHECK_EQ(wide.gauge("frequency_threshold"), 16.0);
  CHECK_THROWS(Rig("hybridtier", {{"frequency_hot_threshold", std::int64_t{16}}}, 20, 100),
               "frequency_hot_threshold: found 16, allowed up to 15 with cbf_counter_bits 4");
  CHECK_THROWS(
      Rig("hybridtier",
          {{"momentum_hot_threshold", std::int64_t{300}}, {"cbf_counter_bits", std::string{"8"}}},
          20, 100),
      "allowed up to 255");
}

TEST("hybridtier: an empty scan is not repeated until something changed") {
  auto rig = hybrid(quiet({{"promote_watermark", 0.1},
                           {"demote_watermark", 0.1},
                           {"frequency_hot_threshold", std::int64_t{1}},
                           {"frequency_threshold_floor", std::int64_t{1}}}),
                    raw({{"second_chance_queue", 0.0}}));
  Pages all;
  for (std::uint64_t p = 0; p < 40; ++p) all.push_back(p);
  rig.memory.queue_limit = 0;
  rig.sample(all, 2);
  const auto scanned = rig.memory.work(Work::scan_step);
  rig.run(10);
  CHECK_EQ(rig.memory.work(Work::scan_step), scanned);
  rig.map(40, 10);
  rig.run(2);
  CHECK_EQ(rig.memory.work(Work::scan_step), scanned + 50);
  // Others have moved pages, though as many are free as before.
  rig.memory.move_unasked({0});
  rig.memory.move_unasked({45});
  rig.run(2);
  CHECK(rig.memory.work(Work::scan_step) >= scanned + 100);
}

namespace {

// Batches of one sample; the plateau rule looks at every 20th.
Rig artifact(const KnobMap& more = {}) {
  KnobMap knobs = quiet({{"variant", std::string{"artifact"}},
                         {"frequency_hot_threshold", std::int64_t{8}},
                         {"plateau_batches", std::int64_t{0}}});
  for (auto& [name, value] : more) knobs.insert_or_assign(name, value);
  return hybrid(knobs, raw({{"plateau_promotions", 2.0}}));
}

}  // namespace

TEST("hybridtier artifact: the threshold stays for so many batches; plateaus then lower it") {
  auto rig = artifact({{"plateau_batches", std::int64_t{40}}});
  Pages all;
  for (std::uint64_t p = 0; p < 20; ++p) all.push_back(p);
  rig.sample(all, 2);
  CHECK_EQ(rig.gauge("frequency_threshold"), 8.0);  // the paper's variant would have adapted
  rig.sample({0}, 19);
  CHECK_EQ(rig.gauge("frequency_threshold"), 8.0);
  rig.sample({0}, 1);
  CHECK_EQ(rig.gauge("frequency_threshold"), 7.0);
  rig.sample({0}, 80);
  CHECK_EQ(rig.gauge("frequency_threshold"), 3.0);
  CHECK_EQ(rig.gauge("monitoring"), 0.0);
  rig.sample({0}, 20);  // at its floor: there is nothing left to do
  CHECK_EQ(rig.gauge("frequency_threshold"), 3.0);
  CHECK_EQ(rig.gauge("monitoring"), 1.0);
}

TEST("hybridtier artifact: promotions keep the threshold") {
  auto busy = artifact();
  busy.memory.free({{0}, 5});
  busy.sample({20, 21, 22}, 8);  // 24 batches: the first window saw no promotion complete
  CHECK_EQ(busy.gauge("frequency_threshold"), 7.0);
  busy.settle();  // three promotions: above plateau_promotions
  busy.sample({0}, 16);
  CHECK_EQ(busy.gauge("frequency_threshold"), 7.0);
  busy.sample({0}, 20);
  CHECK_EQ(busy.gauge("frequency_threshold"), 6.0);
}

TEST("hybridtier artifact: a plateau with the fast tier full of hot pages stops sampling") {
  auto full = artifact(
      {{"frequency_hot_threshold", std::int64_t{4}}, {"plateau_batches", std::int64_t{60}}});
  Pages hot;
  for (std::uint64_t p = 0; p < 17; ++p) hot.push_back(p);
  full.sample(hot, 4);
  CHECK_EQ(full.gauge("monitoring"), 0.0);
  full.sample(hot, 1);
  CHECK_EQ(full.gauge("frequency_threshold"), 4.0);
  CHECK_EQ(full.gauge("monitoring"), 1.0);
  CHECK(full.memory.sampling.back().loads.mode == SamplingRequest::Mode::off);
  const auto coolings = full.gauge("frequency_coolings");
  full.sample({20}, 100);  // under way: not looked at
  CHECK(full.policy->heat({20}) == Heat::cold);
  CHECK_EQ(full.memory.queued(Tier::fast).size(), 0u);
  CHECK_EQ(full.gauge("frequency_coolings"), coolings);
}

TEST("hybridtier artifact: it wakes with counts halved, the initial threshold, and no marks") {
  auto rig = artifact();
  rig.sample({5}, 20);  // lowers the threshold to 7, the second time to 6, ...
  rig.sample({0}, 100);
  CHECK_EQ(rig.gauge("monitoring"), 1.0);
  CHECK_EQ(rig.gauge("frequency_threshold"), 3.0);
  const double fall = 0.02;
  for (int minute = 0; minute < 9; ++minute) {
    CHECK_EQ(rig.gauge("monitoring"), minute < 8 ? 1.0 : 0.0);
    rig.memory.now.loads[0] += 1000 * (0.9 - fall * minute);
    rig.memory.now.loads[1] += 1000 * (0.1 + fall * minute);
    rig.run(60);
  }
  CHECK_EQ(rig.gauge("monitoring"), 0.0);
  CHECK(rig.memory.sampling.back().loads.mode == SamplingRequest::Mode::frequency);
  CHECK_EQ(rig.gauge("frequency_threshold"), 8.0);
  CHECK_EQ(rig.gauge("frequency_coolings"), 1.0);
  CHECK_EQ(rig.gauge("momentum_coolings"), 1.0);
  CHECK_EQ(rig.gauge("second_chance_pages"), 0.0);
  CHECK_EQ(rig.gauge("hot_pages"), 0.0);  // 15 is 7 now
}

TEST("hybridtier artifact: two sweeps without enough cold pages stop sampling") {
  auto rig = artifact({{"frequency_hot_threshold", std::int64_t{1}},
                       {"frequency_threshold_floor", std::int64_t{1}},
                       {"plateau_batches", std::int64_t{1000000}},
                       {"promote_watermark", 0.1},
                       {"demote_watermark", 0.1}});
  Pages all;
  for (std::uint64_t p = 0; p < 40; ++p) all.push_back(p);
  rig.memory.queue_limit = 0;  // what was demoted before the pages were hot
  rig.sample(all, 2);
  rig.memory.queue_limit = SIZE_MAX;
  rig.memory.queue.clear();
  rig.run(300);
  CHECK_EQ(rig.gauge("monitoring"), 1.0);
}

TEST("hybridtier artifact: a page with any momentum is not demoted") {
  for (const bool sampled : {false, true}) {
    auto rig = artifact({{"promote_watermark", 0.05}, {"demote_watermark", 0.05}});
    Pages all;
    for (std::uint64_t p = 0; p < 20; ++p) all.push_back(p);
    rig.memory.queue_limit = 0;
    if (sampled) rig.sample(all, 1);
    rig.memory.queue_limit = SIZE_MAX;
    rig.run(60);
    CHECK_EQ(rig.memory.queued(Tier::slow).empty(), sampled);
  }
}

TEST("hybridtier artifact: fast demotion is followed by a pause of a second") {
  // A page for each batch, of which four come in a second.
  const auto demoted = [](double pages_per_second) {
    Rig rig(
        "hybridtier",
        quiet({{"variant", std::string{"artifact"}},
               {"promote_watermark", 0.5},
               {"demote_watermark", 0.9}}),
        raw({{"scan_chunk", 1.0}, {"demotion_pause_rate", pages_per_second * 4096 / (1 << 30)}}),
        20, 100);
    rig.map(0, 20);
    for (int n = 0; n < 12; ++n) {
      rig.run(0.25);
      rig.sample({50});
    }
    return rig.memory.queued(Tier::slow).size();
  };
  CHECK(demoted(0.5) < demoted(100));
}

TEST("hybridtier artifact: increments raise all counters of a page, in filters of 2^n") {
  // Far more pages than the filter is sized for: over-counting shows which counters are raised.
  const auto overcounted = [](const std::string& variant) {
    Rig rig("hybridtier",
            quiet({{"variant", variant}, {"frequency_hot_threshold", std::int64_t{4}}}),
            raw({{"cbf_counters_per_fast_page", 12.8}, {"plateau_batches", 1e6}}), 20, 4000);
    Pages all;
    for (std::uint64_t p = 100; p < 400; ++p) all.push_back(p);
    rig.sample(all);
    int hot = 0;
    for (std::uint64_t p = 1000; p < 2000; ++p) hot += rig.policy->heat({p}) == Heat::hot;
    return hot;
  };
  CHECK(overcounted("artifact") > overcounted("paper"));
  const auto bytes = [](const std::string& variant) {
    Rig rig("hybridtier", {{"variant", variant}}, raw({{"cbf_counters_per_fast_page", 0.0}}), 1000,
            4000);
    return rig.policy->metadata_bytes();
  };
  CHECK(bytes("artifact") > bytes("paper") + 5000);  // 20.4 counters a page: 32 of them
}

TEST("hybridtier artifact: later coolings come after half as many samples") {
  const auto coolings = [](const std::string& variant) {
    Rig rig("hybridtier", quiet({{"variant", variant}}),
            raw({{"momentum_cooling_period", 5.0},
                 {"artifact_momentum_cooling_period", 100.0},
                 {"frequency_cooling_period", 5.0}}),
            20, 100);
    rig.sample({30}, 300);
    CHECK_EQ(rig.gauge("frequency_coolings"), rig.gauge("momentum_coolings"));
    return rig.gauge("momentum_coolings");
  };
  CHECK_EQ(coolings("paper"), 3.0);
  CHECK_EQ(coolings("artifact"), 5.0);
}

TEST("hybridtier artifact: saturated counters halve the sampling of the fast tier") {
  auto rig = artifact();
  rig.sample({0}, 15);
  CHECK_EQ(rig.memory.sampling.back().fast_share, 1.0);
  rig.sample({0});
  CHECK_EQ(rig.memory.sampling.back().fast_share, 0.5);
  CHECK_EQ(rig.gauge("fast_sample_share"), 0.5);
}

TEST("hybridtier: heat says what would be done with a page") {
  auto rig = hybrid(quiet(
      {{"momentum_hot_threshold", std::int64_t{4}}, {"demote_momentum_below", std::int64_t{2}}}));
  rig.sample({1}, 4);
  rig.sample({2}, 2);
  rig.sample({3}, 1);
  CHECK(rig.policy->heat({1}) == Heat::hot);
  CHECK(rig.policy->heat({2}) == Heat::warm);
  CHECK(rig.policy->heat({3}) == Heat::cold);
}
