// SPDX-License-Identifier: MIT

// An emulated machine's samples: a ring in memory, into which a test writes as the machine does
// (emulate/ring.hpp), or as no machine should.
#include <cmath>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "fake_kernel.hpp"
#include "fake_memory.hpp"
#include "live/emulated_samples.hpp"
#include "live/journal.hpp"
#include "live/probe.hpp"
#include "live/session.hpp"
#include "perf_bytes.hpp"
#include "scratch.hpp"

using namespace tt;
using emulate::ring_records;
using emulate::SampleRecord;
using live::EmulatedSamples;
using test::FakeKernel;
using Mode = SamplingRequest::Mode;

namespace {

constexpr std::uint64_t heap = 1ULL << 40, page = FakeKernel::page;
constexpr int pid = 7;
const std::string enable = FakeKernel::pci + "00:04.0/enable";

live::Nodes two_nodes() {
  live::Nodes out;
  out.of = {std::vector{0}, std::vector{1}};
  return out;
}

/// As the machine adds a sample, if it has room.
void add(FakeKernel& kernel, const SampleRecord& record) {
  emulate::SampleRing& ring = kernel.ring();
  if (ring.head - ring.tail >= ring_records) {
    ++ring.lost;
  } else {
    kernel.record(ring.head) = record;
    ++ring.head;
  }
}
SampleRecord load_of(std::uint64_t address) {
  return {.address = address, .pid = pid, .tid = pid + 1};
}

/// A process of 100 pages, which are slow, and the source that sees it. It has not begun.
struct Seen {
  FakeKernel kernel{{8192, 8192}};
  live::Changes changes{kernel, {}};
  std::unique_ptr<EmulatedSamples> source;
  std::unique_ptr<live::LiveMemory> memory;

  Seen() {
    kernel.have_ring();
    live::FoundRing found = live::find_emulated_ring(kernel, changes);
    source = std::make_unique<EmulatedSamples>(std::move(found.ring), EmulatedSamples::Options{});
    memory = std::make_unique<live::LiveMemory>(kernel, two_nodes(), live::LiveMemory::Options{},
                                                source.get());
    kernel.map(pid, heap, heap + 100 * page);
    for (std::uint64_t i = 0; i < 100; ++i) kernel.touch(pid, heap + i * page, 1);
    memory->follow(std::vector{pid});
    test::Rig rig{"first-touch", {}, 1, 1};
    CHECK_EQ(test::look_at(*memory, *rig.policy, {}), 0);
  }
  void start() { source->start(std::vector{pid}); }
  std::vector<Sample> collect(double time = 1) {
    std::vector<Sample> out;
    source->collect(*memory, from_seconds(time), out);
    return out;
  }
  [[nodiscard]] bool tells(const std::string& what) const {
    return source->text().find(what) != std::string::npos;
  }
  [[nodiscard]] emulate::SampleRing& ring() const { return kernel.ring(); }
};

}  // namespace

// --- The device ----------------------------------------------------------------------------------

TEST("live emulated: the ring is found among the PCI devices, and what enables it is undone") {
  FakeKernel kernel{{100, 100}};
  live::Changes changes{kernel, {}};
  const auto name = [&](std::string_view asked) {
    return std::string{live::make_source(asked, kernel, changes, {}, 1)->name()};
  };
  CHECK_EQ(name("auto"), std::string{"damon"});
  CHECK_THROWS(name("emulated"), "emulated: this machine has no sampler's ring");
  kernel.have_ring();
  kernel.have_ibs();
  kernel.sampling = [](FakeKernel::Sampled& on) {
    test::ibs_sample(on.bytes, ::getpid(), 65536, {.address = heap});
  };
  CHECK_EQ(name("ibs"), std::string{"ibs"});
  CHECK_EQ(kernel.files[enable], std::string{"0\n"});
  CHECK_EQ(name("auto"), std::string{"emulated"});
  CHECK_EQ(kernel.files[enable], std::string{"1"});
  CHECK(changes.undo().empty());
  CHECK_EQ(kernel.files[enable], std::string{"0"});
  // Of one that is enabled nothing is changed.
  kernel.written.clear();
  for (const char* const users : {"1\n", "2\n"}) {
    kernel.files[enable] = users;
    CHECK_EQ(name("emulated"), std::string{"emulated"});
  }
  CHECK(changes.empty() && kernel.written.empty());
  kernel.device.reset();
  CHECK_THROWS(name("emulated"), "00:04.0/resource2: No such file");
  CHECK_EQ(name("auto"), std::string{"ibs"});
}

TEST("live emulated: a ring of another layout is named with what it has, and not written to") {
  const auto refused = [](const auto& change, const std::string& fragment, bool touched = true) {
    FakeKernel kernel{{100, 100}};
    kernel.have_ring();
    change(kernel);
    const std::vector<std::byte> before = *kernel.device;
    live::Changes changes{kernel, {}};
    CHECK_THROWS(live::make_source("emulated", kernel, changes, {}, 1),
                 "emulated: " + FakeKernel::pci + "00:04.0/resource2: found " + fragment);
    CHECK(before == *kernel.device);
    CHECK_EQ(kernel.files[enable] == "1", touched);
    CHECK_EQ(std::string{live::make_source("auto", kernel, changes, {}, 1)->name()},
             std::string{"damon"});
  };
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{4096}, emulate::ring_bytes - 1, 2 * emulate::ring_bytes})
    refused([&](FakeKernel& kernel) { kernel.device->resize(size); },
            "bytes: " + std::to_string(size) + ", expected 4194304", false);
  refused([](FakeKernel& kernel) { kernel.ring().magic = 0; },
          "0 where a sampler's ring says 676e697272656974");
  refused([](FakeKernel& kernel) { kernel.ring().magic = ~std::uint64_t{0}; }, "ffffffffffffffff");
  refused([](FakeKernel& kernel) { kernel.ring().version = 2; }, "version 2, expected 1");
  refused([](FakeKernel& kernel) { kernel.ring().record_bytes = 48; },
          "record_bytes 48, expected 40");
  for (const std::uint64_t records : {std::uint64_t{0}, ring_records + 1, ~std::uint64_t{0}})
    refused([&](FakeKernel& kernel) { kernel.ring().records = records; },
            "records " + std::to_string(records) + ", expected " + std::to_string(ring_records));
}

TEST("live emulated: whatever call fails while the ring is looked for, it is told") {
  int refusals = 0;
  for (int which = 0;; ++which) {
    FakeKernel kernel{{100, 100}};
    kernel.have_ring();
    int calls = 0;  // outlives what undoes changes
    live::Changes changes{kernel, {}};
    kernel.fail = [&](FakeKernel::Call) { return calls++ == which ? EACCES : 0; };
    try {
      (void)live::make_source("emulated", kernel, changes, {}, 1);
    } catch (const live::NotAllowed& error) {
      ++refusals;
      CHECK(std::string{error.what()}.starts_with("emulated: "));
      CHECK(kernel.files[enable] != "1");
      continue;
    }
    if (calls > which) continue;  // files of another device
    // The folder, vendor and device, the memory, and `enable` read and written.
    CHECK_EQ(refusals, 6);
    break;
  }
  FakeKernel kernel{{100, 100}};
  kernel.have_ring();
  live::Changes changes{kernel, {}};
  kernel.fail = [](FakeKernel::Call call) { return call == FakeKernel::Call::write ? EPERM : 0; };
  CHECK_THROWS(live::make_source("emulated", kernel, changes, {}, 1),
               "enable: Operation not permitted; it takes root");
  kernel.fail = [](FakeKernel::Call call) {
    return call == FakeKernel::Call::map_device ? EPERM : 0;
  };
  CHECK_THROWS(live::make_source("emulated", kernel, changes, {}, 1), "is not locked down");
}

TEST("live emulated: a probe names the ring where there is the device, and gives it back") {
  FakeKernel kernel{{100, 100}};
  const auto named = [&] {
    for (const live::Finding& finding : live::probe(kernel))
      if (finding.subject == "emulated machine") return finding;
    return live::Finding{live::Finding::Kind::note, "", "", ""};
  };
  CHECK_EQ(named().subject, std::string{});
  kernel.have_ring();
  const std::vector<std::byte> before = *kernel.device;
  CHECK(named().kind == live::Finding::Kind::works);
  CHECK_EQ(kernel.files[enable], std::string{"0"});
  CHECK(before == *kernel.device);
  kernel.ring().version = 7;
  CHECK(named().kind == live::Finding::Kind::lacks);
  CHECK(named().what.find("version 7, expected 1; the machine is emulated by another") !=
        std::string::npos);
}

TEST("live emulated: a device's memory is mapped to read and to write") {
  const check::Scratch scratch;
  const auto file = scratch.file("resource2");
  live::Linux machine;
  std::unique_ptr<live::DeviceMemory> memory;
  CHECK_EQ(machine.map_device(file, memory), ENOENT);
  std::ofstream{file} << std::string(3 * 4096, 'a');
  CHECK_EQ(machine.map_device(file, memory), 0);
  CHECK_EQ(memory->bytes().size(), 3u * 4096);
  CHECK(memory->bytes()[4096] == std::byte{'a'});
  memory->bytes()[4096] = std::byte{'b'};
  std::unique_ptr<live::DeviceMemory> again;
  CHECK_EQ(machine.map_device(file, again), 0);
  CHECK(again->bytes()[4096] == std::byte{'b'});
  memory.reset();
  CHECK(again->bytes()[4096] == std::byte{'b'});
  std::filesystem::resize_file(file, 0);
  CHECK(machine.map_device(file, memory) != 0 && !memory);
}

// --- Records -------------------------------------------------------------------------------------

TEST("live emulated: samples of the program are handed on, others are counted by what they are") {
  Seen seen;
  seen.start();
  add(seen.kernel, load_of(heap + 3 * page + 17));
  SampleRecord record = load_of(heap + 5 * page);
  record.kind = 1;
  record.tier = 77;  // not asked for
  add(seen.kernel, record);
  record = load_of(heap);
  record.pid = 8;
  add(seen.kernel, record);
  record.pid = 0xffffffff;
  add(seen.kernel, record);
  record.pid = 0;
  add(seen.kernel, record);
  for (const std::uint64_t address :
       {0xffff888000000000ULL, 0ULL, 1ULL << 57, ~0ULL})  // no program's
    add(seen.kernel, load_of(address));
  add(seen.kernel, load_of(heap + 100 * page));
  record = load_of(heap);
  record.kind = 2;
  add(seen.kernel, record);
  const std::vector<Sample> samples = seen.collect();
  CHECK_EQ(samples.size(), 2u);
  Sample expected;
  CHECK(seen.memory->sample(pid, heap + 3 * page, AccessKind::load, expected));
  CHECK(samples[0].page == expected.page && samples[0].kind == AccessKind::load);
  CHECK(seen.memory->sample(pid, heap + 5 * page, AccessKind::store, expected));
  CHECK(samples[1].page == expected.page && samples[1].kind == AccessKind::store);
  CHECK(samples[0].tier == Tier::slow && samples[1].tier == Tier::slow);  // as it was found
  CHECK(seen.source->text().starts_with(
      "2 samples by the emulated machine, 2 of other processes, 4 of the kernel, 1 of a process "
      "that is not told, 1 of pages that are not known, 1 neither loads nor stores; the tiers'"));
  CHECK_EQ(seen.ring().tail, 11u);
  CHECK(seen.collect().empty());
  CHECK_EQ(seen.memory->counters().samples_taken, 2.0);
  CHECK_EQ(seen.memory->counters().samples_lost, 0.0);
}

TEST("live emulated: a reader that begins late reads what comes then") {
  Seen seen;
  for (int i = 0; i < 10; ++i) add(seen.kernel, load_of(heap));
  seen.ring().lost = 4;
  seen.ring().misses = {{{10, 20}, {30, 40}}};
  CHECK(seen.collect().empty());
  CHECK_EQ(seen.ring().tail, 0u);
  seen.start();
  CHECK_EQ(seen.ring().tail, 10u);
  CHECK(seen.collect().empty());
  add(seen.kernel, load_of(heap));
  seen.ring().lost += 2;
  seen.ring().misses = {{{11, 22}, {33, 44}}};
  CHECK_EQ(seen.collect().size(), 1u);
  CHECK_EQ(seen.source->lost(), 2u);
  const Counters counters = seen.memory->counters();
  CHECK(counters.loads == (std::array<double, 2>{1, 2}));
  CHECK(counters.stores == (std::array<double, 2>{3, 4}));
  CHECK(seen.tells("2 lost for want of room"));
  CHECK(!seen.tells("somebody else"));
}

TEST("live emulated: no sample is lost or read twice where the ring begins again") {
  for (const std::uint64_t before : {std::uint64_t{0}, 3 * ring_records - 2, ring_records}) {
    Seen seen;
    seen.ring().head = before;
    seen.start();
    std::uint64_t sent = 0, read = 0;
    // More than fit in twice, in steps that meet its end at every offset; the last ones fill it.
    for (const std::uint64_t step : {std::uint64_t{1}, std::uint64_t{3}, ring_records - 5,
                                     std::uint64_t{0}, ring_records, ring_records}) {
      for (std::uint64_t i = 0; i < step; ++i, ++sent)
        add(seen.kernel, load_of(heap + (sent % 97) * page));
      for (const Sample& each : seen.collect()) {
        Sample expected;
        CHECK(seen.memory->sample(pid, heap + (read % 97) * page, AccessKind::load, expected));
        if (each.page != expected.page) CHECK_EQ(read, ~std::uint64_t{0});
        ++read;
      }
    }
    CHECK_EQ(read, sent);
    CHECK_EQ(seen.ring().lost, 0u);
    CHECK_EQ(seen.ring().tail, before + sent);
    CHECK(!seen.tells("contradicted"));
  }
}

TEST("live emulated: numbers that contradict each other are told, and reading goes on") {
  Seen seen;
  seen.start();
  const auto goes_on = [&](std::uint64_t restarts) {
    CHECK_EQ(seen.ring().tail, seen.ring().head);
    CHECK(seen.tells("contradicted itself " + std::to_string(restarts) + " times"));
    add(seen.kernel, load_of(heap));
    CHECK_EQ(seen.collect().size(), 1u);
  };
  std::uint64_t restarts = 0;
  for (const std::uint64_t head :
       {ring_records + 1, std::uint64_t{5}, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    seen.ring().head = head;
    CHECK(seen.collect().empty());
    goes_on(++restarts);
  }
  // The machine's counts begin anew: nothing is taken for what has happened.
  seen.ring().misses = {{{100, 100}, {100, 100}}};
  seen.ring().lost = 50;
  (void)seen.collect();
  seen.ring().misses = {{{5, 5}, {5, 5}}};
  seen.ring().lost = 1;
  (void)seen.collect();
  seen.ring().misses[0][0] = 6;
  seen.ring().lost = 2;
  (void)seen.collect();
  CHECK_EQ(seen.memory->counters().loads[0], 101.0);
  CHECK_EQ(seen.source->lost(), 51u);
  // What the ring says of itself later is not believed.
  seen.ring().records = 1;
  seen.ring().record_bytes = 0;
  add(seen.kernel, load_of(heap));
  add(seen.kernel, load_of(heap + page));
  CHECK_EQ(seen.collect().size(), 2u);
}

TEST("live emulated: somebody else who reads the ring is told") {
  Seen seen;
  seen.start();
  add(seen.kernel, load_of(heap));
  CHECK_EQ(seen.collect().size(), 1u);
  CHECK(!seen.tells("somebody else"));
  seen.ring().tail = 0;
  (void)seen.collect();
  CHECK(seen.tells("somebody else has taken samples from it"));
}

// --- Sampling ------------------------------------------------------------------------------------

TEST("live emulated: periods are granted whole, frequencies to the nanosecond, kinds apart") {
  Seen seen;
  using Pair = std::array<std::uint64_t, 2>;
  SamplingRequest asked;
  asked.loads = {Mode::period, 5000};
  asked.stores = {Mode::frequency, 1e5, true, true};
  asked.fast_share = 0.5;
  SamplingRequest expected;
  expected.loads = asked.loads;
  expected.stores = {Mode::frequency, 1e5};
  CHECK(seen.memory->set_sampling(asked) == expected);
  // The machine is told when it begins, and of the end.
  CHECK(seen.ring().period == (Pair{}) && seen.ring().interval_ns == (Pair{}));
  seen.start();
  CHECK(seen.ring().period == (Pair{5000, 0}) && seen.ring().interval_ns == (Pair{0, 10'000}));
  asked.loads = {Mode::frequency, 30'000};
  asked.stores = {Mode::period, 1};
  const SamplingRequest granted = seen.source->grant(asked);
  CHECK(seen.ring().period == (Pair{0, 1}) && seen.ring().interval_ns == (Pair{33'334, 0}));
  CHECK(granted.loads.value < 30'000 && granted.loads.value > 29'999);
  CHECK(granted.stores == asked.stores);
  // As seldom as that at least.
  asked.loads = {Mode::period, 10.5};
  asked.stores = {Mode::frequency, 3e9};
  CHECK_EQ(seen.source->grant(asked).loads.value, 11.0);
  CHECK_EQ(seen.source->grant(asked).stores.value, 1e5);  // kernel.perf_event_max_sample_rate
  asked.loads.value = 0.25;
  CHECK_EQ(seen.source->grant(asked).loads.value, 1.0);
  asked.loads.value = 1e300;
  asked.stores.value = 1e-300;
  (void)seen.source->grant(asked);
  CHECK(seen.ring().period[0] == std::uint64_t(1e18) && seen.ring().interval_ns[1] == 1e18);
  for (const double nothing : {0.0, -5.0, std::numeric_limits<double>::quiet_NaN()}) {
    asked.loads = {Mode::period, nothing};
    asked.stores = {Mode::frequency, nothing};
    CHECK(seen.source->grant(asked) == SamplingRequest{});
    CHECK(seen.ring().period == (Pair{}) && seen.ring().interval_ns == (Pair{}));
  }
  // An operator's limit makes all of it rarer.
  asked.loads = {Mode::period, 100};
  asked.stores = {Mode::frequency, 1000};
  (void)seen.source->grant(asked);
  seen.source->spare(4);
  CHECK(seen.ring().period == (Pair{400, 0}) && seen.ring().interval_ns == (Pair{0, 4'000'000}));
  CHECK_EQ(seen.source->grant(asked).loads.value, 400.0);
  CHECK_EQ(seen.source->grant(asked).stores.value, 250.0);
  seen.memory.reset();
  seen.source.reset();
  CHECK(seen.ring().period == (Pair{}) && seen.ring().interval_ns == (Pair{}));
}

TEST("live emulated: losses are answered by longer periods, which ease back") {
  Seen seen;
  SamplingRequest asked;
  asked.loads = {Mode::period, 1000};
  asked.stores = {Mode::frequency, 1000};
  (void)seen.source->grant(asked);
  seen.start();
  double time = 100;
  const auto lose = [&](std::uint64_t count) {
    for (std::uint64_t i = 0; i < ring_records + count; ++i) add(seen.kernel, load_of(heap));
    CHECK_EQ(seen.collect(time += 0.3).size(), ring_records);
  };
  (void)seen.collect(time);
  CHECK_EQ(seen.ring().period[0], 1000u);
  lose(3);
  CHECK_EQ(seen.ring().period[0], 2000u);
  CHECK_EQ(seen.ring().interval_ns[1], 2'000'000u);
  lose(4);
  CHECK_EQ(seen.source->lost(), 7u);
  CHECK_EQ(seen.memory->counters().samples_lost, 7.0);
  CHECK(seen.tells("; 7 lost for want of room; periods are 4 times as long for that"));
  CHECK_EQ(seen.source->grant(asked).loads.value, 4000.0);
  CHECK_EQ(seen.source->grant(asked).stores.value, 250.0);
  (void)seen.collect(time += 9);
  CHECK_EQ(seen.source->longer(), 4u);
  (void)seen.collect(time += 2);
  CHECK_EQ(seen.ring().period[0], 2000u);
  (void)seen.collect(time += 11);
  CHECK_EQ(seen.ring().period[0], 1000u);
  CHECK_EQ(seen.source->longer(), 1u);
  for (int i = 0; i < 20; ++i) {
    ++seen.ring().lost;
    (void)seen.collect(time += 0.3);
  }
  CHECK_EQ(seen.source->longer(), live::Lengthening::most);
}

TEST("live emulated: a policy that asks for fewer samples is not answered for earlier losses") {
  Seen seen;
  SamplingRequest asked;
  asked.loads = {Mode::period, 1000};
  (void)seen.source->grant(asked);
  seen.start();
  double time = 100;
  const auto lose = [&] {
    ++seen.ring().lost;
    (void)seen.collect(time += 0.3);
  };
  (void)seen.collect(time);
  lose();
  lose();
  lose();
  CHECK_EQ(seen.ring().period[0], 8000u);
  // As many samples as the losses have made of it already: what is left over is what it asks for.
  asked.loads.value = 4000;
  CHECK_EQ(seen.source->grant(asked).loads.value, 8000.0);
  CHECK_EQ(seen.source->longer(), 2u);
  asked.loads.value = 20000;
  CHECK_EQ(seen.source->grant(asked).loads.value, 20000.0);
  CHECK_EQ(seen.source->longer(), 1u);
  lose();
  CHECK_EQ(seen.ring().period[0], 40000u);
  // More samples, or as many of the other kind: nothing is eased.
  asked.loads.value = 1000;
  CHECK_EQ(seen.source->grant(asked).loads.value, 2000.0);
  asked.stores = {Mode::frequency, 1000};
  (void)seen.source->grant(asked);
  asked.loads.value = 10000;
  CHECK_EQ(seen.source->grant(asked).loads.value, 20000.0);
  CHECK_EQ(seen.source->longer(), 2u);
  // Nothing for a while, and then the same.
  (void)seen.source->grant({});
  CHECK_EQ(seen.source->longer(), 2u);
  CHECK_EQ(seen.source->grant(asked).loads.value, 20000.0);
  (void)seen.source->grant({});
  asked.stores = {};
  asked.loads.value = 20000;
  CHECK_EQ(seen.source->grant(asked).loads.value, 20000.0);
}

TEST("live emulated: it begins with the first process, where there was none before") {
  Seen seen;
  SamplingRequest asked;
  asked.loads = {Mode::period, 10};
  (void)seen.source->grant(asked);
  CHECK_EQ(seen.source->follow({}), 0);
  CHECK_EQ(seen.ring().period[0], 0u);
  CHECK_EQ(seen.source->follow(std::vector{pid}), 0);
  CHECK_EQ(seen.ring().period[0], 10u);
  add(seen.kernel, load_of(heap));
  CHECK_EQ(seen.source->follow(std::vector{pid, 8}), 0);
  CHECK_EQ(seen.collect().size(), 1u);  // it does not begin anew
}

// --- A session -----------------------------------------------------------------------------------

namespace {

/// An emulated machine on which a program of 4096 pages accesses 512 of them, and a session that
/// tiers it within a budget of 600.
struct Program {
  static constexpr std::uint64_t limit = 600, hot = 1024;   // the first one
  static constexpr std::array<double, 2> rates{20e6, 4e6};  // misses a second, by kind
  FakeKernel kernel{{8192, 8192}};
  std::ostringstream journal, series;
  std::unique_ptr<live::Session> session;
  std::array<double, 2> owed{};  // samples, by kind
  Rng rng{5};

  explicit Program(const std::string& policy) {
    kernel.have_ring();
    kernel.clock = from_seconds(1000);
    kernel.map(pid, heap, heap + 4096 * page);
    for (std::uint64_t i = 0; i < 4096; ++i) kernel.touch(pid, heap + i * page, 1);
    live::Session::Options options;
    options.policy = policy;
    options.nodes = two_nodes();
    options.fast_limit = limit;
    session = std::make_unique<live::Session>(kernel, options, std::vector<std::ostream*>{&journal},
                                              &series);
    session->start(live::Target::processes({pid}));
  }
  [[nodiscard]] std::uint64_t fast() const { return kernel.fast(pid, heap + hot * page, 512); }
  /// A tenth of the misses are another process's.
  void misses(double time) {
    emulate::SampleRing& ring = kernel.ring();
    const double fast_share = static_cast<double>(fast()) / 512;
    for (std::uint32_t kind = 0; kind < 2; ++kind) {
      const double count = rates[kind] * time;
      ring.misses[kind][0] += static_cast<std::uint64_t>(count * fast_share);
      ring.misses[kind][1] += static_cast<std::uint64_t>(count * (1 - fast_share));
      if (ring.period[kind] > 0) {
        owed[kind] += count / static_cast<double>(ring.period[kind]);
      } else if (ring.interval_ns[kind] > 0) {
        owed[kind] += time * 1e9 / static_cast<double>(ring.interval_ns[kind]);
      }
      for (; owed[kind] >= 1; owed[kind] -= 1) {
        SampleRecord record = load_of(heap + (hot + rng.below(512)) * page);
        record.kind = kind;
        if (rng.below(10) == 0) record.pid = 99;
        add(kernel, record);
      }
    }
  }
  void run(double time) {
    kernel.run(time, [this] { return session->turn(); }, [this](double wait) { misses(wait); });
  }
};

}  // namespace

TEST("live emulated: a hot set that the machine samples ends in the fast tier, and replays") {
  for (const char* const name : {"hybridtier", "freqtier", "hemem", "memtis", "unified"}) {
    Program program{name};
    program.run(12);
    CHECK(program.fast() >= 486);  // 95 of 100
    if (program.fast() < 486)
      std::cerr << "  " << name << ": " << program.fast() << " of 512\n"
                << program.session->summary() << "\n";
    CHECK(program.kernel.most_on_node_0 <= Program::limit);
    const live::Status status = program.session->status();
    CHECK(status.source.find(" samples by the emulated machine, ") != std::string::npos);
    CHECK(status.source.find(" of other processes") != std::string::npos);
    CHECK(program.session->summary().find("samples by the emulated machine") != std::string::npos);
    double accesses = 0;
    for (const live::Figure& each : status.figures) {
      if (each.name == "accesses_total") accesses += each.value;
      if (each.name == "samples_lost_total") CHECK_EQ(each.value, 0.0);
      if (each.name == "samples_total") CHECK(each.value > 100);
    }
    CHECK_NEAR(accesses / ((Program::rates[0] + Program::rates[1]) * 12), 1, 0.01);
    CHECK(std::ranges::count(program.series.str(), '\n') > 10);
    std::istringstream journal{program.journal.str()};
    const live::Playback playback = live::play_back(journal);
    CHECK_EQ(playback.diverged, std::string{});
    CHECK(!playback.cut_off && playback.requested > 400);
    program.session.reset();
    CHECK(program.kernel.ring().period == (std::array<std::uint64_t, 2>{}));
    CHECK(program.kernel.ring().interval_ns == (std::array<std::uint64_t, 2>{}));
    CHECK_EQ(program.kernel.files[enable], std::string{"0"});
  }
}

TEST("live emulated: what is lost is told once in the figures") {
  Program program{"hemem"};
  program.run(2);
  program.kernel.ring().lost += 10;
  program.run(2);
  for (const live::Figure& each : program.session->status().figures)
    if (each.name == "samples_lost_total") CHECK_EQ(each.value, 10.0);
  std::istringstream rows{program.series.str()};
  std::string line;
  std::getline(rows, line);
  const std::ptrdiff_t column = std::count(
      line.begin(), line.begin() + static_cast<std::ptrdiff_t>(line.find("samples_lost")), ',');
  double sum = 0;
  while (std::getline(rows, line)) {
    std::istringstream cells{line};
    std::string cell;
    for (std::ptrdiff_t i = 0; i <= column; ++i) std::getline(cells, cell, ',');
    sum += std::stod(cell);
  }
  CHECK_EQ(sum, 10.0);
}
