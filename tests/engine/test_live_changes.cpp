// SPDX-License-Identifier: MIT

// What a live engine changes in the kernel's settings and undoes, whatever happens; what it refuses
// to run; and programs that it starts.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "check.hpp"
#include "fake_kernel.hpp"
#include "live/changes.hpp"
#include "live/launcher.hpp"
#include "live/probe.hpp"
#include "live/session.hpp"
#include "perf_bytes.hpp"
#include "scratch.hpp"

using namespace tt;
using live::Changes;
using live::Finding;
using live::Session;
using live::Target;
using test::FakeKernel;

namespace {

const std::string balancing = "/proc/sys/kernel/numa_balancing";
const std::string demotion = "/sys/kernel/mm/numa/demotion_enabled";

FakeKernel with_settings() {
  FakeKernel kernel{{100, 100}};
  kernel.files = {{balancing, "2\n"}, {demotion, "true\n"}};
  return kernel;
}
std::string text_of(const std::filesystem::path& path) {
  std::ifstream in{path};
  return {std::istreambuf_iterator<char>{in}, {}};
}
void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream{path} << text;
  ::chmod(path.c_str(), 0600);
}

}  // namespace

TEST("live changes: the last one is undone first, and what was not changed is left alone") {
  const check::Scratch scratch;
  const auto file = scratch.file("changes");
  FakeKernel kernel = with_settings();
  {
    Changes changes{kernel, file};
    CHECK_EQ(changes.replace(balancing, "2"), 0);
    CHECK(changes.empty() && !std::filesystem::exists(file));
    CHECK_EQ(changes.replace(balancing, "0"), 0);
    CHECK_EQ(changes.write(demotion, "false", "true"), 0);
    CHECK_EQ(text_of(file), "tierd changes 1\n" + balancing + "\t2\n" + demotion + "\ttrue\n");
    CHECK_EQ(changes.replace("/sys/kernel/nothing", "1"), ENOENT);
    CHECK_EQ(changes.write("/etc/passwd", "x", "y"), EINVAL);
    CHECK_EQ(changes.write("/sys/../etc/passwd", "x", "y"), EINVAL);
  }
  CHECK_EQ(kernel.files[balancing], std::string{"2"});
  CHECK_EQ(kernel.files[demotion], std::string{"true"});
  CHECK_EQ(kernel.written[2].first, demotion);
  CHECK(!std::filesystem::exists(file));
}

TEST("live changes: nothing is changed that could not be undone after a crash") {
  const check::Scratch scratch;
  FakeKernel kernel = with_settings();
  Changes changes{kernel, scratch.file("missing") / "changes"};
  CHECK_EQ(changes.replace(balancing, "0"), ENOENT);
  CHECK(kernel.written.empty());
  CHECK(changes.undo().empty());
}

TEST("live changes: what refuses is told, but for what has ended by itself") {
  const check::Scratch scratch;
  const auto file = scratch.file("changes");
  FakeKernel kernel = with_settings();
  Changes changes{kernel, file};
  CHECK_EQ(changes.replace(balancing, "0"), 0);
  CHECK_EQ(changes.replace(demotion, "false"), 0);
  kernel.fail = [](FakeKernel::Call call) { return call == FakeKernel::Call::write ? EPERM : 0; };
  kernel.files[demotion] = "true\n";  // as it was
  CHECK(changes.undo() == std::vector{balancing});
  // It stays noted, and is undone when that is possible.
  CHECK_EQ(text_of(file), "tierd changes 1\n" + balancing + "\t2\n");
  CHECK(Changes::undo_file(kernel, file) == std::vector{balancing});
  CHECK(std::filesystem::exists(file));
  kernel.fail = nullptr;
  CHECK(changes.undo().empty());
  CHECK_EQ(kernel.files[balancing], std::string{"2"});
  CHECK(!std::filesystem::exists(file));
}

TEST("live changes: those of a killed process are undone from their file") {
  const check::Scratch scratch;
  const auto file = scratch.file("4711.damon");
  FakeKernel kernel = with_settings();
  write(file, "tierd changes 1\n" + balancing + "\t1\n" + demotion + "\tfalse\n");
  CHECK(Changes::undo_file(kernel, file).empty());
  CHECK_EQ(kernel.files[balancing], std::string{"1"});
  CHECK_EQ(kernel.files[demotion], std::string{"false"});
  CHECK(!std::filesystem::exists(file));
}

TEST("live changes: a file that is somebody else's, or damaged, undoes nothing") {
  const check::Scratch scratch;
  const auto file = scratch.file("changes");
  FakeKernel kernel = with_settings();
  const auto refused = [&](const std::string& text, const std::string& fragment) {
    write(file, text);
    CHECK_THROWS(Changes::undo_file(kernel, file), fragment);
  };
  CHECK_THROWS(Changes::undo_file(kernel, file), "No such file");
  refused("", "is no file of changes");
  refused("tierd changes 1\n/etc/passwd\troot\n", "found /etc/passwd");
  refused("tierd changes 1\n/sys/../etc/passwd\troot\n", "found /sys/../etc/passwd");
  refused("tierd changes 1\n" + balancing + "\n", "byte 16: expected a file, a tab");
  refused("tierd changes 1\n" + balancing + "\t1", "byte 16");
  write(file, "tierd changes 1\n" + balancing + "\t1\n");
  ::chmod(file.c_str(), 0666);
  CHECK_THROWS(Changes::undo_file(kernel, file), "this user alone");
  ::chmod(file.c_str(), 0600);
  const auto link = scratch.file("link"), pipe = scratch.file("pipe");
  std::filesystem::create_symlink(file, link);
  CHECK_THROWS(Changes::undo_file(kernel, link), "link: ");
  ::mkfifo(pipe.c_str(), 0600);
  CHECK_THROWS(Changes::undo_file(kernel, pipe), "this user alone");
  CHECK(kernel.written.empty());
}

TEST("live session: what a running process does not offer is refused by name") {
  FakeKernel kernel{{100, 100}};
  Session::Options options;
  options.nodes.of = {std::vector{0}, std::vector{1}};
  for (const auto& [name, need] :
       std::map<std::string, std::string>{{"tpp", "hint faults"},
                                          {"multiclock", "accessed bits"},
                                          {"damon-goal", "probes"},
                                          {"arms", "tier counters"},
                                          {"pact", "tier counters"},
                                          {"offline-optimal", "accesses of the whole run"},
                                          {"lru", "unknown policy"}}) {
    options.policy = name;
    CHECK_THROWS((Session{kernel, options, {}}), need);
  }
  options.policy = "hybridtier";
  options.knobs = {{"sample_batch", -1.0}};
  CHECK_THROWS((Session{kernel, options, {}}), "sample_batch");
  options.knobs = {{"aol.enabled", true}};
  CHECK_THROWS((Session{kernel, options, {}}), "outstanding reads");
  for (const char* const name : {"unified", "hybridtier"}) {
    options.policy = name;
    options.knobs.clear();
    const Session offered{kernel, options, {}};
    CHECK(offered.summary().find("shares of accesses, were estimated") != std::string::npos);
  }
}

TEST("live session: DAMON and the kernel's balancing are taken, and given back") {
  constexpr std::uint64_t heap = 1ULL << 40;
  FakeKernel kernel{{8192, 8192}};
  kernel.have_damon();
  kernel.files[balancing] = "1\n";
  kernel.map(7, heap, heap + 100 * FakeKernel::page);
  for (std::uint64_t i = 0; i < 100; ++i) kernel.touch(7, heap + i * FakeKernel::page, 1);
  Session::Options options;
  options.policy = "hemem";
  options.nodes.of = {std::vector{0}, std::vector{1}};
  {
    Session session{kernel, options, {}};
    session.start(Target::processes({7}));
    CHECK_EQ(kernel.files[balancing], std::string{"0"});
    CHECK(!session.over());
    (void)session.turn();
    CHECK(session.summary().starts_with("0 MiB in the fast tier, 0 MiB in the slow one"));
    // Not told where nothing scans: a 0 would say that it is as frequent as it should be.
    CHECK(text_of(session.status()).find("scan_period_error") == std::string::npos);
    kernel.processes.erase(7);
    kernel.clock += from_seconds(1);
    (void)session.turn();
    CHECK(session.over());
  }
  CHECK_EQ(kernel.files[balancing], std::string{"1"});
  CHECK_EQ(kernel.files[FakeKernel::kdamonds + "nr_kdamonds"], std::string{"0"});
}

TEST("live session: hinting faults take the kernel's balancing, which is given back") {
  for (const char* const before : {"0\n", "1\n", "2\n"}) {
    FakeKernel kernel{{8192, 8192}};
    kernel.have_hints();
    kernel.files[balancing] = before;
    kernel.sampling = [](FakeKernel::Sampled& on) { test::fault(on.bytes, ::getpid(), 4096, 1); };
    kernel.map(7, 4096, 8192);
    Session::Options options;
    options.policy = "hemem";
    options.source = "hints";
    options.nodes.of = {std::vector{0}, std::vector{1}};
    {
      Session session{kernel, options, {}};
      session.start(Target::processes({7}));
      CHECK_EQ(kernel.files[balancing].substr(0, 1), std::string{"1"});
      CHECK_EQ(kernel.files[live::scan_period_file], std::string{"1000"});
      CHECK(session.summary().find("from NUMA hinting faults") != std::string::npos);
      CHECK(session.summary().find("once a minute") == std::string::npos);
      (void)session.turn();
      CHECK(text_of(session.status()).find("scan_period_error 0\n") != std::string::npos);
    }
    CHECK(kernel.files[live::scan_period_file].starts_with("60000"));
    CHECK_EQ(kernel.files[balancing].substr(0, 1), std::string{before}.substr(0, 1));
    {
      Session session{kernel, options, {}};
      kernel.files.erase(live::scan_period_file);
      session.start(Target::processes({7}));
      CHECK(session.summary().find("as seldom as once a minute") != std::string::npos);
      (void)session.turn();
      const live::Status status = session.status();
      const std::string error = std::to_string(ENOENT);
      CHECK(text_of(status).find("scan_period_error " + error + "\n") != std::string::npos);
      CHECK(json_of(status).find("\"scan_period_error\": " + error) != std::string::npos);
      CHECK(prometheus_of(status).find("\ntierd_scan_period_error " + error + "\n") !=
            std::string::npos);
    }
    Session session{kernel, options, {}};
    kernel.files.erase(balancing);
    CHECK_THROWS(session.start(Target::processes({7})), "sysctl kernel.numa_balancing=1");
  }
}

TEST("live session: a process that may not be looked at is told, and so is a look that fails") {
  for (const int error : {EACCES, EPERM, EIO}) {
    FakeKernel kernel{{8192, 8192}};
    kernel.have_damon();
    kernel.map(7, 1ULL << 40, (1ULL << 40) + FakeKernel::page);
    Session::Options options;
    options.policy = "hemem";
    options.nodes.of = {std::vector{0}, std::vector{1}};
    Session session{kernel, options, {}};
    session.start(Target::processes({7}));
    kernel.fail = [error](FakeKernel::Call call) {
      return call == FakeKernel::Call::populated ? error : 0;
    };
    if (error != EIO) {
      CHECK_THROWS(session.turn(), "CAP_SYS_PTRACE");
      continue;
    }
    (void)session.turn();
    CHECK(session.summary().find("look at the process succeeded (Input/output") !=
          std::string::npos);
  }
}

TEST("live probe: what is missing is told with what would help") {
  FakeKernel kernel{{100, 100}};
  const auto named = [&](const std::string& subject) {
    for (const Finding& finding : live::probe(kernel))
      if (finding.subject == subject) return finding;
    return Finding{};
  };
  CHECK(named("memory tiers").kind == Finding::Kind::lacks);
  CHECK(named("DAMON").cure.find("CONFIG_DAMON_SYSFS") != std::string::npos);
  kernel.have_damon();
  kernel.files["/sys/kernel/tracing/events/damon/damon_aggregated/id"] = "533\n";
  // Where all nodes stand in one tier nothing is ever promoted, by whomever.
  kernel.files["/sys/devices/system/node/has_memory"] = "0-1\n";
  kernel.files["/sys/devices/system/node/has_cpu"] = "0\n";
  kernel.files["/sys/devices/system/node/possible"] = "0-1\n";
  kernel.files["/sys/devices/virtual/memory_tiering/memory_tier4/nodelist"] = "0-1\n";
  CHECK(named("memory tiers").kind == Finding::Kind::lacks);
  CHECK(named("memory tiers").what.starts_with("all memory nodes stand in one memory tier"));
  CHECK(named("memory tiers").cure.starts_with("--fast 0 --slow 1"));
  // The second of two CXL devices, whose memory nobody has put online.
  CHECK_EQ(live::probe(kernel).size(), 8u);
  kernel.files["/sys/devices/system/node/possible"] = "0-2\n";
  CHECK_EQ(live::probe(kernel).size(), 9u);
  CHECK_EQ(named("nodes without memory").what, std::string{"2, which could have some"});
  CHECK(named("nodes without memory").cure.find("daxctl") != std::string::npos);
  kernel.files["/sys/devices/system/node/possible"] = "none\n";
  CHECK(named("nodes without memory").what.find("found none") != std::string::npos);
  kernel.files["/sys/devices/system/node/possible"] = "0-1\n";
  kernel.files["/sys/devices/virtual/memory_tiering/memory_tier4/nodelist"] = "0\n";
  kernel.files["/sys/devices/virtual/memory_tiering/memory_tier22/nodelist"] = "1\n";
  kernel.files[balancing] = "1\n";
  CHECK(named("memory tiers").kind == Finding::Kind::works);
  CHECK_EQ(named("memory tiers").what, std::string{"fast 0, slow 1"});
  CHECK(named("DAMON").kind == Finding::Kind::works);
  CHECK(named("the kernel's own tiering").cure.find("numa_balancing=0") != std::string::npos);
  kernel.files[FakeKernel::kdamonds + "nr_kdamonds"] = "1\n";
  CHECK(named("DAMON").what.find("in use") != std::string::npos);
  CHECK(named("hinting faults").kind == Finding::Kind::lacks);
  kernel.have_hints();
  kernel.sampling = [](FakeKernel::Sampled& on) { test::fault(on.bytes, ::getpid(), 4096, 1); };
  CHECK(named("hinting faults").kind == Finding::Kind::works);
  CHECK(named("written pages").kind == Finding::Kind::works);
  kernel.has_soft_dirty = false;  // it takes the request all the same
  CHECK(named("written pages").what.find("CONFIG_MEM_SOFT_DIRTY") != std::string::npos);
  const std::string json = live::json_of(live::probe(kernel));
  CHECK(json.find("{\"subject\": \"memory tiers\", \"works\": true, \"found\": \"fast 0, slow 1\", "
                  "\"cure\": null}") != std::string::npos);
  // On the machine that runs this, whatever it is.
  live::Linux machine;
  CHECK(live::probe(machine).size() >= 8u);
}

TEST("live launcher: a program's end is told, and one that cannot run is an error") {
  const live::Signals signals;
  const auto status_of = [&](const std::string& script) {
    const int child = live::launch({"sh", "-c", script}, signals);
    int status = 0;
    while (!live::ended(child, status)) (void)signals.wait(-1);
    return status;
  };
  CHECK_EQ(WEXITSTATUS(status_of("exit 7")), 7);
  CHECK_EQ(WTERMSIG(status_of("kill -KILL $$")), SIGKILL);
  // Signals that are blocked here are not there.
  CHECK_EQ(WTERMSIG(status_of("kill -TERM $$")), SIGTERM);
  CHECK_THROWS(live::launch({"/nowhere"}, signals), "/nowhere: No such file");
  CHECK_THROWS(live::launch({"/etc/passwd"}, signals), "/etc/passwd: Permission denied");
  ::kill(::getpid(), SIGUSR1);
  CHECK_EQ(signals.wait(-1), SIGUSR1);
}
