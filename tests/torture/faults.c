// SPDX-License-Identifier: MIT

/* A preload that counts a process's system calls on the files below some folders, makes call N fail
 * or be the last, and writes down what they did to the files.
 *
 * Nothing happens before torture_arm(). Calls on other files go straight through. Whether a file is
 * below the folders is told by the path that it was opened with. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind {
  OPEN,
  CREATE,
  READ,
  WRITE,
  SYNC,
  RENAME,
  LINK,
  UNLINK,
  MKDIR,
  TRUNCATE,
  MAP,
  CLOSE,
  LIST,
  LOCK,
  TOLD, /* output to people; never counted */
};
enum { SHORT = -1, KILL = -2, FILES = 4096 };
static const unsigned NEEDS_SPACE = 1u << CREATE | 1u << WRITE | 1u << SYNC | 1u << RENAME |
                                    1u << LINK | 1u << MKDIR | 1u << TRUNCATE;
static const unsigned NEEDS_FILE = 1u << OPEN | 1u << CREATE | 1u << LIST;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char* folders;      /* separated by colons; NULL: not armed */
static long calls, target; /* so far; the one that fails */
static int action, lasting, report = -1, with_data;
static char* names[FILES];

/* Of `report`, one record per call: this, the two names, then the data. `number` is the call's;
 * negative: of the call that has the fault, before it is made. */
struct record {
  int64_t kind, file, offset, number, lengths[3];
};

static int below(const char* path) {
  if (!folders || !path) return 0;
  for (const char* at = folders; *at;) {
    const size_t length = strcspn(at, ":");
    if (!strncmp(path, at, length) && (path[length] == '/' || !path[length])) return 1;
    at += length + (at[length] == ':');
  }
  return 0;
}

static const char* name_of(int fd) { return fd >= 0 && fd < FILES ? names[fd] : NULL; }

static void rename_fd(int fd, const char* path) {
  if (fd < 0 || fd >= FILES) return;
  free(names[fd]);
  names[fd] = path ? strdup(path) : NULL;
}

static void put(const void* bytes, size_t count) {
  for (const char* at = bytes; count;) {
    const long done = syscall(SYS_write, report, at, count);
    if (done <= 0) abort();
    at += done, count -= (size_t)done;
  }
}

static int64_t inode(int fd, const char* path) {
  struct stat found;
  if ((fd >= 0 ? fstat(fd, &found) : lstat(path, &found)) != 0) return 0;
  return (int64_t)found.st_ino;
}

static void note(enum kind kind, int64_t file, int64_t offset, const char* from, const char* to,
                 const void* data, size_t count) {
  if (report < 0 || (!with_data && kind == TOLD)) return;
  if (!with_data) count = 0;
  const struct record head = {
      kind, file, offset, calls, {(int64_t)strlen(from), (int64_t)strlen(to), (int64_t)count}};
  put(&head, sizeof head);
  put(from, strlen(from));
  put(to, strlen(to));
  put(data, count);
}

/* Counts a call. What becomes of it: 0 it is made, an errno, SHORT or KILL. */
static int fate(enum kind kind) {
  ++calls;
  if (!target || calls < target || (calls > target && !lasting)) return 0;
  const unsigned bit = 1u << kind;
  if (action == ENOSPC && !(NEEDS_SPACE & bit)) return 0;
  if (action == EMFILE && !(NEEDS_FILE & bit)) return 0;
  if (action == SHORT && kind != WRITE && kind != READ) return 0;
  if (report >= 0 && calls == target) {
    const struct record hit = {kind, 0, 0, -calls, {0, 0, 0}};
    put(&hit, sizeof hit);
  }
  return action;
}

/* where: folders, absolute, separated by colons. number: of the call that fails, 0 for none. what:
 * an errno, SHORT or KILL (the call is the last). every: also all calls after it. to: file
 * descriptor of the report, -1 for none; data: with what is written, and output. */
void torture_arm(const char* where, long number, int what, int every, int to, int data) {
  pthread_mutex_lock(&mutex);
  calls = 0, target = number, action = what, lasting = every, report = to, with_data = data;
  folders = strdup(where);
  pthread_mutex_unlock(&mutex);
}

#define REAL(name) ((__typeof__(&name))next(#name))
static void* next(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (!found) abort();
  return found;
}

/* The body of a call on a watched file: `make` sets `result`, `after` runs when it went well. */
#define COUNTED(kind, type, make, after)       \
  pthread_mutex_lock(&mutex);                  \
  const int doom = fate(kind);                 \
  type result = (type) - 1;                    \
  int error = doom;                            \
  if (doom <= 0) {                             \
    make;                                      \
    error = errno;                             \
    if (result != (type) - 1) {                \
      after;                                   \
    } else if (!with_data) {                   \
      note(kind, 0, 0, "", "", NULL, 0);       \
    }                                          \
    if (doom == KILL) kill(getpid(), SIGKILL); \
  }                                            \
  pthread_mutex_unlock(&mutex);                \
  errno = error;                               \
  return result

static int open_it(int folder, const char* path, int flags, mode_t mode) {
  char full[PATH_MAX];
  const char* const base = name_of(folder);
  if (base && path[0] != '/' && snprintf(full, sizeof full, "%s/%s", base, path) > 0) path = full;
  if (!below(path)) return (int)syscall(SYS_openat, folder, path, flags, mode);
  const int fresh = (flags & O_CREAT) && access(path, F_OK) != 0;
  COUNTED(fresh ? CREATE : OPEN, int, result = (int)syscall(SYS_openat, folder, path, flags, mode),
          {
            rename_fd(result, path);
            const int64_t file = inode(result, NULL);
            note(fresh ? CREATE : OPEN, file, 0, path, "", NULL, 0);
            if (flags & O_TRUNC && !fresh && with_data) note(TRUNCATE, file, 0, path, "", NULL, 0);
          });
}

#define MODE                           \
  mode_t mode = 0;                     \
  if (flags & (O_CREAT | O_TMPFILE)) { \
    va_list rest;                      \
    va_start(rest, flags);             \
    mode = va_arg(rest, mode_t);       \
    va_end(rest);                      \
  }
int open(const char* path, int flags, ...) { MODE return open_it(AT_FDCWD, path, flags, mode); }
int open64(const char* path, int flags, ...) { MODE return open_it(AT_FDCWD, path, flags, mode); }
int openat(int at, const char* path, int flags, ...) { MODE return open_it(at, path, flags, mode); }
int openat64(int at, const char* path, int flags, ...) {
  MODE return open_it(at, path, flags, mode);
}
int __open_2(const char* path, int flags) { return open_it(AT_FDCWD, path, flags, 0); }
int __open64_2(const char* path, int flags) { return open_it(AT_FDCWD, path, flags, 0); }

ssize_t read(int fd, void* to, size_t count) {
  if (!below(name_of(fd))) return syscall(SYS_read, fd, to, count);
  COUNTED(READ, ssize_t,
          result = syscall(SYS_read, fd, to, doom == SHORT ? (count + 1) / 2 : count),
          note(READ, inode(fd, NULL), 0, name_of(fd), "", NULL, 0));
}
ssize_t pread64(int fd, void* to, size_t count, off64_t at) {
  if (!below(name_of(fd))) return syscall(SYS_pread64, fd, to, count, at);
  COUNTED(READ, ssize_t, result = syscall(SYS_pread64, fd, to, count, at),
          note(READ, inode(fd, NULL), at, name_of(fd), "", NULL, 0));
}
ssize_t pread(int fd, void* to, size_t count, off_t at) { return pread64(fd, to, count, at); }

static size_t part(size_t count, int doom) { return doom == SHORT ? (count + 1) / 2 : count; }

ssize_t write(int fd, const void* from, size_t count) {
  if (folders && with_data && (fd == 1 || fd == 2)) {
    pthread_mutex_lock(&mutex);
    note(TOLD, 0, 0, "", "", from, count);
    pthread_mutex_unlock(&mutex);
  }
  if (!below(name_of(fd))) return syscall(SYS_write, fd, from, count);
  COUNTED(WRITE, ssize_t, result = syscall(SYS_write, fd, from, part(count, doom)),
          note(WRITE, inode(fd, NULL), lseek(fd, 0, SEEK_CUR) - result, name_of(fd), "", from,
               (size_t)result));
}
ssize_t pwrite64(int fd, const void* from, size_t count, off64_t at) {
  if (!below(name_of(fd))) return syscall(SYS_pwrite64, fd, from, count, at);
  COUNTED(WRITE, ssize_t, result = syscall(SYS_pwrite64, fd, from, part(count, doom), at),
          note(WRITE, inode(fd, NULL), at, name_of(fd), "", from, (size_t)result));
}
ssize_t pwrite(int fd, const void* from, size_t count, off_t at) {
  return pwrite64(fd, from, count, at);
}

/* Copies are made of reads and writes, which are counted: their callers fall back on those. */
ssize_t sendfile64(int to, int from, off64_t* at, size_t count) {
  if (!below(name_of(to)) && !below(name_of(from)))
    return syscall(SYS_sendfile, to, from, at, count);
  errno = EINVAL;
  return -1;
}
ssize_t sendfile(int to, int from, off_t* at, size_t count) {
  return sendfile64(to, from, at, count);
}

static int sync_it(int fd, long number) {
  if (!below(name_of(fd))) return (int)syscall(number, fd);
  COUNTED(SYNC, int, result = (int)syscall(number, fd),
          note(SYNC, inode(fd, NULL), 0, name_of(fd), "", NULL, 0));
}
int fsync(int fd) { return sync_it(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_it(fd, SYS_fdatasync); }

int ftruncate64(int fd, off64_t size) {
  if (!below(name_of(fd))) return (int)syscall(SYS_ftruncate, fd, size);
  COUNTED(TRUNCATE, int, result = (int)syscall(SYS_ftruncate, fd, size),
          note(TRUNCATE, inode(fd, NULL), size, name_of(fd), "", NULL, 0));
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int rename(const char* from, const char* to) {
  if (!below(from) && !below(to)) return REAL(rename)(from, to);
  COUNTED(RENAME, int, result = REAL(rename)(from, to),
          note(RENAME, inode(-1, to), 0, from, to, NULL, 0));
}
int link(const char* from, const char* to) {
  if (!below(from) && !below(to)) return REAL(link)(from, to);
  COUNTED(LINK, int, result = REAL(link)(from, to),
          note(LINK, inode(-1, to), 0, from, to, NULL, 0));
}
int unlink(const char* path) {
  if (!below(path)) return REAL(unlink)(path);
  const int64_t file = inode(-1, path);
  COUNTED(UNLINK, int, result = REAL(unlink)(path), note(UNLINK, file, 0, path, "", NULL, 0));
}
int rmdir(const char* path) {
  if (!below(path)) return REAL(rmdir)(path);
  const int64_t file = inode(-1, path);
  COUNTED(UNLINK, int, result = REAL(rmdir)(path), note(UNLINK, file, 0, path, "", NULL, 0));
}
int mkdir(const char* path, mode_t mode) {
  if (!below(path)) return REAL(mkdir)(path, mode);
  COUNTED(MKDIR, int, result = REAL(mkdir)(path, mode),
          note(MKDIR, inode(-1, path), 0, path, "", NULL, 0));
}

void* mmap64(void* at, size_t count, int protection, int flags, int fd, off64_t offset) {
  if (!below(name_of(fd)))
    return (void*)syscall(SYS_mmap, at, count, protection, flags, fd, offset);
  COUNTED(MAP, void*, result = (void*)syscall(SYS_mmap, at, count, protection, flags, fd, offset),
          note(MAP, inode(fd, NULL), 0, name_of(fd), "", NULL, 0));
}
void* mmap(void* at, size_t count, int protection, int flags, int fd, off_t offset) {
  return mmap64(at, count, protection, flags, fd, offset);
}

static int is_folder(int fd) {
  struct stat found;
  return fstat(fd, &found) == 0 && S_ISDIR(found.st_mode);
}

int close(int fd) {
  if (!below(name_of(fd)) || is_folder(fd)) { /* a folder has nothing left to write */
    rename_fd(fd, NULL);
    return (int)syscall(SYS_close, fd);
  }
  pthread_mutex_lock(&mutex);
  const int doom = fate(CLOSE);
  note(CLOSE, inode(fd, NULL), 0, name_of(fd), "", NULL, 0);
  rename_fd(fd, NULL);
  int result = (int)syscall(SYS_close, fd); /* also when it fails, as Linux does */
  if (doom == KILL) kill(getpid(), SIGKILL);
  pthread_mutex_unlock(&mutex);
  if (doom > 0) errno = doom, result = -1;
  return result;
}

DIR* opendir(const char* path) {
  if (!below(path)) return REAL(opendir)(path);
  pthread_mutex_lock(&mutex);
  const int doom = fate(LIST);
  DIR* const result = doom > 0 ? NULL : REAL(opendir)(path);
  const int error = doom > 0 ? doom : errno;
  note(LIST, 0, 0, path, "", NULL, 0);
  if (doom == KILL) kill(getpid(), SIGKILL);
  pthread_mutex_unlock(&mutex);
  errno = error;
  return result;
}

/* A lock is waited for: the mutex is not held meanwhile. */
int flock(int fd, int operation) {
  if (!below(name_of(fd))) return (int)syscall(SYS_flock, fd, operation);
  pthread_mutex_lock(&mutex);
  const int doom = fate(LOCK);
  note(LOCK, inode(fd, NULL), 0, name_of(fd), "", NULL, 0);
  pthread_mutex_unlock(&mutex);
  const int result = doom > 0 ? -1 : (int)syscall(SYS_flock, fd, operation);
  if (doom == KILL) kill(getpid(), SIGKILL);
  if (doom > 0) errno = doom;
  return result;
}
