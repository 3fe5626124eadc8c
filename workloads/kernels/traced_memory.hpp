// TracedMemory: a kernel's heap. Real bytes at simulated addresses, whose loads and stores are
// reported to the recorder.
//
// For structures made of nodes that point to each other, as TracedArray (traced.hpp) is for arrays:
// a pointer is a simulated address, and what lies there has the layout of the real program, so that
// lines and pages are shared as in the original. `peek` and `poke` touch the data without a report,
// for what is in a register or was just reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "trace/recorder.hpp"

namespace tt::kernels {

class TracedMemory {
 public:
  /// No address. (Zero is one: the simulated address space begins there.)
  static constexpr trace::Address none = ~trace::Address{0};

  explicit TracedMemory(trace::Recorder& recorder) : recorder_(&recorder) {}

  /// A range of `bytes` zeros, allocated at `site`. Nothing is touched yet. As long as all ranges
  /// of a recorder are multiples of a power of two, they are aligned to it.
  trace::Address map(std::string_view site, std::uint64_t bytes) {
    const trace::Address start = recorder_->map(site, bytes);
    const std::size_t pages = (bytes + page - 1) / page;
    ranges_.emplace_back(static_cast<std::byte*>(std::calloc(pages, page)));
    if (!ranges_.back()) throw std::bad_alloc{};
    pages_.resize(start / page + pages);
    for (std::size_t i = 0; i < pages; ++i)
      pages_[start / page + i] = ranges_.back().get() + i * page;
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
  [[nodiscard]] std::span<std::byte> bytes(trace::Address address, std::size_t count) {
    return {host(address), count};
  }
  [[nodiscard]] std::span<const std::byte> bytes(trace::Address address, std::size_t count) const {
    return {host(address), count};
  }

  [[nodiscard]] std::uint64_t mapped_bytes() const { return mapped_; }

 private:
  static constexpr std::size_t page = trace::base_page_bytes;
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  [[nodiscard]] std::byte* host(trace::Address address) const {
    return pages_[address / page] + address % page;
  }

  trace::Recorder* recorder_;
  std::vector<std::unique_ptr<std::byte, Free>> ranges_;
  std::vector<std::byte*> pages_;  // by simulated page: neighbours of one range are neighbours here
  std::uint64_t mapped_ = 0;
};

}  // namespace tt::kernels
