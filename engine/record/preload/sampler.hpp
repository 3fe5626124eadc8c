// The hint-fault sampler: takes pages away for a moment and learns from who wants them back.
//
// One thread does everything, so that nothing needs a lock:
//
//   take     a random present page is moved to the stash (UFFDIO_MOVE); the page is enrolled with
//            userfaultfd only as long as it is away, so that all else in the program runs as ever
//   serve    whoever touches it, in user code or inside a system call, waits until the page is
//            moved back; the wait tells the rate (heat.hpp)
//   expire   a page that nobody touched for `window` comes back by itself
//   emit     expected cache misses per page since it was last written go to the spool
//   look     now and then: what is mapped, which pages are present
//
// Budget. What the program may lose is `overhead` times its own processor time. The sampler's
// processor time, the threads' waits and the interrupts that a move sends to other processors are
// paid from it; pages are taken only while there is credit. Looking and emitting slow down by
// themselves to a fifth of it each.
//
// Safety. What other calls do to memory that is away:
//  - munmap, mremap, madvise(DONTNEED, FREE), fork: the kernel tells (userfaultfd events) and waits
//    until we have read it: the stash is dropped, follows, or is copied into the child. Moves fail
//    while an event is on its way, so that no old content comes back.
//  - mprotect, mlock, a guard: moving back fails; the content is copied back instead.
//  - exec, exit, any death: stash and program die together.
// Never taken: shared and file-backed memory (not ours to move), pinned pages (the kernel refuses),
// pages with thread descriptors (the kernel itself clears a word there when a thread ends, and does
// not wait), thread stacks, and whatever this thread touches: it must not wait for itself. Its
// descriptors live in a table of its own, where the program neither sees nor closes them.
#pragma once

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <limits>

#include "core/rng.hpp"
#include "record/preload/address_map.hpp"
#include "record/preload/changes.hpp"
#include "record/preload/heat.hpp"
#include "record/preload/kernel.hpp"
#include "record/spool.hpp"

namespace tt::record {

struct HintFaultOptions {
  double overhead = 0.05;  // of the program's processor time
  double cache_bytes = 13.75 * 1024 * 1024;
  double latency_ns = 90;      // of a miss, all memory fast
  std::uint64_t begin_ns = 0;  // of the recording, CLOCK_MONOTONIC
  char folder[3800] = {};
};

class Sampler {
 public:
  explicit Sampler(const HintFaultOptions& options)
      : options_(options), cache_(options.cache_bytes) {}
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // --- Called by the program's threads ----------------------------------------------------------

  /// Memory that the sampler's thread uses besides what it takes itself.
  void adopt(const void* at, std::uint64_t bytes) { own_.note(at, bytes); }
  /// An address in the loader (AT_BASE), whose data is left alone.
  void loader(std::uint64_t address) { loader_ = address; }
  /// Waits until the thread has begun to record, or has given up.
  void ready() {
    while (state_.load() == State::starting) {
      const timespec span{0, 1'000'000};
      ::syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, State::starting, &span, nullptr, 0);
    }
  }
  void tell(const Change& change) {
    if (running()) (void)changes_.push(change);
  }
  /// All pages are back, and none is taken before resume().
  void pause() {
    paused_.fetch_add(1);
    ask();
  }
  void resume() { paused_.fetch_sub(1); }
  /// In the child of a fork: the spool is the parent's.
  void abandon() { spool_.abandon(); }
  /// All pages are back and the spool is closed; the thread ends.
  void stop() {
    stopping_.store(true);
    ask();
  }

  // --- The thread -------------------------------------------------------------------------------

  void run() {
    const bool can = set_up();
    state_.store(can ? State::running : State::over);
    ::syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    if (!can) {
      close_files();
      return;
    }
    look();
    std::uint64_t next = now() + tick_ns;
    while (!stopping_.load()) {
      wait(next);
      account();
      // A program that hardly runs is not worth a look every tick.
      next = now() +
             static_cast<std::uint64_t>(static_cast<double>(tick_ns) / std::clamp(busy_, 0.1, 1.0));
      learn_changes();
      if (bell_) answer();
      if (stopping_.load()) break;
      expire(now());
      if (now() >= next_look_ns_ && cpu_s_ >= next_look_s_) look();
      take_some();
      emit();
    }
    finish();
  }

 private:
  enum class State : std::uint32_t { starting, running, over };
  [[nodiscard]] bool running() const {
    return state_.load(std::memory_order_relaxed) == State::running;
  }

  static constexpr std::uint64_t tick_ns = 10'000'000;
  static constexpr std::uint64_t window_ns = 500'000'000;
  static constexpr std::uint64_t look_ns = 100'000'000;  // at least, between two looks
  static constexpr std::uint64_t second = 1'000'000'000;
  static constexpr std::size_t small_slots = 2048;
  static constexpr std::size_t huge_slots = 16;
  static constexpr std::size_t slots = small_slots + huge_slots;
  static constexpr std::uint32_t exact_threads = 64;
  static constexpr std::uint16_t none = 0xffff;
  static constexpr unsigned nobody = leaf_pages;
  static constexpr double forget_s = 30;   // mean life of a page's evidence
  static constexpr double random_mlp = 4;  // as declared in tuner/samplers/hint_fault.py
  static constexpr double sequential_mlp = 8;
  static constexpr double store_stall = 0.25;  // as the assembler reckons
  static constexpr double records_per_second = 20'000;
  static constexpr double share_of_budget = 0.2;  // of looking, and of emitting
  static constexpr double interrupt_s = 1e-6;     // per processor and page moved; an estimate
  static constexpr double wake_s = 20e-6;         // until a thread runs that was let go; likewise
  static constexpr std::uint64_t quarantine_ns = second;

  /// A page, or huge page, that is away.
  struct Slot {
    std::uint64_t address = 0;  // 0: free
    std::uint64_t taken_ns = 0;
    std::uint64_t bytes = 0;
    std::uint64_t back = 0;  // of its bytes
    double taken_cpu = 0;
    std::uint16_t partner = none;  // neighbour taken at the same time
  };

  // --- Set-up -----------------------------------------------------------------------------------

  bool set_up() {
    // A descriptor table of our own, empty: the program's pipes must end when it closes them.
    if (::syscall(SYS_close_range, 0U, ~0U, 1U << 1 /* CLOSE_RANGE_UNSHARE */) != 0) return false;
    // Quick answers, if we may: a thread waits for us. What we do at a time is short.
    const sched_param lowest{.sched_priority = 1};
    if (::syscall(SYS_sched_setscheduler, 0, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest) != 0)
      ::syscall(SYS_setpriority, PRIO_PROCESS, 0, -20);
    events_ = kernel::open_userfault(kernel::feature_events | kernel::feature_move);
    quiet_ = kernel::open_userfault(kernel::feature_move);
    maps_ = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    pagemap_ = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    status_ = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (events_ < 0 || quiet_ < 0 || maps_ < 0 || pagemap_ < 0 || status_ < 0) return false;

    const std::uint64_t small = small_slots * kernel::page_bytes;
    const std::uint64_t huge = (huge_slots + 1) * kernel::huge_bytes;
    auto* const stash = static_cast<char*>(own_.take(small));
    auto* const big = static_cast<char*>(own_.take(huge));
    auto* const trash = static_cast<char*>(own_.take(2 * kernel::huge_bytes));
    auto* const bell = static_cast<char*>(own_.take(kernel::page_bytes));
    text_ = static_cast<char*>(own_.take(text_bytes));
    if (stash == nullptr || big == nullptr || trash == nullptr || bell == nullptr ||
        text_ == nullptr)
      return false;
    stash_ = reinterpret_cast<std::uint64_t>(stash);
    huge_stash_ = aligned(reinterpret_cast<std::uint64_t>(big));
    trash_ = aligned(reinterpret_cast<std::uint64_t>(trash));
    ::syscall(SYS_madvise, huge_stash_, huge - kernel::huge_bytes, MADV_HUGEPAGE);
    if (!kernel::enrol(events_, stash_, small) ||
        !kernel::enrol(events_, reinterpret_cast<std::uint64_t>(big), huge) ||
        !kernel::enrol(events_, reinterpret_cast<std::uint64_t>(bell), kernel::page_bytes) ||
        !kernel::enrol(quiet_, reinterpret_cast<std::uint64_t>(trash), 2 * kernel::huge_bytes))
      return false;

    if (!open_spool()) return false;
    spool_.header()->threads = 1;
    rng_ = Rng{static_cast<std::uint64_t>(::getpid()) ^ options_.begin_ns};
    wall_ns_ = now();
    process_s_ = process_seconds();
    own_s_ = own_seconds();
    bell_page_.store(bell);
    return true;
  }

  /// PID.spool. If there is one, the process has begun another program (exec) or its number was
  /// used before: that one is over.
  bool open_spool() {
    char path[sizeof options_.folder + 64];
    for (unsigned attempt = 0; attempt < 1000; ++attempt) {
      char* at = path;
      for (const char* from = options_.folder; *from != 0;) *at++ = *from++;
      *at++ = '/';
      at = number(at, static_cast<unsigned>(::getpid()));
      if (attempt != 0) {
        *at++ = '.';
        at = number(at, attempt);
      }
      std::memcpy(at, ".spool", 7);
      const int error = spool_.open(path, "hint-fault", since(now()));
      if (error == 0) return true;
      if (error != EEXIST) return false;
      close_earlier(path);
    }
    return false;
  }
  static void close_earlier(const char* path) {
    const int file = ::open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void* const at =
        ::mmap(nullptr, spool_header_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (at == MAP_FAILED) return;
    auto* const header = static_cast<SpoolHeader*>(at);
    std::uint32_t open = static_cast<std::uint32_t>(SpoolState::open);
    header->state.compare_exchange_strong(open, static_cast<std::uint32_t>(SpoolState::closed));
    if (header->sampled == 0) ::unlink(path);  // a shell on its way to another program
    ::munmap(at, spool_header_bytes);
  }
  static char* number(char* at, std::uint64_t value, unsigned base = 10) {
    char digits[24];
    unsigned count = 0;
    do {
      digits[count++] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0);
    while (count > 0) *at++ = digits[--count];
    return at;
  }
  static std::uint64_t aligned(std::uint64_t address) {
    return (address + kernel::huge_bytes - 1) & ~(kernel::huge_bytes - 1);
  }
  void close_files() {
    for (const int file : {events_, quiet_, maps_, pagemap_, status_})
      if (file >= 0) ::close(file);
  }

  // --- Time -------------------------------------------------------------------------------------

  static std::uint64_t now() { return kernel::clock_ns(CLOCK_MONOTONIC); }
  [[nodiscard]] std::uint64_t since(std::uint64_t ns) const {
    return ns > options_.begin_ns ? ns - options_.begin_ns : 0;
  }
  static double own_seconds() {
    return static_cast<double>(kernel::clock_ns(CLOCK_THREAD_CPUTIME_ID)) * 1e-9;
  }
  static double process_seconds() {
    return static_cast<double>(kernel::clock_ns(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9;
  }
  static void sleep(std::uint64_t ns) {
    const timespec span{static_cast<time_t>(ns / second), static_cast<long>(ns % second)};
    ::syscall(SYS_nanosleep, &span, nullptr);
  }
  /// The program's processor time. It is a sum over its threads: of many it is extrapolated.
  [[nodiscard]] double cpu(std::uint64_t at) const {
    if (threads_now_ <= exact_threads)
      return cpu_s_ + std::max(0.0, (process_seconds() - process_s_) - (own_seconds() - own_s_));
    const double wall = at > wall_ns_ ? static_cast<double>(at - wall_ns_) * 1e-9 : 0;
    return cpu_s_ + wall * busy_;
  }

  /// Earned and spent since the last tick.
  void account() {
    const std::uint64_t at = now();
    const double wall = static_cast<double>(at - wall_ns_) * 1e-9;
    const double process = process_seconds();
    const double own = own_seconds();
    const double used = std::max(0.0, (process - process_s_) - (own - own_s_));
    const double spent = own - own_s_ + stalled_s_;
    if (wall > 0) busy_ = used / wall;
    credit_ = std::min(credit_ + options_.overhead * used - spent, options_.overhead * 0.1);
    spent_s_ += spent;
    cpu_s_ += used;
    used_s_ = used;
    wall_ns_ = at;
    process_s_ = process;
    own_s_ = own;
    stalled_s_ = 0;
  }

  // --- Serving ----------------------------------------------------------------------------------

  /// Serves until `until`. How late we wake tells how long a thread waits to be woken.
  void wait(std::uint64_t until) {
    while (!bell_) {
      const std::uint64_t at = now();
      if (at >= until) return;
      const timespec span{0, static_cast<long>(until - at)};
      pollfd file{events_, POLLIN, 0};
      if (::syscall(SYS_ppoll, &file, 1, &span, nullptr, 0) == 0) {
        const std::uint64_t late = now();
        if (late > until)
          late_s_ += (std::min(static_cast<double>(late - until) * 1e-9, 1e-3) - late_s_) * 0.1;
        return;
      }
      serve();
    }
  }

  /// Answers all that wait now.
  void serve() {
    hear();
    while (faults_count_ > 0) {
      const Fault fault = faults_[--faults_count_];
      const std::uint16_t slot = holder(fault.address);
      if (slot == none) {
        // Taken back already, or content that the program has dropped: let the kernel serve it.
        kernel::dismiss(events_, fault.address & ~(kernel::page_bytes - 1), kernel::page_bytes);
      } else {
        const Slot held = slots_[slot];
        give_back(slot);
        observe(held, slot, fault.ns, fault.address, fault.store);
      }
      stalled_s_ += late_s_ + wake_s + static_cast<double>(now() - fault.ns) * 1e-9;
      hear();
    }
  }

  /// Reads what the kernel has to say. Faults are only noted; the rest is done at once.
  void hear() {
    uffd_msg message{};
    while (faults_count_ < faults_size &&
           ::read(events_, &message, sizeof message) == sizeof message) {
      switch (message.event) {
        case UFFD_EVENT_PAGEFAULT:
          faults_[faults_count_++] = {
              message.arg.pagefault.address, now(),
              (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0};
          break;
        case UFFD_EVENT_FORK:
          furnish(static_cast<int>(message.arg.fork.ufd));
          break;
        case UFFD_EVENT_REMAP:
          follow(message.arg.remap.from, message.arg.remap.to, message.arg.remap.len);
          break;
        case UFFD_EVENT_REMOVE:
          if (message.arg.remove.start == reinterpret_cast<std::uint64_t>(bell_page_.load())) {
            bell_ = true;
            break;
          }
          quarantine(message.arg.remove.start, message.arg.remove.end);
          drop(message.arg.remove.start, message.arg.remove.end);
          break;
        case UFFD_EVENT_UNMAP:
          drop(message.arg.remove.start, message.arg.remove.end);
          break;
        default:
          break;
      }
    }
  }

  /// The child of a fork gets copies of all that is away.
  void furnish(int child) {
    for (std::size_t i = 0; i < slots; ++i) {
      const Slot& slot = slots_[i];
      if (slot.address == 0) continue;
      std::uint64_t done = slot.back;
      for (unsigned attempt = 0; done < slot.bytes && attempt < 1000; ++attempt) {
        const int error =
            kernel::copy(child, slot.address + done, stash_of(i) + done, slot.bytes - done, done);
        if (error == EAGAIN)
          sleep(10'000);
        else if (error == EEXIST || error == ENOENT)
          done += kernel::page_bytes;
        else if (error != 0)
          break;
      }
    }
    ::close(child);
  }

  /// The program has moved memory (not through our mremap, which asks for the pages first).
  void follow(std::uint64_t from, std::uint64_t to, std::uint64_t bytes) {
    for (std::size_t i = 0; i < slots; ++i) {
      Slot& slot = slots_[i];
      if (slot.address < from || slot.address >= from + bytes || slot.address == 0) continue;
      mark(slot.address, slot.bytes, false);
      slot.address += to - from;
    }
  }

  /// The program has dropped [start, end): so do we.
  void drop(std::uint64_t start, std::uint64_t end) {
    for (std::size_t i = 0; i < slots; ++i) {
      Slot& slot = slots_[i];
      if (slot.address == 0 || slot.address >= end || slot.address + slot.bytes <= start) continue;
      const std::uint64_t from = std::max(start, slot.address) - slot.address;
      const std::uint64_t to = std::min(end, slot.address + slot.bytes) - slot.address;
      throw_away(i, from, to - from);
      if (from == 0 && to == slot.bytes) release(static_cast<std::uint16_t>(i));
    }
  }

  // --- Taking and giving back -------------------------------------------------------------------

  [[nodiscard]] std::uint64_t stash_of(std::size_t slot) const {
    return slot < small_slots ? stash_ + slot * kernel::page_bytes
                              : huge_stash_ + (slot - small_slots) * kernel::huge_bytes;
  }
  [[nodiscard]] std::uint16_t holder(std::uint64_t address) const {
    const std::uint64_t page = address & ~(kernel::page_bytes - 1);
    for (std::size_t i = 0; i < small_slots; ++i)
      if (slots_[i].address == page) return static_cast<std::uint16_t>(i);
    const std::uint64_t huge = address & ~(kernel::huge_bytes - 1);
    for (std::size_t i = small_slots; i < slots; ++i)
      if (slots_[i].address == huge) return static_cast<std::uint16_t>(i);
    return none;
  }
  std::uint16_t free_slot(bool huge) {
    const std::size_t first = huge ? small_slots : 0;
    const std::size_t count = huge ? huge_slots : small_slots;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = first + (next_slot_ + i) % count;
      if (slots_[at].address != 0) continue;
      next_slot_ = at - first + 1;
      return static_cast<std::uint16_t>(at);
    }
    return none;
  }
  /// Notes in the leaves which pages are away.
  void mark(std::uint64_t address, std::uint64_t bytes, bool away) {
    for (std::uint64_t at = address; at < address + bytes;) {
      const std::uint64_t stop = std::min(address + bytes, ((at >> leaf_shift) + 1) << leaf_shift);
      if (Leaf* const leaf = leaves_.find(at)) {
        if (away)
          leaf->away |= page_bits(at, stop);
        else
          leaf->away &= ~page_bits(at, stop);
      }
      at = stop;
    }
  }
  /// Bits of a leaf for pages of [start, end), which lie in it.
  static std::uint64_t page_bits(std::uint64_t start, std::uint64_t end) {
    const unsigned first = static_cast<unsigned>(start / kernel::page_bytes % leaf_pages);
    const auto count = static_cast<unsigned>((end - start) / kernel::page_bytes);
    return (count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1) << first;
  }

  /// Moves the page to the stash. Returns its slot, or none.
  std::uint16_t take(std::uint64_t address, bool huge) {
    const std::uint16_t index = free_slot(huge);
    if (index == none) return none;
    const std::uint64_t bytes = huge ? kernel::huge_bytes : kernel::page_bytes;
    Slot& slot = slots_[index];
    for (bool again = true;; again = false) {
      if (!kernel::enrol(events_, address, bytes)) return none;
      std::uint64_t moved = 0;
      const int error = kernel::move(events_, stash_of(index), address, bytes, moved);
      if (moved != 0) {
        const std::uint64_t at = now();
        slot = {.address = address, .taken_ns = at, .bytes = bytes, .taken_cpu = cpu(at)};
        mark(address, bytes, true);
        away_ += bytes / kernel::page_bytes;
        order_[order_tail_++ % order_size] = {index, at};
        stalled_s_ += busy_ > 1 ? (busy_ - 1) * interrupt_s * static_cast<double>(moved) / 4096 : 0;
        if (error != 0 || moved < bytes) {  // part of a huge page: not worth it
          give_back(index);
          return none;
        }
        return index;
      }
      kernel::dismiss(events_, address, bytes);
      // After a fork a page counts as shared until it is written, even if the other process has
      // left: make it ours again, unless that would cost a copy.
      if (!again || error != EBUSY || huge || !only_ours(address) ||
          ::syscall(SYS_madvise, address, bytes, 23 /* MADV_POPULATE_WRITE */) != 0)
        return none;
    }
  }
  [[nodiscard]] bool only_ours(std::uint64_t address) const {
    std::uint64_t entry = 0;
    return ::pread(pagemap_, &entry, sizeof entry,
                   static_cast<off_t>(address / kernel::page_bytes * sizeof entry)) ==
               sizeof entry &&
           (entry >> 63 & 1) != 0 && (entry >> 56 & 1) != 0 && (entry >> 61 & 1) == 0;
  }

  /// Puts a page back where it belongs and ends its enrolment; whoever waits for it goes on.
  void give_back(std::uint16_t index) {
    Slot& slot = slots_[index];
    const std::uint64_t taken = slot.taken_ns;
    while (slot.address != 0 && slot.taken_ns == taken && slot.back < slot.bytes) {
      const std::uint64_t to = slot.address + slot.back;
      const std::uint64_t from = stash_of(index) + slot.back;
      int error = kernel::move(events_, to, from, slot.bytes - slot.back, slot.back);
      if (error == 0) continue;
      if (error == EAGAIN) {  // an event is on its way, and may concern this page
        hear();
        sleep(5'000);
        continue;
      }
      // The mapping has changed (mprotect, mlock), or the page is in use by someone: a copy.
      error = kernel::copy(events_, to, from, kernel::page_bytes, slot.back);
      if (error == 0) {
        throw_away(index, slot.back - kernel::page_bytes, kernel::page_bytes);
      } else if (error == EAGAIN) {
        hear();
        sleep(5'000);
      } else {  // nothing is missing there (any more)
        throw_away(index, slot.back, kernel::page_bytes);
        slot.back += kernel::page_bytes;
      }
    }
    if (slot.address != 0 && slot.taken_ns == taken) release(index);
  }
  void release(std::uint16_t index) {
    Slot& slot = slots_[index];
    kernel::dismiss(events_, slot.address, slot.bytes);
    mark(slot.address, slot.bytes, false);
    away_ -= slot.bytes / kernel::page_bytes;
    slot.address = 0;
  }
  /// Empties part of a slot of the stash. The stash itself is enrolled with the descriptor that
  /// hears of removals, and must not wait for us: what is thrown away goes through the trash.
  void throw_away(std::size_t index, std::uint64_t offset, std::uint64_t bytes) {
    for (std::uint64_t done = 0; done < bytes;) {
      std::uint64_t moved = 0;
      const int error =
          kernel::move(quiet_, trash_ + done, stash_of(index) + offset + done, bytes - done, moved);
      done += moved;
      if (error == EAGAIN) continue;
      if (error != 0 || moved == 0) done += kernel::page_bytes;
    }
    ::syscall(SYS_madvise, trash_, kernel::huge_bytes, MADV_DONTNEED);
  }

  void expire(std::uint64_t at) {
    while (order_head_ != order_tail_) {
      const Order& oldest = order_[order_head_ % order_size];
      Slot& slot = slots_[oldest.slot];
      if (slot.address != 0 && slot.taken_ns == oldest.ns) {
        if (at < oldest.ns + window_ns) return;
        const Slot held = slot;
        give_back(oldest.slot);
        observe(held, oldest.slot, at, 0, false);
        serve();
      }
      ++order_head_;
    }
  }
  void give_all_back() {
    for (std::size_t i = 0; i < slots; ++i)
      if (slots_[i].address != 0) give_back(static_cast<std::uint16_t>(i));
    order_head_ = order_tail_;
  }

  /// What a page that was away tells. `touched` 0: nobody wanted it.
  void observe(const Slot& held, std::uint16_t index, std::uint64_t at, std::uint64_t touched,
               bool store) {
    const double exposed = std::max(cpu(at) - held.taken_cpu, 1e-6);
    for (std::uint64_t from = held.address; from < held.address + held.bytes;) {
      const std::uint64_t stop =
          std::min(held.address + held.bytes, ((from >> leaf_shift) + 1) << leaf_shift);
      Leaf* const leaf = leaves_.find(from);
      Region* const region = regions_.find(from);
      if (leaf != nullptr && region != nullptr) {
        const bool here = touched >= from && touched < stop;
        const std::uint64_t exposure = page_bits(from, stop) & leaf->present;
        leaf->observe(
            exposure, exposed,
            here ? static_cast<unsigned>(touched / kernel::page_bytes % leaf_pages) : nobody,
            around(*region, from));
        // One page for all of a huge one, so that these do not outvote the others.
        const bool fault = touched != 0;
        level_.observe(exposed, fault, unknown_, 128);
        region->level.observe(exposed, fault, level_.rates, 64);
        region->zone(from).observe(exposed, fault, region->level.rates, 32);
        if (here) {
          region->stores.add(store);
          stores_.add(store);
        }
      }
      from = stop;
    }
    if (touched != 0) spool_.header()->sampled += 1;
    if (held.partner == none) return;
    // The first of a pair to come back leaves its wait with the other.
    const double waited = touched == 0 ? -1 : exposed / std::max(busy_, 1.0);
    if (waits_[index] == pending) {
      waits_[held.partner] = waited;
      waits_[index] = 0;
    } else if (const double swept = Pair::swept(waits_[index], waited); swept != Pair::unknown) {
      if (Region* const region = regions_.find(held.address)) region->sweeps.add(swept);
      sweeps_.add(swept);
    }
  }
  /// What holds around an address.
  const Rates& around(Region& region, std::uint64_t address) const {
    const Level& zone = region.zone(address);
    return zone.weight > 0           ? zone.rates
           : region.level.weight > 0 ? region.level.rates
           : level_.weight > 0       ? level_.rates
                                     : unknown_;
  }

  void take_some() {
    if (paused_.load() > 0 || leaves_.pages() == 0 || credit_ <= 0) return;
    const double cost =
        takes_ < 100 ? 50e-6 : std::max(1e-6, spent_s_ / static_cast<double>(takes_));
    auto wanted = static_cast<std::uint64_t>(credit_ / cost) + 1;
    wanted = std::min<std::uint64_t>(wanted, 128);
    const std::uint64_t most =
        std::min<std::uint64_t>(small_slots + huge_slots * 512, leaves_.pages() / 8 + 1);
    for (std::uint64_t i = 0; i < wanted && away_ < most; ++i) {
      take_one();
      serve();
      if (bell_) return;
    }
  }
  void take_one() {
    for (unsigned attempt = 0; attempt < 64; ++attempt) {
      const Leaf& leaf = leaves_[rng_.below(leaves_.size())];
      const auto page = static_cast<unsigned>(rng_.below(leaf_pages));
      const std::uint64_t bit = std::uint64_t{1} << page;
      if ((leaf.present & ~leaf.away & bit) == 0) continue;
      const std::uint64_t address = (leaf.key << leaf_shift) + page * kernel::page_bytes;
      ++takes_;
      if ((leaf.huge & bit) != 0) {
        const std::uint64_t base = address & ~(kernel::huge_bytes - 1);
        if (allowed(base, kernel::huge_bytes)) (void)take(base, true);
        return;
      }
      if (!allowed(address, kernel::page_bytes)) return;
      const std::uint16_t first = take(address, false);
      // Now and then with its neighbour: were they swept?
      if (first == none || rng_.below(4) != 0 || page + 1 == leaf_pages) return;
      const std::uint64_t next = address + kernel::page_bytes;
      if ((leaf.present & ~leaf.away & ~leaf.huge & (bit << 1)) == 0 ||
          !allowed(next, kernel::page_bytes))
        return;
      ++takes_;
      const std::uint16_t second_of = take(next, false);
      if (second_of == none || slots_[first].address != address) return;
      slots_[first].partner = second_of;
      slots_[second_of].partner = first;
      waits_[first] = waits_[second_of] = pending;
      return;
    }
  }
  [[nodiscard]] bool allowed(std::uint64_t address, std::uint64_t bytes) {
    const std::uint64_t end = address + bytes;
    const Region* const region = regions_.find(address);
    if (region == nullptr || own_.overlaps(address, end)) return false;
    for (const std::uint64_t protect : threads_)
      if (protect + kernel::page_bytes > address && protect < end + kernel::page_bytes)
        return false;
    const std::uint64_t at = now();
    for (const Quarantine& q : quarantined_)
      if (q.start < end && address < q.end && at < q.until_ns) return false;
    return true;
  }
  /// The program is about to drop this; it does so after we have heard of it, so that a page that
  /// were taken right now would escape.
  void quarantine(std::uint64_t start, std::uint64_t end) {
    quarantined_[quarantined_next_++ % quarantined_size] = {start, end, now() + quarantine_ns};
  }

  // --- What is there ----------------------------------------------------------------------------

  void learn_changes() {
    Change change;
    bool timed = false;
    while (changes_.pop(change)) {
      if (change.kind == Change::Kind::thread) {
        protect(change.address);
        continue;
      }
      const std::uint64_t start = change.address & ~(kernel::page_bytes - 1);
      std::uint64_t end =
          (change.address + change.bytes + kernel::page_bytes - 1) & ~(kernel::page_bytes - 1);
      if (!timed) spool_.time(since(now()));
      timed = true;
      switch (change.kind) {
        case Change::Kind::map:
        case Change::Kind::allocated:
          begin_region(start, end, site(change.caller), change.kind == Change::Kind::allocated);
          break;
        case Change::Kind::freed: {
          const Region* const region = regions_.find(start);
          if (region == nullptr || region->start != start || !region->allocation) break;
          end = region->end;
          [[fallthrough]];
        }
        case Change::Kind::unmap:
          end_region(start, end);
          break;
        case Change::Kind::discard:
          spool_.discard(start, end - start);
          leaves_.forget(start, end);
          break;
        case Change::Kind::thread:
          break;
      }
    }
  }
  void begin_region(std::uint64_t start, std::uint64_t end, const char* name, bool allocation) {
    if (end <= start) return;
    // The allocator's own mapping of what it hands out: the same range, a better name.
    regions_.add(start, end, allocation);
    leaves_.forget(start, end);
    spool_.map(start, end - start, name);
  }
  void end_region(std::uint64_t start, std::uint64_t end) {
    regions_.remove(start, end);
    leaves_.forget(start, end);
    spool_.unmap(start, end - start);
  }
  /// The descriptor of a thread, just above its thread pointer.
  void protect(std::uint64_t thread) {
    for (const std::uint64_t known : threads_)
      if (known == (thread & ~(kernel::page_bytes - 1))) return;
    threads_.push(thread & ~(kernel::page_bytes - 1));
  }
  const char* site(std::uint64_t caller) {
    const Module* found = nullptr;
    for (unsigned attempt = 0; attempt < 2 && found == nullptr; ++attempt) {
      if (attempt == 1) read_maps();  // a library that was loaded since
      for (const Module& module : modules_)
        if (caller >= module.start && caller < module.end) found = &module;
    }
    if (found == nullptr) return "unknown";
    char* at = site_;
    for (const char* from = found->name; *from != 0;) *at++ = *from++;
    *at++ = '+';
    *at++ = '0';
    *at++ = 'x';
    at = number(at, caller - found->base, 16);
    *at = 0;
    return site_;
  }

  void read_maps() {
    areas_.clear();
    modules_.clear();
    const std::uint64_t avoid[3] = {reinterpret_cast<std::uint64_t>(&kernel::probe),
                                    reinterpret_cast<std::uint64_t>(&::getpid), loader_};
    Selection selection{own_, avoid};
    std::uint64_t file = 0;
    std::uint64_t base = 0;
    Mapping last;
    char last_name[40] = {};
    each_mapping(
        maps_, text_, text_bytes,
        [&](const Mapping& m) {
          std::size_t slash = m.name_length;
          while (slash > 0 && m.name[slash - 1] != '/') --slash;
          const char* const short_name = m.name + slash;
          const std::size_t short_length = m.name_length - slash;
          if (m.file != 0 && m.file != file) base = m.start;
          if (m.file != 0) {
            file = m.file;
            copy_name(last_name, short_name, short_length);
          }
          if (m.file != 0 && m.access[2] == 'x') {
            Module module{.start = m.start, .end = m.end, .base = base};
            copy_name(module.name, short_name, short_length);
            modules_.push(module);
          }
          if (selection.take(m)) {
            Area area{.start = m.start, .end = m.end};
            if (m.name_length != 0)
              copy_name(area.name, m.name, m.name_length);
            else if (m.start == last.end && last.file != 0)
              copy_name(area.name, last_name, std::strlen(last_name));
            else
              copy_name(area.name, "anonymous", 9);
            areas_.push(area);
          }
          last = m;
        },
        [&] { serve(); });
  }

  void look() {
    const double began = own_seconds();
    count_threads();
    learn_changes();
    read_maps();
    spool_.time(since(now()));
    settle_regions();
    find_pages();
    const double cost = own_seconds() - began;
    next_look_s_ = cpu_s_ + cost / (share_of_budget * options_.overhead);
    next_look_ns_ = now() + look_ns;
  }

  /// Brings the known regions and what is really mapped together.
  void settle_regions() {
    std::size_t i = 0;
    std::uint64_t gap = 0;  // everything below is settled
    for (std::size_t a = 0; a <= areas_.size(); ++a) {
      const bool last = a == areas_.size();
      const std::uint64_t start = last ? ~std::uint64_t{0} : areas_[a].start;
      // Regions in the gap before this area are gone.
      while (i < regions_.size() && regions_[i].start < start) {
        if (regions_[i].end <= gap) {
          ++i;
          continue;
        }
        const std::uint64_t from = std::max(regions_[i].start, gap);
        const std::uint64_t to = std::min(regions_[i].end, start);
        if (from >= to) break;
        end_region(from, to);
        i = regions_.at(gap);
      }
      if (last) break;
      // What the area has beyond the regions in it.
      const std::uint64_t end = areas_[a].end;
      std::uint64_t from = start;
      while (from < end) {
        i = regions_.at(from);
        const std::uint64_t to = i < regions_.size() ? std::min(end, regions_[i].start) : end;
        if (from < to) begin_region(from, to, areas_[a].name, false);
        i = regions_.at(from);
        from = regions_[i].end;
      }
      gap = end;
      i = regions_.at(gap);
    }
  }

  void find_pages() {
    leaves_.begin();
    kernel::PageRange ranges[128];
    for (const Area& area : areas_) {
      for (std::uint64_t at = area.start; at < area.end;) {
        const std::uint64_t stop = std::min(area.end, at + scan_bytes);
        const std::uint64_t from = at;
        const int found = kernel::scan(pagemap_, at, stop, ranges, std::size(ranges));
        std::uint64_t seen = from;  // absent up to here is known
        for (int i = 0; i < found; ++i) {
          note_pages(seen, ranges[i].start, false, false);
          note_pages(ranges[i].start, ranges[i].end, true,
                     (ranges[i].categories & kernel::page_is_huge) != 0);
          seen = ranges[i].end;
        }
        note_pages(seen, at, false, false);
        serve();
      }
    }
    leaves_.end();
  }
  void note_pages(std::uint64_t start, std::uint64_t end, bool present, bool huge) {
    for (std::uint64_t at = start; at < end;) {
      const std::uint64_t stop = std::min(end, ((at >> leaf_shift) + 1) << leaf_shift);
      const std::uint64_t bits = page_bits(at, stop);
      bool made = false;
      Leaf* const leaf =
          present || leaves_.find(at) != nullptr ? leaves_.visit(at >> leaf_shift, made) : nullptr;
      if (leaf != nullptr) {
        if (made) leaf->counted = cpu_s_;
        leaf->huge = huge ? leaf->huge | bits : leaf->huge & ~bits;
        if (present) {
          // Its first touch: the kernel does not give a page to who does not want it.
          for (std::uint64_t rest = bits & ~leaf->present; rest != 0; rest &= rest - 1)
            spool_.access(
                (leaf->key << leaf_shift) +
                    static_cast<std::uint64_t>(std::countr_zero(rest)) * kernel::page_bytes,
                true, 0, 1);
          leaf->present |= bits;
        } else {
          leaf->present &= ~bits | leaf->away;
        }
      }
      at = stop;
    }
  }

  /// How many threads the program has.
  void count_threads() {
    char text[2048];
    const ssize_t got = ::pread(status_, text, sizeof text - 1, 0);
    if (got <= 0) return;
    text[got] = 0;
    const char* at = std::strstr(text, "\nThreads:");
    if (at == nullptr) return;
    at += 9;
    while (*at == ' ' || *at == '\t') ++at;
    std::uint32_t threads = 0;
    while (*at >= '0' && *at <= '9') threads = threads * 10 + static_cast<unsigned>(*at++ - '0');
    threads_now_ = threads - 1;
  }

  // --- Writing ----------------------------------------------------------------------------------

  /// One part of the leaves per tick, all of them per round.
  void emit() {
    if (leaves_.size() == 0) return;
    due_ += static_cast<double>(leaves_.size()) * used_s_ / round_s_;
    const auto part = std::min(static_cast<std::size_t>(due_), leaves_.size());
    if (part == 0) return;
    due_ -= static_cast<double>(part);
    const double began = own_seconds();
    spool_.time(since(now()));
    compute();
    for (std::size_t i = 0; i < part; ++i) {
      if (cursor_ >= leaves_.size()) {
        end_round();
        break;
      }
      write(leaves_[cursor_++]);
    }
    round_cost_s_ += own_seconds() - began;
  }
  /// Processor time that the misses written so far do not explain.
  void compute() {
    compute_s_ += cpu_s_ - computed_s_;
    computed_s_ = cpu_s_;
    if (compute_s_ <= 0) return;
    spool_.compute(compute_s_ * 1e9);
    compute_s_ = 0;
  }
  void write(Leaf& leaf) {
    const double span = cpu_s_ - leaf.counted;
    leaf.counted = cpu_s_;
    if (span <= 0 || leaf.present == 0) return;
    const std::uint64_t base = leaf.key << leaf_shift;
    const std::uint64_t first =
        base + static_cast<std::uint64_t>(std::countr_zero(leaf.present)) * kernel::page_bytes;
    Region* const region = regions_.find(first);
    if (region == nullptr) return;
    const Rates& near = around(*region, first);
    leaf.forget(rng_, span / (forget_s * std::max(busy_, 1.0)));
    leaf.fit(near);  // what is around may have become better known
    const double stores = region->stores.value(stores_.value(0.3));
    double sweeps = region->sweeps.value(sweeps_.value(0));
    if (sweeps < Pair::chance) sweeps = 0;
    double written = 0;
    for (std::uint64_t rest = leaf.present; rest != 0; rest &= rest - 1) {
      const auto page = static_cast<unsigned>(std::countr_zero(rest));
      const std::uint64_t address = base + page * kernel::page_bytes;
      const Misses misses = cache_.miss(leaf.rate(page, near), sweeps);
      stall_s_ += (misses.random / random_mlp + misses.sequential / sequential_mlp) * span *
                  options_.latency_ns * 1e-9;
      written += put(address, misses.random * span * plausible_, stores, 0);
      written += put(address, misses.sequential * span * plausible_, stores, 1);
    }
    total_ += written;
    all_ += written;
    doubt_ += written / root(leaf.evidence() + 1);
  }
  /// A record stands for `least_` accesses at least: what is expected to be less is written less
  /// often.
  double put(std::uint64_t address, double count, double stores, std::uint32_t stream_class) {
    if (count <= 0) return 0;
    const double kept = std::max(count, least_);
    if (kept == count || rng_.uniform() * kept < count) {
      const bool store = rng_.uniform() < stores;
      spool_.access(address, store, stream_class, kept);
      const double mlp = stream_class == 0 ? random_mlp : sequential_mlp;
      compute_s_ -= kept * (store ? store_stall : 1) * options_.latency_ns * 1e-9 / mlp;
    }
    return count;
  }
  void end_round() {
    const std::uint64_t at = now();
    const double wall = static_cast<double>(at - round_ns_) * 1e-9;
    const double used = cpu_s_ - round_cpu_s_;
    if (all_ > 0) spool_.header()->error_share = doubt_ / all_;
    if (wall > 0) least_ = std::max(1.0, total_ / (records_per_second * wall));
    // Misses for which the program had no time did not happen.
    // Threads that run, not those that wait: processors used, rounded.
    if (wall > 0) {
      const auto running = static_cast<std::uint32_t>(used / wall + 0.5);
      spool_.header()->threads =
          std::max(spool_.header()->threads, std::min(running, threads_now_));
    }
    if (used > 0) plausible_ = std::min(1.0, used / std::max(stall_s_, 1e-12));
    round_s_ =
        std::max(0.1 * std::max(busy_, 1.0), round_cost_s_ / (share_of_budget * options_.overhead));
    cache_.round();
    total_ = stall_s_ = round_cost_s_ = 0;
    round_ns_ = at;
    round_cpu_s_ = cpu_s_;
    cursor_ = 0;
  }
  static double root(double x) {  // without the C library
    double y = x < 1 ? 1 : x;
    for (int i = 0; i < 40 && y * y - x > 1e-9 * x; ++i) y = 0.5 * (y + x / y);
    return y;
  }

  // --- Talking with the program's threads -------------------------------------------------------

  /// Rings the bell and waits for the answer. The bell is a page whose removal the kernel tells us
  /// of; in a child of a fork there is no such page.
  void ask() {
    if (!running()) return;
    const std::uint32_t mine = asked_.fetch_add(1) + 1;
    if (::syscall(SYS_madvise, bell_page_.load(), kernel::page_bytes, MADV_DONTNEED) != 0) return;
    for (unsigned i = 0; i < 200; ++i) {
      const std::uint32_t answered = answered_.load();
      if (static_cast<std::int32_t>(answered - mine) >= 0) return;
      const timespec span{0, 10'000'000};
      ::syscall(SYS_futex, &answered_, FUTEX_WAIT_PRIVATE, answered, &span, nullptr, 0);
    }
  }
  void answer() {
    bell_ = false;
    const std::uint32_t asked = asked_.load();
    if (paused_.load() > 0) give_all_back();
    if (stopping_.load()) return;  // finish() answers
    reply(asked);
  }
  void reply(std::uint32_t asked) {
    answered_.store(asked);
    ::syscall(SYS_futex, &answered_, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max(), nullptr,
              nullptr, 0);
  }

  void finish() {
    give_all_back();
    account();
    learn_changes();
    count_threads();
    spool_.time(since(now()));
    for (std::size_t i = 0; i < leaves_.size(); ++i) write(leaves_[i]);
    compute();
    if (all_ > 0) spool_.header()->error_share = doubt_ / all_;
    state_.store(State::over);
    serve();
    spool_.close(SpoolState::closed);
    hear();
    close_files();
    reply(asked_.load() + (1u << 16));  // nobody needs to wait any more
  }

  static constexpr std::size_t text_bytes = 64 << 10;
  static constexpr std::uint64_t scan_bytes = 256ull << 20;
  static constexpr std::size_t faults_size = 1024;
  static constexpr std::size_t order_size = 8192;
  static constexpr std::size_t quarantined_size = 64;
  static constexpr double pending = -2;

  struct Fault {
    std::uint64_t address;
    std::uint64_t ns;
    bool store;
  };
  struct Order {
    std::uint16_t slot;
    std::uint64_t ns;
  };
  struct Quarantine {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint64_t until_ns = 0;
  };

  HintFaultOptions options_;
  kernel::OwnMemory own_;
  Changes changes_;
  std::atomic<State> state_{State::starting};
  std::atomic<bool> stopping_{false};
  std::atomic<int> paused_{0};
  std::atomic<std::uint32_t> asked_{0};
  std::atomic<std::uint32_t> answered_{0};
  std::atomic<char*> bell_page_{nullptr};

  int events_ = -1;  // userfaultfd that hears of forks, moves and removals
  int quiet_ = -1;   // one that does not
  int maps_ = -1;
  int pagemap_ = -1;
  int status_ = -1;
  std::uint64_t stash_ = 0;
  std::uint64_t huge_stash_ = 0;
  std::uint64_t trash_ = 0;
  std::uint64_t loader_ = 0;
  char* text_ = nullptr;
  char site_[64] = {};
  SpoolWriter spool_;
  Rng rng_{0};

  Slot slots_[slots];
  double waits_[slots] = {};  // of a pair's other page: s, -1: untouched, pending
  std::size_t next_slot_ = 0;
  std::uint64_t away_ = 0;  // pages
  Order order_[order_size];
  std::size_t order_head_ = 0;
  std::size_t order_tail_ = 0;
  Fault faults_[faults_size];
  std::size_t faults_count_ = 0;
  Quarantine quarantined_[quarantined_size];
  std::size_t quarantined_next_ = 0;
  bool bell_ = false;

  kernel::Array<Area> areas_{own_};
  kernel::Array<Module> modules_{own_};
  kernel::Array<std::uint64_t> threads_{own_};
  Regions regions_{own_};
  Leaves leaves_{own_};
  Level level_;
  const Rates unknown_ = Rates::unknown();
  Share stores_;
  Share sweeps_;
  std::uint64_t next_look_ns_ = 0;
  double next_look_s_ = 0;

  // Account, s.
  std::uint64_t wall_ns_ = 0;
  double process_s_ = 0;
  double own_s_ = 0;
  double cpu_s_ = 0;  // of the program so far
  std::uint32_t threads_now_ = 1;
  double used_s_ = 0;  // in the last tick
  double busy_ = 1;    // processors that it used in the last tick
  double late_s_ = 50e-6;
  double stalled_s_ = 0;
  double spent_s_ = 0;
  double credit_ = 0;
  std::uint64_t takes_ = 0;

  // Round of emission.
  Cache cache_;
  std::size_t cursor_ = 0;
  double due_ = 0;  // leaves to be written by now
  double round_s_ = 0.1;
  double round_cost_s_ = 0;
  double round_cpu_s_ = 0;
  std::uint64_t round_ns_ = 0;
  double least_ = 1;
  double plausible_ = 1;
  double total_ = 0;
  double all_ = 0;    // accesses written
  double doubt_ = 0;  // and expected errors of them
  double stall_s_ = 0;
  double compute_s_ = 0;   // computed, and not written yet; less than 0: written too early
  double computed_s_ = 0;  // processor time up to which that is
};

}  // namespace tt::record
