// SPDX-License-Identifier: MIT

// A program for three nodes: tiers MIB HOT_MIB WARM_MIB SECONDS
// Fills its memory on node 2, then writes to pages at random: most of all to hot ones, one time in
// eight to warm ones, and to no others. Each second it prints how many MiB of the hot ones are on
// node 0, and of the warm ones on node 0 or 1; it is over when 95 % of both are. In the end it
// checks that all memory holds what was written: exit status 1 for a wrong byte.
#include "common.h"

static uint64_t state = 88172645463325252ULL;

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const long all = atol(argv[1]) * mib_pages, hot = atol(argv[2]) * mib_pages;
  const long warm = atol(argv[3]) * mib_pages;
  const double seconds = atof(argv[4]);
  char* const memory = memory_of(all, 0);
  uint64_t* const counts = fill_on(2, memory, all);
  char* const warm_ones = memory + (all - warm) * page;
  const double began = now();
  long told = 0;
  for (double at = 0; at < seconds; at = now() - began) {
    for (int i = 0; i < 20000; ++i) {
      const uint64_t drawn = random_of(&state);
      const long which = i % 8 != 0 ? (long)(drawn % (uint64_t)hot)
                                    : all - warm + (long)(drawn % (uint64_t)warm);
      count_up(memory, counts, which);
    }
    if (at < (double)(told + 1)) continue;
    ++told;
    const long fast = pages_on(0, memory, hot), skipped = pages_on(0, warm_ones, warm);
    const long middle = pages_on(1, warm_ones, warm);
    printf("second %ld: %ld of %ld MiB fast, %ld of %ld MiB above the last\n", told,
           fast / mib_pages, hot / mib_pages, (skipped + middle) / mib_pages, warm / mib_pages);
    fflush(stdout);
    if (fast * 100 >= hot * 95 && (skipped + middle) * 100 >= warm * 95) break;
  }
  return check_counted(memory, counts, all);
}
