// SPDX-License-Identifier: MIT

// A kernel for tests of the live engine: processes with mappings and pages on nodes, and move_pages
// as Linux 6.12 and 7.3 were seen to behave in guests with two nodes. Any call can be made to fail.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "emulate/ring.hpp"
#include "live/kernel_calls.hpp"
#include "live/live_memory.hpp"

namespace tt::test {

class FakeKernel final : public live::KernelCalls {
 public:
  static constexpr std::uint64_t page = live::base_page_bytes, huge = live::block_bytes;

  struct Page {
    int node = 0;
    bool pinned = false;  // under I/O: does not move
    int mapped_by = 1;    // processes
    bool zero = false;    // read, never written
  };
  struct Process {
    std::map<std::uint64_t, std::uint64_t> mappings;  // begin, end
    std::map<std::uint64_t, Page> pages;              // by address
    std::set<std::uint64_t> huge;                     // addresses of huge pages
    std::set<std::uint64_t> parts;                    // of those that are mapped in parts
    std::set<int> nodes{0, 1};                        // its cpuset
    bool foreign = false;                             // another user's
    std::set<std::uint64_t> dirty;                    // pages written to since that was cleared
    int parent = 1;
    std::uint64_t started = 0;
    std::set<int> threads;  // beside the first
  };
  /// What a call is, for the one that lets it fail.
  enum class Call : std::uint8_t {
    read,
    write,
    trace,
    sample,
    period,
    resume,
    map_device,
    hint,
    populated,
    soft_dirty,
    move,
    query
  };

  explicit FakeKernel(std::vector<std::uint64_t> node_pages) : sizes(std::move(node_pages)) {}

  // What the test does to it.

  std::map<int, Process> processes;
  std::vector<std::uint64_t> sizes;  // pages of each node
  bool has_scan = true;              // tells huge pages and zeros
  bool has_soft_dirty = true;        // else it takes that they be cleared, and tells of none
  std::function<int(Call)> fail;     // an errno instead of the call, or 0
  std::string asked;                 // the file of the last read or write
  Nanos clock{};

  /// Turns for so many seconds, and what happens while each waits, for a millisecond or more.
  template <typename Turn, typename Meanwhile>
  void run(double time, const Turn& turn, const Meanwhile& meanwhile) {
    for (const Nanos end = clock + from_seconds(time); clock < end;) {
      const Nanos wait = std::max(turn(), from_millis(1));
      clock += wait;
      meanwhile(seconds(wait));
    }
  }
  void map(int pid, std::uint64_t begin, std::uint64_t end) {
    processes[pid].mappings[begin] = end;
  }
  void unmap(int pid, std::uint64_t begin) {
    Process& process = processes.at(pid);
    const auto mapping = process.mappings.find(begin);
    const auto from = process.pages.lower_bound(begin);
    process.pages.erase(from, process.pages.lower_bound(mapping->second));
    process.huge.erase(process.huge.lower_bound(begin), process.huge.lower_bound(mapping->second));
    process.mappings.erase(mapping);
  }
  /// First touch: on node 0 as long as that has room, as a kernel does.
  void touch(int pid, std::uint64_t address, int node = 0) {
    Process& process = processes.at(pid);
    if (process.pages.contains(address)) return;
    process.pages[address] = {.node = free(node) > 0 ? node : 1 - node};
  }
  void touch_huge(int pid, std::uint64_t address, int node = 0) {
    for (std::uint64_t at = address; at < address + huge; at += page) touch(pid, at, node);
    processes.at(pid).huge.insert(address);
  }

  // What the test looks at.

  [[nodiscard]] std::uint64_t used(int node) const {
    std::uint64_t sum = 0;
    for (const auto& [pid, process] : processes)
      for (const auto& [address, each] : process.pages) sum += !each.zero && each.node == node;
    return sum;
  }
  [[nodiscard]] std::uint64_t free(int node) const {
    const std::uint64_t size = sizes[static_cast<std::size_t>(node)];
    return size - std::min(size, used(node));
  }
  [[nodiscard]] int where(int pid, std::uint64_t address) const {
    return processes.at(pid).pages.at(address).node;
  }
  /// Of so many pages from this address on, those on node 0.
  [[nodiscard]] std::uint64_t fast(int pid, std::uint64_t begin, std::uint64_t count) const {
    std::uint64_t found = 0;
    for (std::uint64_t i = 0; i < count; ++i) found += where(pid, begin + i * page) == 0 ? 1 : 0;
    return found;
  }
  struct Moved {
    int pid = 0, node = 0;
    std::size_t addresses = 0;
  };
  std::vector<Moved> moves;          // calls that moved
  std::uint64_t queries = 0;         // calls that asked
  std::uint64_t most_on_node_0 = 0;  // right after a call that moved pages there

  // The kernel.

  Nanos now() override { return clock; }
  Nanos processor_time() override { return worked; }
  Nanos worked{};  // by this process

  int read(const std::string& path, std::string& text) override {
    text.clear();
    asked = path;
    if (const int error = failed(Call::read)) return error;
    for (std::size_t node = 0; node < sizes.size(); ++node) {
      const std::string number = std::to_string(node);
      if (path != "/sys/devices/system/node/node" + number + "/meminfo") continue;
      const auto kilobytes = [](std::uint64_t pages) {
        return std::to_string(4 * pages) + " kB\n";
      };
      text = "\nNode " + number + " MemTotal:       " + kilobytes(sizes[node]) + "Node " + number +
             " MemFree:        " + kilobytes(free(static_cast<int>(node)));
      return 0;
    }
    const auto file = files.find(path);
    if (file != files.end()) {
      text = file->second;
      return 0;
    }
    for (const auto& [pid, process] : processes) {
      const std::string folder = "/proc/" + std::to_string(pid) + "/";
      if (path == folder + "stat") {
        text = std::to_string(pid) + " (a) name) S " + std::to_string(process.parent);
        for (int field = 5; field < 22; ++field) text += " 0";
        text += " " + std::to_string(process.started) + " 4096 1\n";
        return 0;
      }
      if (path != folder + "maps") continue;
      for (const auto& [begin, end] : process.mappings) {
        char line[100];
        std::snprintf(line, sizeof line, "%lx-%lx rw-p 00000000 00:00 0 \n", begin, end);
        text += line;
      }
      return 0;
    }
    return ENOENT;
  }
  std::map<std::string, std::string> files;  // others, by path

  /// Those that `files` has below it.
  int folders(const std::string& path, std::vector<std::string>& names) override {
    names.clear();
    if (const int error = failed(Call::read)) return error;
    if (path == "/proc") {
      names = {"self"};
      for (const auto& [pid, process] : processes) names.push_back(std::to_string(pid));
      return 0;
    }
    for (const auto& [pid, process] : processes) {
      if (path != "/proc/" + std::to_string(pid) + "/task") continue;
      names = {std::to_string(pid)};
      for (const int thread : process.threads) names.push_back(std::to_string(thread));
      return 0;
    }
    const std::string start = path + "/";
    for (auto file = files.lower_bound(start);
         file != files.end() && file->first.starts_with(start); ++file) {
      const std::size_t end = file->first.find('/', start.size());
      if (end == std::string::npos) continue;
      const std::string name = file->first.substr(start.size(), end - start.size());
      if (names.empty() || names.back() != name) names.push_back(name);
    }
    return names.empty() ? ENOENT : 0;
  }

  int write(const std::string& path, const std::string& text) override {
    asked = path;
    if (const int error = failed(Call::write)) return error;
    if (path.ends_with("/clear_refs")) return clear(std::stoi(path.substr(6)), text);
    if (!files.contains(path) && !is_below_a_kdamond(path)) return ENOENT;
    std::string held = text;
    if (const int error = judge ? judge(path, held) : 0) return error;
    files[path] = held;
    written.emplace_back(path, text);
    if (path == kdamonds + "nr_kdamonds") {
      std::erase_if(files, [&](const auto& file) {
        return file.first.starts_with(kdamonds) && file.first != path;
      });
    } else if (path == kdamonds + "0/state" && text == "on") {
      files[kdamonds + "0/pid"] = "4711\n";
    }
    return 0;
  }
  std::vector<std::pair<std::string, std::string>> written;
  /// What a file makes of a value: an errno, or another text that it holds then.
  std::function<int(const std::string& path, std::string& text)> judge;

  /// A machine with DAMON, whose files nobody uses.
  void have_damon() {
    files[kdamonds + "nr_kdamonds"] = "0\n";
    files["/sys/kernel/tracing/events/damon/damon_aggregated/format"] = damon_format;
  }
  static inline const std::string kdamonds = "/sys/kernel/mm/damon/admin/kdamonds/";
  static inline const std::string damon_format =  // of Linux 6.12
      "name: damon_aggregated\n"
      "ID: 533\n"
      "format:\n"
      "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
      "\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n"
      "\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n"
      "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n"
      "\n"
      "\tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n"
      "\tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;\n"
      "\tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;\n"
      "\tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;\n"
      "\tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;\n"
      "\tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;\n"
      "\n"
      "print fmt: \"target_id=%lu nr_regions=%u %lu-%lu: %u %u\", REC->target_id\n";

  /// The ring that was opened last; records that the test puts there are read by its owner.
  struct Trace {
    std::uint64_t tracepoint = 0;
    int thread = 0;
    std::vector<std::byte> bytes;
  };
  std::shared_ptr<Trace> traced;
  int trace(std::uint64_t tracepoint, int thread, std::uint64_t,
            std::unique_ptr<live::TraceRing>& out) override {
    if (const int error = failed(Call::trace)) return error;
    traced = std::make_shared<Trace>(Trace{tracepoint, thread, {}});
    out = std::make_unique<FakeRing>(traced);
    return 0;
  }

  /// A machine whose processors sample as Intel's, AMD's or Arm's do.
  void have_pebs() {
    files["/sys/devices/system/cpu/online"] = "0-1\n";
    const std::string cpu = "/sys/bus/event_source/devices/cpu/";
    files[cpu + "type"] = "4\n";
    files[cpu + "events/mem-loads"] = "event=0xcd,umask=0x1,ldlat=3\n";
    files[cpu + "events/mem-loads-aux"] = "event=0x03,umask=0x82\n";
    files[cpu + "events/mem-stores"] = "event=0xcd,umask=0x2\n";
    files[cpu + "format/event"] = "config:0-7\n";
    files[cpu + "format/umask"] = "config:8-15\n";
    files[cpu + "format/ldlat"] = "config1:0-15\n";
    has_samples = true;
  }
  void have_ibs() {
    files["/sys/devices/system/cpu/online"] = "0-1\n";
    const std::string ibs = "/sys/bus/event_source/devices/ibs_op/";
    files[ibs + "type"] = "9\n";
    files[ibs + "format/cnt_ctl"] = "config:19\n";
    files[ibs + "format/l3missonly"] = "config:16\n";
    has_samples = true;
  }
  void have_spe() {
    const std::string spe = "/sys/bus/event_source/devices/arm_spe_0/";
    files[spe + "type"] = "10\n";
    files[spe + "cpumask"] = "0-1\n";
    files[spe + "caps/min_interval"] = "1024\n";
    files[spe + "format/jitter"] = "config:16\n";
    files[spe + "format/load_filter"] = "config:33\n";
    files[spe + "format/store_filter"] = "config:34\n";
    files[spe + "format/event_filter"] = "config1:0-63\n";
    has_samples = true;
  }
  static inline const std::string midr =
      "/sys/devices/system/cpu/cpu0/regs/identification/midr_el1";
  /// One that marks pages for hinting faults.
  void have_hints() {
    files["/sys/devices/system/cpu/online"] = "0-1\n";
    files[live::balancing_file] = "0\n";
    files[live::scan_period_file] = "60000\n";
    has_samples = true;
  }
  bool has_samples = false;  // else there is no such event
  /// What is sampled on a processor. Whenever its ring is read, `sampling` may put records there.
  struct Sampled {
    std::vector<live::SampledEvent> events;
    std::vector<std::uint64_t> periods;
    std::vector<std::byte> bytes;
    std::vector<std::byte> area;        // all that was ever written there
    std::uint64_t told = 0, taken = 0;  // so much of it
    int resumed = 0;                    // times
  };
  std::map<int, std::shared_ptr<Sampled>> sampled;  // by processor; those opened last
  std::function<void(Sampled&)> sampling;
  std::function<void(Sampled&)> drains;  // what is in an area is told, when a period is set
  int sample(std::span<const live::SampledEvent> events, int processor,
             std::unique_ptr<live::SampleRing>& out) override {
    if (const int error = failed(Call::sample)) return error;
    if (!has_samples) return ENOENT;
    auto& here = sampled[processor];
    here = std::make_shared<Sampled>();
    here->events.assign(events.begin(), events.end());
    for (const live::SampledEvent& event : events)
      here->periods.push_back(event.attributes.sample_period);
    out = std::make_unique<FakeSampleRing>(*this, here);
    return 0;
  }

  /// An emulated machine, with the ring of its sampler among other PCI devices.
  void have_ring() {
    files[pci + "00:00.0/vendor"] = files[pci + "00:03.0/vendor"] = "0x8086\n";
    files[pci + "00:00.0/device"] = "0x1237\n";
    files[pci + "00:03.0/device"] = "0x1110\n";
    files[pci + "00:04.0/vendor"] = "0x1af4\n";
    files[pci + "00:04.0/device"] = "0x1110\n";
    files[pci + "00:04.0/enable"] = "0\n";
    device = std::make_shared<std::vector<std::byte>>(emulate::ring_bytes);
    ring() = {};
    ring().magic = emulate::ring_magic;
    ring().version = emulate::ring_version;
    ring().record_bytes = sizeof(emulate::SampleRecord);
    ring().records = emulate::ring_records;
  }
  static inline const std::string pci = "/sys/bus/pci/devices/0000:";
  std::shared_ptr<std::vector<std::byte>> device;  // its memory; null: it cannot be mapped
  [[nodiscard]] emulate::SampleRing& ring() const {
    return *reinterpret_cast<emulate::SampleRing*>(device->data());
  }
  /// Where the sample of this number stands.
  [[nodiscard]] emulate::SampleRecord& record(std::uint64_t number) const {
    return reinterpret_cast<emulate::SampleRecord*>(
        device->data() + emulate::ring_header_bytes)[number % emulate::ring_records];
  }
  int map_device(const std::string& path, std::unique_ptr<live::DeviceMemory>& out) override {
    asked = path;
    if (const int error = failed(Call::map_device)) return error;
    if (!device || path != pci + "00:04.0/resource2") return ENOENT;
    out = std::make_unique<FakeDevice>(device);
    return 0;
  }

  std::vector<int> hinted;  // nodes of programs that are started now
  int hint(std::span<const int> nodes) override {
    if (const int error = failed(Call::hint)) return error;
    hinted.assign(nodes.begin(), nodes.end());
    return 0;
  }

  int populated(int pid, std::uint64_t begin, std::uint64_t end,
                std::vector<live::Populated>& out) override {
    if (const int error = failed(Call::populated)) return error;
    const auto at = processes.find(pid);
    if (at == processes.end()) return ENOENT;
    const Process& process = at->second;
    const std::size_t from = out.size();
    for (auto each = process.pages.lower_bound(begin); each != process.pages.end(); ++each) {
      const auto& [address, found] = *each;
      if (address >= end) break;
      if (found.zero && has_scan) continue;
      const bool is_huge = has_scan && process.huge.contains(address - address % huge);
      if (out.size() > from && out.back().end == address && out.back().huge == is_huge) {
        out.back().end += page;
      } else {
        out.push_back({address, address + page, is_huge});
      }
    }
    return 0;
  }

  int soft_dirty(int pid, std::uint64_t begin, std::uint64_t end,
                 std::vector<live::Populated>& out) override {
    if (const int error = failed(Call::soft_dirty)) return error;
    if (pid == ::getpid()) {  // which writes to its page between two questions
      if (std::exchange(own_is_written_, true) && has_soft_dirty) out.push_back({begin, end});
      return 0;
    }
    const auto at = processes.find(pid);
    if (at == processes.end()) return ENOENT;
    const std::set<std::uint64_t>& dirty = at->second.dirty;
    for (auto each = dirty.lower_bound(begin); each != dirty.end() && *each < end; ++each)
      if (has_soft_dirty && at->second.pages.contains(*each)) out.push_back({*each, *each + page});
    return 0;
  }

  long move_pages(int pid, std::span<const std::uint64_t> addresses, std::span<const int> nodes,
                  std::span<int> statuses) override {
    const bool asks = nodes.empty();
    if (const int error = failed(asks ? Call::query : Call::move)) return -error;
    const auto at = processes.find(pid);
    if (at == processes.end()) return -ESRCH;
    Process& process = at->second;
    if (process.foreign) return -EPERM;
    if (asks) {
      ++queries;
      for (std::size_t i = 0; i < addresses.size(); ++i)
        statuses[i] = node_of(process, addresses[i]);
      return 0;
    }
    moves.push_back({pid, nodes[0], addresses.size()});
    bool silent = false;  // behind a pinned page nothing is reported
    long unreported = 0;
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      if (static_cast<std::size_t>(nodes[i]) >= sizes.size()) return -ENODEV;
      if (!process.nodes.contains(nodes[i])) return -EACCES;
      int status = move(process, addresses[i], nodes[i]);
      if (status == -ENOMEM) return -ENOMEM;  // without a word about those before
      if (status == -EBUSY) silent = true;
      if (silent) {
        ++unreported;
      } else {
        statuses[i] = status;
      }
    }
    if (nodes[0] == 0) most_on_node_0 = std::max(most_on_node_0, used(0));
    return unreported;
  }

 private:
  int clear(int pid, const std::string& text) {
    if (text != "4") return EINVAL;
    if (pid == ::getpid()) {
      own_is_written_ = false;
      return 0;
    }
    const auto at = processes.find(pid);
    if (at == processes.end()) return ENOENT;
    if (at->second.foreign) return EACCES;
    at->second.dirty.clear();
    return 0;
  }
  bool own_is_written_ = true;
  class FakeRing final : public live::TraceRing {
   public:
    explicit FakeRing(std::shared_ptr<Trace> trace) : trace_(std::move(trace)) {}
    void read(std::vector<std::byte>& out) override { out = trace_->bytes; }
    void take(std::size_t bytes) override {
      trace_->bytes.erase(trace_->bytes.begin(),
                          trace_->bytes.begin() + static_cast<std::ptrdiff_t>(bytes));
    }

   private:
    std::shared_ptr<Trace> trace_;
  };

  class FakeSampleRing final : public live::SampleRing {
   public:
    FakeSampleRing(FakeKernel& kernel, std::shared_ptr<Sampled> sampled)
        : kernel_(kernel), sampled_(std::move(sampled)) {}
    void read(std::vector<std::byte>& out) override {
      if (kernel_.sampling) kernel_.sampling(*sampled_);
      out = sampled_->bytes;
    }
    void take(std::size_t bytes) override {
      sampled_->bytes.erase(sampled_->bytes.begin(),
                            sampled_->bytes.begin() + static_cast<std::ptrdiff_t>(bytes));
    }
    int set_period(std::size_t event, std::uint64_t period) override {
      if (const int error = kernel_.failed(Call::period)) return error;
      sampled_->periods.at(event) = period;
      if (kernel_.drains) kernel_.drains(*sampled_);
      return 0;
    }
    std::uint64_t area_written() override { return sampled_->told; }
    bool read_area(std::uint64_t begin, std::uint64_t bytes, std::vector<std::byte>& out) override {
      const std::vector<std::byte>& area = sampled_->area;
      if (begin < sampled_->taken || begin > area.size() || bytes > area.size() - begin)
        return false;
      const auto from = area.begin() + static_cast<std::ptrdiff_t>(begin);
      out.assign(from, from + static_cast<std::ptrdiff_t>(bytes));
      return true;
    }
    void take_area(std::uint64_t end) override { sampled_->taken = end; }
    int resume() override {
      ++sampled_->resumed;
      return kernel_.failed(Call::resume);
    }

   private:
    FakeKernel& kernel_;
    std::shared_ptr<Sampled> sampled_;
  };

  class FakeDevice final : public live::DeviceMemory {
   public:
    explicit FakeDevice(std::shared_ptr<std::vector<std::byte>> memory)
        : memory_(std::move(memory)) {}
    std::span<std::byte> bytes() override { return *memory_; }

   private:
    std::shared_ptr<std::vector<std::byte>> memory_;
  };

  int failed(Call call) { return fail ? fail(call) : 0; }
  [[nodiscard]] bool is_below_a_kdamond(const std::string& path) const {
    const auto number = files.find(kdamonds + "nr_kdamonds");
    if (!path.starts_with(kdamonds) || number == files.end()) return false;
    for (int i = 0; i < std::atoi(number->second.c_str()); ++i)
      if (path.starts_with(kdamonds + std::to_string(i) + "/")) return true;
    return false;
  }

  static int node_of(const Process& process, std::uint64_t address) {
    const auto at = process.pages.find(address);
    if (at == process.pages.end()) return is_mapped(process, address) ? -ENOENT : -EFAULT;
    return at->second.zero ? -EFAULT : at->second.node;
  }
  static bool is_mapped(const Process& process, std::uint64_t address) {
    const auto after = process.mappings.upper_bound(address);
    return after != process.mappings.begin() && address < std::prev(after)->second;
  }
  /// One address, and with it the whole of a huge page.
  int move(Process& process, std::uint64_t address, int node) {
    const int before = node_of(process, address);
    if (before < 0 || before == node) return before;
    const bool is_huge = process.huge.contains(address - address % huge) ||
                         process.parts.contains(address - address % huge);
    const std::uint64_t begin = is_huge ? address - address % huge : address;
    const std::uint64_t end = begin + (is_huge ? huge : page);
    const auto first = process.pages.lower_bound(begin);
    const auto last = process.pages.lower_bound(end);
    for (auto each = first; each != last; ++each) {
      if (each->second.mapped_by > 1) return -EACCES;
      if (each->second.pinned) return -EBUSY;
    }
    const auto count = static_cast<std::uint64_t>(std::distance(first, last));
    clock += Nanos{20000} * static_cast<std::int64_t>(count);
    if (free(node) < count) return -ENOMEM;
    for (auto each = first; each != last; ++each) each->second.node = node;
    return node;
  }
};

/// A look at all processes, of which the policy is told, as by a loop of one step.
inline int look_at(live::LiveMemory& memory, Policy& policy, Nanos now) {
  live::BlockChanges changes;
  const int error = memory.look(changes);
  memory.tell(changes, policy, now);
  return error;
}

}  // namespace tt::test
