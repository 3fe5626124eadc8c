// SPDX-License-Identifier: MIT

// What tells a session of accesses: how it is chosen, and how it follows processes.
#include <string>
#include <vector>

#include "check.hpp"
#include "fake_kernel.hpp"
#include "fake_memory.hpp"
#include "live/access_source.hpp"
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
      memory.add(pid);
    }
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

TEST("live sources: DAMON begins anew with processes that join, at most once a second") {
  Watched watched;
  CHECK_EQ(watched.samples_of(0, 1), 100u);
  CHECK_EQ(watched.samples_of(1, 1), 0u);  // of none that it was given
  watched.source->follow(8);
  CHECK_EQ(watched.samples_of(0, 1.5), 100u);
  CHECK_EQ(watched.target(0) + " " + watched.target(1), std::string{"7 8"});
  CHECK_EQ(watched.samples_of(1, 1.6), 100u);
  watched.kernel.processes[9];
  watched.source->follow(9);
  watched.source->follow(8);  // which is watched already
  CHECK_EQ(watched.samples_of(0, 2), 100u);
  CHECK_EQ(watched.target(2), std::string{});
  watched.kernel.processes.erase(8);
  test::lost(watched.kernel.traced->bytes, 5);
  CHECK_EQ(watched.samples_of(0, 2.6), 100u);
  CHECK_EQ(watched.target(0) + " " + watched.target(1), std::string{"7 9"});
  CHECK_EQ(watched.source->lost(), 5u);  // also before it began anew
  CHECK(watched.source->text().find("estimated") != std::string::npos);
  // What leaves is not told of any more; the others' regions stay.
  const std::size_t writes = watched.kernel.written.size();
  watched.source->leave(7);
  CHECK_EQ(watched.samples_of(0, 5), 0u);
  CHECK_EQ(watched.kernel.written.size(), writes);
}

TEST("live sources: DAMON that cannot begin anew is an end, not silence") {
  Watched watched;
  watched.source->follow(8);
  watched.kernel.fail = [](FakeKernel::Call call) {
    return call == FakeKernel::Call::trace ? EACCES : 0;
  };
  CHECK_THROWS(watched.samples_of(0, 2), "CAP_PERFMON");
}
