// SPDX-License-Identifier: MIT

// A program that changes all that tierd knows of it, without end: storm SECONDS
// Maps, unmaps, moves (mremap), protects and drops memory (MADV_DONTNEED), forks, starts threads,
// and becomes itself anew (exec), and checks what its memory holds. Ends with status 7.
// storm hog: takes all memory of node 0, more than there is; the kernel ends it.
// storm leader: its first thread ends at once, and another one a while later, with status 5.
#include "common.h"

#include <pthread.h>
#include <sys/wait.h>

enum { areas = 12, most_pages = 1024, rounds_to_exec = 50 };

static struct area {
  unsigned char* at;
  long pages;
  unsigned char value;
  int dropped;
} all[areas];
static uint64_t state;

static void fill(struct area* area) {
  area->value = (unsigned char)random_of(&state);
  area->dropped = 0;
  memset(area->at, area->value, (size_t)area->pages * page);
}
/// The first and the last byte of each page, and the whole page in the middle.
static void check(const struct area* area, const char* after) {
  const unsigned char value = area->dropped ? 0 : area->value;
  const unsigned char* const middle = area->at + area->pages / 2 * page;
  int good = 1;
  for (long i = 0; i < area->pages; ++i)
    good &= area->at[i * page] == value && area->at[(i + 1) * page - 1] == value;
  for (int i = 0; i < page; ++i) good &= middle[i] == value;
  if (good) return;
  printf("storm: a wrong byte after %s\n", after);
  exit(1);
}
static void renew(struct area* area) {
  if (area->at != NULL && munmap(area->at, (size_t)area->pages * page) != 0) fail("munmap");
  area->pages = 1 + (long)(random_of(&state) % most_pages);
  allocate_on((int)(random_of(&state) % 2));
  area->at = (unsigned char*)memory_of(area->pages, random_of(&state) % 2 == 0);
  fill(area);
}
static void protect(const struct area* area) {
  unsigned char* const from = area->at + area->pages / 3 * page;
  const size_t bytes = (size_t)(area->pages - area->pages / 3) * page;
  if (mprotect(from, bytes, PROT_NONE) != 0 || mprotect(from, bytes, PROT_READ) != 0)
    fail("mprotect");
  check(area, "mprotect");
  if (mprotect(from, bytes, PROT_READ | PROT_WRITE) != 0) fail("mprotect");
}
static void drop(struct area* area) {
  if (madvise(area->at, (size_t)area->pages * page, MADV_DONTNEED) != 0) fail("madvise");
  area->dropped = 1;
}
static void remap(struct area* area) {
  const long pages = 1 + (long)(random_of(&state) % (uint64_t)area->pages);
  void* const at =
      mremap(area->at, (size_t)area->pages * page, (size_t)pages * page, MREMAP_MAYMOVE, NULL);
  if (at == MAP_FAILED) fail("mremap");
  area->at = at;
  area->pages = pages;
  unsigned char* const moved = (unsigned char*)memory_of(pages, 0);
  if (mremap(at, (size_t)pages * page, (size_t)pages * page, MREMAP_MAYMOVE | MREMAP_FIXED,
             moved) != moved)
    fail("mremap");
  area->at = moved;
  check(area, "mremap");
}
static void fork_and_check(struct area* area) {
  fflush(stdout);
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    for (int i = 0; i < areas; ++i) check(&all[i], "fork, in the child");
    fill(area);
    check(area, "a write to a copy");
    _exit(0);
  }
  int status;
  if (waitpid(child, &status, 0) != child) fail("waitpid");
  if (status != 0) exit(1);
  check(area, "a child's write to its copy");
}
static void* refill(void* area) {
  fill(area);
  return NULL;
}
static void let_thread_write(struct area* area) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, refill, area) != 0) fail("pthread_create");
  pthread_join(thread, NULL);
  check(area, "a thread's writes");
}

static void hog(void) {
  allocate_on(0);
  FILE* const out = fopen("/proc/self/oom_score_adj", "we");
  if (out == NULL || fputs("1000", out) < 0 || fclose(out) != 0) fail("oom_score_adj");
  while (1) {
    char* const at = memory_of(mib_pages, 0);
    memset(at, 1, (size_t)mib_pages * page);
  }
}

static void* last(void* leader) {
  pthread_join(*(pthread_t*)leader, NULL);
  static char memory[16 << 20];
  const double until = now() + 3;
  for (size_t n = 0; now() < until; ++n) memory[n * page % sizeof memory]++;
  _exit(5);
}

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (strcmp(argv[1], "hog") == 0) hog();
  if (strcmp(argv[1], "leader") == 0) {
    static pthread_t leader;
    leader = pthread_self();
    pthread_t thread;
    if (pthread_create(&thread, NULL, last, &leader) != 0) fail("pthread_create");
    pthread_exit(NULL);
  }
  const double until = argc > 2 ? atof(argv[2]) : now() + atof(argv[1]);
  state = argc > 3 ? strtoull(argv[3], NULL, 10) : 88172645463325252ULL;
  const long began = argc > 4 ? atol(argv[4]) : 0;
  for (int i = 0; i < areas; ++i) renew(&all[i]);
  for (long round = began; now() < until; ++round) {
    struct area* const area = &all[random_of(&state) % areas];
    check(area, "nothing at all");
    switch (random_of(&state) % 8) {
      case 0:
        protect(area);
        break;
      case 1:
        drop(area);
        break;
      case 2:
        if (!area->dropped) remap(area);
        break;
      case 3:
        fork_and_check(area);
        break;
      case 4:
        let_thread_write(area);
        break;
      default:
        renew(area);
    }
    if (round != began && round % rounds_to_exec == 0) {
      char text[3][32];
      snprintf(text[0], sizeof text[0], "%.3f", until);
      snprintf(text[1], sizeof text[1], "%lu", (unsigned long)random_of(&state));
      snprintf(text[2], sizeof text[2], "%ld", round + 1);
      execl("/proc/self/exe", argv[0], argv[1], text[0], text[1], text[2], NULL);
      fail("exec");
    }
    if (now() >= until)
      fprintf(stderr, "storm: %ld rounds, %ld of them as a new program\n", round, round - began);
  }
  printf("storm: every byte is right\n");
  return 7;
}
