// SPDX-License-Identifier: MIT

// What the guest's programs have in common.
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { page = 4096, mib_pages = 256, policy_bind = 2 };

/// Ends a program that cannot do what it is for: nothing is said about tierd then.
static inline _Noreturn void fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(2);
}

/// Xorshift; the state is not 0.
static inline uint64_t random_of(uint64_t* state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  return *state ^= *state << 17;
}

static inline double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/// What is touched from now on comes from this node; as the program was started: -1.
static inline void allocate_on(int node) {
  static int has_first = 0, first_mode;
  static unsigned long first_nodes[16];
  unsigned long nodes[16] = {0};
  if (!has_first &&
      syscall(SYS_get_mempolicy, &first_mode, first_nodes, 8 * sizeof nodes, NULL, 0) != 0)
    fail("get_mempolicy");
  has_first = 1;
  if (node >= 0) nodes[0] = 1UL << node;
  if (syscall(SYS_set_mempolicy, node < 0 ? first_mode : policy_bind,
              node < 0 ? first_nodes : nodes, 8 * sizeof nodes + 1) != 0)
    fail("set_mempolicy");
}

/// Private memory, which huge pages may back or not.
static inline char* memory_of(long pages, int huge) {
  char* const at =
      mmap(NULL, (size_t)pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) fail("mmap");
  if (madvise(at, (size_t)pages * page, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) != 0)
    fail("madvise");
  return at;
}

/// Fills these pages on a node, each with bytes of its own behind a count of writes: the counts.
static inline uint64_t* fill_on(int node, char* memory, long pages) {
  uint64_t* const counts = calloc((size_t)pages, sizeof *counts);
  if (counts == NULL) fail("calloc");
  allocate_on(node);
  for (long i = 0; i < pages; ++i) {
    memset(memory + i * page, (int)(i % 251), page);
    memcpy(memory + i * page, &counts[i], sizeof *counts);
  }
  allocate_on(-1);
  return counts;
}

/// Writes to one of them.
static inline void count_up(char* memory, uint64_t* counts, long which) {
  ++counts[which];
  memcpy(memory + which * page, &counts[which], sizeof *counts);
}

/// Whether all of them hold what was written, and says so: 0, or 1 for a wrong byte.
static inline int check_counted(const char* memory, const uint64_t* counts, long pages) {
  for (long i = 0; i < pages; ++i) {
    const char* const at = memory + i * page;
    uint64_t count;
    memcpy(&count, at, sizeof count);
    for (int b = sizeof count; b < page; ++b)
      if (count != counts[i] || at[b] != (char)(i % 251)) {
        printf("page %ld: wrong byte %d\n", i, b);
        return 1;
      }
  }
  printf("every byte is right\n");
  return 0;
}

/// Of so many pages of this process, those on a node.
static inline long pages_on(int node, char* first, long pages) {
  static void* at[65536];
  static int status[65536];
  long found = 0;
  for (long i = 0; i < pages; ++i) at[i] = first + i * page;
  if (syscall(SYS_move_pages, 0, pages, at, NULL, status, 0) != 0) return -1;
  for (long i = 0; i < pages; ++i) found += status[i] == node;
  return found;
}

/// Pages of a process's own memory on node 0, as /proc/PID/numa_maps tells: files are left out, but
/// for shared memory. -1 when it has ended.
static inline long fast_pages(int pid) {
  char path[64], line[4096];
  snprintf(path, sizeof path, "/proc/%d/numa_maps", pid);
  FILE* const in = fopen(path, "re");
  if (in == NULL) return -1;
  long sum = 0;
  while (fgets(line, sizeof line, in) != NULL) {
    const char* const file = strstr(line, " file=");
    if (file != NULL && strncmp(file, " file=/dev/zero", 15) != 0) continue;
    const char* const on = strstr(line, " N0=");
    if (on != NULL) sum += atol(on + 4);
  }
  const int failed = ferror(in);
  fclose(in);
  return failed ? -1 : sum;
}
