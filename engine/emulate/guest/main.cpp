// SPDX-License-Identifier: MIT

#include <dirent.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "emulate/guest/guest.hpp"

namespace tt::emulate {

void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

std::string contents(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail(path);
  std::string out;
  static char part[1 << 16];
  for (ssize_t got = 0; (got = ::read(file, part, sizeof(part))) > 0;)
    out.append(part, static_cast<std::size_t>(got));
  ::close(file);
  return out;
}

std::uint64_t number(const std::string& text) {
  std::size_t used = 0;
  std::uint64_t value = 0;
  try {
    value = std::stoull(text, &used, 0);
  } catch (const std::logic_error&) {
    used = 0;
  }
  if (used == 0 || used != text.size())
    throw std::runtime_error("found '" + text + "'; must be a number");
  return value;
}

std::uint64_t now_ns() {
  timespec at{};
  ::clock_gettime(CLOCK_MONOTONIC, &at);
  return static_cast<std::uint64_t>(at.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(at.tv_nsec);
}

void bind_to(long node) {
  const unsigned long nodes = node < 0 ? 0 : 1ul << node;
  if (::syscall(SYS_set_mempolicy, node < 0 ? MPOL_DEFAULT : MPOL_BIND, node < 0 ? nullptr : &nodes,
                node < 0 ? 0 : 8 * sizeof(nodes)) != 0)
    fail("set_mempolicy");
}

char* pages(std::size_t bytes) {
  void* const at =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) fail("mmap");
  if (::madvise(at, bytes, MADV_NOHUGEPAGE) != 0 && errno != EINVAL) fail("madvise");
  return static_cast<char*>(at);
}

std::uint64_t free_bytes(const std::string& node) {
  const std::string path = "/sys/devices/system/node/node" + node + "/meminfo";
  const std::string text = contents(path);
  const std::size_t at = text.find("MemFree:");
  if (at == text.npos) throw std::runtime_error(path + ": no MemFree");
  return std::stoull(text.substr(at + 8)) * 1024;
}

int fill(const Words& words) {
  if (words.size() != 2) throw std::runtime_error("fill NODE MIB");
  const std::uint64_t wanted = number(words[1]) << 20;
  constexpr std::uint64_t step = 1 << 20, least = 64 << 10, tolerance = 256 << 10;
  constexpr int attempts = 100;
  int ends[2];
  if (::pipe(ends) != 0) fail("pipe");
  const pid_t child = ::fork();
  if (child < 0) fail("fork");
  if (child > 0) {  // goes on when the child has it
    char done = 0;
    ::close(ends[1]);
    if (::read(ends[0], &done, 1) != 1) throw std::runtime_error("fill: it could not be taken");
    std::printf("{\"node\": %s, \"free_bytes\": %llu}\n", words[0].c_str(),
                static_cast<unsigned long long>(free_bytes(words[0])));
    return 0;
  }
  ::close(ends[0]);
  bind_to(static_cast<long>(number(words[0])));
  // What the kernel holds in lists of its own, and page tables, move the target: it is approached
  // by half of the way, and from below too.
  std::vector<std::pair<char*, std::uint64_t>> taken;
  for (int attempt = 0; attempt < attempts;) {
    const std::uint64_t free = free_bytes(words[0]);
    if (free > wanted + tolerance) {
      const std::uint64_t half = (free - wanted) / 2 / least * least;
      const std::uint64_t bytes = std::clamp(half, least, step);
      taken.emplace_back(pages(bytes), bytes);
      if (::mlock(taken.back().first, bytes) != 0) fail("mlock");
      attempt += half < step;
    } else if (free + tolerance < wanted && !taken.empty()) {
      if (::munmap(taken.back().first, taken.back().second) != 0) fail("munmap");
      taken.pop_back();
      ++attempt;
    } else {
      break;
    }
  }
  if (::write(ends[1], "", 1) != 1) fail("write");
  ::close(ends[1]);
  for (;;) ::pause();
}

int bind(const Words& words) {
  if (words.size() < 2) throw std::runtime_error("bind NODE COMMAND...");
  bind_to(static_cast<long>(number(words[0])));
  std::vector<char*> command;
  for (std::size_t i = 1; i < words.size(); ++i)
    command.push_back(const_cast<char*>(words[i].c_str()));
  command.push_back(nullptr);
  ::execv(command[0], command.data());
  fail(words[1]);
}

int at_once(const Words& words) {
  DIR* const folder = ::opendir("/proc");
  if (folder == nullptr) fail("/proc");
  const sched_param lowest{.sched_priority = 1};
  while (const dirent* const entry = ::readdir(folder)) {
    const std::string pid = entry->d_name;
    if (pid.find_first_not_of("0123456789") != pid.npos) continue;
    std::string name;
    try {
      name = contents("/proc/" + pid + "/comm");
    } catch (const std::runtime_error&) {
      continue;  // it has ended
    }
    if (name.ends_with('\n')) name.pop_back();
    if (std::ranges::find(words, name) == words.end()) continue;
    if (::sched_setscheduler(static_cast<pid_t>(number(pid)), SCHED_FIFO, &lowest) != 0)
      fail("sched_setscheduler: " + name);
  }
  ::closedir(folder);
  return 0;
}

}  // namespace tt::emulate

int main(int count, char** arguments) {
  using namespace tt::emulate;
  struct Command {
    const char* name;
    int (*run)(const Words&);
  };
  constexpr Command commands[] = {{"offsets", offsets},
                                  {"fill", fill},
                                  {"bind", bind},
                                  {"at-once", at_once},
                                  {"measure", measure}};
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string name = count > 1 ? arguments[1] : "";
  try {
    for (const Command& command : commands)
      if (name == command.name) return command.run(Words(arguments + 2, arguments + count));
    throw std::runtime_error("found '" + name +
                             "'; allowed are offsets, fill, bind, "
                             "at-once and measure");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tiertune_guest: %s\n", error.what());
    return 2;
  }
}
