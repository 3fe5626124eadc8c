// SPDX-License-Identifier: MIT

// Programs for the tests of the hint-fault sampler, chosen by the first argument. Each checks its
// own memory all the time and exits with 0 only if nothing was ever wrong. It runs until its
// recording has as many samples as the second argument says, however fast the machine is.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

namespace {

constexpr std::size_t page = 4096;
constexpr double most_seconds = 30;  // of processor time; a sampler that needs more is broken
double wanted = 100;                 // samples

double used() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
std::uint64_t next(std::uint64_t& x) {
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  return x;
}
[[noreturn]] void wrong(const char* what) {
  std::fprintf(stderr, "wrong: %s (%s)\n", what, std::strerror(errno));
  std::_Exit(3);
}

/// The header of this process's spool (engine/record/spool.hpp), once there is one.
struct Spool {
  char before[32];
  std::uint32_t state;  // 0: open
  std::uint32_t threads;
  std::uint64_t dropped;
  double sampled;
};
const volatile Spool* open_spool() {
  const char* const folder = std::getenv("TIERTUNE_RECORD");
  if (folder == nullptr) wrong("not recorded");
  // A process that has become another program has an earlier spool, which is closed.
  for (int number = 0; number < 3; ++number) {
    const std::string path = std::string(folder) + "/" + std::to_string(getpid()) +
                             (number == 0 ? "" : "." + std::to_string(number)) + ".spool";
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    struct stat now{};
    if (fstat(file, &now) != 0 || now.st_size < static_cast<off_t>(page)) {
      close(file);  // it has just been made: reading it would be a bus error
      return nullptr;
    }
    void* const at = mmap(nullptr, page, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (at == MAP_FAILED) wrong("the spool");
    const auto* const found = static_cast<const volatile Spool*>(at);
    if (found->state == 0) return found;
    munmap(at, page);
  }
  return nullptr;
}
/// Whether the recording has too few samples yet.
bool go_on() {
  static const volatile Spool* spool = nullptr;
  static pid_t process = 0;
  if (process != getpid()) spool = nullptr;  // the child of a fork has a spool of its own
  process = getpid();
  if (spool == nullptr) spool = open_spool();
  if (used() > most_seconds) wrong("too few samples");
  return spool == nullptr || spool->sampled < wanted;
}

char* pages(std::size_t count) {
  void* const at =
      mmap(nullptr, count * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) wrong("mmap");
  return static_cast<char*>(at);
}

/// One half of an array gets 49 of 50 accesses. Prints where it is, its pages, and at the end the
/// processor time that the process has used. It ends with its child, if it has one.
int hot(std::size_t count, pid_t child = 0) {
  auto* const array = static_cast<char*>(std::malloc(count * page));
  std::memset(array, 1, count * page);
  std::printf("%p %zu\n", static_cast<void*>(array), count);
  std::fflush(stdout);
  std::uint64_t x = 88172645463325252ULL;
  std::uint64_t sum = 0;
  while (go_on()) {
    for (int i = 0; i < 10'000; ++i) {
      const std::uint64_t draw = next(x);
      const std::size_t at = (draw >> 32) % (count / 2) + (draw % 50 == 0 ? count / 2 : 0);
      sum += static_cast<unsigned char>(array[at * page + (draw >> 20) % page]);
    }
  }
  if (sum == 0) wrong("sum");
  std::printf("%.6f\n", used());
  std::fflush(stdout);
  while (child != 0 && waitpid(child, nullptr, 0) != child)
    if (errno != EINTR) wrong("waitpid");
  std::_Exit(0);  // with the array
}

/// Everything goes through system calls: files, pipes, and back.
int input_output() {
  constexpr std::size_t count = 512;
  char* const from = pages(count);
  char* const to = pages(count);
  std::uint64_t x = 1;
  for (std::size_t i = 0; i < count * page / 8; ++i)
    reinterpret_cast<std::uint64_t*>(from)[i] = next(x);
  int pipes[2];
  if (pipe(pipes) != 0) wrong("pipe");
  std::FILE* const file = std::tmpfile();
  while (go_on()) {
    for (std::size_t i = 0; i < count; ++i) {
      if (write(pipes[1], from + i * page, page) != static_cast<ssize_t>(page)) wrong("write");
      if (read(pipes[0], to + i * page, page) != static_cast<ssize_t>(page)) wrong("read");
    }
    if (std::memcmp(from, to, count * page) != 0) wrong("pipe content");
    std::memset(to, 0, count * page);
    if (pwrite(fileno(file), from, count * page, 0) != static_cast<ssize_t>(count * page))
      wrong("pwrite");
    if (pread(fileno(file), to, count * page, 0) != static_cast<ssize_t>(count * page))
      wrong("pread");
    if (std::memcmp(from, to, count * page) != 0) wrong("file content");
    std::memset(to, 0, count * page);
  }
  return 0;
}

struct Part {
  std::uint64_t* words;
  std::size_t count;
  std::uint64_t seed;
};
std::atomic<std::uint64_t> shared_sum{0};
void* count_up(void* given) {
  const Part part = *static_cast<Part*>(given);
  std::uint64_t x = part.seed;
  for (int i = 0; i < 20'000; ++i) {
    ++part.words[next(x) % part.count];
    shared_sum.fetch_add(1);
  }
  return nullptr;
}
/// Threads come and go; no increment may get lost, and all must be joined.
int threads() {
  constexpr std::size_t words = 1024 * page / 8;
  auto* const memory = reinterpret_cast<std::uint64_t*>(pages(1024));
  std::uint64_t expected = 0;
  for (std::uint64_t round = 1; go_on(); ++round) {
    pthread_t thread[4];
    Part part[4];
    for (std::size_t i = 0; i < 4; ++i) {
      part[i] = {memory + i * words / 4, words / 4, round * 4 + i};
      if (pthread_create(&thread[i], nullptr, &count_up, &part[i]) != 0) wrong("pthread_create");
    }
    for (const pthread_t t : thread) pthread_join(t, nullptr);
    expected += 4 * 20'000;
  }
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < words; ++i) sum += memory[i];
  return sum == expected && shared_sum.load() == expected ? 0 : 3;
}

/// Children see the memory of the moment, and the parent never what they do to it.
int forks() {
  constexpr std::size_t count = 1024;
  auto* const words = reinterpret_cast<std::uint64_t*>(pages(count));
  constexpr std::size_t step = page / 8;
  std::uint64_t round = 0;
  while (go_on()) {
    ++round;
    for (int again = 0; again < 200; ++again)
      for (std::size_t i = 0; i < count; ++i) words[i * step] = round + i;
    // By the C library, and behind its back.
    const long child = round % 2 == 0 ? fork() : syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child < 0) wrong("fork");
    if (child == 0) {
      for (std::size_t i = 0; i < count; ++i)
        if (words[i * step] != round + i) _exit(4);
      for (std::size_t i = 0; i < count; ++i) words[i * step] = 0;
      _exit(0);
    }
    for (std::size_t i = 0; i < count; ++i)
      if (words[i * step] != round + i) wrong("parent's memory");
    int status = 0;
    if (waitpid(static_cast<pid_t>(child), &status, 0) < 0 || status != 0) wrong("child's memory");
  }
  return 0;
}

/// A child that lives long enough to be recorded too.
int family() {
  const pid_t child = fork();
  return child == 0 ? hot(600) : hot(900, child);
}

/// What is dropped, unmapped, moved or protected while it is away.
int remap() {
  constexpr std::size_t count = 256;
  std::uint64_t x = 99;
  std::vector<char*> areas;
  for (int i = 0; i < 16; ++i) areas.push_back(pages(count));
  std::vector<std::vector<unsigned char>> values(16, std::vector<unsigned char>(count, 0));
  while (go_on()) {
    const std::size_t a = next(x) % areas.size();
    const std::size_t first = next(x) % count;
    const std::size_t some = 1 + next(x) % (count - first);
    char* const at = areas[a] + first * page;
    switch (next(x) % 6) {
      case 0:
        if (madvise(at, some * page, MADV_DONTNEED) != 0) wrong("madvise");
        for (std::size_t i = first; i < first + some; ++i) values[a][i] = 0;
        break;
      case 1:
        if (mmap(at, some * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                 -1, 0) != at)
          wrong("mmap over");
        for (std::size_t i = first; i < first + some; ++i) values[a][i] = 0;
        break;
      case 2: {
        char* const place = pages(count);
        char* const moved = static_cast<char*>(
            mremap(areas[a], count * page, count * page, MREMAP_MAYMOVE | MREMAP_FIXED, place));
        // Pieces that the program itself has made cannot be moved as one.
        if (moved == MAP_FAILED) {
          munmap(place, count * page);
          break;
        }
        areas[a] = moved;
        break;
      }
      case 3:
        if (mprotect(at, some * page, PROT_READ) != 0) wrong("mprotect");
        for (std::size_t i = first; i < first + some; ++i)
          if (static_cast<unsigned char>(areas[a][i * page]) != values[a][i]) wrong("protected");
        if (mprotect(at, some * page, PROT_READ | PROT_WRITE) != 0) wrong("mprotect");
        break;
      default:
        for (std::size_t i = first; i < first + some; ++i) {
          values[a][i] = static_cast<unsigned char>(next(x));
          areas[a][i * page] = static_cast<char>(values[a][i]);
        }
        break;
    }
    // Several times: the sampler earns its time by the program's, and each change costs it some.
    for (int pass = 0; pass < 16; ++pass)
      for (std::size_t b = 0; b < areas.size(); ++b)
        for (std::size_t i = 0; i < count; ++i)
          if (static_cast<unsigned char>(areas[b][i * page]) != values[b][i]) wrong("content");
  }
  return 0;
}

/// Growing by mremap: must not fail because a page is away.
int grow() {
  while (go_on()) {
    std::size_t size = 64;
    char* at = pages(size);
    for (std::size_t i = 0; i < size; ++i) at[i * page] = static_cast<char>(i);
    while (size < 8192) {
      void* const more = mremap(at, size * page, 2 * size * page, MREMAP_MAYMOVE);
      if (more == MAP_FAILED) wrong("mremap");
      at = static_cast<char*>(more);
      for (std::size_t i = size; i < 2 * size; ++i) at[i * page] = static_cast<char>(i);
      size *= 2;
      for (int again = 0; again < 20; ++again)
        for (std::size_t i = 0; i < size; ++i)
          if (at[i * page] != static_cast<char>(i)) wrong("content");
    }
    munmap(at, size * page);
  }
  return 0;
}

/// Huge pages come back whole, and in part.
int huge() {
  constexpr std::size_t bytes = 2 << 20;
  constexpr std::size_t count = 8;
  char* const room = pages((count + 1) * 512);
  char* const at = reinterpret_cast<char*>((reinterpret_cast<std::uint64_t>(room) + bytes - 1) &
                                           ~(std::uint64_t{bytes} - 1));
  madvise(at, count * bytes, MADV_HUGEPAGE);
  std::vector<unsigned char> values(count * 512, 7);
  std::memset(at, 7, count * bytes);
  std::uint64_t x = 5;
  for (std::uint64_t i = 0; go_on(); ++i) {
    const std::size_t p = next(x) % values.size();
    if (static_cast<unsigned char>(at[p * page + next(x) % page]) != values[p]) wrong("content");
    if (i % 100'000 == 0) {
      madvise(at + p * page, page, MADV_DONTNEED);
      values[p] = 0;
    }
  }
  return 0;
}

void* outlive(void*) {
  char* const memory = pages(256);
  while (go_on())
    for (std::size_t i = 0; i < 256; ++i) ++memory[i * page];
  return nullptr;
}
/// The first thread ends; the process is over when the other is.
[[noreturn]] void orphan() {
  pthread_t thread;
  if (pthread_create(&thread, nullptr, &outlive, nullptr) != 0) wrong("pthread_create");
  pthread_exit(nullptr);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  if (count > 2) wanted = std::atof(arguments[2]);
  if (mode == "hot") return hot(2048);
  if (mode == "io") return input_output();
  if (mode == "threads") return threads();
  if (mode == "forks") return forks();
  if (mode == "family") return family();
  if (mode == "remap") return remap();
  if (mode == "grow") return grow();
  if (mode == "huge") return huge();
  if (mode == "orphan") orphan();
  if (mode == "crash" || mode == "kill") {
    char* const array = pages(1024);
    while (go_on())
      for (std::size_t i = 0; i < 1024; ++i) ++array[i * page];
    raise(mode == "crash" ? SIGSEGV : SIGKILL);
  }
  std::fprintf(stderr, "which program?\n");
  return 2;
}
