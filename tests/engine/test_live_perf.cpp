// SPDX-License-Identifier: MIT

// Accesses that processors sample: records made by hand from the documented layouts, and a fake
// processor that samples what a program does.
#include <unistd.h>

#include <cmath>
#include <iostream>
#include <set>
#include <string>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "fake_kernel.hpp"
#include "fake_memory.hpp"
#include "live/access_source.hpp"
#include "live/hardware_sample.hpp"
#include "live/loop.hpp"
#include "live/perf_samples.hpp"
#include "live/pmu.hpp"
#include "live/session.hpp"
#include "perf/records.hpp"
#include "perf_bytes.hpp"

using namespace tt;
using live::HardwareSample;
using live::PerfSamples;
using live::Pmu;
using test::Bytes;
using test::FakeKernel;
using test::put;
using Fate = HardwareSample::Fate;
using Mode = SamplingRequest::Mode;

namespace {

constexpr std::uint64_t heap = 1ULL << 40, page = FakeKernel::page;
constexpr int pid = 7;
const std::string cpu = "/sys/bus/event_source/devices/cpu/";

/// What becomes of the only record in `bytes`.
Fate decoded(const Bytes& bytes, live::SampleLayout layout, HardwareSample& out) {
  Fate fate{};
  const std::size_t used = perf::each_record(bytes, [&](const auto& header, auto body) {
    fate = layout == live::SampleLayout::ibs     ? decode_ibs(header, body, out)
           : layout == live::SampleLayout::fault ? decode_fault(body, out)
                                                 : decode_data_source(header, body, out);
  });
  CHECK_EQ(used, bytes.size());
  return fate;
}
Fate pebs_fate(std::uint64_t address, std::uint64_t source,
               std::uint16_t misc = PERF_RECORD_MISC_USER) {
  Bytes bytes;
  test::pebs_sample(bytes, pid, address, source, 500, misc);
  HardwareSample out;
  return decoded(bytes, live::SampleLayout::data_source, out);
}
Fate ibs_fate(const test::IbsRegisters& registers, std::uint16_t misc = PERF_RECORD_MISC_USER) {
  Bytes bytes;
  test::ibs_sample(bytes, pid, 500, registers, misc);
  HardwareSample out;
  return decoded(bytes, live::SampleLayout::ibs, out);
}

}  // namespace

TEST("live perf: of PEBS's samples those count that memory served") {
  using test::source_of;
  HardwareSample out;
  Bytes bytes;
  test::pebs_sample(bytes, pid, heap + 5, test::missing_store, 700);
  CHECK(decoded(bytes, live::SampleLayout::data_source, out) == Fate::access);
  CHECK(out.pid == pid && out.address == heap + 5 && out.period == 700);
  CHECK(out.kind == AccessKind::store);
  CHECK(pebs_fate(heap, test::memory_load) == Fate::access);
  for (const std::uint64_t level :
       {PERF_MEM_LVL_L1, PERF_MEM_LVL_L2, PERF_MEM_LVL_L3, PERF_MEM_LVL_LFB})
    CHECK(pebs_fate(heap, source_of(PERF_MEM_OP_LOAD, level | PERF_MEM_LVL_HIT)) == Fate::cached);
  for (const std::uint64_t number : {PERF_MEM_LVLNUM_RAM, PERF_MEM_LVLNUM_PMEM, 9})
    CHECK(pebs_fate(heap, source_of(PERF_MEM_OP_LOAD, 0) | number << PERF_MEM_LVLNUM_SHIFT) ==
          Fate::access);
  CHECK(pebs_fate(heap, source_of(PERF_MEM_OP_STORE, PERF_MEM_LVL_L1 | PERF_MEM_LVL_HIT)) ==
        Fate::cached);
  CHECK(pebs_fate(0, test::memory_load) == Fate::other);
  CHECK(pebs_fate(0xffff888000000000, test::memory_load) == Fate::other);
  CHECK(pebs_fate(heap, source_of(PERF_MEM_OP_EXEC, PERF_MEM_LVL_LOC_RAM)) == Fate::other);
  for (const std::uint16_t misc : {PERF_RECORD_MISC_KERNEL, PERF_RECORD_MISC_HYPERVISOR,
                                   PERF_RECORD_MISC_GUEST_USER, PERF_RECORD_MISC_CPUMODE_UNKNOWN})
    CHECK(pebs_fate(heap, test::memory_load, misc) == Fate::outside);
}

TEST("live perf: of IBS's samples those count that missed the caches, by their registers") {
  constexpr std::uint64_t load = 1, store = 2, valid = 1 << 17, l2_miss = 1 << 20;
  HardwareSample out;
  Bytes bytes;
  test::ibs_sample(bytes, pid, 65536, {.data3 = store | valid | l2_miss, .address = heap + 9});
  CHECK(decoded(bytes, live::SampleLayout::ibs, out) == Fate::access);
  CHECK(out.pid == pid && out.address == heap + 9 && out.period == 65536);
  CHECK(out.kind == AccessKind::store);
  CHECK(ibs_fate({.address = heap}) == Fate::access);
  CHECK(ibs_fate({.data3 = load | valid, .address = heap}) == Fate::cached);
  CHECK(ibs_fate({.data3 = load | l2_miss, .address = heap}) == Fate::other);
  CHECK(ibs_fate({.data3 = valid | l2_miss, .address = heap}) == Fate::other);
  CHECK(ibs_fate({.data3 = load | valid | l2_miss | 1 << 14, .address = heap}) == Fate::other);
  CHECK(ibs_fate({.data3 = load | valid | l2_miss | 1 << 21, .address = heap}) == Fate::other);
  CHECK(ibs_fate({.address = 0xffffffff81000000}) == Fate::other);
  CHECK(ibs_fate({.address = heap}, PERF_RECORD_MISC_KERNEL) == Fate::outside);
  // Where the data came from: three bits, and two more since Zen 4.
  const auto from = [&](std::uint64_t source, std::uint32_t caps) {
    return ibs_fate({.data2 = (source & 7) | (source >> 3) << 6, .address = heap, .caps = caps});
  };
  const std::uint32_t zen4 = 1 << 11;
  for (std::uint64_t source = 0; source < 32; ++source) {
    const bool memory = source == 3 || source == 6 || source == 8 || source == 12;
    CHECK((from(source, zen4) == Fate::access) == memory);
    CHECK((from(source, 0) == Fate::access) == ((source & 7) == 3));
  }
}

TEST("live perf: faults on pages of a program count, whoever accessed them for it") {
  HardwareSample out;
  for (const std::uint16_t misc : {PERF_RECORD_MISC_USER, PERF_RECORD_MISC_KERNEL}) {
    Bytes bytes;
    test::fault(bytes, pid, heap + 3, 4, misc);
    CHECK(decoded(bytes, live::SampleLayout::fault, out) == Fate::access);
    CHECK(out.pid == pid && out.address == heap + 3 && out.period == 4);
    CHECK(out.kind == AccessKind::load);
  }
  for (const std::uint64_t address : {0ULL, 0xffff888000000000ULL}) {
    Bytes bytes;
    test::fault(bytes, pid, address, 1, PERF_RECORD_MISC_KERNEL);
    CHECK(decoded(bytes, live::SampleLayout::fault, out) == Fate::outside);
  }
}

TEST("live perf: records that are cut off or damaged do no harm") {
  FakeKernel kernel{{8192, 8192}};
  kernel.have_pebs();
  kernel.have_ibs();
  for (const bool ibs : {false, true}) {
    const auto layout = ibs ? live::SampleLayout::ibs : live::SampleLayout::data_source;
    Bytes valid;
    for (std::uint64_t i = 0; i < 3; ++i) {
      if (ibs)
        test::ibs_sample(valid, pid, 100, {.address = heap + i * page});
      else
        test::pebs_sample(valid, pid, heap + i * page, test::memory_load, 100);
    }
    // A record that says it is shorter than it must be, at every length.
    const std::size_t one = valid.size() / 3;
    int refused = 0;
    for (std::size_t size = 8; size < one; size += 8) {
      Bytes bytes{valid.begin(), valid.begin() + static_cast<std::ptrdiff_t>(size)};
      const perf_event_header header{PERF_RECORD_SAMPLE, PERF_RECORD_MISC_USER,
                                     static_cast<std::uint16_t>(size)};
      std::memcpy(bytes.data(), &header, sizeof header);
      HardwareSample out;
      try {
        (void)decoded(bytes, layout, out);
      } catch (const std::runtime_error&) {
        ++refused;
      }
    }
    CHECK_EQ(refused, static_cast<int>(one / 8 - 1));
    live::LiveMemory memory{kernel, {.of = {std::vector{0}, std::vector{1}}}, {}};
    std::vector<Sample> samples;
    // A ring that ends anywhere: what is whole is dealt with.
    for (std::size_t size = 0; size <= valid.size(); ++size) {
      PerfSamples source{kernel, ibs ? *find_ibs(kernel, true) : *find_pebs(kernel, 128), {}};
      CHECK_EQ(source.feed(std::span{valid}.first(size), memory, samples), size / one * one);
    }
    Rng rng{11};
    refused = 0;
    for (int round = 0; round < 20000; ++round) {
      Bytes bytes = valid;
      for (std::uint64_t flips = 1 + rng.below(6); flips > 0; --flips)
        bytes[rng.below(bytes.size())] ^= static_cast<std::byte>(1 << rng.below(8));
      PerfSamples source{kernel, ibs ? *find_ibs(kernel, true) : *find_pebs(kernel, 128), {}};
      try {
        CHECK(source.feed(bytes, memory, samples) <= bytes.size());
      } catch (const std::runtime_error&) {
        ++refused;
      }
    }
    CHECK(refused > 100);
    CHECK(samples.empty());
  }
}

// --- The kernel's events -------------------------------------------------------------------------

TEST("live perf: events are those that sysfs describes") {
  FakeKernel kernel{{100, 100}};
  CHECK(!find_pebs(kernel, 128).has_value() && !find_ibs(kernel, true).has_value());
  kernel.have_pebs();
  const Pmu pebs = *find_pebs(kernel, 128);
  CHECK_EQ(pebs.events.size(), 2u);
  const perf_event_attr& loads = pebs.events[0].opened.attributes;
  CHECK(loads.type == 4 && loads.config == 0x1cd && loads.config1 == 128);
  CHECK(loads.precise_ip == 2 && loads.exclude_kernel == 1 && loads.freq == 0);
  CHECK_EQ(loads.sample_type,
           static_cast<std::uint64_t>(PERF_SAMPLE_TID | PERF_SAMPLE_ADDR | PERF_SAMPLE_PERIOD |
                                      PERF_SAMPLE_DATA_SRC));
  CHECK_EQ(pebs.events[0].opened.leader, 0x8203u);
  CHECK_EQ(pebs.events[1].opened.attributes.config, 0x2cdu);
  CHECK(pebs.events[1].stores && pebs.events[1].opened.leader == 0);
  kernel.files[cpu + "format/ldlat"] = "config1:0-3,8-15\n";
  CHECK_EQ(find_pebs(kernel, 0xff)->events[0].opened.attributes.config1, 0xf0fu);
  kernel.have_ibs();
  const Pmu ibs = *find_ibs(kernel, true);
  CHECK(ibs.events.size() == 1 && ibs.events[0].loads && ibs.events[0].stores);
  CHECK_EQ(ibs.events[0].opened.attributes.config, 1u << 19 | 1u << 16);
  CHECK_EQ(ibs.events[0].opened.attributes.exclude_kernel, 0u);
  CHECK_EQ(find_ibs(kernel, false)->events[0].opened.attributes.config, 1u << 19);
}

TEST("live perf: files of sysfs that are otherwise are named with what they have") {
  const auto refused = [](const std::string& file, const std::string& text,
                          const std::string& fragment) {
    FakeKernel kernel{{100, 100}};
    kernel.have_pebs();
    kernel.files[cpu + file] = text;
    CHECK_THROWS((void)find_pebs(kernel, 128), fragment);
  };
  refused("type", "four\n", "type: found 'four', expected a number");
  refused("type", "", "found '', expected a number");
  refused("type", "99999999999999999999", "expected a number");
  refused("events/mem-loads", "event=0x,umask=1", "expected a number");
  refused("events/mem-loads", "=1", "expected terms");
  refused("events/mem-loads", "event=1,inv", "format/inv: cannot be read");
  refused("events/mem-stores", "event=1;umask=2", "expected a number");
  for (const char* const format : {"config9:0-7", "config", "config:7-0", "config:0-64", ":0-7"})
    refused("format/event", format, std::string{"found '"} + format + "', expected bits such as");
  refused("format/event", "config:a-b", "expected a number");
}

TEST("live perf: whether a processor samples is tried, and what is missing is told") {
  FakeKernel kernel{{100, 100}};
  CHECK(lacking(kernel, "pebs").find("lists no mem-loads") != std::string::npos);
  CHECK(lacking(kernel, "ibs").find("lists no ibs_op") != std::string::npos);
  kernel.have_pebs();
  kernel.has_samples = false;
  CHECK(lacking(kernel, "pebs").find("hypervisor keeps it") != std::string::npos);
  kernel.has_samples = true;
  CHECK(lacking(kernel, "pebs").find("no access of this process was sampled") != std::string::npos);
  kernel.fail = [](FakeKernel::Call call) { return call == FakeKernel::Call::sample ? EACCES : 0; };
  CHECK(lacking(kernel, "pebs").find("kernel.perf_event_paranoid=0") != std::string::npos);
  kernel.fail = nullptr;
  kernel.files[cpu + "type"] = "x";
  CHECK(lacking(kernel, "pebs").find("type: found 'x'") != std::string::npos);
  kernel.have_pebs();
  kernel.sampling = [](FakeKernel::Sampled& on) {
    test::pebs_sample(on.bytes, ::getpid() + 1, heap, test::memory_load, 100);
  };
  CHECK(!lacking(kernel, "pebs").empty());  // others' do not count
  kernel.sampling = [](FakeKernel::Sampled& on) {
    test::pebs_sample(on.bytes, ::getpid(), heap, 0, 100);
  };
  CHECK_EQ(lacking(kernel, "pebs"), std::string{});
  kernel.files.erase("/sys/devices/system/cpu/online");
  CHECK(lacking(kernel, "pebs").find("online: cannot be read") != std::string::npos);
}

TEST("live perf: hinting faults take a kernel with their memory policy, which is given back") {
  FakeKernel kernel{{100, 100}};
  CHECK_EQ(lacking(kernel, "hints"), std::string{"a kernel without CONFIG_NUMA_BALANCING"});
  kernel.have_hints();
  kernel.fail = [](FakeKernel::Call call) { return call == FakeKernel::Call::hint ? EINVAL : 0; };
  CHECK(lacking(kernel, "hints").find("Invalid argument; Linux takes it since 6.9") !=
        std::string::npos);
  int calls = 0;
  kernel.fail = [&](FakeKernel::Call call) {
    return call == FakeKernel::Call::hint && calls++ == 1 ? EPERM : 0;
  };
  CHECK(lacking(kernel, "hints").find("cannot be taken back") != std::string::npos);
  kernel.fail = nullptr;
  CHECK(lacking(kernel, "hints").find("no access of this process was sampled") !=
        std::string::npos);
  kernel.sampling = [](FakeKernel::Sampled& on) { test::fault(on.bytes, ::getpid(), heap, 1); };
  CHECK_EQ(lacking(kernel, "hints"), std::string{});
  CHECK(kernel.hinted.empty());
  // The machine's own kernel: it takes the policy, or says what it does not know.
  live::Linux own;
  const std::vector<int> first{0}, none{-1}, beyond{1024};
  const int error = own.hint(first);
  CHECK(error == 0 || error == EINVAL || error == EPERM || error == ENOSYS);
  CHECK_EQ(own.hint({}), 0);
  CHECK_EQ(own.hint({}), 0);
  CHECK(own.hint(none) != 0 && own.hint(beyond) != 0);
}

TEST("live perf: a session takes the processor's samples, and DAMON's without them") {
  FakeKernel kernel{{100, 100}};
  live::Changes changes{kernel, {}};
  const auto name = [&](std::string_view asked) {
    return std::string{live::make_source(asked, kernel, changes, {}, 1)->name()};
  };
  kernel.have_ibs();
  CHECK_EQ(name("auto"), std::string{"damon"});
  CHECK_THROWS(name("ibs"), "no access of this process was sampled");
  kernel.sampling = [](FakeKernel::Sampled& on) {
    test::ibs_sample(on.bytes, ::getpid(), 65536, {.address = heap});
  };
  CHECK_EQ(name("auto"), std::string{"ibs"});
  CHECK_EQ(name("damon"), std::string{"damon"});
  CHECK_THROWS(name("pebs"), "lists no mem-loads");
}

// --- Sampling ------------------------------------------------------------------------------------

namespace {

/// A process of 4096 pages of which 512 are accessed, on a machine that samples, under a policy
/// with a budget of 600.
struct Program {
  enum class By : std::uint8_t { pebs, ibs, spe, hints };
  static constexpr std::uint64_t limit = 600;
  FakeKernel kernel{{8192, 8192}};
  std::unique_ptr<PerfSamples> source;
  std::unique_ptr<live::LiveMemory> memory;
  std::unique_ptr<Policy> policy;
  std::unique_ptr<live::Loop> loop;
  std::uint64_t hot = 1024;  // the first one
  double events = 50e6;      // that are counted, a second, on each processor
  std::array<double, 2> owed{};
  Nanos told{};
  Rng rng{3};
  By by;

  explicit Program(const std::string& name, By source_is = By::pebs) : by(source_is) {
    kernel.have_pebs();
    kernel.have_ibs();
    kernel.have_hints();
    kernel.have_spe();
    if (operations()) events *= 10;      // not misses
    if (by == By::hints) events = 5000;  // a guest of Linux 6.12 had 5,000 to 13,000 in all
    kernel.clock = from_seconds(1000);
    source = std::make_unique<PerfSamples>(kernel,
                                           by == By::pebs  ? *find_pebs(kernel, 128)
                                           : by == By::ibs ? *find_ibs(kernel, true)
                                           : by == By::spe ? *find_spe(kernel, true)
                                                           : *find_hints(kernel),
                                           PerfSamples::Options{});
    live::Nodes nodes;
    nodes.of = {std::vector{0}, std::vector{1}};
    live::LiveMemory::Options options;
    options.fast_limit = limit;
    memory = std::make_unique<live::LiveMemory>(kernel, nodes, options, source.get());
    const PolicyInfo& info = tt::policy(name);
    policy = info.make({*memory, resolve(info.knobs, {}), nullptr, 1});
    kernel.map(pid, heap, heap + 4096 * page);
    for (std::uint64_t i = 0; i < 4096; ++i) kernel.touch(pid, heap + i * page, 1);
    memory->follow(std::vector{pid});
    source->start(std::vector{pid});
    loop = std::make_unique<live::Loop>(
        kernel, std::vector<live::Loop::Step>{{*memory, *policy}},
        [this](const live::LiveMemory& from, Nanos now, std::vector<Sample>& out) {
          source->collect(from, now, out);
        },
        [](live::LiveMemory&) { return false; }, live::Loop::Options{}, kernel.clock);
    told = kernel.clock;
  }
  [[nodiscard]] bool operations() const { return by == By::ibs || by == By::spe; }
  /// What its processors have sampled meanwhile: a fifth of it are others' accesses and hits.
  void sample() {
    const double time = seconds(kernel.clock - std::exchange(told, kernel.clock));
    for (auto& [processor, on] : kernel.sampled) {
      for (std::size_t event = 0; event < on->periods.size(); ++event) {
        const double rate = event == 0 ? events : events / 10;
        const std::uint64_t jitter = by == By::spe ? 128 : 0;  // at random below 256
        owed[event] += rate * time / static_cast<double>(on->periods[event] + jitter);
        for (; owed[event] >= 1; owed[event] -= 1)
          record(by == By::spe ? on->area : on->bytes, heap + (hot + rng.below(512)) * page,
                 on->periods[event], event == 1);
      }
      if (const std::uint64_t more = on->area.size() - on->told; more > 0)
        test::area_record(on->bytes, std::exchange(on->told, on->area.size()), more);
    }
  }
  void record(Bytes& out, std::uint64_t address, std::uint64_t period, bool store) {
    const std::uint64_t what = rng.below(10);
    const int of = what == 0 ? 99 : pid;
    if (by == By::hints) {
      test::fault(out, of, what == 1 ? heap - page : address, period);
    } else if (by == By::spe) {
      test::spe_record(out, {.thread = of,
                             .address = address,
                             .store = rng.below(10) == 0,
                             .events = what == 1 ? 0b110U : 0b1110U,
                             .cycles = static_cast<std::uint16_t>(what == 1 ? 9 : 300)});
    } else if (by == By::ibs) {
      const std::uint64_t missed = what == 1 ? 0 : 1 << 20;
      const std::uint64_t kind = rng.below(10) == 0 ? 2 : 1;
      test::ibs_sample(out, of, period, {.data3 = kind | 1 << 17 | missed, .address = address});
    } else {
      const std::uint64_t hit =
          test::source_of(PERF_MEM_OP_LOAD, PERF_MEM_LVL_L2 | PERF_MEM_LVL_HIT);
      const std::uint64_t missing = store ? test::missing_store : test::memory_load;
      test::pebs_sample(out, of, address, what == 1 ? hit : missing, period);
    }
  }
  void run(double time) {
    for (const Nanos end = kernel.clock + from_seconds(time); kernel.clock < end;) {
      sample();
      const Nanos wait = loop->turn();
      kernel.clock += std::max(wait, from_millis(1));
    }
  }
  [[nodiscard]] std::uint64_t fast() const { return kernel.fast(pid, heap + hot * page, 512); }
};
constexpr std::uint64_t most_of_it = 486;  // 95 of 100

}  // namespace

TEST("live perf: a hot set that the processor samples ends in the fast tier, within its budget") {
  for (const char* const name : {"hybridtier", "freqtier", "hemem", "memtis", "unified"}) {
    for (const Program::By by : {Program::By::pebs, Program::By::ibs, Program::By::spe}) {
      const std::string source = by == Program::By::pebs  ? "pebs"
                                 : by == Program::By::ibs ? "ibs"
                                                          : "spe";
      Program program{name, by};
      const double time = by == Program::By::ibs   ? 25  // batches of 100,000 fill more slowly
                          : by == Program::By::spe ? 4
                                                   : 8;
      program.run(time);
      CHECK(program.fast() >= most_of_it);
      if (program.fast() < most_of_it)
        std::cerr << "  " << name << " by " << source << ": " << program.fast() << " of 512\n"
                  << program.source->text() << "\n";
      CHECK(program.kernel.most_on_node_0 <= Program::limit);
      CHECK_EQ(program.source->lost(), 0u);
      const std::string text = program.source->text();
      CHECK(text.find(" samples by the processor's " + source) != std::string::npos);
      CHECK(text.find("of other processes") != std::string::npos);
      CHECK(text.find("served by caches") != std::string::npos);
      CHECK(text.find("estimated") == std::string::npos);
      const Counters counters = program.memory->counters();
      CHECK(counters.samples_taken > 1000);
      // Four fifths of two processors' misses, whatever the periods were.
      const double all = counters.loads[0] + counters.loads[1] +
                         (program.operations() ? counters.stores[0] + counters.stores[1] : 0.0);
      CHECK_NEAR(all / (0.8 * 2 * program.events * time), 1, 0.05);
      CHECK(counters.loads[0] > counters.loads[1]);
    }
  }
}

TEST("live perf: a hot set of which hinting faults tell ends in the fast tier") {
  for (const char* const name : {"hybridtier", "freqtier", "hemem", "memtis", "unified"}) {
    Program program{name, Program::By::hints};
    program.run(25);
    CHECK(program.fast() >= most_of_it);
    if (program.fast() < most_of_it)
      std::cerr << "  " << name << ": " << program.fast() << " of 512\n"
                << program.source->text() << "\n";
    CHECK(program.kernel.most_on_node_0 <= Program::limit);
    CHECK(program.source->text().find("estimated from NUMA hinting faults") != std::string::npos);
    CHECK(program.source->text().find("pages that are not known") != std::string::npos);
    // A fault stands for many accesses, and a period of misses is of those.
    const Counters counters = program.memory->counters();
    CHECK_NEAR((counters.loads[0] + counters.loads[1]) / (0.8 * 10'000 * 25 * 10e3), 1, 0.05);
    SamplingRequest asked;
    asked.loads = {Mode::period, 50'000};
    asked.stores = asked.loads;
    CHECK(program.source->grant(asked).loads == asked.loads);
    CHECK_EQ(program.source->period(AccessKind::load), 5u);
    CHECK(program.source->grant(asked).stores == SamplingRequest::Event{});
    asked.loads = {Mode::period, 100};
    CHECK_EQ(program.source->grant(asked).loads.value, 10'000.0);
  }
}

TEST("live perf: a hinting fault on a huge page tells of all of its parts") {
  FakeKernel kernel{{8192, 8192}};
  kernel.have_hints();
  PerfSamples source{kernel, *find_hints(kernel), {}};
  live::Nodes nodes;
  nodes.of = {std::vector{0}, std::vector{1}};
  live::LiveMemory memory{kernel, nodes, {}, &source};
  kernel.map(pid, heap, heap + 2 * FakeKernel::huge);
  kernel.touch_huge(pid, heap, 1);
  kernel.touch(pid, heap + FakeKernel::huge, 1);
  test::Rig rig{"first-touch", {}, 1, 1};
  memory.follow(std::vector{pid});
  CHECK_EQ(test::look_at(memory, *rig.policy, {}), 0);
  SamplingRequest asked;
  asked.loads = {Mode::period, 1};
  (void)memory.set_sampling(asked);
  std::set<std::uint64_t> seen;
  for (const std::uint64_t address : {heap + 77 * page, heap + FakeKernel::huge + 5}) {
    Bytes bytes;
    test::fault(bytes, pid, address, 1);
    std::vector<Sample> out;
    CHECK_EQ(source.feed(bytes, memory, out), bytes.size());
    CHECK_EQ(out.size(), address < heap + FakeKernel::huge ? 512u : 1u);
    for (const Sample& each : out) {
      CHECK(each.tier == Tier::slow);
      CHECK(seen.insert(each.page.value).second);
    }
  }
  CHECK_EQ(memory.counters().samples_taken, 513.0);
}

TEST("live perf: periods are those that are asked for, and frequencies are met") {
  Program program{"first-touch"};
  PerfSamples& source = *program.source;
  const auto taken = [&](double time) {
    const double before = program.memory->counters().samples_taken;
    program.run(time);
    return (program.memory->counters().samples_taken - before) / time;
  };
  // Nothing is wanted: the shares of accesses are watched at a low rate.
  program.run(3);
  CHECK_EQ(taken(1), 0.0);
  CHECK_NEAR(static_cast<double>(source.period(AccessKind::load)), 80e6 / 1000, 8e3);
  SamplingRequest asked;
  asked.loads = {Mode::frequency, 20000, true, true};
  asked.fast_share = 0.5;
  CHECK(source.grant(asked).loads == (SamplingRequest::Event{Mode::frequency, 20000}));
  CHECK_EQ(source.grant(asked).fast_share, 1.0);
  program.run(2);
  CHECK_NEAR(taken(2), 20000, 2000);
  program.events /= 10;  // another phase
  program.run(2);
  CHECK_NEAR(taken(2), 20000, 2000);
  asked.loads = {Mode::frequency, 1e9};
  CHECK_EQ(source.grant(asked).loads.value, PerfSamples::Options{}.most_hertz);
  asked.loads = {Mode::period, 5000};
  asked.stores = {Mode::period, 10};
  const SamplingRequest granted = source.grant(asked);
  CHECK(granted.loads == asked.loads);
  CHECK(granted.stores == (SamplingRequest::Event{Mode::period, 1000}));
  for (const auto& [processor, on] : program.kernel.sampled)
    CHECK(on->periods == (std::vector<std::uint64_t>{5000, 1000}));
  CHECK_NEAR(taken(2), 0.8 * 1e7 / 5000 + 0.8 * 1e6 / 1000, 200);
  // An operator's limit makes all of it rarer.
  source.spare(4);
  for (const auto& [processor, on] : program.kernel.sampled)
    CHECK(on->periods == (std::vector<std::uint64_t>{20000, 4000}));
  CHECK_EQ(source.grant(asked).loads.value, 20000.0);
  CHECK_NEAR(taken(2), (0.8 * 1e7 / 5000 + 0.8 * 1e6 / 1000) / 4, 50);
  source.spare(1);
  CHECK(source.grant({}) == SamplingRequest{});
}

TEST("live perf: of an event for loads and stores the less wanted kind is thinned") {
  Program program{"first-touch", Program::By::ibs};
  SamplingRequest asked;
  asked.loads = {Mode::period, 100000};
  asked.stores = {Mode::period, 1000000};
  const SamplingRequest granted = program.source->grant(asked);
  CHECK(granted == asked);
  for (const auto& [processor, on] : program.kernel.sampled)
    CHECK(on->periods == (std::vector<std::uint64_t>{100000}));
  asked.loads = {Mode::period, 200};
  CHECK_EQ(program.source->grant(asked).loads.value, 65536.0);
  asked.loads = {Mode::period, 100000};
  (void)program.source->grant(asked);
  const double before = program.memory->counters().samples_taken;
  program.run(4);
  // One in ten is a store, of which one in ten is handed on.
  CHECK_NEAR(program.memory->counters().samples_taken - before, 0.8 * 40000 * (0.9 + 0.01), 1000);
}

TEST("live perf: what is lost or throttled is counted, and answered by longer periods") {
  Program program{"first-touch"};
  PerfSamples& source = *program.source;
  SamplingRequest asked;
  asked.loads = {Mode::period, 1000};
  (void)source.grant(asked);
  const auto told = [&](std::uint32_t type) {
    Bytes& bytes = program.kernel.sampled.at(1)->bytes;
    Bytes body;
    if (type == PERF_RECORD_LOST) put(body, std::uint64_t{1});
    put(body, std::uint64_t{10});
    if (type == PERF_RECORD_THROTTLE) body.resize(24);
    test::record(bytes, type, body);
  };
  program.run(1);
  CHECK_EQ(source.longer(), 1u);
  std::uint64_t times = 1;
  for (const std::uint32_t type :
       {PERF_RECORD_LOST, PERF_RECORD_LOST_SAMPLES, PERF_RECORD_THROTTLE}) {
    told(type);
    program.run(0.6);
    CHECK_EQ(source.longer(), times *= 2);
    CHECK_EQ(source.period(AccessKind::load), 1000 * times);
  }
  CHECK_EQ(source.lost(), 20u);
  CHECK_EQ(program.memory->counters().samples_lost, 20.0);
  CHECK(
      source.text().find("20 lost on their way; throttled 1 times by the kernel; periods are 8") !=
      std::string::npos);
  CHECK_EQ(source.grant(asked).loads.value, 8000.0 * 1);
  CHECK_EQ(source.period(AccessKind::load), 8000u);
  // It eases back, step by step.
  program.run(11);
  CHECK_EQ(source.longer(), 4u);
  program.run(21);
  CHECK_EQ(source.longer(), 1u);
  // And never grows without bounds.
  for (int i = 0; i < 20; ++i) {
    told(PERF_RECORD_LOST);
    program.run(0.3);
  }
  CHECK_EQ(source.longer(), 1024u);
}

TEST("live perf: a cgroup that is empty at first is sampled when a process comes") {
  FakeKernel kernel{{8192, 8192}};
  kernel.have_pebs();
  kernel.sampling = [](FakeKernel::Sampled& on) {
    test::pebs_sample(on.bytes, ::getpid(), heap, test::memory_load, 100);
  };
  std::string& members = kernel.files["/sys/fs/cgroup/some/cgroup.procs"];
  live::Session::Options options;
  options.policy = "hemem";
  options.source = "pebs";
  options.nodes.of = {std::vector{0}, std::vector{1}};
  live::Session session{kernel, options, {}};
  kernel.sampled.clear();
  session.start(live::Target::cgroup("some"));
  const auto looks_twice = [&] {  // one that is new is followed then
    for (int i = 0; i < 2; ++i) {
      kernel.clock += from_seconds(1);
      (void)session.turn();
    }
  };
  looks_twice();
  CHECK(kernel.sampled.empty());
  kernel.map(pid, heap, heap + page);
  kernel.touch(pid, heap, 1);
  members = std::to_string(pid) + "\n";
  looks_twice();
  CHECK_EQ(kernel.sampled.size(), 2u);
  kernel.sampled.clear();
  members += "8\n";
  kernel.processes[8];
  looks_twice();
  CHECK(kernel.sampled.empty());  // they are not opened anew
}

TEST("live perf: whatever call fails while it begins, no ring is left; later ones are told") {
  int refusals = 0;
  for (int which = 0;; ++which) {
    for (const int error : {EACCES, ENOMEM, EMFILE, ENODEV}) {
      FakeKernel kernel{{8192, 8192}};
      kernel.have_pebs();
      PerfSamples source{kernel, *find_pebs(kernel, 128), {}};
      int calls = 0;
      bool refused = false, thrown = false;
      kernel.fail = [&](FakeKernel::Call) {
        refused = refused || calls == which;
        return calls++ == which ? error : 0;
      };
      try {
        source.start(std::vector{pid});
      } catch (const live::NotAllowed& found) {
        thrown = true;
        CHECK(std::string{found.what()}.starts_with("pebs: "));
      } catch (const std::runtime_error& found) {  // processors that cannot be listed
        thrown = true;
        CHECK(std::string{found.what()}.find("online") != std::string::npos);
      }
      if (!refused) {
        CHECK(refusals > 6);
        kernel.fail = [](FakeKernel::Call call) {
          return call == FakeKernel::Call::period ? EINVAL : 0;
        };
        SamplingRequest asked;
        asked.loads = {Mode::period, 12345};
        (void)source.grant(asked);
        CHECK(source.text().find("not every period could be set (Invalid arg") !=
              std::string::npos);
        return;
      }
      // A processor that is switched off is none.
      CHECK(thrown || error == ENODEV || which > 0);
      refusals += thrown ? 1 : 0;
      for (const auto& [processor, on] : kernel.sampled) CHECK_EQ(on.use_count(), thrown ? 1 : 2);
    }
  }
}
