// SPDX-License-Identifier: MIT

// A program whose memory holds what it must, or it says so: content MIB SECONDS
// Its pages are filled with what their number and generation make of them. Two threads write to
// them, most of all to a window that goes on every few seconds, and check what they rewrite; a
// second process shares a part; forked children check what they have inherited while their parent
// copies pages by writing to them. Some pages are huge, some locked, some pinned, by a pipe
// (vmsplice) or by io_uring, through which they are read and compared. All memory comes from
// node 1. It ends when so many MiB have come to node 0, so many seconds are over, or SIGTERM comes.
// Exit status 1 for a wrong byte.
#include "common.h"

#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { plain, huge, locked, shared, regions };
enum { threads = 2, pinned_every = 64, window_seconds = 5, touches = 10000, batches = 16 };
static const char* const names[regions] = {"plain", "huge", "locked", "shared"};
static const long sizes[regions] = {48 * mib_pages, 48 * mib_pages, 8 * mib_pages, 8 * mib_pages};

/// What a page must hold, in memory of its own.
struct state {
  uint64_t generation, touches;
};
static struct region {
  char* at;
  long pages;
  struct state* states;  // of the shared region: shared, too
} all[regions];

static atomic_ulong checks, wrong;
static pthread_mutex_t turns[threads];
static atomic_int over;
static volatile sig_atomic_t told_to_end;
static void end(int signal) { told_to_end = signal; }
static atomic_long window;   // its first page, counted through all regions
static atomic_long written;  // batches of touches
static pthread_mutex_t waits = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t enough = PTHREAD_COND_INITIALIZER;

static char* shared_memory(size_t bytes) {
  void* const at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) fail("mmap");
  return at;
}
static uint64_t first_word(int region, long i, uint64_t generation) {
  return ((uint64_t)region << 40 | (uint64_t)i) * 0x9e3779b97f4a7c15ULL + generation;
}
static uint64_t following(uint64_t word) {
  return word * 6364136223846793005ULL + 1442695040888963407ULL;
}

/// Words 0 and 1 are those of the state; the others follow from the number and the generation.
static void fill(char* at, int region, long i, const struct state* state) {
  uint64_t* const words = (uint64_t*)at;
  uint64_t word = first_word(region, i, state->generation);
  words[0] = state->generation;
  words[1] = state->touches;
  for (int w = 2; w < page / 8; ++w) words[w] = word = following(word);
}
static void check(const char* at, int region, long i, const struct state* state,
                  const char* where) {
  const uint64_t* const words = (const uint64_t*)at;
  uint64_t word = first_word(region, i, state->generation);
  int bad = words[0] == state->generation ? words[1] == state->touches ? -1 : 1 : 0;
  for (int w = 2; w < page / 8; ++w) {
    word = following(word);
    if (words[w] != word) bad = w;
  }
  atomic_fetch_add(&checks, 1);
  if (bad < 0) return;
  atomic_fetch_add(&wrong, 1);
  printf("%s memory, page %ld, %s: word %d is wrong\n", names[region], i, where, bad);
}

static char* at(int region, long i) { return all[region].at + i * page; }
/// Pages that nobody writes to but the thread that has them pinned.
static int is_pinned(int region, long i) { return region == plain && i % pinned_every == 63; }
/// Of the shared region: those that the second process writes to.
static int is_partners(int region, long i) { return region == shared && i % 4 == 1; }

static void rewrite(int region, long i) {
  struct state* const state = &all[region].states[i];
  check(at(region, i), region, i, state, "before it is rewritten");
  ++state->generation;
  fill(at(region, i), region, i, state);
}
static void touch(int region, long i) {
  ++*(volatile uint64_t*)(at(region, i) + 8);
  ++all[region].states[i].touches;
}

static void* writer(void* argument) {
  const long own = (long)argument;
  uint64_t random = 88172645463325252ULL + (uint64_t)own;
  long total = 0;
  for (int r = 0; r < regions; ++r) total += all[r].pages;
  while (!over) {
    pthread_mutex_lock(&turns[own]);
    for (int n = 0; n < touches; ++n) {
      const uint64_t drawn = random_of(&random);
      const long span = drawn % 32 == 0 ? total : total / 8;
      long i = (window + (long)(drawn >> 8) % span) % total;
      int region = 0;
      while (i >= all[region].pages) i -= all[region++].pages;
      if (i % threads != own) i ^= 1;
      if (is_pinned(region, i) || is_partners(region, i)) {
        (void)*(volatile char*)at(region, i);
      } else if (n % 1000 == 0) {
        rewrite(region, i);
      } else {
        touch(region, i);
      }
    }
    pthread_mutex_unlock(&turns[own]);
    if (++written % batches == 0) {
      pthread_mutex_lock(&waits);
      pthread_cond_signal(&enough);
      pthread_mutex_unlock(&waits);
    }
    sched_yield();  // others wait for the turn
  }
  return NULL;
}
/// Until both have written for a while.
static void let_write(void) {
  const long until = written + batches;
  pthread_mutex_lock(&waits);
  while (written < until) pthread_cond_wait(&enough, &waits);
  pthread_mutex_unlock(&waits);
}

/// The second process: writes for a while for each byte that it is sent.
static int partner(int orders) {
  uint64_t random = 1234567;
  char byte;
  while (read(orders, &byte, 1) == 1)
    for (int n = 0; n < touches; ++n) {
      const long i = (long)(random_of(&random) % (uint64_t)(all[shared].pages / 4)) * 4 + 1;
      if (n % 500 == 0) {
        rewrite(shared, i);
      } else {
        touch(shared, i);
      }
    }
  for (long i = 1; i < all[shared].pages; i += 4)
    check(at(shared, i), shared, i, &all[shared].states[i], "in its second process");
  fflush(stdout);
  return wrong != 0;
}

/// All pages that this process writes to. Of a copy nobody else does.
static void check_all(int is_copy, const char* where) {
  for (int r = 0; r < regions; ++r)
    for (int t = 0; t < threads; ++t) {
      if (!is_copy) pthread_mutex_lock(&turns[t]);
      for (long i = t; i < all[r].pages; i += threads)
        if (r != shared || (!is_copy && !is_partners(r, i)))
          check(at(r, i), r, i, &all[r].states[i], where);
      if (!is_copy) pthread_mutex_unlock(&turns[t]);
    }
}

/// A child with a copy of everything as it is now; its pages are copied when somebody writes.
static pid_t copy(void) {
  for (int t = 0; t < threads; ++t) pthread_mutex_lock(&turns[t]);
  fflush(stdout);
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    wrong = 0;
    check_all(1, "in a forked child");
    fflush(stdout);
    _exit(wrong != 0);
  }
  for (int t = 0; t < threads; ++t) pthread_mutex_unlock(&turns[t]);
  return child;
}

// Pinned pages: a pipe holds one half of them, io_uring's registered buffers are the other.

static long spliced_page(long n) { return (2 * n + 1) * pinned_every - 1; }
static long registered_page(long n) { return (2 * n + 2) * pinned_every - 1; }
static long pinned_count(void) { return all[plain].pages / pinned_every / 2; }

static void next_generation(long i) {
  ++all[plain].states[i].generation;
  fill(at(plain, i), plain, i, &all[plain].states[i]);
}
static void splice_in(int pipe_in) {
  for (long n = 0; n < pinned_count(); ++n) {
    next_generation(spliced_page(n));
    const struct iovec part = {at(plain, spliced_page(n)), page};
    if (vmsplice(pipe_in, &part, 1, 0) != page) fail("vmsplice");
  }
}
static void splice_out(int pipe_out) {
  static char read_back[page] __attribute__((aligned(8)));
  for (long n = 0; n < pinned_count(); ++n) {
    if (read(pipe_out, read_back, page) != page) fail("the pipe of pinned pages");
    const long i = spliced_page(n);
    check(read_back, plain, i, &all[plain].states[i], "in the pipe that holds it");
  }
}

static struct ring {
  int file;
  unsigned *sq_tail, *sq_array, *cq_head, *cq_tail;
  struct io_uring_sqe* entries;
  struct io_uring_cqe* done;
} ring;

static void open_ring(void) {
  struct io_uring_params given = {0};
  ring.file = (int)syscall(SYS_io_uring_setup, 1, &given);
  if (ring.file < 0) fail("io_uring_setup");
  const int access = PROT_READ | PROT_WRITE;
  char* const rings = mmap(NULL, page, access, MAP_SHARED, ring.file, IORING_OFF_SQ_RING);
  ring.entries = mmap(NULL, page, access, MAP_SHARED, ring.file, IORING_OFF_SQES);
  if (rings == MAP_FAILED || ring.entries == MAP_FAILED) fail("io_uring's rings");
  ring.sq_tail = (unsigned*)(rings + given.sq_off.tail);
  ring.sq_array = (unsigned*)(rings + given.sq_off.array);
  ring.cq_head = (unsigned*)(rings + given.cq_off.head);
  ring.cq_tail = (unsigned*)(rings + given.cq_off.tail);
  ring.done = (struct io_uring_cqe*)(rings + given.cq_off.cqes);
  static struct iovec buffers[1024];
  for (long n = 0; n < pinned_count(); ++n)
    buffers[n] = (struct iovec){at(plain, registered_page(n)), page};
  if (syscall(SYS_io_uring_register, ring.file, IORING_REGISTER_BUFFERS, buffers,
              (unsigned)pinned_count()) != 0)
    fail("io_uring's buffers");
}
/// Writes the pages to a file by way of their pins, and reads it.
static void write_registered(int file) {
  static char read_back[page] __attribute__((aligned(8)));
  for (long n = 0; n < pinned_count(); ++n) {
    const long i = registered_page(n);
    next_generation(i);
    ring.entries[0] = (struct io_uring_sqe){.opcode = IORING_OP_WRITE_FIXED,
                                            .fd = file,
                                            .addr = (uintptr_t)at(plain, i),
                                            .len = page,
                                            .buf_index = (unsigned short)n};
    ring.sq_array[0] = 0;
    __atomic_store_n(ring.sq_tail, *ring.sq_tail + 1, __ATOMIC_RELEASE);
    long entered;
    do {
      entered = syscall(SYS_io_uring_enter, ring.file, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0);
    } while (entered < 0 && errno == EINTR);
    if (entered != 1) fail("io_uring_enter");
    const unsigned head = *ring.cq_head;
    if (head == __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE)) fail("io_uring's completion");
    errno = -ring.done[head & 1].res;
    if (ring.done[head & 1].res != page) fail("a write of a pinned page");
    __atomic_store_n(ring.cq_head, head + 1, __ATOMIC_RELEASE);
    if (pread(file, read_back, page, 0) != page) fail("what io_uring has written");
    check(read_back, plain, i, &all[plain].states[i], "as io_uring has written it");
  }
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const long enough_moved = atol(argv[1]) * mib_pages;
  const double began = now(), seconds = atof(argv[2]);
  allocate_on(1);
  setvbuf(stdout, NULL, _IOLBF, 0);
  long total = 0;
  for (int r = 0; r < regions; ++r) {
    const size_t states = (size_t)sizes[r] * sizeof(struct state);
    all[r].pages = sizes[r];
    total += sizes[r];
    all[r].at =
        r == shared ? shared_memory((size_t)sizes[r] * page) : memory_of(sizes[r], r == huge);
    all[r].states = (struct state*)(r == shared ? shared_memory(states) : calloc(1, states));
    for (long i = 0; i < sizes[r]; ++i) fill(at(r, i), r, i, &all[r].states[i]);
  }
  if (mlock(all[locked].at, (size_t)sizes[locked] * page) != 0) fail("mlock");
  int orders[2], ends[2];
  if (pipe(orders) != 0) fail("pipe");
  const pid_t second = fork();
  if (second < 0) fail("fork");
  if (second == 0) {
    close(orders[1]);
    _exit(partner(orders[0]));
  }
  if (pipe(ends) != 0 || fcntl(ends[0], F_SETPIPE_SZ, 1 << 20) < 0) fail("pipe");
  const int file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
  if (file < 0) fail("a file in /tmp");
  open_ring();
  pthread_t running[threads];
  for (long t = 0; t < threads; ++t) {
    pthread_mutex_init(&turns[t], NULL);
    if (pthread_create(&running[t], NULL, writer, (void*)t) != 0) fail("pthread_create");
  }
  // Of this thread alone: who checks has the processor when it wants it.
  if (setpriority(PRIO_PROCESS, 0, -10) != 0) fail("setpriority");
  int status = 0, bad = 0;
  long most = 0, windows = 0, before = 0, moved = 0;
  struct sigaction on_end = {.sa_handler = end, .sa_flags = SA_RESTART};
  if (sigaction(SIGTERM, &on_end, NULL) != 0) fail("sigaction");
  while (!told_to_end && (moved < enough_moved || windows == 0) && now() - began < seconds) {
    splice_in(ends[1]);
    if (write(orders[1], "", 1) != 1) fail("the second process");
    let_write();
    splice_out(ends[0]);
    write_registered(file);
    check_all(0, "where it was written");
    const long fast = fast_pages(getpid());
    if (fast < 0) fail("numa_maps");
    if (fast > most) most = fast;
    if (fast > before) moved += fast - before;
    before = fast;
    if (now() - began < (double)(window_seconds * (windows + 1))) continue;
    const pid_t child = copy();
    let_write();
    if (waitpid(child, &status, 0) != child) fail("waitpid");
    bad |= status != 0;
    window = ++windows * (total / 5) % total;
    printf("second %.0f: %lu pages checked, %ld MiB fast\n", now() - began, (unsigned long)checks,
           fast / mib_pages);
  }
  over = 1;
  for (int t = 0; t < threads; ++t) pthread_join(running[t], NULL);
  check_all(0, "in the end");
  close(orders[1]);
  if (waitpid(second, &status, 0) != second) fail("waitpid");
  bad |= status != 0 || wrong != 0;
  for (long i = 1; i < all[shared].pages; i += 4)
    check(at(shared, i), shared, i, &all[shared].states[i], "after its second process");
  bad |= wrong != 0;
  printf(
      "content: %lu pages checked, %lu wrong; %ld copies, %ld pages pinned; %ld MiB came, at most "
      "%ld "
      "KiB fast\n",
      (unsigned long)checks, (unsigned long)wrong, windows, 2 * pinned_count(), moved / mib_pages,
      4 * most);
  return bad;
}
