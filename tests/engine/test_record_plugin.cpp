// SPDX-License-Identifier: MIT

// The observer of the emulation sampler, fed with accesses of this very process: what reaches the
// spool, by page, kind and pattern, and on which clock. The emulator around it is tested from
// Python.
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "check.hpp"
#include "core/rng.hpp"
#include "record/assemble.hpp"
#include "record/plugin/observer.hpp"
#include "scratch.hpp"
#include "trace/reader.hpp"
#include "trace/stream.hpp"

using tt::AccessKind;
using tt::record::ObservedThread;
using tt::record::Observer;
using tt::record::ObserverOptions;
using tt::record::Pattern;

namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t line = 64;

/// Memory of this process, on whole pages, as a program would have it.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    at_ = static_cast<char*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~Memory() { ::munmap(at_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uint64_t>(at_) + offset;
  }
  [[nodiscard]] std::uint64_t& word(std::size_t offset) {
    return *reinterpret_cast<std::uint64_t*>(at_ + offset);
  }
  [[nodiscard]] std::size_t size() const { return bytes_; }

 private:
  std::size_t bytes_;
  char* at_;
};

/// A recording of one process under test.
struct Recording {
  explicit Recording(double llc_mib = 1, double interval_ms = 5) {
    options.folder = scratch.path.string();
    options.llc_mib = llc_mib;
    options.interval_ms = interval_ms;
  }

  using Counts = std::map<Pattern, std::array<std::uint64_t, 2>>;
  struct Seen {
    Counts counts;
    tt::trace::StreamInfo info;
    tt::record::SpoolSummary summary;
    std::map<std::uint32_t, std::uint64_t> pages;
    double compute_ns = 0;
  };
  Seen read(double block_ms = 1, bool consume = false) {
    tt::trace::StreamInfo info{.workload = "w", .input = "i"};
    for (const char* name : {"random", "sequential", "dependent", "resident"})
      info.classes.push_back({.name = name, .mlp = 4});
    info.lanes.push_back({.name = "all"});
    Seen seen;
    const auto file = scratch.file("out.tts");
    seen.info = tt::record::assemble(scratch.path, file, info,
                                     {.block_ms = block_ms, .threads = 0, .consume = consume},
                                     seen.summary);
    const tt::trace::Reader reader(file);
    reader.verify();
    tt::trace::Block block;
    for (std::uint64_t i = 0; i < seen.info.blocks; ++i) {
      reader.read(i, block);
      for (const double ns : block.compute_ns) seen.compute_ns += ns;
      for (const auto& segment : block.segments) {
        seen.counts[static_cast<Pattern>(segment.stream_class)][index(segment.kind)] += segment.sum;
        for (std::size_t k = 0; k < segment.pages.size(); ++k)
          seen.pages[segment.pages[k]] += segment.counts[k];
      }
    }
    return seen;
  }

  check::Scratch scratch;
  ObserverOptions options;
};

std::vector<std::uint32_t> shuffled(std::uint32_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  tt::Rng rng{7};
  for (std::uint32_t i = count - 1; i > 0; --i) std::swap(order[i], order[rng.below(i + 1)]);
  return order;
}

}  // namespace

TEST("observer: what the table of recent lines answers is what a plain table of 512 would") {
  Recording recording;
  Observer observer(recording.options);
  ObservedThread thread;
  observer.begin(thread);
  std::map<std::uint64_t, std::pair<std::uint64_t, bool>> plain;  // place -> line, dirty
  // Lines with the same place and with places side by side, at the ends of what an address may be.
  std::vector<std::uint64_t> lines;
  for (const std::uint64_t first : {0UL, 4096UL, (1UL << 41) - 2048})
    for (const std::uint64_t further : {0, 1, 2, 510, 511, 512, 513, 1024, 1025, 1535})
      lines.push_back(first + further);
  tt::Rng rng{11};
  std::array<std::uint64_t, 2> answered{};
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t number = lines[rng.below(lines.size())];
    const std::uint64_t address = number * line + rng.below(line);
    const bool store = rng.below(3) == 0;
    const auto found = plain.find(number % 512);
    const bool there = found != plain.end() && found->second.first == number;
    const bool expected = there && (!store || found->second.second);
    CHECK_EQ(thread.answers(address, store), expected);
    answered[expected ? 1 : 0] += 1;
    observer.touch(thread, address, 1, store);  // as load() and store(), without looking there
    if (!expected) plain[number % 512] = {number, store};
    CHECK(thread.answers(address, false));
    CHECK_EQ(thread.answers(address, true), plain[number % 512].second);
  }
  CHECK(answered[0] > 10'000);
  CHECK(answered[1] > 10'000);
}

TEST("observer: a sweep misses each line once, sequentially, and a small array only at first") {
  Recording recording;
  Memory memory(8 << 20);
  {
    Observer observer(recording.options);
    ObservedThread thread;
    observer.begin(thread);
    observer.map(thread, memory.address(), memory.size(), "table");
    for (int round = 0; round < 2; ++round)
      for (std::size_t i = 0; i < memory.size(); i += 8) observer.load(thread, memory.address(i));
    for (int round = 0; round < 50; ++round)
      for (std::size_t i = 0; i < 64 * line; i += 8) observer.load(thread, memory.address(i));
    observer.finish(&thread);
  }
  auto seen = recording.read();
  const std::uint64_t lines = memory.size() / line;
  // The last sweep's beginning has left the cache (1 of 8 MiB), and comes back once.
  CHECK_EQ(seen.info.accesses, 2 * lines + 64);
  CHECK_EQ(seen.counts[Pattern::sequential][0] + seen.counts[Pattern::random][0],
           seen.info.accesses);
  CHECK(seen.counts[Pattern::random][0] <= 3);
  CHECK_EQ(seen.info.objects.size(), 1u);
  CHECK_EQ(seen.info.objects[0].site, "table");
  CHECK_EQ(seen.pages.size(), memory.size() / page);
  CHECK_EQ(seen.pages.rbegin()->second, 2 * page / line);
}

TEST(
    "observer: random loads miss as the cache is too small for them; the same seed misses the "
    "same") {
  std::vector<std::uint64_t> misses;
  for (int run = 0; run < 2; ++run) {
    Recording recording;
    Memory memory(4 << 20);
    {
      Observer observer(recording.options);
      ObservedThread thread;
      observer.begin(thread);
      observer.map(thread, 1 << 30, memory.size(), "table");
      observer.adopt(memory.address() - (1 << 30));  // the program sees it elsewhere
      tt::Rng rng{3};
      for (int i = 0; i < 200'000; ++i) {
        observer.load(thread, (1 << 30) + rng.below(memory.size()) / 8 * 8);
        observer.instructions(thread, 10);
      }
      observer.finish(&thread);
    }
    auto seen = recording.read();
    // A cache of a quarter of the table keeps a quarter of the lines.
    CHECK_NEAR(static_cast<double>(seen.info.accesses), 150'000, 3'000);
    CHECK(seen.counts[Pattern::random][0] > seen.info.accesses * 98 / 100);
    CHECK_EQ(seen.compute_ns, 200'000 * 10 * 0.5 / 2.2);
    misses.push_back(seen.info.accesses);
    misses.push_back(seen.info.blocks);
  }
  CHECK_EQ(misses[0], misses[2]);
  CHECK_EQ(misses[1], misses[3]);
}

TEST(
    "observer: a chase through pointers is dependent, loads through an array of pointers are not") {
  constexpr std::uint32_t nodes = 1 << 15;
  const auto order = shuffled(nodes);
  for (const bool chase : {true, false}) {
    Recording recording(0.25);
    Memory memory(nodes * 2 * line);
    Memory table(nodes * 8);
    {
      Observer observer(recording.options);
      ObservedThread thread;
      observer.begin(thread);
      observer.map(thread, memory.address(), memory.size(), "nodes");
      observer.map(thread, table.address(), table.size(), "table");
      const auto node = [&](std::uint32_t i) { return order[i % nodes] * 2 * line; };
      for (std::uint32_t i = 0; i < nodes; ++i) {
        if (chase) memory.word(node(i) + 8) = memory.address(node(i + 1));
        table.word(i * 8) = memory.address(node(i));
      }
      for (std::uint32_t i = 0; i < nodes; ++i) {
        if (!chase) observer.load(thread, table.address(i * 8));
        observer.load(thread, memory.address(node(i) + 8));
      }
      observer.finish(&thread);
    }
    auto seen = recording.read();
    const auto dependent = seen.counts[Pattern::dependent][0];
    if (chase)
      CHECK(dependent > nodes * 98 / 100);
    else
      CHECK(dependent < nodes * 2 / 100);
    CHECK_NEAR(static_cast<double>(chase ? dependent : seen.counts[Pattern::random][0]), nodes,
               nodes * 0.02);
  }
}

TEST(
    "observer: stores count when they make a line dirty; one whose line was there fetches "
    "nothing") {
  Recording recording;
  Memory memory(512 << 10);
  constexpr std::uint64_t lines = (512 << 10) / line;
  {
    Observer observer(recording.options);
    ObservedThread thread;
    observer.begin(thread);
    observer.map(thread, memory.address(), memory.size(), "table");
    const auto all = [&](auto touch) {
      for (std::size_t i = 0; i < memory.size(); i += line) touch(memory.address(i));
    };
    all([&](std::uint64_t at) { observer.load(thread, at); });   // fetched
    all([&](std::uint64_t at) { observer.store(thread, at); });  // dirty, was there
    all([&](std::uint64_t at) { observer.store(thread, at); });  // dirty already
    all([&](std::uint64_t at) { observer.load(thread, at); });   // there
    observer.drain(thread);
    // Only the fetches stalled: one in a row of 8, none of the stores.
    CHECK_NEAR(static_cast<double>(observer.now_ns()), lines * 90.0 / 8, lines);
    observer.touch(thread, memory.address(), memory.size(), true);  // likewise
    observer.finish(&thread);
  }
  auto seen = recording.read();
  CHECK_EQ(seen.info.accesses, 2 * lines);
  CHECK_EQ(seen.counts[Pattern::resident][1], lines);
  CHECK_EQ(seen.counts[Pattern::sequential][1] + seen.counts[Pattern::random][1], 0u);
}

TEST("observer: the clock is instructions and stalls, and blocks end by it") {
  Recording recording(1, 1);
  Memory memory(64 << 10);
  {
    Observer observer(recording.options);
    ObservedThread thread;
    observer.begin(thread);
    observer.map(thread, memory.address(), memory.size(), "table");
    for (int i = 0; i < 4400; ++i) {
      observer.load(thread, memory.address(static_cast<std::size_t>(i) % 1024 * line));
      observer.instructions(thread, 100'000);
    }
    // 440 M instructions of half a cycle at 2.2 GHz are 100 ms; the misses are far below 1 ms.
    observer.drain(thread);
    CHECK_NEAR(static_cast<double>(observer.now_ns()), 100e6, 1e6);
    observer.finish(&thread);
  }
  const auto seen = recording.read(1);
  CHECK_NEAR(static_cast<double>(seen.info.blocks), 100, 40);  // intervals are 1 ms at most
  CHECK_NEAR(seen.compute_ns, 100e6, 1);
  CHECK_EQ(seen.summary.threads, 1u);
  CHECK_EQ(seen.summary.error_share, 0.0);
  CHECK_EQ(seen.summary.open.size(), 0U);
}

TEST("observer: threads that run side by side share the time, one after the other add up") {
  for (const bool together : {true, false}) {
    Recording recording;
    Memory memory(64 << 10);
    {
      Observer observer(recording.options);
      ObservedThread first;
      ObservedThread second;
      observer.begin(first);
      observer.map(first, memory.address(), memory.size(), "table");
      const auto run = [&](ObservedThread& thread) {
        for (int i = 0; i < 100; ++i) {
          observer.load(thread, memory.address(static_cast<std::size_t>(i) * line));
          observer.instructions(thread, 440'000);  // 0.1 ms
        }
        observer.drain(thread);
      };
      // However the host runs them: the second begins when its creator made it.
      if (together) observer.begin(second, &first);
      run(first);
      if (!together) observer.begin(second);
      run(second);
      CHECK_NEAR(static_cast<double>(observer.now_ns()), together ? 10e6 : 20e6, 0.5e6);
      observer.finish(&second);
    }
    const auto seen = recording.read();
    CHECK_EQ(seen.summary.threads, together ? 2u : 1u);
    CHECK_NEAR(seen.compute_ns, 20e6, 1);
  }
}

TEST("observer: memory that is mapped again is new memory, discarded memory too") {
  Recording recording(0.0625);
  Memory memory(1 << 20);
  {
    Observer observer(recording.options);
    ObservedThread thread;
    observer.begin(thread);
    const auto sweep = [&] {
      for (std::size_t i = 0; i < memory.size(); i += line)
        observer.load(thread, memory.address(i));
    };
    observer.map(thread, memory.address(), memory.size(), "first");
    sweep();
    observer.unmap(thread, memory.address(), memory.size());
    observer.map(thread, memory.address(), memory.size(), "second");
    sweep();
    observer.discard(thread, memory.address(), memory.size());
    sweep();
    observer.unmap(thread, memory.address(), memory.size());
    observer.finish(&thread);
  }
  const auto seen = recording.read();
  std::map<std::string, std::uint64_t> pages;
  for (const auto& object : seen.info.objects) pages[object.site] += object.pages;
  CHECK_EQ(pages["first"], memory.size() / page);
  CHECK_EQ(pages["second"], 2 * memory.size() / page);
  CHECK_EQ(pages.size(), 2u);
  CHECK_EQ(seen.pages.size(), 3 * memory.size() / page);
  for (const auto& [number, count] : seen.pages) CHECK_EQ(count, page / line);
}

TEST(
    "observer: accesses to memory that is mapped nowhere are left out; what was there before us is "
    "found") {
  Recording recording;
  Memory memory(64 << 10);
  static std::array<char, 8192> ours{};
  {
    Observer observer(recording.options);
    ObservedThread thread;
    observer.begin(thread);
    observer.map(thread, memory.address(), memory.size(), "table");
    observer.store(thread, memory.address());
    observer.store(thread, 0x1000);  // nothing is there: a store that came before an unmap
    observer.store(thread, reinterpret_cast<std::uint64_t>(ours.data()));
    observer.finish(&thread);
  }
  const auto seen = recording.read();
  CHECK_EQ(seen.info.accesses, 2u);
  std::set<std::string> sites;
  for (const auto& object : seen.info.objects) sites.insert(object.site);
  CHECK_EQ(sites.size(), 2u);
  CHECK(sites.contains("table"));
  CHECK(!sites.contains("unknown"));
}

TEST(
    "observer: a forked child has a spool of its own, and what its parent had seen stays the "
    "parent's") {
  Recording recording;
  Memory memory(256 << 10);
  {
    Observer observer(recording.options);
    ObservedThread thread;
    observer.begin(thread);
    observer.map(thread, memory.address(), memory.size(), "table");
    const auto sweep = [&](std::size_t bytes) {
      for (std::size_t i = 0; i < bytes; i += line) observer.store(thread, memory.address(i));
    };
    sweep(64 << 10);
    observer.before_fork();
    const pid_t child = ::fork();
    if (child == 0) {
      observer.after_fork_in_child();
      observer.begin(thread);
      for (std::size_t i = 128 << 10; i < 256 << 10; i += line)
        observer.store(thread, memory.address(i));
      observer.finish(&thread);
      ::_exit(0);
    }
    observer.after_fork_in_parent();
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK_EQ(status, 0);
    observer.finish(&thread);
  }
  const auto seen = recording.read();
  CHECK_EQ(seen.summary.processes, 2u);
  CHECK_EQ(seen.info.accesses, (64u << 10) / line + (128u << 10) / line);
  CHECK_EQ(seen.pages.size(), (64u << 10) / page + (128u << 10) / page);
  CHECK_EQ(seen.summary.open.size(), 0U);
}

TEST("observer: a process that is killed leaves all but the last sixteenth") {
  Recording recording;
  Memory memory(4 << 20);
  const pid_t child = ::fork();
  if (child == 0) {
    Observer observer(recording.options);
    ObservedThread thread;
    observer.begin(thread);
    observer.map(thread, memory.address(), memory.size(), "table");
    for (std::size_t i = 0; i < memory.size(); i += line) {
      observer.store(thread, memory.address(i));
      observer.instructions(thread, 100);
    }
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  const auto seen = recording.read();
  const std::uint64_t lines = memory.size() / line;
  CHECK(seen.info.accesses <= lines);
  CHECK(seen.info.accesses > lines * 9 / 10);
  CHECK_EQ(seen.summary.open.size(), 1U);
}

TEST("observer: after the end nothing is recorded, and no door is closed") {
  Recording recording;
  Memory memory(64 << 10);
  Observer observer(recording.options);
  ObservedThread thread;
  observer.begin(thread);
  observer.map(thread, memory.address(), memory.size(), "table");
  observer.store(thread, memory.address());
  observer.finish(&thread);
  for (std::size_t i = 0; i < memory.size(); i += line) observer.store(thread, memory.address(i));
  observer.instructions(thread, 1'000'000);
  observer.unmap(thread, memory.address(), memory.size());
  observer.discard(thread, memory.address(), memory.size());
  observer.map(thread, memory.address(), memory.size(), "again");
  observer.flush(thread);
  observer.finish(&thread);
  CHECK_EQ(recording.read().info.accesses, 1u);
}

TEST("observer: a recording that is used up gives the same stream and its disk space back") {
  Recording recording(0.0625);
  Memory memory(64 << 20);
  {
    Observer observer(recording.options);
    ObservedThread thread;
    observer.begin(thread);
    observer.map(thread, memory.address(), memory.size(), "table");
    tt::Rng rng{5};
    for (int i = 0; i < 400'000; ++i) {
      observer.store(thread, memory.address(rng.below(memory.size())));
      observer.instructions(thread, 1000);
    }
    observer.finish(&thread);
  }
  const auto blocks = [&] {
    std::uint64_t sum = 0;
    for (const auto& entry : std::filesystem::directory_iterator(recording.scratch.path)) {
      struct stat found{};
      if (entry.path().extension() == ".spool" && ::stat(entry.path().c_str(), &found) == 0)
        sum += static_cast<std::uint64_t>(found.st_blocks) * 512;
    }
    return sum;
  };
  const std::uint64_t before = blocks();
  const auto kept = recording.read();
  CHECK_EQ(blocks(), before);
  const auto consumed = recording.read(1, true);
  CHECK_EQ(consumed.info.accesses, kept.info.accesses);
  CHECK(consumed.pages == kept.pages);
  CHECK(before > 2 * tt::record::spool_piece_bytes - 1);
  CHECK(blocks() <= before - tt::record::spool_piece_bytes);
}

TEST("observer: an operation has its own misses, and more than enough are a sample") {
  Recording recording;
  Memory memory(8 << 20);
  constexpr std::uint64_t count = 100'000;
  {
    Observer observer(recording.options);
    ObservedThread thread;
    ObservedThread other;
    observer.begin(thread);
    observer.begin(other, &thread);
    observer.map(thread, memory.address(), memory.size(), "table");
    observer.begin_operation(other);  // under way all the time, and given up by its thread's end
    const auto lines = memory.size() / line;
    tt::Rng rng{3};
    for (std::uint64_t i = 0; i < count; ++i) {
      observer.begin_operation(thread);
      observer.load(other, memory.address(rng.below(lines) * line));
      for (int k = 0; k < 3; ++k) observer.load(thread, memory.address(rng.below(lines) * line));
      observer.instructions(thread, 100);
      observer.end_operation(thread);
      observer.load(thread, memory.address(rng.below(lines) * line));
    }
    observer.end_thread(other);
    observer.finish(&thread);
  }
  const auto seen = recording.read();
  CHECK_EQ(seen.summary.operations, count);
  CHECK_EQ(seen.summary.abandoned, 1U);
  CHECK_EQ(seen.info.operations, count);
  const tt::trace::Reader reader(recording.scratch.file("out.tts"));
  tt::trace::Block block;
  std::uint64_t kept = 0;
  double misses = 0;
  for (std::uint64_t i = 0; i < seen.info.blocks; ++i) {
    reader.read(i, block);
    for (const auto& operation : block.sampled) {
      ++kept;
      CHECK_NEAR(operation.compute_ns, 100 * 0.5 / 2.2, 1e-9);
      for (const auto& access : operation.accesses) misses += access.count;
    }
  }
  CHECK(kept >= 20'000 && kept <= 40'000);
  // Behind a cache of an eighth of the memory.
  CHECK_NEAR(misses / static_cast<double>(kept), 3 * 7 / 8.0, 0.1);
}
