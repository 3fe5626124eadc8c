// SPDX-License-Identifier: MIT

// Spool: what a sampler inside (or beside) a running program writes down while it runs.
//
// One file per process, PID.spool in the recording's folder. The file is mapped shared and grows in
// preallocated pieces, so that whatever was written survives any death of the program, `kill -9`
// included, and a full disk is noticed before it is written to (posix_fallocate) rather than as a
// bus error. Header-only and free of dependencies beyond libc: it is compiled into an emulator's
// plugin. It allocates no memory and throws nothing.
//
// The file is a header page and then 16-byte records. `SpoolHeader::records` is raised after the
// records are there; whatever lies beyond it does not exist. spool_reader.hpp reads spools.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace tt::record {

inline constexpr std::uint64_t spool_magic = 0x314c4f4f50535454ULL;  // "TTSPOOL1"
inline constexpr std::uint32_t spool_version = 1;
inline constexpr std::uint64_t spool_header_bytes = 4096;
inline constexpr std::uint64_t spool_piece_bytes = 4ull << 20;

enum class RecordType : std::uint8_t {
  time = 1,     // value: ns since the recording began; holds for all that follows
  site = 2,     // value: bytes of the text that follows in whole records (zero-padded); allocation
                // call site of the next map
  map = 3,      // address, value: bytes. Replaces whatever was there (as mmap with MAP_FIXED)
  unmap = 4,    // address, value: bytes. Parts that are not mapped are ignored
  discard = 5,  // address, value: bytes. Contents dropped, range stays (madvise DONTNEED, FREE)
  access = 6,   // address; value: a double, how many accesses this stands for
  compute = 7,  // value: a double, thread nanoseconds not waiting for memory
  phase = 8,    // value: 1 timed, 0 set-up
  shared = 9,   // address: offset in bytes, value: identity. The next map is of that part of memory
                // which other processes may map, too
  operations_begin = 10,  // the first operation of the process begins
  // What an operation under way that is kept whole has accessed: address, class and kind as
  // `access`; value: its slot << 32 | count. A thread has the same slot for all its operations.
  operation_access = 11,
  operation = 12,  // it has ended; address: slot, class: level; value: a double, thread ns computed
  operations = 13,  // value: so many have ended since the last such record
};

/// An operation's level is how often a hash of its number can be halved. A process keeps whole
/// those of at least some level, which rises as there are more of them, so that any level tells a
/// sample in which all have the same chance.
inline constexpr std::uint32_t abandoned_operation = 127;

struct Record {
  std::uint64_t word;  // address in bits 0-47, type in 48-55, stream class << 1 | store in 56-63
  std::uint64_t value;

  static constexpr std::uint64_t address_mask = (std::uint64_t{1} << 48) - 1;
  [[nodiscard]] std::uint64_t address() const { return word & address_mask; }
  [[nodiscard]] RecordType type() const { return static_cast<RecordType>(word >> 48 & 0xff); }
  [[nodiscard]] std::uint32_t stream_class() const {
    return static_cast<std::uint32_t>(word >> 57);
  }
  [[nodiscard]] bool store() const { return (word >> 56 & 1) != 0; }
};
static_assert(sizeof(Record) == 16);

enum class SpoolState : std::uint32_t { open = 0, closed = 1, disk_full = 2, failed = 3 };

struct SpoolHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t pid;
  std::uint64_t start_ns;  // of this process on the recording's clock
  std::atomic<std::uint64_t> records;
  std::atomic<std::uint32_t> state;  // SpoolState
  std::uint32_t threads;             // most that ran at the same time, 0: unknown
  std::uint64_t dropped;             // records that could not be kept
  double sampled;                    // accesses seen by the sampler, before weighting
  std::uint64_t last_ns;             // of the last time record
  double error_share;                // sampler's own estimate of the relative standard error of
                                     // a page's count, 0: exact
  char sampler[32];
  // Operations of the program.
  std::uint64_t operations;
  std::uint64_t operations_abandoned;  // did not end before their thread began another, or ended
  std::uint64_t operations_unbegun;    // ends without a beginning
  std::uint64_t probes;                // USDT probes at which operations begin or end
  std::uint64_t last_operation_ns;     // when the last one ended, on the recording's clock
  std::uint32_t operation_level;       // those below are not all here
};
static_assert(sizeof(SpoolHeader) <= spool_header_bytes);

/// How many processes of a recording could not begin a spool: a word in a file of its folder, which
/// the recorder makes. It is mapped early: a process may lose the right to open it.
class Unseen {
 public:
  void open(const char* folder) {
    char path[4096];
    if (std::strlen(folder) + sizeof "/unseen" > sizeof path) return;
    std::strcat(std::strcpy(path, folder), "/unseen");
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void* const at =
        ::mmap(nullptr, spool_header_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (at != MAP_FAILED) word_ = static_cast<std::atomic<std::uint64_t>*>(at);
  }
  void count() {
    if (word_ != nullptr) word_->fetch_add(1);
  }
  /// One that was counted goes on after all.
  void take_back() {
    if (word_ != nullptr) word_->fetch_sub(1);
  }

 private:
  std::atomic<std::uint64_t>* word_ = nullptr;
};

/// Appends records. Calls must not overlap: the sampler holds its own lock.
class SpoolWriter {
 public:
  SpoolWriter() = default;
  SpoolWriter(const SpoolWriter&) = delete;
  SpoolWriter& operator=(const SpoolWriter&) = delete;
  ~SpoolWriter() { close(SpoolState::closed); }

  /// Creates the file. Returns 0 or an errno.
  int open(const char* path, const char* sampler, std::uint64_t start_ns) {
    if (std::strlen(path) >= sizeof(path_)) return ENAMETOOLONG;
    std::strcpy(path_, path);
    void* at = MAP_FAILED;
    if (const int error = map_piece(O_CREAT | O_EXCL, 0, spool_header_bytes, at); error != 0)
      return error;
    header_ = static_cast<SpoolHeader*>(at);
    header_->version = spool_version;
    header_->pid = static_cast<std::uint32_t>(::getpid());
    header_->start_ns = start_ns;
    std::strncpy(header_->sampler, sampler, sizeof(header_->sampler) - 1);
    header_->magic = spool_magic;
    return 0;
  }
  [[nodiscard]] bool good() const { return header_ != nullptr; }
  [[nodiscard]] SpoolHeader* header() { return header_; }

  void time(std::uint64_t ns) {
    put(RecordType::time, 0, 0, ns);
    if (header_ != nullptr) header_->last_ns = ns;
  }
  /// `shared`: what names memory that processes share, 0: it is the process's own.
  void map(std::uint64_t address, std::uint64_t bytes, const char* site, std::uint64_t shared = 0,
           std::uint64_t offset = 0) {
    const std::uint64_t length = std::strlen(site);
    if (length > 0) {
      put(RecordType::site, 0, 0, length);
      for (std::uint64_t i = 0; i < length; i += sizeof(Record)) {
        Record text{};
        std::memcpy(&text, site + i, length - i < sizeof(text) ? length - i : sizeof(text));
        append(text);
      }
    }
    if (shared != 0) put(RecordType::shared, offset, 0, shared);
    put(RecordType::map, address, 0, bytes);
  }
  void unmap(std::uint64_t address, std::uint64_t bytes) {
    put(RecordType::unmap, address, 0, bytes);
  }
  void discard(std::uint64_t address, std::uint64_t bytes) {
    put(RecordType::discard, address, 0, bytes);
  }
  void access(std::uint64_t address, bool store, std::uint32_t stream_class, double count) {
    put(RecordType::access, address, stream_class << 1 | (store ? 1U : 0U),
        std::bit_cast<std::uint64_t>(count));
  }
  void compute(double thread_ns) {
    put(RecordType::compute, 0, 0, std::bit_cast<std::uint64_t>(thread_ns));
  }
  void operations_begin() { put(RecordType::operations_begin, 0, 0, 0); }
  void operation_access(std::uint32_t slot, std::uint64_t address, bool store,
                        std::uint32_t stream_class, std::uint32_t count) {
    put(RecordType::operation_access, address, stream_class << 1 | (store ? 1U : 0U),
        std::uint64_t{slot} << 32 | count);
  }
  void operation(std::uint32_t slot, std::uint32_t level, double compute_ns) {
    put(RecordType::operation, slot, level << 1, std::bit_cast<std::uint64_t>(compute_ns));
  }
  void operations(std::uint64_t count) { put(RecordType::operations, 0, 0, count); }
  void phase(bool timed) { put(RecordType::phase, 0, 0, timed ? 1 : 0); }

  void close(SpoolState state) {
    if (header_ == nullptr) return;
    if (header_->state.load() == static_cast<std::uint32_t>(SpoolState::open))
      header_->state = static_cast<std::uint32_t>(state);
    abandon();
  }
  /// In a forked child: lets go of the parent's spool, which goes on.
  void abandon() {
    if (header_ == nullptr) return;
    if (piece_ != nullptr) ::munmap(piece_, spool_piece_bytes);
    ::munmap(header_, spool_header_bytes);
    piece_ = nullptr;
    header_ = nullptr;
    used_ = 0;
    records_ = 0;
  }

 private:
  void put(RecordType type, std::uint64_t address, std::uint32_t kind, std::uint64_t value) {
    append({(address & Record::address_mask) | static_cast<std::uint64_t>(type) << 48 |
                static_cast<std::uint64_t>(kind) << 56,
            value});
  }
  void append(const Record& record) {
    if (header_ == nullptr) return;
    if (used_ == spool_piece_bytes / sizeof(Record) || piece_ == nullptr) {
      if (!grow()) {
        ++header_->dropped;
        return;
      }
    }
    std::memcpy(piece_ + used_ * sizeof(Record), &record, sizeof(Record));
    ++used_;
    header_->records.store(++records_, std::memory_order_release);
  }
  bool grow() {
    if (header_->state.load() != static_cast<std::uint32_t>(SpoolState::open)) return false;
    const std::uint64_t at = spool_header_bytes + records_ * sizeof(Record);
    void* next = MAP_FAILED;
    if (const int error = map_piece(0, at, spool_piece_bytes, next); error != 0) {
      const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
      header_->state =
          static_cast<std::uint32_t>(full ? SpoolState::disk_full : SpoolState::failed);
      return false;
    }
    if (piece_ != nullptr) ::munmap(piece_, spool_piece_bytes);
    piece_ = static_cast<char*>(next);
    used_ = 0;
    return true;
  }
  /// Preallocates and maps a part of the file. No descriptor is kept: a program that closes all
  /// that it finds, and opens files of its own, would have us write into those.
  int map_piece(int flags, std::uint64_t from, std::uint64_t bytes, void*& at) {
    // Beyond this limit (ulimit -f) the kernel would end the program with SIGXFSZ.
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && from + bytes > limit.rlim_cur) return EFBIG;
    const int file = ::open(path_, O_RDWR | O_CLOEXEC | flags, 0600);
    if (file < 0) return errno;
    // Who may reach it, its folder says: a program that gives up root goes on with it.
    if ((flags & O_CREAT) != 0) (void)::fchmod(file, 0666);
    int error = ::posix_fallocate(file, static_cast<off_t>(from), static_cast<off_t>(bytes));
    if (error == 0) {
      at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                  static_cast<off_t>(from));
      if (at == MAP_FAILED) error = errno;
    }
    ::close(file);
    return error;
  }

  char path_[4096] = {};
  SpoolHeader* header_ = nullptr;
  char* piece_ = nullptr;
  std::uint64_t used_ = 0;     // records in the piece
  std::uint64_t records_ = 0;  // in all
};

}  // namespace tt::record
