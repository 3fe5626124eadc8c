// SPDX-License-Identifier: MIT

// Recorder, natively: in place of the one that writes streams (trace/recorder.cpp), it carries a
// kernel's loads and stores out, on real memory of the machine that the program runs on. The
// kernels are the same objects; the linker takes this for that.
//
// A kernel computes on data of its own, which a recorded stream does not show; here it lies in an
// arena (arena.hpp) that is no part of the measured memory. What the kernel reports is what the
// workload would access: each line of it is really loaded or stored, at an address that stands for
// the simulated one. So pages are touched, faulted, sampled and moved as those of the workload, and
// their contents are nobody's.
//
// How many misses of a class are outstanding together, and how long the workload computes, the
// kernel knows, and the emulated machine is told. There the program's own instructions take no
// time, as in the simulator.
#include "trace/recorder.hpp"

#include <sys/mman.h>

#include <array>
#include <map>
#include <new>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "emulate/markers.hpp"
#include "emulate/native/program.hpp"

namespace tt::trace {
namespace {

constexpr std::uint64_t window_bytes = std::uint64_t{1} << 40;
constexpr std::uint64_t page = base_page_bytes;
constexpr std::size_t most_kinds = 16;

std::uint64_t whole_pages(std::uint64_t bytes) { return (bytes + page - 1) / page * page; }

}  // namespace

struct Recorder::Impl {
  using Kinds = std::array<std::uint64_t, most_kinds>;

  // What happens seldom is kept out of line: an emulator executes instruction by instruction.
  void enter(std::uint32_t stream_class) {
    if (stream_class != of_class) [[unlikely]]
      change(stream_class);
  }
  [[gnu::noinline, gnu::cold]] void change(std::uint32_t stream_class) {
    begin_if_due();
    of_class = stream_class;
    emulate::mark_class(stream_class);
  }
  /// Kernels draw orders and chains of their own after set_timed(true), which a stream does not
  /// have. So the timed part begins with the first thing in it that a stream has.
  void begin_if_due() {
    if (due) [[unlikely]]
      begin();
  }
  [[gnu::noinline, gnu::cold]] void begin() {
    due = false;
    emulate::program().begin();
  }
  /// The recorded stream's seconds, by the share of its operations that have been done: the work
  /// does not depend on how fast memory is. 0 where there are no operations: such a kernel asks for
  /// its progress alone.
  [[nodiscard]] double seconds_of(const Kinds& done) const {
    const emulate::Program& program = emulate::program();
    if (program.operations == 0) return 0;
    const auto sum = std::accumulate(done.begin(), done.end(), std::uint64_t{0});
    // In this order: exactly the seconds when all are done.
    return program.seconds * (static_cast<double>(sum) / static_cast<double>(program.operations));
  }

  char* base = nullptr;
  std::uint32_t of_class = ~0u;
  std::uint32_t kind = 0;
  bool timed = true;
  bool begun = false;
  bool due = false;    // the timed part, which has not begun
  double owed_ns = 0;  // of computation: what was less than a nanosecond
  Kinds operations{}, set_up{};
  StreamInfo info;
  std::uint64_t next = 0;
  std::map<Address, std::uint64_t> ranges;  // bytes
};

// The file is for the recorder of streams.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
Recorder::Recorder(std::filesystem::path, StreamInfo info, RecorderOptions)
    : impl_(std::make_unique<Impl>()) {
  if (info.op_kinds.size() > most_kinds || info.classes.size() > emulate::most_classes)
    throw std::logic_error("more kinds of operations or classes than expected");
  impl_->info = std::move(info);
  void* const at = ::mmap(nullptr, window_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  impl_->base = static_cast<char*>(at);
  std::array<emulate::ToldClass, emulate::most_classes> told{};
  for (std::size_t i = 0; i < impl_->info.classes.size(); ++i) {
    const StreamClass& each = impl_->info.classes[i];
    told[i] = {static_cast<std::uint64_t>(each.mlp * 1000),
               static_cast<std::uint64_t>(each.issue_ns * 1000)};
  }
  emulate::program().set_up();
  emulate::mark_with<emulate::Marker::classes>(reinterpret_cast<std::uintptr_t>(told.data()));
}

Recorder::~Recorder() = default;

Address Recorder::map(std::string_view, std::uint64_t bytes) {
  Impl& self = *impl_;
  const std::uint64_t size = whole_pages(bytes);
  if (self.next + size > window_bytes ||
      ::mprotect(self.base + self.next, size, PROT_READ | PROT_WRITE) != 0)
    throw std::bad_alloc();
  self.ranges[self.next] = size;
  return std::exchange(self.next, self.next + size);
}

void Recorder::unmap(Address start) {
  const auto range = impl_->ranges.find(start);
  if (range == impl_->ranges.end()) throw std::logic_error("not a mapped range");
  unmap(start, range->second / page);
  impl_->ranges.erase(range);
}

void Recorder::unmap(Address start, std::uint64_t pages) {
  if (::munmap(impl_->base + start, pages * page) != 0) throw std::logic_error("munmap failed");
}

void Recorder::set_timed(bool timed) {
  impl_->timed = timed;
  if (!timed || impl_->begun) return;
  impl_->begun = impl_->due = true;
  impl_->of_class = ~0u;  // so that the next access, too, looks whether it is due
}

void Recorder::load(std::uint32_t stream_class, Address address, std::uint64_t bytes) {
  Impl& self = *impl_;
  self.enter(stream_class);
  for (std::uint64_t at = address / line_bytes * line_bytes; at < address + bytes; at += line_bytes)
    emulate::workload_load(self.base + at);
}

void Recorder::store(std::uint32_t stream_class, Address address, std::uint64_t bytes) {
  Impl& self = *impl_;
  self.enter(stream_class);
  for (std::uint64_t at = address / line_bytes * line_bytes; at < address + bytes; at += line_bytes)
    emulate::workload_store(self.base + at, at);
}

void Recorder::miss(std::uint32_t, AccessKind, Address, std::uint64_t) {
  throw std::logic_error("what was observed elsewhere cannot be carried out");
}

void Recorder::compute(std::uint32_t, double nanoseconds) {
  impl_->begin_if_due();
  const double due_ns = impl_->owed_ns + nanoseconds;
  const auto whole = static_cast<std::uint64_t>(due_ns);
  impl_->owed_ns = due_ns - static_cast<double>(whole);
  if (emulate::program().emulated)
    emulate::mark_with<emulate::Marker::compute>(whole);
  else
    emulate::spin(whole);
}

void Recorder::end_block() {}

void Recorder::begin_operation(std::uint32_t kind) {
  impl_->begin_if_due();
  impl_->kind = kind;
}

void Recorder::end_operation() {
  ++(impl_->timed ? impl_->operations : impl_->set_up)[impl_->kind];
}

void Recorder::begin_pattern() {}

void Recorder::end_pattern() {}

void Recorder::repeat_pattern(std::uint64_t times) {
  if (times > 0)
    throw std::logic_error(
        "this input repeats a recorded part, which a program cannot; one of a single trial can "
        "run");
}

void Recorder::draw_pattern(double) {
  throw std::logic_error("drawn accesses are of streams of huge pages alone");
}

double Recorder::timed_seconds() const {
  impl_->begin_if_due();
  return impl_->seconds_of(impl_->operations);
}

double Recorder::total_seconds() const {
  return impl_->seconds_of(impl_->operations) + impl_->seconds_of(impl_->set_up);
}

StreamInfo Recorder::finish() {
  Impl& self = *impl_;
  if (!self.begun || self.due) throw std::logic_error("the workload has no timed part");
  std::vector<std::string> kinds;
  for (const auto& kind : self.info.op_kinds) kinds.push_back(kind.name);
  emulate::program().end(kinds, self.operations.data(), self.base, self.next);
  return self.info;
}

}  // namespace tt::trace
