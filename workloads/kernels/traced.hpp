// SPDX-License-Identifier: MIT

// TracedArray: an array of a kernel whose loads and stores are reported to the recorder.
//
// A kernel keeps its data in these and runs its real algorithm on them: what it reads is what was
// recorded. `peek` and `poke` touch the data without a report, for values that a compiler would
// hold in a register and for checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "trace/recorder.hpp"

namespace tt::kernels {

template <typename T>
class TracedArray {
 public:
  /// `count` zeros at a range of their own, allocated at `site`. Nothing is touched yet. An element
  /// takes `width` bytes of simulated memory, where the workload's own type is wider or narrower.
  TracedArray(trace::Recorder& recorder, std::string_view site, std::size_t count,
              std::size_t width = sizeof(T))
      : recorder_(&recorder),
        base_(recorder.map(site, count * width)),
        width_(width),
        data_(count) {}
  TracedArray(TracedArray&&) noexcept = default;
  TracedArray& operator=(TracedArray&&) noexcept = default;
  TracedArray(const TracedArray&) = delete;
  TracedArray& operator=(const TracedArray&) = delete;

  [[nodiscard]] T load(std::uint32_t stream_class, std::size_t i) const {
    recorder_->load(stream_class, address(i), width_);
    return data_[i];
  }
  void store(std::uint32_t stream_class, std::size_t i, const T& value) {
    recorder_->store(stream_class, address(i), width_);
    data_[i] = value;
  }
  /// Elements [first, first + count), in order: one report for all.
  [[nodiscard]] std::span<const T> load_range(std::uint32_t stream_class, std::size_t first,
                                              std::size_t count) const {
    recorder_->load(stream_class, address(first), count * width_);
    return std::span(data_).subspan(first, count);
  }
  /// Reports stores to elements [first, first + count); the caller fills the span.
  [[nodiscard]] std::span<T> store_range(std::uint32_t stream_class, std::size_t first,
                                         std::size_t count) {
    recorder_->store(stream_class, address(first), count * width_);
    return std::span(data_).subspan(first, count);
  }

  /// Has the host fetch an element that is needed soon; reports nothing. The recorder's work
  /// between two loads is too long for a processor to see the next one by itself.
  void fetch(std::size_t i) const { __builtin_prefetch(&data_[i]); }

  [[nodiscard]] const T& peek(std::size_t i) const { return data_[i]; }
  [[nodiscard]] T& poke(std::size_t i) { return data_[i]; }
  [[nodiscard]] std::span<const T> peek_all() const { return data_; }

  [[nodiscard]] std::size_t size() const { return data_.size(); }
  [[nodiscard]] trace::Address address(std::size_t i) const { return base_ + i * width_; }

  /// Gives the range back. An array that is not freed lives until the end of the stream.
  void free() {
    recorder_->unmap(base_);
    data_ = {};
  }

 private:
  trace::Recorder* recorder_;
  trace::Address base_;
  std::size_t width_;
  std::vector<T> data_;
};

}  // namespace tt::kernels
