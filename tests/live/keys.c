// SPDX-License-Identifier: MIT

// A client of SERVER, redis-server or memcached on its usual port of this machine, which makes some
// keys hot:
// keys SERVER fill HOT COLD     so many keys, the hot ones first, with values of 1000 bytes
// keys SERVER load HOT COLD SHARE LIMIT SECONDS TIERD
//                               reads keys, 15 of 16 of them hot ones, and writes to values: to
//                               parts of any in Redis, where they stay in place, and to whole cold
//                               ones in memcached, where they do not. It checks what it reads;
//                               every five seconds it tells how many pages with hot values are on
//                               node 0, and which share of a processor TIERD (a process) and the
//                               kernel's DAMON have had. It ends when SHARE percent of these pages
//                               are, and no more than LIMIT MiB of all; or so many seconds are over
// Exit status 1 for a wrong value.
#include "common.h"

#include <ctype.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

enum { value_bytes = 1000, batch = 64, tell_seconds = 5 };

static const char* name;  // the server's
static int is_redis;
static int server;
static char buffer[1 << 20];
static size_t filled, taken;

static void send_all(const char* text, size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = write(server, text, bytes);
    if (sent <= 0) fail("sending to the server");
    text += sent;
    bytes -= (size_t)sent;
  }
}
/// So many bytes of the answer, which stay until the next call.
static const char* receive(size_t bytes) {
  if (taken + bytes > filled) {
    memmove(buffer, buffer + taken, filled - taken);
    filled -= taken;
    taken = 0;
  }
  while (filled < bytes) {
    const ssize_t got = read(server, buffer + filled, sizeof buffer - filled);
    if (got <= 0) fail("an answer of the server");
    filled += (size_t)got;
  }
  taken += bytes;
  return buffer + taken - bytes;
}
/// A line of the answer, without its end.
static void receive_line(char* out, size_t most) {
  for (size_t at = 0;; ++at) {
    const char byte = *receive(1);
    if (byte == '\n' || at + 1 == most) {
      out[at > 0 ? at - 1 : 0] = '\0';
      return;
    }
    out[at] = byte;
  }
}
/// memcached does not say when it listens.
static void connect_to_server(void) {
  const struct sockaddr_in at = {.sin_family = AF_INET,
                                 .sin_port = htons(is_redis ? 6379 : 11211),
                                 .sin_addr = {htonl(INADDR_LOOPBACK)}};
  for (const double began = now(); now() - began < 60; close(server)) {
    server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server < 0) fail("a socket");
    if (connect(server, (const struct sockaddr*)&at, sizeof at) == 0) return;
    if (errno != ECONNREFUSED) break;
    sched_yield();
  }
  fail("a connection to the server");
}

/// "value 00001234 " and what follows from the number, with a part that says how often it was
/// written to. All of it can be told from the number and the count.
static void make_value(char* out, long key, unsigned count) {
  memset(out, 'a' + (int)(key % 26), value_bytes);
  memcpy(out + snprintf(out, 32, "value %08ld %08u", key, count), " ", 1);
}

static long append_set(char* out, long key, unsigned count) {
  const char* const form =
      is_redis ? "*3\r\n$3\r\nSET\r\n$12\r\nkey:%08ld\r\n$%d\r\n" : "set key:%08ld 0 0 %d\r\n";
  const long head = sprintf(out, form, key, value_bytes);
  make_value(out + head, key, count);
  memcpy(out + head + value_bytes, "\r\n", 2);
  return head + value_bytes + 2;
}
static long append_get(char* out, long key) {
  return sprintf(out, is_redis ? "*2\r\n$3\r\nGET\r\n$12\r\nkey:%08ld\r\n" : "get key:%08ld\r\n",
                 key);
}
/// Of the part of a value that counts.
static long append_write(char* out, long key, unsigned count) {
  if (!is_redis) return append_set(out, key, count);
  return sprintf(out, "*4\r\n$8\r\nSETRANGE\r\n$12\r\nkey:%08ld\r\n$2\r\n15\r\n$8\r\n%08u\r\n", key,
                 count);
}
/// A value, or NULL for the answer to a write; ends the program for any other answer.
static const char* receive_answer(void) {
  char line[64];
  receive_line(line, sizeof line);
  if (is_redis ? strcmp(line, "+OK") == 0 || (line[0] == ':' && atoi(line + 1) == value_bytes)
               : strcmp(line, "STORED") == 0)
    return NULL;
  long key;
  int bytes = 0;
  if (is_redis ? sscanf(line, "$%d", &bytes) == 1
               : sscanf(line, "VALUE key:%ld 0 %d", &key, &bytes) == 2) {
    static char value[value_bytes];
    if (bytes == value_bytes) {
      memcpy(value, receive(value_bytes + 2), value_bytes);
      if (!is_redis) receive_line(line, sizeof line);
      if (is_redis || strcmp(line, "END") == 0) return value;
    }
  }
  printf("%s said %s\n", name, line);
  exit(1);
}

static int fill(long keys) {
  static char asked[batch * (value_bytes + 128)];
  for (long key = 0; key < keys;) {
    long bytes = 0, count = 0;
    for (; count < batch && key < keys; ++count, ++key) bytes += append_set(asked + bytes, key, 0);
    send_all(asked, (size_t)bytes);
    for (; count > 0; --count)
      if (receive_answer() != NULL) return 1;
  }
  return 0;
}

/// Processor time of a process so far, in ticks; 0 if there is none.
static long ticks(long pid) {
  char path[64], text[1024];
  snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  FILE* const in = fopen(path, "re");
  if (in == NULL) return 0;
  const size_t got = fread(text, 1, sizeof text - 1, in);
  fclose(in);
  text[got] = '\0';
  unsigned long user = 0, system = 0;
  const char* const behind = strrchr(text, ')');
  if (behind == NULL ||
      sscanf(behind, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
    return 0;
  return (long)(user + system);
}
/// The process of this name; 0 if there is none.
static long process(const char* name) {
  char path[300], found[64];
  long pid = 0;
  DIR* const folder = opendir("/proc");
  if (folder == NULL) fail("/proc");
  for (struct dirent* each; pid == 0 && (each = readdir(folder)) != NULL;) {
    if (!isdigit((unsigned char)each->d_name[0])) continue;
    snprintf(path, sizeof path, "/proc/%s/comm", each->d_name);
    FILE* const in = fopen(path, "re");
    if (in == NULL) continue;
    if (fgets(found, sizeof found, in) != NULL && strncmp(found, name, strlen(name)) == 0)
      pid = atol(each->d_name);
    fclose(in);
  }
  closedir(folder);
  return pid;
}

/// The server's pages that hold hot values, each once.
static void** hot_pages;
static unsigned long hot_count;

static void find_hot_pages(long pid, long hot) {
  enum { piece = 1 << 20 };
  static char part[piece + 64];
  char path[64], line[512];
  hot_pages = malloc((size_t)hot * sizeof *hot_pages);
  snprintf(path, sizeof path, "/proc/%ld/mem", pid);
  const int memory = open(path, O_RDONLY | O_CLOEXEC);
  snprintf(path, sizeof path, "/proc/%ld/maps", pid);
  FILE* const maps = fopen(path, "re");
  if (memory < 0 || maps == NULL) fail(path);
  while (fgets(line, sizeof line, maps) != NULL) {
    unsigned long begin, end, inode;
    char access[8];
    if (sscanf(line, "%lx-%lx %7s %*x %*s %lu", &begin, &end, access, &inode) != 4 ||
        access[1] != 'w' || inode != 0)
      continue;
    for (unsigned long at = begin; at < end; at += piece) {
      const size_t wanted = end - at < sizeof part ? end - at : sizeof part;
      const ssize_t got = pread(memory, part, wanted, (off_t)at);
      if (got <= 0) continue;
      for (char* found = part; (found = memmem(found, (size_t)(part + got - found), "value ", 6));
           ++found) {
        void* const address = (void*)((at + (unsigned long)(found - part)) & ~(page - 1UL));
        char* digits_end;
        if (found - part >= piece || part + got - found < 24) continue;
        const long key = strtol(found + 6, &digits_end, 10);
        if (digits_end != found + 14 || key >= hot) continue;
        if (hot_count > 0 && hot_pages[hot_count - 1] == address) continue;
        if (hot_count < (unsigned long)hot) hot_pages[hot_count++] = address;
      }
    }
  }
  fclose(maps);
  close(memory);
}
static long hot_on_node_0(long pid) {
  static int status[1 << 16];
  long fast = 0;
  if (hot_count == 0 || hot_count > sizeof status / sizeof *status) fail("pages of hot values");
  if (syscall(SYS_move_pages, pid, hot_count, hot_pages, NULL, status, 0) != 0)
    fail("where the pages are");
  for (unsigned long i = 0; i < hot_count; ++i) fast += status[i] == 0;
  return fast;
}

static int load(long hot, long cold, long share, long limit, double seconds, long tierd) {
  static char asked[batch * (value_bytes + 128)];
  static unsigned* counts;
  char wanted[value_bytes];
  counts = calloc((size_t)(hot + cold), sizeof *counts);
  uint64_t state = 88172645463325252ULL;
  const long pid = process(name), damon = process("kdamond");
  if (pid == 0) fail(name);
  find_hot_pages(pid, hot);
  const double began = now(), hertz = (double)sysconf(_SC_CLK_TCK);
  const long own = ticks(tierd), kernels = ticks(damon);
  long requests = 0;
  int reached = 0;
  for (double told = began; told - began < seconds && !reached;) {
    long keys[batch], bytes = 0;
    for (int i = 0; i < batch; ++i) {
      const uint64_t drawn = random_of(&state);
      const int is_hot = drawn % 16 != 0;
      // A share of 1 in 16, of Redis's values or of memcached's cold ones.
      const int is_write = drawn >> 60 == 0 && (is_redis || !is_hot);
      const long key = is_hot ? (long)(drawn >> 8) % hot : hot + (long)(drawn >> 8) % cold;
      keys[i] = is_write ? -1 - key : key;
      bytes += is_write ? append_write(asked + bytes, key, ++counts[key])
                        : append_get(asked + bytes, key);
      // What follows in the batch sees this write: one key is not read before it in the same one.
      for (int j = 0; is_write && j < i; ++j)
        if (keys[j] == key) keys[j] = -1 - key;
    }
    send_all(asked, (size_t)bytes);
    for (int i = 0; i < batch; ++i) {
      const char* const value = receive_answer();
      if (keys[i] < 0) continue;
      if (value == NULL) return 1;
      make_value(wanted, keys[i], counts[keys[i]]);
      if (memcmp(value, wanted, value_bytes) == 0) continue;
      printf("key %ld: found %.30s, expected %.30s\n", keys[i], value, wanted);
      return 1;
    }
    requests += batch;
    const double t = now();
    if (t - told < tell_seconds) continue;
    told = t;
    const long fast = hot_on_node_0(pid), all = fast_pages((int)pid) / mib_pages;
    reached = 100 * fast >= share * (long)hot_count && all <= limit;
    printf(
        "second %.0f: %ld of %lu pages of hot values fast, %ld MiB in all; %ld requests; of a "
        "processor tierd %.1f %%, DAMON %.1f %%\n",
        t - began, fast, hot_count, all, requests,
        (double)(ticks(tierd) - own) / hertz / (t - began) * 100,
        (double)(ticks(damon) - kernels) / hertz / (t - began) * 100);
    fflush(stdout);
  }
  printf("every value is right\n");
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 5 && argc != 9) return 2;
  name = argv[1];
  is_redis = strcmp(name, "redis-server") == 0;
  const long hot = atol(argv[3]), cold = atol(argv[4]);
  connect_to_server();
  if (argc == 5) return fill(hot + cold);
  return load(hot, cold, atol(argv[5]), atol(argv[6]), atof(argv[7]), atol(argv[8]));
}
