// SPDX-License-Identifier: MIT

// TracedMemory: a kernel's heap. Real bytes at simulated addresses, whose loads and stores are
// reported to the recorder.
//
// For structures made of nodes that point to each other, as TracedArray (traced.hpp) is for arrays:
// a pointer is a simulated address, and what lies there has the layout of the real program, so that
// lines and pages are shared as in the original. `peek` and `poke` touch the data without a report,
// for what is in a register or was just reported.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "trace/llc.hpp"
#include "trace/recorder.hpp"

namespace tt::kernels {

class TracedMemory {
 public:
  /// No address. (Zero is one: the simulated address space begins there.)
  static constexpr trace::Address none = ~trace::Address{0};

  /// `scale` is the stream's: a system of up to 4 TiB has that share of it here.
  TracedMemory(trace::Recorder& recorder, double scale)
      : recorder_(&recorder),
        reserved_(scale * most < full_system
                      ? most
                      : static_cast<std::size_t>(full_system / scale) / page * page),
        host_(::mmap(nullptr, reserved_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                     0)) {
    if (host_ == MAP_FAILED) throw std::bad_alloc{};
  }
  ~TracedMemory() { ::munmap(host_, reserved_); }
  TracedMemory(const TracedMemory&) = delete;
  TracedMemory& operator=(const TracedMemory&) = delete;

  /// A range of `bytes` zeros, allocated at `site`. Nothing is touched yet. As long as all ranges
  /// of a recorder are multiples of a power of two, they are aligned to it. std::invalid_argument
  /// beyond the 4 TiB.
  trace::Address map(std::string_view site, std::uint64_t bytes) {
    const trace::Address start = recorder_->map(site, bytes);
    const std::size_t size = (bytes + page - 1) / page * page;
    if (start + size > reserved_)
      throw std::invalid_argument("a system of more than 4 TiB: the workload is too large");
    if (::mprotect(host(start), size, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc{};
    // A walk through a heap of gigabytes waits for translations too. May fail: then it only takes
    // longer.
    (void)::madvise(host(start), size, MADV_HUGEPAGE);
    mapped_ += bytes;
    return start;
  }

  /// Reports only: what is read or written there is up to the caller.
  void loads(std::uint32_t stream_class, trace::Address address, std::uint64_t bytes) const {
    recorder_->load(stream_class, address, bytes);
  }
  void stores(std::uint32_t stream_class, trace::Address address, std::uint64_t bytes) const {
    recorder_->store(stream_class, address, bytes);
  }
  template <typename T>
  [[nodiscard]] const T& load(std::uint32_t stream_class, trace::Address address) const {
    recorder_->load(stream_class, address, sizeof(T));
    return peek<T>(address);
  }
  template <typename T>
  void store(std::uint32_t stream_class, trace::Address address, const T& value) {
    recorder_->store(stream_class, address, sizeof(T));
    poke<T>(address) = value;
  }

  /// The object at `address`, which must be aligned for it and within one range.
  template <typename T>
  [[nodiscard]] const T& peek(trace::Address address) const {
    return *reinterpret_cast<const T*>(host(address));
  }
  template <typename T>
  [[nodiscard]] T& poke(trace::Address address) {
    static_assert(std::is_trivially_copyable_v<T>);
    return *reinterpret_cast<T*>(host(address));
  }
  /// Asks the host for the line of `address`, which will be peeked soon.
  void expect(trace::Address address) const { __builtin_prefetch(host(address)); }
  [[nodiscard]] std::span<std::byte> bytes(trace::Address address, std::size_t count) {
    return {host(address), count};
  }
  [[nodiscard]] std::span<const std::byte> bytes(trace::Address address, std::size_t count) const {
    return {host(address), count};
  }

  [[nodiscard]] std::uint64_t mapped_bytes() const { return mapped_; }

 private:
  static constexpr std::size_t page = trace::base_page_bytes;
  static constexpr double full_system = 4.0 * (std::uint64_t{1} << 40);
  static constexpr std::size_t most =
      trace::LlcFilter::max_pages * page;  // a recorder maps no more
  [[nodiscard]] std::byte* host(trace::Address address) const {
    return static_cast<std::byte*>(host_) + address;
  }

  trace::Recorder* recorder_;
  // Reserved addresses cost nothing until they are mapped, except under emulation of a processor
  // (qemu-user), whose own page tables have entries for them.
  std::size_t reserved_;
  void* host_;  // the simulated address space, as it is
  std::uint64_t mapped_ = 0;
};

}  // namespace tt::kernels
