// SPDX-License-Identifier: MIT

// A client of Redis on this machine's port 6379, which makes some keys hot:
// keys fill HOT COLD            so many keys, the hot ones first, with values of 1000 bytes
// keys load HOT COLD SHARE SECONDS TIERD
//                               reads keys and writes to parts of values in place, 15 of 16 of them
//                               hot ones, and checks what it reads; every five seconds it tells how
//                               many pages with hot values are on node 0, and which share of a
//                               processor TIERD (a process) and the kernel's DAMON have had. It
//                               ends when SHARE percent of these pages are, or so many seconds are
//                               over
// Exit status 1 for a wrong value.
#include "common.h"

#include <ctype.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { value_bytes = 1000, batch = 64, tell_seconds = 5 };

static int server;
static char buffer[1 << 20];
static size_t filled, taken;

static void send_all(const char* text, size_t bytes) {
  while (bytes > 0) {
    const ssize_t sent = write(server, text, bytes);
    if (sent <= 0) fail("sending to Redis");
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
    if (got <= 0) fail("an answer of Redis");
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
static void connect_to_server(void) {
  server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const struct sockaddr_in at = {
      .sin_family = AF_INET, .sin_port = htons(6379), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  if (server < 0 || connect(server, (const struct sockaddr*)&at, sizeof at) != 0)
    fail("a connection to Redis");
}

/// "value 00001234 " and what follows from the number, with a part that says how often it was
/// written to. All of it can be told from the number and the count.
static void make_value(char* out, long key, unsigned count) {
  memset(out, 'a' + (int)(key % 26), value_bytes);
  memcpy(out + snprintf(out, 32, "value %08ld %08u", key, count), " ", 1);
}

static long append_set(char* out, long key) {
  const long head =
      sprintf(out, "*3\r\n$3\r\nSET\r\n$12\r\nkey:%08ld\r\n$%d\r\n", key, value_bytes);
  make_value(out + head, key, 0);
  memcpy(out + head + value_bytes, "\r\n", 2);
  return head + value_bytes + 2;
}

static int fill(long keys) {
  static char asked[batch * (value_bytes + 128)];
  char line[64];
  for (long key = 0; key < keys;) {
    long bytes = 0, count = 0;
    for (; count < batch && key < keys; ++count, ++key) bytes += append_set(asked + bytes, key);
    send_all(asked, (size_t)bytes);
    for (; count > 0; --count) {
      receive_line(line, sizeof line);
      if (strcmp(line, "+OK") != 0) {
        printf("Redis said %s\n", line);
        return 1;
      }
    }
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

static void find_hot_pages(long redis, long hot) {
  enum { piece = 1 << 20 };
  static char part[piece + 64];
  char path[64], line[512];
  hot_pages = malloc((size_t)hot * sizeof *hot_pages);
  snprintf(path, sizeof path, "/proc/%ld/mem", redis);
  const int memory = open(path, O_RDONLY | O_CLOEXEC);
  snprintf(path, sizeof path, "/proc/%ld/maps", redis);
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
static long hot_on_node_0(long redis) {
  static int status[1 << 16];
  long fast = 0;
  if (hot_count == 0 || hot_count > sizeof status / sizeof *status) fail("pages of hot values");
  if (syscall(SYS_move_pages, redis, hot_count, hot_pages, NULL, status, 0) != 0)
    fail("where the pages are");
  for (unsigned long i = 0; i < hot_count; ++i) fast += status[i] == 0;
  return fast;
}

static int load(long hot, long cold, long share, double seconds, long tierd) {
  static char asked[batch * 128];
  static unsigned* counts;
  char line[64], wanted[value_bytes];
  counts = calloc((size_t)(hot + cold), sizeof *counts);
  uint64_t state = 88172645463325252ULL;
  const long redis = process("redis-server"), damon = process("kdamond");
  if (redis == 0) fail("redis-server");
  find_hot_pages(redis, hot);
  const double began = now(), hertz = (double)sysconf(_SC_CLK_TCK);
  const long own = ticks(tierd), kernels = ticks(damon);
  long requests = 0, fast = 0;
  for (double told = began; told - began < seconds && 100 * fast < share * (long)hot_count;) {
    long keys[batch], bytes = 0;
    for (int i = 0; i < batch; ++i) {
      const uint64_t drawn = random_of(&state);
      const int is_write = drawn >> 60 == 0;
      const long key = drawn % 16 != 0 ? (long)(drawn >> 8) % hot : hot + (long)(drawn >> 8) % cold;
      keys[i] = is_write ? -1 - key : key;
      if (is_write)
        bytes += sprintf(asked + bytes,
                         "*4\r\n$8\r\nSETRANGE\r\n$12\r\nkey:%08ld\r\n$2\r\n15\r\n$8\r\n%08u\r\n",
                         key, ++counts[key]);
      else
        bytes += sprintf(asked + bytes, "*2\r\n$3\r\nGET\r\n$12\r\nkey:%08ld\r\n", key);
      // What follows in the batch sees this write: one key is not read before it in the same one.
      for (int j = 0; is_write && j < i; ++j)
        if (keys[j] == key) keys[j] = -1 - key;
    }
    send_all(asked, (size_t)bytes);
    for (int i = 0; i < batch; ++i) {
      receive_line(line, sizeof line);
      if (line[0] == ':' && atoi(line + 1) == value_bytes) continue;
      if (line[0] != '$' || atoi(line + 1) != value_bytes) {
        printf("Redis said %s\n", line);
        return 1;
      }
      const char* const value = receive(value_bytes + 2);
      if (keys[i] < 0) continue;
      make_value(wanted, keys[i], counts[keys[i]]);
      if (memcmp(value, wanted, value_bytes) == 0) continue;
      printf("key %ld: found %.30s, expected %.30s\n", keys[i], value, wanted);
      return 1;
    }
    requests += batch;
    const double t = now();
    if (t - told < tell_seconds) continue;
    told = t;
    fast = hot_on_node_0(redis);
    printf(
        "second %.0f: %ld of %lu pages of hot values fast, %ld MiB in all; %ld requests; of a "
        "processor tierd %.1f %%, DAMON %.1f %%\n",
        t - began, fast, hot_count, fast_pages((int)redis) / mib_pages, requests,
        (double)(ticks(tierd) - own) / hertz / (t - began) * 100,
        (double)(ticks(damon) - kernels) / hertz / (t - began) * 100);
    fflush(stdout);
  }
  printf("every value is right\n");
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 4 && argc != 7) return 2;
  const long hot = atol(argv[2]), cold = atol(argv[3]);
  connect_to_server();
  if (argc == 4) return fill(hot + cold);
  return load(hot, cold, atol(argv[4]), atof(argv[5]), atol(argv[6]));
}
