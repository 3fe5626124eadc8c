// SPDX-License-Identifier: MIT

// What memory and the kernel cost in the machine: each figure has a published or configured
// counterpart (docs/emulated.md).
//
// measure memory: ns of a step of a pointer chase (chase), of a line of a sequential read (stream),
//   and of an independent random load (random), on both nodes.
// measure kernel: us of a page that moves, in calls of 512 pages (move) and of one (move_alone); of
//   a hinting fault (hint_fault), without promotion; ns of an entry that a NUMA scan looks at
//   (scan_entry); us of the first touch of a page (first_touch).
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <numeric>

#include "emulate/guest/guest.hpp"
#include "emulate/markers.hpp"

namespace tt::emulate {
namespace {

constexpr std::size_t page = 4096, line = 64;

class Random {
 public:
  std::uint64_t operator()() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    return state_ ^= state_ << 17;
  }

 private:
  std::uint64_t state_ = 88172645463325252ull;
};

void say(const char* name, long node, double value) {
  std::printf("{\"measured\": \"%s\", \"node\": %ld, \"value\": %.4f}\n", name, node, value);
}

/// A cycle through all lines in a random order (Sattolo's algorithm).
char* chain(std::size_t lines) {
  char* const at = pages(lines * line);
  std::vector<std::uint32_t> order(lines);
  std::iota(order.begin(), order.end(), 0u);
  Random random;
  for (std::size_t i = lines - 1; i > 0; --i) std::swap(order[i], order[random() % i]);
  for (std::size_t i = 0; i < lines; ++i) {
    char* const next = at + line * order[(i + 1) % lines];
    std::memcpy(at + line * order[i], &next, sizeof(next));
  }
  return at;
}

void measure_memory(long node) {
  constexpr std::size_t bytes = 32 << 20, lines = bytes / line;
  constexpr std::uint64_t steps = 500'000;
  bind_to(node);
  char* at = chain(lines);
  std::uint64_t begun = now_ns();
  for (std::uint64_t i = 0; i < steps; ++i) std::memcpy(&at, at, sizeof(at));
  const double chase = static_cast<double>(now_ns() - begun) / steps;
  char* const memory = pages(bytes);
  std::memset(memory, 1, bytes);
  std::uint64_t sum = reinterpret_cast<std::uintptr_t>(at);
  const auto load = [&](std::size_t where) {
    std::uint64_t word = 0;
    std::memcpy(&word, memory + where, sizeof(word));
    sum += word;
  };
  begun = now_ns();
  for (std::size_t i = 0; i < lines; ++i) load(i * line);
  const double stream = static_cast<double>(now_ns() - begun) / lines;
  Random random;
  begun = now_ns();
  for (std::uint64_t i = 0; i < steps; ++i) load(random() % lines * line);
  const double loads = static_cast<double>(now_ns() - begun) / steps;
  say("chase", node, chase);
  say("stream", node, stream);
  say("random", node, loads);
  std::printf("{\"sum\": %llu}\n", static_cast<unsigned long long>(sum));  // so that all is read
  bind_to(-1);
}

double move_us(char* memory, std::size_t count, std::size_t batch, int node) {
  std::vector<void*> addresses(batch);
  std::vector<int> nodes(batch, node), status(batch, -1000);
  const std::uint64_t begun = now_ns();
  for (std::size_t first = 0; first + batch <= count; first += batch) {
    for (std::size_t i = 0; i < batch; ++i) addresses[i] = memory + (first + i) * page;
    if (::syscall(SYS_move_pages, 0, batch, addresses.data(), nodes.data(), status.data(),
                  MPOL_MF_MOVE) < 0)
      fail("move_pages");
    for (const int each : status)
      if (each != node) throw std::runtime_error("move_pages: a page did not move");
  }
  return static_cast<double>(now_ns() - begun) / 1e3 / static_cast<double>(count / batch * batch);
}

std::uint64_t vmstat(const std::string& name) {
  std::string text("\n");
  text += contents("/proc/vmstat");
  const std::size_t at = text.find("\n" + name + " ");
  if (at == text.npos) throw std::runtime_error("/proc/vmstat has no " + name);
  return std::stoull(text.substr(at + name.size() + 2));
}

void put(const std::string& path, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) fail(path);
  const bool written = std::fputs(text.c_str(), file) >= 0;
  if (std::fclose(file) != 0 || !written) fail(path);
}

/// Pages come from this node; NUMA balancing arms them, and their faults move none.
void fault_but_stay(unsigned node) {
  constexpr int preferred_many = 5, numa_balancing = 1 << 13;  // of uapi/linux/mempolicy.h
  const unsigned long nodes = 1ul << node;
  if (::syscall(SYS_set_mempolicy, preferred_many | numa_balancing, &nodes, 8 * sizeof(nodes)) != 0)
    fail("set_mempolicy");
}

/// While it computes, a scan runs where the task returns to user space: where it is gone for longer
/// than a tick. Returns for how long it was, in ns.
double compute(std::uint64_t ns) {
  constexpr std::uint64_t tick_ns = 50'000;
  double gone = 0;
  const std::uint64_t until = now_ns() + ns;
  for (std::uint64_t before = now_ns(), now = before; now < until; before = now) {
    now = now_ns();
    if (now - before > tick_ns) gone += static_cast<double>(now - before);
  }
  return gone;
}

/// Lets NUMA balancing arm all pages again and again while it computes, and touches them in
/// between: first where they are to stay, then where they come up.
void measure_scans() {
  const std::string balancing = "/proc/sys/kernel/numa_balancing";
  const std::string knobs = "/sys/kernel/debug/sched/numa_balancing/";
  constexpr std::size_t count = 32 << 20 >> 12;  // pages
  constexpr std::uint64_t rounds = 20, period_ms = 100;
  fault_but_stay(1);
  char* const memory = pages(count * page);
  std::memset(memory, 1, count * page);
  for (const char* const knob : {"scan_delay_ms", "scan_period_min_ms", "scan_period_max_ms"})
    put(knobs + knob, std::to_string(period_ms));
  put(balancing, "2");
  volatile char* const touched = memory;
  const auto touch = [&] {
    const std::uint64_t begun = now_ns();
    for (std::size_t i = 0; i < count; ++i) touched[i * page] = 2;
    return static_cast<double>(now_ns() - begun);
  };
  double scanned_ns = 0, faulted_ns = 0;
  std::uint64_t entries = 0, faults = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t armed = vmstat("numa_pte_updates");
    scanned_ns += compute(period_ms * 1'200'000);
    entries += vmstat("numa_pte_updates") - armed;
    const std::uint64_t seen = vmstat("numa_hint_faults");
    const double first = touch();
    const std::uint64_t found = vmstat("numa_hint_faults") - seen;
    faults += found;
    if (found > 0) faulted_ns += first - touch();
  }
  bind_to(-1);
  double promoted_ns = 0;
  std::uint64_t promoted = 0;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    (void)compute(period_ms * 1'200'000);
    const std::uint64_t seen = vmstat("pgpromote_success");
    const double first = touch();
    promoted += vmstat("pgpromote_success") - seen;
    promoted_ns += first - touch();
    (void)move_us(memory, count, 512, 1);
  }
  put(balancing, "0");
  if (faults == 0 || entries == 0) throw std::runtime_error("NUMA balancing did not scan");
  if (promoted < count) throw std::runtime_error("NUMA balancing promoted next to nothing");
  say("hint_fault", 1, faulted_ns / 1e3 / static_cast<double>(faults));
  say("promoted", 1, promoted_ns / 1e3 / static_cast<double>(promoted));
  say("scan_entry", 1, scanned_ns / static_cast<double>(entries));
}

void measure_kernel() {
  constexpr std::size_t count = 16 << 20 >> 12;
  bind_to(1);
  char* const memory = pages(count * page);
  const std::uint64_t begun = now_ns();
  std::memset(memory, 1, count * page);
  say("first_touch", 1, static_cast<double>(now_ns() - begun) / 1e3 / count);
  bind_to(-1);
  say("move", 0, move_us(memory, count, 512, 0));
  say("move", 1, move_us(memory, count, 512, 1));
  say("move_alone", 0, move_us(memory, 512, 1, 0));
  say("move_alone", 1, move_us(memory, 512, 1, 1));
  if (::munmap(memory, count * page) != 0) fail("munmap");  // or it would be scanned, too
  measure_scans();
}

}  // namespace

int measure(const Words& words) {
  const std::string what = words.empty() ? "" : words[0];
  mark<Marker::instrument>();
  mark<Marker::begin>();
  if (what == "memory") {
    for (const long node : {0, 1}) measure_memory(node);
  } else if (what == "kernel") {
    measure_kernel();
  } else {
    throw std::runtime_error("found '" + what + "'; allowed are memory and kernel");
  }
  mark<Marker::end>();
  return 0;
}

}  // namespace tt::emulate
