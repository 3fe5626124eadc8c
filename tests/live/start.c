// SPDX-License-Identifier: MIT

// How long it takes until a program runs: start COUNT COMMAND [WORD ...]
// Starts the command so many times, one after the other, each of which has to run this program
// without words in the end: that tells the time. Prints the median and the most in ms.
#include "common.h"

#include <sys/wait.h>

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double started(char** command) {
  int ends[2];
  char told[32] = "";
  if (pipe(ends) != 0) fail("pipe");
  const double began = now();
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    execvp(command[0], command);
    fail(command[0]);
  }
  close(ends[1]);
  if (read(ends[0], told, sizeof told - 1) <= 0) fail("the program's time");
  close(ends[0]);
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) fail("the command's end");
  return 1000 * (atof(told) - began);
}

int main(int argc, char** argv) {
  if (argc == 1) {
    printf("%.6f\n", now());
    return 0;
  }
  const int count = argc > 2 ? atoi(argv[1]) : 0;
  double* const took = calloc(count > 0 ? (size_t)count : 1, sizeof *took);
  if (count < 1 || took == NULL) return 2;
  for (int i = 0; i < count; ++i) took[i] = started(argv + 2);
  qsort(took, (size_t)count, sizeof *took, compare);
  printf("start: median %.3f ms, most %.3f ms\n", took[count / 2], took[count - 1]);
  return 0;
}
