// SPDX-License-Identifier: MIT

// Observer: observer.hpp has the fast path; this is what few accesses reach.
#include "record/plugin/observer.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <new>
#include <utility>

namespace tt::record {
namespace {

constexpr std::uint64_t page_bytes = trace::base_page_bytes;
constexpr std::uint64_t leaf_pages = std::uint64_t{1} << 18;  // 1 GiB
constexpr std::uint64_t root_count = (Record::address_mask + 1) / page_bytes / leaf_pages;
/// Instructions between two drains, at most; at 0.5 cycles per instruction about 20 microseconds.
constexpr std::int64_t drain_instructions = 100'000;
/// A line this far into a sequential run belongs to an array rather than to an object.
constexpr std::uint32_t object_lines = 8;
/// How far behind a pointer its object's fields are looked for.
constexpr std::uint64_t object_bytes = 256;
/// Numbers of pages that are gone rest until as many others are, so that the cache has forgotten
/// them.
constexpr std::size_t rested_pages = 1 << 16;
constexpr double first_interval_ns = 100'000;
/// Operations that are kept whole, at least, where there are so many: enough for percentiles up to
/// the 99.9th. Of large ones fewer do.
constexpr std::uint64_t least_operations = 20'000;
constexpr std::uint64_t few_operations = 2'000;
constexpr std::uint64_t most_operation_accesses = 1 << 23;

/// Address space of zeros that takes memory only where it is touched.
template <typename T>
T* sparse(std::size_t count) {
  void* const at = ::mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return static_cast<T*>(at);
}

/// A page that all processes of the recording share: how far it is, and what their threads have
/// taken in all, in ns. The recorder has made it for those that may
/// create no file that others own (sysctl fs.protected_regular).
std::atomic<std::uint64_t>* shared_clock(const std::string& folder) {
  const std::string path = folder + "/clock";
  int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return nullptr;
  void* at = MAP_FAILED;
  if (::posix_fallocate(file, 0, page_bytes) == 0)
    at = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return at == MAP_FAILED ? nullptr : static_cast<std::atomic<std::uint64_t>*>(at);
}

std::string base_name(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

}  // namespace

Observer::Observer(ObserverOptions options)
    : options_(std::move(options)),
      instruction_ns_(options_.cpi / options_.ghz),
      llc_(options_.llc_mib * (1 << 20), trace::LlcSet::ways) {
  for (std::size_t kind = 0; kind < 2 * options_.mlp.size(); ++kind)
    stall_ns_[kind] =
        options_.latency_ns / options_.mlp[kind / 2] * (kind % 2 == 0 ? 1.0 : trace::store_stall);
  unseen_.open(options_.folder.c_str());
  clock_ = shared_clock(options_.folder);
  if (clock_ == nullptr) clock_ = sparse<std::atomic<std::uint64_t>>(2);
  start_ns_ = *clock_;
  interval_begin_ns_ = static_cast<double>(start_ns_);
  roots_ = sparse<std::uint32_t*>(root_count);
  addresses_ = sparse<std::uint64_t>(trace::LlcFilter::max_pages);
  cells_ = sparse<std::uint32_t>(trace::LlcFilter::max_pages * kinds);
}

Observer::~Observer() { finish(nullptr); }

std::uint64_t Observer::now_ns() const { return *clock_; }

// -------------------------------------------------------------------------------- one thread

std::uint32_t Observer::run_of(ObservedThread& thread, std::uint64_t line) {
  auto& streams = thread.streams_;
  std::uint32_t run = 0;
  // Upward and downward, the next line or the one after it.
  for (const std::uint64_t before : {line - 1, line + 1, line - 2, line + 2}) {
    const auto& neighbour = streams[before % streams.size()];
    if (neighbour.line == before) {
      run = neighbour.run + 1;
      break;
    }
  }
  streams[line % streams.size()] = {line, run};
  return run;
}

bool Observer::pointed_to(const ObservedThread& thread, std::uint64_t address) {
  bool found = false;
  for (const auto& words : thread.pointers_)
    for (const std::uint64_t word : words) found |= address - word < object_bytes;
  return found;
}

void Observer::missed_load(ObservedThread& thread, std::uint64_t address) {
  const std::uint64_t line = address / trace::line_bytes;
  thread.recent_[line % ObservedThread::recent_lines] = line << 1;
  const std::uint32_t run = run_of(thread, line);
  const Pattern pattern = run > 0                       ? Pattern::sequential
                          : pointed_to(thread, address) ? Pattern::dependent
                                                        : Pattern::random;
  if (run < object_lines) {
    // The program has just read from this line: it is there.
    auto& words = thread.pointers_[thread.next_pointers_++ % ObservedThread::pointer_lines];
    std::memcpy(words.data(), reinterpret_cast<const void*>(line * trace::line_bytes + base_),
                sizeof(words));
  }
  thread.batch_[thread.used_++] = {line, pattern, false};
  if (thread.used_ == ObservedThread::batch_size) drain(thread);
}

void Observer::missed_store(ObservedThread& thread, std::uint64_t address) {
  const std::uint64_t line = address / trace::line_bytes;
  thread.recent_[line % ObservedThread::recent_lines] = line << 1 | 1;
  const Pattern pattern = run_of(thread, line) > 0 ? Pattern::sequential : Pattern::random;
  thread.batch_[thread.used_++] = {line, pattern, true};
  if (thread.used_ == ObservedThread::batch_size) drain(thread);
}

void Observer::touch(ObservedThread& thread, std::uint64_t address, std::uint64_t bytes,
                     bool store) {
  if (bytes == 0) return;
  const std::uint64_t last = (address + bytes - 1) / trace::line_bytes;
  for (std::uint64_t line = address / trace::line_bytes; line <= last; ++line) {
    std::uint64_t& slot = thread.recent_[line % ObservedThread::recent_lines];
    if (slot == (line << 1 | 1) || (!store && slot >> 1 == line)) continue;
    slot = line << 1 | (store ? 1U : 0U);
    run_of(thread, line);
    thread.batch_[thread.used_++] = {line, Pattern::sequential, store};
    if (thread.used_ == ObservedThread::batch_size) drain(thread);
  }
}

void Observer::begin(ObservedThread& thread, ObservedThread* creator) {
  if (creator != nullptr) drain(*creator);
  thread.used_ = 0;
  thread.recent_.fill(ObservedThread::none);
  thread.clock_ns_ = creator != nullptr ? creator->clock_ns_ : static_cast<double>(now_ns());
  thread.left_ = drain_instructions;
  thread.in_operation_ = thread.kept_ = false;
  thread.done_.clear();
}

void Observer::waited(ObservedThread& thread) {
  thread.clock_ns_ = std::max(thread.clock_ns_, static_cast<double>(now_ns()));
}

void Observer::drain(ObservedThread& thread) {
  {
    const std::lock_guard hold(lock_);
    drain_locked(thread);
    if (finished_ || !past_end()) return;
    finish_locked();
  }
  if (options_.ended != nullptr) options_.ended();
}

bool Observer::past_end() const {
  if (options_.until_ns == 0) return false;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
             static_cast<std::uint64_t>(now.tv_nsec) >=
         options_.until_ns;
}

// -------------------------------------------------------------------------------- all threads

void Observer::drain_locked(ObservedThread& thread) {
  double stalled = 0;
  const std::size_t used = std::exchange(thread.used_, 0);
  if (finished_) {
    thread.left_ = std::numeric_limits<std::int64_t>::max();
    return;
  }
  std::array<std::uint32_t, ObservedThread::batch_size> pages;
  for (std::size_t i = 0; i < used; ++i) {
    pages[i] = page_of(thread.batch_[i].line / trace::page_lines);
    if (pages[i] != no_page) __builtin_prefetch(&cells_[pages[i] * kinds], 1);
  }
  for (std::size_t i = 0; i < used; ++i) {
    const auto& missed = thread.batch_[i];
    const std::uint32_t page = pages[i];
    if (page == no_page) continue;
    const auto first = static_cast<std::uint32_t>(missed.line % trace::page_lines);
    const auto counted = llc_.touch(page, first, 1, missed.store);
    if (missed.store ? counted.dirtied == 0 : counted.missed == 0) continue;
    const Pattern pattern = counted.missed == 0 ? Pattern::resident : missed.pattern;
    const std::size_t kind = 2 * static_cast<std::size_t>(pattern) + (missed.store ? 1 : 0);
    const auto cell = static_cast<std::uint32_t>(page * kinds + kind);
    if (cells_[cell]++ == 0) touched_.push_back(cell);
    if (thread.kept_) {
      if (!thread.done_.empty() && thread.done_.back().cell == cell &&
          thread.done_.back().count < 0xffff)
        ++thread.done_.back().count;
      else
        thread.done_.push_back({cell, 1});
    }
    stalled += stall_ns_[kind];
  }
  const std::int64_t executed = drain_instructions - thread.left_;
  const double computed = static_cast<double>(executed) * instruction_ns_;
  thread.instructions_ += executed;
  thread.left_ = drain_instructions;
  thread.clock_ns_ += computed + stalled;
  compute_ns_ += computed;
  thread_ns_ += computed + stalled;
  clock_[1] += static_cast<std::uint64_t>(computed + stalled);
  const auto reached = static_cast<std::uint64_t>(thread.clock_ns_);
  std::uint64_t now = *clock_;
  while (now < reached && !clock_->compare_exchange_weak(now, reached)) {
  }
  const double before = interval_begin_ns_ - static_cast<double>(start_ns_);
  const double length = std::clamp(before / 16, first_interval_ns, options_.interval_ms * 1e6);
  if (thread.clock_ns_ >= interval_begin_ns_ + length) write_interval();
}

void Observer::write_interval() {
  const double now = static_cast<double>(now_ns());
  if ((touched_.empty() && compute_ns_ == 0) || !open_spool()) return;
  for (const std::uint32_t cell : touched_) {
    const std::uint32_t count = std::exchange(cells_[cell], 0);
    const std::size_t kind = cell % kinds;
    spool_->access(addresses_[cell / kinds], kind % 2 != 0, static_cast<std::uint32_t>(kind / 2),
                   count);
    sampled_ += count;
  }
  touched_.clear();
  for (ObservedThread* const thread : operations_.under_way) write_operation(*thread);
  SpoolHeader& header = *spool_->header();
  header.probes = probes_;
  header.operations = operations_.ended;
  header.operations_abandoned = operations_.abandoned;
  header.operations_unbegun = operations_.unbegun;
  header.last_operation_ns = operations_.last_ns;
  header.operation_level = operations_.level;
  if (operations_.ended > operations_.told) {
    spool_->operations(operations_.ended - operations_.told);
    operations_.told = operations_.ended;
  }
  spool_->compute(std::exchange(compute_ns_, 0));
  // What was counted came before now.
  spool_->time(static_cast<std::uint64_t>(now));
  interval_begin_ns_ = now;
  header.sampled = sampled_;
  const double elapsed = std::max(1.0, now - static_cast<double>(start_ns_));
  header.threads = static_cast<std::uint32_t>(std::max(1.0, thread_ns_ / elapsed + 0.5));
}

// -------------------------------------------------------------------------------- operations

void Observer::begin_operation(ObservedThread& thread) {
  const std::lock_guard hold(lock_);
  if (finished_) return;
  drain_locked(thread);
  if (thread.in_operation_) give_up_operation(thread);
  if (operations_.begun == 0) {
    write_interval();
    if (!open_spool()) return;
    spool_->operations_begin();
  }
  thread.in_operation_ = true;
  thread.began_ = thread.instructions_;
  thread.level_ = static_cast<std::uint32_t>(std::countr_zero(mix64(operations_.begun++)));
  thread.kept_ = thread.level_ >= operations_.level;
  if (!thread.kept_) return;
  if (thread.slot_ == 0) thread.slot_ = ++operations_.slots;
  operations_.under_way.push_back(&thread);
}

void Observer::end_operation(ObservedThread& thread) {
  const std::lock_guard hold(lock_);
  if (finished_) return;
  if (!thread.in_operation_) {
    ++operations_.unbegun;
    return;
  }
  drain_locked(thread);
  thread.in_operation_ = false;
  ++operations_.ended;
  operations_.last_ns = now_ns();
  if (!thread.kept_) return;
  std::erase(operations_.under_way, &thread);
  ++operations_.kept;
  operations_.accesses += thread.done_.size();
  write_operation(thread);
  thread.kept_ = false;
  if (open_spool())
    spool_->operation(thread.slot_, thread.level_,
                      static_cast<double>(thread.instructions_ - thread.began_) * instruction_ns_);
  if (operations_.kept >= 2 * least_operations ||
      (operations_.kept >= 2 * few_operations && operations_.accesses >= most_operation_accesses)) {
    ++operations_.level;
    operations_.kept /= 2;
    operations_.accesses /= 2;
  }
}

void Observer::give_up_operation(ObservedThread& thread) {
  ++operations_.abandoned;
  thread.in_operation_ = false;
  if (!std::exchange(thread.kept_, false)) return;
  std::erase(operations_.under_way, &thread);
  thread.done_.clear();
  if (open_spool()) spool_->operation(thread.slot_, abandoned_operation, 0);
}

/// What it has done so far.
void Observer::write_operation(ObservedThread& thread) {
  if (open_spool())
    for (const auto& [cell, count] : thread.done_) {
      const std::size_t kind = cell % kinds;
      spool_->operation_access(thread.slot_, addresses_[cell / kinds], kind % 2 != 0,
                               static_cast<std::uint32_t>(kind / 2), count);
    }
  thread.done_.clear();
}

void Observer::end_thread(ObservedThread& thread) {
  const std::lock_guard hold(lock_);
  drain_locked(thread);
  if (thread.in_operation_) give_up_operation(thread);
}

bool Observer::open_spool() {
  if (spool_ != nullptr) return spool_->good();
  spool_ = new SpoolWriter;
  // A process number may occur again, and does when a process executes another program.
  for (int i = 0; i < 10'000; ++i) {
    const std::string path =
        options_.folder + "/" + std::to_string(::getpid()) + "." + std::to_string(i) + ".spool";
    if (spool_->open(path.c_str(), options_.sampler.c_str(), start_ns_) != EEXIST) break;
  }
  if (!spool_->good()) {
    unseen_.count();
    return false;
  }
  for (const auto& [start, mapping] : mappings_)
    spool_->map(start, mapping.end - start, mapping.site.c_str(), mapping.shared, mapping.offset);
  return true;
}

void Observer::flush(ObservedThread& thread) {
  const std::lock_guard hold(lock_);
  drain_locked(thread);
  if (!finished_) write_interval();
}

void Observer::finish(ObservedThread* thread) {
  const std::lock_guard hold(lock_);
  if (finished_) return;
  if (thread != nullptr) drain_locked(*thread);
  finish_locked();
}

void Observer::finish_locked() {
  write_interval();
  finished_ = true;
  operations_.under_way.clear();
  delete std::exchange(spool_, nullptr);
}

void Observer::leave(bool leaving) {
  const std::lock_guard hold(lock_);
  if (spool_ == nullptr || !spool_->good()) return;
  auto from = static_cast<std::uint32_t>(leaving ? SpoolState::open : SpoolState::closed);
  const auto to = static_cast<std::uint32_t>(leaving ? SpoolState::closed : SpoolState::open);
  spool_->header()->state.compare_exchange_strong(from, to);
}

bool Observer::reachable() const {
  return ::faccessat(AT_FDCWD, options_.folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
}

void Observer::before_fork() { lock_.lock(); }
void Observer::after_fork_in_parent() { lock_.unlock(); }
void Observer::after_fork_in_child() {
  if (spool_ != nullptr) {
    spool_->abandon();
    delete std::exchange(spool_, nullptr);
  }
  for (const std::uint32_t cell : touched_) cells_[cell] = 0;
  touched_.clear();
  // What it writes to is copied into new pages: its cache begins empty.
  llc_ = trace::LlcFilter(options_.llc_mib * (1 << 20), trace::LlcSet::ways);
  for (std::size_t i = 0; i < root_count; ++i)
    if (std::uint32_t* const old = std::exchange(roots_[i], nullptr); old != nullptr)
      ::munmap(old, leaf_pages * sizeof(*old));
  free_.clear();
  pages_ = 0;
  compute_ns_ = 0;
  thread_ns_ = 0;
  sampled_ = 0;
  operations_ = {};
  start_ns_ = *clock_;
  interval_begin_ns_ = static_cast<double>(start_ns_);
  lock_.unlock();
}

// ------------------------------------------------------------------------------------ mappings

std::uint32_t* Observer::leaf(std::uint64_t page, bool make) {
  std::uint32_t*& found = roots_[page / leaf_pages % root_count];
  if (found == nullptr && make) found = sparse<std::uint32_t>(leaf_pages);
  return found == nullptr ? nullptr : found + page % leaf_pages;
}

/// Number of a page, given at its first access. None for an address that is not mapped: the access
/// is older than the change that took the page away.
std::uint32_t Observer::page_of(std::uint64_t page) {
  std::uint32_t& number = *leaf(page, true);
  if (number != 0) [[likely]]
    return number - 1;
  const std::uint64_t address = page * page_bytes;
  if (find(address) == mappings_.end() && look_up(address) == mappings_.end()) return no_page;
  if (free_.size() > rested_pages || (pages_ == trace::LlcFilter::max_pages && !free_.empty())) {
    number = free_.front() + 1;
    free_.pop_front();
  } else if (pages_ < trace::LlcFilter::max_pages) {
    number = ++pages_;
  } else {
    if (spool_ != nullptr && spool_->good()) ++spool_->header()->dropped;
    return no_page;
  }
  addresses_[number - 1] = address;
  return number - 1;
}

/// Whether pages in the range have been accessed; takes their numbers back if they are to be
/// forgotten.
bool Observer::any_pages(std::uint64_t address, std::uint64_t bytes, bool forget) {
  bool any = false;
  const std::uint64_t end = (address + bytes + page_bytes - 1) / page_bytes;
  for (std::uint64_t page = address / page_bytes; page < end;) {
    std::uint32_t* const number = leaf(page, false);
    if (number == nullptr) {
      page = (page / leaf_pages + 1) * leaf_pages;
      continue;
    }
    if (*number != 0) {
      any = true;
      if (!forget) return true;
      free_.push_back(std::exchange(*number, 0) - 1);
    }
    ++page;
  }
  return any;
}

Observer::Mappings::iterator Observer::find(std::uint64_t address) {
  auto at = mappings_.upper_bound(address);
  if (at == mappings_.begin()) return mappings_.end();
  --at;
  return address < at->second.end ? at : mappings_.end();
}

/// Mappings that were there before us (the program, its loader, the first stack), from
/// /proc/self/maps: all files, and the one that holds the address, which is returned.
Observer::Mappings::iterator Observer::look_up(std::uint64_t address) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return mappings_.end();
  char line[4400];
  while (std::fgets(line, sizeof(line), maps) != nullptr) {
    unsigned long from = 0;
    unsigned long to = 0;
    unsigned long offset = 0;
    char rights[8] = "";
    unsigned major = 0;
    unsigned minor = 0;
    unsigned long inode = 0;
    char path[4100] = "";
    if (std::sscanf(line, "%lx-%lx %7s %lx %x:%x %lu %4095[^\n]", &from, &to, rights, &offset,
                    &major, &minor, &inode, path) < 7)
      continue;
    const std::uint64_t begin = from - base_;
    const std::uint64_t end = to - base_;
    const bool file = path[0] == '/';
    if (!file && (address < begin || address >= end)) continue;
    // Not over what is known.
    std::uint64_t at = begin;
    while (at < end) {
      const auto after = mappings_.upper_bound(at);
      if (after != mappings_.begin() && std::prev(after)->second.end > at) {
        at = std::prev(after)->second.end;
        continue;
      }
      const std::uint64_t stop = after == mappings_.end() ? end : std::min(end, after->first);
      const Mapping mapping{stop, file ? base_name(path) : "stack", offset + at - begin, file,
                            rights[3] == 's' ? shared_file(major, minor, inode) : 0};
      mappings_.insert_or_assign(at, mapping);
      if (spool_ != nullptr)
        spool_->map(at, stop - at, mapping.site.c_str(), mapping.shared, mapping.offset);
      at = stop;
    }
  }
  std::fclose(maps);
  return find(address);
}

void Observer::cut_out(std::uint64_t from, std::uint64_t to) {
  auto at = mappings_.lower_bound(from);
  if (at != mappings_.begin() && std::prev(at)->second.end > from) --at;
  while (at != mappings_.end() && at->first < to) {
    const auto [start, mapping] = *at;
    at = mappings_.erase(at);
    if (start < from) {
      Mapping front = mapping;
      front.end = from;
      mappings_.insert_or_assign(start, front);
    }
    if (mapping.end > to) {
      Mapping back = mapping;
      back.offset += to - start;
      mappings_.insert_or_assign(to, back);
    }
  }
}

void Observer::map(ObservedThread& thread, std::uint64_t address, std::uint64_t bytes,
                   const std::string& site, std::uint64_t offset, bool code, std::uint64_t shared) {
  const std::lock_guard hold(lock_);
  bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  if (finished_ || bytes == 0) return;
  if (any_pages(address, bytes, false)) {
    drain_locked(thread);
    write_interval();
    any_pages(address, bytes, true);
  }
  cut_out(address, address + bytes);
  mappings_.insert_or_assign(address, Mapping{address + bytes, site, offset, code, shared});
  if (spool_ != nullptr) spool_->map(address, bytes, site.c_str(), shared, offset);
}

void Observer::unmap(ObservedThread& thread, std::uint64_t address, std::uint64_t bytes) {
  const std::lock_guard hold(lock_);
  if (finished_) return;
  drain_locked(thread);
  if (any_pages(address, bytes, false)) {
    write_interval();
    any_pages(address, bytes, true);
  }
  cut_out(address, address + (bytes + page_bytes - 1) / page_bytes * page_bytes);
  if (spool_ != nullptr) spool_->unmap(address, bytes);
}

void Observer::discard(ObservedThread& thread, std::uint64_t address, std::uint64_t bytes) {
  const std::lock_guard hold(lock_);
  if (finished_) return;
  drain_locked(thread);
  if (!any_pages(address, bytes, false)) return;
  write_interval();
  any_pages(address, bytes, true);
  if (spool_ != nullptr) spool_->discard(address, bytes);
}

void Observer::adopt(std::uint64_t base) {
  const std::lock_guard hold(lock_);
  base_ = base;
  look_up(0);
}

std::uint64_t Observer::mapping_end(std::uint64_t address) {
  const std::lock_guard hold(lock_);
  const auto at = find(address);
  return at == mappings_.end() ? 0 : at->second.end;
}

Observer::Place Observer::place(std::uint64_t address) {
  const std::lock_guard hold(lock_);
  auto at = find(address);
  if (at == mappings_.end()) return {};
  return {at->second.site, at->second.offset + address - at->first, at->second.code,
          at->second.shared};
}

}  // namespace tt::record
