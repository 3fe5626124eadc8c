// The emulation sampler's half inside the emulator: a plugin of QEMU's user mode.
//
// It hands every load, store and executed instruction of the program to the observer, and keeps it
// told of what is mapped: from the program's system calls, and with the name of who asked for the
// memory. Buffers that the kernel fills and reads on the program's behalf count as the program's
// accesses. A program that the program executes is put under the emulator again.
//
// Who asked. The interface shows no registers, but the return address that a `call` pushes is a
// store: so the top of the stack is known, and a walk up the stack finds the first return address
// into something else than the C and C++ libraries. A heuristic: a stale word may look like one.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "record/plugin/observer.hpp"
#include "record/plugin/qemu.hpp"

extern "C" {
__attribute__((visibility("default"))) int qemu_plugin_version = 1;
__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id,
                                                               const qemu_info_t* info, int argc,
                                                               char** argv);
}

namespace {

using tt::record::ObservedThread;
using tt::record::Observer;

/// A thread of the program, as the emulator numbers them.
struct Thread : ObservedThread {
  std::uint64_t stack = 0;  // where the last call put its return address
  std::array<std::uint64_t, 6> arguments{};
};

constexpr std::size_t max_threads = 1 << 16;

struct Plugin {
  std::unique_ptr<Observer> observer;
  std::uint64_t base = 0;  // guest address + base = ours
  bool base_known = false;
  std::uint64_t heap_end = 0;
  std::vector<std::string> emulator;  // the words that put a program under us
  std::array<Thread*, max_threads> threads{};
};

// The interface's callbacks carry no pointer of ours through all of them.
Plugin* plugin = nullptr;

Thread& thread_of(unsigned vcpu) { return *plugin->threads[vcpu % max_threads]; }

/// Copies from the program's memory, wherever it points: bytes that were there.
std::size_t peek(std::uint64_t address, void* to, std::size_t bytes) {
  const iovec ours{to, bytes};
  const iovec theirs{reinterpret_cast<void*>(address + plugin->base), bytes};
  const ssize_t copied = ::process_vm_readv(::getpid(), &ours, 1, &theirs, 1, 0);
  return copied < 0 ? 0 : static_cast<std::size_t>(copied);
}

/// Up to a zero word, or what cannot be read.
std::vector<std::uint64_t> peek_pointers(std::uint64_t address) {
  std::vector<std::uint64_t> out;
  for (std::uint64_t word = 0; peek(address, &word, sizeof(word)) == sizeof(word) && word != 0;
       address += sizeof(word))
    out.push_back(word);
  return out;
}

std::string peek_text(std::uint64_t address) {
  std::string out;
  for (;;) {
    char part[256];
    // Not beyond the page: what follows may not be there.
    const std::size_t want = std::min(sizeof(part), 4096 - address % 4096);
    if (peek(address, part, want) != want) return {};
    const std::size_t length = ::strnlen(part, want);
    out.append(part, length);
    if (length < want) return out;
    address += want;
  }
}

// ------------------------------------------------------------------------- loads and stores

/// Whether an access reaches into the next line. Vector accesses come in parts of 8 bytes.
bool crosses(qemu_plugin_meminfo_t info, std::uint64_t address) {
  if ((address & 7) == 0 || (address & 63) <= 56) [[likely]]
    return false;
  return (address & 63) + (std::uint64_t{1} << qemu_plugin_mem_size_shift(info)) > 64;
}

// One callback for both kinds: QEMU 7.2 mistakes loads for stores in the filter by kind.
void on_access(unsigned vcpu, qemu_plugin_meminfo_t info, std::uint64_t address, void*) {
  Thread& thread = thread_of(vcpu);
  Observer& observer = *plugin->observer;
  const bool store = qemu_plugin_mem_is_store(info);
  store ? observer.store(thread, address) : observer.load(thread, address);
  if (crosses(info, address)) {
    const std::uint64_t next = (address | 63) + 1;
    store ? observer.store(thread, next) : observer.load(thread, next);
  }
}

void on_call(unsigned vcpu, qemu_plugin_meminfo_t info, std::uint64_t address, void* data) {
  if (qemu_plugin_mem_is_store(info)) thread_of(vcpu).stack = address;
  on_access(vcpu, info, address, data);
}

void on_block(unsigned vcpu, void* instructions) {
  plugin->observer->instructions(thread_of(vcpu), reinterpret_cast<std::uintptr_t>(instructions));
}

/// A near call: E8, or FF /2 behind prefixes.
bool is_call(const std::uint8_t* code, std::size_t size) {
  std::size_t at = 0;
  while (at < size && ((code[at] & 0xf0) == 0x40 || code[at] == 0xf2 || code[at] == 0x3e)) ++at;
  if (at >= size) return false;
  return code[at] == 0xe8 || (code[at] == 0xff && at + 1 < size && (code[at + 1] >> 3 & 7) == 2);
}

void on_translate(qemu_plugin_id_t, qemu_plugin_tb* block) {
  const std::size_t count = qemu_plugin_tb_n_insns(block);
  for (std::size_t i = 0; i < count; ++i) {
    qemu_plugin_insn* const insn = qemu_plugin_tb_get_insn(block, i);
    if (!plugin->base_known) {
      plugin->base = reinterpret_cast<std::uintptr_t>(qemu_plugin_insn_haddr(insn)) -
                     qemu_plugin_insn_vaddr(insn);
      plugin->base_known = true;
      plugin->observer->adopt(plugin->base);
    }
    const bool call = is_call(static_cast<const std::uint8_t*>(qemu_plugin_insn_data(insn)),
                              qemu_plugin_insn_size(insn));
    qemu_plugin_register_vcpu_mem_cb(insn, call ? on_call : on_access, QEMU_PLUGIN_CB_NO_REGS,
                                     QEMU_PLUGIN_MEM_RW, nullptr);
  }
  qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, QEMU_PLUGIN_CB_NO_REGS,
                                       reinterpret_cast<void*>(count));
}

/// The thread that runs here, since its first system call: who creates another has made one.
thread_local Thread* running = nullptr;

/// Called where the new thread's creator runs.
void on_thread(qemu_plugin_id_t, unsigned vcpu) {
  Thread*& thread = plugin->threads[vcpu % max_threads];
  if (thread == nullptr) thread = new Thread;
  plugin->observer->begin(*thread, running);
}

// ------------------------------------------------------------------------------ call sites

/// Libraries through which programs ask for memory: the caller of interest is behind them.
bool is_runtime(std::string_view name) {
  for (const std::string_view prefix : {"libc.so", "libc-", "ld-linux", "libstdc++", "libgcc_s",
                                        "libpthread", "libjemalloc", "libtcmalloc", "libmimalloc"})
    if (name.starts_with(prefix)) return true;
  return false;
}

/// What looks like a return address: an instruction that calls ends right before it.
bool follows_call(std::uint64_t address) {
  std::uint8_t code[7];
  if (peek(address - sizeof(code), code, sizeof(code)) != sizeof(code)) return false;
  const std::uint8_t* const end = code + sizeof(code);
  if (end[-5] == 0xe8) return true;
  for (int length = 2; length <= 7; ++length)
    if (end[-length] == 0xff && (end[-length + 1] >> 3 & 7) == 2) return true;
  return false;
}

/// "libx.so+0x1234", or "anonymous" where the stack tells nothing.
std::string caller(const Thread& thread) {
  std::array<std::uint64_t, 512> words;
  const std::uint64_t top = thread.stack & ~std::uint64_t{7};
  const std::uint64_t end = plugin->observer->mapping_end(top);
  const std::size_t bytes = peek(top, words.data(), std::min(sizeof(words), end - top));
  std::string runtime;
  for (std::size_t i = 0; end > top && i < bytes / sizeof(words[0]); ++i) {
    const std::uint64_t address = words[i];
    if (address < 4096 || address >> 47 != 0) continue;
    const auto [name, offset, code] = plugin->observer->place(address);
    if (!code || !follows_call(address)) continue;
    char text[32];
    std::snprintf(text, sizeof(text), "+0x%llx", static_cast<unsigned long long>(offset));
    if (!is_runtime(name)) return name + text;
    if (runtime.empty()) runtime = name;
  }
  return runtime.empty() ? "anonymous" : runtime;
}

std::string file_name(int file) {
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof(path));
  if (length <= 0) return "file";
  const std::string_view all(path, static_cast<std::size_t>(length));
  return std::string(all.substr(all.rfind('/') + 1));
}

// ------------------------------------------------------------------------------ system calls

/// Buffers that the kernel filled or read: the first `bytes` of a list.
void touch_vectors(Thread& thread, std::uint64_t list, std::uint64_t count, std::uint64_t bytes,
                   bool store) {
  for (std::uint64_t i = 0; i < count && bytes > 0; ++i) {
    std::uint64_t vector[2];  // address, bytes
    if (peek(list + i * sizeof(vector), vector, sizeof(vector)) != sizeof(vector)) return;
    const std::uint64_t part = std::min(vector[1], bytes);
    plugin->observer->touch(thread, vector[0], part, store);
    bytes -= part;
  }
}

void touch_message(Thread& thread, std::uint64_t message, std::uint64_t bytes, bool store) {
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

/// Executes `path` under the emulator and us. Returns where that cannot be done: then the program's
/// own call is made, and what it executes (or its error) is not ours.
void execute(Thread& thread, const std::string& path, std::vector<std::string> words,
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
  for (const auto& word : plugin->emulator) arguments.push_back(word.c_str());
  for (const auto* word : {"-0", words[0].c_str(), path.c_str()}) arguments.push_back(word);
  for (std::size_t i = 1; i < words.size(); ++i) arguments.push_back(words[i].c_str());
  arguments.push_back(nullptr);
  std::vector<char*> variables;
  for (const std::uint64_t variable : peek_pointers(environment))
    variables.push_back(reinterpret_cast<char*>(variable + plugin->base));
  variables.push_back(nullptr);
  plugin->observer->flush(thread);
  plugin->observer->leave(true);
  ::execve(arguments[0], const_cast<char* const*>(arguments.data()), variables.data());
  plugin->observer->leave(false);
}

void on_execve(Thread& thread) {
  const auto& [path, list, environment, d, e, f] = thread.arguments;
  if (plugin->emulator.empty()) return;
  std::vector<std::string> words;
  for (const std::uint64_t word : peek_pointers(list)) words.push_back(peek_text(word));
  execute(thread, peek_text(path), std::move(words), environment);
}

void on_syscall(qemu_plugin_id_t, unsigned vcpu, std::int64_t number, std::uint64_t a,
                std::uint64_t b, std::uint64_t c, std::uint64_t d, std::uint64_t e, std::uint64_t f,
                std::uint64_t, std::uint64_t) {
  Thread& thread = thread_of(vcpu);
  thread.arguments = {a, b, c, d, e, f};
  running = &thread;
  switch (number) {
    case SYS_exit_group:
      plugin->observer->finish(&thread);
      break;
    case SYS_exit:
      plugin->observer->drain(thread);
      break;
    case SYS_execve:
      on_execve(thread);
      break;
    case SYS_munmap:  // before: another thread may map the place at once
      plugin->observer->unmap(thread, a, b);
      break;
    default:
      if (waits(number)) plugin->observer->drain(thread);
  }
}

void on_mapped(Thread& thread, std::uint64_t address) {
  const auto& [hint, bytes, protection, flags, file, offset] = thread.arguments;
  std::string site;
  if ((flags & MAP_ANONYMOUS) == 0) {
    site = file_name(static_cast<int>(file));
  } else if ((flags & MAP_STACK) != 0) {
    site = "thread stack";
  } else {
    // What is mapped over a mapping is a part of it: the zeroed end of a file's data, pages of a
    // reservation that are taken into use.
    if ((flags & MAP_FIXED) != 0) site = plugin->observer->place(address).site;
    if (site.empty()) site = caller(thread);
  }
  const bool code = (protection & PROT_EXEC) != 0 && (flags & MAP_ANONYMOUS) == 0;
  plugin->observer->map(thread, address, bytes, site, offset, code);
}

void on_moved(Thread& thread, std::uint64_t address) {
  const std::uint64_t from = thread.arguments[0];
  const std::uint64_t old_bytes = thread.arguments[1];
  const std::uint64_t bytes = thread.arguments[2];
  const std::string site = plugin->observer->place(from).site;
  if (address == from) {
    if (bytes > old_bytes)
      plugin->observer->map(thread, from + old_bytes, bytes - old_bytes, site);
    else if (bytes < old_bytes)
      plugin->observer->unmap(thread, from + bytes, old_bytes - bytes);
    return;
  }
  plugin->observer->unmap(thread, from, old_bytes);
  plugin->observer->map(thread, address, bytes, site);
}

void on_heap(Thread& thread, std::uint64_t end) {
  std::uint64_t& before = plugin->heap_end;
  if (before != 0 && end > before)
    plugin->observer->map(thread, before, end - before, "heap");
  else if (before != 0 && end < before)
    plugin->observer->unmap(thread, end, before - end);
  before = end;
}

void on_return(qemu_plugin_id_t, unsigned vcpu, std::int64_t number, std::int64_t result) {
  Thread& thread = thread_of(vcpu);
  Observer& observer = *plugin->observer;
  if (waits(number)) observer.waited(thread);
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

// ----------------------------------------------------------------------------------- set-up

void on_child() {
  plugin->observer->after_fork_in_child();
  // Only the forking thread is here; what the others had seen is their process's.
  for (Thread* thread : plugin->threads)
    if (thread != nullptr) plugin->observer->begin(*thread);
}

/// Our own command line up to the plugin's arguments, with the emulator's real path.
std::vector<std::string> emulator_words() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) {
    words.push_back(word);
    if (words.size() >= 2 && words[words.size() - 2] == "-plugin") {
      char path[4096];
      const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
      if (length <= 0) return {};
      words[0].assign(path, static_cast<std::size_t>(length));
      return words;
    }
  }
  return {};
}

}  // namespace

int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int argc, char** argv) {
  if (info->system_emulation || std::string_view(info->target_name) != "x86_64") {
    std::fprintf(stderr, "tiertune: the plugin is for qemu-x86_64 in user mode\n");
    return -1;
  }
  tt::record::ObserverOptions options;
  for (int i = 0; i < argc; ++i) {
    const std::string_view word(argv[i]);
    const auto equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    const std::string value(equals == word.npos ? "" : word.substr(equals + 1));
    if (name == "folder") options.folder = value;
    if (name == "llc_mib") options.llc_mib = std::strtod(value.c_str(), nullptr);
    if (name == "ghz") options.ghz = std::strtod(value.c_str(), nullptr);
    if (name == "cpi") options.cpi = std::strtod(value.c_str(), nullptr);
    if (name == "latency_ns") options.latency_ns = std::strtod(value.c_str(), nullptr);
    if (name == "interval_ms") options.interval_ms = std::strtod(value.c_str(), nullptr);
    if (name == "random") options.mlp[0] = std::strtod(value.c_str(), nullptr);
    if (name == "sequential") options.mlp[1] = std::strtod(value.c_str(), nullptr);
    if (name == "dependent") options.mlp[2] = std::strtod(value.c_str(), nullptr);
  }
  plugin = new Plugin;
  plugin->observer = std::make_unique<Observer>(options);
  plugin->emulator = emulator_words();
  ::pthread_atfork([] { plugin->observer->before_fork(); },
                   [] { plugin->observer->after_fork_in_parent(); }, on_child);
  qemu_plugin_register_vcpu_init_cb(id, on_thread);
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
  qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
  qemu_plugin_register_vcpu_syscall_ret_cb(id, on_return);
  qemu_plugin_register_atexit_cb(
      id, [](qemu_plugin_id_t, void*) { plugin->observer->finish(nullptr); }, nullptr);
  return 0;
}
