// SPDX-License-Identifier: MIT

// libtiertune_hint_fault.so: the hint-fault sampler, preloaded into any dynamically linked program.
//
// Starts the sampler's thread before main() and again in the child of a fork, and passes on what
// the program does to its address space. It does nothing unless the environment names a recording.
//
//   TIERTUNE_RECORD           folder of the spools
//   TIERTUNE_RECORD_START_NS  CLOCK_MONOTONIC when the recording began
//   TIERTUNE_HINT_FAULT       overhead in millionths, bytes of cache, picoseconds of a miss
//
// The thread is made by clone, not by pthread_create: that would allocate (in the child of a fork,
// where the allocator may stay locked), and the C library would count it: a program whose
// first thread ends by pthread_exit would never be over.
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>

#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <new>

#include "record/preload/page_sampler.hpp"

namespace {

using tt::record::Change;
using tt::record::HintFaultOptions;
using tt::record::PageSampler;

constexpr std::uint64_t stack_bytes = 256 << 10;
constexpr std::uint64_t head_bytes = 16 << 10;       // above the thread pointer
constexpr std::uint64_t fork_delay_ns = 20'000'000;  // most children begin another program at once
constexpr std::uint64_t large_bytes = 64 << 10;

std::atomic<PageSampler*> current{nullptr};
pid_t process = 0;  // that `current` samples
HintFaultOptions options;
tt::record::Unseen unseen;
bool recording = false;

/// 0: none left. The advice keeps the kernel from making it one mapping with the program's memory
/// beside it, which could then not be told apart.
std::uint64_t map_apart(std::uint64_t bytes, int advice) {
  const long at = ::syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == -1) return 0;
  ::syscall(SYS_madvise, at, bytes, advice);
  return static_cast<std::uint64_t>(at);
}

/// Stack and thread-local storage of the thread: of the latter it needs only errno, which lies at
/// the same distance from every thread's pointer.
std::uint64_t local_bytes() {
  const std::uint64_t distance = reinterpret_cast<std::uint64_t>(__builtin_thread_pointer()) -
                                 reinterpret_cast<std::uint64_t>(&errno);
  return (distance + 8192) & ~std::uint64_t{4095};
}
std::uint64_t room_bytes() { return stack_bytes + local_bytes() + head_bytes; }

/// Makes the sampler in fresh memory and runs it. The argument is the thread's own room.
int thread_main(void* room) {
  auto* const earlier = current.load();
  PageSampler* sampler = earlier;
  if (sampler == nullptr) {  // the child of a fork
    const timespec delay{0, fork_delay_ns};
    ::syscall(SYS_nanosleep, &delay, nullptr);
    const std::uint64_t at = map_apart(sizeof(PageSampler), MADV_DONTDUMP);
    if (at == 0) {
      unseen.count();
      return 0;
    }
    sampler = new (reinterpret_cast<void*>(at)) PageSampler{options};
    sampler->adopt(sampler, sizeof(PageSampler));
    current.store(sampler);
  }
  sampler->adopt(room, room_bytes());
  sampler->set_loader(::getauxval(AT_BASE));
  if (!sampler->run()) unseen.count();
  return 0;
}

bool start_thread() {
  const std::uint64_t bytes = room_bytes();
  const std::uint64_t room = map_apart(bytes, MADV_DONTFORK);
  if (room == 0) return false;
  const std::uint64_t pointer = room + bytes - head_bytes;
  auto* const head = reinterpret_cast<std::uint64_t*>(pointer);
  head[0] = pointer;  // as the ABI requires
  head[2] = pointer;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const int made = ::clone(&thread_main, reinterpret_cast<void*>(room + stack_bytes),
                           CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
                               CLONE_SYSVSEM | CLONE_SETTLS,
                           reinterpret_cast<void*>(room), nullptr, head, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return made > 0;
}

void child_of_fork() {
  // What the parent's sampler had is gone; its object was copied, and is of no use.
  if (PageSampler* const old = current.exchange(nullptr)) {
    old->abandon();
    ::syscall(SYS_munmap, old, sizeof(PageSampler));
  }
  process = static_cast<pid_t>(::syscall(SYS_getpid));
  if (!start_thread()) unseen.count();
}

std::uint64_t number(const char*& text) {
  std::uint64_t value = 0;
  while (*text >= '0' && *text <= '9')
    value = value * 10 + static_cast<std::uint64_t>(*text++ - '0');
  if (*text == ',') ++text;
  return value;
}

__attribute__((constructor)) void begin() {
  const char* const folder = ::getenv("TIERTUNE_RECORD");
  const char* start = ::getenv("TIERTUNE_RECORD_START_NS");
  const char* text = ::getenv("TIERTUNE_HINT_FAULT");
  if (folder == nullptr || start == nullptr || text == nullptr ||
      std::strlen(folder) >= sizeof options.folder)
    return;
  std::strcpy(options.folder, folder);
  options.begin_ns = number(start);
  options.overhead = static_cast<double>(number(text)) * 1e-6;
  options.cache_bytes = static_cast<double>(number(text));
  options.latency_ns = static_cast<double>(number(text)) * 1e-3;
  unseen.open(folder);
  const std::uint64_t at = map_apart(sizeof(PageSampler), MADV_DONTDUMP);
  if (at == 0) {
    unseen.count();
    return;
  }
  auto* const sampler = new (reinterpret_cast<void*>(at)) PageSampler{options};
  sampler->adopt(sampler, sizeof(PageSampler));
  current.store(sampler);
  process = ::getpid();
  recording = true;
  if (!start_thread()) {
    current.store(nullptr);
    unseen.count();
    return;
  }
  sampler->wait_until_started();
  sampler->report({.kind = Change::Kind::thread,
                   .address = reinterpret_cast<std::uint64_t>(__builtin_thread_pointer())});
  ::pthread_atfork(nullptr, nullptr, &child_of_fork);
}

/// Not in a child of vfork, which borrows the memory of its parent, nor in one of a bare clone.
void end() {
  PageSampler* const sampler = current.load();
  if (sampler != nullptr && ::syscall(SYS_getpid) == process) sampler->stop();
}
__attribute__((destructor)) void destroyed() { end(); }

void report(Change::Kind kind, std::uint64_t address, std::uint64_t bytes, void* caller = nullptr) {
  if (PageSampler* const sampler = current.load(std::memory_order_acquire))
    sampler->report({.kind = kind,
                     .address = address,
                     .bytes = bytes,
                     .caller = reinterpret_cast<std::uint64_t>(caller)});
}

// --- The C library's own ------------------------------------------------------------------------

/// The next definition of a function. dlsym itself may allocate; see `early`.
template <typename Function>
class Next {
 public:
  explicit constexpr Next(const char* name) : name_(name) {}
  Function get() {
    Function found = found_.load(std::memory_order_relaxed);
    if (found == nullptr) {
      found = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name_));
      found_.store(found, std::memory_order_relaxed);
    }
    return found;
  }
  /// The same for a function of a library that the program may load late, by a local dlopen: then
  /// it is in no scope of ours, but in that of the library that calls. Null if it is in neither.
  Function get_for(const void* caller) {
    if (const Function found = get()) return found;
    Dl_info place{};
    void* const library = ::dladdr(caller, &place) != 0
                              ? ::dlopen(place.dli_fname, RTLD_LAZY | RTLD_NOLOAD)
                              : nullptr;
    void* const found = library != nullptr ? ::dlsym(library, name_) : nullptr;
    if (library != nullptr) ::dlclose(library);
    // It stays where it is, whatever the program unloads.
    if (found != nullptr && ::dladdr(found, &place) != 0 &&
        ::dlopen(place.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) != nullptr)
      found_.store(reinterpret_cast<Function>(found), std::memory_order_relaxed);
    (void)::dlerror();  // of ours; the program asks for its own
    return reinterpret_cast<Function>(found);
  }

 private:
  const char* name_;
  std::atomic<Function> found_{nullptr};
};

Next<void* (*)(std::size_t)> next_malloc{"malloc"};
Next<void* (*)(std::size_t, std::size_t)> next_calloc{"calloc"};
Next<void* (*)(void*, std::size_t)> next_realloc{"realloc"};
Next<void (*)(void*)> next_free{"free"};
Next<void* (*)(std::size_t, std::size_t)> next_aligned{"aligned_alloc"};
Next<void* (*)(std::size_t, std::size_t)> next_memalign{"memalign"};
Next<int (*)(void**, std::size_t, std::size_t)> next_posix_memalign{"posix_memalign"};
using New = void* (*)(std::size_t);
Next<New> next_new{"_Znwm"};
Next<New> next_new_array{"_Znam"};
using Start = void* (*)(void*);
Next<int (*)(pthread_t*, const pthread_attr_t*, Start, void*)> next_thread{"pthread_create"};

/// What dlsym asks for while it looks for calloc. Never given back.
class Early {
 public:
  void* take(std::size_t bytes) {
    const std::size_t at = used_.fetch_add((bytes + 15) & ~std::size_t{15});
    return at + bytes <= sizeof room_ ? room_ + at : nullptr;
  }
  [[nodiscard]] bool has(const void* at) const { return at >= room_ && at < room_ + sizeof room_; }

 private:
  alignas(16) char room_[4096] = {};
  std::atomic<std::size_t> used_{0};
};
Early early;
thread_local bool looking __attribute__((tls_model("initial-exec"))) = false;

/// Whether malloc is that of the GNU C library, whose chunks tell if they have a mapping of their
/// own. Memory of other allocators is known by the calls of mmap that they make.
bool gnu_malloc() {
  static std::atomic<int> known{0};
  int is = known.load(std::memory_order_relaxed);
  if (is == 0) {
    is = ::dlsym(RTLD_NEXT, "__libc_malloc") == reinterpret_cast<void*>(next_malloc.get()) ? 1 : 2;
    known.store(is, std::memory_order_relaxed);
  }
  return is == 1;
}
bool own_mapping(const void* at) {
  return (reinterpret_cast<const std::uint64_t*>(at)[-1] & 2) != 0;
}

void* allocated(void* at, std::size_t bytes, void* caller) {
  if (bytes >= large_bytes && at != nullptr && recording && gnu_malloc() && own_mapping(at))
    report(Change::Kind::allocated, reinterpret_cast<std::uint64_t>(at) - 16, bytes + 16, caller);
  return at;
}
void freeing(void* at) {
  if (recording && at != nullptr && gnu_malloc() && own_mapping(at))
    report(Change::Kind::freed, reinterpret_cast<std::uint64_t>(at) - 16, 0);
}

void* made_new(Next<New>& next, std::size_t bytes, void* caller) {
  const New found = next.get_for(caller);
  void* const at = found != nullptr ? found(bytes) : next_malloc.get()(bytes);
  if (at == nullptr) std::abort();  // without a C++ library nobody can catch bad_alloc
  return allocated(at, bytes, caller);
}

struct Thread {
  Start start;
  void* argument;
};
void* run_thread(void* given) {
  const Thread thread = *static_cast<Thread*>(given);
  next_free.get()(given);
  report(Change::Kind::thread, reinterpret_cast<std::uint64_t>(__builtin_thread_pointer()), 0);
  return thread.start(thread.argument);
}

}  // namespace

// --- Interposed ---------------------------------------------------------------------------------

#pragma GCC visibility push(default)
extern "C" {

/// For `tune record`, before it starts a program: see kernel::probe.
int tiertune_hint_fault_probe() { return tt::record::kernel::probe(); }

void* malloc(std::size_t bytes) {
  return allocated(next_malloc.get()(bytes), bytes, __builtin_return_address(0));
}
void* calloc(std::size_t count, std::size_t bytes) {
  if (looking) return early.take(count * bytes);
  looking = true;
  const auto next = next_calloc.get();
  looking = false;
  return allocated(next(count, bytes), count * bytes, __builtin_return_address(0));
}
void* realloc(void* at, std::size_t bytes) {
  freeing(at);
  return allocated(next_realloc.get()(at, bytes), bytes, __builtin_return_address(0));
}
void free(void* at) {
  if (early.has(at)) return;
  freeing(at);
  next_free.get()(at);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return allocated(next_aligned.get()(alignment, bytes), bytes, __builtin_return_address(0));
}
void* memalign(std::size_t alignment, std::size_t bytes) {
  return allocated(next_memalign.get()(alignment, bytes), bytes, __builtin_return_address(0));
}
int posix_memalign(void** at, std::size_t alignment, std::size_t bytes) {
  const int error = next_posix_memalign.get()(at, alignment, bytes);
  if (error == 0) allocated(*at, bytes, __builtin_return_address(0));
  return error;
}
// operator new: so that its caller is the call site, not the C++ library.
void* _Znwm(std::size_t bytes) { return made_new(next_new, bytes, __builtin_return_address(0)); }
void* _Znam(std::size_t bytes) {
  return made_new(next_new_array, bytes, __builtin_return_address(0));
}

void* mmap(void* where, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  const long at = ::syscall(SYS_mmap, where, bytes, protection, flags, file, offset);
  if (at != -1 && (flags & MAP_PRIVATE) != 0 && (flags & MAP_ANONYMOUS) != 0)
    report(Change::Kind::map, static_cast<std::uint64_t>(at), bytes, __builtin_return_address(0));
  else if (at != -1 && (flags & MAP_FIXED) != 0)
    report(Change::Kind::unmap, static_cast<std::uint64_t>(at), bytes);
  return reinterpret_cast<void*>(at);
}
void* mmap64(void* where, std::size_t bytes, int protection, int flags, int file, off_t offset)
    __attribute__((alias("mmap")));
int munmap(void* at, std::size_t bytes) {
  report(Change::Kind::unmap, reinterpret_cast<std::uint64_t>(at), bytes);
  return static_cast<int>(::syscall(SYS_munmap, at, bytes));
}
int madvise(void* at, std::size_t bytes, int advice) {
  const auto done = static_cast<int>(::syscall(SYS_madvise, at, bytes, advice));
  if (done == 0 && (advice == MADV_DONTNEED || advice == MADV_FREE))
    report(Change::Kind::discard, reinterpret_cast<std::uint64_t>(at), bytes);
  return done;
}
/// A range with a page that is away consists of several mappings for the kernel, and cannot be
/// moved or grown: no page is away meanwhile.
void* mremap(void* at, std::size_t bytes, std::size_t to_bytes, int flags, ...) {
  void* where = nullptr;
  if ((flags & MREMAP_FIXED) != 0) {
    va_list rest;
    va_start(rest, flags);
    where = va_arg(rest, void*);
    va_end(rest);
  }
  PageSampler* const sampler = current.load();
  if (sampler != nullptr) sampler->pause();
  const long to = ::syscall(SYS_mremap, at, bytes, to_bytes, flags, where);
  if (sampler != nullptr) sampler->resume();
  if (to != -1) {
    report(Change::Kind::unmap, reinterpret_cast<std::uint64_t>(at), bytes);
    report(Change::Kind::map, static_cast<std::uint64_t>(to), to_bytes,
           __builtin_return_address(0));
  }
  return reinterpret_cast<void*>(to);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, Start start,
                   void* argument) {
  auto* const given = recording ? static_cast<Thread*>(next_malloc.get()(sizeof(Thread))) : nullptr;
  if (given == nullptr) return next_thread.get()(thread, attributes, start, argument);
  *given = {start, argument};
  const int error = next_thread.get()(thread, attributes, &run_thread, given);
  if (error != 0) next_free.get()(given);
  return error;
}

void _exit(int status) {
  end();
  while (true) ::syscall(SYS_exit_group, status);
}
void _Exit(int status) { _exit(status); }

}  // extern "C"
#pragma GCC visibility pop
