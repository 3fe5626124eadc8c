// SPDX-License-Identifier: MIT

// The live engine's memory on a fake kernel: what is known of processes, moves and their outcomes,
// budgets, and every policy that samples under random events with errors of every call.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "check.hpp"
#include "core/rng.hpp"
#include "fake_kernel.hpp"
#include "fake_memory.hpp"
#include "listener.hpp"
#include "live/live_memory.hpp"
#include "live/loop.hpp"
#include "live/mappings.hpp"
#include "live/nodes.hpp"

using namespace tt;
using live::BlockChanges;
using live::Blocks;
using live::LiveMemory;
using live::Mover;
using live::Nodes;
using live::Populated;
using test::FakeKernel;
using test::Listener;

namespace {

constexpr std::uint64_t page = FakeKernel::page, huge = FakeKernel::huge;
constexpr std::uint64_t heap = 0x5500'0000'0000;
constexpr int pid = 100;

Nodes two_nodes() {
  Nodes nodes;
  nodes.of = {std::vector{0}, std::vector{1}};
  return nodes;
}

/// A process on a machine of two nodes, and what watches it.
struct Scene {
  FakeKernel kernel;
  LiveMemory memory;
  Listener policy;

  explicit Scene(std::uint64_t fast = 4096, std::uint64_t slow = 8192,
                 std::uint64_t limit = LiveMemory::no_limit)
      : kernel({fast, slow}), memory(kernel, two_nodes(), options(limit)) {
    memory.follow(std::vector{pid});
  }
  static LiveMemory::Options options(std::uint64_t limit) {
    LiveMemory::Options all;
    all.fast_limit = limit;
    all.mover.batch = 64;
    return all;
  }
  /// A mapping whose pages are touched on this node.
  void fill(std::uint64_t begin, std::uint64_t pages, int node, int process = pid) {
    kernel.map(process, begin, begin + pages * page);
    for (std::uint64_t i = 0; i < pages; ++i) kernel.touch(process, begin + i * page, node);
  }
  int look() { return test::look_at(memory, policy, kernel.clock); }
  [[nodiscard]] PageId id(std::uint64_t address, int process = pid) const {
    PageId found{};
    CHECK(memory.blocks().find(process, address, found));
    return found;
  }
  std::vector<PageId> ids(std::uint64_t begin, std::uint64_t pages) const {
    std::vector<PageId> out;
    for (std::uint64_t i = 0; i < pages; ++i) out.push_back(id(begin + i * page));
    return out;
  }
  void ask(Tier to, const std::vector<PageId>& pages) {
    CHECK_EQ(memory.request(to, pages, Way::background), pages.size());
  }
  void move_all() {
    while (memory.move(policy, kernel.clock)) {
    }
  }
  [[nodiscard]] Residency at(PageId asked) const {
    Residency out{};
    memory.residency(std::span{&asked, 1}, std::span{&out, 1});
    return out;
  }
};

}  // namespace

// --- What the kernel says ------------------------------------------------------------------------

TEST("live mappings: anonymous and shared memory, and nothing else") {
  const char* const maps =
      "00400000-00401000 r-xp 00000000 fe:00 1234   /usr/bin/redis "
      "server\n"
      "55d0c0000000-55d0c0200000 rw-p 00000000 00:00 0   [heap]\n"
      "55d0c0200000-55d0c0201000 rw-p 00000000 00:00 0 \n"
      "7f0000000000-7f0000200000 rw-s 00000000 00:05 77   /memfd:pool "
      "(deleted)\n"
      "7f0000200000-7f0000400000 rw-s 00000000 00:0f 78   /anon_hugepage "
      "(deleted)\n"
      "7f0000400000-7f0000401000 rw-s 00000000 00:19 3   /dev/shm/ring\n"
      "7f0000500000-7f0000501000 rw-s 00000000 00:01 9   /SYSV00000000 "
      "(deleted)\n"
      "7f0000600000-7f0000601000 rw-p 00000000 00:00 0   [anon:arena]\n"
      "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0   [stack]\n"
      "7ffd00100000-7ffd00104000 r--p 00000000 00:00 0   [vvar]\n"
      "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0   [vsyscall]\n";
  const std::vector<live::Mapping> expected{
      {0x55d0c0000000, 0x55d0c0201000}, {0x7f0000000000, 0x7f0000200000},
      {0x7f0000400000, 0x7f0000401000}, {0x7f0000500000, 0x7f0000501000},
      {0x7f0000600000, 0x7f0000601000}, {0x7ffd00000000, 0x7ffd00021000}};
  CHECK(live::own_memory(maps) == expected);
  CHECK(live::own_memory("").empty());
  CHECK_EQ(live::own_memory("1000-3000 rw-p 0 00:00 0").size(), 1u);
}

TEST("live mappings: a line that is not as documented is named") {
  for (const char* const wrong :
       {"1000-2000 rw-p 0 00:00 x\n", "2000-1000 rw-p 0 00:00 0\n", "1000-2001 rw-p 0 00:00 0\n",
        "1000 2000 rw-p 0 00:00 0\n", "-1000-2000 rw-p 0 00:00 0\n", "\n", "1000-2000\n",
        "1000-20000000000000000 rw-p 0 00:00 0\n", "5000-6000 rw-p 0 00:00 0\n"}) {
    const std::string text = std::string{"4000-8000 rw-p 0 00:00 0\n"} + wrong;
    CHECK_THROWS(live::own_memory(text), "line 2 of a process's maps: found ");
  }
}

TEST("live nodes: lists and tiers as the kernel writes them") {
  CHECK(live::node_list("0-2,5\n") == (std::vector{0, 1, 2, 5}));
  CHECK(live::node_list("\n").empty());
  for (const char* const wrong : {"a", "1-", "2-1", "1,1", "-1", "99999", "1;2"})
    CHECK_THROWS(live::node_list(wrong), std::string{"a list of nodes: found "} + wrong);
  FakeKernel kernel{{100, 100}};
  const std::string tiers = "/sys/devices/virtual/memory_tiering/memory_tier";
  CHECK_THROWS(live::find_nodes(kernel), "No such file");
  kernel.files["/sys/devices/system/node/has_memory"] = "0\n";
  CHECK_THROWS(live::find_nodes(kernel), "one memory node");
  kernel.files["/sys/devices/system/node/has_memory"] = "0-2\n";
  CHECK_THROWS(live::find_nodes(kernel), "tells no memory tiers");
  kernel.files[tiers + "4/nodelist"] = "0-2\n";
  CHECK_THROWS(live::find_nodes(kernel), "stand in one memory tier (memory_tier4)");
  // What to say instead is guessed where processors tell the nodes apart.
  const auto cure = [&] {
    try {
      (void)live::find_nodes(kernel);
    } catch (const live::NoTiers& error) {
      return error.cure;
    }
    return std::string{"none is needed"};
  };
  CHECK(cure().starts_with("--fast NODES --slow NODES; "));
  kernel.files["/sys/devices/system/node/has_cpu"] = "0-2\n";
  CHECK(cure().starts_with("--fast NODES --slow NODES; "));
  kernel.files["/sys/devices/system/node/has_cpu"] = "0-1\n";
  CHECK(cure().starts_with("--fast 0,1 --slow 2, "));
  CHECK(live::empty_nodes(kernel).empty());
  kernel.files["/sys/devices/system/node/possible"] = "0-4\n";
  CHECK(live::empty_nodes(kernel) == (std::vector{3, 4}));
  kernel.files[tiers + "4/nodelist"] = "0\n";
  kernel.files[tiers + "22/nodelist"] = "1-2\n";
  CHECK_EQ(live::find_nodes(kernel).text(), std::string{"fast 0, slow 1 2"});
  CHECK_EQ(live::nodes_of({{0, 3}, {1}}).text(), std::string{"fast 0 3, slow 1"});
  CHECK_THROWS(live::nodes_of({{0, 1}, {1, 2}}), "node 1 is in two tiers");
  kernel.files["/sys/devices/system/node/node1/meminfo"] = "";
  live::NodePages pages;
  CHECK_EQ(live::node_pages(kernel, 1, pages), 0);
  CHECK_EQ(pages.total, 100u);
  CHECK_EQ(live::node_pages(kernel, 7, pages), ENOENT);
  kernel.files["/sys/devices/system/node/node7/meminfo"] =
      "Node 7 MemTotal: 8 kB\nNode 7 MemFree: ?";
  CHECK_EQ(live::node_pages(kernel, 7, pages), EINVAL);
}

// --- What is known -------------------------------------------------------------------------------

TEST("live blocks: numbers are dense, and are given again") {
  Blocks blocks;
  BlockChanges changes;
  blocks.update(1,
                std::vector<Populated>{{heap + 5 * page, heap + 7 * page},
                                       {heap + huge - page, heap + huge + page}},
                changes);
  CHECK(changes.mapped == (std::vector<PageRange>{{{0}, 512}, {{512}, 512}}));
  CHECK_EQ(changes.unplaced.size(), 4u);
  for (const PageId each : changes.unplaced) blocks.place(each, 1);
  CHECK_EQ(blocks.used(1), 4u);
  PageId found{};
  CHECK(blocks.find(1, heap + huge + 17, found));
  CHECK_EQ(found.value, 512u);
  CHECK_EQ(blocks.address({6}), heap + 6 * page);
  CHECK(!blocks.find(2, heap, found) && !blocks.find(1, heap + 2 * huge, found));

  changes = {};
  blocks.update(2, std::vector<Populated>{{heap, heap + page}}, changes);
  CHECK(changes.mapped == (std::vector<PageRange>{{{1024}, 512}}));
  changes = {};
  blocks.update(1, std::vector<Populated>{{heap + huge, heap + huge + page}}, changes);
  CHECK(changes.unmapped == (std::vector<PageRange>{{{0}, 512}}));
  CHECK(changes.mapped.empty() && changes.unplaced.empty());
  CHECK_EQ(blocks.used(1), 1u);
  CHECK(!blocks.known({5}) && blocks.at({5}) == live::nowhere);
  changes = {};
  blocks.update(2, std::vector<Populated>{{heap, heap + page}, {heap + huge, heap + huge + page}},
                changes);
  CHECK(changes.mapped == (std::vector<PageRange>{{{0}, 512}}));
  blocks.update(1, {}, changes);
  CHECK_EQ(blocks.used(1), 0u);
  CHECK(blocks.consistent());
}

TEST("live blocks: a huge page is a unit for as long as it is one") {
  Blocks blocks;
  BlockChanges changes;
  const std::vector<Populated> whole{{heap, heap + huge, true}}, small{{heap, heap + huge, false}};
  blocks.update(1, whole, changes);
  CHECK(changes.unplaced == (std::vector<PageId>{{0}}));
  CHECK(blocks.unit({77}) == (PageRange{{0}, 512}));
  blocks.place({9}, 0);
  CHECK_EQ(blocks.used(0), 512u);
  changes = {};
  blocks.update(1, small, changes);  // split: a part of it may have moved
  CHECK_EQ(changes.unplaced.size(), 512u);
  CHECK(blocks.unit({77}) == (PageRange{{77}, 1}));
  blocks.place({9}, 1);
  CHECK_EQ(blocks.used(0), 511u);
  changes = {};
  blocks.update(1, whole, changes);  // collapsed
  CHECK(changes.unplaced == (std::vector<PageId>{{0}}));
  CHECK(blocks.consistent());
}

TEST("live memory: what is populated is told, block by block, and what is gone") {
  Scene scene;
  scene.fill(heap, 600, 1);
  scene.kernel.map(pid, heap + (1 << 30), heap + (1 << 30) + 100 * huge);  // untouched
  CHECK_EQ(scene.look(), 0);
  CHECK_EQ(scene.policy.mapped.size(), 2u);
  CHECK_EQ(scene.memory.used(Tier::slow), 600u);
  CHECK(scene.at(scene.id(heap)) == Residency::slow);
  Sample sample{};
  CHECK(scene.memory.sample(pid, heap + 3 * page + 8, AccessKind::store, sample));
  CHECK(sample.page == scene.id(heap + 3 * page) && sample.tier == Tier::slow);
  CHECK(!scene.memory.sample(pid, heap + 600 * page, AccessKind::load, sample));
  CHECK(!scene.memory.sample(pid + 1, heap, AccessKind::load, sample));
  scene.kernel.touch(pid, heap + (1 << 30));
  CHECK_EQ(scene.look(), 0);
  CHECK_EQ(scene.policy.mapped.size(), 3u);
  scene.kernel.unmap(pid, heap);
  CHECK_EQ(scene.look(), 0);
  CHECK_EQ(scene.policy.unmapped.size(), 2u);
  scene.kernel.processes.erase(pid);
  CHECK_EQ(scene.look(), 0);
  CHECK_EQ(scene.policy.unmapped.size(), 3u);
  CHECK(scene.memory.pids().empty());
}

TEST("live memory: it looks again soon, unless looking itself takes long") {
  // In milliseconds, what each kind of call takes, and a policy for what is new; how long that is
  // unknown.
  const auto unknown_for = [](double finding, double placing, double telling = 0) {
    Scene scene;
    scene.policy.on_mapped = [&] { scene.kernel.clock += from_millis(telling); };
    scene.kernel.fail = [&](FakeKernel::Call call) {
      if (call == FakeKernel::Call::populated) scene.kernel.clock += from_millis(finding);
      if (call == FakeKernel::Call::query) scene.kernel.clock += from_millis(placing);
      return 0;
    };
    live::Loop::Options options;
    options.verified_per_second = 0;  // asks, too
    live::Loop loop(
        scene.kernel, {{scene.memory, scene.policy}},
        [](const LiveMemory&, Nanos, std::vector<Sample>&) {}, [](LiveMemory&) { return false; },
        options, scene.kernel.clock);
    const auto until_known = [&](std::uint64_t address) {
      const Nanos begin = scene.kernel.clock;
      scene.fill(address, 600, 1);
      Sample sample{};
      while (!scene.memory.sample(pid, address, AccessKind::load, sample) &&
             scene.kernel.clock - begin < from_seconds(20))
        scene.kernel.clock += std::max(loop.turn(), from_millis(1));
      return seconds(scene.kernel.clock - begin);
    };
    (void)until_known(heap);
    (void)until_known(heap + 4 * huge);
    return until_known(heap + 8 * huge);
  };
  CHECK_NEAR(unknown_for(0, 0), 0.5, 0.05);
  CHECK_NEAR(unknown_for(0, 10), 0.5, 0.15);     // ten calls: where a page is is asked once
  CHECK_NEAR(unknown_for(0, 0, 50), 0.5, 0.15);  // two blocks
  CHECK_NEAR(unknown_for(100, 0), 5 * 2, 0.5);   // a fiftieth of the time, of two mappings
}

TEST("live memory: pages that others move are found and counted") {
  Scene scene;
  scene.fill(heap, 100, 1);
  scene.look();
  for (int i = 0; i < 30; ++i) scene.kernel.processes[pid].pages[heap + i * page].node = 0;
  scene.memory.verify(20);
  CHECK_EQ(scene.memory.counters().moved_by_others, 20.0);
  scene.memory.verify(1000);
  CHECK_EQ(scene.memory.counters().moved_by_others, 30.0);
  CHECK_EQ(scene.memory.used(Tier::fast), 30u);
}

TEST("live memory: what it cannot do it does not grant") {
  Scene scene;
  CHECK(scene.memory.set_movers({.threads = 4, .copy = Copy::transactional}) ==
        Movers{.threads = 0});
  SamplingRequest asked;
  asked.loads = {SamplingRequest::Mode::period, 100};
  CHECK(scene.memory.set_sampling(asked) == SamplingRequest{});
  CHECK_THROWS(scene.memory.probe({}), "probe");
  CHECK_THROWS((LiveMemory{scene.kernel, Nodes{{std::vector{0}, std::vector{9}}}, {}}), "node 9");
}

// --- Moves ---------------------------------------------------------------------------------------

TEST("live moves: a call has one target and one process, and names a huge page once") {
  Scene scene;
  scene.fill(heap, 100, 1);
  scene.kernel.map(pid, heap + (1 << 30), heap + (1 << 30) + huge);
  scene.kernel.touch_huge(pid, heap + (1 << 30), 1);
  scene.memory.follow(std::vector{pid, pid + 1});
  scene.fill(heap, 100, 1, pid + 1);
  scene.look();
  scene.ask(Tier::fast, {scene.id(heap), scene.id(heap, pid + 1), scene.id(heap + page)});
  scene.ask(Tier::fast, scene.ids(heap + (1 << 30), 512));
  CHECK_EQ(scene.memory.pending(Tier::fast), 515u);
  scene.ask(Tier::slow, {scene.id(heap)});             // on its way to the fast tier by then
  scene.ask(Tier::fast, {scene.id(heap)});             // and back again
  scene.ask(Tier::slow, {scene.id(heap + 9 * page)});  // is there
  CHECK_EQ(scene.memory.pending(Tier::slow), 1u);
  scene.move_all();
  std::vector<std::size_t> sizes;
  for (const auto& call : scene.kernel.moves) sizes.push_back(call.addresses);
  CHECK(sizes == (std::vector<std::size_t>{3, 1, 1}));
  CHECK_EQ(scene.kernel.where(pid, heap + (1 << 30) + 77 * page), 0);
  CHECK_EQ(scene.policy.with(Outcome::done).size(), 5u);
  CHECK_EQ(scene.memory.moves().moved[index(Tier::fast)], 515u);
  CHECK_EQ(scene.memory.pending(Tier::fast) + scene.memory.pending(Tier::slow), 0u);
  CHECK_EQ(scene.memory.used(Tier::fast), scene.kernel.used(0));
  CHECK_EQ(scene.policy.results.front().cost.count(), 20000);
}

TEST("live moves: a huge page that a fork has left mapped in parts exceeds no budget") {
  constexpr std::uint64_t limit = 600;
  Scene scene{4096, 8192, limit};
  scene.kernel.map(pid, heap, heap + 2 * huge);
  for (const std::uint64_t at : {heap, heap + huge}) scene.kernel.touch_huge(pid, at, 1);
  scene.look();
  scene.kernel.processes[pid].huge.clear();  // it was written after a fork
  scene.kernel.processes[pid].parts = {heap, heap + huge};
  scene.kernel.processes[pid + 1] = scene.kernel.processes[pid];
  scene.memory.follow(std::vector{pid, pid + 1});
  scene.look();
  CHECK(scene.memory.blocks().in_parts(scene.id(heap)));
  CHECK(scene.memory.blocks().in_parts(scene.id(heap, pid + 1)));
  // One page of the first takes all of it along, and one of the second would.
  scene.ask(Tier::fast, {scene.id(heap + 3 * page), scene.id(heap + 5 * page)});
  scene.ask(Tier::fast, {scene.id(heap + huge), scene.id(heap, pid + 1)});
  scene.move_all();
  CHECK_EQ(scene.kernel.used(0), 512u);
  CHECK_EQ(scene.memory.used(Tier::fast), 512u);
  CHECK(scene.at(scene.id(heap)) == Residency::fast);
  CHECK_EQ(scene.policy.with(Outcome::no_space).size(), 2u);
  CHECK_EQ(scene.memory.moves().moved[index(Tier::fast)], 512u);
  // One that the kernel has split moves page by page; one that is huge again, as such.
  scene.kernel.processes[pid].parts.clear();
  scene.ask(Tier::slow, {scene.id(heap)});
  scene.move_all();
  CHECK_EQ(scene.memory.used(Tier::fast), 511u);
  scene.kernel.processes[pid].huge = {heap + huge};
  scene.look();
  CHECK(!scene.memory.blocks().in_parts(scene.id(heap + huge)));
}

TEST("live moves: what was refused is left alone for a while, ever longer") {
  Scene scene;
  scene.fill(heap, 20, 1);
  scene.look();
  scene.kernel.processes[pid].pages[heap].pinned = true;
  const auto calls = [&](double time) {
    const std::size_t before = scene.kernel.moves.size();
    for (const Nanos end = scene.kernel.clock + from_seconds(time); scene.kernel.clock < end;
         scene.kernel.clock += from_millis(100)) {
      scene.ask(Tier::fast, {scene.id(heap)});
      scene.move_all();
    }
    return scene.kernel.moves.size() - before;
  };
  CHECK_EQ(calls(1.4), 2u);  // at once and after 0.5 s, and not for a second
  CHECK_EQ(calls(30), 4u);   // after 1, 2, 4, 8 and 16 s
  CHECK(scene.memory.moves().held > 200);
  CHECK_EQ(scene.policy.with(Outcome::busy).size(), scene.policy.results.size());
  scene.kernel.processes[pid].pages[heap].pinned = false;
  (void)calls(40);
  CHECK(scene.at(scene.id(heap)) == Residency::fast);
  // It is forgotten with its block.
  scene.kernel.processes[pid].pages[heap].pinned = true;
  scene.ask(Tier::slow, {scene.id(heap)});
  scene.move_all();
  const PageId before = scene.id(heap);
  scene.kernel.unmap(pid, heap);
  scene.look();
  scene.fill(heap, 20, 1);
  scene.look();
  CHECK(scene.id(heap) == before);
  scene.ask(Tier::fast, {scene.id(heap)});
  scene.move_all();
  CHECK(scene.at(scene.id(heap)) == Residency::fast);
}

TEST("live moves: a pinned page hides nobody's outcome") {
  Scene scene;
  scene.fill(heap, 60, 1);
  scene.look();
  scene.kernel.processes[pid].pages[heap + 10 * page].pinned = true;
  scene.kernel.processes[pid].pages[heap + 20 * page].mapped_by = 2;
  scene.kernel.unmap(pid, heap);
  scene.fill(heap, 60, 1);
  scene.kernel.processes[pid].pages[heap + 10 * page].pinned = true;
  scene.kernel.processes[pid].pages[heap + 20 * page].mapped_by = 2;
  scene.kernel.processes[pid].pages.erase(heap + 30 * page);
  scene.ask(Tier::fast, scene.ids(heap, 60));
  scene.move_all();
  CHECK_EQ(scene.memory.moves().unreported, 50u);
  CHECK(scene.policy.with(Outcome::busy) ==
        (std::vector<std::uint64_t>{scene.id(heap).value + 10, scene.id(heap).value + 20}));
  CHECK(scene.policy.with(Outcome::gone) ==
        (std::vector<std::uint64_t>{scene.id(heap).value + 30}));
  CHECK_EQ(scene.policy.with(Outcome::done).size(), 57u);
  CHECK_EQ(scene.memory.moves().failed.at(EBUSY), 2u);
  CHECK_EQ(scene.memory.used(Tier::fast), 57u);
}

TEST("live moves: a shared page that is told of stays where it is") {
  Scene scene;
  scene.fill(heap, 3, 1);
  scene.look();
  scene.kernel.processes[pid].pages[heap + page].mapped_by = 2;
  scene.ask(Tier::fast, scene.ids(heap, 3));
  scene.move_all();
  CHECK_EQ(scene.memory.moves().failed.at(EACCES), 1u);
  CHECK(scene.at(scene.id(heap + page)) == Residency::slow);
  CHECK_EQ(scene.kernel.queries, 1u);  // of the look: the call told of all
}

TEST("live moves: a budget is kept to the page, and a full node is given time") {
  Scene scene(4096, 8192, 50);
  scene.fill(heap, 200, 1);
  scene.look();
  scene.ask(Tier::fast, scene.ids(heap, 100));
  scene.move_all();
  CHECK_EQ(scene.kernel.most_on_node_0, 50u);
  CHECK_EQ(scene.policy.with(Outcome::no_space).size(), 50u);
  CHECK_EQ(scene.memory.free_pages(Tier::fast), 0u);
  scene.memory.limit_fast(30, scene.policy, {});
  CHECK_EQ(scene.policy.budgets, 1);
  CHECK_EQ(scene.memory.excess_pages(Tier::fast), 20u);

  Scene full(300, 8192);
  full.fill(heap, 400, 1);
  full.look();
  int calls = 0;
  full.kernel.fail = [&](FakeKernel::Call call) {
    if (call != FakeKernel::Call::move) return 0;
    ++calls;
    return ENOMEM;
  };
  full.ask(Tier::fast, full.ids(heap, 64));
  full.move_all();
  full.ask(Tier::fast, full.ids(heap, 64));
  full.move_all();
  CHECK_EQ(calls, 1);
  full.kernel.clock += from_millis(11);
  full.ask(Tier::fast, full.ids(heap, 64));
  full.move_all();
  full.kernel.clock += from_millis(11);  // the second wait is longer
  full.ask(Tier::fast, full.ids(heap, 64));
  full.move_all();
  CHECK_EQ(calls, 2);
  full.kernel.clock += from_millis(11);
  full.kernel.fail = nullptr;
  full.ask(Tier::fast, full.ids(heap, 64));
  full.move_all();
  CHECK_EQ(full.policy.with(Outcome::done).size(), 64u);
  CHECK_EQ(full.policy.with(Outcome::no_space).size(), 4u * 64);
}

TEST("live memory: less than a huge page is no room where there are huge pages") {
  Scene scene(4096, 8192, 600);
  scene.fill(heap, 100, 0);
  scene.look();
  CHECK_EQ(scene.memory.free_pages(Tier::fast), 500u);
  scene.kernel.map(pid, heap + (1 << 30), heap + (1 << 30) + huge);
  scene.kernel.touch_huge(pid, heap + (1 << 30), 1);
  scene.look();
  CHECK_EQ(scene.memory.free_pages(Tier::fast), 0u);
  scene.kernel.unmap(pid, heap);
  scene.look();
  CHECK_EQ(scene.memory.free_pages(Tier::fast), 600u);
}

/// A program's pages, all on one node; of the nodes all but the first are slow.
struct OnNodes {
  OnNodes(std::vector<std::uint64_t> sizes, std::uint64_t count, int on)
      : kernel(std::move(sizes)),
        memory(kernel, nodes(kernel), Scene::options(LiveMemory::no_limit)) {
    memory.follow(std::vector{pid});
    kernel.map(pid, heap, heap + count * page);
    for (int node = 2; node < static_cast<int>(kernel.sizes.size()); ++node)
      kernel.processes[pid].nodes.insert(node);
    for (std::uint64_t i = 0; i < count; ++i) {
      kernel.touch(pid, heap + i * page, on);
      all.push_back({i});
    }
    test::look_at(memory, policy, {});
  }
  static Nodes nodes(const FakeKernel& kernel) {
    Nodes made = two_nodes();
    for (int node = 2; node < static_cast<int>(kernel.sizes.size()); ++node)
      made.of[index(Tier::slow)].push_back(node);
    return made;
  }
  void move(Tier to, std::size_t first = 0) {
    memory.request(to, std::span{all}.subspan(first), Way::background);
    while (memory.move(policy, {})) {
    }
  }
  FakeKernel kernel;
  LiveMemory memory;
  Listener policy;
  std::vector<PageId> all;
};

TEST("live moves: a node keeps its spare pages, and the next one is taken") {
  OnNodes scene({4096, 200, 4096}, 500, 0);
  scene.move(Tier::slow);
  CHECK_EQ(scene.kernel.used(1), 192u);  // of 198 that it may take, in batches of 64
  CHECK_EQ(scene.kernel.used(2), 308u);
  CHECK_EQ(scene.policy.with(Outcome::done).size(), 500u);
}

TEST("live moves: what a node may take is all taken, and is what policies see as free") {
  OnNodes scene({100, 4096}, 200, 1);
  CHECK_EQ(scene.memory.free_pages(Tier::fast), 99u);  // of 100, one of which is spared
  scene.move(Tier::fast);
  CHECK_EQ(scene.kernel.used(0), 99u);  // a batch of 64, and one of 35 for which there is just room
  CHECK_EQ(scene.policy.with(Outcome::done).size(), 99u);
  CHECK_EQ(scene.policy.with(Outcome::no_space).size(), 101u);
  CHECK_EQ(scene.memory.free_pages(Tier::fast), 0u);
}

TEST("live moves: of a batch that no node takes as a whole, one takes what it can") {
  OnNodes scene({4096, 40, 50}, 64, 0);
  scene.move(Tier::slow);
  CHECK_EQ(scene.kernel.used(2), 50u);  // the one with the most room
  CHECK_EQ(scene.policy.with(Outcome::no_space).size(), 14u);
  scene.move(Tier::slow, 50);
  CHECK_EQ(scene.kernel.used(1), 14u);
}

TEST("live moves: what makes every move fail is said with what would help") {
  const auto said = [](auto change) {
    Scene scene;
    scene.fill(heap, 3, 1);
    scene.look();
    scene.ask(Tier::fast, scene.ids(heap, 3));
    change(scene.kernel);
    try {
      scene.move_all();
    } catch (const live::NotAllowed& error) {
      return std::string{error.what()};
    }
    return std::string{};
  };
  CHECK(said([](FakeKernel& k) { k.processes[pid].foreign = true; }).find("CAP_SYS_PTRACE") !=
        std::string::npos);
  CHECK(said([](FakeKernel& k) { k.processes[pid].nodes = {1}; }).find("cpuset") !=
        std::string::npos);
  for (const auto& [error, text] :
       std::map<int, std::string>{{ENOSYS, "CONFIG_MIGRATION"}, {ENODEV, "has gone"}})
    CHECK(said([error](FakeKernel& k) {
            k.fail = [error](FakeKernel::Call call) {
              return call == FakeKernel::Call::move ? error : 0;
            };
          }).find(text) != std::string::npos);
}

TEST("live moves: of a page whose outcome is not known the budget is kept") {
  Scene scene(4096, 8192, 40);
  scene.fill(heap, 100, 1);
  scene.look();
  scene.kernel.processes[pid].pages[heap].pinned = true;
  bool deaf = true;
  scene.kernel.fail = [&](FakeKernel::Call call) {
    return deaf && call == FakeKernel::Call::query ? ENOMEM : 0;
  };
  scene.ask(Tier::fast, scene.ids(heap, 30));
  scene.move_all();
  CHECK_EQ(scene.policy.with(Outcome::busy).size(), 30u);
  CHECK_EQ(scene.memory.free_pages(Tier::fast), 10u);
  scene.ask(Tier::fast, scene.ids(heap + 30 * page, 30));
  scene.move_all();
  CHECK(scene.kernel.most_on_node_0 <= 40);
  deaf = false;
  scene.look();
  CHECK_EQ(scene.memory.used(Tier::fast), scene.kernel.used(0));
}

TEST("live moves: pressure is told below the policy's watermark") {
  Scene scene(1000, 8192, 100);
  scene.fill(heap, 85, 0);
  scene.look();
  scene.memory.press(scene.policy, {});
  scene.memory.set_watermarks({.wake = 0.1});
  scene.memory.press(scene.policy, {});
  CHECK_EQ(scene.policy.pressed, 0);
  scene.memory.set_watermarks({.wake = 0.2});
  scene.memory.press(scene.policy, {});
  CHECK_EQ(scene.policy.pressed, 1);
}

// --- Every policy --------------------------------------------------------------------------------

namespace {

struct Life {
  std::uint64_t asked = 0, done = 0, errors = 0;
};

/// Small enough that policies act soon, as far as they have such a knob.
KnobMap hurried(const PolicyInfo& info) {
  KnobMap raw;
  for (const auto& [name, value] : std::map<std::string, double>{{"sample_batch", 8},
                                                                 {"momentum_cooling_period", 7},
                                                                 {"cooling_period", 4},
                                                                 {"scan_chunk", 4}})
    for (const KnobDecl& knob : info.knobs)
      if (knob.name == name) raw[name] = value;
  return raw;
}

/// Two processes live at random under a policy; a call in so many fails with this error, if it is
/// not 0, and at the end none does. What is known must then be true, and the budget was kept.
Life live_on(const PolicyInfo& info, std::uint64_t seed, int error) {
  constexpr std::uint64_t limit = 400;
  Rng rng(seed);
  FakeKernel kernel{{2000, 10000}};  // no first touch is on node 0
  LiveMemory memory(kernel, two_nodes(), Scene::options(limit));
  Knobs knobs = resolve(info.knobs, {});
  for (const auto& [name, value] : hurried(info)) knobs.set(name, value);
  const std::unique_ptr<Policy> policy = info.make({memory, knobs, nullptr, 1});
  Life life;
  bool failing = error != 0;
  kernel.fail = [&](FakeKernel::Call) {
    if (!failing || rng.below(6) != 0) return 0;
    ++life.errors;
    return error;
  };
  std::uint64_t placed = 0;  // on node 0 by first touches and others, at most
  kernel.processes[pid];
  kernel.processes[pid + 1];
  memory.follow(std::vector{pid, pid + 1});
  const auto address = [](std::uint64_t mapping) { return heap + mapping * 4 * huge; };
  for (int turn = 0; turn < 300; ++turn) {
    const int process = pid + static_cast<int>(rng.below(2));
    if (!kernel.processes.contains(process)) kernel.processes[process];
    const std::uint64_t mapping = address(rng.below(4));
    FakeKernel::Process& mine = kernel.processes[process];
    switch (rng.below(8)) {
      case 0:
        if (mine.mappings.contains(mapping)) kernel.unmap(process, mapping);
        break;
      case 1:
        if (mine.mappings.contains(mapping)) break;
        kernel.map(process, mapping, mapping + 2 * huge);
        kernel.touch_huge(process, mapping, 1);
        break;
      case 2:  // somebody splits it, and moves a part
        mine.huge.erase(mapping);
        if (mine.pages.contains(mapping + page)) mine.pages[mapping + page].node = 1;
        break;
      case 3:
        if (mine.pages.contains(mapping)) mine.pages[mapping].pinned = rng.below(2) == 0;
        break;
      case 4:
        if (turn % 50 == 49) kernel.processes.erase(process);
        break;
      default:
        if (!mine.mappings.contains(mapping)) kernel.map(process, mapping, mapping + 2 * huge);
        for (int i = 0; i < 20; ++i) kernel.touch(process, mapping + rng.below(1024) * page, 1);
    }
    kernel.clock += from_millis(10);
    if (turn % 4 == 0) (void)test::look_at(memory, *policy, kernel.clock);
    std::vector<Sample> samples;
    for (int i = 0; i < 200; ++i) {
      Sample sample{};
      const std::uint64_t skewed = rng.below(1 + rng.below(1024)) * page;
      if (memory.sample(process, mapping + skewed, AccessKind::load, sample))
        samples.push_back(sample);
    }
    policy->on_samples(samples, kernel.clock);
    policy->tick(kernel.clock);
    life.asked += memory.pending(Tier::fast) + memory.pending(Tier::slow);
    memory.press(*policy, kernel.clock);
    for (int i = 0; i < 20 && memory.move(*policy, kernel.clock); ++i) {
    }
    memory.verify(200);
    placed = std::max(placed, kernel.used(0));
  }
  failing = false;
  memory.follow(std::vector{pid, pid + 1});  // again, where an error said that they had ended
  kernel.clock += from_millis(2000);
  (void)test::look_at(memory, *policy, kernel.clock);
  memory.verify(memory.blocks().numbers());
  for (const Tier tier : {Tier::fast, Tier::slow})
    CHECK_EQ(memory.used(tier), kernel.used(static_cast<int>(index(tier))));
  CHECK(memory.blocks().consistent());
  CHECK(placed <= limit);
  const live::MoveCounts& moves = memory.moves();
  life.done = moves.moved[0] + moves.moved[1];
  return life;
}

}  // namespace

TEST("live policies: all that sample keep to what is there, whatever call fails") {
  int policies_seen = 0;
  for (const PolicyInfo& info : policies()) {
    if (!includes(Need::samples, info.traits.needs) || !info.traits.migrates) continue;
    ++policies_seen;
    Life calm = live_on(info, 1, 0);
    std::uint64_t injected = 0;
    // ESRCH and ENOENT say that a process has ended; the others are what any call may say.
    for (const int error : {ENOMEM, EINTR, EIO, EFAULT, EINVAL, EAGAIN, ESRCH, ENOENT})
      injected += live_on(info, 2, error).errors;
    CHECK(injected > 1000);
    CHECK(calm.done > 0);
    std::cout << "  live " << info.name << ": " << calm.done << " pages moved, " << injected
              << " errors injected\n";
  }
  CHECK_EQ(policies_seen, 5);
}
