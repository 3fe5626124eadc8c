// SPDX-License-Identifier: MIT

// Kills at any moment: kills tierd|target COUNT SEED LIMIT_MIB PID|PROGRAM TIERD ARGUMENT...
//
// `tierd`: TIERD ARGUMENT... --pid PID is killed COUNT times, every second time after so many
// system calls, else after so much time, both by SEED. After each, TIERD restore has to bring back
// what the kernel's settings were; the process lives, and no more than LIMIT_MIB of its memory are
// on node 0.
// `target`: PROGRAM is killed instead, and tierd has to end by itself without an error.
// Exit status 1 if anything of this does not hold.
#include "common.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

enum { most_calls = 4000, most_milliseconds = 3000 };
static const char* const settings[] = {"/proc/sys/kernel/numa_balancing",
                                       "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds"};
enum { setting_count = sizeof settings / sizeof *settings };

static int bad;
static void wrong(const char* what, long number) {
  printf("wrong: %s (%ld)\n", what, number);
  bad = 1;
}

static long setting(int which) {
  FILE* const in = fopen(settings[which], "re");
  long value;
  if (in == NULL || fscanf(in, "%ld", &value) != 1) fail(settings[which]);
  fclose(in);
  return value;
}
/// What a restore would have to undo.
static int noted(void) {
  DIR* const folder = opendir("/run/tierd");
  int found = 0;
  if (folder == NULL) return 0;
  for (struct dirent* each; (each = readdir(folder)) != NULL;) found += each->d_name[0] != '.';
  closedir(folder);
  return found;
}
static void check_settings(const long* before) {
  for (int i = 0; i < setting_count; ++i)
    if (setting(i) != before[i]) wrong(settings[i], setting(i));
  if (noted() != 0) wrong("changes are still noted", noted());
}

static pid_t start(char* const* command, int traced) {
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child > 0) return child;
  if (traced && ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) fail("ptrace");
  execv(command[0], command);
  fail(command[0]);
}
static int status_of(pid_t child) {
  int status;
  if (waitpid(child, &status, 0) != child) fail("waitpid");
  return status;
}
/// Lets a traced child make so many system calls. Its status then.
static int let_call(pid_t child, long calls) {
  int status = status_of(child);
  for (long stops = 0; WIFSTOPPED(status) && stops < calls; ++stops) {
    const int signal = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
    if (ptrace(PTRACE_SYSCALL, child, NULL, (void*)(long)signal) != 0) fail("ptrace");
    status = status_of(child);
  }
  return status;
}
/// Time passes, which is no event that could be waited for.
static void let_pass(pid_t of, int milliseconds) {
  struct pollfd process = {(int)syscall(SYS_pidfd_open, of, 0), POLLIN, 0};
  if (process.fd < 0) fail("pidfd_open");
  (void)poll(&process, 1, milliseconds);
  close(process.fd);
}

static uint64_t state;
/// Every other one is early, while tierd sets itself up, the rest are any.
static long drawn(int i, long most) {
  return (long)(random_of(&state) % (uint64_t)(i / 2 % 2 == 0 ? most / 3 : most));
}

static char number[32];

static void kill_tierd(int count, long limit, pid_t target, char** tierd, const long* before) {
  long changed = 0, moved = 0, most = 0, last = fast_pages(target);
  char* const restore[] = {tierd[0], "restore", NULL};
  for (int i = 0; i < count; ++i) {
    const int by_calls = i % 2 == 0;
    const long after = drawn(i, by_calls ? most_calls : most_milliseconds);
    const pid_t child = start(tierd, by_calls);
    int status = 0;
    if (by_calls) {
      status = let_call(child, after);
    } else {
      let_pass(child, (int)after);
    }
    kill(child, SIGKILL);
    if (!by_calls || WIFSTOPPED(status)) status = status_of(child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
      wrong("tierd ended before it was killed; status", status);
    const int left = noted();
    changed += left > 0;
    status = status_of(start(restore, 0));
    if (status != 0) wrong("tierd restore; status", status);
    check_settings(before);
    const long fast = fast_pages(target);
    if (fast <= 0) return wrong("the process has ended", target);
    if (fast > limit * mib_pages) wrong("more pages are on node 0 than may be", fast);
    moved += fast > last;
    printf("kill %d after %ld %s: %d files of changes, %ld KiB fast\n", i, after,
           by_calls ? "system calls" : "ms", left, 4 * fast);
    last = fast;
    if (fast > most) most = fast;
  }
  printf(
      "tierd was killed %d times: settings were changed at %ld, pages had moved at %ld; at most "
      "%ld KiB fast\n",
      count, changed, moved, 4 * most);
}

static void kill_target(int count, char* program, char** tierd, const long* before) {
  char* command[8] = {0};
  int words = 0;
  for (char* word = strtok(program, " "); word != NULL && words < 7; word = strtok(NULL, " "))
    command[words++] = word;
  long moving = 0;
  for (int i = 0; i < count; ++i) {
    const pid_t target = start(command, 0);
    snprintf(number, sizeof number, "%d", target);
    const pid_t watcher = start(tierd, 0);
    let_pass(watcher, (int)drawn(2, most_milliseconds));
    moving += fast_pages(target) > mib_pages;
    kill(target, SIGKILL);
    if (!WIFSIGNALED(status_of(target))) wrong("the target ended before it was killed", i);
    const int status = status_of(watcher);
    // It had not looked at the process yet: 2, and it says that there is none.
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 2))
      wrong("tierd, whose target has ended; status", status);
    check_settings(before);
  }
  printf("the target was killed %d times: at %ld of them much of it was fast\n", count, moving);
}

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  const int count = atoi(argv[2]);
  state = strtoull(argv[3], NULL, 10) * 0x9e3779b97f4a7c15ULL + 1;
  long before[setting_count];
  for (int i = 0; i < setting_count; ++i) before[i] = setting(i);
  char* tierd[32] = {0};
  int words = 0;
  for (int i = 6; i < argc && words < 28; ++i) tierd[words++] = argv[i];
  tierd[words++] = "--pid";
  tierd[words] = number;
  if (strcmp(argv[1], "tierd") == 0) {
    snprintf(number, sizeof number, "%s", argv[5]);
    kill_tierd(count, atol(argv[4]), atoi(argv[5]), tierd, before);
  } else {
    kill_target(count, argv[5], tierd, before);
  }
  return bad;
}
