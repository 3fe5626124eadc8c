// SPDX-License-Identifier: MIT

#include "record/plugin/system_calls.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/types.hpp"
#include "record/plugin/call_site.hpp"
#include "record/plugin/guest.hpp"

namespace tt::record {
namespace {

std::string file_name(int file) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof(path));
  if (length <= 0) return "file";
  const std::string_view all(path, static_cast<std::size_t>(length));
  return std::string(all.substr(all.rfind('/') + 1));
}

/// Buffers that the kernel filled or read: the first `bytes` of a list.
void touch_vectors(GuestThread& thread, std::uint64_t list, std::uint64_t count,
                   std::uint64_t bytes, bool store) {
  for (std::uint64_t i = 0; i < count && bytes > 0; ++i) {
    std::uint64_t vector[2];  // address, bytes
    if (peek(list + i * sizeof(vector), vector, sizeof(vector)) != sizeof(vector)) return;
    const std::uint64_t part = std::min(vector[1], bytes);
    guest->observer->touch(thread, vector[0], part, store);
    bytes -= part;
  }
}

void touch_message(GuestThread& thread, std::uint64_t message, std::uint64_t bytes, bool store) {
  // struct msghdr: name, its length, then vectors and their number.
  std::uint64_t words[4];
  if (peek(message, words, sizeof(words)) != sizeof(words)) return;
  touch_vectors(thread, words[2], words[3], bytes, store);
}

/// System calls in which a thread may wait for another.
bool waits(std::int64_t number) {
  switch (number) {
    case SYS_read:
    case SYS_readv:
    case SYS_poll:
    case SYS_ppoll:
    case SYS_select:
    case SYS_pselect6:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_accept:
    case SYS_accept4:
    case SYS_connect:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_futex:
    case SYS_wait4:
    case SYS_waitid:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_pause:
    case SYS_rt_sigsuspend:
    case SYS_rt_sigtimedwait:
    case SYS_sched_yield:
    case SYS_semop:
    case SYS_msgrcv:
      return true;
    default:
      return false;
  }
}

/// A signal that the program sends to itself may be its end, as abort() does: nothing comes after.
/// `process` 0 is its group.
void on_signal(GuestThread& thread, std::uint64_t process, std::uint64_t number) {
  constexpr std::array<std::uint64_t, 9> deadly = {SIGABRT, SIGKILL, SIGTERM, SIGINT, SIGQUIT,
                                                   SIGSEGV, SIGBUS,  SIGFPE,  SIGILL};
  const bool self = process == 0 || process == static_cast<std::uint64_t>(::getpid());
  if (self && std::ranges::find(deadly, number) != deadly.end()) guest->observer->flush(thread);
}

/// This thread without the capabilities that execve() takes from a process that has given up root
/// and kept them until then (setpriv, sudo).
class AsExecuted {
 public:
  AsExecuted() {
    if (::geteuid() == 0 || ::syscall(SYS_capget, &head_, before_.data()) != 0) return;
    auto none = before_;
    for (auto& set : none) set.effective = 0;
    changed_ = ::syscall(SYS_capset, &head_, none.data()) == 0;
  }
  ~AsExecuted() {
    if (changed_) ::syscall(SYS_capset, &head_, before_.data());
  }
  AsExecuted(const AsExecuted&) = delete;
  AsExecuted& operator=(const AsExecuted&) = delete;

 private:
  __user_cap_header_struct head_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> before_{};
  bool changed_ = false;
};

/// Whether what this process executes, with the rights and the root folder that it has now, could
/// be put under the emulator and us again.
bool stays() {
  const auto& words = guest->emulator;
  if (words.size() < 2) return false;
  const AsExecuted rights;
  const std::string& last = words.back();  // LIBRARY,NAME=VALUE,...
  const std::string library = last.substr(0, last.find(','));
  return guest->observer->reachable() &&
         ::faccessat(AT_FDCWD, words[0].c_str(), X_OK, AT_EACCESS) == 0 &&
         ::faccessat(AT_FDCWD, library.c_str(), R_OK, AT_EACCESS) == 0;
}

/// Executes `path` under the emulator and us. Returns where that cannot be done: then the program's
/// own call is made, and what it executes (or its error) is not ours.
void execute(GuestThread& thread, const std::string& path, std::vector<std::string> words,
             std::uint64_t environment, int depth = 0) {
  std::array<char, 256> head{};
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t length = ::read(file, head.data(), head.size() - 1);
  ::close(file);
  if (length < 20 && depth == 0 && (length < 2 || head[0] != '#')) return;
  if (head[0] == '#' && head[1] == '!') {
    // As the kernel does: "#!interpreter [one argument]".
    if (depth >= 4 || ::access(path.c_str(), X_OK) != 0) return;
    std::string line(head.data() + 2);
    line.erase(std::min(line.find('\n'), line.size()));
    const auto first = line.find_first_not_of(" \t");
    if (first == std::string::npos) return;
    const auto end = std::min(line.find_first_of(" \t", first), line.size());
    std::vector<std::string> now = {line.substr(first, end - first)};
    const auto rest = line.find_first_not_of(" \t", end);
    if (rest != std::string::npos)
      now.push_back(line.substr(rest, line.find_last_not_of(" \t") - rest + 1));
    now.push_back(path);
    if (!words.empty()) now.insert(now.end(), words.begin() + 1, words.end());
    const std::string interpreter = now.front();
    execute(thread, interpreter, std::move(now), environment, depth + 1);
    return;
  }
  constexpr std::uint8_t x86_64 = 62;
  if (std::memcmp(head.data(),
                  "\x7f"
                  "ELF\x02",
                  5) != 0 ||
      head[18] != x86_64 || ::access(path.c_str(), X_OK) != 0 || words.empty())
    return;
  std::vector<const char*> arguments;
  for (const auto& word : guest->emulator) arguments.push_back(word.c_str());
  for (const auto* word : {"-0", words[0].c_str(), path.c_str()}) arguments.push_back(word);
  for (std::size_t i = 1; i < words.size(); ++i) arguments.push_back(words[i].c_str());
  arguments.push_back(nullptr);
  std::vector<char*> variables;
  for (const std::uint64_t variable : peek_pointers(environment))
    variables.push_back(reinterpret_cast<char*>(variable + guest->base));
  variables.push_back(nullptr);
  guest->observer->flush(thread);
  guest->observer->leave(true);
  ::execve(arguments[0], const_cast<char* const*>(arguments.data()), variables.data());
  guest->observer->leave(false);
}

/// The kernel executes something without us, unless it returns.
void on_leaving(GuestThread& thread) {
  guest->observer->flush(thread);
  guest->observer->leave(true);
  guest->observer->unseen(true);
  thread.leaves = true;
}

void on_execve(GuestThread& thread) {
  const auto& [path, list, environment, d, e, f] = thread.arguments;
  if (stays()) {
    std::vector<std::string> words;
    for (const std::uint64_t word : peek_pointers(list)) words.push_back(peek_text(word));
    execute(thread, peek_text(path), std::move(words), environment);
  }
  on_leaving(thread);
}

}  // namespace

void on_syscall(qemu_plugin_id_t, unsigned vcpu, std::int64_t number, std::uint64_t a,
                std::uint64_t b, std::uint64_t c, std::uint64_t d, std::uint64_t e, std::uint64_t f,
                std::uint64_t, std::uint64_t) {
  GuestThread& thread = thread_of(vcpu);
  thread.arguments = {a, b, c, d, e, f};
  running = &thread;
  switch (number) {
    case SYS_exit_group:
      guest->observer->finish(&thread);
      break;
    case SYS_exit:
      guest->observer->end_thread(thread);
      break;
    case SYS_execve:
      on_execve(thread);
      break;
    case SYS_execveat:
      on_leaving(thread);
      break;
    case SYS_kill:
      on_signal(thread, a, b);
      break;
    case SYS_tgkill:
      on_signal(thread, a, c);
      break;
    case SYS_munmap:  // before: another thread may map the place at once
      guest->observer->unmap(thread, a, b);
      break;
    default:
      if (waits(number)) guest->observer->drain(thread);
  }
}

namespace {

/// What names the memory that is mapped shared. Memory without a file is its mapper's and its
/// children's, which know it by this mapping.
std::uint64_t shared_memory(std::uint64_t flags, int file) {
  struct stat found{};
  if ((flags & MAP_ANONYMOUS) == 0 && ::fstat(file, &found) == 0)
    return Observer::shared_file(major(found.st_dev), minor(found.st_dev), found.st_ino);
  static std::atomic<std::uint64_t> mappings = 0;
  return mix64(static_cast<std::uint64_t>(::getpid()) << 40 ^ ++mappings) | 1;
}

void on_mapped(GuestThread& thread, std::uint64_t address) {
  const auto& [hint, bytes, protection, flags, file, offset] = thread.arguments;
  std::string site;
  if ((flags & MAP_ANONYMOUS) == 0) {
    site = file_name(static_cast<int>(file));
  } else if ((flags & MAP_STACK) != 0) {
    site = "thread stack";
  } else {
    // What is mapped over a mapping is a part of it: the zeroed end of a file's data, pages of a
    // reservation that are taken into use.
    if ((flags & MAP_FIXED) != 0) site = guest->observer->place(address).site;
    if (site.empty()) site = call_site(thread);
  }
  const bool code = (protection & PROT_EXEC) != 0 && (flags & MAP_ANONYMOUS) == 0;
  if (code) guest->probes.map(address, bytes, "/proc/self/fd/" + std::to_string(file), offset);
  const bool shared = (flags & MAP_TYPE) == MAP_SHARED || (flags & MAP_TYPE) == MAP_SHARED_VALIDATE;
  guest->observer->map(thread, address, bytes, site, offset, code,
                       shared ? shared_memory(flags, static_cast<int>(file)) : 0);
}

void on_moved(GuestThread& thread, std::uint64_t address) {
  const std::uint64_t from = thread.arguments[0];
  const std::uint64_t old_bytes = thread.arguments[1];
  const std::uint64_t bytes = thread.arguments[2];
  const auto [site, offset, code, shared] = guest->observer->place(from);
  if (address == from) {
    if (bytes > old_bytes)
      guest->observer->map(thread, from + old_bytes, bytes - old_bytes, site, offset + old_bytes,
                           code, shared);
    else if (bytes < old_bytes)
      guest->observer->unmap(thread, from + bytes, old_bytes - bytes);
    return;
  }
  guest->observer->unmap(thread, from, old_bytes);
  guest->observer->map(thread, address, bytes, site, offset, code, shared);
}

void on_heap(GuestThread& thread, std::uint64_t end) {
  std::uint64_t& before = guest->heap_end;
  if (before != 0 && end > before)
    guest->observer->map(thread, before, end - before, "heap");
  else if (before != 0 && end < before)
    guest->observer->unmap(thread, end, before - end);
  before = end;
}

}  // namespace

void on_return(qemu_plugin_id_t, unsigned vcpu, std::int64_t number, std::int64_t result) {
  GuestThread& thread = thread_of(vcpu);
  Observer& observer = *guest->observer;
  if (waits(number)) observer.waited(thread);
  if (std::exchange(thread.leaves, false)) {
    observer.unseen(false);
    observer.leave(false);
  }
  if (result < 0 && result > -4096) return;
  const auto value = static_cast<std::uint64_t>(result);
  const auto& [a, b, c, d, e, f] = thread.arguments;
  switch (number) {
    case SYS_mmap:
      on_mapped(thread, value);
      break;
    case SYS_mremap:
      on_moved(thread, value);
      break;
    case SYS_brk:
      on_heap(thread, value);
      break;
    case SYS_madvise:
      if (c == MADV_DONTNEED || c == MADV_FREE || c == MADV_REMOVE) observer.discard(thread, a, b);
      break;
    case SYS_shmdt:
      if (const std::uint64_t end = observer.mapping_end(a); end != 0)
        observer.unmap(thread, a, end - a);
      break;
    case SYS_read:
    case SYS_pread64:
    case SYS_recvfrom:
    case SYS_getrandom:
      observer.touch(thread, number == SYS_getrandom ? a : b, value, true);
      break;
    case SYS_write:
    case SYS_pwrite64:
    case SYS_sendto:
      observer.touch(thread, b, value, false);
      break;
    case SYS_readv:
    case SYS_preadv:
      touch_vectors(thread, b, c, value, true);
      break;
    case SYS_writev:
    case SYS_pwritev:
      touch_vectors(thread, b, c, value, false);
      break;
    case SYS_recvmsg:
      touch_message(thread, b, value, true);
      break;
    case SYS_sendmsg:
      touch_message(thread, b, value, false);
      break;
    default:
      break;
  }
}

}  // namespace tt::record
