// SPDX-License-Identifier: MIT

// Arm's Statistical Profiling Extension: records made by hand from the documented packets, and what
// becomes of an area that is cut off, overrun or damaged.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "fake_kernel.hpp"
#include "fake_memory.hpp"
#include "live/hardware_sample.hpp"
#include "live/live_memory.hpp"
#include "live/perf_samples.hpp"
#include "live/pmu.hpp"
#include "perf/ring.hpp"
#include "perf/spe.hpp"
#include "perf_bytes.hpp"

using namespace tt;
using live::HardwareSample;
using live::PerfSamples;
using live::Pmu;
using perf::SpeRecord;
using test::Bytes;
using test::FakeKernel;
using Fate = HardwareSample::Fate;
using Mode = SamplingRequest::Mode;
using Operation = SpeRecord::Operation;

namespace {

constexpr std::uint64_t heap = 1ULL << 40, page = FakeKernel::page;
constexpr int pid = 7, other_thread = 8;
const std::string spe = "/sys/bus/event_source/devices/arm_spe_0/";

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}
Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes out;
  for (const Bytes& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}
struct Decoded {
  std::vector<SpeRecord> records;
  bool whole = false;
};
Decoded decoded(std::span<const std::byte> bytes, std::uint64_t at = 0) {
  Decoded out;
  out.whole = perf::each_spe_record(
      bytes, at, [&](const SpeRecord& record) { out.records.push_back(record); });
  return out;
}
const Bytes load = bytes_of({0x49, 0x00});
const Bytes address = bytes_of({0xb2, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11});
constexpr std::uint64_t addressed = 0x22334455667788;  // without the tag
const Bytes end = bytes_of({0x01});

}  // namespace

TEST("live spe: a record's packets tell operation, address, events, latency, source and thread") {
  const Decoded all = decoded(joined({
      bytes_of({0xb0, 0x00, 0x10, 0x40, 0, 0, 0, 0, 0x80}),  // instruction, not secure
      bytes_of({0x65, 0x34, 0x12, 0x00, 0x00}),              // context of EL2
      load,
      bytes_of({0x52, 0x0e, 0x07}),  // events, in two bytes
      bytes_of({0x99, 0x05, 0x00}),  // until issue
      bytes_of({0x98, 0x2c, 0x01}),  // in all
      bytes_of({0x9a, 0x02, 0x00}),  // of translation
      address,
      bytes_of({0xb3, 0, 0, 0x10, 0, 0, 0, 0, 0x80}),  // physical
      bytes_of({0x53, 0x0e, 0x00}),                    // source, in two bytes
      bytes_of({0x71, 1, 2, 3, 4, 5, 6, 7, 8}),        // time
  }));
  CHECK(all.whole && all.records.size() == 1);
  const SpeRecord& record = all.records[0];
  CHECK(record.operation == Operation::load && record.address == addressed);
  CHECK(record.thread == 0x1234u && record.events == 0x70e && record.cycles == 300);
  CHECK(record.source == 0xe);
  CHECK((record.events & SpeRecord::last_level_access) != 0);
  // Nothing of one record is left in the next.
  const Decoded two = decoded(joined({load, address, end, bytes_of({0x4a, 0x00}), end}));
  CHECK(two.whole && two.records.size() == 2);
  CHECK(!two.records[0].thread && !two.records[0].source && two.records[0].cycles == 0);
  CHECK(two.records[1].operation == Operation::other && !two.records[1].address);
  CHECK(decoded(joined({bytes_of({0x49, 0x01}), end})).records[0].operation == Operation::store);
  CHECK(decoded(joined({bytes_of({0x48, 0x01}), end})).records[0].operation == Operation::other);
}

TEST("live spe: padding, alignment and packets of later versions are passed over") {
  const Bytes padding(5);
  CHECK_EQ(decoded(joined({padding, load, padding, end, padding})).records.size(), 1u);
  CHECK(decoded(padding).whole && decoded({}).whole);
  // An alignment to 2, 4, 8 or 16 bytes counts from the area's begin.
  for (unsigned power = 1; power <= 4; ++power) {
    for (std::uint64_t at = 0; at < 32; ++at) {
      const std::uint64_t alignment = 1U << power;
      const std::size_t skipped = std::max<std::size_t>(2, alignment - at % alignment);
      Bytes bytes = bytes_of({static_cast<int>(0x20 + power - 1), 0x00});
      bytes.resize(skipped, std::byte{0xff});
      const Decoded found = decoded(joined({bytes, load, end}), at);
      CHECK(found.whole && found.records.size() == 1);
      CHECK(!decoded(std::span{bytes}.first(skipped - 1), at).whole);
    }
  }
  // Of two header bytes, an index of five bits: this is address 10, not address 2.
  const Decoded longer = decoded(joined(
      {load, bytes_of({0x21, 0xb2, 1, 2, 3, 4, 5, 6, 7, 8}), bytes_of({0x23, 0x98, 1, 2}), end}));
  CHECK(longer.whole && !longer.records[0].address && longer.records[0].cycles == 0);
  // What it does not know says how long it is: 1, 2, 4 and 8 bytes.
  for (int size = 0; size < 4; ++size) {
    Bytes unknown = bytes_of({0xc5 | size << 4});
    unknown.resize(1 + (std::size_t{1} << size), std::byte{0x01});
    const Decoded found = decoded(joined({load, unknown, address, end}));
    CHECK(found.whole && found.records.size() == 1 && found.records[0].address == addressed);
  }
}

TEST("live spe: what is cut off or no packet ends a piece, and leaves no record of it") {
  const Bytes whole = joined({load, address, bytes_of({0x64, 1, 0, 0, 0}), end});
  for (std::size_t size = 1; size < whole.size(); ++size) {
    const Decoded found = decoded(joined({whole, Bytes{whole.begin(), whole.begin() + size}}));
    CHECK(!found.whole && found.records.size() == 1);
  }
  // Cut at its head: the rest is a record without what was there.
  const Decoded headless = decoded(std::span{whole}.subspan(load.size()));
  CHECK(headless.whole && headless.records[0].operation == Operation::other);
  for (int header = 0; header < 256; ++header) {
    const bool reserved = header > 1 && header < 0x40 && (header & 0xfc) != 0x20;
    const Decoded found = decoded(joined({load, bytes_of({header}), Bytes(15), whole}));
    if (reserved) CHECK(!found.whole && found.records.empty());
  }
  CHECK(!decoded(bytes_of({0x20, 0x01, 0, 0, 0, 0})).whole);
}

TEST("live spe: loads count that memory served, by source, events or latency; stores that missed") {
  HardwareSample out;
  SpeRecord record;
  record.operation = Operation::load;
  record.address = heap + 5;
  record.thread = pid;
  const auto fate = [&](bool knows = true) { return decode_spe(record, knows, 4096, out); };
  // A Neoverse core's sources: memory, and another socket.
  for (int source = 0; source < 16; ++source) {
    record.source = static_cast<std::uint16_t>(source);
    CHECK((fate() == Fate::access) == (source == 0xd || source == 0xe));
  }
  CHECK(out.pid == pid && out.address == heap + 5 && out.period == 4096);
  CHECK(out.kind == AccessKind::load);
  // Of another core a source says nothing; its events do.
  record.source = 0xe;
  record.events = SpeRecord::first_level_miss | SpeRecord::last_level_access;
  CHECK(fate(false) == Fate::cached);
  record.events |= SpeRecord::last_level_miss;
  CHECK(fate(false) == Fate::access);
  record.events = SpeRecord::remote;
  CHECK(fate(false) == Fate::access);
  // Without either, the time that it took.
  record.source.reset();
  record.events = SpeRecord::first_level_miss;
  record.cycles = live::memory_cycles - 1;
  CHECK(fate() == Fate::cached);
  record.cycles = live::memory_cycles;
  CHECK(fate() == Fate::access);
  record.operation = Operation::store;
  record.cycles = 0;
  CHECK(fate() == Fate::access && out.kind == AccessKind::store);
  record.events = SpeRecord::retired;
  CHECK(fate() == Fate::cached);
  record.address = 0xffff0000081000ULL;  // the kernel's, 56 bits
  CHECK(fate() == Fate::outside);
  record.address = 0;
  CHECK(fate() == Fate::other);
  record.address = heap;
  record.thread.reset();
  CHECK(fate() == Fate::other);
  record.thread = pid;
  record.operation = Operation::other;
  CHECK(fate() == Fate::other);
}

TEST("live spe: its event is the one that sysfs describes") {
  FakeKernel kernel{{100, 100}};
  CHECK(!find_spe(kernel, true).has_value());
  kernel.have_spe();
  const Pmu pmu = *find_spe(kernel, true);
  CHECK_EQ(pmu.events.size(), 1u);
  const Pmu::Event& event = pmu.events[0];
  const perf_event_attr& opened = event.opened.attributes;
  CHECK(opened.type == 10 && opened.config == (1ULL << 16 | 1ULL << 33 | 1ULL << 34));
  CHECK(opened.config1 == 0b1010 && opened.config2 == 0 && opened.freq == 0);
  CHECK(opened.exclude_kernel == 1 && opened.exclude_hv == 1 && opened.sample_type == 0);
  CHECK(event.loads && event.stores && event.least_period == 1024 && event.step == 256);
  CHECK(event.opened.area_bytes >= 8192 && pmu.processors == spe + "cpumask");
  CHECK_EQ(find_spe(kernel, false)->events[0].opened.attributes.config1, 0u);
  kernel.files.erase(spe + "caps/min_interval");  // not told: what the driver assumes
  CHECK_EQ(find_spe(kernel, true)->events[0].least_period, 4096u);
  // Whose sources are known.
  CHECK(!pmu.knows_sources);
  for (const auto& [midr, known] : {std::pair{"0x00000000413fd0c1\n", true},   // Neoverse N1
                                    std::pair{"0x00000000410fd4f1\n", true},   // Neoverse V2
                                    std::pair{"0x00000000c00fac30\n", false},  // AmpereOne
                                    std::pair{"0x00000000480fd0c0\n", false}}) {
    kernel.files[FakeKernel::midr] = midr;
    CHECK_EQ(find_spe(kernel, true)->knows_sources, known);
  }
  kernel.files[FakeKernel::midr] = "none\n";
  CHECK_THROWS((void)find_spe(kernel, true), "midr_el1: found 'none', expected a number");
  kernel.files.erase(FakeKernel::midr);
  kernel.files.erase(spe + "format/event_filter");
  CHECK_THROWS((void)find_spe(kernel, true), "format/event_filter: cannot be read");
}

TEST("live spe: whether a processor samples is tried, and what is missing is told") {
  FakeKernel kernel{{100, 100}};
  const auto missing = [&](const char* words) {
    return lacking(kernel, "spe").find(words) != std::string::npos;
  };
  CHECK(missing("lists no arm_spe_0"));
  kernel.have_spe();
  CHECK(missing("no access of this process was sampled"));
  int thread = 0;
  kernel.sampling = [&](FakeKernel::Sampled& on) {
    const std::uint64_t begin = on.area.size();
    test::spe_record(on.area, {.thread = thread, .address = heap});
    test::area_record(on.bytes, begin, on.area.size() - begin);
  };
  CHECK(missing("CONFIG_PID_IN_CONTEXTIDR") && missing("CAP_PERFMON"));
  thread = ::gettid() + 1;
  CHECK(missing("no access of this process was sampled"));
  thread = ::gettid();
  CHECK_EQ(lacking(kernel, "spe"), std::string{});
  kernel.fail = [](FakeKernel::Call call) { return call == FakeKernel::Call::sample ? EACCES : 0; };
  CHECK(missing("CAP_PERFMON"));
  kernel.fail = nullptr;
  live::Changes changes{kernel, {}};
  CHECK_EQ(std::string{live::make_source("auto", kernel, changes, {}, 1)->name()},
           std::string{"spe"});
}

// --- Areas ---------------------------------------------------------------------------------------

namespace {

/// A process of two threads and 16 pages, whose processors sample what the test says.
struct Rig {
  FakeKernel kernel{{8192, 8192}};
  std::unique_ptr<PerfSamples> source;
  std::unique_ptr<live::LiveMemory> memory;
  test::Rig policy{"first-touch", {}, 1, 1};
  Nanos now{};

  explicit Rig(std::uint64_t period = 4096) {
    kernel.have_spe();
    source = std::make_unique<PerfSamples>(kernel, *find_spe(kernel, true), PerfSamples::Options{});
    live::Nodes nodes;
    nodes.of = {std::vector{0}, std::vector{1}};
    memory = std::make_unique<live::LiveMemory>(kernel, nodes, live::LiveMemory::Options{},
                                                source.get());
    kernel.map(pid, heap, heap + 16 * page);
    for (std::uint64_t i = 0; i < 16; ++i) kernel.touch(pid, heap + i * page, 1);
    kernel.processes[pid].threads = {other_thread};
    memory->follow(std::vector{pid});
    CHECK_EQ(test::look_at(*memory, *policy.policy, {}), 0);
    source->start(std::vector{pid});
    SamplingRequest asked;
    asked.loads = asked.stores = {Mode::period, static_cast<double>(period)};
    (void)source->grant(asked);
  }
  [[nodiscard]] FakeKernel::Sampled& on() const { return *kernel.sampled.at(0); }
  void write(int thread, std::uint64_t address) const {
    test::spe_record(on().area, {.thread = thread, .address = address});
  }
  /// All that has been written since is told.
  void tell(std::uint64_t flags = 0) const {
    const std::uint64_t begin = std::exchange(on().told, on().area.size());
    test::area_record(on().bytes, begin, on().told - begin, flags);
  }
  std::vector<Sample> collected() {
    std::vector<Sample> out;
    now += from_millis(300);
    source->collect(*memory, now, out);
    return out;
  }
  [[nodiscard]] bool says(const char* words) const {
    return source->text().find(words) != std::string::npos;
  }
};

}  // namespace

TEST("live spe: samples of a process's threads become its pages; others' are thrown away") {
  Rig rig;
  rig.write(pid, heap + 3 * page + 5);
  rig.write(other_thread, (0xa5ULL << 56 | heap) + 4 * page);  // with a tag
  rig.write(99, heap + 5 * page);
  rig.write(pid, heap + 100 * page);
  rig.tell();
  const std::vector<Sample> found = rig.collected();
  CHECK_EQ(found.size(), 2u);
  CHECK(found[0].tier == Tier::slow && found[1].page.value == found[0].page.value + 1);
  CHECK(rig.says("2 samples by the processor's spe") && rig.says("1 of other processes"));
  CHECK(rig.says("1 of pages that are not known"));
  CHECK_EQ(rig.on().taken, rig.on().told);
  // A thread that begins later is known within a second.
  rig.kernel.processes[pid].threads.insert(99);
  for (int i = 0; i < 4; ++i) (void)rig.collected();
  rig.write(99, heap + 5 * page);
  rig.tell();
  CHECK_EQ(rig.collected().size(), 1u);
}

TEST("live spe: a sample stands for the operations of the period that it was taken in") {
  Rig rig;
  const auto loads = [&] {
    const Counters counters = rig.memory->counters();
    return counters.loads[0] + counters.loads[1];
  };
  constexpr double jitter = 128;
  rig.write(pid, heap);
  rig.tell();
  (void)rig.collected();
  CHECK_EQ(loads(), 4096 + jitter);
  // What was not told when the period changed is told then, and is of the earlier one.
  rig.write(pid, heap);
  rig.kernel.drains = [&](FakeKernel::Sampled& on) {
    if (&on == &rig.on()) rig.tell();
  };
  SamplingRequest asked;
  asked.loads = asked.stores = {Mode::period, 65536};
  CHECK_EQ(rig.source->grant(asked).loads.value, 65536.0);
  rig.kernel.drains = nullptr;
  rig.write(pid, heap);
  rig.write(pid, heap);
  rig.tell();
  (void)rig.collected();
  CHECK_EQ(loads(), 2 * (4096 + jitter) + 2 * (65536 + jitter));
  // Periods are set in steps, and not below what the processor takes.
  asked.loads = {Mode::period, 100};
  CHECK_EQ(rig.source->grant(asked).loads.value, 1024.0);
  asked.loads = {Mode::period, 1500};
  (void)rig.source->grant(asked);
  CHECK_EQ(rig.source->period(AccessKind::store), 1280u);
}

TEST("live spe: truncation, collisions and damage are losses, and answered by longer periods") {
  std::uint64_t lost = 0;
  unsigned times = 1;
  Rig rig;
  for (const auto& [flags, stopped] :
       {std::pair{PERF_AUX_FLAG_TRUNCATED | PERF_AUX_FLAG_PARTIAL, true},
        std::pair{PERF_AUX_FLAG_TRUNCATED, true}, std::pair{PERF_AUX_FLAG_COLLISION, false}}) {
    const int resumed = rig.on().resumed;
    rig.write(pid, heap);
    rig.tell(static_cast<std::uint64_t>(flags));
    CHECK_EQ(rig.collected().size(), 1u);  // what is whole counts all the same
    CHECK_EQ(rig.source->lost(), ++lost);
    CHECK_EQ(rig.on().resumed - resumed, stopped ? 1 : 0);
    CHECK_EQ(rig.source->longer(), times *= 2);
  }
  // The last record is cut off.
  rig.write(pid, heap);
  rig.write(pid, heap);
  rig.on().area.resize(rig.on().area.size() - 40);
  rig.tell();
  (void)rig.collected();
  CHECK_EQ(rig.source->lost(), ++lost);
  // One that was overrun meanwhile, or that never was.
  rig.tell();
  test::area_record(rig.on().bytes, rig.on().told, 64);
  test::area_record(rig.on().bytes, ~0ULL - 8, 64);
  (void)rig.collected();
  CHECK_EQ(rig.source->lost(), lost += 2);
  CHECK(rig.says(" lost on their way"));
  rig.on().taken = rig.on().told;
  // A processor that does not go on is told of.
  CHECK(!rig.says("did not go on"));
  rig.kernel.fail = [](FakeKernel::Call call) {
    return call == FakeKernel::Call::resume ? EIO : 0;
  };
  rig.tell(PERF_AUX_FLAG_TRUNCATED);
  (void)rig.collected();
  CHECK(rig.says("a processor that was stopped did not go on (Input/output error)"));
  // A record of the ring that is too short is no area's.
  test::record(rig.on().bytes, PERF_RECORD_AUX, Bytes(16));
  CHECK_THROWS((void)rig.collected(), "too short for its type");
}

TEST("live spe: an area that is damaged anywhere does no harm") {
  Bytes valid;
  for (std::uint64_t i = 0; i < 4; ++i)
    test::spe_record(valid, {.thread = 1000, .address = heap + i * page, .source = 0xe});
  Rng rng{5};
  std::uint64_t damaged = 0;
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes = valid;
    for (std::uint64_t flips = 1 + rng.below(6); flips > 0; --flips)
      bytes[rng.below(bytes.size())] ^= static_cast<std::byte>(1 << rng.below(8));
    bytes.resize(rng.below(2) == 0 ? bytes.size() : rng.below(bytes.size() + 1));
    const Decoded found = decoded(bytes, rng.below(64));
    damaged += found.whole ? 0 : 1;
    CHECK(found.records.size() <= bytes.size());
    HardwareSample out;
    for (const SpeRecord& record : found.records)
      if (decode_spe(record, true, 1, out) == Fate::access) CHECK(live::in_user_space(out.address));
  }
  CHECK(damaged > 1000);
}

TEST("live spe: an AUX area is read across its end, and not where it was overrun") {
  // A file with what the kernel maps: a page of places, the ring, and the area.
  const auto base = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t ring_bytes = 2 * base, area_bytes = 4 * base;
  const perf::File file{::memfd_create("events", MFD_CLOEXEC)};
  CHECK(file.is_open());
  CHECK_EQ(::ftruncate(file.get(), static_cast<off_t>(base + ring_bytes + area_bytes)), 0);
  perf::Ring ring{file.get(), ring_bytes};
  perf::Area area{ring, file.get(), area_bytes};
  auto* const mapped = static_cast<std::byte*>(::mmap(
      nullptr, base + ring_bytes + area_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
  auto& places = *reinterpret_cast<perf_event_mmap_page*>(mapped);
  CHECK(places.aux_offset == base + ring_bytes && places.aux_size == area_bytes);
  std::byte* const data = mapped + places.aux_offset;
  for (std::size_t i = 0; i < area_bytes; ++i) data[i] = static_cast<std::byte>(i % 251);
  std::vector<std::byte> out;
  CHECK(!area.read(0, 1, out));
  places.aux_head = area_bytes + 100;
  CHECK_EQ(area.written(), area_bytes + 100);
  CHECK(area.read(area_bytes - 50, 150, out) && out.size() == 150);
  CHECK(out[0] == data[area_bytes - 50] && out[49] == data[area_bytes - 1] && out[50] == data[0]);
  CHECK(!area.read(99, 10, out));               // overrun
  CHECK(!area.read(area_bytes + 50, 51, out));  // not there yet
  CHECK(!area.read(area_bytes + 101, 0, out) && !area.read(100, ~0ULL, out));
  area.take(area_bytes + 60);
  CHECK_EQ(places.aux_tail, area_bytes + 60);
  area.take(~0ULL);
  CHECK_EQ(places.aux_tail, area_bytes + 100);
  ::munmap(mapped, base + ring_bytes + area_bytes);
}
