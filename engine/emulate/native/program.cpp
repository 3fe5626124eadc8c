// SPDX-License-Identifier: MIT

#include "emulate/native/program.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulate/markers.hpp"

namespace tt::emulate {
namespace {

std::uint64_t now_ns() {
  timespec at{};
  ::clock_gettime(CLOCK_MONOTONIC, &at);
  return static_cast<std::uint64_t>(at.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(at.tv_nsec);
}

/// Pages of a node, or below 0 those that could not be looked at.
struct Resident {
  std::array<std::uint64_t, 2> nodes{};
  std::uint64_t elsewhere = 0, absent = 0;
};

Resident resident(const char* memory, std::uint64_t bytes) {
  constexpr std::uint64_t page = 4096, batch = 1024;
  static void* pages[batch];
  static int status[batch];
  Resident out;
  for (std::uint64_t first = 0; first < bytes; first += batch * page) {
    const std::uint64_t count = std::min(batch, (bytes - first) / page);
    for (std::uint64_t i = 0; i < count; ++i)
      pages[i] = const_cast<char*>(memory) + first + i * page;
    if (::syscall(SYS_move_pages, 0, count, pages, nullptr, status, 0) != 0) {
      out.elsewhere += count;
      continue;
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      if (status[i] < 0)
        ++out.absent;
      else if (status[i] < 2)
        ++out.nodes[static_cast<std::size_t>(status[i])];
      else
        ++out.elsewhere;
    }
  }
  return out;
}

/// Watermarks of the fast node, in pages: sums over its zones (/proc/zoneinfo).
struct Marks {
  unsigned long long min = 0, low = 0, high = 0;
};

Marks marks() {
  Marks out;
  std::FILE* const file = std::fopen("/proc/zoneinfo", "re");
  if (file == nullptr) return out;
  bool here = false;
  int node = 0;
  unsigned long long pages = 0;
  for (char line[256]; std::fgets(line, sizeof(line), file) != nullptr;) {
    if (std::sscanf(line, "Node %d,", &node) == 1) here = node == 0;
    if (!here) continue;
    if (std::sscanf(line, " min %llu", &pages) == 1) out.min += pages;
    if (std::sscanf(line, " low %llu", &pages) == 1) out.low += pages;
    if (std::sscanf(line, " high %llu", &pages) == 1) out.high += pages;
  }
  std::fclose(file);
  return out;
}

}  // namespace

Program& program() {
  static Program only;
  return only;
}

void spin(std::uint64_t nanoseconds) {
  std::uint64_t left = nanoseconds / 2;
#if defined(__x86_64__)
  if (left > 0) __asm__ volatile("1: dec %0\n jnz 1b" : "+r"(left)::"cc");
#else
  for (volatile std::uint64_t i = 0; i < left / 4; i = i + 1) {
  }
#endif
}

std::vector<std::uint64_t> Program::counters() const {
  static char text[1 << 16];
  std::vector<std::uint64_t> out(vmstat.size(), 0);
  const int file = ::open("/proc/vmstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return out;
  text[0] = '\n';
  std::size_t used = 1;
  for (ssize_t got = 0;
       used + 1 < sizeof(text) && (got = ::read(file, text + used, sizeof(text) - 1 - used)) > 0;)
    used += static_cast<std::size_t>(got);
  ::close(file);
  text[used] = 0;
  for (std::size_t i = 0; i < vmstat.size(); ++i) {
    const std::string key = '\n' + vmstat[i] + ' ';
    const char* const at = std::strstr(text, key.c_str());
    out[i] = at == nullptr ? ~std::uint64_t{0} : std::strtoull(at + key.size(), nullptr, 10);
  }
  return out;
}

/// Those that the kernel does not have are left out.
void Program::say_counters(const std::vector<std::uint64_t>& now) const {
  std::fputs("\"vmstat\": {", stdout);
  const char* between = "";
  for (std::size_t i = 0; i < vmstat.size(); ++i) {
    if (now[i] == ~std::uint64_t{0}) continue;
    std::printf("%s\"%s\": %llu", between, vmstat[i].c_str(),
                static_cast<unsigned long long>(now[i] - before_[i]));
    between = ", ";
  }
  std::fputs("}", stdout);
}

void Program::set_up() {
  mark<Marker::instrument>();
  spin(10'000);  // the machine changes over at the end of what it has translated
  set_up_ns_ = now_ns();
}

void Program::begin() {
  const std::uint64_t took = now_ns() - set_up_ns_;
  before_ = counters();
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  minor_ = used.ru_minflt;
  major_ = used.ru_majflt;
  const Marks found = marks();
  std::printf(
      "{\"begin\": true, \"pid\": %d, \"set_up_seconds\": %.9f, \"marks\": [%llu, %llu, %llu]}\n",
      ::getpid(), static_cast<double>(took) * 1e-9, found.min, found.low, found.high);
  mark<Marker::begin>();
  begun_ns_ = reported_ns_ = now_ns();
}

void Program::end(const std::vector<std::string>& kinds, const std::uint64_t* operations,
                  const char* memory, std::uint64_t bytes) {
  const std::uint64_t took = now_ns() - begun_ns_;
  mark<Marker::end>();
  const std::vector<std::uint64_t> now = counters();
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const Resident where = resident(memory, bytes);
  using Long = unsigned long long;
  std::printf("{\"end\": true, \"seconds\": %.9f, \"operations\": {",
              static_cast<double>(took) * 1e-9);
  for (std::size_t i = 0; i < kinds.size(); ++i)
    std::printf("%s\"%s\": %llu", i > 0 ? ", " : "", kinds[i].c_str(), Long{operations[i]});
  std::printf("}, \"resident\": [%llu, %llu], \"elsewhere\": %llu, \"absent\": %llu, ",
              Long{where.nodes[0]}, Long{where.nodes[1]}, Long{where.elsewhere},
              Long{where.absent});
  std::printf("\"faults\": {\"minor\": %ld, \"major\": %ld}, ", used.ru_minflt - minor_,
              used.ru_majflt - major_);
  say_counters(now);
  std::puts("}");
}

bool Program::progress(double done) {
  if (begun_ns_ == 0) return true;
  if (report_ns > 0) {
    const std::uint64_t now = now_ns();
    if (now - reported_ns_ < report_ns) return true;
    reported_ns_ = now;
    std::printf("{\"report\": true, \"second\": %.6f, \"done\": %.4f, ",
                static_cast<double>(now - begun_ns_) * 1e-9, done);
    say_counters(counters());
    std::puts("}");
  } else if (done >= told_ + 0.05) {
    told_ = done;
    std::printf("{\"done\": %.3f}\n", done);
  }
  return true;
}

}  // namespace tt::emulate
