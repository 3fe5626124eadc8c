// SPDX-License-Identifier: MIT

#include "live/pmu.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "live/nodes.hpp"
#include "live/words.hpp"
#include "perf/records.hpp"
#include "perf/spe.hpp"

namespace tt::live {
namespace {

const std::string devices = "/sys/bus/event_source/devices/";

std::runtime_error wrong(const std::string& path, const std::string& found,
                         const char* const expected) {
  return std::runtime_error(path + ": found '" + found.substr(0, 100) + "', expected " + expected);
}

/// A number behind an optional 0x; the whole of `text`.
std::uint64_t number(const std::string& path, std::string_view text) {
  const bool hex = text.starts_with("0x");
  const char* const end = text.data() + text.size();
  std::uint64_t out = 0;
  const auto [at, error] = std::from_chars(text.data() + (hex ? 2 : 0), end, out, hex ? 16 : 10);
  if (error != std::errc{} || at != end) throw wrong(path, std::string{text}, "a number");
  return out;
}

/// A file's text without the line's end; nothing if it cannot be read.
std::optional<std::string> line(KernelCalls& kernel, const std::string& path) {
  std::string text;
  if (kernel.read(path, text) != 0) return std::nullopt;
  return stripped(text);
}

/// Cuts off what is before the first `separator`.
std::string_view cut(std::string_view& rest, char separator) {
  const std::string_view part = rest.substr(0, rest.find(separator));
  rest.remove_prefix(std::min(part.size() + 1, rest.size()));
  return part;
}

using Terms = std::map<std::string, std::uint64_t, std::less<>>;

/// An event: "event=0xcd,umask=0x1,ldlat=3".
Terms terms(const std::string& path, std::string_view text) {
  Terms out;
  while (!text.empty()) {
    std::string_view value = cut(text, ',');
    const std::string_view key = cut(value, '=');
    if (key.empty()) throw wrong(path, std::string{text}, "terms such as event=0xcd,umask=0x1");
    out[std::string{key}] = value.empty() ? 1 : number(path, value);
  }
  return out;
}

/// Puts a value where a term's format says that its bits belong: "config:0-7", "config1:0-15,32".
void put(KernelCalls& kernel, const std::string& device, std::string_view term, std::uint64_t value,
         perf_event_attr& attributes) {
  const std::string path = device + "format/" + std::string{term};
  const std::optional<std::string> format = line(kernel, path);
  if (!format) throw std::runtime_error(path + ": cannot be read; an event here has this term");
  std::string_view ranges = *format;
  const std::string_view word = cut(ranges, ':');
  __u64* const to = word == "config"    ? &attributes.config
                    : word == "config1" ? &attributes.config1
                    : word == "config2" ? &attributes.config2
                                        : nullptr;
  const char* const expected = "bits such as config:0-7";
  if (to == nullptr || ranges.empty()) throw wrong(path, *format, expected);
  unsigned used = 0;
  while (!ranges.empty()) {
    std::string_view high = cut(ranges, ',');
    const std::string_view low = cut(high, '-');
    const std::uint64_t first = number(path, low), last = high.empty() ? first : number(path, high);
    if (first > last || last > 63) throw wrong(path, *format, expected);
    for (std::uint64_t bit = first; bit <= last; ++bit, ++used)
      if (used < 64 && (value >> used & 1) != 0) *to |= std::uint64_t{1} << bit;
  }
}

perf_event_attr attributes(std::uint64_t type, SampleLayout layout) {
  perf_event_attr out{};
  out.type = static_cast<std::uint32_t>(type);
  out.sample_type = sample_type(layout);
  return out;
}

std::optional<std::string> intel_device(KernelCalls& kernel) {
  for (const char* const name : {"cpu/", "cpu_core/"})
    if (line(kernel, devices + name + "events/mem-loads")) return devices + name;
  return std::nullopt;
}

/// An event that the kernel lists.
SampledEvent listed(KernelCalls& kernel, const std::string& device, std::uint64_t type,
                    const Terms& terms) {
  SampledEvent out;
  out.attributes = attributes(type, SampleLayout::data_source);
  out.attributes.precise_ip = 2;
  out.attributes.exclude_kernel = 1;
  out.attributes.exclude_hv = 1;
  for (const auto& [term, value] : terms) put(kernel, device, term, value, out.attributes);
  return out;
}

/// Whether the first of these processors says where data came from as Arm's Neoverse cores do.
/// Cores of one machine are alike in that, as far as is known.
bool has_neoverse_sources(KernelCalls& kernel, const std::string& processors) {
  const std::optional<std::string> listed = line(kernel, processors);
  if (!listed || listed->empty()) return false;
  const std::string path = "/sys/devices/system/cpu/cpu" +
                           std::to_string(node_list(*listed).front()) +
                           "/regs/identification/midr_el1";
  const std::optional<std::string> text = line(kernel, path);
  if (!text) return false;
  const std::uint64_t midr = number(path, *text);
  constexpr std::uint64_t arm = 0x41;
  constexpr std::array<std::uint64_t, 4> parts{0xd0c, 0xd40, 0xd49, 0xd4f};  // N1, V1, N2, V2
  return (midr >> 24 & 0xff) == arm && std::ranges::find(parts, midr >> 4 & 0xfff) != parts.end();
}

/// Whether an area has a record of this thread, whatever it says. `nobodys`: one without a thread.
bool sampled(SampleRing& ring, const perf::AreaRecord& area, int thread, bool& nobodys) {
  std::vector<std::byte> bytes;
  bool seen = false;
  if (ring.read_area(area.begin, area.bytes, bytes))
    // The last record may be cut off: another one will do.
    (void)perf::each_spe_record(bytes, area.begin, [&](const perf::SpeRecord& record) {
      seen = seen || record.thread == static_cast<std::uint32_t>(thread);
      nobodys = nobodys || !record.thread;
    });
  ring.take_area(area.begin + area.bytes);
  return seen;
}

const char* const grants =
    "CAP_PERFMON (setcap cap_perfmon,cap_sys_ptrace+ep tierd), or sysctl "
    "kernel.perf_event_paranoid=0";

std::string refusal(int error) {
  const std::string said = std::generic_category().message(error);
  if (error == EACCES || error == EPERM)
    return "opening its events: " + said + "; it takes " + grants +
           "; in a container also a seccomp profile that allows perf_event_open";
  if (error == ENOENT || error == ENODEV || error == EOPNOTSUPP || error == EINVAL)
    return "opening its events: " + said +
           "; this processor does not sample so, or the hypervisor keeps it from its guests";
  return "opening its events: " + said;
}

/// Memory of our own that is read to see whether that is sampled.
class Reading {
 public:
  static constexpr std::size_t bytes = 8 << 20;
  Reading()
      : at_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (at_ == MAP_FAILED)
      throw std::system_error(errno, std::generic_category(), "8 MiB to try samples on");
    std::memset(at_, 1, bytes);
  }
  ~Reading() { ::munmap(at_, bytes); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;
  /// Each of its lines, in an order that no prefetcher follows.
  void read() const {
    const auto* const words = static_cast<const volatile std::uint64_t*>(at_);
    constexpr std::uint64_t lines = bytes / 64;
    for (std::uint64_t i = 0, line = 1; i < lines; ++i) {
      line = (5 * line + 3) % lines;
      (void)words[line * 8];
    }
  }

 private:
  void* at_;
};

}  // namespace

std::optional<Pmu> find_pebs(KernelCalls& kernel, unsigned least_cycles) {
  const std::optional<std::string> device = intel_device(kernel);
  if (!device) return std::nullopt;
  const auto text = [&](const std::string& name) { return line(kernel, *device + name); };
  const std::string type_path = *device + "type";
  const std::uint64_t type = number(type_path, text("type").value_or(""));
  Pmu out{.name = "pebs"};
  if (text("cpus")) out.processors = *device + "cpus";  // of a processor with two kinds of cores
  const std::string loads_path = *device + "events/mem-loads";
  Terms loads = terms(loads_path, *text("events/mem-loads"));
  loads["ldlat"] = least_cycles;
  Pmu::Event event;
  event.opened = listed(kernel, *device, type, loads);
  if (const auto leader = text("events/mem-loads-aux"))
    event.opened.leader =
        listed(kernel, *device, type, terms(*device + "events/mem-loads-aux", *leader))
            .attributes.config;
  event.loads = true;
  event.least_period = 100;
  event.first_period = 20'000;
  out.events.push_back(event);
  if (const auto stores = text("events/mem-stores")) {
    event.opened = listed(kernel, *device, type, terms(*device + "events/mem-stores", *stores));
    event.loads = false;
    event.stores = true;
    event.least_period = 1'000;
    event.first_period = 200'000;
    out.events.push_back(event);
  }
  return out;
}

std::optional<Pmu> find_ibs(KernelCalls& kernel, bool misses) {
  const std::string device = devices + "ibs_op/";
  const std::optional<std::string> type = line(kernel, device + "type");
  if (!type) return std::nullopt;
  Pmu out{.name = "ibs", .layout = SampleLayout::ibs};
  Pmu::Event event;
  event.opened.attributes = attributes(number(device + "type", *type), out.layout);
  // Count operations rather than cycles, so that slow ones are not preferred.
  for (const auto& [term, wanted] : {std::pair{"cnt_ctl", true}, std::pair{"l3missonly", misses}})
    if (wanted && line(kernel, device + "format/" + term))
      put(kernel, device, term, 1, event.opened.attributes);
  // Kernel and user are not told apart when it is opened: kernels before 6.14 refuse that.
  event.loads = event.stores = true;
  event.least_period = 1 << 16;  // some 50,000 interrupts a second on a busy core
  event.step = 16;
  event.first_period = 1 << 18;
  out.events.push_back(event);
  return out;
}

std::optional<Pmu> find_spe(KernelCalls& kernel, bool misses) {
  const std::string device = devices + "arm_spe_0/";
  const std::optional<std::string> type = line(kernel, device + "type");
  if (!type) return std::nullopt;
  Pmu out{.name = "spe", .processors = device + "cpumask", .layout = SampleLayout::spe};
  Pmu::Event event;
  perf_event_attr& opened = event.opened.attributes;
  opened = attributes(number(device + "type", *type), out.layout);
  opened.exclude_kernel = 1;
  opened.exclude_hv = 1;
  // No least latency: of a store it is not memory's. No times: nothing here asks for them.
  for (const char* const term : {"load_filter", "store_filter", "jitter"})
    put(kernel, device, term, 1, opened);
  if (misses)
    put(kernel, device, "event_filter",
        perf::SpeRecord::retired | perf::SpeRecord::first_level_miss, opened);
  event.opened.area_bytes = std::size_t{1} << 18;
  event.loads = event.stores = true;
  event.step = 256;  // PMSIRR_EL1 has no lower bits; with jitter they are random
  event.jitter = event.step / 2;
  const std::string least = device + "caps/min_interval";
  const std::optional<std::string> interval = line(kernel, least);
  event.least_period = interval ? number(least, *interval) : 4096;
  event.first_period = std::max<std::uint64_t>(event.least_period, 1 << 14);
  out.events.push_back(event);
  out.knows_sources = has_neoverse_sources(kernel, out.processors);
  return out;
}

std::optional<Pmu> find_hints(KernelCalls& kernel) {
  if (!line(kernel, balancing_file)) return std::nullopt;
  Pmu out{.name = "hints",
          .told = "samples estimated from NUMA hinting faults",
          .layout = SampleLayout::fault};
  Pmu::Event event;
  event.opened.attributes = attributes(PERF_TYPE_SOFTWARE, out.layout);
  event.opened.attributes.config = PERF_COUNT_SW_PAGE_FAULTS;
  event.loads = true;
  // Assumed: what a page that is used is accessed until it is made inaccessible again. A policy's
  // period of 10,007 misses is then one fault.
  event.stands_for = 10'000;
  out.events.push_back(event);
  return out;
}

std::string open_rings(KernelCalls& kernel, const Pmu& pmu,
                       std::vector<std::unique_ptr<SampleRing>>& out) {
  std::vector<SampledEvent> events;
  for (const Pmu::Event& event : pmu.events) {
    events.push_back(event.opened);
    events.back().attributes.sample_period = event.first_period;
  }
  out.clear();
  const std::optional<std::string> processors = line(kernel, pmu.processors);
  if (!processors) throw std::runtime_error(pmu.processors + ": cannot be read");
  for (const int processor : node_list(*processors)) {
    std::unique_ptr<SampleRing> ring;
    const int error = kernel.sample(events, processor, ring);
    if (error == ENODEV) continue;  // switched off meanwhile
    if (error != 0) {
      out.clear();
      return refusal(error);
    }
    out.push_back(std::move(ring));
  }
  return out.empty() ? refusal(ENODEV) : "";
}

std::string lacking(KernelCalls& kernel, std::string_view name) {
  constexpr unsigned any_load = 3;  // cycles: what the fewest take
  try {
    std::optional<Pmu> pmu = name == "pebs"  ? find_pebs(kernel, any_load)
                             : name == "ibs" ? find_ibs(kernel, false)
                             : name == "spe" ? find_spe(kernel, false)
                                             : find_hints(kernel);
    if (!pmu)
      return name == "pebs" ? "the kernel lists no mem-loads (Intel; hypervisors usually hide them)"
             : name == "ibs" ? "the kernel lists no ibs_op (AMD; hypervisors usually hide it)"
             : name == "spe"
                 ? "the kernel lists no arm_spe_0 (Arm; hypervisors usually hide it, and "
                   "some processors need kpti=off)"
                 : "a kernel without CONFIG_NUMA_BALANCING";
    if (name == "hints") {
      const std::vector<int> first{0};
      const int error = kernel.hint(first);
      if (error != 0) return "its memory policy: " + message(error) + "; Linux takes it since 6.9";
      if (const int kept = kernel.hint({}); kept != 0)
        return "its memory policy cannot be taken back: " + message(kept);
    }
    for (Pmu::Event& event : pmu->events) event.first_period = event.least_period;
    std::vector<std::unique_ptr<SampleRing>> rings;
    if (const std::string refused = open_rings(kernel, *pmu, rings); !refused.empty())
      return refused;
    const Reading reading;  // its first touch faults
    const int self = ::getpid(), thread = ::gettid();
    std::vector<std::byte> bytes;
    bool seen = false, nobodys = false;
    for (int round = 0; round < 32 && !seen; ++round) {
      reading.read();
      for (const auto& ring : rings) {
        ring->read(bytes);
        ring->take(perf::each_record(bytes, [&](const perf_event_header& header, auto body) {
          // All layouts begin with the process; whatever served the access, it was sampled.
          if (header.type == PERF_RECORD_SAMPLE)
            seen = seen || perf::get<std::int32_t>(body) == self;
          if (header.type == PERF_RECORD_AUX)
            seen = sampled(*ring, perf::get<perf::AreaRecord>(body), thread, nobodys) || seen;
        }));
      }
    }
    if (!seen && nobodys)
      return "its samples do not tell of which thread they are: that takes CAP_PERFMON, and a "
             "kernel with CONFIG_PID_IN_CONTEXTIDR";
    return seen ? ""
                : "its events open, but no access of this process was sampled; a hypervisor may "
                  "count without sampling";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

}  // namespace tt::live
