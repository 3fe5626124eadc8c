// SPDX-License-Identifier: MIT

// Fuzz target: records in a ring of perf events, or in that of an emulated machine. The first byte
// of an input says whose they are: DAMON's, PEBS's, IBS's, those of hinting faults, the machine's,
// or those of an area into which SPE writes.
#include <algorithm>
#include <cstddef>

#include "../engine/fake_kernel.hpp"
#include "../engine/perf_bytes.hpp"
#include "fuzz.hpp"
#include "live/damon_trace.hpp"
#include "live/emulated_samples.hpp"
#include "live/live_memory.hpp"
#include "live/perf_samples.hpp"
#include "perf/records.hpp"

namespace tt::fuzz {
namespace {

using test::FakeKernel;

constexpr std::uint64_t heap = 1ULL << 40;
constexpr std::size_t at_size = 6;  // in a record's header

/// Where the records begin, so that their words are aligned as a ring's are.
constexpr std::size_t records_at = 8;

int whose(const Bytes& input) { return static_cast<unsigned char>(input[0]) % 6; }
constexpr int machines = 4, areas = 5;

/// Of an area: how it is told, and then what it holds.
struct Area {
  perf_event_header header;
  perf::AreaRecord record;
};
constexpr std::size_t area_at = records_at + sizeof(Area);

// Of the emulated machine: how its ring begins, and then what it does between two looks of the
// reader, to which it may do anything.
struct MachineStep {
  std::uint64_t head, lost, tail;
  std::array<std::array<std::uint64_t, 2>, 2> misses;
  std::array<emulate::SampleRecord, 2> records;  // from where the reader is
};
constexpr std::size_t steps_at = records_at + sizeof(emulate::SampleRing);

class Memory final : public live::DeviceMemory {
 public:
  explicit Memory(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes() override { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

/// std::runtime_error for a ring that is refused.
bool run_machine(const Bytes& input, const live::LiveMemory& memory) {
  static std::vector<std::byte> bytes(emulate::ring_bytes);
  std::memset(bytes.data(), 0, bytes.size());  // fill() takes long under sanitizers
  auto& ring = *reinterpret_cast<emulate::SampleRing*>(bytes.data());
  ring = peek<emulate::SampleRing>(input, records_at);
  live::EmulatedSamples source{
      std::make_unique<live::EmulatedRing>(std::make_unique<Memory>(std::span{bytes})), {}};
  SamplingRequest asked;
  asked.loads = {SamplingRequest::Mode::period, 100};
  asked.stores = {SamplingRequest::Mode::frequency, 100};
  (void)source.grant(asked);
  source.start({});
  std::vector<Sample> samples;
  Nanos now{};
  for (std::size_t at = steps_at; at + sizeof(MachineStep) <= input.size();
       at += sizeof(MachineStep), now += from_millis(300)) {
    const auto step = peek<MachineStep>(input, at);
    for (std::size_t i = 0; i < step.records.size(); ++i)
      std::memcpy(bytes.data() + emulate::ring_header_bytes +
                      (ring.tail + i) % emulate::ring_records * sizeof(emulate::SampleRecord),
                  &step.records[i], sizeof step.records[i]);
    ring.head = step.head;
    ring.lost = step.lost;
    ring.tail = step.tail;
    ring.misses = step.misses;
    source.collect(memory, now, samples);
    if (ring.tail != ring.head) throw std::logic_error("not all was dealt with");
  }
  (void)source.text();
  if (!samples.empty()) throw std::logic_error("a sample of a process that is not watched");
  return true;
}

/// Makes a ring that is not refused, whose numbers go on from what they were.
void refit_machine(Bytes& input, Rng& rng) {
  auto ring = peek<emulate::SampleRing>(input, records_at);
  ring.magic = emulate::ring_magic;
  ring.version = emulate::ring_version;
  ring.record_bytes = sizeof(emulate::SampleRecord);
  ring.records = emulate::ring_records;
  poke(input, records_at, ring);
  std::uint64_t head = ring.head;
  for (std::size_t at = steps_at; at + sizeof(MachineStep) <= input.size();
       at += sizeof(MachineStep)) {
    auto step = peek<MachineStep>(input, at);
    if (rng.below(2) == 0) step.tail = head;
    // A full ring takes long to read.
    if (rng.below(2) == 0) step.head = head + rng.below(4);
    if (rng.below(32) == 0) step.head = head + emulate::ring_records + (rng.below(16) > 0 ? 1 : 0);
    head = step.head;
    poke(input, at, step);
  }
}

/// Of a process that is watched, so that its samples are looked up; none of its pages is known.
bool run_area(const Bytes& input, FakeKernel& kernel, const live::LiveMemory& memory) {
  if (input.size() < area_at) return false;
  live::PerfSamples source{kernel, *find_spe(kernel, true), {}};
  source.start(std::vector{7});
  FakeKernel::Sampled& on = *kernel.sampled.at(0);
  const auto* const begin = reinterpret_cast<const std::byte*>(input.data());
  on.bytes.assign(begin + records_at, begin + area_at);
  on.area.assign(begin + area_at, begin + input.size());
  std::vector<Sample> samples;
  source.collect(memory, from_seconds(1), samples);
  (void)source.text();
  if (!samples.empty()) throw std::logic_error("a sample of a page that is not known");
  return true;
}

/// Tells of what there is.
void refit_area(Bytes& input) {
  if (input.size() < area_at) return;
  auto told = peek<Area>(input, records_at);
  told.header.type = PERF_RECORD_AUX;
  told.header.size = sizeof told;
  told.record.begin = 0;
  told.record.bytes = input.size() - area_at;
  poke(input, records_at, told);
}

/// Makes sizes of records such as there are, so that those behind are seen, too.
void refit(Bytes& input, Rng& rng) {
  if (rng.below(8) == 0) return;
  if (input.size() >= records_at && whose(input) == machines) return refit_machine(input, rng);
  if (input.size() >= records_at && whose(input) == areas) return refit_area(input);
  for (std::size_t at = records_at; at + 8 <= input.size();) {
    auto size = peek<std::uint16_t>(input, at + at_size);
    if (size < 8 || size % 8 != 0 || size > input.size() - at) {
      size = static_cast<std::uint16_t>(
          std::min<std::size_t>(8 * (1 + rng.below(16)), (input.size() - at) / 8 * 8));
      poke(input, at + at_size, size);
    }
    at += size;
  }
}

bool run(const Bytes& input, const std::filesystem::path&) {
  if (input.size() < records_at) return false;
  const auto* const begin = reinterpret_cast<const std::byte*>(input.data());
  const std::span<const std::byte> records{begin + records_at, input.size() - records_at};
  const int kind = whose(input);
  try {
    if (kind == 0) {
      live::DamonDecoder decoder{live::TraceFormat{FakeKernel::damon_format}};
      if (decoder.feed(records) > records.size())
        throw std::logic_error("more was dealt with than there is");
      for (const live::DamonAggregation& each : decoder.take())
        for (const live::DamonRegion& region : each.regions)
          if (region.begin >= region.end) throw std::logic_error("a region is empty");
      return true;
    }
    FakeKernel kernel{{8, 8}};
    kernel.have_pebs();
    kernel.have_ibs();
    kernel.have_hints();
    kernel.have_spe();
    kernel.processes[7];
    live::Nodes nodes;
    nodes.of = {std::vector{0}, std::vector{1}};
    const live::LiveMemory memory{kernel, nodes, {}};
    if (kind == machines) return run_machine(input, memory);
    if (kind == areas) return run_area(input, kernel, memory);
    live::PerfSamples source{kernel,
                             kind == 1   ? *find_pebs(kernel, 128)
                             : kind == 2 ? *find_ibs(kernel, true)
                                         : *find_hints(kernel),
                             {}};
    std::vector<Sample> samples;
    if (source.feed(records, memory, samples) > records.size())
      throw std::logic_error("more was dealt with than there is");
    if (!samples.empty()) throw std::logic_error("a sample of a process that is not watched");
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

Bytes made_machine() {
  Bytes out(steps_at + 3 * sizeof(MachineStep));
  out[0] = machines;
  Rng valid{2};
  refit_machine(out, valid);
  for (std::uint64_t i = 0; i < 3; ++i) {
    MachineStep step{};
    step.head = 2 * i + 2;
    step.tail = 2 * i;
    step.misses = {{{100 * i, 200 * i}, {300 * i, 400 * i}}};
    for (emulate::SampleRecord& record : step.records)
      record = {.address = heap + i * FakeKernel::huge, .pid = 7, .tid = 7};
    poke(out, steps_at + i * sizeof step, step);
  }
  return out;
}

Bytes made_area() {
  test::Bytes area;
  for (std::uint64_t i = 0; i < 3; ++i)
    test::spe_record(area, {.thread = 7, .address = heap + i * FakeKernel::huge, .source = 0xe});
  Bytes out(area_at + area.size());
  out[0] = areas;
  std::memcpy(out.data() + area_at, area.data(), area.size());
  refit_area(out);
  return out;
}

Bytes made(int whose) {
  test::Bytes records;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const std::uint64_t at = heap + i * FakeKernel::huge;
    if (whose == 0) test::region(records, 1000, 0, 3, {at, at + FakeKernel::huge, i, 1});
    if (whose == 1) test::pebs_sample(records, 7, at, test::memory_load, 1000);
    if (whose == 2) test::ibs_sample(records, 7, 65536, {.address = at});
  }
  test::lost(records, 3);
  Bytes out(records_at + records.size());
  out[0] = static_cast<char>(whose);
  std::memcpy(out.data() + records_at, records.data(), records.size());
  return out;
}

std::vector<Bytes> seeds() { return {made(0), made(1), made(2), made_machine(), made_area()}; }

}  // namespace

const Target& perf_target() {
  static constexpr Target target{"perf", seeds, refit, run};
  return target;
}

}  // namespace tt::fuzz
