// SPDX-License-Identifier: MIT

// RecordedSpace: the address space of a kernel that is recorded: its objects, their pages, and
// which of these were touched or freed.
//
// Page numbers are dense from 0 in order of mapping and are never given twice. Objects lie in that
// order, without gaps.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/assert.hpp"
#include "core/types.hpp"
#include "trace/llc.hpp"
#include "trace/stream.hpp"

namespace tt::trace {

class RecordedSpace {
 public:
  /// The kernel holds one base page in `thinning` of each page (recorder.hpp).
  RecordedSpace(std::uint64_t page_bytes, std::uint32_t thinning)
      : held_bytes_(page_bytes / thinning),
        frame_shift_(static_cast<unsigned>(std::countr_zero(held_bytes_ / base_page_bytes))) {}

  /// Bytes of the kernel's memory in a page.
  [[nodiscard]] std::uint64_t held_bytes() const { return held_bytes_; }
  /// A page of the stream is 2^frame_shift of the kernel's base pages (frames).
  [[nodiscard]] unsigned frame_shift() const { return frame_shift_; }
  [[nodiscard]] std::uint64_t pages() const { return state_.size(); }
  [[nodiscard]] std::uint64_t frames() const { return pages() << frame_shift_; }
  [[nodiscard]] const std::vector<Object>& objects() const { return objects_; }

  /// A new object of so many bytes, as a block is told of it.
  Event map(std::string site, std::uint64_t bytes) {
    const std::uint64_t count = (bytes + held_bytes_ - 1) / held_bytes_;
    if (count == 0) throw std::invalid_argument("recorder: a mapping of no bytes");
    const std::uint64_t first = reserve(std::move(site), count);
    return event(EventType::map, objects_.size() - 1, first, count);
  }
  /// A new object of so many pages. Returns the first one.
  std::uint64_t reserve(std::string site, std::uint64_t count) {
    const std::uint64_t first = pages();
    if (count > (LlcFilter::max_pages >> frame_shift_) - first)
      throw std::invalid_argument("recorder: more than 128 GiB of simulated memory; raise scale");
    state_.resize(first + count, State::untouched);
    TT_ASSERT(first == (objects_.empty() ? 0 : objects_.back().first_page + objects_.back().pages));
    objects_.push_back({std::move(site), first, count});
    return first;
  }
  /// The last pages are what so many from `first` on are: touched, or freed.
  void copy_to_end(std::uint64_t first, std::uint64_t count) {
    TT_ASSERT(first + count <= pages() - count);
    std::copy_n(state_.begin() + static_cast<std::ptrdiff_t>(first), count,
                state_.end() - static_cast<std::ptrdiff_t>(count));
  }

  /// The object that starts at the address, as a block is told that it is freed.
  [[nodiscard]] Event unmapping(std::uint64_t start) const {
    const std::size_t object = object_of(start / held_bytes_);
    if (object == objects_.size() || objects_[object].first_page * held_bytes_ != start)
      throw std::logic_error("recorder: unmap() of an address that map() did not return");
    return unmapping(start, objects_[object].pages);
  }
  /// Pages of one object, likewise.
  [[nodiscard]] Event unmapping(std::uint64_t start, std::uint64_t pages) const {
    const std::uint64_t first = start / held_bytes_;
    const std::size_t object = object_of(first);
    if (object == objects_.size() || start % held_bytes_ != 0 || pages == 0 ||
        pages > objects_[object].first_page + objects_[object].pages - first)
      throw std::logic_error("recorder: unmap() of what is not one mapped range");
    const auto freed = std::span(state_).subspan(first, pages);
    if (std::ranges::find(freed, State::freed) != freed.end())
      throw std::logic_error("recorder: unmap() of a page that is not mapped");
    return event(EventType::unmap, object, first, pages);
  }
  void free(const Event& unmapped) {
    std::ranges::fill(std::span(state_).subspan(unmapped.first, unmapped.count), State::freed);
  }

  /// Before the access to a page. `events`: the block's, which tell of first touches.
  void touch(std::uint64_t page, std::vector<Event>& events) {
    if (page >= state_.size() || state_[page] != State::touched) first_touch(page, events);
  }

 private:
  enum class State : std::uint8_t { untouched, touched, freed };

  static Event event(EventType type, std::size_t object, std::uint64_t first, std::uint64_t count) {
    return {type, static_cast<std::uint32_t>(object), static_cast<std::uint32_t>(first),
            static_cast<std::uint32_t>(count)};
  }
  /// Unknown page: objects_.size().
  [[nodiscard]] std::size_t object_of(std::uint64_t page) const {
    if (page >= state_.size()) return objects_.size();
    const auto after =
        std::ranges::upper_bound(objects_, page, {}, [](const Object& o) { return o.first_page; });
    return static_cast<std::size_t>(after - objects_.begin()) - 1;
  }
  [[gnu::noinline]] void first_touch(std::uint64_t page, std::vector<Event>& events) {
    if (page >= state_.size() || state_[page] == State::freed)
      throw std::logic_error("recorder: access to page " + std::to_string(page) +
                             ", which is not mapped");
    state_[page] = State::touched;
    const Event first = event(EventType::touch, object_of(page), page, 1);
    if (!events.empty()) {
      Event& last = events.back();
      if (last.type == EventType::touch && last.object == first.object &&
          last.first + last.count == first.first) {
        ++last.count;
        return;
      }
    }
    events.push_back(first);
  }

  std::uint64_t held_bytes_;
  unsigned frame_shift_;
  std::vector<State> state_;  // by page
  std::vector<Object> objects_;
};

}  // namespace tt::trace
