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
    CHECK_EQ(memory.look(*rig.policy, {}), 0);
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
  live::Session session{kernel, options, nullptr};
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
