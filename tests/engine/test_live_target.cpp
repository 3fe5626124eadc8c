// SPDX-License-Identifier: MIT

// Which processes a live engine follows: descendants and cgroups, as they come and go.
#include <string>
#include <vector>

#include "check.hpp"
#include "fake_kernel.hpp"
#include "live/target.hpp"

using namespace tt;
using live::Target;
using test::FakeKernel;

namespace {

using Pids = std::vector<int>;

void process(FakeKernel& kernel, int pid, int parent, std::uint64_t started) {
  kernel.processes[pid].parent = parent;
  kernel.processes[pid].started = started;
}
Pids find(Target& target, FakeKernel& kernel) {
  CHECK_EQ(target.find(kernel), 0);
  return target.pids();
}

}  // namespace

TEST("live target: descendants are followed from their second look on, also without a parent") {
  FakeKernel kernel{{100, 100}};
  process(kernel, 7, 1, 100);
  process(kernel, 8, 7, 101);
  process(kernel, 9, 8, 102);
  process(kernel, 10, 1, 103);
  Target target = Target::processes({7});
  CHECK(find(target, kernel) == (Pids{7, 8, 9}));
  process(kernel, 11, 9, 110);
  process(kernel, 12, 10, 111);
  CHECK(find(target, kernel) == (Pids{7, 8, 9}));
  CHECK(find(target, kernel) == (Pids{7, 8, 9, 11}));
  // An orphan goes on, and its children are ours.
  kernel.processes.erase(9);
  kernel.processes[11].parent = 1;
  process(kernel, 13, 11, 120);
  CHECK(find(target, kernel) == (Pids{7, 8, 11}));
  CHECK(find(target, kernel) == (Pids{7, 8, 11, 13}));
  // Another process has the number of one that was ours.
  kernel.processes.erase(8);
  process(kernel, 8, 1, 130);
  process(kernel, 14, 8, 131);
  CHECK(find(target, kernel) == (Pids{7, 11, 13}));
  CHECK(find(target, kernel) == (Pids{7, 11, 13}));
  // One that cannot be listed changes nothing.
  kernel.fail = [](FakeKernel::Call) { return EMFILE; };
  CHECK_EQ(target.find(kernel), EMFILE);
  CHECK(target.pids() == (Pids{7, 11, 13}) && !target.over());
  kernel.fail = {};
  for (const int pid : {7, 11, 13}) kernel.processes.erase(pid);
  CHECK(find(target, kernel).empty());
  CHECK(target.over());
  CHECK_EQ(target.text(), std::string{"process 7 and descendants"});
}

TEST("live target: several processes, of which one is not there") {
  FakeKernel kernel{{100, 100}};
  process(kernel, 7, 1, 100);
  process(kernel, 9, 1, 102);
  Target target = Target::processes({7, 8, 9});
  CHECK(find(target, kernel) == (Pids{7, 9}));
  process(kernel, 8, 1, 103);  // came later: it is not the one that was named
  CHECK(find(target, kernel) == (Pids{7, 9}));
  Target none = Target::processes({6});
  CHECK(find(none, kernel).empty());
  CHECK(none.over());
}

TEST("live target: a cgroup with all below it, until it is removed") {
  FakeKernel kernel{{100, 100}};
  const std::string root = "/sys/fs/cgroup/shop";
  for (const int pid : {7, 8, 9}) process(kernel, pid, 1, 100);
  kernel.files[root + "/cgroup.procs"] = "7\n0\nnonsense\n99\n";
  kernel.files[root + "/cache/cgroup.procs"] = "8\n";
  kernel.files[root + "/cache/inner/cgroup.procs"] = "9\n";
  Target target = Target::cgroup("shop");
  CHECK(find(target, kernel) == (Pids{7, 8, 9}));
  CHECK_EQ(target.text(), "cgroup " + root);
  // One leaves, which goes on elsewhere; another comes.
  kernel.files[root + "/cache/cgroup.procs"] = "";
  process(kernel, 10, 1, 110);
  kernel.files[root + "/cgroup.procs"] = "7\n10\n";
  CHECK(find(target, kernel) == (Pids{7, 9}));
  CHECK(find(target, kernel) == (Pids{7, 9, 10}));
  // It may be empty for a while.
  kernel.files[root + "/cgroup.procs"] = "";
  kernel.files[root + "/cache/inner/cgroup.procs"] = "";
  CHECK(find(target, kernel).empty());
  CHECK(!target.over());
  kernel.files.clear();
  CHECK(find(target, kernel).empty());
  CHECK(target.over());
  Target none = Target::cgroup("none");
  CHECK_EQ(none.find(kernel), ENOENT);
  for (const char* const name : {"/sys/fs/cgroup/shop", "/shop"})
    CHECK_EQ(Target::cgroup(name).text(), "cgroup " + root);
}

TEST("live target: what /proc says is not trusted") {
  const std::string proc = "/proc/7/stat";
  for (const char* const text : {"", "7", "7 (a", "7 (a) S", "7 (a) S 1 2 3",
                                 "7 (a) Z 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5 0",
                                 "7 (a) S x 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 5 0"}) {
    FakeKernel kernel{{100, 100}};
    kernel.files[proc] = text;
    kernel.files["/sys/fs/cgroup/a/cgroup.procs"] = "7\n";
    Target target = Target::cgroup("a");
    CHECK(find(target, kernel).empty());
  }
}
