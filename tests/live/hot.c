// SPDX-License-Identifier: MIT

// A program with a hot set, for the guest: hot MIB HOT_MIB SECONDS [MOVES_AT [SHARE]]
// Fills its memory on node 1, then writes to pages of the hot set at random, and prints each second
// how many MiB of the hot set, and of all of it, are on node 0. From second MOVES_AT on the hot set
// is at the other end. With SHARE nothing waits any longer when so many percent of it are on
// node 0: it moves, or it is over. In the end the program checks that all memory holds what was
// written: exit status 1 for a wrong byte.
// A count of pages takes a while, and would find too many if pages that it has counted went down
// meanwhile and others, yet to be counted, up: where tierd is the parent, it stands still for it.
#include "common.h"

#include <sched.h>
#include <signal.h>

static uint64_t state = 88172645463325252ULL;

/// The state of a process whose name is "tierd", as proc(5) has it; else 0.
static char tierd_state(pid_t pid) {
  char path[64], state = 0;
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  FILE* const in = fopen(path, "re");
  if (in == NULL) return 0;
  if (fscanf(in, "%*d (tierd) %c", &state) != 1) state = 0;
  fclose(in);
  return state;
}

/// Stops the parent if it is tierd, and waits until no call of it moves pages any more.
static pid_t stop_tierd(void) {
  const pid_t parent = getppid();
  if (tierd_state(parent) == 0) return 0;
  if (kill(parent, SIGSTOP) != 0) fail("tierd does not stop");
  for (char state = 0; state != 'T'; state = tierd_state(parent)) {
    if (getppid() != parent) return 0;
    sched_yield();
  }
  return parent;
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const long all = atol(argv[1]) * mib_pages, hot = atol(argv[2]) * mib_pages;
  const double seconds = atof(argv[3]);
  double moves = argc > 4 ? atof(argv[4]) : seconds;
  const long share = argc > 5 ? atol(argv[5]) : 101;
  char* const memory = memory_of(all, 1);
  uint64_t* const counts = fill_on(1, memory, all);
  const double began = now();
  long told = 0;
  int has_moved = 0;
  for (double at = 0; at < seconds; at = now() - began) {
    if (at >= moves && !has_moved) {
      has_moved = 1;
      printf("the hot set moves\n");
    }
    char* const first = has_moved ? memory + (all - hot) * page : memory;
    for (int i = 0; i < 20000; ++i) {
      const long which = (long)(random_of(&state) % (uint64_t)hot) + (first - memory) / page;
      count_up(memory, counts, which);
    }
    if (at < (double)(told + 1)) continue;
    ++told;
    const pid_t stopped = stop_tierd();
    const long found = pages_on(0, first, hot), found_in_all = pages_on(0, memory, all);
    if (stopped != 0) kill(stopped, SIGCONT);
    printf("second %ld: %ld of %ld MiB fast, %ld in all\n", told, found / mib_pages,
           hot / mib_pages, found_in_all / mib_pages);
    fflush(stdout);
    if (found * 100 < hot * share) continue;
    if (has_moved || moves >= seconds) break;
    moves = at;
  }
  return check_counted(memory, counts, all);
}
