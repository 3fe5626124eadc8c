// SPDX-License-Identifier: MIT

// More than two tiers: a policy for each pair of neighbours, and pages that go a step at a time.
#include <array>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "fake_kernel.hpp"
#include "listener.hpp"
#include "live/joint_sampling.hpp"
#include "live/journal.hpp"
#include "live/level_accesses.hpp"
#include "live/session.hpp"

using namespace tt;
using live::Level;
using live::LevelAccesses;
using live::LiveMemory;
using live::Nodes;
using test::FakeKernel;
using test::Listener;
using Mode = SamplingRequest::Mode;

namespace {

constexpr std::uint64_t heap = 1ULL << 40, page = FakeKernel::page;
constexpr int pid = 7;

Nodes tiers(std::size_t count) {
  Nodes out;
  for (std::size_t i = 0; i < count; ++i) out.of.push_back({static_cast<int>(i)});
  return out;
}

/// A process with so many pages on each of three nodes, one after the other.
struct ThreeTiers {
  FakeKernel kernel;
  LiveMemory top;
  LiveMemory below;
  Listener upper, lower;

  ThreeTiers(std::vector<std::uint64_t> sizes, std::array<std::uint64_t, 3> pages)
      : kernel(std::move(sizes)), top(kernel, tiers(3), {}), below(top, nullptr) {
    kernel.processes[pid].nodes = {0, 1, 2};
    kernel.map(pid, heap, heap + (pages[0] + pages[1] + pages[2]) * page);
    std::uint64_t at = heap;
    for (int node = 0; node < 3; ++node)
      for (std::uint64_t i = 0; i < pages[static_cast<std::size_t>(node)]; ++i, at += page)
        kernel.touch(pid, at, node);
    top.follow(std::vector{pid});
    live::BlockChanges changes;
    CHECK_EQ(top.look(changes), 0);
    top.tell(changes, upper, {});
    below.tell(changes, lower, {});
  }
  static Residency at(const LiveMemory& memory, std::uint64_t number) {
    const PageId asked{number};
    Residency out{};
    memory.residency(std::span{&asked, 1}, std::span{&out, 1});
    return out;
  }
  void move(LiveMemory& memory, Listener& policy, Tier to, std::uint64_t first,
            std::uint64_t count) {
    std::vector<PageId> pages;
    for (std::uint64_t i = 0; i < count; ++i) pages.push_back({first + i});
    CHECK_EQ(memory.request(to, pages, Way::background), count);
    while (memory.move(policy, {})) continue;
  }
};

}  // namespace

TEST("live levels: tiers have their nodes and names, and what is wrong with them is said") {
  CHECK_EQ(tiers(2).text(), std::string{"fast 0, slow 1"});
  CHECK_EQ(tiers(3).text(), std::string{"fast 0, slow1 1, slow2 2"});
  CHECK_EQ(tiers(3).level(2), Level{2});
  CHECK_EQ(tiers(3).level(3), live::nowhere);
  CHECK(tiers(3).slower() == (std::vector{1, 2}));
  CHECK_THROWS(live::nodes_of({{0}, {}, {2}}), "no node in the tier slow1");
  CHECK_THROWS(live::nodes_of({{0}, {1}, {2, 1}}), "node 1 is in two tiers");
  CHECK_THROWS(live::nodes_of({{0}}), "found 1 memory tiers, expected 2 to 8");
  CHECK_THROWS(live::nodes_of(std::vector<std::vector<int>>(9)), "found 9 memory tiers");

  FakeKernel kernel{std::vector<std::uint64_t>(10, 100)};
  kernel.files["/sys/devices/system/node/has_memory"] = "0-9\n";
  for (int tier = 0; tier < 10; ++tier)
    kernel.files["/sys/devices/virtual/memory_tiering/memory_tier" + std::to_string(4 + tier) +
                 "/nodelist"] = std::to_string(tier) + "\n";
  CHECK_EQ(
      live::find_nodes(kernel).text(),
      std::string{"fast 0, slow1 1, slow2 2, slow3 3, slow4 4, slow5 5, slow6 6, slow7 7 8 9"});
}

TEST("live levels: a page is fast to one policy, slow to the one above, and absent to others") {
  ThreeTiers scene({100, 100, 100}, {10, 20, 30});
  CHECK_EQ(scene.upper.mapped.size(), 1u);
  CHECK_EQ(scene.lower.mapped.size(), 1u);
  const auto seen = [&](std::uint64_t number, Residency by_upper, Residency by_lower) {
    CHECK(ThreeTiers::at(scene.top, number) == by_upper);
    CHECK(ThreeTiers::at(scene.below, number) == by_lower);
  };
  seen(0, Residency::fast, Residency::absent);
  seen(10, Residency::slow, Residency::fast);
  seen(30, Residency::absent, Residency::slow);
  std::array<Residency, 31> all{};
  scene.below.residency(PageId{0}, all);
  CHECK(all[9] == Residency::absent && all[10] == Residency::fast && all[30] == Residency::slow);
  CHECK_EQ(scene.top.used(Tier::fast), 10u);
  CHECK_EQ(scene.top.used(Tier::slow), 20u);
  CHECK_EQ(scene.below.used(Tier::fast), 20u);
  CHECK_EQ(scene.below.used(Tier::slow), 30u);
  CHECK_EQ(scene.below.capacity(Tier::slow), 100u);
  CHECK_EQ(scene.below.free_pages(Tier::fast), 79u);  // one of 100 is spared
}

TEST("live levels: pages go up and down one step, also where only the step after it has room") {
  ThreeTiers scene({100, 30, 200}, {20, 20, 40});
  scene.move(scene.top, scene.upper, Tier::slow, 0, 20);  // nine find room, as one is spared
  CHECK_EQ(scene.upper.with(Outcome::done).size(), 10u);
  CHECK_EQ(scene.upper.with(Outcome::no_space).size(), 10u);
  CHECK_EQ(scene.kernel.used(1), 30u);
  CHECK_EQ(scene.kernel.used(2), 40u);
  CHECK(ThreeTiers::at(scene.below, 0) == Residency::fast);  // the one below sees what has come

  scene.move(scene.below, scene.lower, Tier::slow, 20, 20);
  CHECK_EQ(scene.lower.with(Outcome::done).size(), 20u);
  CHECK_EQ(scene.kernel.used(2), 60u);
  CHECK(ThreeTiers::at(scene.top, 20) == Residency::absent);
  // What is two steps away is not there for a policy, and is not moved.
  scene.upper.results.clear();
  scene.move(scene.top, scene.upper, Tier::fast, 20, 5);
  CHECK(scene.upper.results.empty());
  scene.move(scene.below, scene.lower, Tier::fast, 20, 5);
  scene.move(scene.top, scene.upper, Tier::fast, 20, 5);
  CHECK_EQ(scene.upper.with(Outcome::done).size(), 5u);
  for (std::uint64_t i = 20; i < 25; ++i) CHECK_EQ(scene.kernel.where(pid, heap + i * page), 0);
  for (const FakeKernel::Moved& each : scene.kernel.moves) CHECK(each.node <= 2);
}

TEST("live levels: what has gone down a step meanwhile is gone for the one that asked") {
  ThreeTiers scene({100, 100, 100}, {0, 10, 0});
  const PageId asked{3};
  CHECK_EQ(scene.top.request(Tier::fast, std::span{&asked, 1}, Way::background), 1u);
  scene.move(scene.below, scene.lower, Tier::slow, 3, 1);
  while (scene.top.move(scene.upper, {})) continue;
  CHECK_EQ(scene.upper.results.size(), 1u);
  CHECK(scene.upper.results.front().outcome == Outcome::gone);
  CHECK_EQ(scene.kernel.where(pid, heap + 3 * page), 2);
}

TEST("live levels: samples go to the policies whose tiers they are of") {
  ThreeTiers scene({100, 100, 100}, {10, 10, 10});
  std::vector<Sample> samples, room;
  for (std::uint64_t number : {5, 15, 25}) {
    Sample sample{};
    CHECK(scene.top.sample(pid, heap + number * page, AccessKind::load, sample));
    samples.push_back(sample);
  }
  const auto numbers = [&](const LiveMemory& memory) {
    std::vector<std::pair<std::uint64_t, Tier>> out;
    for (const Sample& each : memory.own(samples, room))
      out.emplace_back(each.page.value, each.tier);
    return out;
  };
  using Numbers = std::vector<std::pair<std::uint64_t, Tier>>;
  CHECK(numbers(scene.top) == (Numbers{{5, Tier::fast}, {15, Tier::slow}}));
  CHECK(numbers(scene.below) == (Numbers{{15, Tier::fast}, {25, Tier::slow}}));
}

TEST("live levels: counts of the slower tiers are shared as samples were found there") {
  LevelAccesses accesses;
  const auto of = [&](Level fast) {
    Counters out;
    accesses.count(out, fast);
    return out;
  };
  Counters all;
  all.loads = {1000, 600};
  all.stores = {50, 80};
  accesses.share(all);  // no sample yet: it waits
  CHECK_EQ(of(1).loads[0], 0.0);
  for (int i = 0; i < 3; ++i) accesses.saw(1, AccessKind::load);
  accesses.saw(2, AccessKind::load);
  accesses.saw(0, AccessKind::load);
  accesses.saw(2, AccessKind::store);
  accesses.share(all);
  CHECK_EQ(of(0).loads[0], 1000.0);
  CHECK_EQ(of(0).loads[1], 450.0);
  CHECK_EQ(of(1).loads[0], 450.0);
  CHECK_EQ(of(1).loads[1], 150.0);
  CHECK_EQ(of(0).stores[1], 0.0);
  CHECK_EQ(of(1).stores[1], 80.0);
  all.loads = {1000, 700};
  accesses.saw(1, AccessKind::load);
  accesses.share(all);
  CHECK_EQ(of(1).loads[0], 550.0);
  CHECK_EQ(of(1).loads[1], 150.0);
}

TEST("live levels: the one source samples as often as the policy that asks for the most") {
  struct Source final : live::SampleSource {
    SamplingRequest asked;
    SamplingRequest grant(const SamplingRequest& request) override {
      asked = request;
      return request;
    }
    void count(Counters& counters) const override { counters.samples_taken = 5; }
  } source;
  live::JointSampling joint{source, 3};
  const auto asks = [&](std::size_t step, SamplingRequest::Event loads, double fast_share = 1) {
    return joint.of(step).grant({.loads = loads, .stores = {}, .fast_share = fast_share});
  };
  (void)asks(0, {Mode::period, 1000}, 0.5);
  CHECK_EQ(source.asked.loads.value, 1000.0);
  const SamplingRequest second = asks(1, {Mode::period, 200}, 0.25);
  CHECK_EQ(source.asked.loads.value, 200.0);
  CHECK_EQ(source.asked.fast_share, 0.5);  // of the tier that the topmost one alone sees
  CHECK_EQ(second.loads.value, 200.0);
  CHECK_EQ(second.fast_share, 1.0);
  CHECK_EQ(asks(0, {Mode::period, 5000}).loads.value, 200.0);  // it gets more than it wants
  (void)asks(1, {});
  CHECK_EQ(source.asked.loads.value, 5000.0);
  // What counts in another way gets nothing, and is told so.
  CHECK(asks(2, {Mode::frequency, 100}).loads.mode == Mode::off);
  (void)asks(0, {});
  CHECK(source.asked.loads.mode == Mode::frequency);
  (void)asks(1, {Mode::frequency, 300});
  CHECK_EQ(source.asked.loads.value, 300.0);
  Counters counters;
  joint.of(2).count(counters);
  CHECK_EQ(counters.samples_taken, 5.0);
}

// --- A session -----------------------------------------------------------------------------------

namespace {

/// On three tiers, a program of 6144 pages, all in the slowest, of which 512 are accessed most and
/// 512 others a fifth as often; the fast tier has a budget of 600, the middle one has 900 pages.
struct Program {
  static constexpr std::uint64_t limit = 600, hot = 1024, warm = 4096, each = 512;
  FakeKernel kernel{{8192, 900, 8192}};
  std::ostringstream upper, lower, series;
  std::unique_ptr<live::Session> session;
  double owed = 0;
  Rng rng{5};

  explicit Program(const std::string& policy) {
    kernel.have_ring();
    kernel.clock = from_seconds(1000);
    kernel.processes[pid].nodes = {0, 1, 2};
    kernel.map(pid, heap, heap + 6144 * page);
    for (std::uint64_t i = 0; i < 6144; ++i) kernel.touch(pid, heap + i * page, 2);
    live::Session::Options options;
    options.policy = policy;
    options.nodes = tiers(3);
    options.fast_limit = limit;
    session = std::make_unique<live::Session>(kernel, options,
                                              std::vector<std::ostream*>{&upper, &lower}, &series);
    session->start(live::Target::processes({pid}));
  }
  [[nodiscard]] std::uint64_t on(int node, std::uint64_t first) const {
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < each; ++i)
      sum += kernel.where(pid, heap + (first + i) * page) == node ? 1 : 0;
    return sum;
  }
  void misses(double time) {
    emulate::SampleRing& ring = kernel.ring();
    const double count = 20e6 * time;
    const double fast_share =
        (5.0 * static_cast<double>(on(0, hot)) / each + static_cast<double>(on(0, warm)) / each) /
        6;
    ring.misses[0][0] += static_cast<std::uint64_t>(count * fast_share);
    ring.misses[0][1] += static_cast<std::uint64_t>(count * (1 - fast_share));
    if (ring.period[0] > 0) {
      owed += count / static_cast<double>(ring.period[0]);
    } else if (ring.interval_ns[0] > 0) {
      owed += time * 1e9 / static_cast<double>(ring.interval_ns[0]);
    }
    for (; owed >= 1; owed -= 1) {
      if (ring.head - ring.tail >= emulate::ring_records) continue;
      const std::uint64_t first = rng.below(6) == 0 ? warm : hot;
      kernel.record(ring.head) = {
          .address = heap + (first + rng.below(each)) * page, .pid = pid, .tid = pid + 1};
      ++ring.head;
    }
  }
  void run(double time) {
    kernel.run(time, [this] { return session->turn(); }, [this](double wait) { misses(wait); });
  }
};

}  // namespace

TEST("live levels: of three tiers the hottest pages end in the first, the next ones below it") {
  for (const char* const name : {"hybridtier", "hemem"}) {
    Program program{name};
    program.run(30);
    const std::uint64_t fast = program.on(0, Program::hot);
    const std::uint64_t middle = program.on(0, Program::warm) + program.on(1, Program::warm);
    CHECK(fast >= 486);  // 95 of 100
    CHECK(middle >= 486);
    if (fast < 486 || middle < 486)
      std::cerr << "  " << name << ": " << fast << " and " << middle << " of 512\n"
                << live::text_of(program.session->status()) << "\n";
    CHECK(program.kernel.most_on_node_0 <= Program::limit);
    CHECK(program.kernel.used(1) <= 900 - 9);  // a hundredth is spared
    double accesses = 0, moved = 0;
    for (const live::Figure& figure : program.session->status().figures) {
      if (figure.name == "accesses_total") accesses += figure.value;
      if (figure.name == "moved_bytes_total" && figure.label == "tier=\"slow1\"")
        moved = figure.value;
    }
    CHECK_NEAR(accesses / (20e6 * 30), 1, 0.02);
    CHECK(moved >= 2 * 486 * static_cast<double>(page));  // nothing skips it
    CHECK(program.session->summary().find(" MiB in slow2; moved ") != std::string::npos);
    for (const std::ostringstream* written : {&program.upper, &program.lower}) {
      std::istringstream journal{written->str()};
      const live::Playback playback = live::play_back(journal);
      CHECK_EQ(playback.diverged, std::string{});
      CHECK(playback.requested > 400);
    }
  }
}
