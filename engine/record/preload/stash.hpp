// SPDX-License-Identifier: MIT

// Stash: the pages that are away from the program, and how they leave and come back.
//
// A page is moved to a slot of the stash (UFFDIO_MOVE). It is enrolled with userfaultfd only as
// long as it is away, so that the rest of the program's memory behaves as usual. Whoever touches
// it, in user code or inside a system call, waits until it is moved back.
//
// What other calls do to memory that is away:
//  - munmap, mremap, madvise(DONTNEED, FREE), fork: the kernel sends an event and waits until it
//    has been read. Then the slot is dropped, follows, or is copied into the child. Moves fail
//    while an event is pending, so that no old content comes back.
//  - mprotect, mlock, a guard: moving back fails; the content is copied back instead.
//  - exec, exit, any death: stash and program die together.
//
// The bell is one more page that is enrolled: the program's threads remove it to wake the sampler
// (page_sampler.hpp), because its event comes through the same descriptor.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "record/preload/address_map.hpp"
#include "record/preload/budget.hpp"
#include "record/preload/kernel.hpp"

namespace tt::record {

class Stash {
 public:
  static constexpr std::size_t small_slots = 2048;
  static constexpr std::size_t huge_slots = 16;
  static constexpr std::size_t slots = small_slots + huge_slots;
  static constexpr std::uint16_t none = 0xffff;

  /// A page, or huge page, that is away.
  struct Slot {
    std::uint64_t address = 0;  // 0: free
    std::uint64_t taken_ns = 0;
    std::uint64_t bytes = 0;
    std::uint64_t returned = 0;    // of its bytes
    double taken_s = 0;            // the program's processor time then
    std::uint16_t partner = none;  // neighbour taken at the same time
  };
  /// A thread that waits for a page.
  struct Fault {
    std::uint64_t address;
    std::uint64_t ns;
    bool store;
  };

  Stash(kernel::OwnMemory& own, Leaves& leaves, Budget& budget)
      : own_(own), leaves_(leaves), budget_(budget) {}

  /// False: the kernel lacks what is needed, or there is no memory.
  bool open() {
    events_ = kernel::open_userfault(kernel::feature_events | kernel::feature_move);
    quiet_ = kernel::open_userfault(kernel::feature_move);
    if (events_ < 0 || quiet_ < 0) return false;
    const std::uint64_t small_bytes = small_slots * kernel::page_bytes;
    const std::uint64_t huge_bytes = (huge_slots + 1) * kernel::huge_bytes;
    const auto small = reinterpret_cast<std::uint64_t>(own_.take(small_bytes));
    const auto huge = reinterpret_cast<std::uint64_t>(own_.take(huge_bytes));
    const auto trash = reinterpret_cast<std::uint64_t>(own_.take(2 * kernel::huge_bytes));
    auto* const bell = static_cast<char*>(own_.take(kernel::page_bytes));
    if (small == 0 || huge == 0 || trash == 0 || bell == nullptr) return false;
    small_ = small;
    huge_ = aligned(huge);
    trash_ = aligned(trash);
    ::syscall(SYS_madvise, huge_, huge_bytes - kernel::huge_bytes, MADV_HUGEPAGE);
    if (!kernel::enrol(events_, small, small_bytes) || !kernel::enrol(events_, huge, huge_bytes) ||
        !kernel::enrol(events_, reinterpret_cast<std::uint64_t>(bell), kernel::page_bytes) ||
        !kernel::enrol(quiet_, trash, 2 * kernel::huge_bytes))
      return false;
    bell_page_.store(bell);
    return true;
  }
  void close() {
    for (const int file : {events_, quiet_})
      if (file >= 0) ::close(file);
  }

  // --- Events -----------------------------------------------------------------------------------

  /// Readable when an event is pending.
  [[nodiscard]] int descriptor() const { return events_; }

  /// Reads all pending events. Faults are queued for next_fault(), the rest is handled at once.
  void read_events() {
    uffd_msg message{};
    while (faults_count_ < faults_size &&
           ::read(events_, &message, sizeof message) == sizeof message) {
      switch (message.event) {
        case UFFD_EVENT_PAGEFAULT:
          faults_[faults_count_++] = {
              message.arg.pagefault.address, monotonic_ns(),
              (message.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE) != 0};
          break;
        case UFFD_EVENT_FORK:
          copy_to_child(static_cast<int>(message.arg.fork.ufd));
          break;
        case UFFD_EVENT_REMAP:
          follow(message.arg.remap.from, message.arg.remap.to, message.arg.remap.len);
          break;
        case UFFD_EVENT_REMOVE:
          if (message.arg.remove.start == reinterpret_cast<std::uint64_t>(bell_page_.load())) {
            rung_ = true;
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
  /// The next thread that waits; false when none does.
  bool next_fault(Fault& out) {
    if (faults_count_ == 0) return false;
    out = faults_[--faults_count_];
    return true;
  }
  /// Nothing is away at that address (any more): the kernel serves the fault.
  void let_kernel_serve(std::uint64_t address) {
    kernel::dismiss(events_, address & ~(kernel::page_bytes - 1), kernel::page_bytes);
  }

  /// Called by the program's threads: wakes the sampler. False in the child of a fork, which has no
  /// such page.
  bool ring() {
    return ::syscall(SYS_madvise, bell_page_.load(), kernel::page_bytes, MADV_DONTNEED) == 0;
  }
  [[nodiscard]] bool rung() const { return rung_; }
  void clear_bell() { rung_ = false; }

  // --- Pages ------------------------------------------------------------------------------------

  /// Pages that are away, a huge page being 512.
  [[nodiscard]] std::uint64_t away() const { return away_; }
  [[nodiscard]] const Slot& slot(std::uint16_t index) const { return slots_[index]; }
  /// The slot that holds the page of that address, or none.
  [[nodiscard]] std::uint16_t holder(std::uint64_t address) const {
    const std::uint64_t page = address & ~(kernel::page_bytes - 1);
    for (std::size_t i = 0; i < small_slots; ++i)
      if (slots_[i].address == page) return static_cast<std::uint16_t>(i);
    const std::uint64_t huge = address & ~(kernel::huge_bytes - 1);
    for (std::size_t i = small_slots; i < slots; ++i)
      if (slots_[i].address == huge) return static_cast<std::uint16_t>(i);
    return none;
  }

  /// Moves the page to the stash. Returns its slot, or none. `pagemap`: /proc/self/pagemap.
  std::uint16_t take(std::uint64_t address, bool huge, int pagemap) {
    const std::uint16_t index = free_slot(huge);
    if (index == none) return none;
    const std::uint64_t bytes = huge ? kernel::huge_bytes : kernel::page_bytes;
    for (bool again = true;; again = false) {
      if (!kernel::enrol(events_, address, bytes)) return none;
      std::uint64_t moved = 0;
      const int error = kernel::move(events_, place(index), address, bytes, moved);
      if (moved != 0) {
        const std::uint64_t at = monotonic_ns();
        slots_[index] = {.address = address,
                         .taken_ns = at,
                         .bytes = bytes,
                         .taken_s = budget_.program_s_at(at)};
        mark(address, bytes, true);
        away_ += bytes / kernel::page_bytes;
        order_[order_tail_++ % order_size] = {index, at};
        budget_.moved(moved);
        if (error != 0 || moved < bytes) {  // part of a huge page: not worth it
          (void)give_back(index);
          return none;
        }
        return index;
      }
      kernel::dismiss(events_, address, bytes);
      // After a fork a page counts as shared until it is written, even if the other process has
      // left: make it ours again, unless that would cost a copy.
      if (!again || error != EBUSY || huge || !kernel::exclusive(pagemap, address) ||
          ::syscall(SYS_madvise, address, bytes, 23 /* MADV_POPULATE_WRITE */) != 0)
        return none;
    }
  }
  /// Two neighbours that were taken at the same time.
  void pair(std::uint16_t first, std::uint16_t second) {
    slots_[first].partner = second;
    slots_[second].partner = first;
  }

  /// Puts a page back where it belongs and ends its enrolment; threads that wait for it go on.
  /// Returns what its slot held.
  Slot give_back(std::uint16_t index) {
    Slot& slot = slots_[index];
    const Slot held = slot;
    while (slot.address != 0 && slot.taken_ns == held.taken_ns && slot.returned < slot.bytes) {
      const std::uint64_t to = slot.address + slot.returned;
      const std::uint64_t from = place(index) + slot.returned;
      int error = kernel::move(events_, to, from, slot.bytes - slot.returned, slot.returned);
      if (error == 0) continue;
      if (error == EAGAIN) {  // an event is pending, and may concern this page
        read_events();
        kernel::sleep_ns(5'000);
        continue;
      }
      // The mapping has changed (mprotect, mlock), or the page is in use: a copy.
      error = kernel::copy(events_, to, from, kernel::page_bytes, slot.returned);
      if (error == 0) {
        throw_away(index, slot.returned - kernel::page_bytes, kernel::page_bytes);
      } else if (error == EAGAIN) {
        read_events();
        kernel::sleep_ns(5'000);
      } else {  // nothing is missing there (any more)
        throw_away(index, slot.returned, kernel::page_bytes);
        slot.returned += kernel::page_bytes;
      }
    }
    if (slot.address != 0 && slot.taken_ns == held.taken_ns) release(index);
    return held;
  }
  void give_all_back() {
    for (std::size_t i = 0; i < slots; ++i)
      if (slots_[i].address != 0) (void)give_back(static_cast<std::uint16_t>(i));
    order_head_ = order_tail_;
  }
  /// The slot of the page that has been away the longest, if that is `window_ns` or more; or none.
  std::uint16_t expired(std::uint64_t at_ns, std::uint64_t window_ns) {
    for (; order_head_ != order_tail_; ++order_head_) {
      const Order& oldest = order_[order_head_ % order_size];
      const Slot& slot = slots_[oldest.slot];
      if (slot.address != 0 && slot.taken_ns == oldest.ns)
        return at_ns < oldest.ns + window_ns ? none : oldest.slot;
    }
    return none;
  }
  /// The program is about to drop part of [start, end).
  [[nodiscard]] bool in_quarantine(std::uint64_t start, std::uint64_t end) const {
    const std::uint64_t at = monotonic_ns();
    for (const Quarantine& q : quarantined_)
      if (q.start < end && start < q.end && at < q.until_ns) return true;
    return false;
  }

 private:
  static constexpr std::size_t faults_size = 1024;
  static constexpr std::size_t order_size = 8192;
  static constexpr std::size_t quarantined_size = 64;
  static constexpr std::uint64_t quarantine_ns = 1'000'000'000;
  struct Order {
    std::uint16_t slot;
    std::uint64_t ns;
  };
  struct Quarantine {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint64_t until_ns = 0;
  };

  static std::uint64_t aligned(std::uint64_t address) {
    return (address + kernel::huge_bytes - 1) & ~(kernel::huge_bytes - 1);
  }
  /// Where a slot's bytes are.
  [[nodiscard]] std::uint64_t place(std::size_t slot) const {
    return slot < small_slots ? small_ + slot * kernel::page_bytes
                              : huge_ + (slot - small_slots) * kernel::huge_bytes;
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
    each_leaf(address, address + bytes, [&](std::uint64_t at, std::uint64_t stop) {
      if (Leaf* const leaf = leaves_.find(at))
        leaf->away = away ? leaf->away | page_bits(at, stop) : leaf->away & ~page_bits(at, stop);
    });
  }
  void release(std::uint16_t index) {
    Slot& slot = slots_[index];
    kernel::dismiss(events_, slot.address, slot.bytes);
    mark(slot.address, slot.bytes, false);
    away_ -= slot.bytes / kernel::page_bytes;
    slot.address = 0;
  }
  /// Empties part of a slot. The stash itself is enrolled with the descriptor that receives
  /// removals, and would wait for us: what is thrown away goes through the trash.
  void throw_away(std::size_t index, std::uint64_t offset, std::uint64_t bytes) {
    for (std::uint64_t done = 0; done < bytes;) {
      std::uint64_t moved = 0;
      const int error =
          kernel::move(quiet_, trash_ + done, place(index) + offset + done, bytes - done, moved);
      done += moved;
      if (error == EAGAIN) continue;
      if (error != 0 || moved == 0) done += kernel::page_bytes;
    }
    ::syscall(SYS_madvise, trash_, kernel::huge_bytes, MADV_DONTNEED);
  }

  /// The child of a fork gets copies of all pages that are away. `child`: its userfaultfd.
  void copy_to_child(int child) {
    for (std::size_t i = 0; i < slots; ++i) {
      const Slot& slot = slots_[i];
      if (slot.address == 0) continue;
      std::uint64_t done = slot.returned;
      for (unsigned attempt = 0; done < slot.bytes && attempt < 1000; ++attempt) {
        const int error =
            kernel::copy(child, slot.address + done, place(i) + done, slot.bytes - done, done);
        if (error == EAGAIN)
          kernel::sleep_ns(10'000);
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
    for (Slot& slot : slots_) {
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
  /// The program drops a range only after the event about it was read: a page of it that is taken
  /// right now would survive.
  void quarantine(std::uint64_t start, std::uint64_t end) {
    quarantined_[quarantined_next_++ % quarantined_size] = {start, end,
                                                            monotonic_ns() + quarantine_ns};
  }

  kernel::OwnMemory& own_;
  Leaves& leaves_;
  Budget& budget_;
  int events_ = -1;  // userfaultfd that receives forks, moves and removals
  int quiet_ = -1;   // one that does not
  std::uint64_t small_ = 0;
  std::uint64_t huge_ = 0;
  std::uint64_t trash_ = 0;
  std::atomic<char*> bell_page_{nullptr};
  bool rung_ = false;

  Slot slots_[slots];
  std::size_t next_slot_ = 0;
  std::uint64_t away_ = 0;
  Order order_[order_size];  // by the time that they were taken
  std::size_t order_head_ = 0;
  std::size_t order_tail_ = 0;
  Fault faults_[faults_size];
  std::size_t faults_count_ = 0;
  Quarantine quarantined_[quarantined_size];
  std::size_t quarantined_next_ = 0;
};

}  // namespace tt::record
