// SPDX-License-Identifier: MIT

// A program whose accesses are known, for the guest: skew KIND MIB PER_SECOND
// Fills its memory, says so, and reads it at random places, at most so many times a second: nine of
// ten in a tenth of it that lies together (hot); the same, but every ten seconds at the other end
// (moves); or by Zipf's law with pages in random order (scattered). SIGUSR1 begins the count, and
// after SIGTERM it prints what share of its reads since went to the tenth of its pages that had most
// of them.
#include "common.h"

#include <poll.h>
#include <signal.h>

static volatile sig_atomic_t over = 0, anew = 0;
static void end(int number) { over = number; }
static void begin_anew(int number) { anew = number; }

static uint64_t state = 88172645463325252ULL;
static double uniform(void) { return (double)(random_of(&state) >> 11) * 0x1p-53; }

static int falling(const void* a, const void* b) {
  const unsigned x = *(const unsigned*)a, y = *(const unsigned*)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

int main(int count, char** words) {
  if (count != 4) fail("skew KIND MIB PER_SECOND");
  const char kind = words[1][0];
  const unsigned long pages = strtoul(words[2], NULL, 0) * (1 << 20) / page;
  const double hertz = strtod(words[3], NULL);
  volatile char* const memory =
      mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  unsigned* const reads = calloc(pages, sizeof *reads);
  unsigned* const order = calloc(pages, sizeof *order);
  double* const below = calloc(pages + 1, sizeof *below);
  if (memory == MAP_FAILED || !reads || !order || !below) fail("no memory");
  madvise((void*)memory, pages * page, MADV_NOHUGEPAGE);
  for (unsigned long i = 0; i < pages; ++i) {
    memory[i * page] = 1;
    order[i] = (unsigned)i;
    below[i + 1] = below[i] + 1 / (double)(i + 1);
    const unsigned long other = (unsigned long)(uniform() * (double)(i + 1));
    const unsigned kept = order[other];
    order[other] = order[i], order[i] = kept;
  }
  signal(SIGTERM, end);
  signal(SIGUSR1, begin_anew);
  printf("skew: ready\n");
  fflush(stdout);
  for (double begin = now(), at = begin; !over; at = now()) {
    if (anew) memset(reads, 0, pages * sizeof *reads), anew = 0;
    for (int left = (int)(hertz / 1000); left > 0; --left) {
      unsigned long found;
      if (kind == 's') {
        const double all = uniform() * below[pages];
        unsigned long low = 0, high = pages - 1;
        while (low < high) {
          const unsigned long middle = (low + high) / 2;
          if (below[middle + 1] > all)
            high = middle;
          else
            low = middle + 1;
        }
        found = order[low];
      } else {
        const int hot = uniform() < 0.9;
        found = (unsigned long)(uniform() * (double)(hot ? pages / 10 : pages));
        if (hot && kind == 'm' && (long)(at - begin) / 10 % 2 == 1) found += pages - pages / 10;
      }
      (void)memory[found * page];
      ++reads[found];
    }
    poll(NULL, 0, 1);
  }
  qsort(reads, pages, sizeof *reads, falling);
  double top = 0, all = 0;
  for (unsigned long i = 0; i < pages; ++i) all += reads[i], top += i < pages / 10 ? reads[i] : 0;
  printf("skew: %.0f reads, the hottest tenth has %.4f\n", all, top / all);
  return 0;
}
