// SPDX-License-Identifier: MIT

// The mover's parts by themselves, and the invariants that the simulated machine asserts.
#include <vector>

#include "check.hpp"
#include "core/assert.hpp"
#include "scripted.hpp"
#include "sim/flights.hpp"
#include "sim/last_moves.hpp"
#include "sim/mover.hpp"
#include "sim/mover_time.hpp"
#include "sim/moves.hpp"

namespace {

using namespace tt;
using namespace tt::sim;
using Answer = MoveQueue::Answer;

std::vector<std::uint64_t> in_order(MoveQueue& queue) {
  std::vector<std::uint64_t> pages;
  while (!queue.empty()) pages.push_back(queue.pop().page.value);
  return pages;
}

/// Ten pages that are all in the slow tier, of which the fast one can hold five.
struct Rig {
  Ledger ledger;
  MachineProfile profile = simtest::plain_machine();
  PageTable pages{{.base_pages = 10,
                   .page_bytes = trace::base_page_bytes,
                   .footprint = 10,
                   .slow_pages = 10,
                   .fast_pages = 5}};
  Mover mover{pages, ledger, profile, 1, 1};
  struct InSlow final : Policy {
    [[nodiscard]] Tier placement(PageRange) const override { return Tier::slow; }
    void on_map(PageRange, std::uint32_t, Nanos) override {}
    void on_unmap(PageRange, Nanos) override {}
    void on_samples(std::span<const Sample>, Nanos) override {}
    void on_migrated(std::span<const MigrationResult>, Nanos) override {}
    void tick(Nanos) override {}
    [[nodiscard]] Nanos tick_period() const override { return Nanos{1000000}; }
    [[nodiscard]] std::uint64_t metadata_bytes() const override { return 0; }
    void gauges(Gauges&) const override {}
    [[nodiscard]] Heat heat(PageId) const override { return Heat::cold; }
  } policy;

  Rig() {
    (void)pages.map({trace::EventType::map, 0, 0, 10});
    pages.place({trace::EventType::touch, 0, 0, 10}, policy, Nanos{});
  }
};

TEST("moves: the queue drops what will be there anyway, and keeps one order for both directions") {
  MoveQueue queue{3, 100};
  CHECK(queue.ask({PageId{1}, Tier::fast}, Tier::slow) == Answer::queued);
  CHECK(queue.ask({PageId{2}, Tier::slow, 512}, Tier::fast) == Answer::queued);
  CHECK(queue.ask({PageId{3}, Tier::fast}, Tier::fast) == Answer::dropped);
  CHECK(queue.ask({PageId{1}, Tier::fast}, Tier::slow) == Answer::dropped);
  // What is queued for a page comes before what is asked of it now.
  CHECK(queue.ask({PageId{2}, Tier::fast, 512}, Tier::fast) == Answer::queued);
  CHECK(queue.ask({PageId{4}, Tier::fast}, Tier::slow) == Answer::full);
  CHECK_EQ(queue.pending(Tier::fast), 513u);
  CHECK_EQ(queue.pending(Tier::slow), 512u);
  CHECK(queue.consistent());
  CHECK(in_order(queue) == (std::vector<std::uint64_t>{1, 2, 2}));
  CHECK(queue.ask({PageId{1}, Tier::fast}, Tier::slow) == Answer::queued);
  CHECK(queue.consistent());
}

TEST("moves: forgotten pages leave the queue, in order, and may be asked for again") {
  MoveQueue queue{10, 100};
  for (const std::uint64_t page : {5, 40, 6, 41})
    CHECK(queue.ask({PageId{page}, Tier::fast}, Tier::slow) == Answer::queued);
  std::vector<std::uint64_t> gone;
  queue.forget({PageId{40}, 10}, [&](const Move& move) { gone.push_back(move.page.value); });
  queue.forget({PageId{50}, 10}, [&](const Move&) { CHECK(false); });
  CHECK(gone == (std::vector<std::uint64_t>{40, 41}));
  CHECK_EQ(queue.pending(Tier::fast), 2u);
  CHECK(queue.ask({PageId{40}, Tier::fast}, Tier::slow) == Answer::queued);
  CHECK(queue.consistent());
  CHECK(in_order(queue) == (std::vector<std::uint64_t>{5, 6, 40}));
}

TEST("movers: time that a block did not have is owed, and time without work is nobody's credit") {
  MoverTime time;
  time.start(100);
  time.use(80);
  time.pause(true);  // 20 left and nothing to do
  time.settle(60, 2);
  CHECK_NEAR(time.worked_ns(), 160, 0);
  time.start(100);  // 20 less than that
  CHECK_NEAR(time.left_ns(), 80, 0);
  time.use(80);
  CHECK(!time.any_left());
  time.pause(false);  // busy
  time.settle(150, 1);
  time.start(10);
  CHECK_NEAR(time.left_ns(), 60, 0);  // 50 more than that
  // Played in parts: what passes without work is wasted at once.
  time.use(60);
  time.go_on(30);
  time.waste(true);  // 50 + 30 were granted, 60 used
  time.go_on(30);
  CHECK_NEAR(time.left_ns(), 30, 0);
}

TEST("movers: a page that moves again within ten seconds plays ping-pong") {
  LastMoves last{4};
  CHECK(!last.move(PageId{1}, 0));
  CHECK(!last.move(PageId{2}, 5e9));
  CHECK(last.move(PageId{1}, 9.9e9));
  CHECK(!last.move(PageId{1}, 19.9e9));
  last.forget({PageId{0}, 4});
  CHECK(!last.move(PageId{1}, 20e9));
}

TEST("report: what becomes of moves has a sum for each direction, under its own name") {
  const auto names = [](Tier to) {
    const MoveSums& sums = sums_of(to);
    std::vector<std::string_view> all;
    for (const Sum sum :
         {sums.requested, sums.rejected, sums.started, sums.done, sums.no_space, sums.gone})
      all.push_back(name(sum));
    return all;
  };
  CHECK(names(Tier::fast) ==
        (std::vector<std::string_view>{"promotions_requested", "promotions_rejected",
                                       "promotions_started", "promotions", "promotions_no_space",
                                       "promotions_gone"}));
  CHECK(names(Tier::slow) == (std::vector<std::string_view>{
                                 "demotions_requested", "demotions_rejected", "demotions_started",
                                 "demotions", "demotions_no_space", "demotions_gone"}));
}

TEST("invariants: slots and planes of the page table are those of its pages and moves") {
  Rig rig;
  const std::vector<PageId> asked{PageId{3}, PageId{4}};
  CHECK_EQ(rig.mover.request(Tier::fast, asked), 2u);
  rig.mover.start(1e9, 1, {});
  CHECK(rig.pages.consistent() && rig.mover.consistent());
  CHECK(rig.mover.any_in_flight() && rig.mover.pending(Tier::fast) == 2);
  rig.mover.finish(1e9, rig.policy);
  CHECK(rig.pages.consistent() && rig.mover.consistent());
  CHECK_EQ(rig.pages.present(Tier::fast), 2u);
  // Behind the mover's back.
  rig.pages.depart(PageId{5}, Copy::blocking);
  CHECK(!rig.mover.consistent());
  rig.pages.stay(PageId{5});
  CHECK(rig.mover.consistent());
  rig.pages.take(Tier::fast);
  CHECK(!rig.mover.consistent());
  rig.pages.vacate(Tier::fast);
  rig.pages.arm(Trap::shadowed, 6);  // of a page in the slow tier
  CHECK(!rig.pages.consistent());
}

TEST("invariants: a step that breaks one ends the program and names it") {
  if constexpr (assert_level >= 1) {
    Rig rig;
    CHECK_BREAKS(rig.pages.take(Tier::fast, 6), "free(to) >= pages");
    CHECK_BREAKS(rig.pages.vacate(Tier::fast), "used(from) >= pages");
    CHECK_BREAKS(rig.pages.arrive(PageId{1}, Tier::fast), "in_flight(page.value)");
    CHECK_BREAKS(rig.pages.depart(PageId{99}, Copy::blocking), "Residency::absent");
    MoveQueue queue{1, 1};
    CHECK_BREAKS(queue.pop(), "!moves_.empty()");
    MoverTime time;
    CHECK_BREAKS(time.use(-1), "ns >= 0");
  }
  if constexpr (assert_level >= 2) {
    Rig rig;
    rig.pages.depart(PageId{5}, Copy::blocking);
    CHECK_BREAKS(rig.mover.finish(1e9, rig.policy), "consistent()");
  }
}

}  // namespace
