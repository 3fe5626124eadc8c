// SPDX-License-Identifier: MIT

// What tells a session of accesses: how it is chosen, and how it follows processes.
#include <unistd.h>

#include <string>
#include <vector>

#include "check.hpp"
#include "fake_kernel.hpp"
#include "fake_memory.hpp"
#include "live/access_source.hpp"
#include "live/cpu_share.hpp"
#include "live/session.hpp"
#include "live/written_pages.hpp"
#include "perf_bytes.hpp"

using namespace tt;
using test::FakeKernel;

namespace {

constexpr std::uint64_t heap = 1ULL << 40;

/// Two processes of 100 pages, and DAMON on the first of them.
struct Watched {
  FakeKernel kernel{{8192, 8192}};
  live::Changes changes{kernel, {}};
  std::unique_ptr<live::AccessSource> source = live::make_source("damon", kernel, changes, {}, 1);
  live::LiveMemory memory{kernel, nodes(), {}, source.get()};

  Watched() {
    kernel.have_damon();
    for (const int pid : {7, 8}) {
      kernel.map(pid, heap, heap + 100 * FakeKernel::page);
      for (std::uint64_t i = 0; i < 100; ++i) kernel.touch(pid, heap + i * FakeKernel::page, 1);
    }
    memory.follow(std::vector{7, 8});
    test::Rig rig{"first-touch", {}, 1, 1};
    CHECK_EQ(test::look_at(memory, *rig.policy, {}), 0);
    SamplingRequest asked;
    asked.loads = {SamplingRequest::Mode::frequency, 1000};
    (void)memory.set_sampling(asked);
    source->start(std::vector{7});
  }
  static live::Nodes nodes() {
    live::Nodes out;
    out.of = {std::vector{0}, std::vector{1}};
    return out;
  }
  /// An aggregation in which one of DAMON's targets is all hot.
  std::size_t samples_of(std::uint64_t target, double time) {
    test::region(kernel.traced->bytes, 1, target, 1, {heap, heap + 100 * FakeKernel::page, 20, 1});
    std::vector<Sample> out;
    source->collect(memory, from_seconds(time), out);
    return out.size();
  }
  [[nodiscard]] std::string target(int index) const {
    const auto file = kernel.files.find(FakeKernel::kdamonds + "0/contexts/0/targets/" +
                                        std::to_string(index) + "/pid_target");
    return file == kernel.files.end() ? "" : file->second;
  }
};

}  // namespace

TEST("live sources: one that is not known is refused with those that are") {
  FakeKernel kernel{{100, 100}};
  live::Changes changes{kernel, {}};
  CHECK_THROWS(live::make_source("pmu", kernel, changes, {}, 1), "unknown source pmu; known: auto");
  for (const std::string_view name : live::source_names) {
    if (name == "auto" || name == "damon")
      CHECK_EQ(std::string{live::make_source(name, kernel, changes, {}, 1)->name()},
               std::string{"damon"});
    else
      CHECK_THROWS(live::make_source(name, kernel, changes, {}, 1), std::string{name} + ": ");
  }
}

TEST("live sources: DAMON goes on with processes that join, and begins anew when all have ended") {
  Watched watched;
  CHECK_EQ(watched.samples_of(0, 1), 100u);
  CHECK_EQ(watched.samples_of(1, 1), 0u);  // of none that it was given
  CHECK_EQ(watched.source->follow(std::vector{7, 8}), 0);
  CHECK_EQ(watched.target(0) + " " + watched.target(1), std::string{"7 8"});
  CHECK(watched.samples_of(1, 1.6) > 0);
  CHECK_EQ(watched.source->follow(std::vector{8}), 0);
  CHECK_EQ(watched.samples_of(0, 2), 100u);
  CHECK_EQ(watched.samples_of(1, 2), 0u);
  test::lost(watched.kernel.traced->bytes, 5);
  (void)watched.samples_of(0, 2.6);
  watched.kernel.files[FakeKernel::kdamonds + "0/state"] = "off";
  watched.kernel.processes[9];
  CHECK_EQ(watched.source->follow(std::vector{9}), 0);
  CHECK_EQ(watched.target(0), std::string{"9"});
  CHECK_EQ(watched.source->lost(), 5u);  // also before it began anew
  CHECK(watched.source->text().find("estimated") != std::string::npos);
}

TEST("live sources: DAMON that cannot begin anew is an end, not silence") {
  Watched watched;
  watched.kernel.files[FakeKernel::kdamonds + "0/state"] = "off";
  watched.kernel.fail = [](FakeKernel::Call call) {
    return call == FakeKernel::Call::trace ? EACCES : 0;
  };
  CHECK_THROWS(watched.source->follow(std::vector{8}), "CAP_PERFMON");
}

// --- What it takes itself ------------------------------------------------------------------------

namespace {

/// Seconds of processor time that an engine uses in five seconds, of which `rest` do not depend on
/// how often it samples.
double used_in_window(double sampling, double rest, unsigned times) {
  return sampling / times + rest;
}
unsigned settled(double sampling, double rest, double limit, bool& exceeded) {
  live::CpuShare share{limit};
  share.begin({}, {});
  Nanos now{}, used{};
  unsigned changes_at_the_end = 0;
  for (int i = 0; i < 100; ++i) {
    now += live::CpuShare::window;
    used += from_seconds(used_in_window(sampling, rest, share.times()));
    const bool changed = share.update(now, used);
    if (i >= 50) changes_at_the_end += changed ? 1 : 0;
  }
  CHECK_EQ(changes_at_the_end, 0u);
  exceeded = share.exceeded();
  return share.times();
}

}  // namespace

TEST("live cpu share: samples become rarer until the limit is kept, and come back when they may") {
  bool exceeded = true;
  CHECK_EQ(settled(0.1, 0, 0.03, exceeded), 1u);  // 2 %
  CHECK(!exceeded);
  CHECK_EQ(settled(1, 0, 0.03, exceeded), 8u);  // 20 %: an eighth is 2.5
  CHECK(!exceeded);
  CHECK_EQ(settled(1, 0, 0, exceeded), 1u);  // no limit
  CHECK_EQ(settled(1, 1, 0.03, exceeded), live::CpuShare::most);
  CHECK(exceeded);
  live::CpuShare share{0.03};
  share.begin(from_seconds(1000), from_seconds(3));
  CHECK(!share.due(from_seconds(1004)) && share.due(from_seconds(1005)));
  CHECK(share.update(from_seconds(1005), from_seconds(4)));
  CHECK_NEAR(share.share(), 0.2, 1e-9);
  for (int i = 1; i <= 3; ++i)
    CHECK_EQ(share.update(from_seconds(1005 + 5 * i), from_seconds(4)), i == 3);
  CHECK_EQ(share.times(), 1u);
}

TEST("live cpu share: DAMON's intervals become longer, by the time of its own thread, too") {
  FakeKernel kernel{{8192, 8192}};
  kernel.have_damon();
  kernel.clock = from_seconds(1000);
  kernel.map(7, heap, heap + 100 * FakeKernel::page);
  live::Session::Options options;
  options.policy = "hemem";
  options.nodes = Watched::nodes();
  options.source = "damon";
  options.cpu = 0.03;
  live::Session session{kernel, options, {}};
  const std::string stat = "/proc/4711/stat";
  const auto thread_has_used = [&](int ticks) {
    kernel.files[stat] = "4711 (kdamond.0) x) S 2 0 0 0 -1 2129984 0 0 0 0 " +
                         std::to_string(ticks / 4) + " " + std::to_string(ticks - ticks / 4) +
                         " 0 0 20 0 1 0 1234 0 0\n";
  };
  thread_has_used(0);
  session.start(live::Target::processes({7}));
  const auto interval = [&](const std::string& name) {
    return kernel.files[FakeKernel::kdamonds + "0/contexts/0/monitoring_attrs/intervals/" + name];
  };
  const auto window = [&] {
    kernel.clock += live::CpuShare::window;
    (void)session.turn();
  };
  CHECK_EQ(interval("sample_us"), std::string{"5000"});
  const auto ticks = [](double in_seconds) {
    return static_cast<int>(in_seconds * static_cast<double>(::sysconf(_SC_CLK_TCK)));
  };
  thread_has_used(ticks(0.5));
  kernel.worked += from_seconds(0.02);
  window();
  CHECK_EQ(interval("sample_us") + " " + interval("aggr_us"), std::string{"10000 200000"});
  CHECK_EQ(kernel.files[FakeKernel::kdamonds + "0/state"], std::string{"commit"});
  CHECK(session.summary().find("10.4 % of a processor used, of 3.0 % allowed: sampled 2 times as "
                               "seldom for that; at last it took more") != std::string::npos);
  kernel.files.erase(stat);
  kernel.worked += from_seconds(0.05);
  window();
  CHECK(session.summary().find("without what the kernel's thread takes") != std::string::npos);
  // A kernel that does not take longer intervals is told of.
  kernel.worked += from_seconds(1);
  kernel.fail = [](FakeKernel::Call call) { return call == FakeKernel::Call::write ? EINVAL : 0; };
  CHECK_THROWS(window(), "sample_us: Invalid argument");
}

// --- Writes --------------------------------------------------------------------------------------

TEST("live writes: help is refused where a source tells of stores itself, or the kernel of none") {
  FakeKernel kernel{{100, 100}};
  live::Changes changes{kernel, {}};
  const auto made = [&](std::string_view name, std::string_view writes) {
    return live::make_source(name, kernel, changes, {}, 1, writes);
  };
  CHECK_THROWS(made("damon", "dirty"), "unknown help with writes dirty; known: none, soft-dirty");
  CHECK_EQ(std::string{made("damon", "soft-dirty")->name()}, std::string{"damon"});
  kernel.has_soft_dirty = false;
  CHECK_THROWS(made("damon", "soft-dirty"), "CONFIG_MEM_SOFT_DIRTY");
  CHECK(made("damon", "none") != nullptr);
  kernel.fail = [](FakeKernel::Call call) {
    return call == FakeKernel::Call::soft_dirty ? EACCES : 0;
  };
  CHECK_THROWS(made("damon", "soft-dirty"), "Permission denied");
  kernel.fail = {};
  kernel.have_ring();
  CHECK_THROWS(made("auto", "soft-dirty"), "emulated tells of stores itself");
}

TEST("live writes: pages count as written between two looks, whatever their process does else") {
  FakeKernel kernel{{8192, 8192}};
  constexpr std::uint64_t page = FakeKernel::page;
  for (const int pid : {7, 8}) {
    kernel.map(pid, heap, heap + 2048 * page);
    for (std::uint64_t i = 0; i < 2048; ++i) kernel.touch(pid, heap + i * page, 1);
  }
  live::WrittenPages pages{kernel, {}};
  const std::vector both{7, 8};
  kernel.processes[7].dirty = {heap, heap + page};
  pages.look(both);  // what was written before the first look says nothing of now
  CHECK(!pages.contains(7, heap));
  CHECK(kernel.processes[7].dirty.empty());
  kernel.processes[7].dirty = {heap + page, heap + 700 * page};
  kernel.processes[8].dirty = {heap + 5 * page};
  pages.look(both);  // not due yet
  CHECK(!pages.contains(7, heap + page));
  kernel.clock += from_seconds(1);
  pages.look(both);
  CHECK(pages.contains(7, heap + page + 17) && pages.contains(7, heap + 700 * page));
  CHECK(!pages.contains(7, heap) && !pages.contains(8, heap + page) && !pages.contains(9, heap));
  CHECK(pages.contains(8, heap + 5 * page));
  kernel.clock += from_seconds(1);
  kernel.processes.erase(8);
  pages.look(both);  // nothing was written since, and one has ended
  CHECK(!pages.contains(7, heap + page) && !pages.contains(8, heap + 5 * page));
  CHECK_EQ(pages.error(), 0);
  kernel.processes[7].foreign = true;
  kernel.clock += from_seconds(1);
  pages.look(both);
  CHECK_EQ(pages.error(), EACCES);
  kernel.processes[7].foreign = false;
  kernel.clock += from_seconds(1);
  pages.look(both);
  CHECK_EQ(pages.error(), 0);
}

TEST("live writes: a look that takes long is made more seldom") {
  FakeKernel kernel{{8192, 8192}};
  kernel.map(7, heap, heap + 10 * FakeKernel::page);
  std::size_t looks = 0;
  kernel.fail = [&](FakeKernel::Call call) {
    if (call == FakeKernel::Call::write) {
      ++looks;
      kernel.clock += from_millis(50);
    }
    return 0;
  };
  live::WrittenPages pages{kernel, {}};
  for (int second = 0; second < 50; ++second) {
    pages.look(std::vector{7});
    kernel.clock += from_seconds(1);
  }
  CHECK_EQ(looks, 10u);  // a hundredth of the time: 50 ms in five seconds
}

TEST("live writes: estimated samples of pages that were written to are stores, if asked for") {
  Watched watched;
  watched.source = live::make_source("damon", watched.kernel, watched.changes, {}, 1, "soft-dirty");
  watched.source->start(std::vector{7});
  SamplingRequest asked;
  asked.loads = {SamplingRequest::Mode::period, 100};
  asked.stores = {SamplingRequest::Mode::period, 40};
  const SamplingRequest granted = watched.source->grant(asked);
  CHECK_EQ(granted.loads.value, 1000.0);  // at most 100,000 of an assumed 100 million a second
  CHECK_EQ(granted.stores.value, 400.0);  // as much coarser
  const auto stores = [&] {
    test::region(watched.kernel.traced->bytes, 1, 0, 1,
                 {heap, heap + 100 * FakeKernel::page, 20, 1});
    std::vector<Sample> out;
    watched.source->collect(watched.memory, {}, out);
    CHECK(out.size() > 1000);
    std::size_t count = 0;
    for (const Sample& each : out) {
      const bool is_store = each.kind == AccessKind::store;
      CHECK(!is_store || each.page.value < 50);
      count += is_store ? 1 : 0;
    }
    return static_cast<double>(count) / static_cast<double>(out.size());
  };
  CHECK_EQ(stores(), 0.0);  // the first look
  for (std::uint64_t i = 0; i < 50; ++i)
    watched.kernel.processes[7].dirty.insert(heap + i * FakeKernel::page);
  watched.kernel.clock += from_seconds(1);
  CHECK_NEAR(stores(), 0.5, 0.01);
  CHECK(watched.source->text().find(" of them count as stores") != std::string::npos);
  asked.stores = {};
  CHECK(watched.source->grant(asked).stores.mode == SamplingRequest::Mode::off);
  CHECK_EQ(stores(), 0.0);
  CHECK(watched.source->text().find("stores") == std::string::npos);
}

TEST("live writes: with them a policy finds what is written to sooner than what is read") {
  // HeMem has a threshold for either (Raybuck et al., SOSP'21, 3.1). Ten samples of each
  // page come at a time.
  FakeKernel kernel{{8192, 8192}};
  kernel.have_damon();
  kernel.map(7, heap, heap + 100 * FakeKernel::page);
  for (std::uint64_t i = 0; i < 100; ++i) kernel.touch(7, heap + i * FakeKernel::page, 1);
  live::Session::Options options;
  options.policy = "hemem";
  options.knobs["sampling_period"] = std::int64_t{10000};
  options.knobs["read_hot_threshold"] = std::int64_t{30};
  options.nodes = Watched::nodes();
  options.source = "damon";
  options.writes = "soft-dirty";
  live::Session session{kernel, options, {}};
  session.start(live::Target::processes({7}));
  const auto fast = [&](std::uint64_t first) {
    return kernel.fast(7, heap + first * FakeKernel::page, 50);
  };
  bool apart = false;
  for (int turn = 0; turn < 4000 && !apart; ++turn) {
    kernel.clock += from_millis(10);
    for (std::uint64_t i = 0; i < 50; ++i)
      kernel.processes[7].dirty.insert(heap + i * FakeKernel::page);
    if (turn % 50 == 0 && turn > 200)
      test::region(kernel.traced->bytes, 1, 0, 1, {heap, heap + 100 * FakeKernel::page, 1, 1});
    (void)session.turn();
    apart = fast(0) >= 45 && fast(50) <= 25;
    if (fast(50) > 25) break;
  }
  CHECK(apart);
}
