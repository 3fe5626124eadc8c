// SPDX-License-Identifier: MIT

#include "record/perf_decoder.hpp"

#include <linux/perf_event.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <stdexcept>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perf/data_source.hpp"
#include "perf/records.hpp"
#include "record/spool.hpp"

namespace tt::record {

using perf::first_level_hit;
using perf::from_memory;
using perf::get;
using perf::is_load;
using perf::is_store;

const std::uint64_t perf_sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID |
                                       PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR | PERF_SAMPLE_PERIOD |
                                       PERF_SAMPLE_WEIGHT | PERF_SAMPLE_DATA_SRC;

namespace {

/// What perf_sample_type asks for, in this order.
struct Sample {
  std::uint64_t id;
  std::uint64_t ip;
  std::uint32_t pid;
  std::uint32_t tid;
  std::uint64_t time;
  std::uint64_t address;
  std::uint64_t period;
  std::uint64_t weight;
  std::uint64_t source;
};
/// What follows every other record (sample_id_all).
struct Trailer {
  std::uint32_t pid;
  std::uint32_t tid;
  std::uint64_t time;
  std::uint64_t id;
};
struct Mmap2 {
  std::uint32_t pid;
  std::uint32_t tid;
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint64_t offset;
  std::uint64_t file[3];
  std::uint32_t protection;
  std::uint32_t flags;
};
struct Task {  // FORK, EXIT
  std::uint32_t pid;
  std::uint32_t parent;
  std::uint32_t tid;
  std::uint32_t parent_tid;
  std::uint64_t time;
};
struct Lost {
  std::uint64_t id;
  std::uint64_t count;
};

/// A decoded record on its way to a spool.
struct Item {
  enum class Kind : std::uint8_t { access, map, fork, exec, leave, lost };
  std::uint64_t time = 0;
  Kind kind = Kind::access;
  bool store = false;
  std::uint32_t pid = 0;
  std::uint32_t tid = 0;
  std::uint32_t parent = 0;
  std::uint64_t ip = 0;
  std::uint64_t address = 0;
  std::uint64_t amount = 0;  // period, bytes, records lost
  std::string name;
};

/// Which way the samples of one instruction in one thread go.
struct Walk {
  std::uint64_t last = 0;
  double up = 0;  // of the last thirty or so
  double down = 0;
  bool sweeps(std::uint64_t address) {
    if (last != 0 && address != last) {
      up *= 0.97;
      down *= 0.97;
      (address > last ? up : down) += 1;
    }
    last = address;
    return up + down >= 8 && std::max(up, down) >= 0.85 * (up + down);
  }
};

struct Process {
  SpoolWriter spool;
  std::map<std::uint64_t, std::pair<std::uint64_t, std::string>> mappings;
  std::map<std::pair<std::uint32_t, std::uint64_t>, Walk> walks;  // by thread and instruction
  std::unordered_map<std::uint64_t, std::uint64_t> pages;         // samples of each
  double root_sum = 0;                                            // of their square roots
  std::uint64_t kept = 0;
  std::uint32_t threads = 1;
};

}  // namespace

struct PerfDecoder::Impl {
  std::filesystem::path folder;
  std::string sampler;
  std::uint64_t begin_ns = 0;
  std::map<std::uint64_t, PerfEvent> events;
  std::map<std::uint32_t, Process> processes;
  std::vector<Item> items;
  PerfCounts counts;

  [[nodiscard]] std::uint64_t since(std::uint64_t ns) const {
    return ns > begin_ns ? ns - begin_ns : 0;
  }
  Process& process(std::uint32_t pid, std::uint64_t time) {
    const auto [at, made] = processes.try_emplace(pid);
    if (made) {
      const auto path = folder / (std::to_string(pid) + ".spool");
      if (const int error = at->second.spool.open(path.c_str(), sampler.c_str(), since(time));
          error != 0)
        throw std::system_error(error, std::generic_category(), path.string());
      at->second.spool.header()->pid = pid;
      at->second.spool.header()->threads = 1;
    }
    return at->second;
  }

  void decode(const perf_event_header& header, std::span<const std::byte> body) {
    Item item;
    if (header.type == PERF_RECORD_SAMPLE) {
      const auto sample = get<Sample>(body);
      const auto event = events.find(sample.id);
      if (event == events.end())
        throw std::runtime_error("a perf sample of event " + std::to_string(sample.id) +
                                 ", which was not opened");
      ++counts.samples;
      if (!accept(event->second.filter, sample, item)) {
        ++counts.filtered;
        return;
      }
      item.time = sample.time;
      item.pid = sample.pid;
      item.tid = sample.tid;
      item.ip = sample.ip;
      item.address = sample.address;
      // The page-fault event counts by itself and may give no period: it has the one asked for.
      item.amount = sample.period == 0 ? event->second.period : sample.period;
      items.push_back(std::move(item));
      return;
    }
    switch (header.type) {
      case PERF_RECORD_MMAP2: {
        const auto map = get<Mmap2>(body);
        const char* const name = reinterpret_cast<const char*>(body.data()) + sizeof map;
        if (body.size() < sizeof map + sizeof(Trailer)) throw short_record(body.size());
        const std::size_t most = body.size() - sizeof map - sizeof(Trailer);
        item.kind = Item::Kind::map;
        item.pid = map.pid;
        item.address = map.address;
        item.amount = map.bytes;
        item.name.assign(name, strnlen(name, most));
        break;
      }
      case PERF_RECORD_FORK:
      case PERF_RECORD_EXIT: {
        const auto task = get<Task>(body);
        item.kind = header.type == PERF_RECORD_FORK ? Item::Kind::fork : Item::Kind::leave;
        item.pid = task.pid;
        item.parent = task.parent;
        item.tid = task.tid;
        break;
      }
      case PERF_RECORD_COMM:
        if ((header.misc & PERF_RECORD_MISC_COMM_EXEC) == 0) return;
        item.kind = Item::Kind::exec;
        item.pid = get<std::uint32_t>(body);
        break;
      case PERF_RECORD_LOST:
        item.kind = Item::Kind::lost;
        item.amount = get<Lost>(body).count;
        break;
      default:
        return;  // throttling and the like
    }
    if (body.size() < sizeof(Trailer)) throw short_record(body.size());
    const auto trailer = get<Trailer>(body, body.size() - sizeof(Trailer));
    item.time = trailer.time;
    if (item.kind == Item::Kind::lost) item.pid = trailer.pid;
    items.push_back(std::move(item));
  }
  static std::runtime_error short_record(std::size_t size) {
    return std::runtime_error("a perf record of " + std::to_string(size) +
                              " bytes is too short for its type");
  }

  static bool accept(PerfFilter filter, const Sample& sample, Item& item) {
    if (sample.address == 0 || sample.address >> 47 != 0) return false;
    switch (filter) {
      case PerfFilter::loads:
        return is_load(sample.source) && from_memory(sample.source);
      case PerfFilter::stores:
        item.store = true;
        return !first_level_hit(sample.source);
      case PerfFilter::operations:
        item.store = is_store(sample.source);
        return (item.store || is_load(sample.source)) &&
               (item.store ? !first_level_hit(sample.source) : from_memory(sample.source));
      case PerfFilter::faults:
        item.store = true;
        return true;
    }
    return false;
  }

  void write(const Item& item) {
    if (item.kind == Item::Kind::lost) counts.lost += item.amount;
    if (item.pid == 0 || item.pid == ~0U) return;  // of no process (any more)
    Process& to = process(item.pid, item.time);
    to.spool.time(since(item.time));
    switch (item.kind) {
      case Item::Kind::access: {
        const bool sweep = to.walks[{item.tid, item.ip}].sweeps(item.address);
        to.spool.access(item.address, item.store, sweep ? 1 : 0, static_cast<double>(item.amount));
        const auto n = static_cast<double>(to.pages[item.address >> 12]++);
        to.root_sum += std::sqrt(n + 1) - std::sqrt(n);
        ++to.kept;
        ++counts.kept;
        break;
      }
      case Item::Kind::map:
        map(to, item.address, item.amount, item.name);
        break;
      case Item::Kind::fork:
        if (item.pid == item.parent) {
          to.spool.header()->threads = std::max(to.spool.header()->threads, ++to.threads);
        } else if (const auto parent = processes.find(item.parent); parent != processes.end()) {
          const auto inherited = parent->second.mappings;
          for (const auto& [address, mapping] : inherited)
            map(to, address, mapping.first, mapping.second);
        }
        break;
      case Item::Kind::exec:
        for (const auto& [address, mapping] : to.mappings) to.spool.unmap(address, mapping.first);
        to.mappings.clear();
        to.walks.clear();
        break;
      case Item::Kind::leave:
        if (to.threads > 1) --to.threads;
        break;
      case Item::Kind::lost:
        to.spool.header()->dropped += item.amount;
        break;
    }
  }
  static void map(Process& to, std::uint64_t address, std::uint64_t bytes,
                  const std::string& name) {
    const std::size_t slash = name.starts_with("//") ? 1 : name.find_last_of('/');
    const std::string site = name.starts_with("//anon") ? "anonymous"
                             : slash == std::string::npos || name.starts_with("//")
                                 ? name
                                 : name.substr(slash + 1);
    to.mappings.erase(to.mappings.lower_bound(address), to.mappings.lower_bound(address + bytes));
    to.mappings[address] = {bytes, name};
    to.spool.map(address, bytes, site.c_str());
  }
};

PerfDecoder::PerfDecoder(std::filesystem::path folder, std::string sampler, std::uint64_t begin_ns)
    : impl_(std::make_unique<Impl>()) {
  impl_->folder = std::move(folder);
  impl_->sampler = std::move(sampler);
  impl_->begin_ns = begin_ns;
}
PerfDecoder::~PerfDecoder() = default;

void PerfDecoder::add(std::uint64_t id, const PerfEvent& event) { impl_->events[id] = event; }

std::size_t PerfDecoder::feed(std::span<const std::byte> bytes) {
  return perf::each_record(bytes,
                           [this](const auto& header, auto body) { impl_->decode(header, body); });
}

void PerfDecoder::flush(std::uint64_t until_ns) {
  auto& items = impl_->items;
  std::ranges::stable_sort(items, {}, &Item::time);
  std::size_t done = 0;
  for (; done < items.size() && items[done].time < until_ns; ++done) impl_->write(items[done]);
  items.erase(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(done));
}

PerfCounts PerfDecoder::finish() {
  flush(~std::uint64_t{0});
  for (auto& [pid, process] : impl_->processes) {
    auto* const header = process.spool.header();
    header->sampled = static_cast<double>(process.kept);
    // Of a page with n samples, weighted by its accesses: n / sqrt(n) over n.
    if (process.kept > 0)
      header->error_share = process.root_sum / static_cast<double>(process.kept);
    process.spool.close(SpoolState::closed);
  }
  impl_->processes.clear();
  return impl_->counts;
}

}  // namespace tt::record
