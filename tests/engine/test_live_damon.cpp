// SPDX-License-Identifier: MIT

// DAMON's records as the kernel's rings hold them, made by hand from the documented layout, and the
// samples that are estimated from them.
#include <linux/perf_event.h>

#include <cstring>
#include <string>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "fake_kernel.hpp"
#include "fake_memory.hpp"
#include "listener.hpp"
#include "live/damon.hpp"
#include "live/damon_trace.hpp"
#include "live/estimated_samples.hpp"
#include "live/loop.hpp"
#include "perf_bytes.hpp"

using namespace tt;
using live::DamonAggregation;
using live::DamonDecoder;
using live::DamonRegion;
using live::EstimatedSamples;
using live::TraceFormat;
using test::Bytes;
using test::FakeKernel;
using test::lost;
using test::put;
using test::record;
using test::region;

namespace {

const std::string& format_text = FakeKernel::damon_format;

DamonRegion at(std::uint64_t first, std::uint64_t last, std::uint64_t accesses) {
  return {first << 12, last << 12, accesses, 3};
}

}  // namespace

TEST("live damon: a tracepoint's format is read as it is documented") {
  const TraceFormat format{format_text};
  CHECK_EQ(format.id(), 533u);
  CHECK_EQ(format.number("start").offset, 24u);
  CHECK_EQ(format.number("age").size, 4u);
  CHECK_THROWS(format.number("probes"), "no field probes");
  CHECK_THROWS(TraceFormat{"name: x\n"}, "no ID");
  CHECK_THROWS(TraceFormat{"ID: x\n"}, "line 1: found ID: x");
  CHECK_THROWS(TraceFormat{"ID: 1\n\tfield:int a;\toffset:0\n"}, "line 2");
  CHECK_THROWS(TraceFormat{"ID: 1\n\tfield:int a\n"}, "line 2");
  CHECK_THROWS((TraceFormat{"ID: 1\n\tfield:char a[16];\toffset:8;\tsize:16;\n"}.number("a[16]")),
               "16 bytes");
  std::string other{format_text};
  other.replace(other.find("age;"), 3, "eon");
  CHECK_THROWS(DamonDecoder{TraceFormat{other}}, "no field age");
}

TEST("live damon: regions become aggregations of a target") {
  DamonDecoder decoder{TraceFormat{format_text}};
  Bytes bytes;
  const std::vector<DamonRegion> first{at(1, 5, 0), at(5, 9, 20), at(20, 30, 3)},
      second{at(7, 8, 1)};
  for (const DamonRegion& each : first) region(bytes, 1000, 0, 3, each);
  for (const DamonRegion& each : second) region(bytes, 1001, 1, 1, each);
  for (const DamonRegion& each : first) region(bytes, 2000, 0, 3, each);
  // Half of a record stays until the rest has come.
  const std::size_t half = bytes.size() - 30;
  std::size_t used = decoder.feed(std::span{bytes}.first(half));
  CHECK(used < half);
  std::vector<DamonAggregation> over = decoder.take();
  CHECK_EQ(over.size(), 2u);
  CHECK(over[0].whole && over[0].regions == first && over[0].target == 0 && over[0].time == 1000);
  CHECK(over[1].whole && over[1].regions == second && over[1].target == 1);
  used += decoder.feed(std::span{bytes}.subspan(used));
  CHECK_EQ(used, bytes.size());
  CHECK_EQ(decoder.take().size(), 1u);
}

TEST("live damon: what was lost is counted, and its aggregation is not whole") {
  DamonDecoder decoder{TraceFormat{format_text}};
  Bytes bytes;
  region(bytes, 1000, 0, 3, at(1, 5, 0));
  lost(bytes, 17);
  region(bytes, 2000, 0, 3, at(1, 5, 0));
  region(bytes, 2000, 0, 3, at(5, 9, 1));
  region(bytes, 3000, 0, 2, at(1, 5, 0));  // another division: the last one has no end
  region(bytes, 3000, 0, 2, at(5, 9, 1));
  CHECK_EQ(decoder.feed(bytes), bytes.size());
  const auto over = decoder.take();
  CHECK_EQ(decoder.lost(), 17u);
  CHECK_EQ(over.size(), 3u);
  CHECK(!over[0].whole && !over[1].whole && over[2].whole);
}

TEST("live damon: records that cannot be are refused, whatever their bytes") {
  const TraceFormat format{format_text};
  Bytes valid;
  for (int i = 0; i < 4; ++i) region(valid, 1000, 0, 4, at(10 * i + 1, 10 * i + 9, 5));
  Rng rng{5};
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    Bytes bytes = valid;
    for (std::uint64_t flips = 1 + rng.below(4); flips > 0; --flips)
      bytes[rng.below(bytes.size())] ^= static_cast<std::byte>(1 << rng.below(8));
    bytes.erase(bytes.end() - static_cast<std::ptrdiff_t>(rng.below(60)), bytes.end());
    DamonDecoder decoder{format};
    try {
      CHECK(decoder.feed(bytes) <= bytes.size());
      (void)decoder.take();
    } catch (const std::runtime_error&) {
      ++refused;
    }
  }
  CHECK(refused > 100);
  DamonDecoder decoder{format};
  Bytes bytes;
  put(bytes, perf_event_header{PERF_RECORD_SAMPLE, 0, 4});
  CHECK_THROWS(decoder.feed(bytes), "a perf record of 4 bytes at byte 0");
  bytes.clear();
  region(bytes, 1, 0, 1, at(5, 5, 1));
  CHECK_THROWS(decoder.feed(bytes), "ends before it begins");
}

TEST("live samples: estimated ones fall where DAMON found accesses, as often as is granted") {
  constexpr std::uint64_t heap = 1ULL << 40;
  constexpr int pid = 7;
  FakeKernel kernel{{8192, 8192}};
  live::Nodes nodes;
  nodes.of = {std::vector{0}, std::vector{1}};
  EstimatedSamples source{{.most_hertz = 50000, .assumed_events = 1e6}, 1};
  live::LiveMemory memory{kernel, nodes, {}, &source};
  test::Rig rig{"first-touch", {}, 1, 1};
  kernel.map(pid, heap, heap + 1000 * FakeKernel::page);
  for (std::uint64_t i = 0; i < 900; ++i) kernel.touch(pid, heap + i * FakeKernel::page, 1);
  memory.follow(std::vector{pid});
  CHECK_EQ(test::look_at(memory, *rig.policy, {}), 0);

  using Mode = SamplingRequest::Mode;
  SamplingRequest asked;
  asked.stores = {Mode::period, 100};
  CHECK(memory.set_sampling(asked) == SamplingRequest{});
  asked.loads = {Mode::frequency, 20000};
  asked.fast_share = 0.5;
  CHECK(memory.set_sampling(asked).loads == (SamplingRequest::Event{Mode::frequency, 20000}));
  CHECK(memory.set_sampling(asked).stores == SamplingRequest::Event{});
  asked.loads = {Mode::period, 100};
  CHECK(memory.set_sampling(asked).loads == (SamplingRequest::Event{Mode::period, 100}));
  asked.loads = {Mode::period, 2};
  CHECK(memory.set_sampling(asked).loads == (SamplingRequest::Event{Mode::period, 20}));
  CHECK_EQ(source.hertz(), 50000.0);

  // 100 pages that are always found, 400 seldom, and 500 never; a part of these is not there.
  DamonAggregation aggregation;
  const auto part = [&](std::uint64_t first, std::uint64_t last, std::uint64_t accesses) {
    aggregation.regions.push_back(
        {heap + first * FakeKernel::page, heap + last * FakeKernel::page, accesses, 1});
  };
  part(0, 100, 20);
  part(100, 500, 1);
  part(500, 1000, 0);
  std::vector<Sample> samples;
  source.draw(aggregation, pid, 0.1, memory, samples);
  CHECK_EQ(samples.size(), 5000u);
  std::vector<int> hits(1000);
  for (const Sample& sample : samples) {
    ++hits[sample.page.value];
    CHECK(sample.tier == Tier::slow);
  }
  int hot = 0;
  for (int i = 0; i < 100; ++i) hot += hits[i];
  CHECK_NEAR(hot, 5000 * 2000 / 2400, 1);
  CHECK_EQ(std::count(hits.begin() + 500, hits.end(), 0), 500);
  CHECK_EQ(memory.counters().samples_taken, 5000.0);
  CHECK(!std::ranges::is_sorted(samples, {}, &Sample::page));

  // Of what is not there nothing is told; a part of a sample is owed to the next time.
  samples.clear();
  aggregation.regions.clear();
  part(900, 1000, 20);
  source.draw(aggregation, pid, 0.1, memory, samples);
  CHECK(samples.empty());
  aggregation.regions.clear();
  part(0, 100, 20);
  for (int i = 0; i < 10; ++i) source.draw(aggregation, pid, 2.5e-5, memory, samples);
  CHECK_EQ(samples.size(), 12u);
}

// --- The kernel's monitor ------------------------------------------------------------------------

TEST("live damon: it is set up by sysfs, and what it took is given back") {
  FakeKernel kernel{{100, 100}};
  live::Changes changes{kernel, {}};
  live::Damon damon{kernel, changes, {}};
  const std::vector<int> pids{7, 9};
  const std::string stat = "/sys/module/damon_stat/parameters/enabled";
  CHECK_THROWS(damon.start(pids), "CONFIG_DAMON_SYSFS");
  kernel.have_damon();
  kernel.files[FakeKernel::kdamonds + "nr_kdamonds"] = "1\n";
  CHECK_THROWS(damon.start(pids), "in use by somebody else");
  kernel.files[FakeKernel::kdamonds + "nr_kdamonds"] = "0\n";
  kernel.files[stat] = "Y\n";
  CHECK(kernel.written.empty() && !damon.runs());
  damon.start(pids);
  CHECK(damon.runs());
  const std::string context = FakeKernel::kdamonds + "0/contexts/0/";
  for (const auto& [path, text] : std::map<std::string, std::string>{
           {context + "operations", "vaddr"},
           {context + "monitoring_attrs/intervals/sample_us", "5000"},
           {context + "monitoring_attrs/intervals/aggr_us", "100000"},
           {context + "monitoring_attrs/nr_regions/max", "1000"},
           {context + "targets/nr_targets", "2"},
           {context + "targets/1/pid_target", "9"},
           {FakeKernel::kdamonds + "0/state", "on"},
           {stat, "N"}})
    CHECK_EQ(kernel.files[path], text);
  CHECK_EQ(kernel.traced->tracepoint, 533u);
  CHECK_EQ(kernel.traced->thread, 4711);
  region(kernel.traced->bytes, 5, 1, 1, at(1, 2, 3));
  const auto found = damon.collect();
  CHECK_EQ(found.size(), 1u);
  CHECK_EQ(damon.pid(found[0]), 9);
  CHECK(kernel.traced->bytes.empty());
  damon.stop();
  CHECK_EQ(kernel.files[FakeKernel::kdamonds + "nr_kdamonds"], std::string{"0"});
  CHECK_EQ(kernel.files[stat], std::string{"Y"});
  CHECK(damon.collect().empty());
}

TEST("live damon: processes come and go while it runs") {
  FakeKernel kernel{{100, 100}};
  kernel.have_damon();
  live::Changes changes{kernel, {}};
  live::Damon damon{kernel, changes, {}};
  const std::string state = FakeKernel::kdamonds + "0/state";
  CHECK_EQ(damon.follow(std::vector{7}), 0);
  CHECK_EQ(kernel.files[state], std::string{"on"});
  region(kernel.traced->bytes, 5, 0, 2, at(1, 2, 3));  // by the old numbers
  CHECK_EQ(damon.follow(std::vector{7, 9}), 0);
  CHECK_EQ(kernel.files[state], std::string{"commit"});
  CHECK_EQ(kernel.files[FakeKernel::kdamonds + "0/contexts/0/targets/1/pid_target"],
           std::string{"9"});
  CHECK(damon.collect().empty());
  region(kernel.traced->bytes, 6, 1, 1, at(1, 2, 3));
  const auto found = damon.collect();
  CHECK_EQ(found.size(), 1u);
  CHECK_EQ(damon.pid(found[0]), 9);

  // The kernel refuses one that has just ended: it goes on with those before.
  kernel.files[state] = "on\n";
  kernel.fail = [](FakeKernel::Call call) { return call == FakeKernel::Call::write ? EINVAL : 0; };
  CHECK_EQ(damon.follow(std::vector{9, 11}), EINVAL);
  kernel.fail = {};
  region(kernel.traced->bytes, 7, 1, 1, at(1, 2, 3));
  CHECK_EQ(damon.pid(damon.collect().at(0)), 9);
  // When that one has gone, its files name those that are watched again.
  const std::string second = FakeKernel::kdamonds + "0/contexts/0/targets/1/pid_target";
  kernel.files[second] = "11";
  kernel.files[state] = "on\n";
  CHECK_EQ(damon.follow(std::vector{7, 9}), 0);
  CHECK_EQ(kernel.files[second], std::string{"9"});
  CHECK_EQ(kernel.files[state], std::string{"commit"});

  // It ended with its last process: another one comes.
  kernel.files[state] = "off\n";
  CHECK_EQ(damon.follow(std::vector{12}), 0);
  CHECK_EQ(kernel.files[state], std::string{"on"});
  CHECK_EQ(damon.follow({}), 0);
  CHECK(!damon.runs());
  CHECK(changes.empty());
}

TEST("live samples: processes share what is granted by how much they access") {
  constexpr std::uint64_t heap = 1ULL << 40;
  FakeKernel kernel{{8192, 8192}};
  live::Nodes nodes;
  nodes.of = {std::vector{0}, std::vector{1}};
  EstimatedSamples source{{.most_hertz = 50000, .assumed_events = 1e6}, 1};
  live::LiveMemory memory{kernel, nodes, {}, &source};
  test::Rig rig{"first-touch", {}, 1, 1};
  for (const int pid : {7, 8}) {
    kernel.map(pid, heap, heap + 100 * FakeKernel::page);
    for (std::uint64_t i = 0; i < 100; ++i) kernel.touch(pid, heap + i * FakeKernel::page, 1);
  }
  memory.follow(std::vector{7, 8});
  CHECK_EQ(test::look_at(memory, *rig.policy, {}), 0);
  SamplingRequest asked;
  asked.loads = {SamplingRequest::Mode::frequency, 20000};
  (void)memory.set_sampling(asked);
  const auto drawn = [&](int pid, std::uint64_t pages, double seconds) {
    std::vector<Sample> samples;
    DamonAggregation aggregation;
    aggregation.regions.push_back({heap, heap + pages * FakeKernel::page, 20, 1});
    source.draw(aggregation, pid, seconds, memory, samples);
    return samples.size();
  };
  CHECK_EQ(drawn(7, 75, 0.1), 2000u);  // the other one is not known yet
  CHECK_EQ(drawn(8, 25, 0.1), 500u);
  CHECK_EQ(drawn(7, 75, 0.1), 1500u);
  source.follow(std::vector{8});
  CHECK_EQ(drawn(8, 25, 0.1), 2000u);
}

TEST("live damon: whatever call refuses, nothing stays changed") {
  const std::string stat = "/sys/module/damon_stat/parameters/enabled";
  int refusals = 0;
  for (int which = 0;; ++which) {
    int calls = 0;  // also of the calls that end it
    bool refused = false;
    FakeKernel kernel{{100, 100}};
    kernel.have_damon();
    kernel.files[stat] = "Y";
    live::Changes changes{kernel, {}};
    live::Damon damon{kernel, changes, {}};
    kernel.fail = [&](FakeKernel::Call) {
      refused = refused || calls == which;
      return calls++ == which ? EACCES : 0;
    };
    bool thrown = false;
    try {
      damon.start(std::vector{7});
    } catch (const live::NotAllowed& error) {
      thrown = true;
      CHECK(std::string{error.what()}.find("DAMON: ") == 0);
    }
    if (!refused) break;
    refusals += thrown ? 1 : 0;
    if (thrown) CHECK_EQ(kernel.files[stat], std::string{"Y"});
    const std::string used = kernel.files[FakeKernel::kdamonds + "nr_kdamonds"];
    if (thrown) CHECK_EQ(used.substr(0, 1), std::string{"0"});
  }
  CHECK(refusals >= 14);
}

namespace {

/// A process of 4096 pages, of which DAMON finds 512 accessed, under a policy with a budget of 600.
struct HotSet {
  static constexpr std::uint64_t heap = 1ULL << 40, page = FakeKernel::page;
  static constexpr int pid = 7;
  static constexpr std::uint64_t limit = 600;
  FakeKernel kernel{{8192, 8192}};
  EstimatedSamples source{{}, 1};
  live::LiveMemory memory;
  std::unique_ptr<Policy> policy;
  live::Changes changes{kernel, {}};
  live::Damon damon{kernel, changes, {}};
  std::uint64_t hot = 1024;  // the first one
  Nanos told{};
  std::unique_ptr<live::Loop> loop;

  explicit HotSet(const std::string& name) : memory(kernel, nodes(), options(), &source) {
    kernel.have_damon();
    kernel.clock = from_seconds(1000);
    const PolicyInfo& info = tt::policy(name);
    const Knobs knobs = resolve(info.knobs, {});
    policy = info.make({memory, knobs, nullptr, 1});
    kernel.map(pid, heap, heap + 4096 * page);
    for (std::uint64_t i = 0; i < 4096; ++i) kernel.touch(pid, heap + i * page, 1);
    memory.follow(std::vector{pid});
    damon.start(std::vector{pid});
    const auto collect = [this](const live::LiveMemory& from, Nanos, std::vector<Sample>& out) {
      for (const DamonAggregation& each : damon.collect())
        source.draw(each, damon.pid(each), 0.1, from, out);
    };
    loop = std::make_unique<live::Loop>(
        kernel, std::vector<live::Loop::Step>{{memory, *policy}}, collect,
        [](live::LiveMemory&) { return false; }, live::Loop::Options{}, kernel.clock);
  }
  static live::Nodes nodes() {
    live::Nodes out;
    out.of = {std::vector{0}, std::vector{1}};
    return out;
  }
  static live::LiveMemory::Options options() {
    live::LiveMemory::Options out;
    out.fast_limit = limit;
    return out;
  }
  void run(double time) {
    for (const Nanos end = kernel.clock + from_seconds(time); kernel.clock < end;) {
      if (kernel.clock - told >= from_millis(100)) {
        told = kernel.clock;
        const auto now = static_cast<std::uint64_t>(told.count());
        const std::uint64_t first = heap / page;
        region(kernel.traced->bytes, now, 0, 3, at(first, first + hot, 0));
        region(kernel.traced->bytes, now, 0, 3, at(first + hot, first + hot + 512, 20));
        region(kernel.traced->bytes, now, 0, 3, at(first + hot + 512, first + 4096, 0));
      }
      const Nanos wait = loop->turn();
      CHECK(wait <= memory.quantum());
      kernel.clock += std::max(wait, from_millis(1));
    }
  }
  [[nodiscard]] std::uint64_t fast() const { return kernel.fast(pid, heap + hot * page, 512); }
};
constexpr std::uint64_t most_of_it = 486;  // 95 of 100

}  // namespace

TEST("live loop: a hot set that DAMON sees ends in the fast tier, within its budget") {
  for (const char* const name : {"hybridtier", "freqtier", "hemem", "memtis", "unified"}) {
    HotSet set{name};
    set.run(8);
    CHECK(set.fast() >= most_of_it);
    CHECK(set.kernel.most_on_node_0 <= HotSet::limit);
    CHECK_EQ(set.loop->look_error(), 0);
    CHECK_EQ(set.memory.moves().failed.size(), 0u);
  }
}

TEST("live loop: a period that a tick has changed holds from the next one on") {
  FakeKernel kernel{{64, 64}};
  live::LiveMemory memory{kernel, HotSet::nodes(), HotSet::options(), nullptr};
  test::Listener policy;
  std::vector<double> ticks;
  policy.ticked = [&](Nanos now) {
    ticks.push_back(1e3 * seconds(now));
    policy.period *= 2;
  };
  live::Loop loop{kernel,
                  std::vector<live::Loop::Step>{{memory, policy}},
                  [](const live::LiveMemory&, Nanos, std::vector<Sample>&) {},
                  [](live::LiveMemory&) { return false; },
                  live::Loop::Options{},
                  kernel.clock};
  while (ticks.size() < 5) {
    (void)loop.turn();
    kernel.clock += from_millis(1);
  }
  const std::vector<double> due{10, 30, 70, 150, 310};
  for (std::size_t n = 0; n < due.size(); ++n) CHECK_NEAR(ticks[n], due[n], 1.5);
}

TEST("live loop: a hot set that moves is followed") {
  for (const char* const name : {"hybridtier", "hemem", "unified"}) {
    HotSet set{name};
    set.run(8);
    set.hot = 3000;
    set.run(10);
    CHECK(set.fast() >= most_of_it);
    CHECK(set.kernel.most_on_node_0 <= HotSet::limit);
  }
}

TEST("live samples: the tiers' shares are estimated whether or not anything is sampled") {
  HotSet set{"first-touch"};  // which samples nothing
  set.run(2);
  const Counters before = set.memory.counters();
  CHECK_EQ(before.samples_taken, 0.0);
  CHECK_EQ(before.loads[index(Tier::fast)], 0.0);
  CHECK_NEAR(before.loads[index(Tier::slow)], 2 * 1e8, 2e7);
  for (std::uint64_t i = 1024; i < 1536; i += 2)
    set.kernel.processes[HotSet::pid].pages[HotSet::heap + i * HotSet::page].node = 0;
  set.memory.verify(100000);
  set.run(2);
  const Counters after = set.memory.counters();
  const double fast = after.loads[0] - before.loads[0], slow = after.loads[1] - before.loads[1];
  CHECK_NEAR(fast / (fast + slow), 0.5, 0.05);
}
